"""Folders: the files below them by relative path, and no link out of them unless asked."""

import os
import stat
from dataclasses import dataclass, field

from .entries import joined
from .errors import described
from .links import leads_out
from .opening import reader_of

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


@dataclass
class Listing:
    """The files below a folder."""

    files: dict[str, str] = field(default_factory=dict)
    """Paths of files, by what follows the folder's name."""
    links: dict[str, str] = field(default_factory=dict)
    """The folders that links within the folder lead to, which are listed in their own place."""
    left_out: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    """Why folders cannot be read, by what follows the folder's name."""


def listing(root: str, follow_links: bool) -> Listing:
    """List the files below a folder in the order of their names."""
    listing = Listing()
    _walk(listing, root, root, "", (os.path.realpath(root),), follow_links)
    return listing


def _walk(
    listing: Listing, root: str, folder: str, prefix: str, above: tuple[str, ...], follow: bool
) -> None:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        listing.unread[prefix] = described(error)
        return
    for name in names:
        path, relative = os.path.join(folder, name), joined(prefix, name)
        reason = _left_out(path, root, above, follow)
        if reason is not None:
            listing.left_out[relative] = reason
        elif not os.path.isdir(path) or reader_of(path) is not None:
            listing.files[relative] = path
        elif os.path.islink(path) and not leads_out(path, root):
            listing.links[relative] = os.path.relpath(
                os.path.realpath(path), os.path.realpath(root)
            )
        else:
            _walk(listing, root, path, relative, (*above, os.path.realpath(path)), follow)


def _left_out(path: str, root: str, above: tuple[str, ...], follow: bool) -> str | None:
    """Say why something is not looked at."""
    out = os.path.islink(path) and leads_out(path, root)
    if out and not follow:
        return "it links out of the folder; --follow-links reads it"
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return "it is a broken link"
    if stat.S_ISDIR(mode):
        if out and os.path.realpath(path) in above:
            return "it links to a folder above it"
        return None
    return None if stat.S_ISREG(mode) else f"it is {_KINDS.get(stat.S_IFMT(mode), 'a device')}"
