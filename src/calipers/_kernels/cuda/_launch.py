"""Launches of kernels that take numbers alone, addresses among them: Numba's own takes far longer.

Numba looks up the kernel for the types of the arguments, its context, and a type of C's for each of
them, at every launch. By what it came to once a kernel is launched here as Numba would do it.
"""

import contextlib
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from ._driver import require_driver

try:
    from cuda import core
except ImportError:  # of Numba's simulator, or of a numba-cuda before it
    core = None

# Types whose values cuda.core hands over as Numba does: in 64 bits, and bool in a byte.
_NUMBERS = frozenset({int, float, bool})

# Of each kernel, as long as it is there: by device, and what `_unfold` tells of arguments.
_known: WeakKeyDictionary[Any, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()


def launch(
    kernel: Any, ordinal: int, layout: tuple[int, int, int], stream: Any, arguments: tuple[Any, ...]
) -> None:
    """Launch a kernel on the current device, on blocks of threads that share bytes: the layout."""
    kinds: list[Any] = [ordinal]
    numbers: list[Any] = []
    plain = core is not None and _unfold(arguments, kinds, numbers)
    key = tuple(kinds)
    found = _known.get(kernel, {}).get(key) if plain else None
    if found is not None:
        core.launch(_stream(stream, ordinal), _config(*layout), found, *numbers)
        return
    require_driver()  # an old one says no more than that a kernel's image is invalid
    blocks, each, shared = layout
    kernel[blocks, each, stream, shared](*arguments)
    if plain:
        # Private parts of Numba's, which may be renamed: it goes on to launch the kernel then.
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            compiled = kernel.overloads[tuple(map(kernel.typeof_pyval, arguments))]
            if not (compiled.debug or compiled.cooperative):  # which take more
                own = compiled._codelibrary.get_cufunc().kernel
                _known.setdefault(kernel, {})[key] = own


def _unfold(values: tuple[Any, ...], kinds: list[Any], numbers: list[Any]) -> bool:
    """Add numbers in tuples, and what tells their types; and tell whether there are no others."""
    for x in values:
        kind = type(x)
        if kind in _NUMBERS:
            kinds.append(kind)
            numbers.append(x)
        elif kind is tuple:
            kinds.append(len(x))
            if not _unfold(x, kinds, numbers):
                return False
        else:
            return False
    return True


@lru_cache
def _stream(stream: Any, ordinal: int) -> Any:
    return core.Stream.from_handle(int(stream.handle))


@lru_cache
def _config(blocks: int, each: int, shared: int) -> Any:
    return core.LaunchConfig(grid=blocks, block=each, shmem_size=shared)
