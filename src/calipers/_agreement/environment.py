"""What a result may depend on besides its inputs: versions, threads, flags of precision."""

import operator
import os
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np

from ..config import basis

_THREADS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"),
    *("VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS", "MKL_CBWR", "OPENBLAS_CORETYPE"),
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


def fingerprint() -> dict[str, Any]:
    """Return all that is known of the process, as built-in types that JSON can write."""
    found = basis()
    found["blas"] = _blas()
    found["flushes_subnormals"] = flushes_subnormals()
    found |= {name: os.environ[name] for name in _THREADS if name in os.environ}
    for library, flags in _FLAGS.items():
        if library in sys.modules:
            found |= {f"{library}.{flag}": _value(library, flag) for flag in flags}
    return found


def changes(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Write what differs between two fingerprints, one entry each."""
    a, b = _flat(then), _flat(now)
    names = [name for name in {**a, **b} if a.get(name) != b.get(name)]
    return [f"{name}: {a.get(name, 'none')} -> {b.get(name, 'none')}" for name in names]


def flushes_subnormals() -> bool:
    """Tell whether the processor takes subnormal results of this thread for 0."""
    return not (np.full(1, np.finfo(np.float64).tiny) * np.full(1, 0.5)).view(np.uint64).any()


@cache
def _blas() -> str:
    try:
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError):
        return "unknown"


def _value(library: str, flag: str) -> Any:
    """Read a flag; one that this version of the library does not have is "none"."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = operator.attrgetter(flag)(sys.modules[library])
            value = value() if callable(value) else value
    except Exception:  # torch raises where its old and new flags were both set
        return "none"
    return value if isinstance(value, bool | int | str) else str(value)


def _flat(x: dict[str, Any]) -> dict[str, Any]:
    parts = {name: value if isinstance(value, dict) else {"": value} for name, value in x.items()}
    return {key or name: value for name, part in parts.items() for key, value in part.items()}
