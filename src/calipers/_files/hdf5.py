"""HDF5 files, and those of netCDF but its classic ones, by h5py."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .entries import Contents, Dataset, Loaded, add_fields, joined, require_stored, text
from .errors import FileError

_UNKNOWN = 1 << 63
_ELSEWHERE = "its elements are elsewhere, as in other files; --follow-links reads them"


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a file of datasets in groups."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        msg = f"h5py does not open it: {error}"
        raise FileError(msg) from None
    with file:
        walk = _Walk(h5py, follow_links)
        walk.group(file, "")
        yield walk.found


class _Walk:
    """A walk through all groups, each once: links may lead up, or to one group many times."""

    def __init__(self, h5py: Any, follow_links: bool) -> None:
        self.found = Contents()
        self._h5py, self._follow = h5py, follow_links
        self._seen: set[tuple[int, int]] = set()

    def group(self, group: Any, path: str) -> None:
        """Add all datasets below a group."""
        groups = [(group, path)]
        self._is_new(group)
        while groups:
            group, path = groups.pop()
            for name in group:
                place = joined(path, name)
                link = group.get(name, getlink=True)
                if not (self._follow or isinstance(link, self._h5py.HardLink)):
                    self._link(link, place)
                    continue
                try:
                    x = group[name]
                except (KeyError, OSError):
                    self.found.left_out[place] = "it is a link to what is not there"
                    continue
                if isinstance(x, self._h5py.Dataset):
                    self._dataset(x, place)
                elif isinstance(x, self._h5py.Group):
                    if self._is_new(x):
                        groups.append((x, place))
                    else:
                        self.found.left_out[place] = "it is another name of a group"
                else:
                    self.found.left_out[place] = "it is a type, which has no elements"

    def _link(self, link: Any, place: str) -> None:
        """Add where a link leads; its way there may be through another file."""
        if isinstance(link, self._h5py.SoftLink):
            self.found.add(place, Loaded(text(link.path)))
        else:
            self.found.left_out[place] = "it links to another file; --follow-links reads it"

    def _is_new(self, group: Any) -> bool:
        about = self._h5py.h5o.get_info(group.id)
        identity = about.fileno, about.addr
        new = identity not in self._seen
        self._seen.add(identity)
        return new

    def _dataset(self, x: Any, place: str) -> None:
        # What is elsewhere is in no file of a size that is known here.
        elsewhere = x.external or x.is_virtual
        stored = (lambda: _UNKNOWN) if elsewhere else x.id.get_storage_size
        if x.shape is None:
            self.found.left_out[place] = "it is a null dataset, which has no elements"
        elif elsewhere and not self._follow:
            self.found.left_out[place] = _ELSEWHERE
        elif self._h5py.check_string_dtype(x.dtype) and x.dtype.hasobject:
            require_stored(x.size * x.dtype.itemsize, stored)
            self.found.add(place, Loaded(text(x.asstr(errors="backslashreplace")[()])))
        elif x.dtype.hasobject or (x.dtype.metadata and "ref" in x.dtype.metadata):
            self.found.left_out[place] = "its elements are references or of variable length"
        else:
            add_fields(self.found, place, Dataset(x, x.dtype, stored))
