"""Numerical derivatives: jacobian, jacobian_function, differentiate and hessian."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from ._arguments import is_integer, require_callable
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
    others_of,
    pose,
    require_memory,
    require_room,
    rows_of,
    runs_on_device,
    steps_of,
)
from ._differences.planned import JacobianFunction
from ._differences.problem import Problem
from ._libraries import device_module, library_of
from ._protocols import NDArray
from ._question import equal_arrays
from ._types import (
    HessianOptions,
    JacobianOptions,
    Method,
    PlanOptions,
    ProgressLike,
    Real,
    SparseJacobianOptions,
    Target,
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
        has the steps of float32. A tuple of arrays if `argnums` is a tuple. If it is a tensor of
        torch or an array of jax, f is called with such, and a dense result is one, too. In whatever
        memory order it is, f gets copies in C order.
    method : {"2-point", "3-point", "5-point", "cs", "adaptive"}
        One-sided differences, away from 0 as SciPy's, and to the right at 0; central differences
        of second or fourth order; the complex step, for a real f that takes complex arguments and
        is analytic: where f uses `abs`, `conj`, `real` or comparisons of complex numbers, its
        result is wrong and nothing shows it; or what `differentiate` does.
    step : float or array_like, optional
        The absolute step, positive and in the unit of x; for "adaptive" the first and longest. A 0
        inside an array leaves that element of x out: its derivatives are NaN. One-sided differences
        are taken to the other side where `bounds` end at x.
    scale : float or array_like, optional
        The typical size of each element of x, which the relative step multiplies: eps to the power
        1/2, 1/3 and 1/5 for 2, 3 and 5 points, 1e-20 for "cs". Without it ``max(1, |x|)``;
        "adaptive" starts from ``|x|``.
    bounds : (lower, upper) or scipy.optimize.Bounds, optional
        f is not called outside them. Where there is room on one side only, one-sided differences
        of the same order are taken; where there is none, the derivative is NaN. A complex step
        needs no room.
    sparsity : sparse matrix, (matrix, groups) or "detect", optional
        Where the Jacobian of f(x).ravel() by x.ravel() may be non-zero. Columns that share no row
        are evaluated together, in `groups` if given (a number for each column). A pattern that
        misses entries is refused, by their rows. "detect" finds it by as many calls of f as x has
        elements, at three points near x.
    args, kwargs : tuple, dict
        The other arguments of f. Arrays that a compiled f writes into, as into scratch, each thread
        has for itself.
    argnums : int or tuple of int, default 0
        The place of x among the positional arguments: 1 for ``f(args[0], x, *args[1:])``.
    out_like : int, tuple of int or array_like, optional
        The shape of f's results, or something of their shape and dtype. It has to be right: what
        is compiled does not check where it stores.
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
        The bytes that the result may take, where it takes more than 1 MiB: by default, the memory
        that the machine has free.
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
        If steps, scales, bounds or patterns make no sense, rounding of x loses a step, the sparsity
        misses an entry, f returns results of two shapes, or a `batched` f changes its argument or
        mixes its rows; if the checkpoint is of another derivative.
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
    smaller scales. It takes 10 to 15 calls of f per element of x, some 70 where f is difficult.

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
    args = others_of(args)
    if isinstance(argnums, list):
        msg = f"argnums must be an int or a tuple of ints, got {argnums}: take tuple(argnums)"
        raise TypeError(msg)
    if not isinstance(argnums, tuple):
        return answer(f, x, args, argnums, options)
    count = len(args) + len(argnums)
    valid = all(is_integer(k) and 0 <= k < count for k in argnums)
    if not valid or len(set(argnums)) < len(argnums):
        msg = f"argnums is {argnums}: they must be different, and from 0 to {count - 1}"
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
        chosen = options
        if options.checkpoint is not None:
            chosen = replace(
                options, checkpoint=os.path.join(options.checkpoint, f"argument-{position}")
            )
        answers.append(answer(f, given[position], others, position, chosen))
        for k in argnums:
            if k != position and not _is_same(lent[k], given[k]):
                msg = (
                    f"f changes its argument {k}, so that derivatives by argument {position} are "
                    f"wrong: let it work on a copy"
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


def _value(
    f: Callable[..., Any], x: Any, args: tuple[Any, ...], position: int, options: Options
) -> Any:
    # One launch finds all of them, so that there are no parts to keep, or to give to workers.
    whole = options.checkpoint is None and options.workers is None
    if whole and runs_on_device(f, x, options.target):
        result = device_module("derivatives").jacobian(f, x, args, position, options)
        if result is not None:
            return result
    problem = pose(f, x, args, position, options, dense=options.sparsity is None)
    if options.sparsity is not None:
        return sparse.find(problem, options).value
    require_room(problem, options)
    steps = steps_of(problem, options)
    rows = rows_of(problem, steps, options, problem.coordinates, report=options.progress)
    return beside(x, arranged(problem, rows))


def _derivative(
    f: Callable[..., Any], x: Any, args: tuple[Any, ...], position: int, options: Options
) -> Derivative:
    problem = pose(f, x, args, position, options, dense=options.sparsity is None)
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
    f: Callable[..., Any], x0: Any = None, **options: Unpack[PlanOptions]
) -> JacobianFunction:
    """
    Return a function that gives the Jacobian of f wherever it is asked, planned once.

    It is what SciPy's solvers take as ``jac=``. Compiling, coloring and the check of a sparsity
    pattern are done at the first point, or at `x0`: the pattern, given or detected there, has to
    hold at all points.

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
        position `argnums`. Sparse ones share their structure, which is read-only: `copy()` has one
        that can be changed.

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
        gets a star coloring (Gebremedhin, Manne and Pothen, SIAM Rev. 47, 2005). `bounds` have to
        leave room on both sides of x for f alone: at one of them, the entries are NaN.

    Returns
    -------
    Derivative
        `value` of shape ``x.shape + x.shape``, exactly symmetric; `error` covers what was not. It
        goes where an array goes, so that ``hess=`` of a solver takes it. Where a second derivative
        jumps at x, `value` is the mean of both sides, `error` half their distance, and `status`
        NONSMOOTH.

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
    chosen = options_of("hessian", {"method": method, **options}, own=("gradient",))
    function: Any = f if gradient is None else gradient
    if function is None:
        msg = "hessian needs f or gradient=, got neither"
        raise TypeError(msg)
    require_callable(**{"f" if gradient is None else "gradient": function})
    problem = pose(function, x, others_of(args), argnums, chosen)
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
