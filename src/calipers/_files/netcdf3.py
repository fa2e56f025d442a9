"""Classic netCDF files, by SciPy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .conventions import add_variable
from .entries import Contents, Loaded
from .errors import FileError

_MAGIC = b"CDF"
# The number of the format follows; of 64-bit data, which SciPy does not know.
_CDF5 = b"CDF\5"


def is_classic(path: str) -> bool:
    """Return True if a netCDF file has the classic format, which is not HDF5."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a file of variables, which are mapped."""
    from scipy.io import netcdf_file

    with open(path, "rb") as start:
        if start.read(len(_CDF5)) == _CDF5:
            msg = "its format is CDF-5, which SciPy cannot read: convert it by nccopy -k nc4"
            raise FileError(msg)
    try:
        file = netcdf_file(path, "r", mmap=True)
    except Exception as error:  # its parser raises anything
        msg = f"SciPy cannot read it: {error}"
        raise FileError(msg) from None
    with file:
        found = _variables(file)
        yield found
        # A file can be closed only when nothing refers to its map.
        found.arrays.clear()
        found.nulls.clear()


def _variables(file: Any) -> Contents:
    found = Contents()
    for name, variable in file.variables.items():
        add_variable(found, name, Loaded(np.asarray(variable.data)), variable._attributes)
    return found
