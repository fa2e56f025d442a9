"""Right derivatives of functions that leave the error of differences to chance, and wrong ones."""

from collections import Counter

import numpy as np
import pytest

import calipers
from tests.derivatives.test_lower_precision_inside import LOSSES
from tests.derivatives.test_relu_networks import UNITS, network

pytestmark = pytest.mark.slow

SEEDS = 12


def rounded(dtype):
    return lambda x: np.asarray(x, dtype).astype(float)


def many_kinks(name):
    """Yield functions of 30 numbers in float32, networks of 4096 units, with x and gradients."""
    for seed in range(100, 100 + SEEDS):
        f, gradient, x = network(name, 4096, seed)
        yield f, x, gradient(x)


def losses_in_float32(name, seeds=range(100, 100 + SEEDS)):
    """Yield losses of 30 sums in float32, the rest in doubles."""
    loss, slope = LOSSES[name]
    for seed in seeds:
        random = np.random.default_rng(seed)
        weights, x = random.normal(size=(30, 30)).astype("f"), random.normal(size=30)

        def f(x, weights=weights):
            return loss(np.add.reduce(x.astype("f")[:, None] * weights).astype(float))[None]

        wide = weights.astype(float)
        yield f, x, (wide @ slope(x @ wide))[None]


BOUNDED = {
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
    "sin": (np.sin, np.cos),
    "gauss": (lambda x: np.exp(-x * x), lambda x: -2 * x * np.exp(-x * x)),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
}


def bounded_in_float16(name):
    """Yield sums of bounded functions of 10 numbers that are rounded to float16 first."""
    unit, slope = BOUNDED[name]
    inner = rounded(np.float16)
    for seed in range(100, 100 + SEEDS):
        random = np.random.default_rng(seed)
        weights, x = random.normal(size=(4, 10)), random.normal(size=10)
        yield lambda x, w=weights: w @ unit(inner(x)), x, weights * slope(x)


CASES = [
    *((many_kinks, name) for name in UNITS),
    *((losses_in_float32, name) for name in LOSSES),
    *((bounded_in_float16, name) for name in BOUNDED),
]


def verdicts(family, name, factor, **options):
    """Count verdicts, and those of the largest entry, given that many times as large as it is."""
    whole, largest = Counter(), Counter()
    for f, x, jac in family(name):
        changed = np.abs(jac) == np.abs(jac).max()
        given = (np.where(changed, factor, 1) * jac).astype(x.dtype)
        report = calipers.gradcheck(
            f, x, vjp=lambda x, w, j=given: w @ j, raise_exception=False, **options
        )
        entries = {(entry.row, entry.column): entry.verdict for entry in report.failures}
        whole[report.verdict] += 1
        largest[entries.get(tuple(np.argwhere(changed)[0].tolist()), "PASS")] += 1
    return whole, largest


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(("family", "name"), CASES)
def test_right_derivatives_are_not_accused(family, name, fast_mode):
    found, _ = verdicts(family, name, 1, fast_mode=fast_mode)
    # Slopes of a sum of kinks wander: at one entry of some 300 scales agree by chance.
    assert found["FAIL"] <= (2 if family is many_kinks and not fast_mode else 0), found


@pytest.mark.parametrize(("family", "name"), CASES[len(UNITS) :])
def test_wrong_derivatives_fail(family, name):
    _, found = verdicts(family, name, 1.5 if family is bounded_in_float16 else 1.1)
    assert found["FAIL"] >= 0.7 * SEEDS, found
    assert found["PASS"] == 0, found


@pytest.mark.parametrize("fast_mode", [False, True])
def test_an_error_that_is_far_too_small_by_chance_accuses_nobody(fast_mode):
    """Errors by the changes of three steps were 17 and 79 times too small here."""
    for f, x, jac in losses_in_float32("logsumexp", (29, 39)):
        found = calipers.differentiate(f, x)
        assert np.max(np.abs(found.value - jac) / found.error) < 1
        report = calipers.gradcheck(
            f, x, jac=lambda x, j=jac: j, fast_mode=fast_mode, raise_exception=False
        )
        assert report.verdict != "FAIL", str(report)


def test_what_rounding_of_f_does_not_hide_is_wrong():
    """A slope of 5 would change f = 1e6 in float32 by tens of its spacings within the size of x."""
    x = np.linspace(0.1, 1, 5).astype("f")

    def f(x):
        return np.float32(1e6) + np.sin(x)

    report = calipers.gradcheck(f, x, vjp=lambda x, w: 5 * w, raise_exception=False)
    assert report.verdict == "FAIL"


def test_what_rounding_of_f_hides_is_counted():
    """A slope of 1 is nothing beside f = 1e8 in float32, whatever it is claimed to be."""

    def f(x):
        return np.float32(1e8) + np.sin(x)

    x = np.linspace(0.1, 1, 5).astype("f")
    report = calipers.gradcheck(f, x, vjp=lambda x, w: 5 * w)
    assert (report.hidden, report.unresolved) == (5, 0.2)
    small = "too small to be checked"
    assert f"except for 5 of 25 entries that are {small} (below the rounding" in report.reason
    assert f"\n  entries     25: 25 PASS, 5 of them {small}\n" in str(report)
    alone = calipers.gradcheck(f, x[:1], vjp=lambda x, w: 5 * w)
    assert alone.reason == (
        f"vjp may be right: all entries are {small} (below the rounding error of f)"
    )
    known = calipers.gradcheck(np.sin, x, vjp=lambda x, w: np.cos(x) * w)
    assert (known.hidden, known.unresolved) == (0, 0)
