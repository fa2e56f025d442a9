"""Machine code of a device's kernels, kept on disk in files that are named by all it depends on."""

import contextlib
import importlib.metadata
import os
from collections.abc import Callable
from typing import Any

from numba import config, cuda

from ..._jit import checked_files, file_name, remove_older, source_stamp


def kept(*variant: Any, registers: int | None = None) -> Callable[[Callable[..., Any]], Any]:
    """
    Return a decorator that compiles a kernel, or finds it compiled by an earlier process.

    A kernel is a function inside another one, and what it holds of that follows from `variant`.
    """
    limit = {} if config.ENABLE_CUDASIM else {"max_registers": registers}

    def compiled(function: Callable[..., Any]) -> Any:
        kernel = cuda.jit(**limit)(function)
        if not config.ENABLE_CUDASIM and os.environ.get("CALIPERS_CACHE", "1") != "0":
            # Private parts of Numba's, which may be renamed; or no folder that can be written.
            with contextlib.suppress(ImportError, AttributeError, TypeError, OSError, RuntimeError):
                kernel._cache = _cache(function, (function.__qualname__, *variant))
        return kernel

    return compiled


def _cache(function: Callable[..., Any], variant: tuple[Any, ...]) -> Any:
    from numba.cuda.core.caching import IndexDataCacheFile
    from numba.cuda.dispatcher import CUDACache

    class KernelCache(CUDACache):  # type: ignore[misc]  # Numba is untyped
        """Numba's cache, which sees neither what a kernel holds nor rules in other files."""

        def __init__(self) -> None:
            super().__init__(function)
            stamp = source_stamp()
            compiler = importlib.metadata.version("numba-cuda")
            name = file_name(self._impl.filename_base, (compiler, *variant))
            self._cache_file = checked_files(IndexDataCacheFile)(self._cache_path, name, stamp)

        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return sig, codegen.magic_tuple()

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                kernel = super().load_overload(sig, target_context)
                if kernel is not None:
                    kernel.bind()  # where one thread is at a time: launches do not wait
                return kernel
            except Exception:  # a damaged file unpickles into any error: begin a new one
                with contextlib.suppress(OSError):
                    self._cache_file.flush()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with contextlib.suppress(OSError):  # a full disk, a folder gone read-only
                self._impl.locator.ensure_cache_path()
                super().save_overload(sig, data)
                remove_older(self._cache_path, self._impl.filename_base)

    return KernelCache()
