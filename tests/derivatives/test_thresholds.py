"""Each threshold holds an answer on both sides of it: doubled or halved, one of them changes."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

import calipers
from calipers._derivatives import adaptive, agreement, scales, thresholds
from calipers._derivatives.agreement import FAIL, INCONCLUSIVE, PASS, estimate
from calipers._derivatives.scales import FRACTIONS
from calipers._gradcheck import entry_rules, options, screening

from .test_agreement import SPACING, STEPS, rounded_away, table, verdict
from .test_scales import EPS, measured, noises

LONG = 2.0 ** np.arange(3, -4, -1.0)  # steps that begin beyond |x| = 1


def standard_deviations(few=False):
    """Return the error of a slope at a long step, where only the shortest show noise."""
    t = FRACTIONS[scales.FIRST_PASS] if few else FRACTIONS[:40]
    random = np.random.default_rng(0)

    def f(step):
        return 1 + step + 1e-9 * random.standard_normal() * (abs(step) < 1e-6)

    s = measured(f, t, few=few)
    return float(s.error[0, 1, 0] * s.t[0, 1, 0] / (0.5**0.5 * s.noise[0, 0]))


def spread_of_noise():
    found = noises(lambda t: math.sin(0.3 + t), 1e-7, 200)
    return float(np.quantile(found, 0.95) / np.quantile(found, 0.05))


def noise_of_a_wave():
    """Return the noise of 14 steps within |x|, the longest of which are as long as the wave."""
    return float(measured(lambda t: math.sin(1 + 4 * t), FRACTIONS[:14]).noise[0, 0])


def rounding():
    """Return the error of a straight line without noise, in spacings over the shortest step."""
    s = measured(lambda t: 1 + t, 0.5 ** np.arange(1, 30))
    return float(s.error[0, -1, 0] * s.t[0, -1, 0] / EPS)


def pooled(noisy):
    """Return whether an output without noise has that of others."""
    random = np.random.default_rng(0)

    def f(t):
        return np.r_[1 + 1e-6 * random.standard_normal(noisy), 1 + t]

    return bool(measured(f, 0.5 ** np.arange(1, 30)).noise[0, -1] > 1e-7)


def supported(error):
    s = table([2, 2, 1, 1, 1, 1], [error, error, 1e-3, 1e-4, 1e-3, 1e-2], noise=1e-3)
    return verdict(s, 2.0)[0]


def kinked(errors):
    return bool(estimate(table(0.5, 1e-9, gap=0.5, gap_error=0.5 / errors)).gap > 0)


def jumped(growth):
    """Return whether f jumps where its departure from a line grows so much in a halved step."""
    return bool(estimate(rounded_away(noise=1.25 / agreement.T.multiple / growth)).scattered[0, 0])


def refined(relative):
    """Return whether a scale beyond |x| is that of the value."""
    odd = LONG.copy()
    odd[4] *= 1.05  # f is not straight within |x|
    error = [1e-6, *[relative] * 6]
    return int(estimate(table(1.0, error, t=LONG, departure=(0 * LONG, odd))).scale[0, 0]) == 0


def beyond(off):
    error = np.r_[1e-3, 1e-3, 4 / LONG[2:]]
    return verdict(table(1.0, error, t=LONG, noise=1.0), 1.0 + off)[0]


def settled(value, error, halvings=4, noise=SPACING):
    """Return whether scales that are some halvings apart settle a slope."""
    s = table(value, error, t=0.5 ** (halvings * np.arange(1, len(STEPS) + 1)), noise=noise)
    return bool(adaptive._settled(s, estimate(s), SPACING, np.ones(1))[0, 0])


def constant(share):
    """Return the verdict of 0 where f does not change within a share of the threshold."""
    s = table([1e-3] + [0.0] * 5, 1e-5, constant_up_to=share * 2.0**-26)
    return verdict(s, 0.0, resolution=0.0)[0]


def uncertain(power, count=12):
    """Return whether slopes that fall as a power of the step have the error of what remains."""
    t = 0.5 ** np.arange(1, count + 1)
    error = np.where(np.arange(count) == count - 2, 1e-9, 1.0)
    s = table(t**power, error, t=t, departure=(0 * t, t ** (1 + power)))
    return bool(estimate(s).error[0, 0] > 1e-6)


def noisy(spacings):
    random = np.random.default_rng(1)
    s = measured(lambda t: 1 + t + spacings * EPS * random.standard_normal())
    return bool(s.noisy[0, 0])


def check(f, claim, x=1.0):
    """Return the verdict of a gradcheck of f at a number, and whether screening clears it."""
    x = np.atleast_1d(np.asarray(x))
    report = calipers.gradcheck(f, x, jac=lambda x: np.full((1, 1), claim), raise_exception=False)
    return report.verdict, report.calls["f"] < 10


def bent(share, x=1.0):
    """Return the verdict of the mean of two one-sided slopes."""
    return check(lambda x: x + share / 2 * np.abs(x - 1), 1.0, x)[0]


def bent_by_noise(spacings, step=6.055e-6):
    """Return whether screening clears 0 where both one-sided slopes differ by rounding."""
    return check(lambda x: 1e6 + spacings * EPS * 1e6 / step / 2 * np.abs(x - 1), 0.0)[1]


# What is measured, and whether it is so: for each threshold cases below and above it.
CASES = [
    # 3 are exceeded by one slope in 370; 6 would hide what can be seen.
    ("multiple", lambda: standard_deviations() > 3, True),
    ("multiple", lambda: standard_deviations() < 6, True),
    ("few_samples", lambda: standard_deviations(few=True) > 6, True),
    ("few_samples", lambda: standard_deviations(few=True) < 12, True),
    # Noise is known well, and not taken from where f is curved.
    ("noise_samples", lambda: spread_of_noise() < 2.5, True),
    ("noise_samples", lambda: noise_of_a_wave() < 16 * EPS, True),
    # Both values of a central difference may be off by half a spacing.
    ("rounding", lambda: rounding() >= 0.5, True),
    ("rounding", lambda: rounding() <= 1.0, True),
    ("pooled_outputs", lambda: pooled(2), False),
    ("pooled_outputs", lambda: pooled(3), True),
    ("resolving", lambda: verdict(table(1.0, 7e-6), 1.0)[0], PASS),
    ("resolving", lambda: verdict(table(1.0, 9e-6), 1.0)[0], INCONCLUSIVE),
    ("certain", lambda: verdict(table(1.0, 1e-6), 1.0 + 2.5e-6)[0], INCONCLUSIVE),
    ("certain", lambda: verdict(table(1.0, 1e-6), 1.0 + 3.5e-6)[0], FAIL),
    ("telling", lambda: supported(0.07), INCONCLUSIVE),
    ("telling", lambda: supported(0.13), FAIL),
    ("kink", lambda: kinked(1.5), False),
    ("kink", lambda: kinked(2.5), True),
    ("abrupt", lambda: jumped(40), False),
    ("abrupt", lambda: jumped(100), True),
    ("resolved", lambda: refined(0.07), True),
    ("resolved", lambda: refined(0.13), False),
    ("multiple", lambda: settled(1.0, 1e-13, noise=3 * SPACING), True),
    ("multiple", lambda: settled(1.0, 1e-13, noise=6 * SPACING), False),
    ("screened", lambda: settled(1.0, 0.7e-7, halvings=1), True),
    ("screened", lambda: settled(1.0, 1.3e-7, halvings=1), False),
    ("visible", lambda: beyond(12.0), INCONCLUSIVE),
    ("visible", lambda: beyond(20.0), FAIL),
    ("negligible", lambda: verdict(table(0.0, 6e-9), 1e-10, 1e-12)[0], PASS),
    ("negligible", lambda: verdict(table(0.0, 1e-8), 1e-10, 1e-12)[0], INCONCLUSIVE),
    ("first", lambda: settled(1e6, 2e-4), True),
    ("first", lambda: settled(1e6, 1e-2), False),
    ("first_rounding", lambda: settled(0.0, 50 * SPACING), True),
    ("first_rounding", lambda: settled(0.0, 100 * SPACING), False),
    ("noisy", lambda: noisy(22.0), False),
    ("noisy", lambda: noisy(45.0), True),
    ("constant", lambda: constant(0.75), INCONCLUSIVE),
    ("constant", lambda: constant(1.5), PASS),
    ("screened", lambda: check(lambda x: 3 * x, 3 + 0.07 * 3e-6), ("PASS", True)),
    ("screened", lambda: check(lambda x: 3 * x, 3 + 0.13 * 3e-6), ("PASS", False)),
    ("bend", lambda: bent(0.02), "PASS"),
    ("bend", lambda: bent(0.04), "NONSMOOTH"),
    ("curvature", lambda: bent(0.06, np.float32(1.0)), "PASS"),
    ("curvature", lambda: bent(0.1, np.float32(1.0)), "NONSMOOTH"),
    ("screening_noise", lambda: bent_by_noise(45), True),
    ("screening_noise", lambda: bent_by_noise(90), False),
    ("rtol", lambda: check(lambda x: 3 * x, 3 + 0.7 * 3e-6)[0], "PASS"),
    ("rtol", lambda: check(lambda x: 3 * x, 3 + 1.5 * 3e-6)[0], "FAIL"),
    ("rtol_single", lambda: check(lambda x: 3 * x, 3 + 0.7 * 0.015, np.float32(1))[0], "PASS"),
    ("rtol_single", lambda: check(lambda x: 3 * x, 3 + 1.5 * 0.015, np.float32(1))[0], "FAIL"),
    ("smooth", lambda: uncertain(0.55), True),
    ("smooth", lambda: uncertain(1.1), False),
    ("in_a_row", lambda: uncertain(0.1, 5), False),
    ("in_a_row", lambda: uncertain(0.1, 8), True),
]
NAMES = [field.name for field in fields(thresholds.Thresholds)]


@pytest.mark.parametrize(
    ("name", "measurement", "expected"),
    CASES,
    ids=[f"{n}-{i % 2}" for i, (n, *_) in enumerate(CASES)],
)
def test_both_sides_of_a_threshold(name, measurement, expected):
    assert measurement() == expected


def test_there_are_few():
    assert len(NAMES) <= 25
    assert set(NAMES) == {name for name, *_ in CASES}


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("name", NAMES)
def test_another_threshold_changes_an_answer(name, factor, monkeypatch):
    value = getattr(thresholds.THRESHOLDS, name)
    changed = replace(thresholds.THRESHOLDS, **{name: type(value)(factor * value)})
    monkeypatch.setattr(scales, "T", changed)
    monkeypatch.setattr(agreement, "T", changed)
    for module in adaptive, entry_rules, options, screening:
        monkeypatch.setattr(module, "THRESHOLDS", changed)
    cases = [(measurement, expected) for n, measurement, expected in CASES if n == name]
    assert any(measurement() != expected for measurement, expected in cases)
