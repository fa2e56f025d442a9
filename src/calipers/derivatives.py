"""Numerical derivatives: jacobian, jacobian_function, differentiate and hessian."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from ._arguments import is_integer, require_callable
from ._arity import takes_options
from ._differences import hessians, sparse
from ._differences.derivative import Derivative
from ._differences.plan import (
    STATUS,
    Options,
    arranged,
    arranged_errors,
    beside,
    find,
    options_of,
    pose,
    require_memory,
    require_room,
    rows_of,
    runs_on_device,
    steps_of,
)
from ._differences.planned import JacobianFunction
from ._differences.problem import Problem
from ._differences.stencils import ADAPTIVE
from ._libraries import device_module, library_of
from ._protocols import NDArray
from ._question import equal_arrays
from ._types import (
    AllJacobianOptions,
    ArrayLike,
    HessianOptions,
    JacobianOptions,
    Method,
    PlanOptions,
    Real,
    SparseJacobianOptions,
    SparsityLike,
)

if TYPE_CHECKING:
    from scipy.sparse import csc_array

__all__ = [
    "Derivative",
    "differentiate",
    "hessian",
    "jacobian",
    "jacobian_function",
]


@overload
def jacobian(
    f: Callable[..., Any],
    x: Sequence[ArrayLike],
    *,
    argnums: tuple[int, ...],
    **options: Unpack[SparseJacobianOptions],
) -> tuple[Any, ...]: ...
@overload
def jacobian(
    f: Callable[..., Any],
    x: Real,
    *,
    sparsity: None = None,
    argnums: int = 0,
    **options: Unpack[JacobianOptions],
) -> NDArray: ...
@overload
def jacobian(
    f: Callable[..., Any],
    x: ArrayLike,
    *,
    sparsity: None = None,
    argnums: int = 0,
    **options: Unpack[JacobianOptions],
) -> Any: ...
@overload
def jacobian(
    f: Callable[..., Any],
    x: ArrayLike,
    *,
    sparsity: SparsityLike,
    argnums: int = 0,
    **options: Unpack[JacobianOptions],
) -> csc_array: ...
@takes_options(Options)
def jacobian(
    f: Callable[..., Any],
    x: ArrayLike | Sequence[ArrayLike],
    **options: Unpack[AllJacobianOptions],
) -> Any:
    """
    Compute the Jacobian of a function by finite differences or the complex step.

    A function compiled by ``numba.njit`` is called from a compiled loop on all threads; any other
    is called from Python.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)`` returns real or complex numbers, always of the same shape, and
        the same ones each time for the same x. Other forms are ``f(x, *args, out)`` with
        `out_like`, ``f(i, x, *args)`` with `rowwise`, and many points at once with `batched`.
    x : array_like
        Point of evaluation, of any shape, real or complex; a tuple of arrays if `argnums` is a
        tuple. Integers become float64; float32 stays float32 and gets steps for float32. If x is a
        torch tensor or a jax array, f is called with one, and a dense result is one. f gets copies
        in C order.
    method : {"2-point", "3-point", "5-point", "cs", "adaptive"}, default "3-point"
        "2-point" is one-sided: away from 0 as in SciPy, and to the right at 0. "3-point" and
        "5-point" are central differences of second and fourth order. "cs" is the complex step, for
        real analytic f that accept complex arguments; if f uses `abs`, `conj`, `real` or
        comparisons, its result is wrong without a warning. "adaptive" is the method of
        `differentiate`.
    step : float or array_like, optional
        Absolute step, in the unit of x; for "adaptive" the first and largest. Elements with step 0
        are skipped: their derivatives are NaN. By default it is computed from `scale`.
    scale : float or array_like, optional
        Typical size of each element of x, by which the relative step is multiplied: eps**(1/2),
        eps**(1/3) and eps**(1/5) for 2, 3 and 5 points, 1e-20 for "cs". By default ``max(1, |x|)``;
        "adaptive" starts from ``|x|``.
    bounds : (lower, upper) or scipy.optimize.Bounds, optional
        Limits on the points at which f is called. Near a bound, one-sided differences of the same
        order are used; where the bounds are equal, the derivative is NaN. By default there are
        none.
    sparsity : sparse matrix, (matrix, groups) or "detect", optional
        Pattern of the nonzeros of the Jacobian of ``f(x).ravel()`` with respect to ``x.ravel()``.
        Columns that share no row are evaluated together; `groups` assigns a group number to each
        column. "detect" finds the pattern at x and two points nearby, with about 3 calls of f for
        each element of x. By default the Jacobian is dense.
    args : tuple, default ()
        Other positional arguments of f. Each thread gets its copy of arrays that a compiled f
        writes to.
    kwargs : dict, optional
        Keyword arguments of f.
    argnums : int or tuple of int, default 0
        Position of x among the positional arguments: 1 for ``f(args[0], x, *args[1:])``.
    out_like : int, tuple of int or array_like, optional
        Shape of f's result, or an array of its shape and dtype, for f that write their result into
        an array, ``f(x, *args, out)``. It must be right: compiled code does not check bounds.
    rowwise : bool, default False
        If True, ``f(i, x, *args)`` returns element i of the result, in C order.
    batched : bool, default False
        If True, x and ``f(x)`` have an additional first axis, and f evaluates many points at once.
    holomorphic : bool, default False
        If True, f is holomorphic in complex x, and has one complex derivative.
    workers : int, executor, dask Client or map-like callable, optional
        Where f is called; see Notes. By default on the threads of this process if f is compiled,
        else on the calling thread. The result does not depend on it.
    progress : bool or callable, default False
        If True, show a progress bar. A callable is called with ``(done, total)``; an exception that
        it raises stops the computation.
    checkpoint : str or path, optional
        Folder in which finished columns are stored. The same call resumes an interrupted
        computation from it, and returns the stored result of a finished one. The folder is not
        deleted.
    memory_limit : float, optional
        Largest size of the result, in bytes; checked above 1 MiB. By default the free memory.
    target : {"cpu", "cuda"}, optional
        Where f runs: by default where x is, or on a device if f is compiled for one. On a device, f
        is ``f(x, *args, out)`` or ``f(i, x, *args)`` with `out_like`, compiled by `numba.cuda.jit`
        or by calipers, or a function of torch, jax or cupy arrays. The result is where x is; sparse
        results are on the host.

    Returns
    -------
    ndarray or csc_array
        The Jacobian, of shape ``f(x).shape + x.shape`` and the dtype of ``f(x)``: the last axes
        belong to x. With `sparsity`, a scipy.sparse.csc_array. For complex x without `holomorphic`,
        a pair of derivatives with respect to z and its conjugate (Wirtinger). For a tuple
        `argnums`, a tuple.

    Raises
    ------
    ValueError
        If a step, scale, bound or pattern is invalid, a step is lost to the rounding of x, the
        pattern misses nonzeros (the message lists the rows), f returns different shapes, a
        `batched` f changes its argument or mixes its rows, or `checkpoint` belongs to a different
        derivative.
    TypeError
        If f does not return numbers, or cannot be pickled for the workers.
    BrokenExecutor
        If the workers are lost; the message lists the columns that are missing.
    MemoryError
        If the result exceeds `memory_limit`.
    Exception
        Whatever f raises, with a note that names the element of x that was perturbed.

    See Also
    --------
    differentiate : The same with an error estimate for each entry.
    jacobian_function : A function that returns the Jacobian at any point, for solvers.

    Notes
    -----
    Steps are rounded so that x + h is exact [1]_. Columns are grouped by graph coloring [2]_.

    `workers` is a number of threads, an executor (of concurrent.futures, mpi4py, ...), a
    multiprocessing.Pool, a dask.distributed.Client, or a callable like `map`. Processes receive f,
    x and the other arguments once, then ranges of columns that take about a second. f must be
    picklable, for dask by cloudpickle. Work that was on a lost dask worker is repeated; after the
    loss of a process pool it is repeated once, with a warning. A checkpoint is valid for one f (its
    code, the variables it encloses and the globals it reads), x, method and step.

    References
    ----------
    .. [1] W. H. Press et al., "Numerical Recipes", 3rd edition, Cambridge University Press (2007),
       section 5.7.
    .. [2] A. R. Curtis, M. J. D. Powell, J. K. Reid, "On the estimation of sparse Jacobian
       matrices", IMA Journal of Applied Mathematics 13 (1974) 117-119.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> calipers.jacobian(lambda x: x**2, np.array([1.0, 3.0])).round(6)
    array([[2., 0.],
           [0., 6.]])

    A tridiagonal Jacobian takes a few calls of f, whatever its size:

    >>> J = calipers.jacobian(lambda x: np.diff(x) ** 2, np.arange(1000.0), sparsity="detect")
    >>> J.shape, J.nnz
    ((999, 1000), 1998)
    """
    return _by_argument(f, x, Options(**options), _value)


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

    The adaptive method extrapolates central differences at steps h, h/4, h/16, ... to h = 0, and
    keeps the best estimate of each entry. The first step is about ``|x|/4``; if the error estimate
    requires it, larger and smaller ones follow. It takes 10 to 15 calls of f for each element of x,
    and about 70 for difficult f.

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
    Ridders' extrapolation [1]_ is applied to each entry. The noise of f is measured from
    differences at two small steps.

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
    return _by_argument(f, x, Options(**options), _derivative)


def _by_argument(
    f: Callable[..., Any], x: Any, options: Options, answer: Callable[..., Any]
) -> Any:
    """Answer for one argument of f, or for each of several."""
    args = options.args
    argnums: Any = options.argnums
    if isinstance(argnums, list):
        msg = f"argnums must be an int or a tuple of ints, got {argnums!r}: pass tuple(argnums)"
        raise TypeError(msg)
    if not isinstance(argnums, tuple):
        return answer(f, x, options)
    count = len(args) + len(argnums)
    valid = all(is_integer(k) and 0 <= k < count for k in argnums)
    if not valid or len(set(argnums)) < len(argnums):
        msg = f"argnums must be different integers from 0 to {count - 1}, got {argnums}"
        raise ValueError(msg)
    if not isinstance(x, (tuple, list)) or len(x) != len(argnums):
        msg = f"x must be a tuple of {len(argnums)} arrays, one for each of argnums {argnums}"
        raise ValueError(msg)
    given = list(args)
    for position, value in sorted(zip(argnums, x, strict=True), key=lambda pair: pair[0]):
        given.insert(position, value)
    answers = []
    for position in argnums:
        lent = [_copy(value) if k in argnums else value for k, value in enumerate(given)]
        others = (*lent[:position], *lent[position + 1 :])
        chosen = replace(options, args=others, argnums=position)
        if options.checkpoint is not None:
            folder = os.path.join(options.checkpoint, f"argument-{position}")
            chosen = replace(chosen, checkpoint=folder)
        answers.append(answer(f, given[position], chosen))
        for k in argnums:
            if k != position and not _is_same(lent[k], given[k]):
                msg = (
                    f"f changes its argument {k}, which makes derivatives with respect to "
                    f"argument {position} wrong: make it work on a copy"
                )
                raise ValueError(msg)
    return tuple(answers)


def _copy(x: Any) -> Any:
    """Copy an array of any library; all else is handed on."""
    library = library_of(x)
    if library is not None:
        return library.put(library.fetch(x), x)
    return x.copy(order="K") if isinstance(x, np.ndarray) else x


def _is_same(one: Any, other: Any) -> bool:
    library = library_of(one)
    if library is not None:
        one, other = library.fetch(one), library.fetch(other)
    elif not isinstance(one, np.ndarray):
        return True
    return equal_arrays(one, other, equal_nan=True)


def _value(f: Callable[..., Any], x: Any, options: Options) -> Any:
    # One launch finds all of them, so that there are no parts to keep, or to give to workers.
    whole = options.checkpoint is None and options.workers is None
    if whole and runs_on_device(f, x, options.target):
        result = device_module("derivatives").jacobian(f, x, options)
        if result is not None:
            return result
    problem = pose(f, x, options, dense=options.sparsity is None)
    if options.sparsity is not None:
        return sparse.find(problem, options).value
    require_room(problem, options)
    steps = steps_of(problem, options)
    rows = rows_of(problem, steps, options, problem.coordinates, report=options.progress)
    return beside(x, arranged(problem, rows))


def _derivative(f: Callable[..., Any], x: Any, options: Options) -> Derivative:
    problem = pose(f, x, options, dense=options.sparsity is None)
    if options.sparsity is not None:
        return _sparse_derivative(problem, options)
    require_room(problem, options, errors=options.adaptive)
    error: Any
    dense = find(problem, steps_of(problem, options), options)
    value = arranged(problem, dense.rows)
    if dense.errors is None:
        unknown = np.broadcast_to(np.inf, np.shape(value[0] if type(value) is tuple else value))
        error = (unknown, unknown) if type(value) is tuple else unknown
    else:
        error = arranged_errors(problem, dense.errors)
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
    result = sparse.find(problem, options, symmetric)
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


def jacobian_function(
    f: Callable[..., Any], x0: ArrayLike | None = None, **options: Unpack[PlanOptions]
) -> JacobianFunction:
    """
    Return a function that computes the Jacobian of f at any point, for use as ``jac=`` of solvers.

    Compilation, coloring and the check of a sparsity pattern are done once, at `x0` or at the first
    point. If the pattern lacks an entry that is nonzero at a later point, the result there is wrong
    without a warning.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)``, as for `jacobian`.
    x0 : array_like, optional
        A point of the shape and dtype of later points. By default the first point is used.
    **options
        The keywords of `jacobian` except `checkpoint`. `args` is used in calls that pass x only.

    Returns
    -------
    JacobianFunction
        ``jac(x, *args, **kwargs)`` takes the arguments of f and returns the Jacobian with respect
        to the one at position `argnums`. Sparse results share their read-only structure; use
        ``.copy()`` to modify one.

    Raises
    ------
    ValueError, TypeError, MemoryError, Exception
        As for `jacobian`: here if `x0` is passed, else at the first call.

    See Also
    --------
    jacobian : The Jacobian at one point.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> jac = calipers.jacobian_function(lambda x: x**3, np.ones(2))
    >>> jac(np.array([1.0, 2.0])).round(6)
    array([[ 3.,  0.],
           [ 0., 12.]])
    """
    return JacobianFunction(f, x0, **options)


def hessian(
    f: Callable[..., Any] | None,
    x: ArrayLike,
    *,
    gradient: Callable[..., Any] | None = None,
    method: Method = "adaptive",
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[HessianOptions],
) -> Derivative:
    """
    Compute the matrix of second derivatives of a scalar function, with error estimates.

    From f alone it extrapolates mixed second differences, with about 30 calls of f for each pair of
    elements of x. With `gradient` it takes about 12 calls of that for each element of x, and is
    more accurate.

    Parameters
    ----------
    f : callable or None
        ``f(x, *args)`` returns one real number. It may be None if `gradient` is passed, and is then
        not called.
    x : array_like
        Point of evaluation, real, of any shape.
    gradient : callable, optional
        ``gradient(x, *args)`` returns the gradient of f, of the shape of x. By default f is used.
    method : {"adaptive", "2-point", "3-point", "5-point", "cs"}, default "adaptive"
        As for `jacobian`. Without `gradient` only "adaptive" is available.
    args : tuple, default ()
        Other positional arguments of f.
    argnums : int, default 0
        Position of x among the positional arguments.
    **options
        Keywords of `jacobian`: step, scale, bounds, sparsity, kwargs, out_like, rowwise, batched,
        holomorphic, workers, progress, checkpoint, memory_limit and target. `sparsity` requires
        `gradient`, and is a symmetric pattern or "detect"; it gets a star coloring [1]_. Without
        `gradient`, `bounds` must leave room on both sides of x: entries at a bound are NaN.

    Returns
    -------
    Derivative
        ``.value`` has shape ``x.shape + x.shape`` and is exactly symmetric; ``.error`` includes the
        asymmetry that was removed. It converts to an array, so that it can be returned to ``hess=``
        of a solver. Where a second derivative is discontinuous at x, the value is the mean of both
        sides, the error is half their difference, and the status is NONSMOOTH.

    Raises
    ------
    ValueError, TypeError, MemoryError, Exception
        As for `jacobian`.

    See Also
    --------
    gradgradcheck : Check second derivatives that you wrote.

    References
    ----------
    .. [1] A. H. Gebremedhin, F. Manne, A. Pothen, "What color is your Jacobian? Graph coloring for
       computing derivatives", SIAM Review 47 (2005) 629-705.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> h = calipers.hessian(lambda x: x[0] ** 2 * x[1], np.array([1.0, 3.0]))
    >>> h.value.round(6)
    array([[6., 2.],
           [2., 0.]])
    """
    named = {"method": method, "args": args, "argnums": argnums}
    chosen = options_of("hessian", HessianOptions, ("gradient", "method"), **named, **options)
    function: Any = f if gradient is None else gradient
    if function is None:
        msg = "hessian needs f or gradient=, got neither"
        raise TypeError(msg)
    require_callable(**{"f" if gradient is None else "gradient": function})
    problem = pose(function, x, chosen)
    hessians.require_real(problem, chosen, gradient is not None)
    if chosen.sparsity is not None:
        hessians.require_gradient(problem)
        return _sparse_derivative(problem, chosen, symmetric=True)
    n = problem.coordinates
    require_memory(n, n, problem.base.itemsize + 8, chosen.memory_limit)
    compute = hessians.of_values if gradient is None else hessians.of_gradient
    value, error, result = compute(problem, chosen)
    shape = problem.x.shape
    return Derivative(
        value.reshape(shape + shape),
        error.reshape(shape + shape),
        result.step.reshape(shape),
        STATUS[result.status].reshape(shape),
        result.nfev,
        None,
        result.seconds,
    )
