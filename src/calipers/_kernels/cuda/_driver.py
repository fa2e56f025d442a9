"""The devices that the CUDA driver has, and whether it runs what numba-cuda compiles."""

from functools import cache
from importlib.metadata import version
from typing import Any

from numba import config, cuda

from . import install_command

# The versions of other packages that numba-cuda 0.30 works with.
_OLDEST = 12  # the first CUDA that numba-cuda has an extra for


def require_device() -> None:
    """Raise a RuntimeError if there is no device, or none that runs what numba-cuda compiles."""
    if not cuda.is_available():
        msg = f"there is no CUDA device to run on: {_why_not()}"
        raise RuntimeError(f"{msg} (calipers.show_config(devices=True))")
    require_driver()


def require_driver() -> None:
    """Raise a RuntimeError if the driver is older than what numba-cuda compiles for."""
    if problem := _problem_of_driver():
        raise RuntimeError(problem)


@cache
def _problem_of_driver() -> str | None:
    """Return why the driver does not run what numba-cuda compiles, if it does not."""
    if config.ENABLE_CUDASIM:
        return None
    from cuda.bindings import driver

    status, number = driver.cuDriverGetVersion()
    if int(status):
        return None  # the driver says more when it is used
    # The bindings load the compiler of their own major version.
    return _compared(
        number // 1000, number % 1000 // 10, int(version("cuda-bindings").split(".")[0])
    )


def _compared(major: int, minor: int, compiled: int) -> str | None:
    """Return what to install if a driver of CUDA major.minor does not run code of another one."""
    if major >= compiled:
        return None
    msg = f"the driver has CUDA {major}.{minor}, and does not run what the installed numba-cuda "
    msg += f"compiles, which is for CUDA {compiled}: install a newer driver"
    if major < _OLDEST:
        return msg
    return f"{msg}, or numba-cuda for CUDA {major}: {install_command(major)}"


def _why_not() -> str:
    """Return why Numba sees no device."""
    # Without an error of the driver, what is_available() misses is the compiler.
    compiler = f"libNVVM is not found: {install_command()}, or set CUDA_HOME"
    return " ".join(str(cuda.cuda_error() or compiler).split())


def describe_devices() -> list[str]:
    """Return a line for each device, after one that says why kernels do not run, if they do not."""
    if not cuda.is_available():
        return [f"no device: {_why_not()}"]
    problem = _problem_of_driver()
    return ([problem] if problem else []) + [
        f"{k}: {_name(device)}, compute capability {'.'.join(map(str, device.compute_capability))}"
        for k, device in enumerate(cuda.gpus)
    ]


def _name(device: Any) -> str:
    name = device.name
    return name.decode() if isinstance(name, bytes) else str(name)
