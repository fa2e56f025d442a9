"""Compare f and g at other inputs: ties, integers, jumps, parts of a batch, and memory layouts."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._compare.patterns import arrangement
from .._compare.text import differing
from .._core.protocols import NDArray
from .callables import BudgetError
from .inputs import contiguous, layouts, perturbable, slices, to_higher_precision
from .noise_level import Perturbations, difference, error_norms, finite_rms
from .results import Result, comparable
from .verdict import AMPLIFIED, BUG, LAYOUT, RAISES, RANGE, ROUNDING, SUSPECT, Verdict

# Ties


@dataclass(frozen=True)
class Elsewhere:
    """Differences that are the same in higher precision, or are not there at perturbed inputs."""

    count: str  # "3 of 60 results differ"
    note: str  # where they are not there; "" if they are


def agreement_elsewhere(e: Any) -> Elsewhere | None:
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


def _agree(e: Any, delta: float, zeros: bool, wide: bool) -> bool:
    for k in range(3):  # chance may make f and g agree at one
        f, g = e.evaluate_perturbed(delta, e.seed + 820 + k, zeros=zeros, wide=wide)
        if not comparable(f, g):
            return False
        d = difference(f, g)
        if not np.isfinite(d).all() or _beyond(e, d, f).any():
            return False
    return True


def _beyond(e: Any, d: NDArray, result: Result) -> NDArray:
    """Return a mask of differences above the limit of the result, and of the RMS of its array."""
    sizes = np.abs(result.numbers(np.float64))
    typical = result.repeat_each(np.array([finite_rms(part) for part in result.split(sizes)]))
    beyond: NDArray = np.abs(d) > e.allowed * e.roundoff * np.maximum(sizes, typical)
    return beyond


class Integers:
    """Differences of integers among the results, which no rounding causes but at ties."""

    def __init__(self, e: Any) -> None:
        self._e = e
        here = _integer_differences(e.result_f, e.result_g)
        self.differing = int(np.count_nonzero(here)) if here is not None else 0
        self.text = differing(self.differing, here.size, "integer") if here is not None else ""
        self._here = here
        self.alone = bool(e.result_f.integers.all())  # there are no other results

    @cached_property
    def same_in_higher_precision(self) -> bool:
        """Whether they differ by as much in higher precision, or inputs are exact anyhow."""
        e = self._e
        if not perturbable(e.inputs):
            return True
        if len(e.wide_results) < 2 or self._here is None:
            return False
        there = _integer_differences(e.wide_results["f"], e.wide_results["g"])
        return there is not None and np.array_equal(self._here, there)

    @cached_property
    def at_ties(self) -> str | None:
        """How no integer differs at perturbed inputs, zeros and integers among them if need be."""
        e = self._e
        if not perturbable(e.inputs):
            numbers = tuple(
                x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind in "iu" else x
                for x in e.inputs
            )
            with suppress(BudgetError):
                e = replace(e, inputs=numbers, evidence={}, costs={})
                same = all(
                    e.results[name].bits() == y.bits() for name, y in self._e.results.items()
                )
                if not same or not e.can_perturb:
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


class Jumps:
    """
    Results that jump as far as f and g are off, when the reference is perturbed by a few ulps.

    Attributes
    ----------
    count : str
        How many results are off by more than rounding: "3 of 60 results differ".
    explained : bool
        Whether such jumps cover nearly all of these, and all others are within rounding.
    """

    def __init__(self, e: Any) -> None:
        source, t = e.reference_source, e.thresholds
        self.count, self.explained = "", False
        if source is None or any(size.broken for size in e.errors.values()):
            return
        margin = e.allowed * e.scale
        off = [difference(y, source.result) for y in e.results.values()]
        outliers = np.any([np.abs(d) > margin for d in off], axis=0)
        rest = ~outliers
        few = 2 * np.count_nonzero(outliers) <= outliers.size or e.condition > t.ill_conditioned
        if (
            not outliers.any()
            or not few
            or any(
                rest.any() and error_norms(d[rest], e.scale[rest]).robust > e.allowed for d in off
            )
        ):
            return
        values = source.result.numbers(np.float64)
        low, high = values.copy(), values.copy()
        for k in range(t.flips):
            result = source.implementation(
                e.perturb(e.allowed * e.roundoff, e.seed + 500 + k, wide=True)
            )
            if comparable(result, source.result):
                low = np.minimum(low, result.numbers(np.float64))
                high = np.maximum(high, result.numbers(np.float64))
        # An envelope that is wide everywhere covers anything.
        covered = outliers & (high - low > 4 * margin)
        for y in e.results.values():
            numbers = y.numbers(np.float64)
            covered &= (numbers >= low - margin) & (numbers <= high + margin)
        e.evidence["jumps"] = int(np.count_nonzero(covered))
        self.count = differing(int(np.count_nonzero(outliers)), outliers.size, "result")
        self.explained = bool(np.count_nonzero(covered) >= t.explained * np.count_nonzero(outliers))


class Arrangements:
    """
    Results for parts of the batch and other memory layouts.

    Attributes
    ----------
    dependent : str or None
        The implementation whose rows depend on each other, and how that was seen.
    for_this_length : str or None
        The same of one that is right for a batch of this length only.
    equal : str or None
        The layout or part of the batch in which f and g are equal to the last bit.
    """

    def __init__(self, e: Any) -> None:
        self.dependent = self.for_this_length = self.equal = None
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
                if _depends(e, who, part):
                    self.dependent = text
                else:
                    self.for_this_length = text
                return
            if all(mixes):  # it is no batch
                break
            if self.equal is None and f.bits() == g.bits() and _certain(difference(of_f, of_g), f):
                self.equal = f"in {name}"
        with suppress(BudgetError):
            for name, inputs in layouts(e.inputs) if self.equal is None else ():
                f, g = e.f(inputs), e.g(inputs)
                same = f.error is None and g.error is None and f.bits() == g.bits()
                if same and _certain(e.difference, f):
                    self.equal = name
                    return


def ignores_strides(e: Any) -> str | None:
    """Return the implementation that is right only for arrays without gaps."""
    inputs = contiguous(e.inputs)
    for name, before in e.errors.items() if inputs is not None else ():
        assert inputs is not None
        if e.is_rounding(before):
            continue
        other = e.implementations[name](inputs)
        if comparable(other, e.result_f) and e.is_rounding(e.norms(e.deviation(other))):
            return str(name)
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


def _depends(e: Any, who: str, part: slice) -> bool:
    """Return True if rows change when all other rows are replaced by the first one."""
    inputs: Sequence[Any] = list(e.inputs)
    for k in e.batch:
        alike = np.repeat(e.inputs[k][part][:1], len(e.inputs[k]), axis=0)
        alike[part] = e.inputs[k][part]
        inputs = [*inputs[:k], alike, *inputs[k + 1 :]]
    result, whole = e.implementations[who](inputs), e.results[who]
    if not comparable(result, whole):
        return True
    among, there = (Result(tuple(x[part] for x in y.arrays)) for y in (whole, result))
    return _mixes(e, among, there, part)


def _mixes(e: Any, among: Result, alone: Result, part: slice) -> bool:
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


def other_numbers(e: Any) -> str | None:
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


def with_integers_as_numbers(e: Any, verdict: Verdict, rules: Sequence[Any]) -> tuple[Verdict, Any]:
    """
    Judge again with integer inputs as floating-point numbers, before a verdict of BUG or SUSPECT.

    Integers are exact, but values computed from them are rounded, such as the angle of position
    8192. The result is then exact for inputs perturbed by a few ulps (a backward error: Higham,
    Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.5), and such perturbations
    redraw the error, unlike that of a different function.
    """
    positions = [
        k
        for k, x in enumerate(e.inputs)
        if isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x.any()
    ]
    if verdict.kind not in (BUG, SUSPECT) or not positions or e.form not in ("float32", "float64"):
        return verdict, e
    with suppress(BudgetError):
        if not e.difference_is_defined or e.reference is None:
            return verdict, e
        inputs = tuple(x.astype(e.form) if k in positions else x for k, x in enumerate(e.inputs))
        numbers = replace(e, inputs=inputs, evidence={}, costs={})
        same = all(numbers.results[name].bits() == y.bits() for name, y in e.results.items())
        if not same or numbers.reference is None or not _is_smooth(numbers, positions):
            return verdict, e
        near = [
            numbers.similarity(e.thresholds.few * e.roundoff, e.seed + 1250 + k) or 0.0
            for k in range(e.thresholds.perturbations)
        ]
        alike = numbers.evidence["likeness_nearby"] = float(np.mean(near))
        if alike >= e.thresholds.persistent:
            return verdict, e
        vars(numbers)["repeats"] = e.repeats
        again = next(v for v in (r(numbers) for r in rules if r.kind not in (RAISES, RANGE)) if v)
        if again.kind in (AMPLIFIED, LAYOUT, ROUNDING):
            evidence = e.evidence | numbers.evidence | {"integers_as_numbers": True}
            numbers.inputs, numbers.evidence = e.inputs, evidence
            text = f"with integer inputs treated as {e.form} numbers, {again.reason}"
            return replace(again, reason=text), numbers
    return verdict, e


def _is_smooth(e: Any, positions: list[int]) -> bool:
    """Return True if results change smoothly with these inputs; labels and lengths make jumps."""
    source, above = e.reference_source, e.thresholds.above
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
