"""Commands on the installation: doctor and warmup."""

import importlib.metadata
import re
import time
from collections.abc import Callable, Iterable, Iterator

import click

from .status import SAME, TROUBLE


@click.command(short_help="Compile the common kernels into the cache.")
def warmup() -> int:
    """
    Compile the common kernels, and keep them in the cache, as calipers.warmup() does.

    Each line names the functions that a kernel is for, the dtype, and the seconds that it took to
    compile. Kernels that are in the cache are not compiled again.
    """
    from .._core.jit import cache_folder, compilations, no_cache
    from .._kernels.closeness import first_mismatch
    from .installation import cache_description, warmup_steps

    if cache_folder(first_mismatch) is None:
        msg = f"there is no cache to fill: {no_cache()}"
        raise click.ClickException(msg)
    compilations.announced = True  # the lines say it
    seconds = compilations.seconds
    for functions, dtype in warmup_steps():
        step, seconds = compilations.seconds - seconds, compilations.seconds
        click.echo(f"{functions:22} {dtype:8} {f'{step:.1f} s' if step else 'cached'}")
    click.echo(f"compiled   {compilations.kernels} kernels in {seconds:.1f} s")
    click.echo(f"cache      {cache_description()}")
    return SAME


# What calipers' developers need.
_DEVELOPERS = {"bench", "docs", "peers", "release", "test"}
_EXTRA = re.compile(r"([\w-]+).*;\s*extra\s*==\s*['\"]([\w-]+)['\"]")


@click.command(short_help="Show what calipers runs on, and test that it works.")
def doctor() -> int:
    """
    Show versions, threads, the cache, devices and optional packages, and test that calipers works.

    The status is 0 if it works, and 2 if not. Kernels that are not in the cache are compiled, which
    takes some seconds.
    """
    import calipers

    calipers.show_config(devices=True)
    _echo("kernels", [_cached_kernels()])
    _echo("extras", _extras())
    results = {name: _result(test) for name, test in _TESTS.items()}
    _echo("tests", (f"{name}: {result}" for name, result in results.items()))
    _echo("compiled", [_compiled_kernels()])
    return SAME if all(result.startswith("right") for result in results.values()) else TROUBLE


def _echo(title: str, lines: Iterable[str]) -> None:
    """Write lines as `show_config` does."""
    for line in lines:
        click.echo(f"{title:10}{line}")
        title = ""


def _cached_kernels() -> str:
    """Describe how many common kernels are in the cache."""
    from .installation import common_kernels

    cached = [kernels.is_cached(key) for *_, kernels, key in common_kernels()]
    text = f"{sum(cached)} of the {len(cached)} common ones are in the cache"
    return text if all(cached) else f"{text}: calipers warmup compiles the others"


def _compiled_kernels() -> str:
    """Describe how many kernels the tests compiled."""
    from .._core.jit import compilations

    count = compilations.kernels
    if not count:
        return "nothing: the tests' kernels are in the cache"
    return f"{count} kernel{'s' * (count != 1)} for these tests, in {compilations.seconds:.1f} s"


def _extras() -> Iterator[str]:
    """Yield for each extra which of its packages are installed."""
    packages: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("calipers") or []:
        match = _EXTRA.match(requirement)
        if match and match[2] not in _DEVELOPERS:
            packages.setdefault(match[2], []).append(match[1])
    for extra, names in sorted(packages.items()):
        yield f"{extra}: {', '.join(map(_installed, names))}"


def _installed(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} is not installed"


def _result(test: Callable[[], bool]) -> str:
    started = time.perf_counter()
    try:
        result = "right" if test() else "WRONG"
    except Exception as error:  # whatever is broken is the answer
        result = f"{type(error).__name__}: {error}"
    return f"{result}, {time.perf_counter() - started:.2f} s"


def _allclose() -> bool:
    import numpy as np

    import calipers

    a = np.linspace(0, 1, 1000)
    return calipers.allclose(a, a + 1e-12) and not calipers.allclose(a, a + 1e-3)


def _gradcheck() -> bool:
    import numpy as np

    import calipers

    x = np.linspace(0, 1, 5)
    right, wrong = (
        calipers.gradcheck(
            np.sin, x, vjp=lambda x, w, c=c: c * w * np.cos(x), raise_exception=False
        )
        for c in (1.0, 1.001)
    )
    return bool(right) and wrong.verdict == "FAIL"


_TESTS = {"allclose": _allclose, "gradcheck": _gradcheck}
