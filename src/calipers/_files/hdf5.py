"""HDF5 files, and those of netCDF-4, by h5py."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import FileError
from .contents import Contents, Dataset, Loaded, add_fields, joined, require_stored, text
from .netcdf import add_variable

_UNKNOWN = 1 << 63  # bytes that are said to be stored where the size is not known: above any limit
# The netCDF library writes a dimension without a variable as a dataset that says so, and gives a
# variable with the name of a dimension that it does not describe this prefix.
_DIMENSION = "This is a netCDF dimension but not a netCDF variable"
_PREFIX = "_nc4_non_coord_"
_ELSEWHERE = "its elements are elsewhere, as in other files; --follow-links reads them"


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a file of datasets in groups."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        msg = f"h5py cannot open it: {error}"
        raise FileError(msg) from None
    with file:
        is_netcdf = path.lower().endswith(".nc") or "_NCProperties" in file.attrs
        walk = _Walk(h5py, follow_links, is_netcdf)
        walk.group(file, "")
        yield walk.contents


class _Walk:
    """A walk through all groups, each once: links may lead up, or to one group many times."""

    def __init__(self, h5py: Any, follow_links: bool, is_netcdf: bool) -> None:
        self.contents = Contents()
        self._h5py, self._follow, self._is_netcdf = h5py, follow_links, is_netcdf
        self._first_names: dict[tuple[int, int], str] = {}

    def group(self, group: Any, path: str) -> None:
        """Add all datasets below a group."""
        groups = [(group, path)]
        self._first_name(group, path)
        while groups:
            group, path = groups.pop()
            for name in group:
                location = joined(path, name)
                link = group.get(name, getlink=True)
                if not (self._follow or isinstance(link, self._h5py.HardLink)):
                    self._link(link, location)
                    continue
                try:
                    x = group[name]
                except (KeyError, OSError):
                    self.contents.left_out[location] = "it is a broken link"
                    continue
                if isinstance(x, self._h5py.Dataset):
                    self._dataset(x, location)
                elif isinstance(x, self._h5py.Group):
                    first = self._first_name(x, location)
                    if first == location:
                        groups.append((x, location))
                    else:
                        self._say(location, f"another name of the group /{first}")
                else:
                    members = x.dtype.metadata  # of enumerations and lists
                    self._say(
                        location, f"the type {x.dtype}{f' {dict(members)}' if members else ''}"
                    )

    def _say(self, path: str, what: str) -> None:
        """Add a description of an object without elements, which is compared as text."""
        self.contents.add(path, Loaded(text(what)))

    def _link(self, link: Any, path: str) -> None:
        """Add the target of a soft link as text; leave out links to other files."""
        if isinstance(link, self._h5py.SoftLink):
            self._say(path, link.path)
        else:
            self.contents.left_out[path] = "it links to another file; --follow-links reads it"

    def _first_name(self, group: Any, path: str) -> str:
        about = self._h5py.h5o.get_info(group.id)
        return self._first_names.setdefault((about.fileno, about.addr), path)

    def _dataset(self, x: Any, path: str) -> None:
        # The elements of an external or virtual dataset are in no file whose size is known here.
        elsewhere = x.external or x.is_virtual
        stored = (lambda: _UNKNOWN) if elsewhere else x.id.get_storage_size
        if elsewhere and not self._follow:
            self.contents.left_out[path] = _ELSEWHERE
        elif x.shape is None:
            self._say(path, f"a null dataset of {x.dtype}")
        elif x.dtype.hasobject:
            require_stored(x.size * x.dtype.itemsize, stored)
            self._objects(x.file, path, x.dtype, x[()])
        elif not self._is_netcdf:
            add_fields(self.contents, path, Dataset(x, x.dtype, stored))
        elif not _text_of(x.attrs.get("NAME")).startswith(_DIMENSION):
            above, slash, name = path.rpartition("/")
            path = above + slash + name.removeprefix(_PREFIX)
            add_variable(self.contents, path, Dataset(x, x.dtype, stored), x.attrs)
        members = self._h5py.check_enum_dtype(x.dtype)
        if members is not None:
            about = self.contents.attributes.setdefault(path, {})
            about["enum"] = str(sorted(members.items()))

    def _objects(self, file: Any, path: str, dtype: Any, values: Any) -> None:
        """Add elements that are Python objects: text, references, lists, or records of them."""
        ragged = self._h5py.check_vlen_dtype(dtype)
        reference = self._h5py.check_ref_dtype(dtype)
        if dtype.names:
            for name in dtype.names:
                self._objects(file, joined(path, name), dtype[name].base, values[name])
        elif self._h5py.check_string_dtype(dtype) and dtype.hasobject:
            flat = [_text_of(x) for x in np.ravel(values)]
            self.contents.add(path, Loaded(text(flat).reshape(np.shape(values))))
        elif ragged is not None:
            lists = [np.asarray(x) for x in np.ravel(values)]
            lengths = np.array([len(x) for x in lists], np.int64).reshape(np.shape(values))
            self.contents.add_structure(joined(path, "lengths"), lengths)
            elements = np.concatenate([np.empty(0, ragged), *lists])
            self._objects(file, joined(path, "values"), ragged, elements)
        elif reference is self._h5py.Reference:
            flat = [str(file[x].name) if x else "" for x in np.ravel(values)]
            self.contents.add(path, Loaded(text(flat).reshape(np.shape(values))))
        elif dtype.hasobject:
            self.contents.left_out[path] = (
                f"its elements, of {dtype.metadata or dtype}, are not compared"
            )
        else:
            self.contents.add(path, Loaded(np.asarray(values)))


def _text_of(x: Any) -> str:
    if isinstance(x, bytes):
        return x.decode("utf-8", "backslashreplace")
    return "" if x is None else str(x)
