"""Files of safetensors: a header of JSON that says where in the file which tensor lies."""

import json
from math import prod
from typing import Any, BinaryIO

import numpy as np

from . import FileError
from .contents import Contents, Plain, length_of, reading, require_possible

# As the format's own library.
_LONGEST_HEADER = 100_000_000
_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "C64": "<c8",
}
_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}


def parsed(file: BinaryIO, path: str) -> Contents:
    """Return the tensors of a file."""
    contents = Contents()
    total = length_of(file)
    length = int.from_bytes(file.read(8), "little")
    if total < 8 or length > min(total - 8, _LONGEST_HEADER):
        msg = f"its header claims {length} bytes, and the file has {total}: it may be truncated"
        raise FileError(msg)
    header = _header(file.read(length))
    start = 8 + length
    end = 0
    spans = []
    for name, fields in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, first, last = _tensor(name, fields)
        spans.append((first, last, name))
        contents.add(name, Plain(path, start + first, shape, dtype))
    for first, last, name in sorted(spans):
        if first != end:
            msg = f"{name!r:.80} begins at byte {first}, not at {end} where the one before ends"
            raise FileError(msg)
        end = last
    if start + end != total:
        msg = f"its tensors end at byte {start + end}, and the file at {total}"
        raise FileError(msg)
    return contents


contents = reading(parsed)


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        msg = f"its header is not JSON: {str(error) or type(error).__name__}"
        raise FileError(msg) from None
    if not isinstance(header, dict):
        msg = "its header is not a JSON object"
        raise FileError(msg)
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        msg = "a key is repeated"
        raise ValueError(msg)
    return members


def _tensor(name: str, fields: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    if not isinstance(fields, dict) or fields.keys() != {"dtype", "shape", "data_offsets"}:
        msg = f"{name!r:.80} has no dtype, shape and data_offsets"
        raise FileError(msg)
    shape, offsets = fields["shape"], fields["data_offsets"]
    if not (_are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
        msg = f"{name!r:.80} has shape {shape!r:.40} and data_offsets {offsets!r:.40}"
        raise FileError(msg)
    dtype = _dtype(name, fields["dtype"])
    first, last = offsets
    if require_possible(tuple(shape), dtype) != last - first:
        msg = (
            f"{name!r:.80} has {prod(shape)} elements of {dtype.itemsize} bytes, and "
            f"{last - first} bytes"
        )
        raise FileError(msg)
    return dtype, tuple(shape), first, last


def _are_counts(x: Any) -> bool:
    return isinstance(x, list) and all(type(n) is int and n >= 0 for n in x)


def _dtype(name: str, code: Any) -> np.dtype[Any]:
    if isinstance(code, str) and code in _NUMPY:
        return np.dtype(_NUMPY[code])
    if not isinstance(code, str) or code not in _ML_DTYPES:
        msg = f"{name!r:.80} is of dtype {code!r:.40}, which is not known"
        raise FileError(msg)
    try:
        import ml_dtypes
    except ImportError:
        msg = f"{name!r:.80} is of dtype {code}, which needs a package: pip install ml_dtypes"
        raise FileError(msg) from None
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ML_DTYPES[code]))
    return dtype
