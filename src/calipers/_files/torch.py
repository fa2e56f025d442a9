"""Files of `torch.save`, of tensors in plain containers: what needs pickle's code is refused."""

import io
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pickle import Unpickler, UnpicklingError
from typing import Any

import numpy as np

from ..interop.torch import Torch
from . import FileError
from .contents import Contents, Loaded, joined, require_stored, text
from .npz import start_of

# Earlier versions can run code although they load weights only: CVE-2025-32434.
_SAFE = (2, 6)
_GLOBAL = re.compile(r"GLOBAL (\S+)")
# By the layout of a sparse tensor, the methods that give its parts.
_PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    "torch.sparse_csr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_csc": ("ccol_indices", "row_indices", "values"),
    "torch.sparse_bsr": ("crow_indices", "col_indices", "values"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a file of tensors, as weights only."""
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _SAFE:
        msg = f"torch {torch.__version__} cannot load it safely: install 2.6 or later"
        raise FileError(msg)
    contents = Contents()
    _add(contents, torch, "", _loaded(torch, path), ())
    yield contents


def _loaded(torch: Any, path: str) -> Any:
    try:
        with open(path, "rb") as file:
            archive = file.read(4) == b"PK\x03\x04"
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
        if archive:
            _require_complete(torch, path)
        return loaded
    except FileError:
        raise
    except UnpicklingError as error:
        what = _GLOBAL.search(str(error))
        need = f"{what.group(1)} of pickle" if what else "pickle"
        msg = (
            f"it is not tensors in plain containers, but needs {need}, which may run code: refused"
        )
        raise FileError(msg) from None
    except Exception as error:  # of a damaged file, anything
        msg = f"torch cannot read it: {str(error) or type(error).__name__}"
        raise FileError(msg) from None


def _require_complete(torch: Any, path: str) -> None:
    """Refuse a record that is shorter than its tensor: the map would go on in the next record."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        records = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if len(records) < len(archive.infolist()):
            msg = "it has two records of one name"
            raise FileError(msg)
        about = records["data.pkl"]
        file.seek(start_of(file, about))
        storages = _Storages(io.BytesIO(file.read(about.file_size)))
        storages.load()
    for key, (kind, count) in storages.storages.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch calls these types deprecated
            dtype = getattr(getattr(torch, kind, None), "dtype", torch.uint8)
        info = records.get(f"data/{key}")
        if info is None or info.compress_type != zipfile.ZIP_STORED:
            msg = f"its record data/{key:.80} is missing, or compressed"
            raise FileError(msg)
        if info.file_size < count * dtype.itemsize:
            msg = (
                f"its record data/{key:.80} has {info.file_size} bytes, and its tensor "
                f"{count * dtype.itemsize}: it was cut"
            )
            raise FileError(msg)


class _Storages(Unpickler):
    """The dtype and length of each storage of a file, read without running what it names."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storages: dict[str, tuple[str, int]] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return a type that does nothing."""
        return type(name, (_Nothing,), {})

    def persistent_load(self, about: Any) -> Any:
        """Record the dtype and length of a storage from its persistent id."""
        _, kind, key, _, count = about
        self.storages[str(key)] = kind.__name__, int(count)
        return _Nothing()


class _Nothing:
    """An object that takes all that a pickle does to objects."""

    def __init__(self, *args: Any) -> None:
        """Drop the arguments."""

    def __new__(cls, *args: Any) -> "_Nothing":
        """Drop the arguments."""
        return object.__new__(cls)

    def _drop(self, *args: Any) -> None:
        pass

    __setstate__ = __setitem__ = append = extend = add = _drop


def _add(contents: Contents, torch: Any, name: str, x: Any, above: tuple[int, ...]) -> None:
    if id(x) in above:
        contents.left_out[name] = "it contains itself"
    elif isinstance(x, Mapping):
        for key, value in x.items():
            _add(contents, torch, joined(name, str(key)), value, (*above, id(x)))
    elif isinstance(x, list | tuple):
        for i, value in enumerate(x):
            _add(contents, torch, joined(name, str(i)), value, (*above, id(x)))
    elif isinstance(x, torch.Tensor):
        _add_tensor(contents, torch, name, x.detach())
    elif isinstance(x, bool | int | float | complex) and not _is_long(x):
        contents.add(name, Loaded(np.asarray(x)))
    else:
        contents.add(name, Loaded(text(repr(x))))


def _is_long(x: Any) -> bool:
    return isinstance(x, int) and not -(2**63) <= x < 2**63


def _add_tensor(contents: Contents, torch: Any, name: str, x: Any) -> None:
    parts = _PARTS.get(str(x.layout))
    if x.device.type != "cpu":
        contents.left_out[name] = f"it is a tensor on {x.device}, which has no elements here"
    elif x.is_nested:
        for i, part in enumerate(x.unbind()):
            _add_tensor(contents, torch, joined(name, str(i)), part)
    elif parts is not None:
        contents.add_structure(joined(name, "shape"), np.asarray(tuple(x.shape)))
        for part in parts:
            path = joined(name, part.strip("_"))
            _add_tensor(contents, torch, path, getattr(x, part)())
            if not part.endswith("values"):
                contents.structure.add(path)
    elif x.layout is not torch.strided:
        contents.left_out[name] = (
            f"it is a tensor of layout {x.layout}, which calipers does not compare"
        )
    elif x.is_quantized or x.dtype is torch.complex32:
        # NumPy has no such dtype: the values are compared, and the dtype by its name.
        require_stored(x.nbytes, x.untyped_storage().nbytes)
        contents.add(joined(name, "dtype"), Loaded(text(str(x.dtype))))
        values = x.dequantize() if x.is_quantized else x.to(torch.complex64)
        contents.add(name, Loaded(Torch().as_numpy(values)))
    else:
        require_stored(x.nbytes, x.untyped_storage().nbytes)
        contents.add(name, Loaded(Torch().as_numpy(x)))
