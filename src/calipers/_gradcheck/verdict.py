"""Judge the entries that screening could not clear, by the results of refinement."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._core.protocols import NDArray
from .._kernels import differences
from .entry_rules import (
    FAIL,
    INCONCLUSIVE,
    NONSMOOTH,
    PASS,
    SURE,
    VERDICTS,
    Rule,
    breaks,
    few_roundings,
    is_piecewise_constant,
    kinks,
    poles,
    rounded_away,
    rounding_of,
    slope_supports_analytic,
    slopes_contradict_numerical,
    slopes_support_analytic,
)

SlopesBelow = tuple[NDArray, NDArray, NDArray]

_CUSP = 0.1  # of what slopes differ by: a larger error of the derivative is that
_OUTSIDE = 0.1  # of the range of slopes at a kink, by which a wrong one is outside
_HALF = 0.45  # of a kink, that its error is at least
_STEEPER = 2.0**-10  # of the steepest slope near x, by which that at x is beyond those farther off
_ALL_OF_F = 0.125  # share of the natural size from which on an error is rounding of all of f


@dataclass
class UndecidedEntries:
    """
    Entries in doubt, in one form of the derivative: analytic values, and numerical evidence.

    Rules run in order; a later rule may override an earlier verdict.

    Attributes
    ----------
    rule : Rule
        What an entry may be off by.
    own, value, error : ndarray
        What is claimed, the numerical derivative, and its error.
    floor : ndarray
        The smaller of the largest entries of row and column.
    largest : ndarray
        The same of all rows and columns of one output and one input, compared with which an entry
        may be negligible; 0 where forms of the derivative do not agree on it.
    ceiling : ndarray
        The larger of the largest entries of row and column.
    right, left : ndarray
        Slopes to both sides of x, at the coarse step.
    noise : ndarray
        That of these slopes.
    shorter : ndarray of bool
        Where the numerical derivative is by shorter steps than these, and knows noise.
    status : ndarray of int
        What the ladder says of the column: NOISY, beyond rounding, or NONSMOOTH within its steps.
    rows : ndarray of int
        The results of f that entries belong to.
    rounding : callable
        Returns what the terms of f are rounded by, in rows.
    """

    rule: Rule
    analytic: NDArray
    value: NDArray
    error: NDArray
    floor: NDArray
    largest: NDArray
    ceiling: NDArray
    right: NDArray
    left: NDArray
    noise: NDArray
    shorter: NDArray
    status: NDArray
    rows: NDArray
    rounding: Callable[[NDArray], NDArray]

    def __post_init__(self) -> None:
        rule, analytic, noisy = self.rule, self.analytic, self.status == differences.NOISY
        slope = 0.5 * self.right + 0.5 * self.left
        self._slope_gap = bend = rule.slope_gap(analytic, slope, self.right - self.left, self.noise)
        self.verdicts = rule.judge(analytic, self.value, self.error, self.floor, noisy)
        with np.errstate(invalid="ignore"):
            off, allowed = np.abs(analytic - slope), rule.allowed(analytic, slope, self.floor)
            off[~np.isfinite(slope)] = np.nan  # which is near nothing
            near = (bend == 0) & (off <= rule.share * allowed)
            # At a cusp an analytic value may be the mean of slopes without being a derivative.
            self._set_verdict(
                INCONCLUSIVE, self._has_verdict(PASS) & (self.error > _CUSP * bend) & (bend > 0)
            )
            # Slopes that differ have a mean that is none of f, as shorter steps know; and those of
            # a noisy f side with anything.
            witness = ((bend == 0) | ~self.shorter) & ~noisy
            unsure = (
                self._has_verdict(FAIL)
                & witness
                & slope_supports_analytic(analytic, self.value, slope, self.noise)
            )
            confirmed = (bend == 0) & (off <= allowed)
            self._set_verdict(PASS, unsure & confirmed)
            self._set_inconclusive(np.flatnonzero(unsure & ~confirmed))
        # With the caller's own step and tolerances, what they accept is accepted.
        self._set_verdict(PASS, near & (self._has_verdict(INCONCLUSIVE) | (rule.share == 1)))
        self._passed_as_hidden = np.zeros(analytic.shape, bool)

    @property
    def hidden(self) -> int:
        """The number of entries that pass because rounding of f hides whether they are right."""
        return int(np.count_nonzero(self._passed_as_hidden & self._has_verdict(PASS)))

    def _has_verdict(self, verdict: str) -> NDArray:
        return np.asarray(self.verdicts == VERDICTS.index(verdict))

    def _set_verdict(self, verdict: str, where: NDArray) -> None:
        self.verdicts[where] = VERDICTS.index(verdict)

    def _pass_hidden(self, where: NDArray) -> None:
        """Downgrade entries that rounding of f hides to PASS."""
        self._passed_as_hidden |= where & ~self._has_verdict(PASS)
        self._set_verdict(PASS, where)

    def _set_inconclusive(self, where: NDArray) -> None:
        """Set INCONCLUSIVE: the error of the numerical value is at least its difference."""
        self._set_verdict(INCONCLUSIVE, where)
        self.error[where] = np.fmax(self.error, np.abs(self.analytic - self.value))[where]

    def where_forms_agree(self, agree: NDArray) -> None:
        """Pass undecided entries on which all forms agree, unless differences contradict them."""
        with np.errstate(invalid="ignore"):
            near = np.abs(self.analytic - self.value) <= SURE * self.error
        self._set_verdict(
            PASS, self._has_verdict(INCONCLUSIVE) & agree & near & np.isfinite(self.error)
        )

    def where_rounded(self, rounding: NDArray) -> None:
        """Pass entries whose difference is within rounding of f along its natural length."""
        with np.errstate(invalid="ignore"):
            self._pass_hidden(np.abs(self.analytic - self.value) + self.error <= rounding)

    def where_negligible(self, natural: NDArray) -> None:
        """Pass entries that are negligible compared with the natural size of a derivative."""
        natural = np.fmax(natural, self.largest)
        for slope in np.abs(self.right), np.abs(self.left):  # where f and its derivative are 0
            natural = np.fmax(natural, np.where(np.isfinite(slope), slope, 0.0))
        negligible = self.rule.is_negligible(self.analytic, self.value, self.error, natural)
        # An error due to a kink farther off is not rounding: shorter steps would decide.
        farther = (self.status == differences.NONSMOOTH) & (self._slope_gap == 0)
        self._pass_hidden(self._has_verdict(INCONCLUSIVE) & negligible & ~farther)

    def where_cancelled(self, natural: NDArray, eps: float) -> None:
        """
        Pass 0 for results that are nothing but rounding of numbers as large as x, or 1.

        The errors of their derivatives are not smaller than the natural size of these.
        """
        with np.errstate(invalid="ignore"):
            rounding = (self.error >= _ALL_OF_F * natural) & (self.error <= few_roundings(eps))
            self._pass_hidden(self._has_verdict(INCONCLUSIVE) & rounding)

    def where_hidden(self, longest: NDArray, eps: float, unsure: NDArray) -> None:
        """
        Do not fail entries where f is constant because rounding hides its slope up to that step.

        A slope is none if it is less than rounding of others in its row or column, or than the
        errors of others that are 0, by rounding.
        """
        stays = self._has_verdict(FAIL) & self.rule.is_locally_constant(
            self.analytic, self.value, self.error
        )
        unsure = np.abs(self.analytic) <= np.minimum(unsure, few_roundings(eps))
        most = np.minimum(self.largest, self.ceiling)
        self._pass_hidden(stays & (unsure | rounded_away(self.analytic, most, eps)))
        constant = np.flatnonzero(self._has_verdict(FAIL) & (self.value == 0) & (self.error == 0))
        if len(constant):
            hidden = np.abs(self.analytic * longest)[constant] <= self.rounding(self.rows[constant])
            self._set_inconclusive(constant[hidden])

    def where_oscillating(self, below: SlopesBelow, many: Callable[[NDArray], SlopesBelow]) -> None:
        """
        Let pass what slopes by very short steps confirm, and blame nobody with whom they side.

        They see waves that all steps of a ladder are too long for. `below` are some, `many` gives
        more, for some entries: see `FiniteDifferences.below`.
        """
        unsettled = self._has_verdict(FAIL) | self._has_verdict(INCONCLUSIVE)
        oscillating = np.flatnonzero(
            unsettled & slopes_contradict_numerical(self.value, *below).any(axis=0)
        )
        if len(oscillating):
            analytic, value, slopes = (
                self.analytic[oscillating],
                self.value[oscillating],
                many(oscillating),
            )
            failed = self._has_verdict(FAIL)[oscillating]
            self._set_inconclusive(
                oscillating[failed & slopes_support_analytic(analytic, value, *slopes)]
            )
            self._set_verdict(
                PASS, oscillating[self.rule.confirmed(analytic, self.floor[oscillating], *slopes)]
            )

    def at_kinks(
        self,
        probed: NDArray,
        values: NDArray,
        sizes: NDArray,
        step: NDArray,
        eps: float,
        below: SlopesBelow,
    ) -> None:
        """
        Set NONSMOOTH for entries that no slope across x decides.

        `probed` are the entries near which f was evaluated, with a row of `values` per position;
        `sizes` are the magnitudes of their outputs at x, `below` as for `where_oscillating`.
        """
        noise = rounding_of(np.fmax(np.max(np.abs(values), axis=0), sizes), eps)
        kinked, pole = kinks(values, step, noise), poles(values, noise)
        kinked &= ~is_piecewise_constant(values, *(slopes[:, probed] for slopes in below[:2]))
        # What is right has no kink at x, as far as slopes to both sides show.
        kinked &= ~(self._has_verdict(PASS) & (self._slope_gap == 0))[probed]
        right = np.flatnonzero(kinked & self._has_verdict(PASS)[probed])
        if len(right):  # or rounding, of terms that are larger than their sum
            most = np.maximum(noise[right], self.rounding(self.rows[probed[right]]))
            kinked[right] = kinks(values[:, right], step[right], most)
        analytic, rule = self.analytic[probed], self.rule
        with np.errstate(all="ignore"):
            slopes = np.diff(values, axis=0) / (step / 2)
            low, high = slopes.min(axis=0), slopes.max(axis=0)
            slack = rule.atol + rule.rtol * np.maximum(np.abs(low), np.abs(high))
            between = (low - slack <= analytic) & (analytic <= high + slack)
            steepest = np.maximum(np.abs(low), np.abs(high))
            kinked &= ~rule.is_nothing(steepest, self.largest[probed])
            # One whose slopes are all within the tolerance makes no difference.
            widest = np.maximum(np.abs(low - analytic), np.abs(high - analytic))
            minor = widest <= rule.allowed(analytic, analytic, self.floor[probed])
            kinked &= ~(minor & self._has_verdict(PASS)[probed])
            # Nor is one the slope of f at x, if that is steeper there than to both sides of it.
            beyond = slopes[[0, 1, -2, -1]]
            steep = np.maximum(analytic - beyond.max(axis=0), beyond.min(axis=0) - analytic)
            steep = steep > np.maximum(np.ptp(beyond, axis=0), _STEEPER * steepest)
            kinked &= ~(steep & (self._has_verdict(PASS) & self.shorter)[probed])
            margin = slack + _OUTSIDE * (high - low)
            outside = (analytic < low - margin) | (high + margin < analytic)
            # Half of a kink at x is the error. Where that is less, it is known by shorter steps, or
            # there are many; and what the error covers is not outside.
            error = self.error[probed]
            outside &= (error >= _HALF * (high - low)) & (
                np.abs(analytic - self.value[probed]) > error
            )
        self._set_verdict(NONSMOOTH, probed[kinked & between])
        self._set_verdict(FAIL, probed[kinked & outside & self._has_verdict(INCONCLUSIVE)[probed]])
        self._set_verdict(
            NONSMOOTH, probed[breaks(values) & self._has_verdict(INCONCLUSIVE)[probed]]
        )
        endless = (self.status == differences.NONSMOOTH) & np.isinf(self.error)
        self._set_verdict(NONSMOOTH, endless & ~self._has_verdict(PASS))
        resolved = self._has_verdict(FAIL) & (self.error <= rule.rtol * np.abs(self.value))
        self._set_verdict(
            NONSMOOTH, probed[pole & ~self._has_verdict(PASS)[probed] & ~resolved[probed]]
        )
