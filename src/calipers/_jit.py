"""CPU compilation: options, signatures, memoised builds and the disk cache, in one place."""

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import rtsys

_OPTIONS = {"nogil": True, "error_model": "numpy"}

# Held across a fork, so that no child inherits a build that nobody will finish.
_building = threading.RLock()
os.register_at_fork(
    before=_building.acquire,
    after_in_parent=_building.release,
    after_in_child=_building.release,
)


class Kernels(dict[Any, Callable[..., Any]]):
    """Compiled entry points of one function, each built when its key is first asked for.

    An entry point is called with exactly the types of its signature and checks none of them:
    its caller vouches for dtype, dimension and contiguity. In return it costs half of a
    dispatcher's call, and read-only arrays take the same path as writeable ones.
    """

    def __init__(self, function: Callable[..., Any], signature: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function
        self._signature = signature

    def __missing__(self, key: Any) -> Callable[..., Any]:
        with _building:
            if key not in self:
                self[key] = _entry_point(self._function, self._signature(key))
            return self[key]


def _entry_point(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    with _jit_enabled():
        dispatcher = numba.njit(**_OPTIONS)(function)
        if os.environ.get("CALIPERS_CACHE", "1") != "0":
            # Numba raises RuntimeError where no folder can be written, and renames its private
            # parts now and then: either costs the cache, never the call.
            with contextlib.suppress(RuntimeError, AttributeError, TypeError, OSError):
                dispatcher._cache = _PackageCache(function)
        dispatcher.compile(arguments)
        entry: Callable[..., Any] = dispatcher.overloads[arguments].entry_point
        return entry


@contextlib.contextmanager
def _jit_enabled() -> Iterator[None]:
    """Compile even where NUMBA_DISABLE_JIT is set for the user's own functions."""
    disabled, config.DISABLE_JIT = config.DISABLE_JIT, 0
    try:
        yield
    finally:
        config.DISABLE_JIT = disabled


class _PackageCache(FunctionCache):  # type: ignore[misc]  # Numba is untyped
    """Numba's disk cache, stamped with all kernel sources, read without a compiler's imports.

    Numba stamps an entry with the file of the cached function alone, so that an edited rule in
    another file would go unnoticed; and it loads some 200 modules that only compiling needs.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = IndexDataCacheFile(
            self._cache_path, self._impl.filename_base, _source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception:  # a damaged file unpickles into any error: compile again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):  # a full disk, a folder gone read-only
            super().save_overload(sig, data)


@cache
def _source_stamp() -> str:
    here = Path(__file__)
    digest = hashlib.sha256()
    for source in [here, *sorted(here.parent.glob("_kernels/*.py"))]:
        digest.update(source.read_bytes())
    return digest.hexdigest()
