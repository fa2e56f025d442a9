"""Checkpoints: folders of finished rows from which an interrupted run resumes."""

import functools
import json
import os
import re
import sys
import types
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._core.libraries import library_of
from .._core.protocols import NDArray
from .tasks import Buffers, Span, Work

# Parts of a fingerprint, most specific first, and the description of a difference.
DIFFERENCES = {
    "f": "a different f",
    "x": "a different x",
    "arguments": "different arguments of f",
    "form": "a different form of f (out_like, rowwise, batched, holomorphic)",
    "method": "a different method or kind of derivative",
    "steps": "a different step, scale, bounds or sparsity",
    "value": "an f with a different value at x: what it calls or reads has changed",
    "calipers": "a different version of calipers",
}


def fingerprint(work: Work, count: int, version: str) -> dict[str, str]:
    """Return the digest of each part of a derivative, by the keys of DIFFERENCES."""
    problem = work.problem
    like = problem.out_like is not None
    form = (problem.mode, problem.scalar, like, problem.rowwise, problem.batched)
    return {
        "f": digest(problem.f),
        "x": digest(problem.x),
        "arguments": digest((problem.before, problem.after, problem.kwargs)),
        "form": digest((form, problem.shape, problem.dtype.str)),
        "method": " ".join(_method(work)),
        "steps": digest((count, work)),
        "value": digest(problem.base),
        "calipers": version,
    }


def _method(work: Any) -> list[str]:
    """Return the class names of nested work, down to the method of its steps."""
    inner = next((w for w in map(vars(work).get, ("work", "exact", "columns", "steps")) if w), None)
    if inner is None:
        return [type(work).__name__]
    names = [type(work).__name__]
    return [*names, inner.method] if hasattr(inner, "method") else names + _method(inner)


def digest(thing: Any) -> str:
    """Return a hash of any object that is equal in all processes."""
    return _Hasher().hash(thing).hex()


class _Hasher:
    """
    Hashes of any objects, equal for equal ones.

    Functions are hashed by their code, defaults, closures and the globals that they read.
    """

    def __init__(self) -> None:
        self._digests: dict[
            int, tuple[Any, bytes]
        ] = {}  # holds the objects, so that no id is reused

    def hash(self, thing: Any) -> bytes:
        kind = type(thing)
        if thing is None or kind in (bool, int, float, complex, str, bytes):
            content = repr(thing).encode("utf-8", "surrogatepass")
        elif id(thing) in self._digests:
            return self._digests[id(thing)][1]
        else:
            self._digests[id(thing)] = thing, b"within itself"
            content = self._content(thing)
        label = f"{kind.__module__}.{kind.__qualname__}:".encode()
        result = sha256(label + content).digest()
        self._digests[id(thing)] = thing, result
        return result

    def _content(self, thing: Any) -> bytes:
        kind = type(thing)
        if kind in (tuple, list):
            return self._all(*thing)
        if kind in (set, frozenset):  # their order differs between processes
            return b"".join(sorted(self.hash(item) for item in thing))
        if kind is dict:
            return self._all(*(part for item in thing.items() for part in item))
        if kind is np.ndarray and thing.dtype.kind != "O":
            return self._array(thing)
        if (library := library_of(thing)) is not None:
            return self._all(np.asarray(library.fetch(thing)))
        if isinstance(thing, types.CodeType):
            return self._code(thing)
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, types.MethodType):
            return self._all(thing.__func__, thing.__self__)
        if isinstance(thing, functools.partial):
            return self._all(thing.func, thing.args, thing.keywords)
        if isinstance(thing, Dispatcher):
            chosen = sorted((name, repr(x)) for name, x in thing.targetoptions.items())
            return self._all(thing.py_func, chosen)
        if getattr(kind, "is_hashed_by_parts", False):
            return b""
        if isinstance(thing, types.BuiltinFunctionType):
            return self._all(thing.__qualname__, thing.__self__)
        if isinstance(thing, type) and not _is_installed(thing.__module__):
            return self._all(thing.__qualname__) + self._methods(thing)
        if isinstance(thing, (type, types.ModuleType, np.ufunc)):
            return self._all(getattr(thing, "__module__", ""), thing.__name__)
        if hasattr(thing, "__wrapped__"):
            return self.hash(thing.__wrapped__)
        if is_dataclass(thing) and kind.__module__.startswith(__name__.partition(".")[0] + "."):
            return self._all(*(getattr(thing, f.name) for f in fields(thing) if f.compare))
        return self._object(thing)

    def _array(self, array: NDArray) -> bytes:
        head = self._all(str(array.dtype), array.shape)
        if array.dtype.names:  # padding between fields is undefined
            return head + self._all(*(array[name] for name in array.dtype.names))
        if array.dtype.char in "gG":  # so is padding of long doubles
            return head + self._all(*map(repr, array.reshape(-1).tolist()))
        return head + sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()

    def _object(self, thing: Any) -> bytes:
        methods = self._methods(type(thing))
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception:  # the state is not accessible; a change shows in f(x) alone
            return methods
        if isinstance(reduced, str):
            return methods + reduced.encode()
        constructor, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        return methods + self._all(
            constructor, arguments, state, list(items or ()), list(pairs or ())
        )

    def _methods(self, kind: type) -> bytes:
        """Hash the methods of a class and of its bases that are not from installed packages."""
        classes = [base for base in kind.__mro__ if not _is_installed(base.__module__)]
        methods = {
            f"{base.__qualname__}.{name}": value
            for base in classes
            for name, value in vars(base).items()
            if isinstance(value, types.FunctionType)
        }
        return self._all(methods)

    def _function(self, function: types.FunctionType) -> bytes:
        cells = [_inside(cell) for cell in function.__closure__ or ()]
        content = function.__code__, function.__defaults__, function.__kwdefaults__, tuple(cells)
        if _is_installed(function.__module__):
            return self._all(*content)
        names = sorted(_names(function.__code__))
        read = {name: function.__globals__[name] for name in names if name in function.__globals__}
        return self._all(*content, read)

    def _code(self, code: types.CodeType) -> bytes:
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        counts = code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags
        return self._all(code.co_code, code.co_exceptiontable, code.co_consts, names, counts)

    def _all(self, *things: Any) -> bytes:
        return b"".join(self.hash(thing) for thing in things)


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code and nested code read, globals included."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


@functools.cache
def _is_installed(name: str | None) -> bool:
    """Return True if a module belongs to an installed package or the standard library."""
    root = (name or "").partition(".")[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return True
    path = getattr(sys.modules.get(root), "__file__", None) or ""
    return root == __name__.partition(".")[0] or "site-packages" in Path(path).parts


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


_MANIFEST = "calipers.json"
_ROWS = re.compile(r"rows-(\d+)-(\d+)\.npz")
# Subfolders of nested runs, and unfinished files of an interrupted run.
_OTHER_FILES = re.compile(
    r"(argument|input|pair)-\d+|(first|second)-look|points-[0-9a-f]+|\..*\.unfinished"
)


class Checkpoint:
    """
    A folder with a file for each finished range of rows, and a manifest of the derivative.

    Files are written atomically, and their content is deterministic, so that several runs can share
    a folder.
    """

    def __init__(self, folder: Any) -> None:
        self._folder = Path(os.fspath(folder))
        self._manifest: dict[str, str] = {}

    def require_same(self, work: Work, count: int) -> None:
        """Raise if the folder belongs to a different derivative; write nothing."""
        self._manifest = fingerprint(work, count, version("calipers"))
        name = str(self._folder)
        for above in (self._folder, *self._folder.parents):
            if above.exists() and not above.is_dir():
                msg = f"checkpoint {name!r} needs {str(above)!r} to be a folder, but it is a file"
                raise NotADirectoryError(msg)
        there = os.listdir(self._folder) if self._folder.exists() else []
        if _MANIFEST in there:
            self._compare()
        elif others := sorted(n for n in there if not _OTHER_FILES.fullmatch(n)):
            msg = (
                f"checkpoint folder {name!r} holds {others[0]!r} and is not a checkpoint: "
                "pass an empty or a new folder"
            )
            raise ValueError(msg)

    def _compare(self) -> None:
        name = str(self._folder)
        try:
            manifest = json.loads((self._folder / _MANIFEST).read_text("utf-8"))
            if not isinstance(manifest, dict):
                raise ValueError
        except ValueError:
            msg = f"{_MANIFEST} in checkpoint folder {name!r} is damaged: delete the folder"
            raise ValueError(msg) from None
        for what, difference in DIFFERENCES.items():
            if manifest.get(what) != self._manifest[what]:
                msg = (
                    f"checkpoint folder {name!r} belongs to {difference}: pass a different "
                    "folder, or delete this one"
                )
                raise ValueError(msg)

    def begin(self) -> None:
        """Create the folder and its manifest, unless another run did so first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        manifest = self._folder / _MANIFEST
        with self._unfinished() as path:
            path.write_text(json.dumps(self._manifest, indent=1), "utf-8")
            try:
                os.link(path, manifest)
            except FileExistsError:
                pass
            except OSError:  # some file systems have no links
                if not manifest.exists():
                    os.replace(path, manifest)
        self._compare()

    def save(self, first: int, outs: Buffers) -> None:
        """Store the results of rows from `first`."""
        with self._unfinished() as path:
            with open(path, "wb") as stream:
                np.savez(stream, *outs)
            os.replace(path, self._folder / f"rows-{first}-{first + len(outs[0])}.npz")

    @contextmanager
    def _unfinished(self) -> Iterator[Path]:
        """Yield the path of a temporary file, which is removed if it still exists at the end."""
        path = self._folder / f".{uuid.uuid4().hex}.unfinished"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def spans(self) -> list[Span]:
        """Return the ranges of rows that are stored, in order."""
        names = os.listdir(self._folder) if self._folder.exists() else []
        matches = (_ROWS.fullmatch(name) for name in names)
        return sorted((int(m[1]), int(m[2])) for m in matches if m)

    def rows(self, span: Span, work: Work) -> Buffers | None:
        """Return the results of a range, or None if its file is damaged."""
        first, last = span
        try:
            with open(self._folder / f"rows-{first}-{last}.npz", "rb") as stream:
                stored = np.load(stream, allow_pickle=False)
                outs = tuple(stored[name] for name in stored.files)
        except Exception:  # of any kind: one flipped bit can make a zip file look encrypted
            return None
        expected = work.results(1)
        same = len(outs) == len(expected) and all(
            out.dtype == like.dtype and out.shape == (last - first, *like.shape[1:])
            for out, like in zip(outs, expected, strict=True)
        )
        return outs if same else None


def subfolder(folder: Any, *parts: str, work: Work | None = None) -> Path | None:
    """
    Return a subfolder of the caller's folder, or None without one.

    The digest of `work`, if any, is appended to its name.
    """
    if folder is None:
        return None
    path = Path(os.fspath(folder), *parts)
    return path if work is None else Path(f"{path}-{digest(work)[:16]}")


def require_folder(checkpoint: Any) -> None:
    """Raise if a checkpoint is not a path."""
    if not isinstance(checkpoint, (str, os.PathLike)):
        msg = f"checkpoint must be the path of a folder, got {type(checkpoint).__name__}"
        raise TypeError(msg)
    if checkpoint == "":
        msg = "checkpoint must be the path of a folder, got ''"
        raise ValueError(msg)


def missing(done: NDArray) -> Iterator[Span]:
    """Yield the ranges of rows that are not done."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], done, [True]])))
    yield from map(tuple, edges.reshape(-1, 2).tolist())
