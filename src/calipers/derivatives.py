"""Numerical derivatives: jacobian, differentiate, jvp, vjp, hessian and their relatives."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from ._arrays import as_array, device_module, on_device
from ._differences import hessians, sparse
from ._differences.columns import Columns, Scratch
from ._differences.directions import against, along, blocks
from ._differences.plan import (
    DENSE_ONLY,
    STATUS,
    Options,
    arranged,
    arranged_errors,
    fetched,
    find,
    options_of,
    pose,
    require_memory,
    rows_of,
    runs_on_device,
    steps_of,
)
from ._differences.problem import REAL, WIRTINGER, Problem
from ._differences.run import Pace, run
from ._differences.steps import require_inside
from ._notebook import Shown
from ._protocols import NDArray
from ._types import (
    HessianOptions,
    JacobianOptions,
    Method,
    PlanOptions,
    ProgressLike,
    Real,
    SparseJacobianOptions,
    StepOptions,
    Target,
)
from .interop import scipy_sparse

if TYPE_CHECKING:
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import LinearOperator

__all__ = [
    "Derivative",
    "differentiate",
    "hessian",
    "jacobian",
    "jacobian_blocks",
    "jacobian_function",
    "jvp",
    "linear_operator",
    "vjp",
]


@dataclass(frozen=True)
class Derivative(Shown):
    """
    A derivative, and what is known of it.

    Attributes
    ----------
    value : ndarray or csc_array
        Of shape ``f(x).shape + x.shape``; for a complex function that is not holomorphic, the pair
        of derivatives by z and by its conjugate.
    error : like value
        An estimate, for each entry, of how far `value` is from the derivative. It is inf where
        that is not known: always with a fixed step, which estimates nothing.
    step : ndarray
        The step along each element of x; the adaptive method's is the one that it began with, or
        began anew with at a smaller scale.
    status : ndarray of str
        What became of each element of x: CONVERGED; FIXED (a fixed step: nothing is known of the
        error); NOISY (f has far more noise than rounding, the error says how much it matters);
        NONSMOOTH (the derivatives from both sides differ); ALIASED (f varies on a shorter length
        than any step that was tried); NONFINITE (f is not finite around x); BOUNDED (the bounds
        leave no room); EXCLUDED (its step is 0).
    nfev : int
        How often f was called; a call with a batch counts each of its rows.
    colors : int or None
        How many groups of columns were evaluated together, if the derivative is sparse.
    seconds : float
        How long it took.

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
        """Return `value`, so that a Derivative goes where an array goes."""
        return np.array(self.value, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        """Summarise in a few lines."""
        names, counts = np.unique(self.status, return_counts=True)
        columns = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))
        value = self.value[0] if isinstance(self.value, tuple) else self.value
        lines = [f"Derivative of shape {value.shape}: {columns or 'no columns'}"]
        error = self.error[0] if isinstance(self.error, tuple) else self.error
        errors = np.asarray(error if self.colors is None else error.data)
        known = errors[np.isfinite(errors)]
        if known.size:
            lines.append(f"error: at most {known.max():.2g}, median {np.median(known):.2g}")
        if known.size < errors.size:
            lines.append(f"error unknown: {errors.size - known.size} of {errors.size} entries")
        groups = "" if self.colors is None else f" in {self.colors} colors"
        calls = "1 call" if self.nfev == 1 else f"{self.nfev} calls"
        lines.append(f"{calls} of f{groups}, {self.seconds:.3g} s")
        return "\n".join(lines)


@overload
def jacobian(
    f: Callable[..., Any],
    x: Sequence[Any],
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
    x: Any,
    *,
    sparsity: None = None,
    argnums: int = 0,
    **options: Unpack[JacobianOptions],
) -> Any: ...
@overload
def jacobian(
    f: Callable[..., Any],
    x: Any,
    *,
    sparsity: Any,
    argnums: int = 0,
    **options: Unpack[JacobianOptions],
) -> "csc_array": ...
def jacobian(
    f: Callable[..., Any],
    x: Any,
    *,
    method: Method = "3-point",
    step: Any = None,
    scale: Any = None,
    bounds: Any = None,
    sparsity: Any = None,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    argnums: int | tuple[int, ...] = 0,
    out_like: Any = None,
    rowwise: bool = False,
    batched: bool = False,
    holomorphic: bool = False,
    workers: Any = None,
    progress: ProgressLike = False,
    checkpoint: str | os.PathLike[str] | None = None,
    memory_limit: float | None = None,
    target: Target | None = None,
) -> Any:
    """
    Return the derivative of a function by finite differences.

    A function compiled by ``numba.njit`` is called from a compiled loop on all threads, any other
    from Python.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)`` gives real or complex numbers of any shape, always the same. With
        `out_like`, ``f(x, *args, out)`` writes them into `out`; with `rowwise`, ``f(i, x, *args)``
        is number i of them, in C order; with `batched`, x and f(x) have one more axis, the first,
        and f answers many arguments at once.
    x : array_like
        Where; of any shape, real or complex. Integers become float64; float32 stays float32 and
        has the steps of float32. A tuple of arrays if `argnums` is a tuple.
    method : {"2-point", "3-point", "5-point", "cs", "adaptive"}
        Forward differences; central differences of second or fourth order; the complex step, for a
        real f that takes complex arguments and is analytic; or what `differentiate` does.
    step : float or array_like, optional
        The absolute step, in the unit of x; for "adaptive" the first and longest. A 0 inside an
        array leaves that element of x out: its derivatives are NaN.
    scale : float or array_like, optional
        The typical size of each element of x, which the relative step multiplies: eps to the power
        1/2, 1/3 and 1/5 for 2, 3 and 5 points, 1e-20 for "cs". Without it ``max(1, |x|)``;
        "adaptive" starts from ``|x|``.
    bounds : (lower, upper) or scipy.optimize.Bounds, optional
        f is not called outside them. Where there is room on one side only, one-sided differences
        of the same order are taken; where there is none, the derivative is NaN.
    sparsity : sparse matrix, (matrix, groups) or "detect", optional
        Where the Jacobian of f(x).ravel() by x.ravel() may be non-zero. Columns that share no row
        are evaluated together, in `groups` if given (a number for each column). The pattern is
        checked along a random direction. "detect" finds it by as many calls of f as x has elements,
        at three points near x.
    args, kwargs : tuple, dict
        The other arguments of f.
    argnums : int or tuple of int, default 0
        The place of x among the positional arguments: 1 for ``f(args[0], x, *args[1:])``.
    out_like : int, tuple of int or array_like, optional
        The shape of f's results, or something of their shape and dtype.
    rowwise, batched : bool
        The form of f; see there.
    holomorphic : bool
        f is a holomorphic function of complex x, so that it has one complex derivative.
    workers : int, executor, dask Client or map-like callable, optional
        Who calls f: so many threads, an executor of concurrent.futures or one like it, such as
        mpi4py.futures.MPIPoolExecutor, a dask.distributed.Client, a multiprocessing.Pool, or
        anything that is called like map. Processes are sent f, x and the other arguments once, and
        then ranges of columns, of about a second each at most by what f(x) took. f must be one
        that can be pickled; for a Client any that cloudpickle takes. What was on a worker that
        a cluster lost is done by another one; what a pool of processes lost is done again, once,
        with a warning, by another pool if it is broken. Where a worker has several threads, so has
        f. The result does not depend on the workers.
    progress : bool or callable
        Show how far it is, and how long it may go on; or call ``progress(done, total)``. An
        exception in it stops the work.
    checkpoint : str or path, optional
        A folder in which finished columns are kept, so that the same call goes on from there after
        it was ended, and returns at once after it was not. The folder is made, and not deleted. One
        of another f (its code, what it encloses, and the globals that it reads), f(x), x, method or
        step is refused.
    memory_limit : float, optional
        The bytes that the result may take: by default, the memory that the machine has free.
    target : {None, "cpu", "cuda"}
        Where f runs: by default where x is, or on a device if f is compiled for one. There f is
        ``f(x, *args, out)`` or ``f(i, x, *args)`` with `out_like`, compiled by `numba.cuda.jit` or
        by calipers; or a function of arrays of torch, jax or cupy, like x. The result is where x
        is; a sparse one, and error estimates, are on the host.

    Returns
    -------
    ndarray or csc_array
        Of shape ``f(x).shape + x.shape`` and f's dtype: column j belongs to element j of x. A
        scipy.sparse.csc_array with `sparsity`. For complex x without `holomorphic`, the pair of
        derivatives by z and by its conjugate (Wirtinger); for several `argnums`, a tuple.

    Raises
    ------
    ValueError
        If steps, scales, bounds or patterns make no sense, the sparsity misses an entry, or f
        changes its argument or returns results of two shapes; if the checkpoint is of another
        derivative.
    TypeError
        If f does not return numbers, or cannot be sent to the workers.
    BrokenExecutor
        If the workers are lost, with the columns that are not done.
    MemoryError
        If the result would not fit `memory_limit`.
    Exception
        Whatever f raises, with a note that says which element of x was displaced.

    See Also
    --------
    differentiate : The same with error estimates.
    jacobian_function : For solvers that ask again and again.

    Notes
    -----
    Steps are what the format of x realises (Numerical Recipes, section 5.7). Columns are colored
    as by Curtis, Powell and Reid, J. Inst. Maths Applics 13 (1974).

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> calipers.jacobian(lambda x: x**2, np.array([1.0, 3.0])).round(6)
    array([[2., 0.],
           [0., 6.]])
    """
    options = Options(
        method=method,
        step=step,
        scale=scale,
        bounds=bounds,
        sparsity=sparsity,
        kwargs=kwargs,
        out_like=out_like,
        rowwise=rowwise,
        batched=batched,
        holomorphic=holomorphic,
        workers=workers,
        progress=progress,
        checkpoint=checkpoint,
        memory_limit=memory_limit,
        target=target,
    )
    return _by_argument(f, x, args, argnums, options, _value)


@overload
def differentiate(
    f: Callable[..., Any],
    x: Sequence[Any],
    *,
    argnums: tuple[int, ...],
    **options: Unpack[SparseJacobianOptions],
) -> tuple[Derivative, ...]: ...
@overload
def differentiate(
    f: Callable[..., Any],
    x: Any,
    *,
    argnums: int = 0,
    **options: Unpack[SparseJacobianOptions],
) -> Derivative: ...
def differentiate(
    f: Callable[..., Any],
    x: Any,
    *,
    method: Method = "adaptive",
    step: Any = None,
    scale: Any = None,
    bounds: Any = None,
    sparsity: Any = None,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    argnums: int | tuple[int, ...] = 0,
    out_like: Any = None,
    rowwise: bool = False,
    batched: bool = False,
    holomorphic: bool = False,
    workers: Any = None,
    progress: ProgressLike = False,
    checkpoint: str | os.PathLike[str] | None = None,
    memory_limit: float | None = None,
    target: Target | None = None,
) -> Any:
    """
    Return the derivative of a function with an estimate of its error, entry by entry.

    The adaptive method extrapolates central differences at steps h, h/4, h/16, ... to zero, keeps
    the best estimate of each entry, and measures the noise of f by differences at two tiny steps.
    The first step is near a quarter of ``|x|``; where the estimate says so, it moves to larger and
    smaller scales. It takes 10 to 15 calls of f per element of x, up to 40 where f is difficult.

    Parameters
    ----------
    f, x
        See `jacobian`, as for all other parameters.
    method : {"adaptive", "2-point", "3-point", "5-point", "cs"}
        Only "adaptive" estimates errors.
    step, scale, bounds, sparsity, args, kwargs, argnums, out_like, rowwise, batched, holomorphic, \
workers, progress, checkpoint, memory_limit, target
        See `jacobian`.

    Returns
    -------
    Derivative
        value, error, step, status, nfev, colors and seconds; a tuple for several `argnums`.

    Raises
    ------
    ValueError, TypeError, MemoryError, Exception
        See `jacobian`.

    Notes
    -----
    Ridders, Adv. Eng. Software 4 (1982), for each entry, with a measured noise.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> d = calipers.differentiate(np.exp, np.array([1e-20, 1.0]))
    >>> bool(abs(d.value[1, 1] - np.e) <= d.error[1, 1] < 1e-11)
    True
    """
    options = Options(
        method=method,
        step=step,
        scale=scale,
        bounds=bounds,
        sparsity=sparsity,
        kwargs=kwargs,
        out_like=out_like,
        rowwise=rowwise,
        batched=batched,
        holomorphic=holomorphic,
        workers=workers,
        progress=progress,
        checkpoint=checkpoint,
        memory_limit=memory_limit,
        target=target,
    )
    return _by_argument(f, x, args, argnums, options, _derivative)


def _by_argument(
    f: Callable[..., Any],
    x: Any,
    args: Any,
    argnums: Any,
    options: Options,
    answer: Callable[..., Any],
) -> Any:
    """Answer for one argument of f, or for each of several."""
    if not isinstance(args, (tuple, list)):
        msg = f"args must be a tuple of the other arguments of f, got {args!r:.60}: write (..., )"
        raise TypeError(msg)
    args = tuple(args)
    if not isinstance(argnums, tuple):
        return answer(f, x, args, argnums, options)
    if not isinstance(x, (tuple, list)) or len(x) != len(argnums):
        msg = f"x must be a tuple of {len(argnums)} arrays, one for each of argnums {argnums}"
        raise ValueError(msg)
    given = list(args)
    for position, value in sorted(zip(argnums, x, strict=True), key=lambda pair: pair[0]):
        given.insert(position, value)
    answers = []
    for position in argnums:
        others = (*given[:position], *given[position + 1 :])
        own = options
        if options.checkpoint is not None:
            own = replace(
                options, checkpoint=os.path.join(options.checkpoint, f"argument-{position}")
            )
        answers.append(answer(f, given[position], others, position, own))
    return tuple(answers)


def _value(
    f: Callable[..., Any], x: Any, args: tuple[Any, ...], position: int, options: Options
) -> Any:
    # One launch finds all of them, so that there are no parts to keep.
    if runs_on_device(f, x, options.target) and options.checkpoint is None:
        found = device_module("derivatives").jacobian(f, x, args, position, options)
        if found is not None:
            return found
    problem = pose(f, x, args, position, options, dense=options.sparsity is None)
    if options.sparsity is not None:
        return sparse.find(problem, options).value
    _require_memory(problem, options)
    steps = steps_of(problem, options)
    rows = rows_of(problem, steps, options, problem.coordinates, report=options.progress)
    return _beside(x, arranged(problem, rows))


def _beside(x: Any, value: Any) -> Any:
    """Return a derivative where x is."""
    return device_module("derivatives").at_home(value, x) if on_device(x=x) else value


def _derivative(
    f: Callable[..., Any], x: Any, args: tuple[Any, ...], position: int, options: Options
) -> Derivative:
    problem = pose(f, x, args, position, options, dense=options.sparsity is None)
    if options.sparsity is not None:
        return _sparse_derivative(problem, options)
    _require_memory(problem, options, errors=options.adaptive)
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
    found = sparse.find(problem, options, symmetric)
    return Derivative(
        found.value,
        found.error,
        np.abs(found.points.reshape(problem.x.shape) - problem.x),
        STATUS[found.status].reshape(problem.x.shape),
        found.nfev,
        found.colors,
        found.seconds,
    )


def _require_memory(problem: Problem, options: Options, errors: bool = False) -> None:
    itemsize = 16 if errors else problem.base.itemsize  # values and errors in binary64
    require_memory(problem.base.size, problem.coordinates, itemsize, options.memory_limit)


def jacobian_function(
    f: Callable[..., Any], x0: Any = None, **options: Unpack[PlanOptions]
) -> "JacobianFunction":
    """
    Return a function that gives the Jacobian of f wherever it is asked, planned once.

    It is what SciPy's solvers take as ``jac=``. Compiling, coloring and the check of a sparsity
    pattern are done at the first point, or at `x0`.

    Parameters
    ----------
    f : callable
        See `jacobian`.
    x0 : array_like, optional
        A point of the shape and dtype that will be asked about.
    **options
        All the keywords of `jacobian` but checkpoint. `args` are the other arguments of f wherever
        the call gives none.

    Returns
    -------
    callable
        ``jac(*args, **kwargs)`` takes the arguments of f, and returns the derivative by the one at
        position `argnums`.

    Raises
    ------
    ValueError, TypeError, MemoryError, Exception
        See `jacobian`.

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


class JacobianFunction:
    """The Jacobian of a function, planned once; see `jacobian_function`."""

    def __init__(
        self,
        f: Callable[..., Any],
        x0: Any = None,
        *,
        args: tuple[Any, ...] = (),
        argnums: Any = 0,
        **options: Any,
    ) -> None:
        if not isinstance(argnums, int):
            msg = f"argnums must be an int, got {argnums!r}: plan a function for each argument"
            raise TypeError(msg)
        self._f = f
        self._args, self._position = tuple(args), argnums
        self._options = options_of("jacobian_function", options, ("checkpoint",))
        self._plan: _Plan | None = None
        if x0 is not None:
            self._plan = self._planned(as_array(x0, "x0"), self._args, {})
            self._plan.check()

    def _planned(self, x: Any, others: tuple[Any, ...], kwargs: dict[str, Any]) -> "_Plan":
        problem = pose(self._f, x, others, self._position, self._options, kwargs)
        return _Plan(problem, self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the derivative at the arguments of f."""
        k = self._position
        if len(args) <= k:
            msg = f"the derivative is by positional argument {k} of f, and {len(args)} were given"
            raise TypeError(msg)
        x = args[k] if type(args[k]) is np.ndarray else as_array(args[k], "x")
        others = (*args[:k], *args[k + 1 :]) if len(args) > 1 else self._args
        plan = self._plan
        if kwargs:  # they are part of a plan, and of this call only
            plan = self._planned(x, others, kwargs)
        elif plan is None or not plan.serves(x, others):
            plan = self._plan = self._planned(x, others, kwargs)
        return plan(x, others, k)


class _Plan:
    """What the Jacobians of one function at points of one kind share."""

    def __init__(self, problem: Problem, options: Options) -> None:
        self._problem, self._options = problem, options
        self._steps = steps_of(problem, options)
        self._sparse = None
        if options.sparsity is not None:
            self._sparse = sparse.plan(problem, self._steps, options, lasting=True)
        else:
            _require_memory(problem, options)
        self._dense_asks = (
            options.adaptive
            or options.method == "2-point"
            or options.bounds is not None
            or problem.native is None
        )
        self._general = options.adaptive or options.workers is not None or options.progress
        # Then all that differs from call to call is x.
        self._only_moves = not (
            self._general or self._dense_asks or self._sparse or problem.mode != REAL
        )
        self._count = problem.coordinates
        self._shape = problem.x.shape
        self._dtype = problem.x.real.dtype if problem.imaginary else problem.x.dtype
        self._pace = Pace()
        self._spare: list[Scratch] = []

    def serves(self, x: NDArray, others: tuple[Any, ...]) -> bool:
        return (
            x.shape == self._shape and x.dtype == self._dtype and self._problem.same_kinds(others)
        )

    def check(self) -> None:
        """Check a sparsity pattern at the point that was planned with."""
        if self._sparse is not None:
            self._sparse(self._problem)

    def _asks_base(self) -> bool:
        """Whether f(x) itself is needed, beside displaced values."""
        if self._sparse is not None:
            return self._sparse.asks_base(self._problem)
        return self._dense_asks

    def __call__(self, x: NDArray, others: tuple[Any, ...], position: int) -> Any:
        as_planned = x.dtype == self._dtype and x.flags.c_contiguous
        if self._only_moves and not others and as_planned:
            work = Columns(self._problem, self._steps, self._spare, x)
            return arranged(self._problem, run(work, self._count, pace=self._pace)[0])
        problem = self._problem.moved(x, others[:position], others[position:], self._asks_base())
        steps = self._steps
        if problem.mode != REAL:  # their lengths are those of x
            steps = steps_of(problem, self._options)
        if steps.lows.size:
            require_inside(problem, steps.lows, steps.highs)
        if self._sparse is not None:
            return self._sparse(problem).value
        if self._general:
            options = self._options
            rows = rows_of(problem, steps, options, self._count, report=options.progress)
            return arranged(problem, rows)
        work = Columns(problem, steps, self._spare if steps is self._steps else None)
        rows, _ = run(work, self._count, pace=self._pace)
        return arranged(problem, rows)


@overload
def jvp(
    f: Callable[..., Any],
    x: Real,
    v: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> NDArray: ...
@overload
def jvp(
    f: Callable[..., Any],
    x: Any,
    v: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Any: ...
def jvp(
    f: Callable[..., Any],
    x: Any,
    v: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Any:
    """
    Return the derivative of a function along a direction, by two calls of f.

    Parameters
    ----------
    f, x
        See `jacobian`.
    v : array_like
        The direction, of x's shape. No element of x moves farther along it than its own step.
    args, argnums, **options
        See `jacobian`: method, step, scale, bounds, kwargs, out_like, rowwise, batched and
        holomorphic.

    Returns
    -------
    ndarray
        ``J @ v``, of f(x)'s shape and dtype.

    Raises
    ------
    ValueError, TypeError, Exception
        See `jacobian`.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> calipers.jvp(lambda x: x**2, np.array([1.0, 3.0]), np.array([1.0, -1.0])).round(6)
    array([ 2., -6.])
    """
    chosen = options_of("jvp", options, DENSE_ONLY)
    problem = pose(f, x, tuple(args), argnums, chosen)
    value, _ = along(problem, _like_x(problem, v), chosen)
    if problem.imaginary:
        return _beside(x, value[1::2].reshape(problem.shape))
    numbers = value.astype(problem.base.dtype).view(problem.dtype)
    return _beside(x, numbers.reshape(problem.shape))


def _like_x(problem: Problem, v: Any) -> NDArray:
    direction = fetched(v)
    if direction.shape != problem.x.shape:
        msg = f"v has shape {direction.shape}, and x has {problem.x.shape}: give one of x's shape"
        raise ValueError(msg)
    if direction.dtype.kind not in "biufc" or (
        direction.dtype.kind == "c" and not problem.has_complex_x
    ):
        msg = f"v must be of x's kind, got {direction.dtype}"
        raise TypeError(msg)
    return direction


@overload
def vjp(
    f: Callable[..., Any],
    x: Real,
    w: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> NDArray: ...
@overload
def vjp(
    f: Callable[..., Any],
    x: Any,
    w: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Any: ...
def vjp(
    f: Callable[..., Any],
    x: Any,
    w: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Any:
    """
    Return the product of a vector with a derivative, in memory of the size of x.

    It takes as many calls of f as `jacobian`, and keeps no more than a block of its columns.

    Parameters
    ----------
    f, x
        See `jacobian`.
    w : array_like
        The vector, of f(x)'s shape.
    args, argnums, **options
        See `jacobian`: all but sparsity, checkpoint and memory_limit.

    Returns
    -------
    ndarray
        ``w @ J``, of x's shape and f's dtype; w is not conjugated.

    Raises
    ------
    ValueError, TypeError, Exception
        See `jacobian`.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> calipers.vjp(lambda x: x**2, np.array([1.0, 3.0]), np.array([1.0, -1.0])).round(6)
    array([ 2., -6.])
    """
    chosen = options_of("vjp", options, DENSE_ONLY)
    problem = pose(f, x, tuple(args), argnums, chosen)
    return _beside(x, against(problem, _like_f(problem, w), chosen)[0])


def _like_f(problem: Problem, w: Any) -> NDArray:
    weights = fetched(w)
    if weights.shape != problem.shape:
        msg = f"w has shape {weights.shape}, and f(x) has {problem.shape}: give one of f(x)'s shape"
        raise ValueError(msg)
    if weights.dtype.kind not in "biufc":
        msg = f"w must be numbers, got dtype {weights.dtype}"
        raise TypeError(msg)
    return weights


def linear_operator(
    f: Callable[..., Any],
    x: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> "LinearOperator":
    """
    Return the Jacobian as a scipy.sparse.linalg.LinearOperator that is never formed.

    Parameters
    ----------
    f, x, args, argnums, **options
        See `jacobian`. f(x) and x are taken as vectors.

    Returns
    -------
    LinearOperator
        With ``matvec`` by two calls of f, and ``rmatvec`` by as many as `vjp`.

    Raises
    ------
    ValueError, TypeError, Exception
        See `jacobian`.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> J = calipers.linear_operator(lambda x: x**2, np.array([1.0, 3.0]))
    >>> J.matvec(np.ones(2)).round(6), J.rmatvec(np.ones(2)).round(6)
    (array([2., 6.]), array([2., 6.]))
    """
    chosen = options_of("linear_operator", options, DENSE_ONLY)
    problem = pose(f, x, tuple(args), argnums, chosen)
    if problem.mode == WIRTINGER:
        msg = "linear_operator of a complex function needs holomorphic=True"
        raise ValueError(msg)
    parts = 2 if problem.dtype.kind == "c" else 1
    shape = (problem.base.size // parts, problem.x.size)
    dtype = problem.base.dtype if problem.imaginary else problem.dtype

    def matvec(v: NDArray) -> NDArray:
        direction = v.reshape(problem.x.shape)
        if direction.dtype.kind == "c" and not problem.has_complex_x:
            return matvec(direction.real) + 1j * matvec(direction.imag)
        value, _ = along(problem, direction, chosen)
        if problem.imaginary:
            return value[1::2]
        return value.astype(problem.base.dtype).view(problem.dtype)

    def rmatvec(w: NDArray) -> NDArray:
        product, _ = against(problem, w.reshape(-1).conj(), chosen)
        return product.reshape(-1).conj()

    return scipy_sparse.linear_operator(shape, dtype, matvec=matvec, rmatvec=rmatvec)


def jacobian_blocks(
    f: Callable[..., Any],
    x: Any,
    *,
    block: int | None = None,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Iterator[tuple[slice, NDArray]]:
    """
    Give a Jacobian that does not fit memory, some columns at a time.

    Parameters
    ----------
    f, x
        See `jacobian`.
    block : int, optional
        How many columns at a time; by default what takes some 32 MB.
    args, argnums, **options
        See `jacobian`: all but sparsity, checkpoint and memory_limit.

    Yields
    ------
    slice, ndarray
        Which elements of x.ravel(), and the columns of f(x).ravel() that belong to them.

    Raises
    ------
    ValueError, TypeError, Exception
        See `jacobian`.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> for columns, part in calipers.jacobian_blocks(np.sin, np.zeros(5), block=2):
    ...     print(columns.start, columns.stop, part.shape)
    0 2 (5, 2)
    2 4 (5, 2)
    4 5 (5, 1)
    """
    chosen = options_of("jacobian_blocks", options, DENSE_ONLY)
    problem = pose(f, x, tuple(args), argnums, chosen)
    if problem.mode == WIRTINGER:
        msg = "jacobian_blocks of a complex function needs holomorphic=True"
        raise ValueError(msg)
    if block is None:
        block = max(1, (1 << 25) // max(1, problem.base.nbytes))
    if block < 1:
        msg = f"block must be at least 1, got {block}"
        raise ValueError(msg)
    dtype = problem.base.dtype if problem.imaginary else problem.dtype
    for columns, rows in blocks(problem, chosen, block):
        yield columns, rows.view(dtype).T


def hessian(
    f: Callable[..., Any] | None,
    x: Any,
    *,
    gradient: Callable[..., Any] | None = None,
    method: Method = "adaptive",
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[HessianOptions],
) -> Derivative:
    """
    Return the second derivatives of a scalar function, symmetric, with their errors.

    From f alone it extrapolates mixed second differences, some 30 calls of f for each pair of
    elements of x; from a gradient it takes some 12 calls for each element, and is more accurate.

    Parameters
    ----------
    f : callable
        ``f(x, *args)`` gives one real number. Not called, and may be None, if there is a gradient.
    x : array_like
        Where, real.
    gradient : callable, optional
        ``gradient(x, *args)`` gives the derivative of f, of x's shape.
    method : str, default "adaptive"
        As for `jacobian`; f alone takes "adaptive" only.
    args, argnums, **options
        See `jacobian`. `sparsity` goes with a gradient; it is a symmetric pattern, or "detect", and
        gets a star coloring (Gebremedhin, Manne and Pothen, SIAM Rev. 47, 2005).

    Returns
    -------
    Derivative
        `value` of shape ``x.shape + x.shape``, exactly symmetric; `error` covers what was not. It
        goes where an array goes, so that ``hess=`` of a solver takes it.

    Raises
    ------
    ValueError, TypeError, MemoryError, Exception
        See `jacobian`.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> h = calipers.hessian(lambda x: x[0] ** 2 * x[1], np.array([1.0, 3.0]))
    >>> h.value.round(6)
    array([[6., 2.],
           [2., 0.]])
    """
    chosen = options_of("hessian", {"method": method, **options})
    function = f if gradient is None else gradient
    if function is None:
        msg = "hessian needs f or gradient=, got neither"
        raise TypeError(msg)
    problem = pose(function, x, tuple(args), argnums, chosen)
    hessians.require_real(problem, chosen, gradient is not None)
    if chosen.sparsity is not None:
        hessians.require_gradient(problem)
        return _sparse_derivative(problem, chosen, symmetric=True)
    n = problem.coordinates
    require_memory(n, n, problem.base.itemsize + 8, chosen.memory_limit)
    compute = hessians.of_values if gradient is None else hessians.of_gradient
    value, error, found = compute(problem, chosen)
    shape = problem.x.shape
    return Derivative(
        value.reshape(shape + shape),
        error.reshape(shape + shape),
        found.step.reshape(shape),
        STATUS[found.status].reshape(shape),
        found.nfev,
        None,
        found.seconds,
    )
