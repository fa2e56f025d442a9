"""Folders of zarr, by the library of that name, and by codecs that only decompress."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from .._core.arguments import ZARR_MARKS, is_zarr_store
from . import FileError
from .contents import Contents, Dataset, Loaded, add_fields, require_stored, text, unsafe_links

# Others may run code: "pickle" does, and any package can register more.
_CODECS = frozenset(
    [
        *("bytes", "endian", "sharding_indexed", "transpose", "vlen-bytes", "vlen-utf8"),
        *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"),
        *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
        *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    ]
)


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a folder of arrays in groups."""
    if not is_zarr_store(path):
        msg = f"it is not a zarr store: it has none of {', '.join(ZARR_MARKS)}"
        raise FileError(msg)
    if not follow_links:
        link = next(unsafe_links(path), None)
        if link is not None:
            msg = f"{link!r:.80} is a link to a folder, or out of it; --follow-links reads it"
            raise FileError(msg)
    import zarr

    result = Contents()
    try:
        x = zarr.open(path, mode="r")
        arrays = {"": x} if isinstance(x, zarr.Array) else dict(x.members(max_depth=None))
    except Exception as error:  # of damaged metadata, its parser raises anything
        msg = f"zarr cannot read it: {error}"
        raise FileError(msg) from None
    for name, array in arrays.items():
        if isinstance(array, zarr.Array):
            _add(result, name, array)
    yield result


def _add(result: Contents, name: str, array: Any) -> None:
    about = array.metadata.to_dict()
    parts = [about.get(key) for key in ("codecs", "filters", "compressor")]
    unknown = [codec for codec in _codecs(parts) if codec not in _CODECS]
    if unknown:
        which = f"{name or 'the array'!r:.80} is encoded by {unknown[0]!r:.40}"
        msg = f"{which}, which is not known to be safe: refused"
        raise FileError(msg)
    dtype = np.dtype(array.dtype)
    if dtype.kind in "OT":
        require_stored(prod(array.shape) * dtype.itemsize, array.nbytes_stored)
        result.add(name, Loaded(text(array[...])))
    else:
        add_fields(result, name, Dataset(array, dtype, array.nbytes_stored))


def _codecs(x: Any) -> Iterator[str]:
    """Yield the names of all codecs, those within others, too."""
    if isinstance(x, Mapping):
        name = x.get("name", x.get("id"))
        if name is not None:
            yield str(name).removeprefix("numcodecs.")
        for key, value in x.items():
            if key == "configuration" or key.endswith("codecs"):
                yield from _codecs(value)
    elif isinstance(x, list | tuple):
        for value in x:
            yield from _codecs(value)
    elif hasattr(x, "get_config"):  # before zarr 3.1, a codec itself
        yield from _codecs(x.get_config())
    elif x is not None:
        yield str(x)
