"""Distinguish rounding from a bug without a reference in higher precision."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..._core.dtypes import FORMATS, ROUNDOFF
from ..._core.protocols import NDArray
from ..callables import BudgetError, Result, comparable
from ..evidence import Evidence
from ..inputs import is_perturbable, perturbable
from ..noise_level import N_PERTURBATIONS, difference, error_norms
from ..verdict import (
    ALONE,
    COARSEST,
    LARGE_DIFFERENCE,
    RANGE,
    STEADY,
    SUSPECT,
    UNSTABLE,
    Verdict,
    as_multiple,
)
from .overflow_underflow import DOUBLINGS, scaled

MOSTLY_UNCHANGED = 0.9  # of the results beyond rounding
_LITTLE = 4.0  # ulp: a perturbation smaller than lost digits


def unchanged_share(e: Evidence, name: str, lost: NDArray) -> float:
    """Return the share of some results of a side that stay as they are; 0 if there are none."""
    if not lost.any():
        return 0.0
    numbers, unchanged = e.results[name].numbers(np.float64), lost.copy()
    for k in range(2):
        y = e.implementations[name](e.perturb(_LITTLE * e.roundoff, e.seed + 870 + k, wide=False))
        if not comparable(y, e.results[name]):
            return 0.0
        unchanged &= y.numbers(np.float64) == numbers
    return float(np.count_nonzero(unchanged) / np.count_nonzero(lost))


def is_constant(e: Evidence, name: str, lost: NDArray) -> bool:
    """Return True if all lost results are equal: a constant does not change either."""
    return np.unique(e.results[name].numbers(np.float64)[lost]).size < 2


# Times that a difference of lost digits grows by, at least, from float64 to float32, where it is
# 2**29 mostly; and where float32 has no digits left to lose, of the size of a result.
_GROWN, _LOST, _LEFT = 2.0**22, 2.0**12, 4.0
_MOST = 0.9  # of the results beyond rounding
_CHANCES = 3  # further calls, to see a typical rounding error in one
_ELSEWHERE = 2.0**-6  # of an input: a move that draws anew what float32 loses
_HALVINGS = 5  # of inputs for which float32 has nothing finite

# Formats below, of real numbers and of complex ones.
_LOWER_FORMATS = {"float64": ("float32", "complex64"), "float32": ("float16", "complex64")}
# Number of 1-ulp perturbations, and of finite results that suffice to measure their noise.
_DRAWN, _ENOUGH_FINITE = 40, 3
_COME_BACK, _MOSTLY = 0.5, 0.75  # of the results that are not finite: elsewhere, and here
_NEAR_PERTURBATION = 2.0**-10  # of an input: near, and far from all that rounding does


def grows_in_float32(e: Evidence) -> Verdict | None:
    """Recognise lost digits of float64 without a wider format: float32 loses more, as a bug is not.

    What is beyond rounding there, too, is by far larger than here.
    """
    if e.form != "float64" or e.wide is not None or e.eta_difference.broken:
        return None
    largest = _in_float32(e)
    if largest is None:
        return None
    distance, there, left = largest
    there[np.isinf(there)] = 0.0
    margin = e.allowed * e.scale
    beyond = np.abs(e.difference) > margin
    # Roundoff of 1 is no measure where a result vanishes in float32.
    beyond &= (left > 0) | (distance > e.allowed * e.roundoff * e.natural_size)
    far = distance > ALONE * margin
    if (beyond & far).any():  # else chance decides of those that are hardly beyond
        beyond &= far
    gained = ROUNDOFF["float32"] / e.roundoff
    sizes = np.abs(e.result_f.numbers(np.float64))
    grown = beyond & (there > _GROWN * distance) & (there > gained * margin)
    lost = beyond & (there > _LOST * distance) & (there > gained * margin)
    lost &= (there > sizes / _LEFT) & (there < _LEFT * sizes)
    least = max(1, _MOST * np.count_nonzero(beyond))
    if (beyond & ~(grown | lost) & (distance > LARGE_DIFFERENCE * sizes)).any():
        return None
    if np.count_nonzero(grown) < least:
        grown |= lost
        # What is left of a result is no measure of digits; but those lost would be others nearby.
        if np.count_nonzero(grown) < least or e.least_similarity(2, e.seed + 850) > STEADY:
            return None
    times = float(np.median(there[grown] / distance[grown]))
    return Verdict(
        UNSTABLE,
        f"f and g differ by {as_multiple(e.eta_difference.rms, e.allowed)}, and by {times:.2g} "
        "times as "
        f"much in float32: one of them loses digits",
    )


def _in_float32(e: Evidence) -> NDArray | None:
    """
    Return how far results are apart about here at most, and in float32, and the less of both there.

    What is not finite there is no measure: lost digits have one for smaller inputs.
    """
    largest = _farthest(e, _about(e))
    for k in range(1, _HALVINGS):
        if largest is None or not np.isinf(largest[1]).any():
            break
        smaller = _farthest(e, [scaled(e.inputs, tuple(perturbable(e.inputs)), -k)])
        largest = None if smaller is None else np.where(np.isinf(largest[1]), smaller, largest)
    return largest


def _about(e: Evidence) -> Iterator[Sequence[Any]]:
    """Give the inputs, and some near them: those alone may be such that two functions are equal."""
    yield e.inputs
    for k in range(_CHANCES):
        yield e.perturb(_ELSEWHERE, e.seed + 880 + k, wide=False)


def _farthest(e: Evidence, points: Iterable[Sequence[Any]]) -> NDArray | None:
    """Return the largest differences at inputs, those in float32, and the less of results there."""
    largest = np.zeros((3, e.difference.size))
    for x in points:
        pairs = [(e.f(inputs), e.g(inputs)) for inputs in (x, _narrowed(e, x))]
        if not comparable(e.result_f, *pairs[0], *pairs[1]):
            return None
        differences = [difference(*pair) for pair in pairs]
        differences[1][np.isnan(differences[1])] = np.inf
        results = [y.numbers(np.float64) for y in pairs[1]]
        largest = np.fmax(largest, np.abs([*differences, np.fmin(*np.abs(results))]))
    return largest


def outside_by_rounding(e: Evidence) -> Verdict | None:
    """
    Recognise results that are not finite by rounding, where nothing wider can be asked.

    They come and go with perturbations of a few ulps, and f and g agree where they are finite,
    within the effect of such perturbations. Where a function is undefined they remain.
    """
    if e.reference is not None or not e.can_perturb or not _alone(e.result_f, e.result_g).any():
        return None
    with suppress(BudgetError):
        here = _drawn_anew(e, e.inputs, e.seed + 700)
        if here is None or here.back < _MOSTLY:
            return None
        if not e.is_rounding(error_norms(here.mean, here.noise)):  # a few may stand still by chance
            return None
        if _stay_nonfinite(e, here.left):
            return None
        k = int(np.argmax(here.alone))
        name, other = ("g", "f") if _finite(e.result_f)[k] else ("f", "g")
        y, r = (e.results[key].numbers(np.float64)[k] for key in (name, other))
        text = f"{name} returns {y} where {other} returns {r:.3g}, but not after perturbations of "
        text += "a few ulps: an intermediate value is rounded out of a function's domain"
        far = e.perturb(2.0**-COARSEST, e.seed + 800, wide=False)
        there = _drawn_anew(e, far, e.seed + 800)
        if there is None or there.back < _COME_BACK:
            text += f"; after large perturbations it still does: {other} is defined where "
            return Verdict(SUSPECT, f"{text}{name} is not")
        return Verdict(RANGE, f"{text}, for example the square root of -1e-16")
    return None


def _finite(result: Result) -> NDArray:
    finite: NDArray = np.isfinite(result.numbers(np.float64))
    return finite


def _alone(f: Result, g: Result) -> NDArray:
    """Tell which results are finite on one side alone."""
    return _finite(f) ^ _finite(g)


class _Drawn(NamedTuple):
    """Statistics of the results at inputs perturbed by a few ulps."""

    alone: NDArray  # which of them were finite on one side alone, where nothing is moved
    left: NDArray  # and which of these always are
    mean: NDArray  # of how far the sides are apart
    noise: NDArray  # its standard deviation; for results that come and go, the largest one

    @property
    def back(self) -> float:
        """The share of those that do not stay so."""
        count = np.count_nonzero(self.alone)
        return 1 - np.count_nonzero(self.left) / count if count else 1.0


def _drawn_anew(e: Evidence, inputs: Sequence[Any], seed: int) -> _Drawn | None:
    """Perturb the inputs by a few ulps until enough results are finite, or none will be."""
    f, g = e.f(inputs), e.g(inputs)
    if not comparable(f, g, e.result_f):
        return None
    alone, draws = _alone(f, g), []
    times = np.zeros(alone.size, int)
    for y, r in e.nearby(inputs, e.roundoff, seed, _DRAWN):
        draws.append([y - r, y, r])
        times += np.isfinite(y - r)
        enough = times[alone] >= _ENOUGH_FINITE
        hopeless = len(draws) > _DRAWN / 2 and not times[alone].any()
        if len(draws) > N_PERTURBATIONS and (enough.all() or hopeless):
            break
    if not draws:
        return None
    drawn = np.array(draws)
    finite = np.isfinite(drawn[:, :1])
    count = np.maximum(1, times)
    drawn = np.where(finite, drawn, 0.0)
    mean = drawn.sum(axis=0) / count
    squares = np.square(np.where(finite, drawn - mean, 0.0)).sum(axis=0)
    noise = np.sqrt(squares / count).max(axis=0)
    come_and_go = times < len(draws)
    noise[come_and_go] = noise.max(where=come_and_go, initial=0.0)
    noise = np.hypot(noise, e.roundoff * np.abs(mean[1]))
    return _Drawn(alone, alone & (times == 0), mean[0], noise)


def _stay_nonfinite(e: Evidence, left: NDArray) -> bool:
    """Return True if some results are finite in one of f and g at larger perturbations as well."""
    for k in range(N_PERTURBATIONS):
        if not left.any():
            break
        f, g = e.evaluate_perturbed(_NEAR_PERTURBATION, e.seed + 750 + k)
        if not comparable(f, g, e.result_f):
            break
        left = left & _alone(f, g)
    return bool(left.any())


def overflow_alone(e: Evidence) -> Verdict | None:
    """
    Recognise results that are not finite on one side, where nothing wider can be asked.

    What overflows is finite for smaller inputs, and of these not in a narrower format; so is what
    underflows, for larger ones. What is not defined is so in both.
    """
    finite = {name: np.isfinite(y.numbers(np.float64)) for name, y in e.results.items()}
    both, alone = finite["f"] & finite["g"], finite["f"] ^ finite["g"]
    names = [name for name, there in finite.items() if (alone & ~there).any()]
    if e.reference is not None or e.form not in _LOWER_FORMATS or len(names) != 1:
        return None
    if error_norms(e.difference[both], e.scale[both]).robust > e.allowed:
        return None
    name, other = names[0], "g" if names[0] == "f" else "f"
    lower = _LOWER_FORMATS[e.form][0]
    with suppress(BudgetError):
        for size, powers in _other_sizes(e, math.frexp(FORMATS[lower].largest)[1]).items():
            left = alone.copy()
            for power in powers:
                left &= ~_overflows(e, name, other, power)
                if not left.any():
                    k = int(np.argmax(alone))
                    y, r = (e.results[key].numbers(np.float64)[k] for key in (name, other))
                    return Verdict(
                        RANGE,
                        f"{name} returns {y} where {other} returns {r:.3g}; for {size} inputs "
                        f"they agree, and there {name} is not finite in {lower}: an "
                        f"intermediate value overflows or underflows",
                    )
    return None


def _other_sizes(e: Evidence, most: int) -> dict[str, list[int]]:
    """Return powers of two to multiply inputs by, for a format that has numbers below 2**most."""
    sizes = [np.abs(e.inputs[k]) for k in perturbable(e.inputs)]
    top = max((float(x.max(where=np.isfinite(x), initial=0)) for x in sizes), default=0.0)
    # Powers of the largest numbers that fit leave the range; exponentials do so of lesser ones.
    near, exponent = 3 * most // 4, math.frexp(top)[1]
    return {
        "smaller": [min(-1, near - exponent), *(-k for k in DOUBLINGS)],
        "larger": [max(1, -near - exponent), *DOUBLINGS],
    }


def _overflows(e: Evidence, name: str, other: str, power: int) -> NDArray:
    """Tell which results are alike at inputs times 2**power, and lost in a narrower format."""
    x = scaled(e.inputs, tuple(perturbable(e.inputs)), power)
    narrow = _narrowed(e, x)
    y, r = e.implementations[name](x), e.implementations[other](x)
    there, other_there = e.implementations[name](narrow), e.implementations[other](narrow)
    if not comparable(y, r, there, other_there, e.result_f):
        return np.zeros(e.difference.size, bool)
    sizes = np.abs(r.numbers(np.float64))
    alike = np.isfinite(sizes) & (np.abs(difference(y, r)) <= LARGE_DIFFERENCE * sizes)
    finite, finite_other = (np.isfinite(a.numbers(np.float64)) for a in (there, other_there))
    overflow: NDArray = alike & ~finite & finite_other
    return overflow


def _narrowed(e: Evidence, inputs: Sequence[Any]) -> list[Any]:
    kinds = _LOWER_FORMATS[e.form]
    return [a.astype(kinds[a.dtype.kind == "c"]) if is_perturbable(a) else a for a in inputs]


def stays_in_steps(e: Evidence) -> Verdict | None:
    """
    Recognise lost digits without a reference, by steps no larger than an ulp of 1.

    The results of one implementation do not change under 1-ulp perturbations, the other's do.
    """
    if e.reference is not None or e.eta_difference.broken:
        return None
    distance = np.abs(e.difference)
    lost = distance > ALONE * e.allowed * e.scale
    if not lost.any() or distance.max() > e.allowed * e.roundoff * e.natural_size:
        return None
    shares = {name: unchanged_share(e, name, lost) for name in e.results}
    name, other = sorted(shares, key=shares.__getitem__, reverse=True)
    alone = shares[name] >= MOSTLY_UNCHANGED and shares[other] <= 1 - MOSTLY_UNCHANGED
    if not alone or is_constant(e, name, lost):
        return None
    return Verdict(
        UNSTABLE,
        f"f and g differ by {as_multiple(e.eta_difference.rms)}, and {name} does not change when "
        "its "
        f"inputs change by 1 ulp, unlike {other}: its algorithm loses digits",
    )
