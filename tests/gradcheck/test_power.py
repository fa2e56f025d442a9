"""Wrong derivatives that have to fail, and right ones that must not."""

from collections import Counter

import numpy as np
import pytest

import calipers
from tests.data.derivative_cases import CASES
from tests.data.derivative_mutants import KINDS
from tests.data.gradcheck_functions import checked
from tests.data.sparse_derivative_cases import SPARSE_CASES

SMOOTH = [c for c in CASES if c.kind == "smooth" and c.points[0].dtype.kind == "f"]
HOSTILE = [c for c in CASES if c.kind != "smooth" and c.points[0].dtype.kind == "f"]
FOUND = [kind for kind in KINDS if kind not in ("1e-06", "1e-07")]


def verdict(case, x, jac, **options):
    report = calipers.gradcheck(case.f, x, jac=lambda x: jac, raise_exception=False, **options)
    return report.verdict


def right(case, x):
    jac = np.asarray(case.jac(x), float)
    return jac.reshape(np.shape(case.f(x)) + x.shape)


def names(cases):
    return [case.name for case in cases]


@pytest.mark.parametrize("case", SMOOTH, ids=names(SMOOTH))
def test_right_derivatives_of_smooth_functions_pass(case):
    random = np.random.default_rng(3)
    for x in case.points:
        for _ in range(3):
            near = x * (1 + 0.05 * random.uniform(-1, 1, x.shape))
            assert verdict(case, near, right(case, near)) == "PASS"


@pytest.mark.parametrize("case", HOSTILE, ids=names(HOSTILE))
def test_right_derivatives_of_hostile_functions_are_not_accused(case):
    for x in case.points:
        with np.errstate(all="ignore"):
            assert verdict(case, x, right(case, x)) != "FAIL"


def told(cases, kind):
    count = Counter()
    for number, case in enumerate(cases):
        for x in case.points:
            jac = right(case, x)
            wrong = KINDS[kind](jac.reshape(-1, x.size), np.random.default_rng(number))
            if wrong is not None:
                with np.errstate(all="ignore"):
                    count[verdict(case, x, wrong.reshape(jac.shape))] += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("kind", FOUND)
def test_mutants_of_smooth_functions_fail(kind):
    count = told(SMOOTH, kind)
    assert count["FAIL"] >= 0.98 * count.total()
    assert count["PASS"] <= 0.005 * count.total()


@pytest.mark.parametrize("kind", ["1e-02", "1e-04", "sign", "dropped"])
def test_mutants_of_hostile_functions_do_not_pass(kind):
    assert told(HOSTILE, kind)["PASS"] == 0


def by_vjp(case, x, jac):
    return checked(case.f, x, vjp=lambda x, w: w @ jac)


@pytest.mark.slow
@pytest.mark.parametrize("case", SPARSE_CASES, ids=names(SPARSE_CASES))
def test_of_sparse_jacobians_a_vjp_alone_tells_all(case):
    for x in case.points:
        jac = case.jac(x)
        report = by_vjp(case, x, jac)
        assert report.verdict == "PASS"
        assert "products" in report.reason
        for k, mutate in enumerate(map(KINDS.get, FOUND)):
            wrong = mutate(jac, np.random.default_rng(k))
            if wrong is not None:
                report = by_vjp(case, x, wrong)
                assert report.verdict == "FAIL"
                # Of which row and column something is wrong, and of no other.
                places = {(*e.output_index, *e.input_index) for e in report.failures}
                assert places <= {(int(i), int(j)) for i, j in np.argwhere(wrong != jac)}


def test_errors_below_the_resolution_pass():
    assert set(told(SMOOTH, "1e-07")) == {"PASS"}


def in_float32(case, count):
    """Give points in float32, f there as float32 rounds it, and the Jacobian."""
    random = np.random.default_rng(0)
    for point in case.points:
        for k in range(count):
            x = (point * (1 + 0.05 * (k > 0) * random.uniform(-1, 1, point.shape))).astype("f4")
            yield x, lambda x: np.float32(case.f(x)), right(case, x.astype(float))


@pytest.mark.slow
def test_float32_accuses_no_right_derivative_and_finds_errors_of_3_percent():
    checked, alarms, mutants, found = 0, 0, 0, 0
    random = np.random.default_rng(0)
    for case in SMOOTH:
        for x, f, jac in in_float32(case, 7):
            report = calipers.gradcheck(f, x, jac=lambda x, jac=jac: jac, raise_exception=False)
            checked += jac.size
            alarms += report.counts["FAIL"]
            flat = jac.reshape(-1, x.size)
            rows, columns = np.nonzero(flat)
            pick = random.integers(len(rows))
            wrong = flat.copy()
            wrong[rows[pick], columns[pick]] *= 1.03
            wrong = wrong.reshape(jac.shape)
            report = calipers.gradcheck(f, x, jac=lambda x, jac=wrong: jac, raise_exception=False)
            mutants += 1
            found += report.verdict == "FAIL"
    assert checked >= 30_000
    assert alarms == 0
    assert found >= 0.9 * mutants, (found, mutants)


def by_trapezoids(x):
    return np.trapezoid(x, axis=-1)


def without_first(x):
    return np.cumsum(x, axis=-1)[:, -1] - x[:, 0]


@pytest.mark.parametrize(
    ("f", "weights", "seed"),
    [
        (by_trapezoids, [0.5, 1, 1, 1, 0.5], 27),
        *((without_first, [0, 1, 1, 1, 1], seed) for seed in (111, 297, 367)),
    ],
)
def test_rounding_by_short_steps_hides_no_error_of_a_linear_function(f, weights, seed):
    # By the shortest steps, slopes are off by more than this derivative is, at times in a row.
    jac = np.eye(3)[:, :, None] * np.array(weights)
    jac[1, 1, 3] *= 1.0001
    x = np.random.default_rng(seed).standard_normal((3, 5))
    assert checked(f, x, jac=lambda x: jac).verdict == "FAIL"
