"""Compilation of kernels for the CPU: options, signatures, one build per key, disk cache."""

import contextlib
import gc
import hashlib
import io
import math
import os
import pickle
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import config, event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys

# The lock of the package for imports and compilation, which a fork waits for.
_first_use = sys.modules["calipers"]._first_use
_this_thread = threading.local()  # `seconds` that kernels took it, and whether it `compiles`
# Seconds of compilation after which a message is written to a terminal.
_ANNOUNCE_AFTER_SECONDS = 0.5
# Elements that NumPy takes about as long for as a kernel takes to compile, and those that a call
# counts for at least.
WORK_TO_COMPILE = 1 << 23
_LEAST_WORK = 1 << 11
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
# Numba's settings that affect machine code, but are not part of the names of its cache files.
SETTINGS = [
    *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO_DEFAULT"),
    *("ENABLE_PROFILING", "LLVM_REFPRUNE_PASS", "LLVM_REFPRUNE_FLAGS", "USING_SVML"),
]


def work_clock() -> float:
    """Return a time in seconds that does not advance while this thread compiles kernels."""
    return time.perf_counter() - getattr(_this_thread, "seconds", 0.0)


@contextlib.contextmanager
def _stopped_clock() -> Iterator[None]:
    started = work_clock()
    try:
        yield
    finally:
        _this_thread.seconds = time.perf_counter() - started


class Kernels(dict[Any, Callable[..., Any]]):
    """Compiled entry points of one function, each compiled when its key is first used.

    An entry point must be called with exactly the types of its signature, which it does not check:
    dtype, number of dimensions and contiguity. A call takes half as long as a dispatcher's, and
    accepts read-only arrays.

    `by_numpy` is a function of the same parameters and results. It serves calls for which
    compilation would take longer, and may return NotImplemented.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Callable[[Any], Any],
        by_numpy: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        self._function = function
        self._signature = signature
        self.by_numpy = by_numpy
        self._compiled: dict[Any, Any] = {}
        self._work: dict[Any, float] = {}  # elements that were left to NumPy, by key

    def __missing__(self, key: Any) -> Callable[..., Any]:
        require_no_compilation()
        with _stopped_clock(), _first_use:
            if key not in self:
                self._compiled[key] = compiled = _compiled(
                    self._function, self._signature(key), key
                )
                self[key] = compiled.entry_point
            return self[key]

    def entry_point(self, key: Any, elements: int) -> Callable[..., Any]:
        """Return the entry point, or NumPy's version, if there is one, until compilation pays."""
        if self.by_numpy is None or self.is_worth_compiling(key, elements):
            return self[key]
        return partial(self._try, self.by_numpy, key)

    def is_worth_compiling(self, key: Any, elements: int) -> bool:
        """
        Count work on so many elements; return True if all that was counted is worth compilation.

        Whoever calls often waits for the compilation and for as much work without it, at most.
        """
        if key in self:
            return True
        if key not in self._work:
            require_no_compilation()
            with _first_use:  # it imports
                self._work[key] = math.inf if self.is_cached(key) else 0.0
        self._work[key] += max(elements, _LEAST_WORK)
        return self._work[key] > WORK_TO_COMPILE

    def _try(self, by_numpy: Callable[..., Any], key: Any, *arguments: Any) -> Any:
        result = by_numpy(*arguments)
        return self[key](*arguments) if result is NotImplemented else result

    def address(self, key: Any) -> int:
        """Return the address of the machine code, for other kernels that call it."""
        self[key]
        compiled = self._compiled[key]
        return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))

    def is_cached(self, key: Any) -> bool:
        """Return True if the disk cache has the entry point of a key."""
        with _jit_enabled():
            cache = _dispatcher(self._function, self._signature(key))._cache
        return isinstance(cache, _PackageCache) and cache.exists()


class Compilations(event.Listener):  # type: ignore[misc]  # Numba is untyped
    """
    The compilations of this process: their number and seconds, and a message on a terminal.

    The message is written during the compilation, by a timer's thread, at most once per process.
    The timer does not start if Numba reads its cache.
    """

    def __init__(self) -> None:
        self.kernels = 0
        self.seconds = 0.0
        self.announced = False
        self.clears_line = False  # of a progress bar, where one is shown
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def recorded(self, dispatcher: Any, key: Any) -> Iterator[None]:
        """Record the compilations of one dispatcher; those of other threads are ignored."""
        self._dispatcher, self._key = dispatcher, key
        try:
            with event.install_listener("numba:compile", self):
                yield
        finally:
            self._stop_timer()

    def on_start(self, event: Any) -> None:
        """Start the timer."""
        if event.data["dispatcher"] is not self._dispatcher:
            return
        self._started = time.perf_counter()
        if not self.announced and is_terminal(sys.stderr):
            left = max(0.0, _ANNOUNCE_AFTER_SECONDS - self.seconds)
            timer = threading.Timer(left, self._announce, (self._dispatcher, self._key))
            timer.daemon = True
            with contextlib.suppress(RuntimeError):  # no thread can start while Python exits
                timer.start()
                self._timer = timer

    def on_end(self, event: Any) -> None:
        """Stop the timer, and count the kernel."""
        if event.data["dispatcher"] is self._dispatcher:
            self._stop_timer()
            self.kernels += 1
            self.seconds += time.perf_counter() - self._started

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()  # a fork right after this has one thread
            self._timer = None

    def _announce(self, dispatcher: Any, key: Any) -> None:
        self.announced = True
        keys = key if isinstance(key, tuple) else (key,)
        dtypes = dict.fromkeys(str(x) for x in keys if isinstance(x, np.dtype))
        kernels = f"kernels for {' and '.join(dtypes)}" if dtypes else "kernels"
        folder = dispatcher.stats.cache_path
        where = f"once; kept in {_short(folder)}" if folder else f"in each process: {no_cache()}"
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the terminal was closed
            line = f"calipers: compiling {kernels} ({where})"
            print("\r\033[K" * self.clears_line + line, file=sys.stderr, flush=True)


compilations = Compilations()


def is_terminal(stream: Any) -> bool:
    """Return True if a stream is an open terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # None, or closed
        return False


def _short(path: str) -> str:
    home = os.path.expanduser("~") + os.sep
    return f"~{os.sep}{path.removeprefix(home)}" if path.startswith(home) else path


def no_cache() -> str:
    """Return the reason why there is no disk cache."""
    if os.environ.get("CALIPERS_CACHE", "1") == "0":
        return "CALIPERS_CACHE=0 turns the cache off"
    return "no cache folder is writable, NUMBA_CACHE_DIR may name one"


def require_no_compilation() -> None:
    """Raise if this thread is compiling: the caller is then a signal handler or a finalizer."""
    if getattr(_this_thread, "compiles", False) or global_compiler_lock.is_locked():
        msg = (
            "calipers was called by a signal handler or a finalizer while this thread compiles a "
            "function, and a compiler cannot be entered again: call calipers.warmup() before, or "
            "compare after"
        )
        raise RuntimeError(msg)


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    """Let `require_no_compilation` know that this thread compiles."""
    _this_thread.compiles = True
    try:
        yield
    finally:
        _this_thread.compiles = False


def _compiled(function: Callable[..., Any], arguments: tuple[Any, ...], key: Any) -> Any:
    with _marked(), _jit_enabled(), _collector_paused():
        dispatcher = _dispatcher(function, arguments)
        with compilations.recorded(dispatcher, key):
            dispatcher.compile(arguments)
        return dispatcher.overloads[arguments]


def _dispatcher(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return a dispatcher with a disk cache, if a folder for one can be written."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    if os.environ.get("CALIPERS_CACHE", "1") != "0":
        # Numba raises RuntimeError where no folder can be written, and renames its private parts
        # now and then: either costs the cache, never the call.
        with contextlib.suppress(RuntimeError, AttributeError, TypeError, OSError):
            target = dispatcher.targetctx.codegen().magic_tuple()
            dispatcher._cache = _PackageCache(function, (arguments, target, settings()))
    return dispatcher


def settings() -> list[Any]:
    """Return the values of Numba's settings that affect machine code."""
    return [getattr(config, name, None) for name in SETTINGS]


def cache_folder(function: Callable[..., Any]) -> str | None:
    """Return the cache folder of a kernel, or None if it is compiled in each process."""
    if os.environ.get("CALIPERS_CACHE", "1") != "0":
        with contextlib.suppress(RuntimeError, AttributeError, TypeError, OSError):
            return str(FunctionCache(function)._cache_path)
    return None


@contextlib.contextmanager
def _jit_enabled() -> Iterator[None]:
    """Compile kernels even if NUMBA_DISABLE_JIT is set, to debug the user's functions."""
    disabled, config.DISABLE_JIT = config.DISABLE_JIT, 0
    try:
        yield
    finally:
        config.DISABLE_JIT = disabled


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """Disable garbage collection, which takes 7 % of the time of a compilation."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _PackageCache(FunctionCache):  # type: ignore[misc]  # Numba is untyped
    """Numba's disk cache, with a file for each kernel, read without the imports of the compiler.

    The name of a file contains a digest of everything that its code depends on. In Numba's cache,
    files are numbered, so that two processes that write at the same time may confuse their code;
    edits of other source files are not noticed; and reading imports 200 modules of the compiler.
    """

    def __init__(self, function: Callable[..., Any], variant: tuple[Any, ...]) -> None:
        super().__init__(function)
        stamp = source_stamp()
        name = file_name(self._impl.filename_base, variant)
        self._cache_file = checked_files(IndexDataCacheFile)(self._cache_path, name, stamp)

    def exists(self) -> bool:
        """Return True if the code is on disk."""
        return os.path.exists(self._cache_file._index_path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception:  # a damaged file unpickles into any error: compile again
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):  # a full disk, a folder gone read-only
            self._impl.locator.ensure_cache_path()
            self._cache_file.flush()  # an index that is damaged would be read before it is written
            super().save_overload(sig, data)
            remove_older(self._cache_path, self._impl.filename_base)


@cache
def checked_files(base: Any) -> Any:
    """
    Return a class of cache files that are read only if they are whole, and only their owner writes.

    They are pickles with machine code: a damaged one could kill the process, and whoever can write
    them could run code in it. So they begin with a digest. If it does not match, an error makes
    Numba compile again. `base` is Numba's class, or numba-cuda's.
    """

    class CheckedFiles(base):  # type: ignore[misc]  # Numba is untyped
        def _load_index(self) -> Any:
            try:
                stream = io.BytesIO(_checked_bytes(self._index_path))
            except FileNotFoundError:
                return {}
            if pickle.load(stream) != self._version:
                return {}
            stamp, names = pickle.loads(stream.read())
            return names if stamp == self._source_stamp else {}

        def _load_data(self, name: str) -> Any:
            return pickle.loads(_checked_bytes(self._data_path(name)))

        @contextlib.contextmanager
        def _open_for_write(self, path: str) -> Iterator[io.BytesIO]:
            content = io.BytesIO()
            yield content
            temporary = f"{path}.tmp.{os.urandom(8).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            try:
                # Writable by the owner only, even if the umask is 0.
                with open(os.open(temporary, flags, 0o644), "wb") as file:
                    file.write(hashlib.sha256(content.getbuffer()).digest())
                    file.write(content.getbuffer())
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    return CheckedFiles


def _checked_bytes(path: str) -> memoryview:
    """Return the contents of a file after its digest; raise if damaged or writable by others."""
    with open(path, "rb") as file:
        about = os.fstat(file.fileno())
        if hasattr(os, "geteuid"):  # not on Windows
            by_others = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if by_others or about.st_uid not in (os.geteuid(), 0):
                msg = f"{path} is writable by others"
                raise PermissionError(msg)
        content = memoryview(file.read())
    size = hashlib.sha256().digest_size
    if hashlib.sha256(content[size:]).digest() != content[:size]:
        msg = f"{path} is damaged"
        raise ValueError(msg)
    return content[size:]


def file_name(base: str, variant: tuple[Any, ...]) -> str:
    """Return the file name of a kernel; `base` is Numba's name with line and Python version."""
    return f"{_current(base)}-{hashlib.sha256(repr(variant).encode()).hexdigest()[:16]}"


def remove_older(folder: str, base: str) -> None:
    """Remove the files of a kernel that were compiled from other sources."""
    function, _, python = re.split(r"-(\d+)\.(?=py\d)", base)
    for path in Path(folder).glob(f"{function}-*.{python}-*.nb[ci]"):
        if not path.name.startswith(_current(base)):
            path.unlink(missing_ok=True)


def _current(base: str) -> str:
    return f"{base}-{source_stamp()[:8]}"


@cache
def source_stamp() -> str:
    """Return a digest of all sources of kernels and of Numba's version."""
    here = Path(__file__)
    package = here.parents[1]
    kernels = (
        path for folder in ("_kernels", "_cuda") for path in package.glob(f"{folder}/**/*.py")
    )
    digest = hashlib.sha256(numba.__version__.encode())
    for source in [here, *sorted(kernels)]:
        digest.update(source.read_bytes())
    return digest.hexdigest()
