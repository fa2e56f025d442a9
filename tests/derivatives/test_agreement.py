"""Values, errors, statuses and verdicts from made-up tables of scales."""

import numpy as np
import pytest

from calipers._derivatives.agreement import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    Claim,
    contradicted_scales,
    estimate,
    judge,
)
from calipers._derivatives.agreement import NONSMOOTH_VERDICT as NONSMOOTH
from calipers._derivatives.scales import Scales
from calipers._derivatives.thresholds import THRESHOLDS
from calipers._kernels.differences import ALIASED, CONVERGED, NOISY, NONFINITE
from calipers._kernels.differences import NONSMOOTH as NONSMOOTH_STATUS

SPACING = 2.0**-52
STEPS = 0.5 ** np.arange(1, 7)  # within |x| = 1


def table(
    slope,
    error,
    *,
    t=STEPS,
    gap=0.0,
    gap_error=1e-9,
    departure=None,
    noise=SPACING,
    constant_up_to=0.0,
    change=1.0,
    inner=1.0,
    rounding=SPACING,
    spacing=SPACING,
    lost=False,
    broken=False,
):
    """Return the scales of one output along one direction; by default f is on its slopes."""
    t = np.asarray(t, float)
    slope, error, gap, gap_error = np.broadcast_arrays(slope, error, gap, gap_error, t)[:4]
    even, odd = (np.abs(gap) * t, slope * t) if departure is None else departure

    def by_scale(a):
        return np.array(a, float)[None, :, None]

    def by_output(a):
        return np.full((1, 1), float(a))

    return Scales(
        t=by_scale(t),
        span=by_scale(t),
        slope=by_scale(slope),
        error=by_scale(error),
        gap=by_scale(gap),
        gap_error=by_scale(gap_error),
        even=by_scale(even),
        odd=by_scale(odd),
        step_change=by_scale(np.abs(even) + np.abs(odd)),
        noise=by_output(noise),
        relative_noise=by_output(noise) / by_output(rounding),
        constant_up_to=by_output(constant_up_to),
        change=by_output(change),
        inner=by_output(inner),
        rounding=by_output(rounding),
        spacing=by_output(spacing),
        lost=by_scale(np.broadcast_to(lost, t.shape)) > 0,
        broken=by_output(broken) > 0,
    )


def verdict(s, claim, allowed=1e-6, *, natural=1.0, resolution=1e-6, usual=SPACING):
    """Return the verdict of a claim, and whether noise hides that it may be wrong."""
    claim, allowed, natural, usual = (
        np.full((1, 1), float(a)) for a in (claim, allowed, natural, usual)
    )
    claims = Claim(claim, allowed, natural, resolution)
    verdicts, hidden = judge(s, estimate(s), claims, usual)
    return int(verdicts[0, 0]), bool(hidden[0, 0])


def value_and_error(s):
    m = estimate(s)
    return float(m.value[0, 0]), float(m.error[0, 0])


class TestEstimate:
    def test_the_value_is_that_of_the_scale_with_the_least_error(self):
        slope, error = [1.02, 1.001, 1.0, 1.0001, 1.02, 0.9], [0.1, 0.01, 1e-4, 1e-3, 0.1, 1]
        s = table(slope, error, noise=0.01)
        assert value_and_error(s) == (1.0, 1e-4)
        assert estimate(s).scale[0, 0] == 2
        assert not estimate(s).contradicted.any()

    def test_a_shorter_scale_contradicts_a_longer_one(self):
        s = table([2, 2, 1, 1, 1, 1], [1e-9, 1e-9, 0.1, 0.01, 1e-3, 0.1], noise=1e-3)
        m = estimate(s)
        assert m.contradicted[0, :, 0].tolist() == [True, True, False, False, False, False]
        assert value_and_error(s) == (1.0, 1e-3)

    def test_intervals_that_touch_do_not_contradict_each_other(self):
        slope, error = np.array([[[2.0], [1.0]]]), np.array([[[0.5], [0.5]]])
        assert not contradicted_scales(slope, error).any()
        assert contradicted_scales(slope, 0.999 * error)[0, :, 0].tolist() == [True, False]

    def test_a_scale_without_samples_contradicts_nothing(self):
        s = table([1.0, 1.0, 1.0, 5.0, np.nan, np.nan], [1e-3, 1e-4, 1e-2, *[np.inf] * 3])
        assert value_and_error(s) == (1.0, 1e-4)
        assert not estimate(s).contradicted.any()

    def test_of_contradictory_short_scales_the_shortest_counts(self):
        s = table([1, 1, 1, 1, 2, 3], [1e-6, 1e-5, 1e-4, 1e-3, 0.1, 0.2], noise=1e-3)
        assert value_and_error(s) == (3.0, 0.2)

    @pytest.mark.parametrize(("below", "expected"), [(0.8, 0.01), (1.2, 1.2)])
    def test_slopes_at_shorter_steps_that_depart_from_the_value_are_its_error(
        self, below, expected
    ):
        """By two standard deviations, half of the error of their mean."""
        slope, error = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0 + below], [0.01, 0.1, 0.1, 1e3, 1e3, 2.0]
        value, found = value_and_error(table(slope, error, noise=10.0))
        assert (value, found) == (1.0, pytest.approx(expected, rel=1e-3))


class TestBeyondX:
    """Scales longer than |x|, where f may be a different function."""

    t = 2.0 ** np.arange(3, -4, -1.0)

    def at(self, slope, error, **options):
        return table(slope, error, t=self.t, **options)

    def test_they_refine_a_slope_that_is_known(self):
        s = self.at(1.0, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.02, 0.04])
        assert value_and_error(s) == (1.0, 1e-6)

    def test_they_count_where_f_is_straight_as_far_as_its_noise_shows(self):
        # The noise of 1 hides a slope of 1 within |x|, where f is on the line of the longest scale.
        error = 4 / self.t
        error[0] = 1e-3
        s = self.at(1.0, error, noise=1.0)
        assert value_and_error(s) == (1.0, 1e-3)

    def test_they_do_not_count_where_f_leaves_their_line(self):
        error = 8 / self.t
        error[0] = 1e-3
        odd = 1.0 * self.t
        odd[4] = 10.0  # more than 4 standard deviations from t = 1/2
        s = self.at(1.0, error, noise=1.0, departure=(0 * self.t, odd))
        assert value_and_error(s) == (1.0, 8.0)

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_kink_between_them_and_x_bounds_the_slope(self, at):
        """The slope at x is one of both: they are off the mean by half their difference."""
        error = 8 / self.t
        error[0] = 1e-3
        gap, gap_error = np.zeros(7), np.full(7, 1e-3)
        gap[at] = 0.5
        s = self.at(1.0, error, noise=1.0, gap=gap, gap_error=gap_error)
        assert value_and_error(s) == (1.0, 1e-3 + 0.5 + 1e-3)

    def test_a_kink_that_shows_at_longer_steps_may_be_hidden_at_this_one(self):
        error = 8 / self.t
        error[1] = 1e-3
        gap, gap_error = np.full(7, 0.5), np.full(7, 0.3)
        gap_error[0] = 1e-3
        s = self.at(1.0, error, noise=1.0, gap=gap, gap_error=gap_error)
        assert value_and_error(s) == (1.0, 1e-3 + 0.5 + 1e-3)

    def test_they_do_not_count_if_they_are_as_uncertain_as_f_changes(self):
        """Where f is constant beyond x, the slope there falls with the step."""
        error = 8 / self.t
        odd = 1e-3 * np.minimum(self.t, 0.01)
        error[0], slope = 2 * odd[0] / self.t[0], odd / self.t
        even = np.where(self.t == 4, 100.0, 0.0)  # more than noise
        s = self.at(slope, error, noise=1e-4, departure=(even, odd))
        assert value_and_error(s) == (slope[3], 8.0)


def rounded_away(**options):
    """Return scales of a function that jumps from a line of slope 2 to a steep piece at x."""
    t = 0.5 ** np.arange(1, 11)
    slope = np.array([2.0] * 5 + [50.0] * 5)
    error = np.array([1e-6] * 5 + [1.0, 1e-3, 1e-2, 0.1, 1.0])
    odd = np.where(t > 0.01, 2 * t, 50 * t)
    even = np.where(t > 0.01, 0.5, 0.0)  # a jump by 1 on one side
    options = {"departure": (even, odd), **options}
    return table(slope, error, t=t, **options)


class TestScattered:
    """Longer scales that agree on another value, and a jump in between."""

    def test_the_error_is_the_distance_of_both_values(self):
        m = estimate(rounded_away())
        assert m.scattered.all()
        assert value_and_error(rounded_away()) == (50.0, 48.0)
        assert m.statuses(rounded_away()) == ALIASED

    def test_a_smooth_change_from_one_slope_to_the_other_is_no_jump(self):
        t = 0.5 ** np.arange(1, 11)
        even = np.zeros(10)
        odd = 50 * t / np.sqrt(1 + (25 * t) ** 2)
        s = rounded_away(departure=(even, odd))
        assert not estimate(s).scattered.any()
        assert value_and_error(s) == (50.0, 1e-3)

    @pytest.mark.parametrize("others", [[0, 1, 3, 4], [0, 4], [2]])
    def test_fewer_than_four_scales_are_no_other_line(self, others):
        s = rounded_away()
        s.error[0, others, 0] = 100.0
        assert not estimate(s).scattered.any()

    def test_four_scales_are_one_and_two_in_the_first_pass(self):
        s = rounded_away()
        s.error[0, 4, 0] = 100.0
        assert estimate(s).scattered.all()
        s.error[0, 2, 0] = 100.0
        assert estimate(s, few=True).scattered.all()

    def test_scales_that_disagree_are_no_other_line(self):
        s = rounded_away()
        s.slope[0, :5, 0] = [-20, 20, -15, 10, -5]
        assert not estimate(s).scattered.any()

    def test_jumps_of_the_size_of_rounding_are_rounding(self):
        s = rounded_away(spacing=1.3 / THRESHOLDS.noisy)
        assert value_and_error(s) == (2.0, 1e-6)
        assert [verdict(s, claim)[0] for claim in (2.0, 50.0)] == [PASS, INCONCLUSIVE]
        assert value_and_error(rounded_away(spacing=1.2 / THRESHOLDS.noisy)) == (50.0, 48.0)

    def test_nothing_is_decided_by_it(self):
        s = rounded_away()
        assert [verdict(s, claim)[0] for claim in (2.0, 50.0, 80.0)] == [INCONCLUSIVE] * 3
        assert verdict(s, 300.0)[0] == FAIL


def near_kink(side=1.0):
    """Return scales of |x - 0.02| or so: slopes of both sides beyond it, one of them within."""
    t = 0.5 ** np.arange(1, 11)
    beyond = t > 0.02
    slope = np.where(beyond, 0.5, 1.0)
    gap = np.where(beyond, 0.5, 0.0)
    kinked = np.where(beyond, side * 0.5 * (t - 0.02), 0.0)
    return table(
        slope,
        1e-8,
        t=t,
        gap=gap,
        gap_error=1e-8,
        departure=(kinked, t - np.abs(kinked)),
    )


class TestKink:
    def test_near_x_one_of_its_slopes_is_the_value(self):
        m = estimate(near_kink())
        assert value_and_error(near_kink()) == (1.0, 1e-8)
        assert m.kink[0, 0] == 4  # the shortest step beyond 0.02
        assert m.gap[0, 0] == 0
        assert m.statuses(near_kink()) == CONVERGED

    @pytest.mark.parametrize(
        ("claim", "expected"), [(1.0, PASS), (0.5, NONSMOOTH), (0.0, FAIL), (3.0, FAIL)]
    )
    def test_near_x_the_mean_of_its_slopes_is_not_accused(self, claim, expected):
        assert verdict(near_kink(), claim)[0] == expected

    def test_near_x_nothing_between_its_slopes_is_accused_by_one_scale(self):
        s = near_kink()
        s.error[0, 5:, 0] = [1e-8, *[0.6] * 4]
        assert verdict(s, 0.0)[0] == NONSMOOTH
        assert verdict(s, -0.1)[0] == INCONCLUSIVE

    def test_another_value_within_is_no_side_of_it(self):
        s = near_kink()
        s.slope[0, 5:, 0] = 0.7
        assert (estimate(s).kink == -1).all()

    def test_at_x_the_value_is_the_mean_of_both_slopes(self):
        s = table(0.5, 1e-9, gap=0.5, gap_error=[1e-2, 1e-3, 1e-5, 1e-4, 1e-3, 1e-2])
        m = estimate(s)
        assert value_and_error(s) == (0.5, 1e-9)
        assert (m.gap[0, 0], m.gap_error[0, 0]) == (0.5, 1e-5)
        assert m.total_error[0, 0] == m.gap[0, 0] + m.gap_error[0, 0] > 0.5
        assert m.statuses(s) == NONSMOOTH_STATUS

    def test_at_x_shorter_scales_contradict_longer_ones(self):
        s = table(0.5, 1e-9, gap=[0.5] * 3 + [0.0] * 3, gap_error=1e-6)
        assert estimate(s).gap[0, 0] == 0

    def test_one_scale_does_not_make_a_kink(self):
        s = table(0.5, 1e-9, gap=[0, 0, 0.5, 0, 0, 0], gap_error=[1, 1, 1e-6, 1, 1, 1])
        assert estimate(s).gap[0, 0] == 0

    @pytest.mark.parametrize("claim", [0.0, 0.3, 0.5, 1.0])
    def test_claims_within_the_gap_are_not_judged(self, claim):
        assert verdict(table(0.5, 1e-9, gap=0.5), claim)[0] == NONSMOOTH

    @pytest.mark.parametrize("claim", [-0.1, 1.1, 5.0])
    def test_claims_outside_of_it_are_wrong(self, claim):
        assert verdict(table(0.5, 1e-9, gap=0.5), claim)[0] == FAIL

    def test_a_gap_within_the_tolerance_is_none(self):
        s = table(0.5, 1e-9, gap=1e-4, gap_error=1e-9)
        assert verdict(s, 0.5, 1e-3)[0] == PASS
        assert verdict(s, 0.5, 1e-5)[0] == NONSMOOTH


class TestSlowConvergence:
    """Slopes of sign(x) * |x|**(1 + power) at 0, with a scale whose error is too small."""

    def slopes(self, power):
        t = 0.5 ** np.arange(1, 13)
        error = np.where(np.arange(12) == 10, 1e-9, 1000.0)
        return table(t**power, error, t=t, departure=(0 * t, t ** (1 + power)))

    @pytest.mark.parametrize("power", [0.1, 0.3, 0.5])
    def test_what_remains_to_0_is_in_the_error(self, power):
        value, error = value_and_error(self.slopes(power))
        assert value > 0.01
        assert error >= value

    @pytest.mark.parametrize("power", [-0.1, -0.5])
    def test_infinite_slopes_have_infinite_errors(self, power):
        s = self.slopes(power)
        assert value_and_error(s)[1] == np.inf
        assert estimate(s).statuses(s) == NONSMOOTH_STATUS
        assert verdict(s, np.inf)[0] == verdict(s, 1.0)[0] == NONSMOOTH

    def test_slopes_of_an_even_function_are_infinite_on_each_side(self):
        t = 0.5 ** np.arange(1, 13.0)
        s = table(0.0, 1e-9, t=t, departure=(np.sqrt(t), 0 * t))
        m = estimate(s)
        assert np.isinf(m.error[0, 0])
        assert m.endless[0, 0]

    def test_a_jump_is_no_infinite_slope(self):
        """Beyond a dip at x f is constant, and its one-sided slopes there grow as 1/t."""
        t = 0.5 ** np.arange(1, 13.0)
        s = table(0.0, 1e-9, t=t, departure=(np.full(12, 1e-3), 0 * t))
        assert value_and_error(s)[1] < np.inf

    def test_a_power_of_0_cannot_be_told_from_one_that_noise_leaves(self):
        """The slopes of x*log(x) change by the same at each step."""
        t = 0.5 ** np.arange(1, 13.0)
        odd = t * np.log(t) * (1 + 1e-3 * (-1.0) ** np.arange(12))
        s = table(1.0, 1e-9, t=t, noise=1e-5, departure=(0 * t, odd))
        assert np.isinf(value_and_error(s)[1])

    def test_their_error_does_not_make_a_claim_of_0_negligible(self):
        t = 0.5 ** np.arange(1, 13.0)
        s = table(t**-0.5, t**-0.5, t=t, departure=(0 * t, np.sqrt(t)))
        assert verdict(s, 0.0)[0] == NONSMOOTH

    def test_beyond_x_they_make_errors_infinite_but_no_infinite_slope(self):
        t = 2.0 ** np.arange(11, -1, -1.0)
        s = table(0.1, 1.0, t=t, departure=(0 * t, np.sqrt(t)))
        m = estimate(s)
        assert np.isinf(m.error[0, 0])
        assert not m.endless[0, 0]

    def test_a_function_that_comes_to_converge_is_smooth(self):
        """Powers grow as steps get shorter than its length; noise hides what comes next."""
        t = 0.5 ** np.arange(1, 11.0)
        s = table(1.0, 1e-9, t=t, noise=3e-6, departure=(0 * t, t / (1 + (t / 3e-3) ** 0.7)))
        assert value_and_error(s)[1] < np.inf

    @pytest.mark.parametrize("power", [1.0, 2.0])
    def test_of_a_smooth_function_nothing_remains(self, power):
        assert value_and_error(self.slopes(power))[1] == 1e-9

    def test_noise_does_not_converge_slowly(self):
        s = self.slopes(-0.5)
        s.noise[:] = 1.0
        assert value_and_error(s)[1] == 1e-9


class TestStatus:
    def test_converged(self):
        s = table(1.0, 1e-9)
        assert estimate(s).statuses(s) == CONVERGED

    def test_noisy(self):
        s = table(1.0, 1e-3, noise=100 * SPACING)
        assert estimate(s).statuses(s) == NOISY

    def test_noise_of_an_output_that_does_not_change_is_no_matter(self):
        s = table(0.0, 1e-3, noise=100 * SPACING, change=0.0)
        assert estimate(s).statuses(s) == CONVERGED

    def test_not_finite(self):
        s = table(np.nan, np.inf)
        assert estimate(s).statuses(s) == NONFINITE

    def test_the_most_severe_of_the_outputs_counts(self):
        one, other = table(0.5, 1e-9, gap=0.5), table(1.0, 1e-9)
        both = Scales(
            **{
                name: tuple(np.concatenate(p, axis=-1) for p in zip(a, b, strict=True))
                if isinstance(a, tuple)
                else np.concatenate((a, b), axis=-1)
                for (name, a), b in zip(vars(one).items(), vars(other).values(), strict=True)
            }
        )
        assert estimate(both).statuses(both).max() == NONSMOOTH_STATUS


class TestPass:
    def test_within_tolerance_and_error(self):
        assert verdict(table(1.0, 1e-7), 1.0 + 1e-6)[0] == PASS
        assert verdict(table(1.0, 1e-6), 1.0 + 1.9e-6)[0] == PASS

    def test_an_error_above_the_tolerance_needs_a_difference_below_it(self):
        s = table(1.0, 5e-6)
        assert verdict(s, 1.0 + 0.9e-6)[0] == PASS
        assert verdict(s, 1.0 + 1.1e-6)[0] == INCONCLUSIVE

    def test_an_error_that_resolves_nothing_confirms_nothing(self):
        assert verdict(table(1.0, 1e-5), 1.0)[0] == INCONCLUSIVE

    def test_an_error_that_is_infinite_confirms_nothing(self):
        assert verdict(table(1.0, np.inf), 1.0)[0] == INCONCLUSIVE


class TestFail:
    def test_all_scales_exclude_the_claim(self):
        assert verdict(table(1.0, 1e-9), 1.001)[0] == FAIL

    def test_one_scale_alone_does_not_accuse(self):
        error = np.array([1.0, 1.0, 1e-9, 1.0, 1.0, 1.0])
        assert verdict(table(1.0, error), 1.001)[0] == INCONCLUSIVE
        error[3] = 1e-9
        assert verdict(table(1.0, error), 1.001)[0] == FAIL

    def test_the_neighbour_must_not_be_contradicted(self):
        slope, error = [1.5, 1.5, 1, 1, 1, 1], [1e-9, 1e-9, 1e-3, 1e-2, 1e-1, 1]
        s = table(slope, error, noise=1e-2)
        assert verdict(s, 1.01)[0] == INCONCLUSIVE
        assert verdict(s, 1.1)[0] == FAIL

    def test_a_longer_scale_that_supports_the_claim_prevents_it(self):
        # Between the scales f may be rounded to pieces: which of both slopes is meant is open.
        s = table([2, 2, 1, 1, 1, 1], [1e-9, 1e-9, 1e-3, 1e-4, 1e-3, 1e-2], noise=1e-3)
        assert verdict(s, 2.0)[0] == INCONCLUSIVE
        assert verdict(s, 1.9)[0] == FAIL

    def test_a_scale_that_cannot_tell_supports_nothing(self):
        error = np.array([10.0, 1.0, 1e-9, 1e-9, 1.0, 10.0])
        assert verdict(table(1.0, error), 1.5)[0] == FAIL

    @pytest.mark.parametrize(("shortest", "expected"), [(0.1, INCONCLUSIVE), (0.02, FAIL)])
    def test_the_claim_is_between_slopes_that_differ_at_all_shorter_scales(
        self, shortest, expected
    ):
        """A kink may be nearer to x than the shortest of them, though its error is as large."""
        error, gap = [1e-3, 1e-5, 1e-3, 1e-3, 1e-3, 1e-3], [0.1] * 5 + [shortest]
        s = table(1.0, error, gap=gap, gap_error=0.1, noise=1.0)
        assert verdict(s, 1.05)[0] == expected
        assert verdict(s, 1.15)[0] == FAIL

    def test_beyond_x_only_of_what_would_show_within(self):
        t = 2.0 ** np.arange(3, -4, -1.0)
        error = np.r_[1e-3, 1e-3, 4 / t[2:]]
        s = table(1.0, error, t=t, noise=1.0)
        assert value_and_error(s) == (1.0, 1e-3)
        assert verdict(s, 5.0)[0] == INCONCLUSIVE  # 4/2 within |x|, with noise of 1
        assert verdict(s, 50.0)[0] == FAIL

    def test_an_output_that_does_not_change_is_accused_of_more_than_the_usual_noise(self):
        s = table(0.0, 1e-9, change=0.0, constant_up_to=0.5)
        assert verdict(s, 1.0)[0] == FAIL
        assert verdict(s, 1.0, usual=0.1)[0] == INCONCLUSIVE
        assert verdict(s, 10.0, usual=0.1)[0] == FAIL
        assert verdict(table(0.0, 1e-9), 1.0, usual=0.1)[0] == FAIL  # it changes

    def test_an_output_that_changes_with_no_input_is_not_accused(self):
        assert (
            verdict(table(0.0, 1e-9, change=0.0, constant_up_to=0.5), 1.0, usual=np.inf)[0]
            == INCONCLUSIVE
        )


class TestBroken:
    """Where f jumps at x, or is not defined next to it."""

    @pytest.mark.parametrize("claim", [1.0, 2.0, np.inf])
    def test_no_claim_is_right_or_wrong(self, claim):
        s = table(1.0, np.inf, broken=True)
        assert verdict(s, claim)[0] == NONSMOOTH
        assert verdict(table(1.0, np.inf), claim)[0] == INCONCLUSIVE

    def test_what_is_confirmed_passes(self):
        assert verdict(table(1.0, 1e-9, broken=True), 1.0)[0] == PASS


class TestHidden:
    """Claims that pass because nothing could show that they are wrong."""

    def constant(self, constant_up_to=0.5, change=0.0, **options):
        return table(0.0, 1e-5, constant_up_to=constant_up_to, change=change, **options)

    def test_zero_where_f_is_constant(self):
        assert verdict(self.constant(), 0.0) == (PASS, True)

    def test_a_slope_that_would_show_is_not_zero(self):
        assert verdict(self.constant(), 1e-3, usual=np.inf) == (INCONCLUSIVE, False)
        assert verdict(self.constant(), SPACING, resolution=0.0) == (PASS, True)

    def test_constant_at_a_few_spacings_only_says_nothing(self):
        s = table([1e-3] + [0.0] * 5, 1e-5, constant_up_to=1e-9)
        assert verdict(s, 0.0, resolution=0.0) == (INCONCLUSIVE, False)

    def test_f_is_nothing_but_noise(self):
        s = table(1e-15, 2e-15)
        assert verdict(s, -1e-15, 0.0, natural=1e-15) == (PASS, True)
        assert verdict(s, 1e-13, 0.0, natural=1e-15) == (FAIL, False)
        s = table([1e-13] + [1e-15] * 5, 2e-15)
        assert verdict(s, -1e-15, 0.0, natural=1e-15) == (INCONCLUSIVE, False)

    def test_a_claim_is_not_accused_of_less_than_a_spacing(self):
        s = table(1e-12, 1e-16, constant_up_to=0.5)
        assert verdict(s, 2 * SPACING, 1e-16, resolution=0.0) == (INCONCLUSIVE, False)
        assert verdict(s, 3 * SPACING, 1e-16, resolution=0.0)[0] == FAIL

    def test_negligible_entries(self):
        s = table(0.0, 1e-9)
        assert verdict(s, 1e-9, 1e-12) == (PASS, True)
        assert verdict(s, 1e-9, 1e-12, natural=1e-3) == (INCONCLUSIVE, False)

    def test_what_is_seen_of_f_makes_entries_less_negligible_not_more(self):
        s = table([100.0] + [0.0] * 5, [1.0] + [1e-9] * 5)
        assert verdict(s, 1e-8, 2e-10, natural=1e-9)[0] == FAIL  # judged before
        s = table(0.0, 2e-8, gap=[100.0] + [0.0] * 5, gap_error=[1.0] + [1e-9] * 5)
        assert verdict(s, 1e-8, 1e-10, natural=1e-9) == (PASS, True)

    def test_entries_that_are_measured_are_not_hidden(self):
        s = table(0.0, 1e-9, departure=(STEPS**2, 0 * STEPS))
        assert verdict(s, 0.0) == (PASS, False)
        assert verdict(s, 0.0, 1e-12) == (PASS, False)


class TestNotFinite:
    @pytest.mark.parametrize("claim", [np.nan, np.inf, -np.inf])
    def test_a_claim_of_a_finite_derivative_is_wrong(self, claim):
        assert verdict(table(1.0, 1e-9), claim)[0] == FAIL

    @pytest.mark.parametrize("claim", [np.nan, np.inf, -np.inf])
    def test_where_nothing_is_known_nothing_is_said(self, claim):
        assert verdict(table(1.0, np.inf), claim)[0] == INCONCLUSIVE
        assert verdict(table(np.nan, np.inf), claim)[0] == INCONCLUSIVE

    @pytest.mark.parametrize("claim", [np.nan, np.inf])
    def test_no_side_of_a_kink_is_infinite(self, claim):
        assert verdict(table(0.5, 1e-9, gap=0.5), claim)[0] == FAIL


def test_estimates_in_other_units():
    s = near_kink()
    unit = np.array([2.0**40])
    one, other = estimate(s), estimate(s.times(unit))
    for name, array in vars(one).items():
        scaled = name in {"value", "error", "gap", "gap_error"}
        np.testing.assert_array_equal(array * unit if scaled else array, getattr(other, name))


def test_entries_are_judged_as_their_tables_are():
    one, other = table(0.5, 1e-9, gap=0.5), rounded_away()
    for s in (one, other):
        m = estimate(s)
        again = estimate(s.entries(np.array([0, 0]), np.array([0, 0])))
        for name, array in vars(m.entries(np.array([0, 0]), np.array([0, 0]))).items():
            np.testing.assert_array_equal(array, getattr(again, name))
