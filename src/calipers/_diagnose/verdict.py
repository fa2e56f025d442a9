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

# Condition number above which rounding of the inputs, not the algorithm, determines the error.
ILL_CONDITIONED = 100.0
# If the noise level falls by a factor G in higher precision, rounding errors fall by at least G to
# this power.
GAIN_EXPONENT = 0.55
# Factor on the limit for the largest of up to a million errors.
ALONE = 8.0
# Perturbation in ulps of the working precision, compared with which rounding of results is small.
FAR = 16.0
# Fraction of the squared error that a cause must explain.
EXPLAINED = 0.9
# Number of perturbations to find results that jump.
FLIPS = 32
# Number of perturbed differences to compare: those of rounding are uncorrelated.
REDRAWN = 6
# Condition number below which 1-ulp perturbations of the inputs have no effect.
INSENSITIVE = 0.1
# Error by rounded constants at any inputs, relative to the expected rounding error.
SYSTEMATIC = 2.0
# Perturbation in ulps that redraws rounding errors of all kinds.
REDRAW = 2.0**10
# Smallest perturbation in ulps that redraws noise of lower precision.
COARSE = 2.0**9
# Relative difference that no constant rounded to the working precision causes.
LARGE_DIFFERENCE = 2.0**-10
# Relative difference larger than rounding to any supported format can cause.
HALF = 0.5
# Cosine similarity that rounding errors do not reach.
STEADY = 0.9
# Effective number of differences for which a cosine near 1 is significant.
MANY = 16
# Number of differences that may be explained by chance.
FEW = 4
# Number of perturbations if the effective number of differences is below MANY.
FEW_REDRAWN = 12
# Largest plausible amplification of roundoff in constants: a constant typed with eleven digits has
# a larger error.
CONSTANT_AMPLIFICATION = 2.0**16
# Largest relative perturbation of the inputs, as a power of 1/2.
COARSEST = 3


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
