"""Versions, threads, the kernel cache and devices: show_config."""

import textwrap
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, overload

import numba

from ._agreement.environment import basis, versions
from ._jit import cache_folder, no_cache, source_stamp
from ._kernels.closeness import first_apart
from ._kernels.cuda import install_command

__all__ = ["show_config"]

_NO_BREAK = "\N{NO-BREAK SPACE}"
_NO_CUDA = f"numba-cuda is not installed: {install_command()}"
_NOT_ASKED = "not queried: show_config(devices=True) queries the driver"


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
    found = basis() | {
        "sources": source_stamp()[:8],  # as in the names of cached files
        "cache": cache_description(),
        "cuda": _devices() if devices else _cuda(),
    }
    if mode == "dicts":
        return found
    for name, value in found.items():
        lines = value if isinstance(value, list) else [value]
        if isinstance(value, dict):
            lines = _wrapped(f"{package} {version}" for package, version in value.items())
        for line in lines:
            print(f"{name:10}{line}")
            name = ""
    return None


def _wrapped(items: Iterable[str]) -> list[str]:
    """Write items in lines, none of them in two."""
    kept = ", ".join(item.replace(" ", _NO_BREAK) for item in items)
    lines = textwrap.wrap(kept, 70, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def cache_description() -> str:
    """Say where kernels are kept, a folder that Numba has seen to be writable, and how many."""
    folder = cache_folder(first_apart)
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
        target = import_module("._kernels.cuda._target", __package__)
    except ImportError as error:
        return str(error)
    described: list[str] = target.describe_devices()
    return described
