"""Iterators of chunks along axis 0, which are compared while they are read."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core.arrays import as_block, broadcast_shape, require_dense
from ..._core.dtypes import FLOAT64
from ..._core.protocols import NDArray, Result, UnevenError
from ..._core.threads import get_num_threads, submitted, threads
from ...interop.units import numbers_of
from . import Shape, is_stream
from .sources import ArraySource, Source, dtypes_of, source_of

if TYPE_CHECKING:
    from concurrent.futures import Future


# The number of blocks in memory at a time: one is compared while the next is read.
MAX_BLOCKS_IN_MEMORY = 2


def overlapped(
    blocks: Iterable[tuple[Any, ...]],
    work: Callable[..., Result],
    may_overlap: Callable[[], bool] = lambda: True,
) -> Iterator[Result]:
    """
    Yield ``work(*block)`` of each block in turn.

    Blocks are read by the calling thread, since iterators and files may not support other threads.
    `may_overlap` returns True if reading the next block does not overwrite the last one.
    """
    with threads(1, "calipers-blocks") as helper:
        begun: Future[Result] | None = None
        for block in blocks:
            if begun is not None:
                yield begun.result()
                begun = None
            if get_num_threads() > 1 and may_overlap():
                begun = submitted(helper, work, *block)
            else:
                yield work(*block)
        if begun is not None:
            yield begun.result()


# The size in bytes of the blocks of an array that is compared with an iterator and has no chunks.
_BLOCK_BYTES = 8 << 20


class Streams:
    """One or two arrays, at least one of them an iterator of chunks of unknown total length."""

    has_shapes = False

    def __init__(self, memory_limit: int, **arrays: Any) -> None:
        self._names, self._arrays = tuple(arrays), arrays
        self._largest = memory_limit // (MAX_BLOCKS_IN_MEMORY * len(arrays))

    @cached_property
    def _sources(self) -> dict[str, Source]:
        return {name: source_of(x, name) for name, x in self._arrays.items() if not is_stream(x)}

    @cached_property
    def _streams(self) -> dict[str, "_Chunks"]:
        """The arrays that are read by rows. Their first chunks are read now, to know the dtypes."""
        streams = {
            name: _Chunks(x, name, self._largest)
            for name, x in self._arrays.items()
            if is_stream(x)
        }
        ndim = max(stream.ndim for stream in streams.values())
        for name, source in self._sources.items():
            if len(source.shape) == ndim and source.shape[0] != 1:
                streams[name] = _Chunks(
                    _bands(name, source, self._largest), name, self._largest, source
                )
        return streams

    def shapes(self) -> tuple[Shape, ...]:
        return tuple(self._part(name).shape for name in self._names)

    def dtypes(self) -> tuple[np.dtype[Any], ...]:
        return dtypes_of([self._part(name) for name in self._names])

    def every(self, test: Callable[..., bool]) -> bool:
        with closing(self._each(lambda _, *blocks: test(*blocks))) as verdicts:
            verdict = all(verdicts)
        self._finish()
        if verdict:
            self._require_even()
        return verdict

    def reduce(
        self, part: Callable[..., Result], merge: Callable[[Result, Result], Result]
    ) -> Result | None:
        try:
            with closing(self._each(part)) as parts:
                result = next(parts, None)
                for following in parts:
                    result = merge(result, following)  # type: ignore[arg-type]  # may be None
        except UnevenError:
            self._skip()
            raise
        self._skip()
        self._finish()
        return result

    def _skip(self) -> None:
        for stream in self._streams.values():
            stream.skip()

    def _part(self, name: str) -> "_Chunks | Source":
        return self._streams[name] if name in self._streams else self._sources[name]

    def _each(self, work: Callable[..., Result]) -> Generator[Result]:
        try:
            yield from overlapped(self._aligned_blocks(), work, self._may_overlap)
        finally:
            for source in self._sources.values():
                source.close()

    def _may_overlap(self) -> bool:
        """Return True if reading the next chunks does not overwrite these."""
        return all(stream.settled and not stream.reuses for stream in self._streams.values())

    def _finish(self) -> None:
        for source in self._sources.values():
            source.finish()

    def _aligned_blocks(self) -> Iterator[tuple[Any, ...]]:
        """Yield blocks of equal length of all arrays, as views of their chunks."""
        self._require_axes()
        whole = {
            name: self._read_whole(name, source)
            for name, source in self._sources.items()
            if name not in self._streams
        }
        start, ndim = 0, max(stream.ndim for stream in self._streams.values())
        while rows := min(stream.ahead() for stream in self._streams.values()):
            taken = {name: stream.take(rows) for name, stream in self._streams.items()}
            blocks = [taken[name] if name in taken else whole[name] for name in self._names]
            if start == 0:
                self._require_aligned(blocks)
            yield (start, *(0,) * (ndim - 1)), *blocks
            start += rows

    def _require_axes(self) -> None:
        ndim = max(stream.ndim for stream in self._streams.values())
        for name, source in self._sources.items():
            if len(source.shape) > ndim:
                msg = (
                    f"{name} has shape {source.shape}, but chunks of the other have {ndim} "
                    f"{'axis' if ndim == 1 else 'axes'}: pass it in chunks, too"
                )
                raise UnevenError(msg)

    def _read_whole(self, name: str, source: Source) -> Any:
        """Return an array that is compared with each chunk."""
        if isinstance(source, ArraySource):
            return source.read(tuple(slice(0, n) for n in source.shape))
        _require_memory(name, prod(source.shape), source, self._largest)
        return source.read(tuple(slice(0, n) for n in source.shape))

    def _require_aligned(self, blocks: list[Any]) -> None:
        try:
            shapes = [getattr(x, "shape", ()) for x in blocks]
            broadcast_shape([np.broadcast_to(False, x) for x in shapes], self._names)
            if len({stream.ndim for stream in self._streams.values()}) > 1:
                msg = f"they have {' and '.join(str(np.ndim(x)) for x in blocks)} axes"
                raise ValueError(msg)
        except ValueError as error:
            msg = f"the chunks of {' and '.join(self._names)} do not line up: {error}"
            raise UnevenError(msg) from None

    def _require_even(self) -> None:
        more = {name: stream.ahead() > 0 for name, stream in self._streams.items()}
        if any(more.values()):
            rows = " and ".join(
                f"{name} {'has more' if more[name] else stream.rows_text()}"
                for name, stream in self._streams.items()
            )
            msg = f"operands could not be broadcast together: {rows}"
            raise UnevenError(msg)


class _Chunks:
    """The chunks of one array, from which any number of rows is taken at a time."""

    number = None  # see Source.number

    def __init__(
        self, chunks: Iterator[Any], name: str, largest: int, source: Source | None = None
    ) -> None:
        self._chunks, self._name, self._largest, self._source = chunks, name, largest, source
        self._number, self._rows, self._used = -1, 0, 0
        self.settled = source is not None  # whether `reuses` is final
        self.reuses = False
        self._chunk: NDArray | None = None
        self._row: tuple[Shape, np.dtype[Any]] | None = None
        self.ahead()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def shape(self) -> Shape:
        """The shape of the rows that were taken, or of the array if its length is known."""
        if self._source is not None:
            return self._source.shape
        return (self._rows, *(() if self._row is None else self._row[0]))

    @property
    def dtype(self) -> np.dtype[Any]:
        if self._source is not None:
            return self._source.dtype
        return FLOAT64 if self._row is None else self._row[1]

    def rows_text(self) -> str:
        """Return a text with the number of rows."""
        return f"has {self.shape[0]} rows" if self._number >= 0 else "has no chunk"

    def ahead(self) -> int:
        """Return the number of rows that remain in the current chunk, or 0 at the end."""
        while self._chunk is None or self._used == len(self._chunk):
            following = next(self._chunks, _END)
            if following is _END:
                self._chunk, self._used, self.settled = None, 0, True
                return 0
            self._number += 1
            chunk = self._checked(_as_chunk(following, f"chunk {self._number} of {self._name}"))
            if self._chunk is not None and _share_memory(chunk, self._chunk):
                self._require_expected()
                self.reuses = True
            self.settled = self.settled or self._number > 0
            self._chunk, self._used = chunk, 0
        return len(self._chunk) - self._used

    def _require_expected(self) -> None:
        """Raise ValueError if a chunk overwrites one that may still be being compared."""
        if self._number > 1 and not self.reuses:
            msg = (
                f"chunk {self._number} of {self._name} uses the memory of the chunk before it, but "
                f"the first two chunks did not share memory: copy each chunk"
            )
            raise ValueError(msg)

    def take(self, rows: int) -> NDArray:
        assert self._chunk is not None
        start = self._used
        self._used, self._rows = start + rows, self._rows + rows
        return self._chunk[start : start + rows]

    def skip(self) -> None:
        """Read to the end to find the length, unless it is known."""
        while self._source is None and (rows := self.ahead()):
            self.take(rows)

    def _checked(self, chunk: NDArray) -> NDArray:
        what = f"chunk {self._number} of {self._name} has"
        if chunk.ndim == 0:
            msg = (
                f"{what} no axis: pass arrays that follow each other along axis 0, or all numbers "
                f"as one array"
            )
            raise ValueError(msg)
        row = chunk.shape[1:], chunk.dtype
        if self._row not in (None, row):
            msg = f"{what} rows of {_text(row)} after rows of {_text(self._row)}; they must agree"
            raise ValueError(msg)
        self._row = row
        if chunk.nbytes > self._largest:
            msg = (
                f"{what} {chunk.nbytes / 2**20:.4g} MiB, and {self._largest / 2**20:.4g} MiB is "
                f"what memory_limit leaves to a chunk: pass smaller ones, or raise memory_limit"
            )
            raise ValueError(msg)
        return chunk


_END = object()


def _share_memory(a: Any, b: Any) -> bool:
    """Return True if two chunks may share memory."""
    a, b = (x if isinstance(x, np.ndarray) else numbers_of(x) for x in (a, b))
    return np.may_share_memory(a, b)


def _as_chunk(x: Any, name: str) -> Any:
    require_dense(**{name: x})
    if is_stream(x):
        msg = f"{name} is itself an iterator, {type(x).__name__}: iterators must yield arrays"
        raise TypeError(msg)
    try:
        return as_block(x, name)
    except ValueError as error:
        msg = f"{name} is not an array: {error}"
        raise ValueError(msg) from error


def _text(row: Any) -> str:
    shape, dtype = row
    return f"shape {shape} and dtype {dtype}"


def _require_memory(name: str, size: int, source: Source, largest: int) -> None:
    """Raise ValueError if reading `size` elements exceeds the memory limit of a block."""
    block = (1, *source.shape[1:]) if size < prod(source.shape) else source.shape
    # Only one array and one block is decompressed at a time.
    needed = max(size * source.dtype.itemsize, source.overhead_bytes(block) // MAX_BLOCKS_IN_MEMORY)
    if needed > largest:
        msg = (
            f"{name} is compared with an iterator, so it is read by rows; one takes "
            f"{needed / 2**20:.4g} MiB, and {largest / 2**20:.4g} MiB is what memory_limit allows: "
            f"raise memory_limit, or pass {name} in chunks of fewer columns"
        )
        raise ValueError(msg)


def _bands(name: str, source: Source, largest: int) -> Iterator[NDArray]:
    """Yield an array in bands of rows: as many as a chunk has, or as make a block."""
    width = max(1, prod(source.shape[1:]))
    row = width * source.dtype.itemsize
    rows = source.chunks[0] if source.chunks else _BLOCK_BYTES // row
    rows = max(1, min(rows, largest // row))
    if source.shape[0]:
        _require_memory(name, width, source, largest)
    others = tuple(slice(0, n) for n in source.shape[1:])
    for start in range(0, source.shape[0], rows):
        yield source.read((slice(start, min(start + rows, source.shape[0])), *others))
