"""Versions, threads and flags of libraries, on which results depend in addition to the inputs."""

import importlib.metadata
import operator
import os
import platform
import sys
import warnings
from functools import cache
from typing import Any

import numba
import numpy as np

from .threads import available_cores, get_num_threads

_PACKAGES = ("calipers", "numpy", "numba", "numba-cuda", "torch", "jax", "cupy", "scipy")

_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "MKL_CBWR", "OPENBLAS_CORETYPE"),
)
# Variables by which CUDA and ROCm choose formats inside of matrix products and convolutions.
_FORMATS = (
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "XLA_FLAGS"),
    *("ROCBLAS_INTERNAL_FP16_ALT_IMPL", "MIOPEN_DEBUG_CONVOLUTION_ATTRIB_FP16_ALT_IMPL"),
)
_FLAGS = {
    "torch": (
        *(
            "get_num_threads",
            "get_float32_matmul_precision",
            "are_deterministic_algorithms_enabled",
        ),
        *("backends.cuda.matmul.allow_tf32", "backends.cudnn.allow_tf32"),
        "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        *("backends.cudnn.deterministic", "backends.cudnn.benchmark"),
    ),
    "jax": ("config.jax_enable_x64", "config.jax_default_matmul_precision"),
}


def basis() -> dict[str, Any]:
    """Return the versions, the processor and the number of threads, which affect all results."""
    return {
        "versions": {"python": platform.python_version()} | versions(),
        "cpu": f"{numba.config.CPU_NAME or _processor()}, {available_cores()} cores",
        "threads": _threads(),
    }


def _threads() -> str:
    try:
        number = get_num_threads()
    except ValueError as error:  # of the environment variable
        return str(error)
    of_variable = ", CALIPERS_NUM_THREADS" if "CALIPERS_NUM_THREADS" in os.environ else ""
    return f"{number}, calipers' own{of_variable}"


@cache
def versions() -> dict[str, str]:
    """Return the versions of the installed packages that may affect results."""
    installed = {}
    for package in _PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


@cache
def _processor() -> str:
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def fingerprint() -> dict[str, Any]:
    """Return versions, hardware and all flags that may affect results, as types for JSON."""
    settings = basis()
    settings["blas"] = _blas()
    settings["flushes_subnormals"] = flushes_subnormals()
    settings |= {name: os.environ[name] for name in (*_THREADS, *_FORMATS) if name in os.environ}
    for library, flags in _FLAGS.items():
        if library in sys.modules:
            settings |= {f"{library}.{flag}": _value(library, flag) for flag in flags}
    return settings


def changes(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a text for each difference between two fingerprints."""
    a, b = _flat(then), _flat(now)
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    return [f"{name}: {a.get(name, 'none')} -> {b.get(name, 'none')}" for name in names]


def flushes_subnormals() -> bool:
    """Return True if subnormal results are flushed to 0 in this thread."""
    return not (np.full(1, np.finfo(np.float64).tiny) * np.full(1, 0.5)).view(np.uint64).any()


@cache
def _blas() -> str:
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError):
        return "unknown"


def _value(library: str, flag: str) -> Any:
    """Return the value of a flag; "none" if this version of the library lacks it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = operator.attrgetter(flag)(sys.modules[library])
            value = value() if callable(value) else value
    except Exception:  # torch raises if its old and new flags were both set
        return "none"
    return value if isinstance(value, bool | int | str) else str(value)


def _flat(x: dict[str, Any]) -> dict[str, Any]:
    parts = {name: value if isinstance(value, dict) else {"": value} for name, value in x.items()}
    return {key or name: value for name, part in parts.items() for key, value in part.items()}
