"""jacobian and jacobian_function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from numba.core.dispatcher import Dispatcher

from .._core.arguments import options_from, takes_options
from .._core.libraries import device_module
from .._core.protocols import NDArray
from .._core.types import (
    AllJacobianOptions,
    ArrayLike,
    JacobianOptions,
    PlanOptions,
    Real,
    SparseJacobianOptions,
    SparsityLike,
)
from . import sparse
from .fixed_step import is_worth_compiling
from .options import Options
from .prepared import JacobianFunction, remember, repeated_jacobian
from .solve import (
    by_argument,
    like_input,
    prepare,
    require_dense_memory,
    rows_of,
    runs_on_device,
    shaped,
    steps_of,
)

if TYPE_CHECKING:
    from scipy.sparse import csc_array

__all__ = [
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
    if isinstance(f, Dispatcher):
        result = repeated_jacobian(f, x, options)
        if result is not None:
            return result
    return by_argument(f, x, options_from(Options, jacobian, options), _value)


def _value(f: Callable[..., Any], x: Any, options: Options) -> Any:
    # One launch computes all columns: there are no parts for a checkpoint or for workers.
    whole = options.checkpoint is None and options.workers is None
    if whole and runs_on_device(f, x, options.target):
        result = device_module("derivatives").jacobian(f, x, options)
        if result is not None:
            return result
    problem = prepare(f, x, options, dense=options.sparsity is None)
    if options.sparsity is not None:
        return sparse.differentiate_sparse(problem, options).value
    require_dense_memory(problem, options)
    if not (options.adaptive or is_worth_compiling(problem)):
        problem = problem.interpreted()
        problem.may_write = False  # a kernel, which makes no copies, would refuse it
    steps = steps_of(problem, options)
    rows = rows_of(problem, steps, options, problem.coordinates, report=options.progress)
    remember(problem, options)
    return like_input(x, shaped(problem, rows))


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
