"""A verdict of diagnose, and the data of its report."""

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

# fmt: off
Kind = Literal[
    "EQUAL", "ROUNDING", "LAYOUT", "AMPLIFIED", "RANGE", "NONDETERMINISTIC", "REDUCED", "UNSTABLE",
    "SUSPECT", "BUG", "RAISES",
]
# fmt: on
KINDS = get_args(Kind)
# The verdicts that rounding explains: a diagnosis is True for them, and for EQUAL.
ALLOWED: tuple[Kind, ...] = ("ROUNDING", "LAYOUT", "AMPLIFIED")


def higher_precision(form: str) -> str:
    """Return the name of the next higher precision, in which a reference is computed."""
    return "longdouble" if form == "float64" else "float64"


@dataclass
class Verdict:
    """A kind, the sentence that says why, and what it names."""

    kind: Kind
    reason: str
    format: str | None = None
    arguments: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Worst:
    """
    One of the elements with the largest differences, in ``Diagnosis.worst``.

    Attributes
    ----------
    output : int
        Position of the result among those of the functions.
    index : tuple of int
        Index of the element.
    f, g : float
        The values of the two functions; for complex elements the part that differs more.
    reference : float or None
        The value in higher precision.
    units : float
        ``|f - g|`` divided by the expected rounding error.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> found = calipers.diagnose(np.exp, np.expm1, np.array([0.0, 1.0]))
    >>> found.worst[0].index, found.worst[0].f, found.worst[0].g
    ((0,), 1.0, 0.0)
    """

    output: int
    index: tuple[int, ...]
    f: float
    g: float
    reference: float | None
    units: float


@dataclass(frozen=True, repr=False)
class DiagnosisData:
    """The fields of a `Diagnosis`, which documents them."""

    kind: Kind
    reason: str
    format: str | None
    arguments: tuple[int, ...] | None
    evidence: dict[str, Any] = field(hash=False)
    dtype: str
    allowed: float
    length: int
    shapes: tuple[tuple[int, ...], ...]
    worst: tuple[Worst, ...]
    where: str | None
    calls: dict[str, int] = field(hash=False)
    seconds: float
    environment: dict[str, Any] = field(hash=False)
    seed: int
    names: tuple[str, str]
    options: dict[str, str] = field(default_factory=dict, hash=False)
    unpacked: bool = True
    inputs: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    answers: tuple[Any, ...] = field(default=(), repr=False, compare=False)
