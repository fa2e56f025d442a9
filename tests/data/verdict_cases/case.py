"""What a case is, and the arrays and number formats that cases are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = (
    "EQUAL",
    "ROUNDING",
    "LAYOUT",
    "AMPLIFIED",
    "RANGE",
    "NONDETERMINISTIC",
    "REDUCED",
    "UNSTABLE",
    "SUSPECT",
    "BUG",
    "RAISES",
)


@dataclass(frozen=True)
class Case:
    """Two callables, the inputs they are called with, and the verdicts that are right.

    `make` builds them from a generator alone. `options` are keyword arguments of `diagnose`. A
    case that is REDUCED and nothing else has the names that its format may be given, whichever way
    it rounds, and the arguments that are narrowed, or None where the sum or the result is. `needs`
    are packages.
    """

    name: str
    make: Callable[[np.random.Generator], tuple[Callable, Callable, Sequence[Any]]]
    kinds: frozenset[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    formats: tuple[str, ...] = ()
    arguments: tuple[int, ...] | None = None
    needs: tuple[str, ...] = ()

    @property
    def bug(self) -> bool:
        """Whether any verdict but BUG and SUSPECT lets an error pass."""
        return "BUG" in self.kinds and self.kinds <= {"BUG", "SUSPECT"}

    @property
    def benign(self) -> bool:
        """Whether BUG or SUSPECT would be a false alarm: both sides are the same function."""
        return not self.kinds & {"BUG", "SUSPECT", "RAISES"}


class Cases(list):
    """The cases of one file; an instance is the decorator that registers them."""

    def __call__(self, kinds: str, note: str = "", *, name: str | None = None, **fields):
        """Register a function of a generator under its own name, or another."""
        accepted = frozenset(kinds.split())

        def register(make):
            self.append(Case(name or make.__name__, make, accepted, note=note, **fields))
            return make

        return register

    def pair(self, name: str, kinds: str, f, g, inputs, note: str = "", **fields) -> None:
        """Add a case of two functions without state, and of inputs from a generator."""
        accepted = frozenset(kinds.split())
        self.append(Case(name, lambda rng: (f, g, inputs(rng)), accepted, note=note, **fields))


# Names that labels have in common.
SCIPY, TORCH = ("scipy",), ("torch",)
HIDDEN = "BUG SUSPECT"
SAME = "ROUNDING LAYOUT"
# The same function, whose results may happen to be bitwise equal.
OK = f"{SAME} EQUAL"
WARPED = f"{SAME} AMPLIFIED"

# The leading axis of the first argument is no batch, or it is one of several arguments.
WHOLE: Mapping[str, Any] = {"batch": ()}
# g computes in float32 whatever it is given.
SINGLE: Mapping[str, Any] = {"reference": "f"}


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def double(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape)


def uniform(rng: np.random.Generator, low: float, high: float, *shape: int) -> np.ndarray:
    return rng.uniform(low, high, shape).astype(np.float32)


def layer(rng, rows=32, inner=256, outer=64):
    """Return x, w and b of a linear layer whose outputs are of order 1."""
    w = rng.standard_normal((outer, inner)) / np.sqrt(inner)
    return normal(rng, rows, inner), w.astype(np.float32), normal(rng, outer)


def conditioned(rng, n, condition, columns=None):
    """Return an n-row matrix with singular values from 1 down to 1/condition."""
    m = columns or n
    left = np.linalg.qr(rng.standard_normal((n, m)))[0]
    right = np.linalg.qr(rng.standard_normal((m, m)))[0]
    return (left * np.geomspace(1, 1 / condition, m) @ right).astype(np.float32)


def linear(x, w, b):
    return x @ w.T + b


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def in_float32(f):
    """Return f as a kernel that has no other type."""
    return lambda *arrays: f(*(a.astype(np.float32) for a in arrays))


def through_torch(f):
    """Return f, a function of tensors, as one of NumPy arrays."""
    import torch

    def g(*arrays):
        # A copy, since torch takes neither negative strides nor read-only memory.
        return f(*(torch.from_numpy(np.array(a)) for a in arrays)).numpy()

    return g


# Bits of the significand, and the exponent (as frexp has it) of the smallest normal number.
FORMATS = {
    "tf32": (11, -125),
    "bfloat16": (8, -125),
    "float16": (11, -13),
    "float8_e4m3": (4, -5),
    "float8_e5m2": (3, -13),
}


def narrow(x, form, truncate=False):
    """Round to a format, to nearest even or towards zero, for numbers that do not overflow it."""
    bits, lowest = FORMATS[form]
    exponent = np.maximum(np.frexp(x)[1], lowest)
    ulp = np.ldexp(np.ones((), x.dtype), exponent - bits)
    return (np.trunc if truncate else np.rint)(x / ulp) * ulp


def narrow_singles(x, form, truncate=False):
    """Round float32 alone, as a device does whose fast mode exists for no other type."""
    return narrow(x, form, truncate) if x.dtype == np.float32 else x
