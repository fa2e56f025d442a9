"""What is done of a long run, in a folder, so that the next run goes on from there."""

import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .._protocols import NDArray
from .columns import Outs
from .fingerprint import DIFFERENCES, fingerprint
from .sending import Span, Work

_MANIFEST = "calipers.json"
_ROWS = re.compile(r"rows-(\d+)-(\d+)\.npz")
# Of a run for each argument or input, and what a run that was killed had begun to write.
_OWN = re.compile(r"(argument|input|pair)-\d+|(first|second)-look|\..*\.unfinished")


class Checkpoint:
    """
    A folder of finished ranges of rows, each in a file of its own, and what they are rows of.

    Files appear as a whole or not at all, and are the same whoever writes them: runs that share a
    folder do not disturb each other.
    """

    def __init__(self, folder: Any) -> None:
        self._folder = Path(os.fspath(folder))
        self._manifest: dict[str, str] = {}

    @classmethod
    def of(cls, folder: Any, *parts: str) -> "Checkpoint | None":
        """Return the checkpoint in a part of the caller's folder, if there is one."""
        return None if folder is None else cls(Path(os.fspath(folder), *parts))

    def require_same(self, work: Work, count: int) -> None:
        """Refuse a folder that is of something else; nothing is written yet."""
        self._manifest = fingerprint(work, count, version("calipers"))
        name = str(self._folder)
        for above in (self._folder, *self._folder.parents):
            if above.exists() and not above.is_dir():
                msg = f"checkpoint {name!r} needs {str(above)!r} to be a folder, but it is a file"
                raise NotADirectoryError(msg)
        there = os.listdir(self._folder) if self._folder.exists() else []
        if _MANIFEST in there:
            self._compare()
        elif others := sorted(n for n in there if not _OWN.fullmatch(n)):
            msg = (
                f"checkpoint folder {name!r} holds {others[0]!r} and is not a checkpoint: "
                "pass an empty or a new folder"
            )
            raise ValueError(msg)

    def _compare(self) -> None:
        name = str(self._folder)
        try:
            found = json.loads((self._folder / _MANIFEST).read_text("utf-8"))
            if not isinstance(found, dict):
                raise ValueError
        except ValueError:
            msg = f"{_MANIFEST} in checkpoint folder {name!r} is damaged: delete the folder"
            raise ValueError(msg) from None
        for what, difference in DIFFERENCES.items():
            if found.get(what) != self._manifest[what]:
                msg = (
                    f"checkpoint folder {name!r} belongs to {difference}: pass a different "
                    "folder, or delete this one"
                )
                raise ValueError(msg)

    def begin(self) -> None:
        """Make the folder, and write what it is of, unless another run was faster."""
        self._folder.mkdir(parents=True, exist_ok=True)
        manifest = self._folder / _MANIFEST
        with self._unfinished() as path:
            path.write_text(json.dumps(self._manifest, indent=1), "utf-8")
            try:
                os.link(path, manifest)
            except FileExistsError:
                pass
            except OSError:  # there are file systems without links
                if not manifest.exists():
                    os.replace(path, manifest)
        self._compare()

    def save(self, first: int, outs: Outs) -> None:
        """Keep the results of rows from `first`."""
        with self._unfinished() as path:
            with open(path, "wb") as stream:
                np.savez(stream, *outs)
            os.replace(path, self._folder / f"rows-{first}-{first + len(outs[0])}.npz")

    @contextmanager
    def _unfinished(self) -> Iterator[Path]:
        """Give the name of a file that is yet to be whole; what stays under it is removed."""
        path = self._folder / f".{uuid.uuid4().hex}.unfinished"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def spans(self) -> list[Span]:
        """Return the ranges of which there are files."""
        names = os.listdir(self._folder) if self._folder.exists() else []
        found = (_ROWS.fullmatch(name) for name in names)
        return sorted((int(m[1]), int(m[2])) for m in found if m)

    def rows(self, span: Span, work: Work) -> Outs | None:
        """Return the results of a range, or None if its file is damaged."""
        first, last = span
        try:
            with open(self._folder / f"rows-{first}-{last}.npz", "rb") as stream:
                stored = np.load(stream, allow_pickle=False)
                outs = tuple(stored[name] for name in stored.files)
        except Exception:  # of whatever kind: one bit makes a file ask for a password
            return None
        expected = work.results(1)
        same = len(outs) == len(expected) and all(
            out.dtype == like.dtype and out.shape == (last - first, *like.shape[1:])
            for out, like in zip(outs, expected, strict=True)
        )
        return outs if same else None


def require_folder(checkpoint: Any) -> None:
    """Refuse what names no folder."""
    if checkpoint is not None and not isinstance(checkpoint, (str, os.PathLike)):
        msg = f"checkpoint must be the path of a folder, got {type(checkpoint).__name__}"
        raise TypeError(msg)
    if checkpoint == "":
        msg = "checkpoint must be the path of a folder, got ''"
        raise ValueError(msg)


def missing(done: NDArray) -> Iterator[Span]:
    """Give the ranges of rows that are not done."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], done, [True]])))
    yield from map(tuple, edges.reshape(-1, 2).tolist())
