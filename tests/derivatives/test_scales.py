"""Slopes, errors and noise from samples that are computed by formulas."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from calipers._derivatives.agreement import estimate
from calipers._derivatives.scales import (
    FRACTIONS,
    ORDERS,
    Outputs,
    Samples,
    lagrange,
    measure,
    units_of,
)

EPS = 2.0**-52


def samples_of(f, t=FRACTIONS, sided=False, span=None):
    """Return the samples of f(t), which returns an array of outputs, and the base f(0)."""
    base = np.atleast_1d(f(0.0)).astype(float)
    above = np.array([np.atleast_1d(f(step)) for step in t], float)[None]
    below = np.array([np.atleast_1d(f(-step)) for step in t], float)[None]
    width = (t if sided else 2 * t) if span is None else span
    samples = Samples(
        t[None], width[None], above, np.broadcast_to(base, above.shape) if sided else below
    )
    return samples, base


def measured(f, t=FRACTIONS, eps=EPS, sided=False, parts=1, power=1, least=None, **options):
    samples, base = samples_of(f, t, sided)
    out = Outputs(base, eps, parts, power, least)
    return measure(samples, out, np.ones(1), sided=sided, **options)


def polynomial(*coefficients):
    """Return a polynomial whose values are rounded once, and the first derivative at 0."""
    exact = [Fraction(c) for c in coefficients]
    return lambda t: float(sum(c * Fraction(t) ** k for k, c in enumerate(exact)))


def precise(f):
    """Return f of mpmath numbers with 40 digits, rounded once; NaN where it is not real."""

    def rounded(t):
        with mpmath.workdps(40):
            value = f(mpmath.mpf(t))
            return float(value) if isinstance(value, mpmath.mpf) else math.nan

    return rounded


class TestSlopes:
    @pytest.mark.parametrize("count", range(1, ORDERS + 1))
    def test_weights_extrapolate_polynomials_to_zero(self, count):
        points = [0.5**k for k in range(count)]
        weights = lagrange([np.array([[p]]) for p in points])
        for degree in range(count):
            total = sum(float(w[0, 0]) * p**degree for w, p in zip(weights, points, strict=True))
            assert total == pytest.approx(float(degree == 0), abs=1e-14)

    def test_weights_are_those_of_rational_arithmetic(self):
        points = [Fraction(1), Fraction(1, 3), Fraction(1, 8)]
        weights = lagrange([np.array([[float(p)]]) for p in points])
        for k, weight in enumerate(weights):
            exact = math.prod(p / (p - points[k]) for i, p in enumerate(points) if i != k)
            assert weight[0, 0] == pytest.approx(float(exact), rel=1e-14)

    def test_central_differences_are_exact_for_odd_powers_up_to_five(self):
        s = measured(polynomial(1, 2, 7, -3, 11, 5))
        off = np.abs(s.slope - 2)
        assert (off <= s.error).all()
        assert off[0, 0, 0] <= 1e-13  # at the longest scale only rounding is left
        assert s.error[0, 0, 0] <= 1e-12
        s = measured(polynomial(1, 2, 7, -3, 11, 5, 0, 1))
        assert np.abs(s.slope[0, 0, 0] - 2) >= 1e-4
        assert (np.abs(s.slope - 2) <= s.error).all()

    def test_one_sided_differences_are_exact_up_to_the_third_power(self):
        s = measured(polynomial(1, 2, 7, -3), sided=True)
        assert np.abs(s.slope[0, 0, 0] - 2) <= 1e-13
        assert (np.abs(s.slope - 2) <= s.error).all()
        s = measured(polynomial(1, 2, 7, -3, 1), sided=True)
        assert np.abs(s.slope[0, 0, 0] - 2) >= 1e-4
        assert (np.abs(s.slope - 2) <= s.error).all()

    def test_spans_are_those_that_rounded_points_have(self):
        t = FRACTIONS[:12]
        spans = 2 * t * np.linspace(0.9, 1.1, 12)
        samples, base = samples_of(lambda t: 0.0, t)
        samples = samples._replace(
            width=spans[None],
            above=(1.5 * spans)[None, :, None] / 2,
            below=-1.5 * spans[None, :, None] / 2,
        )
        s = measure(samples, Outputs(base, EPS, 1, 1), np.ones(1))
        np.testing.assert_allclose(s.slope, 1.5, rtol=1e-14)

    @pytest.mark.parametrize("sided", [False, True])
    @pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.1, 1.0, 3.0, 30.0, 1e3])
    @pytest.mark.parametrize("name", ["exp", "sin", "tan", "log1p"])
    def test_errors_cover_truncation(self, name, scale, sided):
        s = measured(
            precise(lambda t: getattr(mpmath, name)(1 / mpmath.mpf(3) + scale * t)), sided=sided
        )
        with mpmath.workdps(40):
            slope = {
                "exp": lambda x: mpmath.exp(x),
                "sin": lambda x: mpmath.cos(x),
                "tan": lambda x: 1 / mpmath.cos(x) ** 2,
                "log1p": lambda x: 1 / (1 + x),
            }[name](1 / mpmath.mpf(3))
        slope = scale * float(slope)
        smooth = s.t[..., 0] * scale <= 0.25  # longer ones reach other periods, or poles
        off = np.abs(s.slope - slope)[..., 0]
        # Noise may hide some of the change to the next scale.
        assert (off[smooth] <= 1.25 * s.error[..., 0][smooth]).all()
        assert np.mean(off[smooth] <= s.error[..., 0][smooth]) >= 0.95
        m = estimate(s)
        assert np.abs(m.value - slope) <= m.error
        # About as good as differences can be: a thousand spacings over the length scale.
        assert m.error <= 1e-9 * max(1.0, scale) if sided else m.error <= 1e-11 * max(1.0, scale)

    def test_nothing_is_known_where_f_is_not_finite(self):
        s = measured(lambda t: 1 / t if t > 1e-3 else math.nan if t else 0.0)
        assert not np.isfinite(s.error).any()
        s = measured(lambda t: t if abs(t) < 1e-3 else math.inf)
        known = np.isfinite(s.error[0, :, 0])
        assert known.any()
        assert (s.t[0, known, 0] < 1e-3).all()


class TestGaps:
    def test_a_kink_is_half_the_difference_of_the_slopes(self):
        s = measured(lambda t: 3.0 + max(2 * t, -5 * t) + 0.25 * t * t)
        assert (np.abs(s.gap - 3.5) <= s.gap_error).all()
        assert s.gap_error[0, 0, 0] <= 1e-12
        assert (np.abs(s.slope + 1.5) <= s.error).all()

    def test_a_smooth_function_has_none(self):
        s = measured(precise(lambda t: mpmath.exp(2 * t)))
        # That of a smooth f may be as large as its changes at all shorter scales.
        assert (np.abs(s.gap) <= 4 / 3 * s.gap_error).all()
        assert np.abs(s.gap[0, 0, 0]) > 0.01

    def test_the_even_and_the_odd_part(self):
        s = measured(polynomial(1, 2, 3, 4))
        even, odd = s.even[0, :, 0], s.odd[0, :, 0]
        t = FRACTIONS[: len(even)]
        np.testing.assert_allclose(even, 3 * t * t, atol=4 * EPS)
        np.testing.assert_allclose(odd, 2 * t + 4 * t**3, atol=4 * EPS)

    def test_there_is_none_on_one_side(self):
        s = measured(lambda t: abs(t) + t * t, sided=True)
        assert not s.gap.any()


def noises(f, sigma, seeds, **options):
    """Return the measured noise of f with normal noise, one for each seed."""
    found = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        s = measured(lambda t, random=random: f(t) + sigma * random.standard_normal(), **options)
        found.append(s.noise[0, 0])
    return np.array(found)


class TestNoise:
    @pytest.mark.parametrize("sigma", [1e-12, 1e-7, 1e-2])
    @pytest.mark.parametrize("sided", [False, True])
    def test_it_is_the_standard_deviation(self, sigma, sided):
        found = noises(lambda t: math.sin(0.3 + t), sigma, 200, sided=sided)
        within = (found > sigma / 2) & (found < 2 * sigma)
        assert within.mean() >= (0.95 if sided else 0.98)  # that of f(x) is in all differences
        assert ((found > sigma / 4) & (found < 4 * sigma)).all()
        assert np.sqrt(np.mean(found**2)) == pytest.approx(sigma, rel=0.1)

    def test_that_of_the_first_pass_is_known_within_a_factor_of_four(self):
        found = noises(lambda t: math.sin(0.3 + t), 1e-7, 200, few=True)
        assert np.mean((found > 0.25e-7) & (found < 4e-7)) >= 0.97

    def test_it_is_small_where_f_is_smooth(self):
        s = measured(precise(lambda t: mpmath.sin(mpmath.mpf("0.3") + t)))
        assert s.noise[0, 0] <= EPS

    def test_a_kink_is_no_noise(self):
        s = measured(lambda t: 1.0 + abs(t) + 0.3 * t)
        assert s.noise[0, 0] <= EPS

    @pytest.mark.parametrize("grid", [1e-10, 1e-5, 1e-2])
    def test_of_values_on_a_grid_it_is_that_of_rounding_at_all_scales(self, grid):
        found = []
        for point in np.linspace(0.1, 1.3, 60):

            def rounded(t, point=point):
                return grid * round(math.sin(point + t) / grid)

            s = measured(rounded)
            found.append(s.noise[0, 0] / grid)
            unchanged = s.t[0, :, 0] < s.constant_up_to[0, 0]
            assert unchanged.any()
            assert not s.slope[0, unchanged, 0].any()
            assert (np.abs(s.slope - math.cos(point)) <= 1.25 * s.error).all()
        assert 0.15 < np.median(found) < 0.6  # 1/sqrt(12)
        assert min(found) > 0.05
        assert max(found) < 1

    def test_it_may_be_more_than_the_first_change_where_f_stands_still_at_one_step(self):
        """Several roundings do not hide the changes of f, but for some by chance."""
        random, first = np.random.default_rng(4), 2.0**-40

        def f(t):
            if abs(t) <= FRACTIONS[-1]:
                return 1.0
            noise = float(np.sign(t)) if abs(t) <= FRACTIONS[-2] else 4 * random.normal()
            return 1 + t + first * np.round(noise)

        s = measured(f)
        assert s.constant_up_to[0, 0] == FRACTIONS[-1]
        assert 2 * first <= s.noise[0, 0] <= 8 * first

    def test_where_f_stands_still_it_is_no_more_than_hides_the_first_change(self):
        s = measured(lambda t: 1 + max(t - 0.1, 0.0))
        assert s.noise[0, 0] <= 0.05

    def test_it_is_at_least_that_of_rounding_if_f_does_not_change(self):
        s = measured(lambda t: 3.0)
        assert s.noise[0, 0] == 1 * EPS
        assert s.constant_up_to[0, 0] == FRACTIONS[0]
        assert s.change[0, 0] == 0
        s = measured(lambda t: 3.0, greatest=8.0)
        assert s.noise[0, 0] == 8 * EPS

    def test_still_and_change(self):
        s = measured(lambda t: 0.0 if abs(t) < 0.01 else math.copysign(2.0, t))
        assert s.change[0, 0] == 2
        assert s.constant_up_to[0, 0] == FRACTIONS[FRACTIONS < 0.01].max()
        s = measured(lambda t: t)
        assert s.constant_up_to[0, 0] == 0

    def test_rounding_is_the_spacing(self):
        assert measured(lambda t: 3.0 + t).rounding[0, 0] == 3 * EPS
        assert measured(lambda t: 3.0 + t, eps=2.0**-23).rounding[0, 0] == 3 * 2.0**-23


class TestOutputs:
    sizes = np.array([1.0, 2.0, 4.0, 8.0, 1.0])

    def noisy(self, which, seed=0):
        random = np.random.default_rng(seed)
        noise = np.zeros(5)
        noise[which] = 1e-6

        def f(t):
            return self.sizes * (math.sin(0.3 + t) + noise * random.standard_normal(5))

        return measured(f)

    def test_outputs_have_the_noise_of_the_others(self):
        s = self.noisy([0, 1, 2, 3])
        assert (
            s.noise[0, 4]
            == np.median(s.noise[0, :4] / self.sizes[:4] / math.sin(0.3)) * math.sin(0.3)
            or s.noise[0, 4] >= 5e-7
        )

    def test_two_outputs_say_nothing_of_the_others(self):
        random = np.random.default_rng(0)
        s = measured(lambda t: np.array([1e-6 * random.standard_normal() + t, 1.0 + t]))
        assert s.noise[0, 1] <= EPS

    def test_both_parts_of_a_number_have_the_larger_noise(self):
        random = np.random.default_rng(0)

        def f(t):
            return np.array([3.0 + t + 1e-6 * random.standard_normal(), t])

        s = measured(f, parts=2)
        assert s.noise[0, 0] == s.noise[0, 1] >= 5e-7
        assert s.rounding[0].tolist() == [s.rounding[0, 0]] * 2

    def test_noise_that_is_known_is_in_all_errors(self):
        """Where terms cancel, a sum may be rounded alike at all steps."""
        f = polynomial(0, 1e-14, 1)
        s, known = measured(f), measured(f, least=np.array([[1e-12]]))
        assert s.noise[0, 0] < 1e-15 < known.noise[0, 0] == 1e-12
        assert (known.error[0] >= 1e-12 / known.span[0]).all()
        assert (known.gap_error[0] >= 1e-12 / known.t[0]).all()
        assert estimate(s).error[0, 0] < 1e-15 < estimate(known).error[0, 0] < 1e-10
        assert not known.noisy[0, 0]

    def test_a_column_does_not_depend_on_the_others(self):
        random = np.random.default_rng(0)
        directions = [
            lambda t: np.array([math.sin(1 + t), math.exp(t), 1.0]),
            lambda t: np.array([1e-3 * random.standard_normal() + math.sin(1), 1.0, 1.0 + t]),
            lambda t: np.array([math.sin(1), 1.0 + abs(t), 1.0 + t * t]),
        ]
        each = [samples_of(f) for f in directions]
        base = each[2][1]
        each = [samples for samples, _ in each]
        together = Samples(*(np.concatenate(arrays) for arrays in zip(*each, strict=True)))
        s = measure(together, Outputs(base, EPS, 1, 1), np.ones(3))
        for k, one in enumerate(each):
            alone = measure(one, Outputs(base, EPS, 1, 1), np.ones(1))
            for name, expected in vars(alone).items():
                array = getattr(s, name)[k]
                np.testing.assert_array_equal(expected[0], array, err_msg=name)

    def test_outputs_are_measured_as_if_alone(self):
        random = np.random.default_rng(0)
        samples, base = samples_of(lambda t: np.sin([1 + t, 2 + 3 * t]) + 1e-9 * random.random(2))
        s = measure(samples, Outputs(base, EPS, 1, 1), np.ones(1))
        for i in range(2):
            part = samples._replace(
                above=samples.above[:, :, i : i + 1], below=samples.below[:, :, i : i + 1]
            )
            out = Outputs(base[i : i + 1], EPS, 1, 1)
            alone = measure(part, out, np.ones(1), greatest=float(base.max()))
            for name in ("slope", "error", "noise", "gap", "gap_error"):
                expected = getattr(s, name)[..., i : i + 1]
                np.testing.assert_array_equal(getattr(alone, name), expected, err_msg=name)


class TestSecondDifferences:
    def test_mixed_derivatives(self):
        """Sums over corners of f(x, y) = exp(x) * sin(1 + y), over the area."""
        t = FRACTIONS[:24]

        def f(x, y):
            return math.exp(x) * math.sin(1 + y)

        above = np.array([f(h, h) + f(-h, -h) for h in t])[None, :, None]
        below = np.array([f(h, -h) + f(-h, h) for h in t])[None, :, None]
        samples = Samples(t[None], (4 * t * t)[None], above, below)
        s = measure(samples, Outputs(np.array([2 * f(0, 0)]), EPS, 1, 2), np.ones(1))
        m = estimate(s)
        assert np.abs(m.value - math.cos(1)) <= m.error <= 1e-7
        assert (np.abs(s.slope - math.cos(1)) <= s.error).all()
        assert not s.gap.any()


class TestMissingSamples:
    def test_short_steps_that_are_missing_change_nothing(self):
        f, t = precise(mpmath.exp), FRACTIONS[:12]
        whole = measured(f, t)
        samples, base = samples_of(f, t)
        padded = Samples(
            *(
                np.concatenate((array, np.full_like(array[:, :5], np.nan)), axis=1)
                for array in samples
            )
        )
        s = measure(padded, Outputs(base, EPS, 1, 1), np.ones(1))
        count = 12 - ORDERS + 1
        for name in ("slope", "error", "gap", "gap_error", "t"):
            a, b = getattr(s, name), getattr(whole, name)
            # The shortest scales are compared with what is missing.
            np.testing.assert_array_equal(a[:, : count - 1], b[:, : count - 1], err_msg=name)
            assert not np.isfinite(s.error[:, count:]).any()
        for name in ("noise", "constant_up_to", "change"):
            np.testing.assert_array_equal(getattr(s, name), getattr(whole, name))

    def test_there_may_be_none(self):
        samples, base = samples_of(math.exp, FRACTIONS[:5])
        nothing = Samples(*(np.full_like(a, np.nan) for a in samples))
        s = measure(nothing, Outputs(base, EPS, 1, 1), np.ones(1))
        assert not np.isfinite(s.error).any()
        assert s.change[0, 0] == 0
        assert not s.constant_up_to[0, 0] > 0


class TestUnits:
    @pytest.mark.parametrize("size", [2.0**-1000, 2.0**-1060, 2.0**900])
    def test_extreme_values_are_measured_in_powers_of_two(self, size):
        f = precise(lambda t: mpmath.mpf(size) * mpmath.exp(t))
        samples, base = samples_of(f)
        unit = units_of(samples, base, 1)
        assert unit is not None
        assert math.frexp(unit[0])[0] == 0.5
        values = samples.above / unit
        assert 2.0**-600 < np.abs(values).min()
        assert np.abs(values).max() < 2.0**600

    def test_moderate_values_need_none(self):
        samples, base = samples_of(math.exp)
        assert (units_of(samples, base, 1) == 1).all()
        assert not units_of(samples, np.zeros(0), 1).size

    def test_both_parts_of_a_number_have_one(self):
        samples, base = samples_of(lambda t: np.array([2.0**-1000 * (1 + t), 1.0]))
        one, other = units_of(samples, base, 2)
        assert one == other
