"""Symbolic links, and where they lead."""

import os
from collections.abc import Iterator


def leads_out(path: str, root: str) -> bool:
    """Return True if a path leads out of a folder."""
    root = os.path.realpath(root)
    try:
        return os.path.commonpath([root, os.path.realpath(path)]) != root
    except ValueError:  # of two drives, on Windows
        return True


def unsafe_links(root: str) -> Iterator[str]:
    """Yield links below a folder that lead out of it, or in circles as those to folders may."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path) and (os.path.isdir(path) or leads_out(path, root)):
                yield os.path.relpath(path, root)
