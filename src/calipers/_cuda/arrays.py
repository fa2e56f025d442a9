"""Arrays on a device as kernels take them: memory as a vector, and the indices of elements."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .._core.arrays import broadcast_shape, strengthen
from .._core.dtypes import DType
from .._core.libraries import library_of
from .._core.protocols import NDArray
from . import runtime
from .kernels.loading import CARRIERS


class Operand(NamedTuple):
    """An array on a device; views of it are other operands of the same memory."""

    memory: runtime.Memory  # of the first element, in the format that kernels read
    kind: str  # the name of the dtype

    @property
    def dtype(self) -> DType:
        return runtime.bfloat16() if self.kind == "bfloat16" else np.dtype(self.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Steps along the axes, in bytes."""
        return self.memory.strides

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def itemsize(self) -> int:
        return self.memory.dtype.itemsize

    @property
    def stream(self) -> Any:
        """The stream that fills the array."""
        return runtime.stream(self.memory.stream)

    def _placed(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> "Operand":
        address = self.memory.address + offset
        memory = self.memory._replace(address=address, shape=tuple(shape), strides=tuple(strides))
        return self._replace(memory=memory)

    def broadcast(self, shape: tuple[int, ...]) -> "Operand":
        """View the array as one of a shape that it is broadcast to."""
        if shape == self.shape:
            return self
        missing = len(shape) - self.ndim
        steps = (0 if n == 1 else s for n, s in zip(self.shape, self.strides, strict=True))
        return self._placed(shape, (*(0,) * missing, *steps))

    def transpose(self, *axes: int) -> "Operand":
        """View the array with its axes in another order."""
        return self._placed([self.shape[i] for i in axes], [self.strides[i] for i in axes])

    def reshape(self, shape: tuple[int, ...]) -> "Operand":
        """View an array in C order as one of another shape."""
        return self._placed(shape, runtime.contiguous(shape, self.itemsize))

    def is_c_contiguous(self) -> bool:
        """Return True if elements lie in C order, without gaps."""
        usual = runtime.contiguous(self.shape, self.itemsize)
        lengths = zip(self.shape, self.strides, usual, strict=True)
        return all(n < 2 or stride == step for n, stride, step in lengths)

    def to_host(self) -> NDArray:
        """Copy the array to the host."""
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        source, layout = self.memory, memory_layout([self])
        with runtime.on(source.ordinal):
            memory = runtime.fetch_part(source, layout.starts[0], layout.counts[0], self.stream)
        steps = [s * self.itemsize for s in layout.steps[0][1:]]
        view = np.lib.stride_tricks.as_strided(memory[layout.steps[0][0] :], layout.shape, steps)
        return view.view(self.dtype).reshape(self.shape)

    def __getitem__(self, key: tuple[slice, ...]) -> "Operand":  # type: ignore[override]
        """View a part of the array: a slice for each of its first axes."""
        shape: list[int] = list(self.shape)
        strides: list[int] = list(self.strides)
        offset = 0
        for axis, part in enumerate(key):
            start, stop, step = part.indices(shape[axis])
            shape[axis] = len(range(start, stop, step))
            offset += start * strides[axis]
            strides[axis] *= step
        return self._placed(shape, strides, offset)


class MemoryLayout(NamedTuple):
    """Indices of the elements of arrays of one shape, with axes merged where memory allows."""

    shape: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]  # of each array: its first element's index, and each axis's
    starts: tuple[int, ...]  # of each array's memory, from its first element, in bytes
    counts: tuple[int, ...]  # of elements from there on
    flat: bool  # element i of each is at index i
    indexing: tuple[Any, ...]  # by which kernels locate elements of the first array and the last

    def vectors(self, operands: Sequence[Operand]) -> list[Any]:
        """Return the memory of each array as kernels take it."""
        parts = zip(operands, self.starts, self.counts, strict=True)
        return [runtime.vector(o.memory, start, n) for o, start, n in parts]


def memory_layout(operands: Sequence[Operand], any_order: bool = False) -> MemoryLayout:
    """Return the layout of arrays of one shape, in C order or in the order of memory."""
    sizes = tuple(o.itemsize for o in operands)
    return _memory_layout(operands[0].shape, tuple(o.strides for o in operands), sizes, any_order)


@lru_cache
def _memory_layout(
    shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    sizes: tuple[int, ...],
    any_order: bool,
) -> MemoryLayout:
    axes: list[tuple[int, ...]] = [
        axis for axis in zip(shape, *strides, strict=True) if axis[0] > 1
    ]
    offsets = [0] * len(sizes)
    if any_order:
        for k, (n, *axis_strides) in enumerate(axes):
            if axis_strides[0] < 0:  # the other way round
                offsets = [at + (n - 1) * s for at, s in zip(offsets, axis_strides, strict=True)]
                axes[k] = (n, *(-s for s in axis_strides))
        axes.sort(key=lambda axis: axis[1:], reverse=True)
    axes = _joined(axes) or [(1, *sizes)]
    lengths, *columns = zip(*axes, strict=True)
    steps, starts, counts = [], [], []
    for size, distances, offset in zip(sizes, columns, offsets, strict=True):
        extents = [(n - 1) * s for n, s in zip(lengths, distances, strict=True)]
        lowest = sum(s for s in extents if s < 0)
        steps.append((-lowest // size, *(s // size for s in distances)))
        starts.append(offset + lowest)
        counts.append(sum(map(abs, extents)) // size + 1)
    flat = len(lengths) == 1 and all(s == (0, 1) for s in steps)
    indexing = () if flat else (lengths, steps[0], steps[-1])
    return MemoryLayout(lengths, tuple(steps), tuple(starts), tuple(counts), flat, indexing)


def _joined(axes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Join neighbouring axes that are one in the memory of all arrays."""
    joined: list[tuple[int, ...]] = []
    for n, *axis_strides in axes:
        if joined and all(s == n * t for s, t in zip(joined[-1][1:], axis_strides, strict=True)):
            joined[-1] = (joined[-1][0] * n, *axis_strides)
        else:
            joined.append((n, *axis_strides))
    return joined


def operand(x: Any, name: str) -> Operand:
    """Return an array on a device as an operand, in the dtype that kernels read."""
    library = library_of(x)
    try:
        view, kind, stream = (x, None, None) if library is None else library.on_device(x)
        memory = runtime.memory_of(view, stream)
    except (TypeError, BufferError, NotImplementedError) as error:
        raise TypeError(f"{name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if memory.address == 0 and 0 not in memory.shape:
        msg = f"{name} has shape {memory.shape}, but no elements in memory: its address is 0; "
        raise TypeError(msg + "pass an array that has its elements in a device's memory")
    kind, carrier = _format(memory.dtype, kind)
    if carrier is None:
        msg = f"{name} has dtype {memory.dtype}, which is not compared on a device; "
        msg += "compare it on the host"
        raise TypeError(msg)
    if carrier is not memory.dtype:
        memory = memory._replace(dtype=carrier)
    if not _is_even(memory.shape, memory.strides, carrier.itemsize):
        msg = f"{name} has strides {memory.strides}, which are not multiples of its element size; "
        msg += "pass a contiguous copy of it"
        raise TypeError(msg)
    # Of a read across its bounds a device makes an error that ends all work of the process there.
    if memory.address % carrier.alignment and prod(memory.shape):
        msg = f"{name} begins at {memory.address:#x}, which is not a multiple of its elements' "
        msg += f"alignment of {carrier.alignment} bytes; pass a contiguous copy of it"
        raise TypeError(msg)
    return Operand(memory, kind)


@lru_cache
def _is_even(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Return True if steps from element to element are multiples of their size."""
    return not any(n > 1 and s % itemsize for n, s in zip(shape, strides, strict=True))


@lru_cache
def _format(dtype: DType, kind: str | None) -> tuple[str, DType | None]:
    """Return the name of a dtype and the dtype that kernels read, None if unsupported."""
    kind = kind or dtype.name
    supported = dtype.kind in "biufc" and dtype.char not in "gG" and dtype.isnative
    if not supported and kind != "bfloat16":
        return kind, None
    return kind, np.dtype(CARRIERS.get(kind, dtype))


def operands(a: Any, b: Any, names: tuple[str, str]) -> tuple[Operand, Operand]:
    """
    Return two arrays on one device as operands; one of them may be a number.

    Work on both goes to the stream of the first, which waits for the stream of the second.
    """
    numbers = [isinstance(x, (int, float, complex, np.generic)) for x in (a, b)]
    if numbers[0]:
        y = operand(b, names[1])
        return _number(a, y), y
    x = operand(a, names[0])
    if numbers[1]:
        return x, _number(b, x)
    y = operand(b, names[1])
    if x.memory.ordinal != y.memory.ordinal:
        devices = (
            f"{n} is on device {o.memory.ordinal}" for n, o in zip(names, (x, y), strict=True)
        )
        msg = f"{' and '.join(devices)}; move one of them to the other's device"
        raise TypeError(msg)
    if x.memory.stream != y.memory.stream:
        with runtime.on(y.memory.ordinal):
            runtime.order(x.stream, y.stream)
    return x, y


def _number(x: Any, like: Operand) -> Operand:
    """Put a number on the device, in the dtype that it takes with an array (NEP 50)."""
    dtype = np.dtype(np.float32 if like.kind == "bfloat16" else like.kind)
    value = np.asarray(x) if isinstance(x, np.generic) else strengthen(x, dtype)
    if value.dtype.kind == "O":
        msg = (
            f"an integer of {x.bit_length()} bits is compared with an array on a device, where "
            "integers have 64"
        )
        raise TypeError(f"{msg}: copy the array to the host")
    scalar = _cached_scalar(value.dtype, value.tobytes(), like.memory.ordinal)
    return scalar._replace(memory=scalar.memory._replace(stream=like.memory.stream))


@lru_cache
def _cached_scalar(dtype: DType, bits: bytes, ordinal: int) -> Operand:
    """Put a number on a device, where it stays: the same few numbers are used repeatedly."""
    with runtime.on(ordinal):
        scalar = operand(runtime.to_device(np.frombuffer(bits, dtype)), "a number")
    return scalar._placed((), ())


def common_shape(x: Operand, y: Operand, names: tuple[str, str] = ("a", "b")) -> tuple[int, ...]:
    """Return the shape that two arrays broadcast to."""
    return x.shape if x.shape == y.shape else _broadcast((x.shape, y.shape), names)


@lru_cache
def _broadcast(shapes: tuple[tuple[int, ...], ...], names: tuple[str, str]) -> tuple[int, ...]:
    return broadcast_shape([np.broadcast_to(np.empty(()), shape) for shape in shapes], names)
