"""Find overflow and underflow of intermediate results: range."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.dtypes import FORMATS
from .._core.protocols import NDArray
from .._core.report import Report, brief
from .._diagnose.inputs import is_perturbable, to_higher_precision
from .._diagnose.noise_level import difference, result_roundoffs
from .._diagnose.range_loss import STEP, homogeneity_degrees, scaled, unscaled
from .._diagnose.results import Result, comparable
from .._diagnose.verdict import as_multiple
from .trials import ProbedFunction, relative_norms

# Factor by which rescaling must reduce an error for overflow or underflow to be its cause.
_FALLS = 10.0


@dataclass(frozen=True, repr=False)
class Range(Report):
    """
    Whether intermediate results leave the range of their format; it is true if none does.

    It is returned by `range`.

    Attributes
    ----------
    kind : {"FITS", "OVERFLOW", "UNDERFLOW", "UNKNOWN"}
        UNKNOWN if f does not accept higher precision and is not homogeneous.
    reason : str
        One sentence.
    format : str
        The working precision.
    nonfinite : int
        The number of results that are infinite or NaN, but finite and representable in higher
        precision.
    first : tuple of int or None
        The index of the first of these, preceded by the position of the output if there are
        several.
    homogeneous : tuple of int
        The inputs in which f is homogeneous; -1 for all together.
    argument : int or None
        The input whose scaling by a power of two gave the smallest error; -1 for all together.
    exponent : int or None
        The exponent of that power of two.
    error, rescaled_error : float
        The root mean square error, in units of the expected rounding error, without and with the
        scaling.
    allowed : float
        The largest error that rounding explains.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> found = probes.range(lambda x: np.sqrt(np.sum(x * x)), np.full(2, 1e20, np.float32))
    >>> found.kind, bool(found), found.nonfinite
    ('OVERFLOW', False, 1)
    """

    kind: str
    reason: str
    format: str
    nonfinite: int
    first: tuple[int, ...] | None
    homogeneous: tuple[int, ...]
    argument: int | None
    exponent: int | None
    error: float
    rescaled_error: float
    allowed: float

    def __bool__(self) -> bool:
        """Return True if nothing was lost."""
        return self.kind == "FITS"

    def __str__(self) -> str:
        """Return the verdict and the reason."""
        return f"{self.kind}: {self.reason}"

    def _contents(self) -> dict[str, Any]:
        return super()._contents() | {"passed": bool(self)}


def find_range_loss(f: Callable[..., Any], inputs: Any) -> Range:
    """Compare results with higher precision, unscaled and rescaled by powers of two."""
    probed = ProbedFunction(f, inputs)
    evidence, plain = probed.evidence, probed.result
    if evidence.reference is not None:
        exact, unit = evidence.reference, probed.noise_level
    else:
        rescaled_result = _elsewhere(probed)
        if rescaled_result is None:
            return _unknown(probed)
        exact, unit = rescaled_result, result_roundoffs(rescaled_result, evidence.roundoff)
    numbers, reference = plain.numbers(np.float64), exact.numbers(np.longdouble)
    largest = plain.repeat_each(np.array([_limit(x, evidence.form) for x in plain.arrays]))
    fits = np.isfinite(reference) & (np.abs(reference) <= largest)
    lost = fits & ~np.isfinite(numbers)
    nonfinite = int(lost.sum())
    first = _index(int(np.argmax(lost)), plain) if nonfinite else None

    def error_of(result: Result) -> float:
        return relative_norms(plain, np.where(fits, difference(result, exact), 0.0), unit)[0]

    error = error_of(plain)
    best: tuple[float, int, int] | None = None
    homogeneous = []
    for which, chosen in _arguments(probed):
        degrees = _law(probed, chosen)[0]
        if degrees is None:
            continue
        homogeneous.append(which)
        if not nonfinite and error <= evidence.allowed:
            continue
        for k in _exponents(probed, chosen):
            result = unscaled(probed.implementation(scaled(probed.inputs, chosen, k)), degrees, k)
            if comparable(result, exact):
                size = error_of(result)
                if best is None or size < best[0]:
                    best = size, which, k
    # An infinite error falls to any finite one, so the limit applies.
    least = error / _FALLS if error < math.inf else evidence.allowed
    helped = best is not None and best[0] <= least
    rescaled, argument, exponent = best if best and helped else (error, None, None)
    what = "all inputs" if argument in (-1, None) else f"input {probed.nest.titles[argument]}"
    kind, reason = _classify(
        *(evidence.form, nonfinite, numbers.size, first, error, rescaled, what, exponent)
    )
    beyond = int(np.sum(np.isfinite(reference) & ~fits))
    if beyond:
        reason += f"; {beyond} of {numbers.size} results are themselves too large for it"
    endless = int(np.sum(~np.isfinite(reference)))
    if endless:
        reason += f"; {endless} of {numbers.size} are not finite in higher precision, either"
    owners = (*probed.nest.owners, -1)  # -1 is all inputs
    return Range(
        *(kind, reason, evidence.form, nonfinite, first),
        tuple(dict.fromkeys(owners[which] for which in homogeneous)),
        None if argument is None else owners[argument],
        *(exponent, error, rescaled, evidence.allowed),
    )


def _classify(
    form: str,
    nonfinite: int,
    size: int,
    first: tuple[int, ...] | None,
    error: float,
    rescaled: float,
    what: str,
    exponent: int | None,
) -> tuple[str, str]:
    if not nonfinite and exponent is None:
        return "FITS", f"no overflow or underflow in {form} (error {as_multiple(error)})"
    kind = "UNDERFLOW" if exponent is not None and exponent > 0 else "OVERFLOW"
    reasons = []
    if nonfinite:
        reasons.append(
            f"{nonfinite} of {size} results are not finite although they fit {form}, "
            f"first at index {first}"
        )
    if exponent is not None:
        reasons.append(
            f"with {what} times 2**{exponent} the error falls from {brief(error)} to "
            f"{as_multiple(rescaled)}"
        )
    return kind, "; ".join(reasons)


def _unknown(probed: ProbedFunction) -> Range:
    reason = "f does not run in higher precision and is not homogeneous: losses would not be seen"
    nan = math.nan
    form, allowed = probed.evidence.form, probed.evidence.allowed
    return Range("UNKNOWN", reason, form, 0, None, (), None, None, nan, nan, allowed)


def _limit(x: NDArray, form: str) -> float:
    """Return the largest finite number of a result's dtype and of the format."""
    if x.dtype.kind not in "fc":
        return math.inf
    return min(float(np.finfo(x.dtype).max), FORMATS[form].largest)


def _index(position: int, result: Result) -> tuple[int, ...]:
    output, index = result.locate(position)
    return (output, *index) if len(result.arrays) > 1 else index


def _arguments(probed: ProbedFunction) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each input that can be scaled, and all of them together as -1."""
    chosen = tuple(
        k
        for k, x in enumerate(probed.inputs)
        if is_perturbable(x) and x.any() and np.isfinite(np.abs(x).max())
    )
    for k in chosen:
        yield k, (k,)
    if len(chosen) > 1:
        yield -1, chosen


def _exponents(probed: ProbedFunction, chosen: tuple[int, ...]) -> list[int]:
    """Return exponents that scale the largest number to about 1, far above and far below."""
    to_one = _to_one(probed, chosen)
    far = -FORMATS[probed.evidence.form].lowest // 4
    return sorted({k for k in (to_one, to_one + far, to_one - far) if k}, key=abs)


def _to_one(probed: ProbedFunction, chosen: tuple[int, ...]) -> int:
    largest = max(float(np.abs(probed.inputs[k]).max().astype(float)) for k in chosen)
    return -math.frexp(largest)[1]


def _law(probed: ProbedFunction, chosen: tuple[int, ...]) -> tuple[list[float] | None, Result]:
    """
    Return each output's degree of homogeneity, or None, and the results of f by that law.

    Without higher precision they are computed at inputs scaled to about 1.
    """
    if probed.evidence.reference is not None:
        inputs, here = to_higher_precision(probed.inputs), probed.evidence.reference
        return homogeneity_degrees(here, probed.implementation(scaled(inputs, chosen, STEP))), here
    k = _to_one(probed, chosen)
    here, there = (
        probed.implementation(scaled(probed.inputs, chosen, shift)) for shift in (k, k + STEP)
    )
    degrees = None if here.error else homogeneity_degrees(here, there)
    return degrees, here if degrees is None else unscaled(here, degrees, k)


def _elsewhere(probed: ProbedFunction) -> Result | None:
    """Return the results by a law of homogeneity, or None."""
    laws = (_law(probed, chosen) for _, chosen in _arguments(probed))
    return next(
        (result for degrees, result in laws if degrees and result.forms == probed.result.forms),
        None,
    )
