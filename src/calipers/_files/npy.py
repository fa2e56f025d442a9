"""Files of `numpy.save`: a short header, and the elements."""

import ast
import re
import struct
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from . import FileError
from .contents import Contents, Plain, add_fields, length_of, reading, require_possible

MAGIC = b"\x93NUMPY"
# As in NumPy: longer headers make Python's parser slow.
_LONGEST_HEADER = 10_000
_NUMBERS = re.compile(r"[<>|=]?(?:[?biufcmMSUV]\d*(?:\[[^\]]{1,30}\])?|O8?)", re.ASCII)


class _Stream(Protocol):
    def read(self, n: int, /) -> bytes: ...


class Header(NamedTuple):
    """What stands before the elements."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    length: int
    """The bytes before the elements."""
    size: int
    """The bytes of the elements."""


def parsed(file: BinaryIO, path: str) -> Contents:
    """Return the one array of a file, or the fields of its records."""
    header = read_header(file, length_of(file))
    contents = Contents()
    entry = Plain(path, header.length, header.shape, header.dtype, header.fortran)
    add_fields(contents, "", entry)
    return contents


contents = reading(parsed)


def read_header(stream: _Stream, total: int) -> Header:
    """Read the header of what has `total` bytes, as the array has to have, too."""
    start = _exactly(stream, len(MAGIC) + 2)
    if not start.startswith(MAGIC):
        msg = "it is not a .npy file: it does not begin with \\x93NUMPY"
        raise FileError(msg)
    version = start[-2]
    if version not in (1, 2, 3):
        msg = f"its format version is {version}; versions 1, 2 and 3 can be read"
        raise FileError(msg)
    form = "<H" if version == 1 else "<I"
    (length,) = struct.unpack(form, _exactly(stream, struct.calcsize(form)))
    if length > _LONGEST_HEADER:
        msg = f"its header has {length} bytes; at most {_LONGEST_HEADER} are read"
        raise FileError(msg)
    text = _exactly(stream, length)
    dtype, shape, fortran = _header(text.decode("utf-8" if version == 3 else "latin1", "replace"))
    size = require_possible(shape, dtype)
    before = len(start) + struct.calcsize(form) + length
    if before + size != total:
        kind = "was cut" if before + size > total else "goes on after the array"
        msg = f"its header says {before + size} bytes in all, and it has {total}: it {kind}"
        raise FileError(msg)
    return Header(dtype, shape, fortran, before, size)


def _exactly(stream: _Stream, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = stream.read(n - len(data))
        if not more:
            msg = "it ends within its header: it was cut"
            raise FileError(msg)
        data += more
    return data


def _header(text: str) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    try:
        header = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        msg = "its header is not a dict with descr, fortran_order and shape"
        raise FileError(msg)
    shape, fortran = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or any(type(n) is not int for n in shape):
        msg = f"its shape is not a tuple of integers: {shape!r:.60}"
        raise FileError(msg)
    if type(fortran) is not bool:
        msg = f"its fortran_order is neither True nor False: {fortran!r:.60}"
        raise FileError(msg)
    return _dtype(header["descr"]), shape, fortran


def _dtype(descr: Any) -> np.dtype[Any]:
    try:
        _require_supported(descr)
        dtype = np.lib.format.descr_to_dtype(descr)
        if dtype.subdtype is not None:
            raise TypeError
        return dtype
    except (ValueError, TypeError, OverflowError, MemoryError):
        msg = f"its dtype is not understood: {descr!r:.60}"
        raise FileError(msg) from None


def _require_supported(descr: Any) -> None:
    """Raise if a header was not written by `numpy.save`, before NumPy parses it."""
    if isinstance(descr, str):
        if not _NUMBERS.fullmatch(descr):
            raise ValueError
    elif isinstance(descr, tuple):
        element, shape = descr
        _require_supported(element)
        if not isinstance(shape, tuple) or any(type(n) is not int for n in shape):
            raise ValueError
    elif isinstance(descr, list):
        for name, *kind in descr:
            # Of a field with a title, both.
            names = name if isinstance(name, tuple) else (name,)
            if not all(isinstance(part, str) for part in names):
                raise ValueError
            _require_supported(kind[0] if len(kind) == 1 else tuple(kind))
    else:
        raise TypeError
