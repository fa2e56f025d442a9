"""Derivatives, and inputs of gradient checks, on a CUDA device."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from .._core.libraries import is_device_function, library_of, on_device
from .._core.protocols import NDArray
from .._derivatives.function import REAL, empty_like
from .._derivatives.options import Options
from .._derivatives.solve import as_host_array, as_point, require_memory
from .._derivatives.steps import METHODS, modes_of, plan_steps
from .._execution.run import Progress
from .._gradcheck.adapt import CheckArguments
from . import runtime
from .arrays import operand
from .functions import DeviceFunction, LaunchedFunction, arguments, compiled, launch
from .kernels import differences as kernels


def on_host(check: CheckArguments, out_like: Any, inplace: Any) -> tuple[CheckArguments, Any]:
    """
    Return a gradient check of arrays on the host, and examples of f's results there.

    A function compiled for a device, or one that fills arrays there, is launched; any other is
    called with arrays on the device.
    """
    runtime.require_device()
    inputs = check.several
    whole = (*inputs, *check.args)
    away = [k for k, x in enumerate(whole) if on_device(x=x)]
    like = whole[away[0]] if away else None
    positions = frozenset(away)

    def host(f: Any, fills: bool) -> Any:
        if f is None:
            return None
        launched = is_device_function(f) or (fills and bool(away))
        # A function that is launched has no use for arrays of the host.
        everywhere = frozenset(range(len(whole))) if launched else positions
        return DeviceFunction(f, everywhere, len(whole), like, launched)

    likes = out_like if isinstance(out_like, (tuple, list)) else (out_like,)
    batched = check.batched
    f = host(check.f, out_like is not None)
    if f.launched and len(likes) == 1:
        batched = partial(_batched, check.f, as_host_array(likes[0]), f.ordinal)
    derivatives = {
        name: host(call, inplace is not None) for name, call in check.derivatives.items()
    }
    here = tuple(as_host_array(x) if k in positions else x for k, x in enumerate(whole))
    adapted = replace(
        check,
        f=f,
        inputs=here[: len(inputs)],
        args=here[len(inputs) :],
        derivatives=derivatives,
        batched=batched,
    )
    if out_like is None:
        return adapted, None
    return adapted, tuple(as_host_array(x) if on_device(x=x) else x for x in likes)


def _batched(f: Any, like: NDArray, ordinal: int, position: int) -> LaunchedFunction:
    return LaunchedFunction(f, position, like, False, ordinal)


# A block's copy of x is in its shared memory if it fits the 48 KiB that every device has, which
# leave some for the kernel itself, and for f.
_SHARED_BYTES = 47 << 10
# Copies of x and results next to the Jacobian take at most 1/_SHARE of the memory limit.
_SHARE = 4


def as_host(f: Any, x: Any, options: Options) -> tuple[Any, Any, Options]:
    """Return a function, point and options with which the host differentiates f on a device."""
    position: Any = options.argnums
    away = on_device(x=x)
    if not away:
        runtime.require_device()
    library = library_of(x)
    takes_arrays = options.batched or (options.out_like is None and not is_device_function(f))
    if takes_arrays and away and library is not None:
        return DeviceFunction(f, frozenset({position}), 1 << 30, x), library.fetch(x), options
    if takes_arrays:
        msg = "a function on a device stores its results: write it as f(x, out) with out_like=, "
        msg += "or f(i, x) with rowwise=True, or f(x) of arrays of torch, jax or cupy"
        raise TypeError(msg)
    source = operand(x, "x") if away else None
    ordinal = source.memory.ordinal if source else 0
    like = empty_like(options.out_like)
    if options.method == "cs":  # f of numbers with an imaginary part has one itself
        like = like.astype(np.promote_types(like.dtype, np.complex64))
    launched = LaunchedFunction(f, position, like, options.rowwise, ordinal)
    if options.kwargs:
        names = ", ".join(options.kwargs)
        msg = f"a function on a device takes no keyword arguments, got {names}: use args="
        raise TypeError(msg)
    plain = replace(options, out_like=None, rowwise=False, batched=True)
    return launched, source.to_host() if source else x, plain


def at_home(value: Any, x: Any) -> Any:
    """Return a derivative as an array of x's library, on the device of x."""
    if isinstance(value, tuple):
        return tuple(at_home(part, x) for part in value)
    if not isinstance(value, np.ndarray | np.generic):
        return value
    library = library_of(x)
    if library is not None:
        return library.put(np.asarray(value, order="C"), x)
    with runtime.on(operand(x, "x").memory.ordinal):
        return runtime.to_device(np.asarray(value, order="C"))


class _Differentiation(NamedTuple):
    """A function, the point and differences of its derivative, and the memory limit."""

    f: Any
    x: NDArray
    table: NDArray  # of `_kernels.differences.tabulate`
    others: tuple[Any, Any]  # arguments of f before and after x, on the device
    like: NDArray  # f's results
    stream: Any
    limit: float  # bytes


def jacobian(f: Callable[..., Any], x: Any, options: Options) -> Any:
    """
    Differentiate a function compiled for a device by fixed steps, in one launch.

    None if that cannot be done so: the host does it then, by values from the device.
    """
    fills = options.out_like is not None and options.method in METHODS and not options.batched
    if not fills or options.sparsity is not None or options.kwargs:
        return None
    runtime.require_device()
    away = on_device(x=x)
    source = operand(x, "x") if away else None
    point, scalar = as_point(source.to_host() if source else x)
    like = empty_like(options.out_like)
    empty = not (point.size and like.size)
    if scalar or empty or modes_of(point, options.method, options.holomorphic) != REAL:
        return None
    if like.ndim == 0 and not options.rowwise:
        msg = "out_like has no axis, and a function on a device fills an array: pass shape (1,)"
        raise ValueError(msg)
    with runtime.on(source.memory.ordinal if source else 0):
        limit = options.memory_limit
        if limit is None:
            limit = runtime.memory_for(like.size * point.size * like.itemsize)
    require_memory(like.size, point.size, like.itemsize, limit)
    chosen = options.method, options.step, options.scale, options.bounds
    steps = plan_steps(point, REAL, like.dtype, *chosen)
    progress = Progress(options.progress, point.size)
    try:
        with runtime.on(source.memory.ordinal if source else 0):
            stream = source.stream if source else runtime.stream(0)
            table, _ = steps.tables(point, 1, 0, point.size)
            k: Any = options.argnums
            others = arguments(options.args[:k], stream), arguments(options.args[k:], stream)
            differentiate = _rows if options.rowwise else _columns
            result = differentiate(_Differentiation(f, point, table, others, like, stream, limit))
            progress.add(point.size)
            if not away:
                return runtime.fetch(result, stream)
            stream.synchronize()
    finally:
        progress.close()
    library = library_of(x)
    return result if library is None else library.from_device(result, x)


def _columns(problem: _Differentiation) -> Any:
    """Return the Jacobian of ``f(x, out)``."""
    f, x, table, others, like, stream, limit = problem
    m, n = like.size, x.size
    whole = runtime.empty((m, n), like.dtype)
    several = table.shape[1] > 1
    bytes_per_lane = n * x.itemsize + (2 if several else 1) * m * like.itemsize
    most = max(1, int(limit) // _SHARE // max(1, bytes_per_lane))
    lanes = max(1, min(n, runtime.resident() * runtime.threads(), most))
    copies = runtime.empty((n, lanes), x.dtype)
    lower = runtime.empty((m, lanes), like.dtype)
    upper = runtime.empty((m, lanes), like.dtype) if several else lower
    blocks, each = runtime.spread(lanes)
    shaped = [
        copies.reshape(*x.shape, lanes),
        *(y.reshape(*like.shape, lanes) for y in (upper, lower)),
        whole.reshape(*like.shape, n),
    ]
    matrices = shaped[0], copies, shaped[1], upper, shaped[2], lower, shaped[3], whole
    kernel = kernels.fill_columns(compiled(f))
    launch(kernel, blocks, stream, [x.reshape(-1), table], *others, *matrices, each=each)
    return whole.reshape(*like.shape, *x.shape)


def _rows(problem: _Differentiation) -> Any:
    """Return the Jacobian of ``f(i, x)``: a view of its transpose."""
    f, x, table, others, like, stream, limit = problem
    m, n, dtype = like.size, x.size, like.dtype.newbyteorder("=")
    transposed = runtime.empty((n, m), dtype)
    shared = x.nbytes if x.ndim == 1 and x.nbytes <= _SHARED_BYTES else 0
    kernel = kernels.compute_rows(compiled(f), x.dtype.name, dtype.name, bool(shared))
    rows = 2 if table.shape[1] > 1 else int(np.any(table[1, 0] == x.reshape(-1)))
    bytes_per_block = (0 if shared else x.nbytes) + rows * like.nbytes
    most = max(1, int(limit) // _SHARE // max(1, bytes_per_block))
    blocks = max(1, min(n, runtime.resident_of(kernel, shared), most))
    # What the kernel does not use is no memory of its own.
    buffer = runtime.empty((rows * blocks, m), dtype) if rows else transposed
    copies: Any = ()
    coords: Any = ()
    if not shared:
        coords = runtime.empty((blocks, n), x.dtype)
        copies = coords.reshape(blocks, *x.shape)
    sizes = blocks, n, m, table.shape[1]
    filled = runtime.address_of(buffer), runtime.address_of(transposed)
    parts = *others, *sizes, copies, coords, *filled
    here = [x.reshape(-1), table]
    launch(kernel, blocks, stream, here, *parts, by_address=True, shared=shared)
    size = like.itemsize
    strides = (*runtime.contiguous(like.shape, size), *runtime.contiguous(x.shape, m * size))
    memory = runtime.memory_of(transposed)
    return runtime.view(transposed, memory.address, dtype, (*like.shape, *x.shape), strides)
