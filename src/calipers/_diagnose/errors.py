"""Measure the errors of two implementations relative to a reference, and detect casts."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .._core.dtypes import FORMATS
from .._core.protocols import NDArray
from .callables import Implementation, Result, comparable
from .implementations import ImplementationPair
from .inputs import is_perturbable, is_wide, to_higher_precision
from .noise_level import (
    N_PERTURBATIONS,
    ErrorNorms,
    NoiseLevel,
    choose_reference,
    difference,
    estimate_noise_level,
    finite_rms,
    is_stepwise,
    perturbation_rms,
    require_comparable,
    result_roundoffs,
    worst_error_norms,
)
from .verdict import FAR, HALF, LARGE_DIFFERENCE

_CAST_PERTURBATION = 0.3  # ulp: a perturbation that rounding to the format removes
_LEAST = 2.0**-8  # unit roundoffs: smaller differences have no part in that format
_N_DIRECTIONS = 3  # of perturbation, with two calls of each function
_STEP = 4.0  # ulp: a perturbation that redraws rounding errors of the format
_SHORTER = 0.25  # of a step: second differences of smooth functions fall by 16
_FALLS = 1 / 6  # and noise is not
_SMOOTH = 0.25  # of the one side's noise, that is none of the other's
_EXPLAINED = 4.0  # times its noise, that a side may be off with rounded constants
_ALONE = 4.0  # times that, of a single result


def find_cast(e: ImplementationPair, wide: Mapping[str, Result]) -> str | None:
    """
    Return the implementation that casts its inputs to the working precision.

    Its results have a higher-precision dtype all the same, but do not change when the inputs are
    rounded to the working precision, unlike those of the other implementation. If the dtype of the
    results follows that of the inputs, it is not tested.
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
    # Results that no perturbation changes are no sign of a cast.
    near = e.perturb(_STEP * e.roundoff, e.seed + 61, wide=False)
    return casts if e.implementations[casts](near).bits() != e.results[casts].bits() else None


def find_partial_cast(e: ImplementationPair, wide: Mapping[str, Result]) -> str | None:
    """
    Return the implementation that computes an intermediate value in the working precision.

    Its results are in higher precision, but are multiplied by float32 cosines, for example. Along
    a line their rounding errors are uncorrelated, whereas a genuine higher-precision function is
    locally linear. The difference is explained by that noise; the difference of two functions is
    smooth in both, or larger.
    """
    errors = difference(wide["f"], wide["g"])
    rounding = result_roundoffs(wide["f"], e.roundoff)
    far = worst_error_norms(e.result_f, errors, rounding)
    # This decides for nearly all pairs, without a call.
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
    """Return the first and the second difference of results along a line."""
    delta, seed, implementation = step * e.roundoff, e.seed + 65 + k, e.implementations[name]
    near = implementation(e.perturb(delta, seed, wide=True))
    far = implementation(e.perturb(2 * delta, seed, wide=True))
    if not comparable(near, far, here):
        return None
    begun = difference(near, here)
    bend = difference(far, near) - begun
    return (begun, bend) if np.isfinite(bend).all() else None


_FAR_PERTURBATION = 2.0**-6  # relative perturbation, far above 1 ulp


class Errors(ImplementationPair):
    """Errors of two implementations relative to a higher-precision reference or to each other."""

    @cached_property
    def wide_inputs(self) -> list[Any]:
        return to_higher_precision(self.inputs)

    @cached_property
    def wide_results(self) -> dict[str, Result]:
        """Results in higher precision of the implementations that can compute them."""
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
        """The reference implementation, its result in higher precision, and the noise level."""
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
        """Return True if higher-precision results of an implementation change in steps."""
        f, g = self.wide_results.values()
        size = finite_rms(f.numbers(np.float64))
        off = finite_rms(difference(f, g)) / size if size else 0.0
        # Rounding to any lower precision causes relative differences between these limits.
        if not self.allowed * self.roundoff < off < HALF:
            return False
        result = self.wide_results[name]
        return is_stepwise(self.implementations[name], result, self.perturb, off, self.seed + 80)

    def _noise_level(self, implementation: Implementation, result: Result) -> NoiseLevel:
        return estimate_noise_level(
            implementation, result, self.perturb, self.roundoff, self.form, self.seed
        )

    def noise_level_of(self, name: str) -> NoiseLevel:
        """Estimate the noise level with the implementation `name` as the reference."""
        return self._noise_level(self.implementations[name], self.wide_results[name])

    @property
    def reference(self) -> tuple[Implementation, Result] | None:
        """The reference implementation and its result in higher precision, or None."""
        return None if self._reference_and_noise is None else self._reference_and_noise[:2]

    @property
    def noise_level(self) -> NoiseLevel:
        """The change of each result by a 1-ulp perturbation of the inputs."""
        assert self._reference_and_noise is not None
        return self._reference_and_noise[2]

    def error(self, result: Result) -> ErrorNorms:
        """Return the norms of the errors of a result, relative to the reference."""
        return self.norms(self.deviation(result), self.noise_level.values)

    def norms(self, d: NDArray, unit: NDArray) -> ErrorNorms:
        """Measure errors of the results."""
        return worst_error_norms(self.result_f, d, unit)

    def deviation(self, result: Result) -> NDArray:
        """Return the errors of a result: 0 for correct overflow, infinite for other infinities."""
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
        Error of the reference implementation itself in the working precision, near these inputs.

        Only perturbations far above 1 ulp redraw the errors of an algorithm that loses digits:
        1 + tanh(x) is constant over a large part of x.
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
        """Noise level of the reference; without one, that of f in the working precision."""
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
        """Masks of results that are 0 in one implementation, and subnormal in the other."""
        fraction, lowest = FORMATS[self.form][:2]
        numbers = {name: y.numbers(np.float64) for name, y in self.results.items()}
        masks = {}
        for name, y in numbers.items():
            lost = y == 0
            if lost.any():
                other = np.abs(numbers["f" if name == "g" else "g"])
                unit = np.maximum(2.0 ** (lowest - fraction), self.scale)
                lost &= other > self.allowed * unit
                # Zeros in place of normal numbers are not due to flushing.
                lost &= not (other[lost] >= 2.0**lowest).any()
            masks[name] = lost
        return masks

    @property
    def flushed(self) -> NDArray:
        """Mask of the results that either implementation flushes to 0."""
        flushed: NDArray = np.logical_or(*self.flushed_by.values())
        return flushed

    def is_rounding_except(self, lost: NDArray) -> bool:
        """Return True if rounding explains the errors of all results but the lost ones."""
        off = (
            [self.difference]
            if self.reference is None
            else map(self.deviation, self.results.values())
        )
        sizes = (self.norms(np.where(lost, 0.0, d), self.scale) for d in off)
        return all(map(self.is_rounding, sizes))

    def set_results(self, f: Result, g: Result, reference: Result, unit: NDArray) -> None:
        """Set the results, the reference and its noise level, without a call."""
        self.result_f, self.result_g = f, g
        implementation = Implementation("reference", self.f.call, (), self.f.budget)
        self._reference_and_noise = implementation, reference, NoiseLevel(unit, math.nan)

    @property
    def effective_count(self) -> float:
        """Effective number of differing entries: small differences count less than large ones."""
        with np.errstate(all="ignore"):
            squares = np.square(self.difference / self.scale)
            squares /= np.max(squares, where=np.isfinite(squares), initial=0.0)
        squares = squares[np.isfinite(squares)]
        total = float(np.sum(np.square(squares)))
        return float(np.sum(squares)) ** 2 / total if total else 0.0
