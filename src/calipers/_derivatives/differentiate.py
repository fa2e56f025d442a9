"""differentiate, and the derivative with error estimates that it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, overload

import numpy as np

from .._core.arguments import options_from, takes_options
from .._core.protocols import NDArray
from .._core.report import Printable, index_text, labelled
from .._core.types import AllJacobianOptions, ArrayLike, SparseJacobianOptions
from . import sparse
from .function import Problem
from .options import Options
from .solve import (
    STATUS,
    by_argument,
    differentiate_dense,
    prepare,
    require_dense_memory,
    shaped,
    shaped_errors,
    steps_of,
)
from .steps import ADAPTIVE


@dataclass(frozen=True, repr=False, eq=False)
class Derivative(Printable):
    """
    A derivative with an error estimate for each entry.

    It is returned by `differentiate` and `hessian`, and converts to the array ``.value``.

    Attributes
    ----------
    value : ndarray or csc_array
        The derivative, of shape ``f(x).shape + x.shape``. For complex functions that are not
        holomorphic, a pair of derivatives with respect to z and its conjugate.
    error : ndarray or csc_array
        The estimated absolute error of each entry, of the form of `value`. It is inf where it is
        unknown, as always for fixed steps.
    step : ndarray
        The step for each element of x, 0 if there was none. For the adaptive method it is the one
        of the largest entry of the column.
    status : ndarray of str
        The status of each element of x, of the shape of x:

        - CONVERGED: slopes at several steps agree within `error`;
        - FIXED: a fixed step was used, so that the error is unknown;
        - NOISY: f has more noise than rounding; `error` includes its effect;
        - NONSMOOTH: the derivatives from both sides differ, and `error` is half the difference; or
          they are infinite, as is `error`;
        - ALIASED: long and short steps agree on different values, and `error` is the difference;
        - NONFINITE: f is infinite or NaN near x, or nothing but noise;
        - BOUNDED: the bounds leave no room for a step;
        - EXCLUDED: the step is 0.
    nfev : int
        The number of evaluations of f. A call with a batch counts each of its rows.
    colors : int or None
        The number of groups of columns that were evaluated together; None for dense derivatives.
    seconds : float
        The elapsed time in seconds, without the compilation of calipers' kernels.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> d = calipers.differentiate(np.sin, np.array([0.5, 1e-9]))
    >>> d.status.tolist()
    ['CONVERGED', 'CONVERGED']
    >>> bool(np.all(np.abs(np.diag(d.value) - np.cos([0.5, 1e-9])) <= np.diag(d.error)))
    True
    """

    value: Any
    error: Any
    step: NDArray
    status: NDArray
    nfev: int
    colors: int | None
    seconds: float

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return `value` as an array; raise a TypeError if it is sparse or a pair."""
        if self.colors is not None:
            raise TypeError("the derivative is sparse: use .value or .value.toarray()")
        if isinstance(self.value, tuple):
            raise TypeError(
                "the derivative is a pair: use .value[0], with respect to z, or "
                ".value[1], with respect to its conjugate"
            )
        return np.array(self.value, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        """Return a summary: status counts and positions, the largest error, the calls of f."""
        value = self.value[0] if isinstance(self.value, tuple) else self.value
        error = self.error[0] if isinstance(self.error, tuple) else self.error
        names, counts = np.unique(self.status, return_counts=True)
        columns = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))
        rows = [f"Derivative of shape {value.shape}: {columns or 'no columns'}"]
        rows += [
            labelled(name, _positions(np.argwhere(self.status == name)))
            for name in names
            if name not in _USUAL
        ]
        errors = np.asarray(error if self.colors is None else error.data)
        finite = errors[np.isfinite(errors)]
        if finite.size:
            index = _largest(error, sparse=self.colors is not None)
            where = f" ({_position('value', index)})" if index else ""
            median = np.median(finite)
            text = f"at most {finite.max():.2g}{where}, median {median:.2g}"
            rows.append(labelled("error", text))
        if finite.size < errors.size:
            text = f"error of {errors.size - finite.size} of {errors.size} entries"
            rows.append(labelled("unknown", text))
        groups = "" if self.colors is None else f" in {self.colors} color{'s' * (self.colors != 1)}"
        rows.append(labelled("calls", f"f {self.nfev}{groups}, {self.seconds:.3g} s"))
        return "\n".join(rows)


_USUAL = frozenset({"CONVERGED", "FIXED", "EXCLUDED"})  # as the caller asked for
_SHOWN = 3  # positions that a warning lists before it counts the others


def _position(name: str, index: Any) -> str:
    return f"{name}{index_text(index)}" if len(index) else name


def _positions(indices: NDArray) -> str:
    """Name the first of some elements of x."""
    shown = ", ".join(_position("x", index) for index in indices[:_SHOWN])
    rest = len(indices) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def _largest(error: Any, *, sparse: bool) -> tuple[int, ...]:
    """Return the position of the largest error that is known."""
    data = np.asarray(error.data if sparse else error)
    flat = int(np.argmax(np.where(np.isfinite(data), data, -1.0)))
    if not sparse:
        return tuple(map(int, np.unravel_index(flat, data.shape)))
    column = int(np.searchsorted(error.indptr, flat, side="right")) - 1
    return int(error.indices[flat]), column


@overload
def differentiate(
    f: Callable[..., Any],
    x: Sequence[ArrayLike],
    *,
    argnums: tuple[int, ...],
    **options: Unpack[SparseJacobianOptions],
) -> tuple[Derivative, ...]: ...


@overload
def differentiate(
    f: Callable[..., Any],
    x: ArrayLike,
    *,
    argnums: int = 0,
    **options: Unpack[SparseJacobianOptions],
) -> Derivative: ...


@takes_options(Options, method=ADAPTIVE)
def differentiate(
    f: Callable[..., Any],
    x: ArrayLike | Sequence[ArrayLike],
    **options: Unpack[AllJacobianOptions],
) -> Any:
    """
    Compute the Jacobian of a function with an error estimate for each entry.

    The adaptive method takes central differences at steps from half of ``|x|``, or of 1 if that is
    more, down to a few spacings of x. Each slope has an error, from truncation and from the noise
    of f. The value is the slope with the smallest error that no shorter step contradicts. It takes
    22 calls of f for each element of x, and about 110 more for difficult f.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)``, as for `jacobian`.
    x : array_like
        Point of evaluation, of any shape; a tuple of arrays if `argnums` is a tuple.
    method : {"adaptive", "2-point", "3-point", "5-point", "cs"}, default "adaptive"
        Only "adaptive" estimates errors.
    step, scale : float or array_like, optional
        Absolute step and typical size of x, as for `jacobian`.
    bounds : (lower, upper) or scipy.optimize.Bounds, optional
        Limits on the points at which f is called.
    sparsity : sparse matrix, (matrix, groups) or "detect", optional
        Pattern of the nonzeros of the Jacobian.
    args : tuple, default ()
        Other positional arguments of f.
    kwargs : dict, optional
        Keyword arguments of f.
    argnums : int or tuple of int, default 0
        Position of x among the positional arguments.
    out_like : int, tuple of int or array_like, optional
        Shape of f's result, for f that write it into an array, ``f(x, *args, out)``.
    rowwise : bool, default False
        If True, ``f(i, x, *args)`` returns element i of the result.
    batched : bool, default False
        If True, f evaluates many points at once, along the first axis.
    holomorphic : bool, default False
        If True, f is holomorphic in complex x.
    workers : int, executor, dask Client or map-like callable, optional
        Where f is called, as for `jacobian`.
    progress : bool or callable, default False
        Show a progress bar, or call ``progress(done, total)``.
    checkpoint : str or path, optional
        Folder in which finished columns are stored.
    memory_limit : float, optional
        Largest size of the result, in bytes. By default the free memory.
    target : {"cpu", "cuda"}, optional
        Where f runs. By default where x is.

    Returns
    -------
    Derivative
        The Jacobian as ``.value`` and its error estimate as ``.error``; a tuple of them if
        `argnums` is a tuple.

    Raises
    ------
    ValueError, TypeError, BrokenExecutor, MemoryError, Exception
        As for `jacobian`.

    See Also
    --------
    jacobian : Faster, without error estimates.

    Notes
    -----
    Slopes at two or three consecutive steps are extrapolated to 0 [1]_. Their truncation error is
    the change to the next shorter step. The noise of f is measured at the shortest steps at which f
    changes, where longer ones predict a smooth f, and is the same at all steps.

    References
    ----------
    .. [1] C. J. F. Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in
       Engineering Software 4 (1982) 75-76.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> d = calipers.differentiate(np.exp, np.array([1e-20, 1.0]))
    >>> bool(abs(d.value[1, 1] - np.e) <= d.error[1, 1] < 1e-11)
    True
    """
    chosen = options_from(Options, differentiate, {"method": ADAPTIVE, **options})
    return by_argument(f, x, chosen, _derivative)


def _derivative(f: Callable[..., Any], x: Any, options: Options) -> Derivative:
    problem = prepare(f, x, options, dense=options.sparsity is None)
    if options.sparsity is not None:
        return _sparse_derivative(problem, options)
    require_dense_memory(problem, options, errors=options.adaptive)
    error: Any
    dense = differentiate_dense(problem, steps_of(problem, options), options)
    value = shaped(problem, dense.rows)
    if dense.errors is None:
        unknown = np.broadcast_to(np.inf, np.shape(value[0] if type(value) is tuple else value))
        error = (unknown, unknown) if type(value) is tuple else unknown
    else:
        error = shaped_errors(problem, dense.errors)
    shape = problem.x.shape if len(dense.status) == problem.x.size else (*problem.x.shape, 2)
    return Derivative(
        value,
        error,
        dense.step.reshape(shape),
        STATUS[dense.status].reshape(shape),
        dense.nfev,
        None,
        dense.seconds,
    )


def _sparse_derivative(problem: Problem, options: Options, symmetric: bool = False) -> Derivative:
    result = sparse.differentiate_sparse(problem, options, symmetric)
    with np.errstate(invalid="ignore"):
        step = np.abs(result.points.reshape(problem.x.shape) - problem.x)
    return Derivative(
        result.value,
        result.error,
        step,
        STATUS[result.status].reshape(problem.x.shape),
        result.nfev,
        result.colors,
        result.seconds,
    )
