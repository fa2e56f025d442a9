"""Which reader reads a file, by the end of its name."""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from .._core.arguments import READERS, reader_of
from . import FileError, described
from .contents import Contents, Reader
from .netcdf import is_classic

# The package that reads a format, where calipers does not read it itself.
_PACKAGES = {
    "hdf5": "h5py",
    "torch": "torch",
    "tables": "pyarrow",
    "zarr": "zarr",
    "netcdf": "scipy",
}


def is_foreign(path: str) -> bool:
    """Return True if another package reads a path."""
    return reader_of(path) in _PACKAGES


@contextmanager
def opened(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a file of any format that is known."""
    with ExitStack() as stack:
        try:
            contents = stack.enter_context(_reader(path).contents(path, follow_links))
        except Exception as error:  # libraries raise anything
            if isinstance(error, OSError) and error.filename is not None:
                raise
            msg = f"{path}: {described(error)}"
            raise FileError(msg) from error
        yield contents


def _reader(path: str) -> Reader:
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        msg = "it is not a regular file"
        raise FileError(msg)
    name = reader_of(path)
    if name is None or (name == "zarr") != stat.S_ISDIR(mode):
        msg = f"the format of its name is not known; known are {', '.join(READERS)}"
        raise FileError(msg)
    if name == "hdf5" and is_classic(path):
        name = "netcdf"
    package = _PACKAGES.get(name)
    if package is not None and find_spec(package) is None:
        msg = f"reading it needs {package}: pip install {package}"
        raise FileError(msg)
    reader: Any = import_module(f".{name}", __package__)
    return cast(Reader, reader)
