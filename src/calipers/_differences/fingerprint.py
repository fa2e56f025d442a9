"""What a derivative is of, as short texts that differ where it does."""

import functools
import sys
import types
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._libraries import library_of
from .._protocols import NDArray
from .problem import Problem
from .sending import Work

# What is compared, most telling first, and what a difference is.
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
    """Return a text for each of DIFFERENCES."""
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
    """Return the names of the work and of what it is made of, down to the method of steps."""
    inner = next((w for w in map(vars(work).get, ("work", "exact", "ladders", "steps")) if w), None)
    if inner is None:
        return [type(work).__name__]
    own = [type(work).__name__]
    return [*own, inner.method] if hasattr(inner, "method") else own + _method(inner)


def digest(thing: Any) -> str:
    """Return a text by which a thing is known in any process."""
    return _Reader().read(thing).hex()


class _Reader:
    """
    Hashes of anything: of what a pickle says, but the same for equal things.

    Functions are read by what they do, and not by their names: their code, defaults and closures.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}  # things are kept: no id is used again

    def read(self, thing: Any) -> bytes:
        kind = type(thing)
        if thing is None or kind in (bool, int, float, complex, str, bytes):
            content = repr(thing).encode("utf-8", "surrogatepass")
        elif id(thing) in self._known:
            return self._known[id(thing)][1]
        else:
            self._known[id(thing)] = thing, b"within itself"
            content = self._content(thing)
        label = f"{kind.__module__}.{kind.__qualname__}:".encode()
        found = sha256(label + content).digest()
        self._known[id(thing)] = thing, found
        return found

    def _content(self, thing: Any) -> bytes:
        kind = type(thing)
        if kind in (tuple, list):
            return self._all(*thing)
        if kind in (set, frozenset):  # whose order differs from process to process
            return b"".join(sorted(self.read(item) for item in thing))
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
        if isinstance(thing, Problem):  # which has texts of its own
            return b""
        if isinstance(thing, types.BuiltinFunctionType):
            return self._all(thing.__qualname__, thing.__self__)
        if isinstance(thing, type) and not _is_installed(thing.__module__):
            return self._all(thing.__qualname__) + self._methods(thing)
        if isinstance(thing, (type, types.ModuleType, np.ufunc)):
            return self._all(getattr(thing, "__module__", ""), thing.__name__)
        if hasattr(thing, "__wrapped__"):
            return self.read(thing.__wrapped__)
        if is_dataclass(thing) and kind.__module__.startswith(__name__.partition(".")[0] + "."):
            return self._all(*(getattr(thing, f.name) for f in fields(thing) if f.compare))
        return self._object(thing)

    def _array(self, array: NDArray) -> bytes:
        head = self._all(str(array.dtype), array.shape)
        if array.dtype.names:  # there may be anything between its fields
            return head + self._all(*(array[name] for name in array.dtype.names))
        if array.dtype.char in "gG":  # and behind the digits of its numbers
            return head + self._all(*map(repr, array.reshape(-1).tolist()))
        return head + sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()

    def _object(self, thing: Any) -> bytes:
        own = self._methods(type(thing))
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception:  # what it holds cannot be read; f(x) has to tell it from others
            return own
        if isinstance(reduced, str):
            return own + reduced.encode()
        made, given, state, items, pairs = (*reduced, None, None, None)[:5]
        return own + self._all(made, given, state, list(items or ()), list(pairs or ()))

    def _methods(self, kind: type) -> bytes:
        """Read what objects of a class do, down to classes that were installed."""
        own = [base for base in kind.__mro__ if not _is_installed(base.__module__)]
        found = {
            f"{base.__qualname__}.{name}": value
            for base in own
            for name, value in vars(base).items()
            if isinstance(value, types.FunctionType)
        }
        return self._all(found)

    def _function(self, function: types.FunctionType) -> bytes:
        cells = [_inside(cell) for cell in function.__closure__ or ()]
        given = function.__code__, function.__defaults__, function.__kwdefaults__, tuple(cells)
        if _is_installed(function.__module__):
            return self._all(*given)
        names = sorted(_names(function.__code__))
        read = {name: function.__globals__[name] for name in names if name in function.__globals__}
        return self._all(*given, read)

    def _code(self, code: types.CodeType) -> bytes:
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        counts = code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags
        return self._all(code.co_code, code.co_exceptiontable, code.co_consts, names, counts)

    def _all(self, *things: Any) -> bytes:
        return b"".join(self.read(thing) for thing in things)


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code reads, and code within it: globals among others."""
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


@functools.cache
def _is_installed(name: str | None) -> bool:
    """Tell whether a module is a library's, of which the version tells enough."""
    root = (name or "").partition(".")[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return True
    path = getattr(sys.modules.get(root), "__file__", None) or ""
    return root == __name__.partition(".")[0] or "site-packages" in Path(path).parts


def _inside(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is still empty
        return None
