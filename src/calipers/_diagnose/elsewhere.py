"""Compare f and g at other inputs: ties, integers, jumps, parts of a batch, and memory layouts."""

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._compare.patterns import arrangement
from .._compare.text import differing
from .._core.protocols import NDArray
from .arrays import (
    Result,
    comparable,
    contiguous,
    layouts,
    perturbable,
    slices,
    to_higher_precision,
)
from .callables import BudgetError
from .higher_precision import Differences
from .noise_level import Perturbations, difference, error_norms, finite_rms

# Ties


@dataclass(frozen=True)
class Elsewhere:
    """Differences that are the same in higher precision, or are not there at perturbed inputs."""

    count: str  # "3 of 60 results differ"
    note: str  # where they are not there; "" if they are


def agreement_elsewhere(e: Differences) -> Elsewhere | None:
    """
    Recognise differences that are not there nearby, and in higher precision the same.

    A tie that rounding decides is decided differently in a different precision; a tie by the
    function itself, as of numbers with sum 1, remains one.
    """
    large = _beyond(e, e.difference, e.result_f)
    wide = len(e.wide_results) == 2
    if wide and large.any():
        f, g = e.wide_results["f"], e.wide_results["g"]
        there, least = difference(f, g), e.thresholds.large
        large |= _beyond(e, there, f)
        same = large & (np.abs(e.difference - there) <= least * np.abs(there))
        if np.count_nonzero(same) < e.thresholds.explained * np.count_nonzero(large):
            return None
        large = same
    if not large.any() or not e.can_perturb or e.error_difference.broken:
        return None
    if not wide and e.reference is not None:
        names = e.wide_results or e.results
        off = (_beyond(e, e.deviation(e.results[name]), e.result_f).any() for name in names)
        if all(off):  # rounding decides, since higher precision changes the results
            return None
    count = differing(int(np.count_nonzero(large)), large.size, "result")
    count += ", by as much in higher precision" if wide else ""
    far, near = e.thresholds.far, e.thresholds.redraw * e.roundoff
    # Farther away, one may be another function: one that is right for one turn, say.
    points: list[tuple[bool, tuple[float, ...]]]
    points = [(False, (far,)), (True, (far,)), (False, (near,))]
    if not wide:
        points = [(False, (near, far)), (True, (near, far))]
    for zeros, deltas in points:
        if all(_agree(e, delta, zeros, wide) for delta in deltas):
            return Elsewhere(count, f"at perturbed inputs{' (zeros as well)' if zeros else ''}")
    # Constants that a function amplifies differ as little in both precisions.
    least = e.thresholds.large * finite_rms(e.result_f.numbers(np.float64))
    return Elsewhere(count, "") if wide and np.abs(e.difference[large]).min() > least else None


def _agree(e: Differences, delta: float, zeros: bool, wide: bool) -> bool:
    for k in range(3):  # chance may make f and g agree at one
        f, g = e.evaluate_perturbed(delta, e.seed + 820 + k, zeros=zeros, wide=wide)
        if not comparable(f, g):
            return False
        d = difference(f, g)
        if not np.isfinite(d).all() or _beyond(e, d, f).any():
            return False
    return True


def _beyond(e: Differences, d: NDArray, result: Result) -> NDArray:
    """Return a mask of differences above the limit of the result, and of the RMS of its array."""
    sizes = np.abs(result.numbers(np.float64))
    typical = result.repeat_each(np.array([finite_rms(part) for part in result.split(sizes)]))
    beyond: NDArray = np.abs(d) > e.allowed * e.roundoff * np.maximum(sizes, typical)
    return beyond


class Integers:
    """Differences of integers among the results, which no rounding causes but at ties."""

    def __init__(self, e: Differences) -> None:
        self._e = e
        here = _integer_differences(e.result_f, e.result_g)
        assert here is not None
        self._here = here
        self.differing = int(np.count_nonzero(self._here))

    @property
    def text(self) -> str:
        """How many integers differ: "3 of 60 integers differ"."""
        return differing(self.differing, self._here.size, "integer")

    @cached_property
    def same_in_higher_precision(self) -> bool:
        """Whether they differ by as much in higher precision, or inputs are exact anyhow."""
        e = self._e
        if not perturbable(e.inputs):
            return True
        if len(e.wide_results) < 2:
            return False
        there = _integer_differences(e.wide_results["f"], e.wide_results["g"])
        return there is not None and np.array_equal(self._here, there)

    @cached_property
    def at_ties(self) -> str | None:
        """How no integer differs at perturbed inputs, zeros and integers among them if need be."""
        e: Differences | None = self._e
        if not perturbable(self._e.inputs):
            with suppress(BudgetError):
                e = self._e.with_integers_as("float64")
        if e is None:
            return None
        for zeros in (False, True):
            there = e.evaluate_perturbed(e.thresholds.far, e.seed + 820, zeros=zeros)
            changes = _integer_differences(*there)
            if changes is None or changes.any():
                continue
            # Where no integers are between, as of leap years, both agree on that.
            if _vary(*there) or not _vary(e.result_f, e.result_g):
                return f"at perturbed inputs{' (zeros as well)' if zeros else ''}"
        return None


def _vary(*results: Result) -> bool:
    """Return True if an integer result is not constant."""
    integers = (x for y in results for x in y.arrays if x.dtype.kind in "biu" and x.size)
    return any(bool((x != x.flat[0]).any()) for x in integers)


def _integer_differences(a: Result, b: Result) -> NDArray | None:
    """Return differences of the integers among results, which may wrap around, if any can."""
    if not comparable(a, b):
        return None
    pairs = [
        (x, y)
        for x, y in zip(a.arrays, b.arrays, strict=True)
        if x.dtype.kind in "biu" and y.dtype.kind in "biu"
    ]
    differences = [np.ravel(x.astype(np.int64) - y.astype(np.int64)) for x, y in pairs]
    return np.concatenate([np.empty(0, np.int64), *differences])


def jumps(e: Differences) -> str | None:
    """Say how many results are off, if the reference jumps as far when it is perturbed by ulps."""
    source, t = e.reference_source, e.thresholds
    if source is None or any(size.broken for size in e.errors.values()):
        return None
    margin = e.allowed * e.scale
    off = [difference(y, source.result) for y in e.results.values()]
    outliers = np.any([np.abs(d) > margin for d in off], axis=0)
    n = int(np.count_nonzero(outliers))
    if not n or (2 * n > outliers.size and e.condition <= t.ill_conditioned):
        return None
    low = high = source.result.numbers(np.float64)
    for k in range(t.flips):
        x = e.perturb(e.allowed * e.roundoff, e.seed + 500 + k, wide=True)
        result = source.implementation(x)
        if comparable(result, source.result):
            low = np.minimum(low, result.numbers(np.float64))
            high = np.maximum(high, result.numbers(np.float64))
    # An envelope that is wide everywhere covers anything.
    covered = outliers & (high - low > 4 * margin)
    for y in e.results.values():
        numbers = y.numbers(np.float64)
        covered &= (numbers >= low - margin) & (numbers <= high + margin)
    explained = np.count_nonzero(covered) >= t.explained * n
    return differing(n, outliers.size, "result") if explained else None


@dataclass(frozen=True)
class Arrangements:
    """Results for parts of the batch and other memory layouts."""

    mixed: str | None = None  # how rows of one implementation depend on the batch
    equal: str | None = None  # the layout or part in which f and g are equal to the last bit


def arrangements(e: Differences) -> Arrangements:
    """Compare f and g for parts of the batch and other memory layouts."""
    equal = None
    for name, part, inputs in slices(e.inputs, e.batch):
        f, g = e.f(inputs), e.g(inputs)
        if f.error is not None or g.error is not None:
            continue
        of_f, of_g = _rows(e.result_f, f, part), _rows(e.result_g, g, part)
        if of_f is None or of_g is None:  # results without rows: sums of fewer terms
            continue
        mixes = [_mixes(e, of_f, f, part), _mixes(e, of_g, g, part)]
        if mixes[0] != mixes[1]:
            who = "f" if mixes[0] else "g"
            text = f"{who} returns other values for a row in {name} than in the whole batch"
            return Arrangements(mixed=text)
        if all(mixes):  # it is no batch
            break
        if equal is None and f.bits() == g.bits() and _certain(difference(of_f, of_g), f):
            equal = f"in {name}"
    with suppress(BudgetError):
        for name, inputs in layouts(e.inputs) if equal is None else ():
            f, g = e.f(inputs), e.g(inputs)
            if f.error is None and f.bits() == g.bits() and _certain(e.difference, f):
                return Arrangements(equal=name)
    return Arrangements(equal=equal)


def ignores_strides(e: Differences) -> str | None:
    """Return the implementation that is right only for arrays without gaps."""
    inputs = contiguous(e.inputs)
    wrong = [name for name, size in e.errors.items() if not e.is_rounding(size)]
    for name in wrong if inputs is not None else ():
        other = e.implementations[name](inputs or ())
        if comparable(other, e.result_f) and e.is_rounding(e.norms(e.deviation(other))):
            return name
    return None


def _certain(unequal: NDArray, part: Result) -> bool:
    """Return True if so many equal results are no accident, given the fraction that differs."""
    share = np.count_nonzero(unequal) / max(1, unequal.size)
    return bool((1 - share) ** sum(x.size for x in part.arrays) <= 0.01)


def _rows(whole: Result, alone: Result, part: slice) -> Result | None:
    """Return rows of the results of all; None if they are not comparable to those of some."""
    pairs = list(zip(whole.arrays, alone.arrays, strict=False))
    if not all(a.ndim and a[part].shape == b.shape for a, b in pairs):
        return None
    return Result(tuple(a[part] for a, _ in pairs))


def _mixes(e: Differences, among: Result, alone: Result, part: slice) -> bool:
    """Return True if a part of a batch has different results when computed alone."""
    scale = e.scale
    if e.reference is not None:  # a result that has lost its digits may have lost others alone
        scale = np.maximum.reduce([scale, *(np.abs(e.deviation(y)) for y in e.results.values())])
    pairs = zip(among.arrays, alone.arrays, strict=False)
    for whole, (a, b), units in zip(
        e.result_f.arrays, pairs, e.result_f.split(scale), strict=False
    ):
        if not whole.size:
            continue
        unit = units.reshape(whole.shape[0], -1)[part].reshape(-1)
        size = error_norms(difference(Result((a,)), Result((b,))), np.ascontiguousarray(unit))
        if size.broken or size.robust > 2 * e.allowed:
            return True
    return False


def other_numbers(e: Differences) -> str | None:
    """Say that g returns the numbers of f in another order, or those of a transposed input."""
    f, g = ([*y.arrays] for y in e.results.values())
    if len(f) == len(g) == 1 and min(len(np.unique(x)) for x in (f[0], g[0])) > e.thresholds.few:
        unit = e.allowed * e.roundoff * finite_rms(e.result_f.numbers(np.float64))
        order = arrangement(f[0], g[0], lambda a, b: bool(np.all(np.abs(a - b) <= unit)), None)
        if order is not None:
            text = order.replace("actual", "f(...)").replace("expected", "g(...)")
            return f"their results are {text}, within rounding"
    for k in perturbable(e.inputs) if comparable(e.result_f, e.result_g) else ():
        if e.inputs[k].ndim < 2 or e.f.budget.remaining < 2:
            continue
        turned = [*e.inputs[:k], e.inputs[k].swapaxes(-1, -2), *e.inputs[k + 1 :]]
        there = e.f(turned)
        if comparable(there, e.result_g) and e.is_rounding(e.norms(difference(there, e.result_g))):
            text = f"f of the transposed input {e.title(k)} equals g within rounding: one takes "
            return text + "rows where the other takes columns"
    return None


# Integer inputs


def is_smooth(e: Differences, positions: list[int]) -> bool:
    """Return True if results change smoothly with these inputs; labels and lengths make jumps."""
    source, above = e.reference_source, e.thresholds.above
    assert source is not None
    perturb, sizes = Perturbations([e.inputs[k] for k in positions]), []
    for delta in (e.roundoff / above, e.roundoff):
        changes = []
        for k in range(e.thresholds.perturbations):
            x = to_higher_precision(e.inputs)
            perturbed = perturb(delta, e.seed + 1200 + k, wide=True)
            for position, value in zip(positions, perturbed, strict=True):
                x[position] = value
            result = source.implementation(x)
            if not comparable(result, source.result):
                return False
            changes.append(finite_rms(difference(result, source.result)))
        sizes.append(finite_rms(np.array(changes)))
    return bool(sizes[1] > above / 2 * sizes[0] > 0)
