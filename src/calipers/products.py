"""Products with Jacobians that are never formed: jvp, vjp, operators, and columns in blocks."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Unpack, overload

from ._arguments import is_integer
from ._differences.directions import against, along, blocks
from ._differences.plan import DENSE_ONLY, beside, fetched, options_of, others_of, pose, steps_of
from ._differences.problem import WIRTINGER, Problem
from ._protocols import NDArray
from ._reals import real_parts
from ._types import DirectionOptions, Real, StepOptions
from .interop import scipy_sparse

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

__all__ = ["jacobian_blocks", "jvp", "linear_operator", "vjp"]


@overload
def jvp(
    f: Callable[..., Any],
    x: Real,
    v: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[DirectionOptions],
) -> NDArray: ...
@overload
def jvp(
    f: Callable[..., Any],
    x: Any,
    v: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[DirectionOptions],
) -> Any: ...
def jvp(
    f: Callable[..., Any],
    x: Any,
    v: Any,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[DirectionOptions],
) -> Any:
    """
    Return the derivative of a function along a direction.

    The default method calls f twice, "5-point" four times.

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
    chosen = options_of("jvp", options, (*DENSE_ONLY, "workers", "progress"))
    problem = pose(f, x, others_of(args), argnums, chosen)
    value, _ = along(problem, _like_x(problem, v), steps_of(problem, chosen))
    if problem.imaginary:
        return beside(x, value[1::2].astype(problem.base.dtype).reshape(problem.shape))
    numbers = value.astype(problem.base.dtype).view(problem.dtype)
    return beside(x, numbers.reshape(problem.shape))


def _like_x(problem: Problem, v: Any) -> NDArray:
    direction = fetched(v, "v")
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
    problem = pose(f, x, others_of(args), argnums, chosen)
    return beside(x, against(problem, _like_f(problem, w), chosen)[0])


def _like_f(problem: Problem, w: Any) -> NDArray:
    weights = fetched(w, "w")
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
        With ``matvec`` by as many calls of f as `jvp`, and ``rmatvec`` by as many as `vjp`.

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
    problem = pose(f, x, others_of(args), argnums, chosen)
    if problem.mode == WIRTINGER:
        msg = "linear_operator of a complex function needs holomorphic=True"
        raise ValueError(msg)
    shape = (problem.base.size // real_parts(problem.dtype), problem.x.size)
    dtype = problem.base.dtype if problem.imaginary else problem.dtype
    steps = steps_of(problem, chosen)

    def matvec(v: NDArray) -> NDArray:
        direction = v.reshape(problem.x.shape)
        if direction.dtype.kind == "c" and not problem.has_complex_x:
            return matvec(direction.real) + 1j * matvec(direction.imag)
        value, _ = along(problem, direction, steps)
        if problem.imaginary:
            return value[1::2].astype(problem.base.dtype)
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
    chosen = options_of("jacobian_blocks", options, DENSE_ONLY, ("block",))
    problem = pose(f, x, others_of(args), argnums, chosen)
    if problem.mode == WIRTINGER:
        msg = "jacobian_blocks of a complex function needs holomorphic=True"
        raise ValueError(msg)
    if block is None:
        block = max(1, (1 << 25) // max(1, problem.base.nbytes))
    if not is_integer(block):
        msg = f"block must be an int, how many columns at a time, got {block!r}"
        raise TypeError(msg)
    if block < 1:
        msg = f"block must be at least 1, got {block}"
        raise ValueError(msg)
    dtype = problem.base.dtype if problem.imaginary else problem.dtype
    return ((columns, rows.view(dtype).T) for columns, rows in blocks(problem, chosen, block))
