"""The installation: versions, devices, and kernels that are compiled ahead of use."""

import textwrap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, overload

import numba
import numpy as np

from .._core.environment import basis, versions
from .._core.jit import Kernels, cache_folder, no_cache, source_stamp
from .._core.libraries import install_command
from .._kernels.closeness import FIRST_MISMATCH, MASK, first_mismatch
from .._kernels.comparison import TALLIES
from .._kernels.equality import FIRST_NONFINITE, FIRST_UNEQUAL, FIRST_UNEQUAL_STRIDED

_NO_BREAK = "\N{NO-BREAK SPACE}"
_NO_CUDA = f"numba-cuda is not installed: {install_command()}"
_NOT_ASKED = "not queried: show_config(devices=True) queries the driver"
_FLOATS, _NUMBERS = ("float64", "float32"), ("float64", "float32", "int64")
_COMMON = (
    ("allclose", FIRST_MISMATCH, _NUMBERS),
    ("isclose", MASK, _NUMBERS),
    ("array_equal", FIRST_UNEQUAL, _NUMBERS),
    ("array_equal, strided", FIRST_UNEQUAL_STRIDED, _FLOATS),
    ("allfinite", FIRST_NONFINITE, _FLOATS),
    ("compare, assert_close", TALLIES, _NUMBERS),
)


@overload
def show_config(mode: Literal["stdout"] = "stdout", *, devices: bool = False) -> None: ...
@overload
def show_config(mode: Literal["dicts"], *, devices: bool = False) -> dict[str, Any]: ...
def show_config(mode: str = "stdout", *, devices: bool = False) -> dict[str, Any] | None:
    """
    Print or return versions, the number of threads, the kernel cache and CUDA devices.

    Parameters
    ----------
    mode : {"stdout", "dicts"}, default "stdout"
        "stdout" prints the information, "dicts" returns it, as in `numpy.show_config`.
    devices : bool, default False
        If True, query the CUDA driver for devices. A process that has done so cannot use them in a
        forked child.

    Returns
    -------
    dict or None
        The information if `mode` is "dicts", else None.

    Raises
    ------
    ValueError
        If `mode` is neither "stdout" nor "dicts".

    Examples
    --------
    >>> import calipers
    >>> sorted(calipers.show_config(mode="dicts"))
    ['cache', 'cpu', 'cuda', 'sources', 'threads', 'versions']
    """
    if mode not in ("stdout", "dicts"):
        msg = f'mode must be "stdout" or "dicts", got {mode!r}'
        raise ValueError(msg)
    config = basis() | {
        "sources": source_stamp()[:8],  # as in the names of cached files
        "cache": cache_description(),
        "cuda": _devices() if devices else _cuda(),
    }
    if mode == "dicts":
        return config
    for name, value in config.items():
        lines = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            lines = _wrapped(f"{package} {version}" for package, version in value.items())
        for line in lines:
            print(f"{name:10}{line}")
            name = ""
    return None


def _wrapped(items: Iterable[str]) -> list[str]:
    """Write items in lines, none of them in two."""
    joined = ", ".join(item.replace(" ", _NO_BREAK) for item in items)
    lines = textwrap.wrap(joined, 70, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def cache_description() -> str:
    """Say where kernels are kept, a folder that Numba has seen to be writable, and how many."""
    folder = cache_folder(first_mismatch)
    if folder is None:
        return f"none: {no_cache()}"
    sizes = []
    for path in Path(folder).glob("*.nbc"):
        with suppress(FileNotFoundError):  # another process may be replacing it
            sizes.append(path.stat().st_size)
    several = "s" * (len(sizes) != 1)
    return f"{folder}, writable, {len(sizes)} kernel{several}, {sum(sizes) / 2**20:.3g} MiB"


def _cuda() -> str:
    """Describe the CUDA target without querying the driver."""
    if numba.config.ENABLE_CUDASIM:
        return "Numba's simulator (NUMBA_ENABLE_CUDASIM)"
    return _NOT_ASKED if "numba-cuda" in versions() else _NO_CUDA


def _devices() -> str | list[str]:
    """Ask the driver."""
    if numba.config.ENABLE_CUDASIM or "numba-cuda" not in versions():
        return _cuda()
    try:
        runtime = import_module(".._cuda.runtime", __package__)
    except ImportError as error:
        return str(error)
    described: list[str] = runtime.describe_devices()
    return described


def warmup() -> None:
    """
    Compile the common kernels, or load them from the disk cache, ahead of their first use.

    These are the kernels of allclose, isclose, array_equal, compare and assert_close for float64,
    float32 and int64, and those of allfinite for float64 and float32. Compiling them takes about
    half a minute, once per installation if there is a disk cache; loading them takes less than a
    second.

    Examples
    --------
    >>> import calipers
    >>> calipers.warmup()
    """
    for _ in warmup_steps():
        pass


def warmup_steps() -> Iterator[tuple[str, str]]:
    """Make kernels ready; yield the functions and the dtype that each is for."""
    for name, dtype, kernels, key in common_kernels():
        kernels[key]
        yield name, dtype


def common_kernels() -> Iterator[tuple[str, str, Kernels, Any]]:
    """Yield functions, dtype, kernels and key of those that comparisons need most often."""
    for name, kernels, dtypes in _COMMON:
        for dtype in dtypes:
            key = np.dtype(dtype)
            yield name, dtype, kernels, (key, key) if kernels is TALLIES else key
