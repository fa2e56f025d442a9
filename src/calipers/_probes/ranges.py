"""Find overflow and underflow of intermediate results: range."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.dtypes import FORMATS
from .._core.protocols import NDArray
from .._core.report import Report, brief
from .._diagnose.arrays import Result, comparable, is_perturbable, to_higher_precision
from .._diagnose.noise_level import as_multiple, difference, result_roundoffs, worst_error_norms
from .._diagnose.range_loss import STEP, homogeneity_degrees, scaled, unscaled
from .trials import ProbedFunction

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
    e, plain = probed.evidence, probed.result
    laws = [(*group, *_law(probed, group[1])) for group in _arguments(probed)]
    if e.reference is not None:
        exact, unit = e.reference, probed.evidence.steady_scale
    else:
        by_law = (y for *_, degrees, y in laws if degrees and y.forms == plain.forms)
        rescaled_result = next(by_law, None)
        if rescaled_result is None:
            reason = "f does not run in higher precision and is not homogeneous: losses would not "
            nan = math.nan
            unknown = "UNKNOWN", reason + "be seen", e.form, 0, None, (), None, None, nan, nan
            return Range(*unknown, e.allowed)
        exact, unit = rescaled_result, result_roundoffs(rescaled_result, e.roundoff)
    numbers, reference = plain.numbers(np.float64), exact.numbers(np.longdouble)
    largest = plain.repeat_each(np.array([_limit(x, e.form) for x in plain.arrays]))
    fits = np.isfinite(reference) & (np.abs(reference) <= largest)
    lost = fits & ~np.isfinite(numbers)
    nonfinite = int(lost.sum())

    def error_of(result: Result) -> float:
        off = np.where(fits, difference(result, exact), 0.0)
        size = worst_error_norms(plain, off, unit)
        return math.inf if size.broken else size.robust

    error = error_of(plain)
    tried: list[tuple[float, int | None, int | None]] = []
    for which, chosen, degrees, _ in laws if nonfinite or error > e.allowed else ():
        if degrees is None:
            continue
        for k in _exponents(probed, chosen):
            result = unscaled(probed.implementation(scaled(probed.inputs, chosen, k)), degrees, k)
            if comparable(result, exact):
                tried.append((error_of(result), which, k))
    best = min(tried, key=lambda item: item[0], default=(math.inf, None, None))
    # An infinite error falls to any finite one, so the limit applies.
    least = error / _FALLS if error < math.inf else e.allowed
    rescaled, argument, exponent = best if best[0] <= least else (error, None, None)
    kind, reasons, first = "FITS", [], None
    if nonfinite or exponent is not None:
        kind = "UNDERFLOW" if exponent is not None and exponent > 0 else "OVERFLOW"
    else:
        reasons.append(f"no overflow or underflow in {e.form} (error {as_multiple(error)})")
    if nonfinite:
        first = _index(int(np.argmax(lost)), plain)
        text = f"{nonfinite} of {numbers.size} results are not finite although they fit {e.form}, "
        reasons.append(f"{text}first at index {first}")
    if exponent is not None:
        what = "all inputs" if argument in (-1, None) else f"input {probed.nest.titles[argument]}"
        text = f"with {what} times 2**{exponent} the error falls from {brief(error)} to "
        reasons.append(text + as_multiple(rescaled))
    beyond = int(np.sum(np.isfinite(reference) & ~fits))
    if beyond:
        reasons.append(f"{beyond} of {numbers.size} results are themselves too large for it")
    endless = int(np.sum(~np.isfinite(reference)))
    if endless:
        text = f"{endless} of {numbers.size} are not finite in higher precision, either"
        reasons.append(text)
    owners = (*probed.nest.owners, -1)  # -1 is all inputs
    by_power = [owners[which] for which, _, degrees, _ in laws if degrees is not None]
    owner = None if argument is None else owners[argument]
    fields = kind, "; ".join(reasons), e.form, nonfinite, first
    homogeneous = tuple(dict.fromkeys(by_power))
    return Range(*fields, homogeneous, owner, exponent, error, rescaled, e.allowed)


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
