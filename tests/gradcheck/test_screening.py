"""Screening: one rule for arrays of slopes and in compiled loops, and the sizes of Jacobians."""

import numpy as np
import pytest

import calipers
from calipers._gradcheck.basis_vectors import Rows
from calipers._gradcheck.columns import Dense, Sparse
from calipers._gradcheck.entry_rules import Rule, are_clear, unclear_entries
from calipers._gradcheck.jacobian_storage import nonzeros
from calipers._kernels.gradcheck_marks import ColumnCriteria, is_straight, size_by_mean

RULES = [
    Rule(0.0, 1e-6, 0.1, 0.01, False, 0.0),
    Rule(1e-9, 1e-3, 0.5, 0.1, False, 0.0),
    Rule(1e-5, 0.0, 1.0, np.inf, False, 0.0),
]
ODD = 0.0, -0.0, 1e-300, 1.0, np.inf, -np.inf, np.nan


def pairs():
    """Return claims near slopes to both sides, at all distances, and odd ones."""
    random = np.random.default_rng(5)
    size = 10.0 ** random.uniform(-12, 3, 3000)
    up, down, claimed = (
        size * (1 + 10.0 ** random.uniform(-9, 1, size.shape) * random.choice([-1, 1], size.shape))
        for _ in range(3)
    )
    odd = np.array(np.meshgrid(ODD, ODD, ODD)).reshape(3, -1)
    return (np.concatenate([a, b]) for a, b in zip((claimed, up, down), odd, strict=True))


@pytest.mark.parametrize("rule", RULES)
def test_the_size_that_an_entry_needs_is_that_from_which_on_it_is_confirmed(rule):
    claimed, up, down = pairs()
    criteria = ColumnCriteria(None, None, rule.rtol, rule.atol, rule.share, rule.bend, None, None)
    with np.errstate(all="ignore"):
        needed = np.array(
            [size_by_mean(*three, criteria) for three in zip(claimed, up, down, strict=True)]
        )
        straight = is_straight(claimed, up, down, rule.bend, 0.0)
        for factor, expected in (0.999, needed == 0), (1.001, needed < np.inf):
            floor = np.where(needed < np.inf, factor * needed, 1e6)
            clear = are_clear(claimed, (up, down), floor, np.zeros(len(up)), rule)
            assert np.array_equal(clear, expected & straight)
    assert 100 < np.count_nonzero((needed > 0) & (needed < np.inf)) or rule.rtol == 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0], ids=["sparse", "half", "dense"])
def test_entries_that_are_clear_at_first_sight_are_so_by_the_rule(rule, dtype, share):
    random = np.random.default_rng(7)
    claimed, up, down = (array.reshape(-1, 1) * np.ones(3) for array in pairs())
    blank = random.random(claimed.shape) > share
    up, down = up.astype(dtype), down.astype(dtype)
    for array in claimed, up, down:
        array[blank] = 0.0
    steps, noise = np.full(len(claimed), 2.0), np.full(3, 1e-12)
    with np.errstate(all="ignore"):
        entries = unclear_entries(claimed, up, down, noise, steps, rule)
        slopes = up.astype(float), down.astype(float)
        by_rule = are_clear(claimed, slopes, np.zeros(claimed.shape), noise / 2.0, rule)
    unclear = np.zeros(claimed.shape, bool)
    unclear[entries.columns, entries.rows] = True
    assert not (~unclear & ~by_rule).any()
    # The first sight demands hardly more than the rule.
    assert np.count_nonzero(unclear & by_rule) <= 0.01 * unclear.size
    assert np.array_equal(entries.claimed, claimed[unclear], equal_nan=True)
    assert np.array_equal(entries.slopes[1], slopes[1][unclear], equal_nan=True)


def matrix():
    random = np.random.default_rng(2)
    whole = random.standard_normal((700, 300)) * (random.random((700, 300)) < 0.03)
    whole[5, 7], whole[600, 7], whole[9, 9] = np.inf, np.nan, -1e300
    return whole


def test_the_largest_magnitudes_are_those_of_finite_entries_in_every_form():
    whole = matrix()
    rows = Rows(*whole.shape)
    rows.fill(0, len(whole), lambda first, out: np.copyto(out, whole[first : first + len(out)]))
    assert rows.whole is None  # stored without zeros
    finite = np.where(np.isfinite(whole), np.abs(whole), 0.0)
    for form in Dense(whole), Sparse(rows.columns()), rows:
        by_row, by_column = np.zeros(700), np.zeros(300)
        form.enlarge(by_row, by_column)
        assert np.array_equal(by_row, finite.max(axis=1))
        assert np.array_equal(by_column, finite.max(axis=0))


def test_columns_are_those_of_the_matrix():
    whole = matrix()
    out = np.full((40, 700), 3.0)
    Dense(whole).columns(250, 290, out)
    assert np.array_equal(out, whole[:, 250:290].T, equal_nan=True)


def test_nonzeros_are_listed_up_to_a_number():
    flat = np.array([0.0, np.nan, -0.0, 5e-324, 1.0])
    assert nonzeros(flat, 3).tolist() == [1, 3, 4]
    assert nonzeros(flat, 2) is None


@pytest.mark.parametrize("form", ["jac", "vjp"])
def test_the_mean_slope_of_a_small_kink_is_not_taken_for_curvature(form):
    x = np.array([0.5, 1.0, 2.0])
    derivative = {"jac": lambda x: np.eye(3), "vjp": lambda x, w: w}[form]
    options = {form: derivative, "raise_exception": False}
    kinked = calipers.gradcheck(lambda y: y + 0.03 * np.abs(y - x), x, **options)
    assert kinked.verdict == "NONSMOOTH"
