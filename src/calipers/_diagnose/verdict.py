"""A verdict of diagnose, its thresholds, and the data of its report."""

from dataclasses import dataclass, field
from typing import Any

# kinds
EQUAL, ROUNDING, LAYOUT, AMPLIFIED = "EQUAL", "ROUNDING", "LAYOUT", "AMPLIFIED"
RANGE, NONDETERMINISTIC, REDUCED = "RANGE", "NONDETERMINISTIC", "REDUCED"
UNSTABLE, SUSPECT, BUG, RAISES = "UNSTABLE", "SUSPECT", "BUG", "RAISES"
KINDS = (
    *(EQUAL, ROUNDING, LAYOUT, AMPLIFIED, RANGE, NONDETERMINISTIC, REDUCED, UNSTABLE),
    *(SUSPECT, BUG, RAISES),
)

ILL_CONDITIONED = (
    100.0  # a kappa beyond which the inputs' last places, and not the algorithm, decide
)
# Where units are G times less in the wider format, rounding is less by at least this power of G:
# what falls less is another function.
GAIN_EXPONENT = 0.55
ALONE = 8.0  # times what is allowed for all, one result may be off: it is seen among a million
FAR = 16.0  # roundings to move by in the working format: those of the results count little then
EXPLAINED = 0.9  # of an error's square
FLIPS = 32  # moves to see which results jump
REDRAWN = 6  # differences at moved inputs, of which rounding makes unlike ones
INSENSITIVE = 0.1  # a kappa below which a function does not feel the inputs' last places
SYSTEMATIC = 2.0  # units that rounded constants may be off by, wherever the inputs are
REDRAW = 2.0**10  # last places by which inputs are moved to have rounding errors of other kinds
COARSE = 2.0**9  # last places to move by before noise changes, if it is that of a coarser format
LARGE_DIFFERENCE = (
    2.0**-10
)  # of the results: a difference that no constant held in their format makes
HALF = 0.5  # of the results: more than rounding to any format, of two bits or of 15 steps, makes
STEADY = 0.9  # a cosine that no rounding has
MANY = 16  # differences of weight, of which a cosine near 1 is no chance
FEW = 4  # differences, which something explains by chance
FEW_REDRAWN = 12  # moves to ask at where fewer than MANY differences are of weight
CONSTANT_AMPLIFICATION = (
    2.0**16
)  # times: fewer than a constant that was typed with eleven digits is off
COARSEST = 3  # the power of 1/2 beyond which inputs are not moved


def as_multiple(size: float, limit: float | None = None) -> str:
    """Write an error as a multiple of the expected rounding error, and its limit."""
    text = f"{size:.3g} x the expected rounding error"
    return text if limit is None else f"{text} (limit {limit:.3g})"


@dataclass
class Verdict:
    """A kind, the sentence that says why, and what it names."""

    kind: str
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

    kind: str
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
