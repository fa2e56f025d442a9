"""Products with Jacobians, and Jacobians in blocks: jvp, vjp, linear_operator, jacobian_blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Unpack, overload

from .._core.arguments import is_integer
from .._core.dtypes import real_parts
from .._core.protocols import NDArray
from .._core.types import ArrayLike, DirectionOptions, Real, StepOptions
from ..interop import sparse_inputs as scipy_sparse
from .directions import blocks, jacobian_vector_product, vector_jacobian_product
from .function import WIRTINGER, Problem
from .options import options_of
from .solve import as_host_array, like_input, prepare, steps_of

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

__all__ = ["jacobian_blocks", "jvp", "linear_operator", "vjp"]


@overload
def jvp(
    f: Callable[..., Any],
    x: Real,
    v: ArrayLike,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[DirectionOptions],
) -> NDArray: ...
@overload
def jvp(
    f: Callable[..., Any],
    x: ArrayLike,
    v: ArrayLike,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[DirectionOptions],
) -> Any: ...
def jvp(
    f: Callable[..., Any],
    x: ArrayLike,
    v: ArrayLike,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[DirectionOptions],
) -> Any:
    """
    Compute the product of the Jacobian of a function with a vector.

    It is the derivative of f at x along v. The default method calls f twice, "5-point" four times.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)``, as for `jacobian`.
    x : array_like
        Point of evaluation, of any shape.
    v : array_like
        Direction, of the shape of x. The step along it is limited so that no element of x changes
        by more than the step for that element.
    args : tuple, default ()
        Other positional arguments of f.
    argnums : int, default 0
        Position of x among the positional arguments.
    **options
        Keywords of `jacobian`, with the same defaults: method, step, scale, bounds, kwargs,
        out_like, rowwise, batched, holomorphic and target.

    Returns
    -------
    ndarray
        ``J @ v``, of the shape and dtype of ``f(x)``.

    Raises
    ------
    ValueError, TypeError, Exception
        As for `jacobian`; also if the shape of v is not that of x.

    See Also
    --------
    vjp : The product ``w @ J``.
    linear_operator : Both products, for SciPy's iterative solvers.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> calipers.jvp(lambda x: x**2, np.array([1.0, 3.0]), np.array([1.0, -1.0])).round(6)
    array([ 2., -6.])
    """
    chosen = options_of("jvp", DirectionOptions, args=args, argnums=argnums, **options)
    problem = prepare(f, x, chosen)
    value, _ = jacobian_vector_product(problem, _like_x(problem, v), steps_of(problem, chosen))
    if problem.imaginary:
        return like_input(x, value[1::2].astype(problem.base.dtype).reshape(problem.shape))
    numbers = value.astype(problem.base.dtype).view(problem.dtype)
    return like_input(x, numbers.reshape(problem.shape))


def _like_x(problem: Problem, v: Any) -> NDArray:
    direction = as_host_array(v, "v")
    if direction.shape != problem.x.shape:
        msg = f"v has shape {direction.shape}, but x has {problem.x.shape}: pass one of x's shape"
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
    w: ArrayLike,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> NDArray: ...
@overload
def vjp(
    f: Callable[..., Any],
    x: ArrayLike,
    w: ArrayLike,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Any: ...
def vjp(
    f: Callable[..., Any],
    x: ArrayLike,
    w: ArrayLike,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Any:
    """
    Compute the product of a vector with the Jacobian of a function, in memory of the size of x.

    It takes as many calls of f as `jacobian`, and stores one block of columns at a time.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)``, as for `jacobian`.
    x : array_like
        Point of evaluation, of any shape.
    w : array_like
        Cotangent, of the shape of ``f(x)``.
    args : tuple, default ()
        Other positional arguments of f.
    argnums : int, default 0
        Position of x among the positional arguments.
    **options
        Keywords of `jacobian` except sparsity, checkpoint and memory_limit, with the same defaults.

    Returns
    -------
    ndarray
        ``w @ J``, of the shape of x and the dtype of ``f(x)``; w is not conjugated.

    Raises
    ------
    ValueError, TypeError, Exception
        As for `jacobian`; also if the shape of w is not that of ``f(x)``.

    See Also
    --------
    jvp : The product ``J @ v``, with two calls of f.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> calipers.vjp(lambda x: x**2, np.array([1.0, 3.0]), np.array([1.0, -1.0])).round(6)
    array([ 2., -6.])
    """
    chosen = options_of("vjp", StepOptions, args=args, argnums=argnums, **options)
    problem = prepare(f, x, chosen)
    return like_input(x, vector_jacobian_product(problem, _like_f(problem, w), chosen)[0])


def _like_f(problem: Problem, w: Any) -> NDArray:
    weights = as_host_array(w, "w")
    if weights.shape != problem.shape:
        msg = f"w has shape {weights.shape}, but f(x) has {problem.shape}: pass one of f(x)'s shape"
        raise ValueError(msg)
    if weights.dtype.kind not in "biufc":
        msg = f"w must be numbers, got dtype {weights.dtype}"
        raise TypeError(msg)
    return weights


def linear_operator(
    f: Callable[..., Any],
    x: ArrayLike,
    *,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> LinearOperator:
    """
    Return the Jacobian of a function as a matrix-free scipy.sparse.linalg.LinearOperator.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)``, as for `jacobian`.
    x : array_like
        Point of evaluation, of any shape. x and ``f(x)`` are flattened.
    args : tuple, default ()
        Other positional arguments of f.
    argnums : int, default 0
        Position of x among the positional arguments.
    **options
        Keywords of `jacobian` except sparsity, checkpoint and memory_limit, with the same defaults.

    Returns
    -------
    LinearOperator
        ``matvec`` takes as many calls of f as `jvp`, ``rmatvec`` as many as `vjp`.

    Raises
    ------
    ValueError, TypeError, Exception
        As for `jacobian`; also for complex x without ``holomorphic=True``.

    See Also
    --------
    jvp, vjp : One product.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> J = calipers.linear_operator(lambda x: x**2, np.array([1.0, 3.0]))
    >>> J.matvec(np.ones(2)).round(6), J.rmatvec(np.ones(2)).round(6)
    (array([2., 6.]), array([2., 6.]))
    """
    chosen = options_of("linear_operator", StepOptions, args=args, argnums=argnums, **options)
    problem = prepare(f, x, chosen)
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
        value, _ = jacobian_vector_product(problem, direction, steps)
        if problem.imaginary:
            return value[1::2].astype(problem.base.dtype)
        return value.astype(problem.base.dtype).view(problem.dtype)

    def rmatvec(w: NDArray) -> NDArray:
        product, _ = vector_jacobian_product(problem, w.reshape(-1).conj(), chosen)
        return product.reshape(-1).conj()

    return scipy_sparse.linear_operator(shape, dtype, matvec=matvec, rmatvec=rmatvec)


def jacobian_blocks(
    f: Callable[..., Any],
    x: ArrayLike,
    *,
    block: int | None = None,
    args: tuple[Any, ...] = (),
    argnums: int = 0,
    **options: Unpack[StepOptions],
) -> Iterator[tuple[slice, NDArray]]:
    """
    Iterate over blocks of columns of a Jacobian that is too large for memory.

    Parameters
    ----------
    f : callable
        ``f(x, *args, **kwargs)``, as for `jacobian`.
    x : array_like
        Point of evaluation, of any shape.
    block : int, optional
        The number of columns in a block. By default about 32 MB of them.
    args : tuple, default ()
        Other positional arguments of f.
    argnums : int, default 0
        Position of x among the positional arguments.
    **options
        Keywords of `jacobian` except sparsity, checkpoint and memory_limit, with the same defaults.

    Yields
    ------
    columns : slice
        The elements of ``x.ravel()`` of this block.
    part : ndarray
        The columns, of shape ``(f(x).size, columns.stop - columns.start)``.

    Raises
    ------
    ValueError, TypeError, Exception
        As for `jacobian`; also for complex x without ``holomorphic=True``.

    See Also
    --------
    jacobian : The whole Jacobian.

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
    named = {"args": args, "argnums": argnums}
    chosen = options_of("jacobian_blocks", StepOptions, ("block",), **named, **options)
    problem = prepare(f, x, chosen)
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
