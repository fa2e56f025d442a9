"""The arrays of a file by name, and errors of files that cannot be read."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from math import prod
from operator import itemgetter
from typing import Any, BinaryIO, Protocol

import numpy as np

from .._core.protocols import NDArray
from . import FileError


def leads_out(path: str, root: str) -> bool:
    """Return True if a path leads out of a folder."""
    root = os.path.realpath(root)
    try:
        return os.path.commonpath([root, os.path.realpath(path)]) != root
    except ValueError:  # of two drives, on Windows
        return True


def unsafe_links(root: str) -> Iterator[str]:
    """Yield links below a folder that lead out of it, or in circles as those to folders may."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path) and (os.path.isdir(path) or leads_out(path, root)):
                yield os.path.relpath(path, root)


_LARGEST = 2**63 - 1  # bytes of the largest array that NumPy can address
_AXES = 64  # axes of an array at most, which is NumPy's limit
# Deflate makes at most so many bytes of one.
DEFLATE = 1032
# What chunks that are missing or compressed stand for is filled in at some GiB/s: up to this size,
# it takes a minute, and nothing is refused; beyond, deflate's ratio has to explain it.
_FILLED = 64 << 30


class FileArray(Protocol):
    """An array of a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which is known without reading."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""
        ...

    @property
    def typed(self) -> bool:
        """Whether the file tells the dtype, which is a guess of the reader else."""
        ...

    def load(self) -> Any:
        """Read all of it."""
        ...

    def spread(self, memory_limit: int) -> Any:
        """Return what `calipers.compare` reads part by part within this limit."""
        ...


@dataclass
class Contents:
    """The arrays of a file by name, and what cannot be compared, by name with the reason."""

    arrays: dict[str, FileArray] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    nulls: dict[str, FileArray] = field(default_factory=dict)
    """Boolean arrays that are True where an array has no value; its element there is 0 or ""."""
    structure: set[str] = field(default_factory=set)
    """The arrays that say where elements belong, as indices do: no tolerance applies to them."""
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    """The attributes of netCDF variables that say what their numbers mean."""

    def add(self, name: str, entry: FileArray, nulls: FileArray | None = None) -> None:
        """Add an array under a name that no other array has."""
        if name in self.arrays:
            msg = f"it has two arrays of the name {name!r:.80}"
            raise FileError(msg)
        self.arrays[name] = entry
        if nulls is not None:
            self.nulls[name] = nulls

    def add_structure(self, name: str, array: NDArray, nulls: FileArray | None = None) -> None:
        """Add an array of lengths or indices, which have to be equal."""
        self.add(name, Loaded(array), nulls)
        self.structure.add(name)


class Reader(Protocol):
    """A module that reads a format."""

    def contents(self, path: str, follow_links: bool) -> AbstractContextManager[Contents]:
        """Open a file; its arrays can be read until it is closed."""
        ...


def reading(
    parsed: Callable[[BinaryIO, str], Contents],
) -> Callable[[str, bool], AbstractContextManager[Contents]]:
    """Return a reader's `contents` by a parser of its files."""

    @contextmanager
    def contents(path: str, follow_links: bool) -> Iterator[Contents]:
        with open(path, "rb") as file:
            yield parsed(file, path)

    return contents


def length_of(file: BinaryIO) -> int:
    """Return how many bytes a file has, and go to its start."""
    length = file.seek(0, os.SEEK_END)
    file.seek(0)
    return length


def size_in_bytes(entry: FileArray) -> int:
    """Return what an array takes in memory; of text, its references alone."""
    return prod(entry.shape) * entry.dtype.itemsize


def require_possible(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes that an array takes; refuse what NumPy cannot have."""
    if dtype.hasobject:
        msg = "it holds pickled objects, which could run code when they are read: refused"
        raise FileError(msg)
    if len(shape) > _AXES or any(n < 0 for n in shape):
        msg = f"its shape, {shape!s:.80}, is not valid"
        raise FileError(msg)
    # Elements of no bytes would be as many as a header likes to say.
    if prod(n for n in shape if n) * dtype.itemsize > _LARGEST or not dtype.itemsize:
        msg = f"it claims an array of shape {shape!s:.80} and dtype {dtype}, which is impossible"
        raise FileError(msg)
    return prod(shape) * dtype.itemsize


def require_stored(size: int, stored: Callable[[], int]) -> None:
    """Refuse an array that is enormous though next to nothing of it is in its file."""
    if size > _FILLED and size > DEFLATE * stored():
        msg = (
            f"it claims {size / 2**30:.4g} GiB, of which {stored() / 2**20:.4g} MiB are stored: "
            f"above {_FILLED >> 30} GiB, at most {DEFLATE} times the stored size is read"
        )
        raise FileError(msg)


@dataclass(frozen=True)
class Loaded:
    """An array in memory."""

    array: NDArray
    typed: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        return self.array.dtype

    def load(self) -> NDArray:
        """Return the array."""
        return self.array

    def spread(self, memory_limit: int) -> NDArray:
        """Return the array."""
        return self.array


def text(values: Any) -> NDArray:
    """Return strings of any lengths as an array."""
    return np.asarray(values, dtype=np.dtypes.StringDType())


@dataclass(frozen=True)
class Plain:
    """An array that lies in a file as it would in memory."""

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool = False
    typed: bool = True

    @property
    def _order(self) -> Any:
        return "F" if self.fortran else "C"

    def load(self) -> NDArray:
        """Read it, since a map of a file that is cut would be the end of the process."""
        memory = np.empty(prod(self.shape) * self.dtype.itemsize, np.uint8)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset)
            left = memory.data
            while left:
                count = file.readinto(left)
                if not count:
                    msg = (
                        f"it was cut while it was read, to {os.fstat(file.fileno()).st_size} bytes"
                    )
                    raise FileError(msg)
                left = left[count:]
        return memory.view(self.dtype).reshape(self.shape, order=self._order)

    def spread(self, memory_limit: int) -> Any:
        """Map it; calipers reads large maps through the file."""
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self._order)


@dataclass(frozen=True)
class Dataset:
    """An array of h5py or zarr, and what tells how many bytes of it are in its file."""

    array: Any
    dtype: np.dtype[Any]
    stored: Callable[[], int]
    typed: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.array.shape)

    def load(self) -> NDArray:
        """Read it."""
        self._require()
        return np.asarray(self.array[()])

    def spread(self, memory_limit: int) -> Any:
        """Return the array, which is read by its chunks."""
        self._require()
        return self.array

    def _require(self) -> None:
        require_stored(size_in_bytes(self), self.stored)


@dataclass(frozen=True)
class Derived:
    """An array that a function computes from the rows of a different array."""

    source: FileArray
    compute: Callable[[Any], Any]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_view: bool = False
    """Whether the function returns a view, which takes no memory."""
    typed: bool = True

    def load(self) -> NDArray:
        """Compute all of it."""
        return np.asarray(self.compute(self.source.load()))

    def spread(self, memory_limit: int) -> Any:
        """Return a view of a map, or the results for some rows at a time."""
        source = self.source.spread(memory_limit)
        if isinstance(source, np.ndarray) and self.is_view:
            return self.compute(source)
        if isinstance(source, Iterator):
            return map(self.compute, source)
        return self._bands(source, memory_limit)

    def _bands(self, source: Any, memory_limit: int) -> Iterator[NDArray]:
        """Compute whole rows of a map or of a store."""
        itemsize = max(self.source.dtype.itemsize, self.dtype.itemsize)
        rows = max(1, (memory_limit // 16) // max(1, prod(self.shape[1:]) * itemsize))
        for start in range(0, self.shape[0], rows):
            yield self.compute(source[start : start + rows])


@dataclass(frozen=True)
class Filled:
    """An array with zeros at the elements that any of its masks marks as missing."""

    entry: FileArray
    masks: tuple[FileArray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.entry.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the array."""
        return self.entry.dtype

    @property
    def typed(self) -> bool:
        """Whether the file tells the dtype."""
        return self.entry.typed

    def load(self) -> NDArray:
        """Read and fill all of it."""
        return _with_zeros(*(entry.load() for entry in (self.entry, *self.masks)))

    def spread(self, memory_limit: int) -> Iterator[NDArray]:
        """Fill some rows at a time."""
        parts: list[tuple[FileArray, Callable[[Any], Any]]] = [
            (entry.source, entry.compute) if isinstance(entry, Derived) else (entry, np.asarray)
            for entry in (self.entry, *self.masks)
        ]
        stores = [source.spread(memory_limit) for source, _ in parts]
        row = prod(self.shape[1:]) * (self.dtype.itemsize + sum(x.dtype.itemsize for x, _ in parts))
        rows = max(1, (memory_limit // 16) // max(1, row))
        for start in range(0, self.shape[0], rows):
            yield _with_zeros(
                *(
                    compute(store[start : start + rows])
                    for store, (_, compute) in zip(stores, parts, strict=True)
                )
            )


def _with_zeros(values: Any, *masks: NDArray) -> NDArray:
    filled = np.array(values)
    filled[np.logical_or.reduce(masks)] = np.zeros((), filled.dtype)[()]
    return filled


def add_fields(contents: Contents, name: str, entry: FileArray) -> None:
    """Add an array, or the fields of its records."""
    if not entry.dtype.names:
        contents.add(name, entry)
        return
    for field_name in entry.dtype.names:
        assert entry.dtype.fields is not None
        kind: np.dtype[Any] = entry.dtype.fields[field_name][0]
        shape = (*entry.shape, *kind.shape)
        part = Derived(entry, itemgetter(field_name), kind.base, shape, True, entry.typed)
        add_fields(contents, joined(name, field_name), part)


def joined(*names: str) -> str:
    """Join the names of levels; a file that is one array has an empty name."""
    return "/".join(name for name in names if name)
