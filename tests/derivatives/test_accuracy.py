"""Derivatives against the exact ones of tests/data/derivative_cases.py."""

import numba
import numpy as np
import pytest

import calipers
from tests.data.derivative_cases import CASES

SMOOTH = [case for case in CASES if case.kind == "smooth"]
REAL = [case for case in CASES if case.kind != "holomorphic"]
EPS = 2.0**-52


def named(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


def relative_errors(found, exact):
    """Return the errors of all entries that are not 0, relative to each."""
    known = exact != 0
    return np.abs(found - exact)[known] / np.abs(exact)[known]


def all_errors(case, differentiate):
    with np.errstate(all="ignore"):
        pairs = [(differentiate(case.f, x), np.asarray(case.jac(x))) for x in case.points]
    return np.concatenate([relative_errors(found, exact) for found, exact in pairs])


@named(SMOOTH)
def test_central_differences_are_as_good_as_scipys(case):
    numdiff = pytest.importorskip("scipy.optimize._numdiff")
    own = np.median(all_errors(case, calipers.jacobian))
    theirs = np.median(all_errors(case, lambda f, x: numdiff.approx_derivative(f, x)))
    assert own <= max(3 * theirs, EPS)


@named(SMOOTH)
@pytest.mark.parametrize(
    ("method", "expected"), [("2-point", 1e-6), ("3-point", 1e-8), ("5-point", 1e-10)]
)
def test_fixed_steps_have_their_order(case, method, expected):
    found = all_errors(case, lambda f, x: calipers.jacobian(f, x, method=method))
    assert np.median(found) <= expected


@named([case for case in REAL if case.analytic])
def test_complex_step_is_exact(case):
    found = all_errors(case, lambda f, x: calipers.jacobian(f, x, method="cs"))
    assert np.median(found) <= 4 * EPS
    assert np.max(found) <= 1e-9  # rounding of f where its terms cancel


@named(SMOOTH)
def test_adaptive_is_accurate(case):
    found = all_errors(case, lambda f, x: calipers.jacobian(f, x, method="adaptive"))
    assert np.median(found) <= 1e-10


def estimates(cases):
    errors, estimated, exact = [], [], []
    for case in cases:
        for x in case.points:
            with np.errstate(all="ignore"):
                d = calipers.differentiate(case.f, x)
            jac = np.asarray(case.jac(x))
            errors.append(np.abs(d.value - jac).ravel())
            estimated.append(d.error.ravel())
            exact.append(np.abs(jac).ravel())
    return map(np.concatenate, (errors, estimated, exact))


def test_error_estimates_cover_the_error_and_are_not_far_above_it():
    error, estimated, exact = estimates(SMOOTH)
    assert len(error) > 4000
    assert np.mean(error <= estimated) >= 0.99
    assert np.mean(np.isinf(estimated)) <= 0.001
    # An entry cannot be more exact than it is represented.
    least = np.maximum(error, EPS * exact)
    known = exact > 0
    assert np.median(estimated[known] / least[known]) <= 100


@named([case for case in REAL if case.kind != "smooth"])
def test_hostile_functions_are_right_or_the_error_says_so(case):
    error, estimated, exact = estimates([case])
    assert np.mean(error <= estimated + EPS * exact) >= 0.85
    assert np.all(error <= 4 * estimated + EPS * exact)


HOSTILE_ACCURACY = {
    "badly_scaled": 1e-10,
    "powell_badly_scaled": 1e-10,
    "exp_of_tiny": 1e-10,
    "domain_edge": 1e-10,
    "one_minus_cosine": 1e-10,
    "absolute_value": 1e-10,
    "leaky_relu": 1e-10,
    "offset_exp": 1e-7,
    "fast_sine": 1e-6,
    "noisy": 1e-6,
    "float32_inside": 1e-4,
}


@pytest.mark.parametrize("name", HOSTILE_ACCURACY)
def test_hostile_functions_are_not_evaded(name):
    (case,) = (case for case in CASES if case.name == name)
    found = all_errors(case, lambda f, x: calipers.differentiate(f, x).value)
    assert np.median(found) <= HOSTILE_ACCURACY[name]


@named([case for case in CASES if case.kind == "holomorphic"])
@pytest.mark.parametrize("method", ["3-point", "adaptive"])
def test_holomorphic_functions(case, method):
    bar = {"3-point": 1e-8, "adaptive": 1e-11}[method]
    for x in case.points:
        found = calipers.jacobian(case.f, x, method=method, holomorphic=True)
        assert np.all(np.abs(found - case.jac(x)) <= bar * np.abs(case.jac(x)).max())
        # The pair of a holomorphic function: its derivative, and nothing.
        by_z, by_conjugate = calipers.jacobian(case.f, x, method=method)
        assert np.all(np.abs(by_z - case.jac(x)) <= bar * np.abs(case.jac(x)).max())
        assert np.all(np.abs(by_conjugate) <= bar * np.abs(case.jac(x)).max())


def turned_back(x):
    """Return x, as complex numbers whose imaginary parts are rounding of their real ones."""
    return x + 1j * (np.exp(x * 3.3) / np.exp(x * 1.1) / np.exp(x * 2.2) - 1)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_part_of_a_complex_number_is_rounded_as_all_of_it_is(compiled):
    x = np.array([0.3, 1.1, 2.7])
    d = calipers.differentiate(numba.njit(turned_back) if compiled else turned_back, x)
    assert d.nfev < 80
    assert np.all(d.status == "CONVERGED")
    assert np.all(np.abs(d.value - np.eye(3)) <= d.error)
    assert np.all(d.error < 1e-12)


def test_so_it_is_along_directions_and_in_gradcheck():
    x = np.array([0.3, 1.1, 2.7])
    along = calipers.jvp(turned_back, x, np.ones(3), method="adaptive")
    np.testing.assert_allclose(along, np.ones(3), atol=1e-12)
    assert calipers.gradcheck(turned_back, x, jac=lambda x: np.eye(3) + 0j)
    wrong = calipers.gradcheck(
        turned_back, x, jac=lambda x: (1 + 1e-3j) * np.eye(3), raise_exception=False
    )
    assert wrong.verdict == "FAIL"


def one(f, x, **options):
    """Differentiate a function of one number."""
    d = calipers.differentiate(f, np.array([x]), **options)
    return d.value.item(), d.error.item(), d.status.item()


def test_statuses_say_what_was_met():
    assert one(np.sin, 0.3)[2] == "CONVERGED"
    assert one(np.abs, 0.0)[2] == "NONSMOOTH"
    assert one(np.abs, 0.0, step=1e-3)[2] == "NONSMOOTH"  # where later ladders met nothing
    assert one(lambda x: np.float32(np.exp(np.float32(x))), 0.3)[2] == "CONVERGED"
    noisy = lambda x: np.exp(x.astype(np.float32)).astype(float)  # noqa: E731
    assert one(noisy, 0.3)[2] == "NOISY"
    assert one(lambda x: x * np.nan, 0.3)[2] == "NONFINITE"
    assert one(np.sin, 0.3, step=np.zeros(1))[2] == "EXCLUDED"
    assert one(np.sin, 0.3, bounds=(0.3, 0.3))[2] == "BOUNDED"
    assert one(np.sin, 0.3, method="3-point")[2] == "FIXED"


def test_at_a_kink_the_error_covers_both_sides():
    value, error, _ = one(lambda x: np.maximum(x, 0.1 * x), 0.0)
    assert value - error <= 0.1
    assert value + error >= 1


def test_a_short_length_scale_is_found():
    for frequency in (1e3, 1e5, 1e6, 1e9, 1e11):
        value, error, _ = one(lambda x: np.sin(frequency * x), 0.7)  # noqa: B023
        exact = frequency * np.cos(frequency * 0.7)
        assert abs(value - exact) <= error <= (1e-4 if frequency < 1e8 else 1e-2) * frequency
    for x in (1e6, 1e9, 1e11):
        value, error, _ = one(np.sin, x)
        assert abs(value - np.cos(x)) <= error <= 1e-4


def test_steps_near_the_rounding_of_x():
    bounds = (1e6 - 1e-7, 1e6 + 1e-6)
    value, error, _ = one(lambda x: np.sin(1e7 * x), 1e6, bounds=bounds)
    assert abs(value - 1e7 * np.cos(1e13)) <= error
    # A staircase whose steps are finer than the room: they may be as long as the shortest step.
    bounds = (0.7 - 1e-7, 0.7 + 1e-6)
    value, error, status = one(lambda x: np.round(x * 1e9) / 1e9, 0.7, bounds=bounds)
    assert abs(value - 1) <= 0.01 < error <= 10
    assert status == "NOISY"


def test_longer_steps_do_not_contradict_shorter_ones():
    value, error, _ = one(lambda x: 1e8 + np.sin(x), 1e10, step=1.0)
    assert abs(value - np.cos(1e10)) <= error <= 1e-3


def test_a_slope_that_short_steps_are_lost_for_is_seen_by_longer_ones():
    covered = []
    for x in 10.0 ** np.random.default_rng(0).uniform(-12, -7, 50):
        value, error, _ = one(lambda x: np.cos(1e7 + x), x)
        covered.append(abs(value + np.sin(1e7)) <= error + 1e-7 and error <= 0.01)
    assert np.mean(covered) >= 0.95


@pytest.mark.parametrize(
    "f",
    [
        lambda x: 1 + np.maximum(x - 2e-9, 0),
        lambda x: 1 + np.sign(x) * np.maximum(abs(x) - 2e-9, 0),
        lambda x: 1 + np.floor(1e8 * x),
    ],
)
def test_but_no_slope_beyond_a_kink(f):
    for x in 10.0 ** np.random.default_rng(0).uniform(-12, -9, 50):
        value, error, status = one(f, x)
        assert abs(value) <= 2 * error or status == "NOISY"


@pytest.mark.parametrize("single", [np.sin, np.exp])
def test_errors_of_noisy_functions_cover_the_error(single):
    f = lambda x: single(x.astype(np.float32)).astype(float)  # noqa: E731
    exact = {np.sin: np.cos, np.exp: np.exp}[single]
    covered = []
    for x in np.random.default_rng(0).uniform(0.5, 2, 150):
        value, error, _ = one(f, x)
        covered.append(abs(value - exact(x)) <= error)
    assert np.mean(covered) >= 0.92


@pytest.mark.parametrize(("frequency", "room"), [(10, 1e-9), (100, 1e-9), (100, 1e-8)])
def test_errors_on_one_side_cover_the_error(frequency, room):
    covered = []
    for x in np.random.default_rng(0).uniform(0.5, 2, 150):
        value, error, _ = one(lambda x: np.sin(frequency * x), x, bounds=(x, x + room))
        covered.append(abs(value - frequency * np.cos(frequency * x)) <= error)
    assert np.mean(covered) >= 0.92


@pytest.mark.parametrize("side", [(0, np.inf), (-np.inf, 0)], ids=["above", "below"])
@pytest.mark.parametrize("formats", ["df", "fd", "ff"])
def test_long_differences_to_one_side_that_are_alike_by_chance_are_not_believed(formats, side):
    random = np.random.default_rng(1)
    ratios = []
    for _ in range(60):
        a, c, b = random.normal(size=(3, 64)) * 2
        x = np.array([random.normal()], formats[0])

        def f(x, a=a, b=b, c=c):
            at = float(x[0])
            smooth = np.exp(a * at / 2) * np.cos(c + b * at), 1 / (2 + np.sin(a * at + c))
            return np.concatenate(smooth).astype(formats[1])

        at = float(x[0])
        growth, phase, sine = np.exp(a * at / 2), c + b * at, a * at + c
        waves = growth * (a / 2 * np.cos(phase) - b * np.sin(phase))
        exact = np.concatenate((waves, -a * np.cos(sine) / (2 + np.sin(sine)) ** 2))
        d = calipers.differentiate(f, x, bounds=[x + end for end in side])
        ratios.append(np.abs(d.value[:, 0] - exact) / d.error[:, 0])
    assert np.mean(np.array(ratios) <= 3) >= 0.9985


@pytest.mark.parametrize("frequency", [10, 100, 1000])
@pytest.mark.parametrize("given", ["step", "one side", "both sides"])
def test_errors_of_short_steps_cover_the_error(frequency, given):
    # Tails would be lost beside x, and what rounding of frequency*x leaves is not seen.
    covered = []
    for x in np.random.default_rng(0).uniform(0.5, 2, 50):
        options = {
            "step": {"step": 1e-6},
            "one side": {"bounds": (x, x + 1e-6)},
            "both sides": {"bounds": (x - 1e-6, x + 1e-6)},
        }[given]
        value, error, _ = one(lambda x: np.sin(frequency * x), x, **options)
        covered.append(abs(value - frequency * np.cos(frequency * x)) <= error)
        assert error <= 1e-5 * frequency
    assert np.mean(covered) >= 0.99


def test_what_is_not_finite_asks_for_no_more_steps():
    x = np.array([0.3])
    alone = calipers.differentiate(np.sin, x)
    beside = calipers.differentiate(lambda x: np.append(np.sin(x), np.nan), x)
    assert beside.nfev == alone.nfev
    assert beside.value[0] == alone.value


def test_what_cannot_be_known_is_said():
    # Several waves in every step that binary64 leaves: nothing but noise.
    assert one(lambda x: np.sin(1e16 * x), 0.7)[1] == np.inf
    assert one(np.sin, 1e18)[1] == np.inf
    # A staircase: flat wherever one looks closely.
    value, error, _ = one(lambda x: np.round(x * 1e3) / 1e3, 0.73)
    assert abs(value - 1) <= error


def test_large_and_small_length_scales():
    value, error, _ = one(lambda x: np.exp(x / 1e-10), 1e-20)
    assert abs(value - 1e10) <= error <= 1e6
    value, error, _ = one(lambda x: 3 + 1e-9 * x, 1.0)
    assert abs(value - 1e-9) <= error <= 1e-14
    value, error, _ = one(np.log, 1e-290)
    assert abs(value - 1e290) <= error <= 1e281


@pytest.mark.parametrize("x", [1e-308, 5e-324, -1e-310])
def test_subnormal_numbers_have_steps(x):
    d = calipers.differentiate(np.sin, x)
    assert abs(float(d.value) - 1) <= d.error
    assert d.error < 1e-6


@pytest.mark.parametrize("f", [lambda x: 1e-200 * x**3, lambda x: 1e200 * np.sin(x)])
def test_functions_of_extreme_scale_are_smooth(f):
    d = calipers.differentiate(f, np.array([1.0]))
    assert d.status.tolist() == ["CONVERGED"]


HUGE = {
    "line": (lambda x: 1.5e308 * x, 1.0, 1.5e308),
    "exponential": (lambda x: np.exp(x), 709.0, np.exp(709.0)),
    "wave": (lambda x: 1e308 * np.sin(x), 0.5, 1e308 * np.cos(0.5)),
    "square": (lambda x: 1e300 * x * x, 2.0, 4e300),
    "of a large number": (lambda x: 1e200 * x * x, 1e50, 2e250),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", HUGE)
def test_differences_of_the_largest_numbers_do_not_overflow(name, compiled):
    f, x, exact = HUGE[name]
    value, error, status = one(numba.njit(f) if compiled else f, x)
    assert status == "CONVERGED"
    assert abs(value - exact) <= error <= 1e-10 * exact
    assert abs(value - exact) <= 1e-12 * exact


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (lambda x: x.sum(keepdims=True) - 1, np.array([1e-18, 1.0]), [[1.0, 1.0]]),
        (lambda x: np.exp(x) - 1, np.array([1e-17]), [[1.0]]),
        (lambda x: x.sum(keepdims=True) - np.float32(1), np.float32([1e-9, 1]), [[1.0, 1.0]]),
        (lambda x: np.array([x[1], 0 * x[0]]), np.array([1e-18, 1.0]), [[0.0, 1.0], [0.0, 0.0]]),
    ],
)
def test_where_f_stands_still_around_a_tiny_x(f, x, expected):
    d = calipers.differentiate(f, x)
    assert np.all(np.abs(d.value - expected) <= d.error + 1e-12)
    assert np.all(d.error < 1e-3)


def test_an_infinite_neighbour_does_not_spoil_the_estimate():
    value, error, status = one(lambda x: np.where(x < 1.1, np.sin(x), np.nan), 1.0)
    assert abs(value - np.cos(1)) <= error <= 1e-8
    assert status == "CONVERGED"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linear_functions_are_exact_to_rounding(dtype):
    a = np.arange(12, dtype=dtype).reshape(3, 4)
    d = calipers.differentiate(lambda x: a @ x, np.ones(4, dtype))
    assert d.value.dtype == dtype
    assert np.abs(d.value - a).max() <= 40 * np.finfo(dtype).eps * 11
    assert np.all(np.abs(d.value.astype(float) - a) <= d.error + np.finfo(dtype).eps * a)


def test_float32_has_steps_and_results_of_float32():
    x = np.linspace(0.5, 2, 20, dtype=np.float32)
    for method, bar in (("2-point", 2e-3), ("3-point", 2e-4), ("5-point", 1e-4)):
        j = calipers.jacobian(np.sin, x, method=method)
        assert j.dtype == np.float32
        assert np.abs(j.diagonal() - np.cos(x)).max() <= bar
    d = calipers.differentiate(np.sin, x)
    assert d.value.dtype == np.float32
    assert np.all(np.abs(d.value.diagonal() - np.cos(x.astype(float))) <= d.error.diagonal() + 1e-7)
    # A float64 x does not help a function that computes in float32.
    j = calipers.jacobian(lambda x: np.sin(x.astype(np.float32)), x.astype(float))
    assert np.abs(j.diagonal() - np.cos(x)).max() <= 2e-4


@pytest.mark.parametrize("method", ["2-point", "3-point", "5-point"])
def test_other_float_formats(method):
    wide = calipers.jacobian(np.sin, np.longdouble([0.7]), method=method)
    assert wide.dtype == np.longdouble
    bar = {"2-point": 1e-9, "3-point": 1e-12, "5-point": 1e-14}[method]
    assert abs(wide.item() - np.cos(np.longdouble(0.7))) <= bar
    narrow = calipers.jacobian(np.sin, np.float16([0.7]), method=method)
    assert narrow.dtype == np.float16
    assert abs(float(narrow.item()) - np.cos(0.7)) <= 0.1


def test_hessians():
    optimize = pytest.importorskip("scipy.optimize")
    x = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
    exact = optimize.rosen_hess(x)
    for h, bar in (
        (calipers.hessian(optimize.rosen, x), 1e-6),
        (calipers.hessian(None, x, gradient=optimize.rosen_der), 1e-9),
    ):
        assert np.array_equal(h.value, h.value.T)
        assert np.abs(h.value - exact).max() <= bar
        assert np.mean(np.abs(h.value - exact) <= h.error) >= 0.99
        assert h.error.max() <= 100 * bar
    h = calipers.hessian(lambda x: np.exp(x[0, 0] * x[1, 1]) + x[0, 1] ** 3, np.full((2, 2), 0.5))
    assert h.value.shape == (2, 2, 2, 2)
    assert abs(h.value[0, 0, 1, 1] - np.exp(0.25) * 1.25) <= h.error[0, 0, 1, 1] <= 1e-8
    assert abs(h.value[0, 1, 0, 1] - 3) <= h.error[0, 1, 0, 1] <= 1e-8


def logsumexp_in_float32(z):
    z = np.asarray(z).astype(np.float32)
    return np.float64(z.max() + np.log(np.exp(z - z.max()).sum()))


def test_long_steps_that_shorter_ones_leave_are_not_believed():
    """Beyond its bend a softplus is straight, and noise of float32 makes long steps look best."""
    random, missed = np.random.default_rng(0), 0
    for _ in range(100):
        x = random.normal(size=4)
        exact = np.exp(x) / np.exp(x).sum()
        d = calipers.differentiate(logsumexp_in_float32, x)
        missed += np.count_nonzero(np.abs(d.value - exact) > d.error)
    assert missed <= 4


def test_nor_do_they_accuse():
    random = np.random.default_rng(0)
    for _ in range(60):
        x = random.normal(size=4)

        def vjp(z, w):
            return w * np.exp(z) / np.exp(z).sum()

        options = {"rtol": 1e-3, "raise_exception": False}
        found = calipers.gradcheck(logsumexp_in_float32, x, vjp=vjp, **options)
        assert found.verdict != "FAIL", str(found)
