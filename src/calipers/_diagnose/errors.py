"""Errors of two implementations, the unit in which they are counted, and rounding by casts."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .._core.dtypes import FORMATS
from .._core.protocols import NDArray
from .callables import Implementation, Result, comparable
from .error_units import (
    N_PERTURBATIONS,
    ErrorNorms,
    NoiseLevel,
    choose_reference,
    difference,
    estimate_noise_level,
    is_stepwise,
    perturbation_rms,
    require_comparable,
    result_roundoffs,
    rms_of,
    worst_error_norms,
)
from .implementations import ImplementationPair
from .inputs import is_perturbable, is_wide, to_higher_precision
from .verdict import FAR, HALF, LARGE_DIFFERENCE

_CAST_PERTURBATION = 0.3  # of a last place: what rounding to the format takes off again
_LEAST = 2.0**-8  # of a rounding: two sides that are nearer hold nothing in the format
_N_DIRECTIONS = 3  # along which both sides are asked twice
_STEP = 4.0  # last places: what is rounded to the format is drawn anew
_SHORTER = 0.25  # of a step, in which a bend is sixteen times less
_FALLS = 1 / 6  # and noise is not
_SMOOTH = 0.25  # of the one side's noise, that is none of the other's
_EXPLAINED = 4.0  # times its noise, that a side may be off with rounded constants
_ALONE = 4.0  # times that, of a single result


def find_cast(e: ImplementationPair, wide: Mapping[str, Result]) -> str | None:
    """
    Return which of two sides takes nothing wider, although its results are of a wider dtype.

    Doubles that follow from what was cast to float32 are those of float32, as integers are. Such a
    side gives the same where inputs are rounded to the format, and the other one does not. Where
    results are float32 if inputs are, and doubles if these are, their dtypes tell.
    """
    suspects = [name for name, result in wide.items() if result.dtypes == e.results[name].dtypes]
    if not suspects or not e.can_perturb:
        return None
    x = e.perturb(_CAST_PERTURBATION * e.roundoff, e.seed + 60, wide=True)
    pairs = zip(e.inputs, x, strict=True)
    rounded = to_higher_precision(
        [y.astype(like.dtype) if is_perturbable(like) else y for like, y in pairs]
    )
    is_sensitive = {
        name: implementation(x).bits() != implementation(rounded).bits()
        for name, implementation in e.implementations.items()
    }
    casts = next((name for name in suspects if not is_sensitive[name]), None)
    if casts is None or not any(is_sensitive.values()):
        return None
    # What stays whatever last places there are, of either format, is no sign of a cast.
    near = e.perturb(_STEP * e.roundoff, e.seed + 61, wide=False)
    return casts if e.implementations[casts](near).bits() != e.results[casts].bits() else None


def find_partial_cast(e: ImplementationPair, wide: Mapping[str, Result]) -> str | None:
    """
    Return which of two sides computes a part in the working format, and answers in a wider one.

    Of doubles that are multiplied by cosines of float32, say, no more is known than of float32.
    They go on along no line: what is rounded is drawn anew by last places of the working format,
    while a function of doubles is straight over so short a way. That noise is what they are apart
    by; the difference of two functions is smooth on both sides, or more.
    """
    errors = difference(wide["f"], wide["g"])
    rounding = result_roundoffs(wide["f"], e.roundoff)
    far = worst_error_norms(e.result_f, errors, rounding)
    # Nearly all pairs are told by this, without a call.
    near, most = _LEAST, LARGE_DIFFERENCE / e.roundoff
    if not e.can_perturb or far.broken or not near < far.normwise < most:
        return None
    noise = {name: np.zeros(errors.size) for name in wide}
    variance = {name: np.square(rounding) for name in wide}
    for k in range(_N_DIRECTIONS):
        for name in wide:
            bends = _second_difference(e, name, wide[name], _STEP, k)
            if bends is None:
                return None
            begun, bend = bends
            noise[name] += np.square(bend) / (6 * _N_DIRECTIONS)  # of three roundings, one twice
            variance[name] += np.square(begun / _STEP) / _N_DIRECTIONS
    sizes = {name: float(np.sum(squares)) for name, squares in noise.items()}
    smooth, rough = sorted(sizes, key=sizes.__getitem__)
    if not sizes[smooth] < _SMOOTH**2 * sizes[rough]:
        return None
    # As far apart as rounding to the working format may make them, and by no more than the noise.
    if not e.is_rounding(worst_error_norms(e.result_f, errors, np.sqrt(variance[smooth]))):
        return None
    explained = worst_error_norms(e.result_f, errors, np.sqrt(noise[rough]))
    if explained.robust > _EXPLAINED or explained.peak > _ALONE * _EXPLAINED:
        return None
    shorter = 0.0
    for k in range(_N_DIRECTIONS):
        bends = _second_difference(e, rough, wide[rough], _SHORTER * _STEP, k)
        if bends is None:
            return None
        shorter += float(np.sum(np.square(bends[1]))) / (6 * _N_DIRECTIONS)
    return rough if shorter > _FALLS**2 * sizes[rough] else None


def _second_difference(
    e: ImplementationPair, name: str, here: Result, step: float, k: int
) -> tuple[NDArray, NDArray] | None:
    """Return how a side's results begin to change along a line, and how otherwise they go on."""
    delta, seed, implementation = step * e.roundoff, e.seed + 65 + k, e.implementations[name]
    near = implementation(e.perturb(delta, seed, wide=True))
    far = implementation(e.perturb(2 * delta, seed, wide=True))
    if not comparable(near, far, here):
        return None
    begun = difference(near, here)
    bend = difference(far, near) - begun
    return (begun, bend) if np.isfinite(bend).all() else None


_FAR_PERTURBATION = 2.0**-6  # of an input: a move that leaves its last places far behind


class Errors(ImplementationPair):
    """Errors of two implementations: from a reference in the wider format, or from each other."""

    @cached_property
    def wide_inputs(self) -> list[Any]:
        return to_higher_precision(self.inputs)

    @cached_property
    def wide_results(self) -> dict[str, Result]:
        """What the sides that can give in the wider format."""
        wide = {}
        for name, implementation in (("f", self.f), ("g", self.g)):
            if self.widens is None or name not in self.widens:
                continue
            result = implementation(self.wide_inputs)
            if comparable(result, self.result_f) and is_wide(result, self.form):
                wide[name] = result
        if len(wide) == 2:
            cast = find_cast(self, wide) or find_partial_cast(self, wide)
            return {name: result for name, result in wide.items() if name != cast}
        return wide

    @cached_property
    def _reference_and_noise(self) -> tuple[Implementation, Result, NoiseLevel] | None:
        """The side that errors are measured from, its answer in the wider format, and units."""
        if self.reference_function is not None:
            implementation = Implementation(
                "reference", self.reference_function, self.f.likes, self.f.budget
            )
            result = implementation(self.wide_inputs)
            require_comparable(result, self.result_f, self.roundoff)
            return implementation, result, self._noise_level(implementation, result)
        results = self.wide_results
        return (
            choose_reference(self.implementations, results, self._noise_level, self._is_stepwise)
            if results
            else None
        )

    def _is_stepwise(self, name: str) -> bool:
        """Tell whether a side that answers in the wider format stays and jumps there."""
        f, g = self.wide_results.values()
        size = rms_of(f.numbers(np.float64))
        off = rms_of(difference(f, g)) / size if size else 0.0
        # A format is no narrower than the working one, or none makes as much of it.
        if not self.allowed * self.roundoff < off < HALF:
            return False
        result = self.wide_results[name]
        return is_stepwise(self.implementations[name], result, self.perturb, off, self.seed + 80)

    def _noise_level(self, implementation: Implementation, result: Result) -> NoiseLevel:
        return estimate_noise_level(
            implementation, result, self.perturb, self.roundoff, self.form, self.seed
        )

    def noise_level_of(self, name: str) -> NoiseLevel:
        """Estimate units as if they were measured from a side that answers in the wider format."""
        return self._noise_level(self.implementations[name], self.wide_results[name])

    @property
    def reference(self) -> tuple[Implementation, Result] | None:
        """The side that errors are measured from, and its answer in the wider format."""
        return None if self._reference_and_noise is None else self._reference_and_noise[:2]

    @property
    def noise_level(self) -> NoiseLevel:
        """What a last place of the inputs does to each result."""
        assert self._reference_and_noise is not None
        return self._reference_and_noise[2]

    def error(self, result: Result) -> ErrorNorms:
        """Measure a side's errors from the reference."""
        return self.norms(self.deviation(result), self.noise_level.values)

    def norms(self, d: NDArray, unit: NDArray) -> ErrorNorms:
        """Measure errors of the results."""
        return worst_error_norms(self.result_f, d, unit)

    def deviation(self, result: Result) -> NDArray:
        """Return a side's errors from the reference; what the format cannot hold is infinite."""
        assert self.reference is not None
        d = difference(result, self.reference[1])
        lost = ~np.isfinite(d)
        if lost.any():
            y, r = result.numbers(np.float64)[lost], self.reference[1].numbers(np.float64)[lost]
            beyond = np.isinf(y) & (np.abs(r) > self.largest) & (np.sign(y) == np.sign(r))
            d[np.flatnonzero(lost)[beyond]] = 0
        return d

    @property
    def largest(self) -> float:
        """The largest number of the working format."""
        return FORMATS[self.form].largest

    @cached_property
    def eta_f(self) -> ErrorNorms:
        return self.error(self.result_f)

    @cached_property
    def eta_g(self) -> ErrorNorms:
        return self.error(self.result_g)

    @property
    def errors(self) -> dict[str, ErrorNorms]:
        return {"f": self.eta_f, "g": self.eta_g}

    @property
    def reference_noise(self) -> NDArray:
        """
        How far the side that errors are measured from is off itself in this format, about here.

        What an algorithm loses is drawn anew only by moves beyond all its last places: 1 + tanh(x)
        stays the same number over a good part of x.
        """
        assert self.reference is not None
        implementation = self.reference[0]
        sums, count = (
            np.square(self.deviation(self.result_f if implementation is self.f else self.result_g)),
            1,
        )
        for k in range(N_PERTURBATIONS):
            x = self.perturb(_FAR_PERTURBATION, self.seed + 600 + k, wide=False)
            y, r = implementation(x), implementation(to_higher_precision(x))
            if comparable(y, r, self.result_f):
                sums += np.square(difference(y, r))
                count += 1
        noise: NDArray = np.sqrt(sums / count)
        return noise

    @cached_property
    def scale(self) -> NDArray:
        """The units of differences: of the reference, or else of how f answers moved inputs."""
        if self.reference is not None:
            return self.noise_level.values
        seeds = [self.seed + k for k in range(N_PERTURBATIONS)]
        spread = perturbation_rms(
            self.f, self.result_f, self.perturb, FAR * self.roundoff, seeds, wide=False
        )
        scale: NDArray = np.hypot(spread / FAR, result_roundoffs(self.result_f, self.roundoff))
        return scale

    @cached_property
    def eta_difference(self) -> ErrorNorms:
        return self.norms(self.difference, self.scale)

    @cached_property
    def flushed_by(self) -> dict[str, NDArray]:
        """Which results are 0 on a side, and subnormal on the other one beyond their units."""
        fraction, lowest = FORMATS[self.form][:2]
        numbers = {name: y.numbers(np.float64) for name, y in self.results.items()}
        masks = {}
        for name, y in numbers.items():
            lost = y == 0
            if lost.any():
                other = np.abs(numbers["f" if name == "g" else "g"])
                unit = np.maximum(2.0 ** (lowest - fraction), self.scale)
                lost &= other > self.allowed * unit
                # What is 0 where others are normal, too, was cut off.
                lost &= not (other[lost] >= 2.0**lowest).any()
            masks[name] = lost
        return masks

    @property
    def flushed(self) -> NDArray:
        """Which results are so on either side."""
        flushed: NDArray = np.logical_or(*self.flushed_by.values())
        return flushed

    def is_rounding_except(self, lost: NDArray) -> bool:
        """Tell whether errors of all other results are as those of rounding."""
        off = (
            [self.difference]
            if self.reference is None
            else map(self.deviation, self.results.values())
        )
        sizes = (self.norms(np.where(lost, 0.0, d), self.scale) for d in off)
        return all(map(self.is_rounding, sizes))

    def set_results(self, f: Result, g: Result, reference: Result, unit: NDArray) -> None:
        """Take answers and units as known, and ask no side."""
        self.result_f, self.result_g = f, g
        implementation = Implementation("reference", self.f.call, (), self.f.budget)
        self._reference_and_noise = implementation, reference, NoiseLevel(unit, math.nan)

    @property
    def effective_count(self) -> float:
        """How many of the differences there are by weight: beside large ones, others are none."""
        with np.errstate(all="ignore"):
            squares = np.square(self.difference / self.scale)
            squares /= np.max(squares, where=np.isfinite(squares), initial=0.0)
        squares = squares[np.isfinite(squares)]
        total = float(np.sum(np.square(squares)))
        return float(np.sum(squares)) ** 2 / total if total else 0.0
