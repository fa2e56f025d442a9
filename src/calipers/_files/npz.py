"""Archives of `numpy.savez` and `numpy.savez_compressed`: a .npy file for each array."""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

import numpy as np

from .._core.protocols import NDArray
from . import FileError, npy
from .contents import DEFLATE, Contents, Plain, add_fields, reading

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_CHUNK = 8 << 20  # bytes of a compressed array that are read at a time
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    RuntimeError,
    ValueError,
)


def parsed(file: BinaryIO, path: str) -> Contents:
    """Return the arrays of an archive."""
    result = Contents()
    try:
        archive = zipfile.ZipFile(file)
        for info in archive.infolist():
            _add(result, file, path, archive, info)
    except _BROKEN as error:
        raise _broken(error) from None
    return result


contents = reading(parsed)


def _broken(error: Exception) -> FileError:
    # zipfile raises it without a word.
    reason = str(error) or "it ends within a member, or a header says so"
    return FileError(f"it is not a readable zip archive: {reason}")


def _add(
    result: Contents, file: BinaryIO, path: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo
) -> None:
    name = info.filename.removesuffix(".npy")
    if name == info.filename:
        result.left_out[name] = "it is not a .npy file"
        return
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        msg = f"{name!r:.80} is compressed by method {info.compress_type}: savez uses deflate"
        raise FileError(msg)
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    if info.file_size > info.compress_size * (DEFLATE if deflated else 1):
        msg = f"{name!r:.80} claims {info.file_size} bytes, more than its {info.compress_size} hold"
        raise FileError(msg)
    try:
        with archive.open(info) as member:
            header = npy.read_header(member, info.file_size)
    except FileError as error:
        msg = f"{name!r:.80}: {error}"
        raise FileError(msg) from None
    if deflated:
        add_fields(result, name, Deflated(archive, info, header))
    else:
        offset = start_of(file, info) + header.length
        add_fields(result, name, Plain(path, offset, header.shape, header.dtype, header.fortran))


def start_of(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Return the offset of a member's data in the archive, from its local header."""
    file.seek(info.header_offset)
    _, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return info.header_offset + _LOCAL_HEADER.size + int(name) + int(extra)


@dataclass(frozen=True)
class Deflated:
    """A compressed array of an archive, which is read from its start to its end."""

    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    header: npy.Header
    typed: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        """As its header says."""
        return self.header.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """As its header says."""
        return self.header.dtype

    def load(self) -> NDArray:
        """Read it."""
        (memory,) = self._read(self.header.size)
        order: Any = "F" if self.header.fortran else "C"
        return memory.reshape(self.shape, order=order)

    def spread(self, memory_limit: int) -> Iterator[NDArray]:
        """Return rows that follow each other, some MiB at a time."""
        row = max(1, prod(self.shape[1:]) * self.dtype.itemsize)
        # Of each side, one chunk is compared while another is read.
        columns = self.header.fortran and sum(n > 1 for n in self.shape) > 1
        if columns or row > memory_limit // 4:
            how = "in Fortran order" if columns else f"in rows of {row / 2**20:.4g} MiB"
            msg = (
                f"{self.info.filename!r:.80} is compressed, {how}, and too large for memory: "
                f"save it with numpy.savez, which does not compress"
            )
            raise FileError(msg)
        rows = max(1, min(_CHUNK, memory_limit // 4) // row)
        return (chunk.reshape(-1, *self.shape[1:]) for chunk in self._read(rows * row))

    def _read(self, step: int) -> Iterator[NDArray]:
        """Yield the elements, of so many bytes at a time."""
        left = self.header.size
        try:
            with self.archive.open(self.info) as member:
                member.read(self.header.length)
                while True:
                    memory = np.empty(min(step, left), np.uint8)
                    _fill(member, memory.data)
                    left -= memory.nbytes
                    yield memory.view(self.dtype)
                    if not left:
                        break
                # The end of a member is where its checksum is looked at.
                member.read(1)
        except _BROKEN as error:
            raise _broken(error) from None


def _fill(member: Any, left: memoryview) -> None:
    while left:
        count = member.readinto(left)
        if not count:
            raise EOFError("a member ends before its array does")
        left = left[count:]
