"""Right derivatives where differences are hard: short lengths beside large x, offsets, rounding."""

import math
import zlib
from functools import partial

import ml_dtypes
import numba
import numpy as np
import pytest

import calipers
from tests.data.gradcheck_functions import checked, sine_vjp

pytestmark = pytest.mark.slow


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def softmax_vjp(x, w):
    s = softmax(x)
    return s * (w - s @ w)


def normalized(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def normalized_vjp(x, w):
    y, deviation = normalized(x), np.sqrt(x.var() + 1e-5)
    return (w - w.mean() - y * (w * y).mean()) / deviation


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("level", [30.0, 500.0, 1000.0, 5000.0])
@pytest.mark.parametrize(
    ("f", "vjp"), [(softmax, softmax_vjp), (normalized, normalized_vjp)], ids=["softmax", "norm"]
)
def test_lengths_that_are_short_beside_x(f, vjp, level, fast_mode):
    for seed in range(4):
        x = level + np.random.default_rng(seed).standard_normal(8)
        report = checked(f, x, vjp=vjp, fast_mode=fast_mode)
        assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)
        wrong = checked(f, x, vjp=lambda x, w: 1.01 * vjp(x, w), fast_mode=fast_mode)
        assert wrong.verdict == "FAIL", str(wrong)


@pytest.mark.parametrize("rate", [100.0, 300.0, 1e4])
def test_a_step_that_is_narrow(rate):
    def f(x):
        return np.tanh(rate * (x - 1))

    def vjp(x, w):
        with np.errstate(over="ignore"):
            return w * rate / np.cosh(rate * (x - 1)) ** 2

    for x in np.linspace(0.9, 1.1, 41):
        assert checked(f, np.array([x]), vjp=vjp).verdict != "FAIL", x
    assert checked(f, np.array([1.0]), vjp=vjp).verdict == "PASS"


def gaussian(u):
    return np.exp(-u * u)


def gaussian_slope(u):
    return -2 * u * np.exp(-u * u)


def lorentzian(u):
    return 1 / (1 + u * u)


def lorentzian_slope(u):
    return -2 * u / (1 + u * u) ** 2


LINES = {"gaussian": (gaussian, gaussian_slope), "lorentzian": (lorentzian, lorentzian_slope)}
WAVELENGTHS = [3e-7, 5.5e-7, 1.55e-6, 5e-6]


@pytest.mark.parametrize("fast_mode", [False, True], ids=["exhaustive", "projected"])
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize(
    ("center", "width"),
    [*((center, center / 50) for center in WAVELENGTHS), (1.0, 1e-7), (1.0, 3e-8), (30.0, 3e-7)],
)
def test_lines_that_are_narrower_than_a_step(name, center, width, fast_mode):
    """Far from a line f is 0, so that long steps support a derivative of zeros."""
    f, slope = LINES[name]
    for at in (-1.3, -0.4, 0.2, 0.9):
        x = np.array([center + at * width])
        exact = slope((x - center) / width) / width

        def line(x):
            return f((x - center) / width)

        found = calipers.differentiate(line, x)
        assert abs(found.value - exact) <= found.error + 1e-9 * abs(exact)
        for factor in (1, 0, -1, 2, 1.01):
            jac = np.diag(factor * exact)
            report = checked(line, x, jac=lambda x, jac=jac: jac, fast_mode=fast_mode)
            wrong = ("FAIL",) if factor else ("FAIL", "INCONCLUSIVE")
            assert report.verdict in (("PASS",) if factor == 1 else wrong), (at, factor)


def test_a_steep_slope_that_is_right_is_no_pole():
    report = checked(lambda x: np.tanh(1e6 * x), np.zeros(1), jac=lambda x: np.full((1, 1), 1e6))
    assert report.verdict == "PASS"


@pytest.mark.parametrize(
    ("offset", "dtype"), [(1e4, "f4"), (1e5, "f4"), (1e12, "f8"), (1e13, "f8"), (1e14, "f8")]
)
def test_an_offset_that_hides_the_function(offset, dtype):
    kind = np.dtype(dtype).type
    for x in np.linspace(0.3, 3, 40):
        report = checked(
            lambda x: np.sin(x) + kind(offset),
            np.array([x], dtype),
            vjp=lambda x, w: w * np.cos(x),
        )
        assert report.verdict != "FAIL", (x, str(report))


def test_what_is_lost_inside_f_is_no_evidence():
    report = checked(lambda x: (x + 1e8) - 1e8, np.array([1e-9]), vjp=lambda x, w: w)
    assert report.verdict != "FAIL"


def test_errors_beyond_the_rounding_of_a_large_result_are_seen():
    x = np.array([1.0, 2.0])
    for factor, verdict in ((1.0, "PASS"), (1.1, "FAIL")):
        report = calipers.gradcheck(
            lambda x: 1e6 + 1e-7 * x,
            x,
            jac=lambda x, factor=factor: factor * 1e-7 * np.eye(2),
            raise_exception=False,
        )
        assert report.verdict == verdict


# Rounding in a derivative is no error of it.
def test_a_derivative_that_rounds_to_float32_within_the_callers_tolerance():
    def vjp(x, w):
        return sine_vjp(x, w).astype(np.float32)

    x = np.linspace(0.1, 1, 50)
    assert checked(np.sin, x, vjp=vjp, rtol=1e-3, atol=1e-3).verdict == "PASS"
    assert checked(np.sin, x, vjp=vjp).verdict == "PASS"
    jac = {"jac": lambda x: np.diag(np.cos(x)).astype(np.float32)}
    assert checked(np.sin, x, vjp=sine_vjp, rtol=1e-3, **jac).verdict == "PASS"


@pytest.mark.parametrize(
    ("x", "dtype"), [(-100.0, np.float32), (-92.0, np.float32), (-743.0, float)]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_subnormal_results_accuse_nothing(x, dtype, compiled):
    f = numba.njit(lambda x: np.exp(x)) if compiled else np.exp
    point = np.array([x], dtype)
    for step in (1e-3, 2.0**-10, 2.0**-7, 2.0**-2, None):
        report = calipers.gradcheck(
            f, point, jac=lambda x: np.diag(np.exp(x)), step=step, raise_exception=False
        )
        assert report.verdict in ("PASS", "INCONCLUSIVE"), step
        d = calipers.differentiate(f, point, step=step)
        assert abs(float(d.value[0, 0]) - np.exp(x)) <= d.error[0, 0]


@pytest.mark.parametrize("form", ["vjp", "jvp"])
def test_fast_mode_asks_as_seldom_whatever_the_direction(form):
    """Some of many outputs hardly change along a direction, and a few are noisy by chance."""
    x = np.random.default_rng(0).random(100_000)

    def slope(x, v):
        return v * (3 * x * x - 1)

    for seed in range(9):
        for f in (lambda x: x**3 - x, lambda x: x * x * x - x):
            report = calipers.gradcheck(f, x, **{form: slope}, fast_mode=True, seed=seed)
            assert report.calls["f"] <= 480


def test_fast_mode_sees_small_outputs_beside_large_ones():
    scale = np.where(np.arange(2000) % 2, 1e5, 1.0)
    x = np.random.default_rng(0).random(2000)

    def wrong(x, v):
        slope = scale * v * np.cos(x)
        slope[4] *= 1.01
        return slope

    for seed in range(5):
        options = {"jvp": wrong, "fast_mode": True, "seed": seed, "raise_exception": False}
        assert calipers.gradcheck(lambda x: scale * np.sin(x), x, **options).verdict == "FAIL"


@pytest.mark.parametrize("tiny", [1e-12, 1e-7, 0.0])
def test_products_see_an_error_by_an_element_that_is_nearly_zero(tiny):
    x = np.array([tiny, 1.0, 2.0, 3.0])
    report = checked(np.sin, x, vjp=lambda x, w: sine_vjp(x, w) * [1.5, 1, 1, 1], fast_mode=True)
    assert report.verdict == "FAIL"
    assert report.worst.input_index == (0,)


def test_fast_mode_climbs_again_where_rounding_hides_all_products():
    x = np.random.default_rng(0).uniform(1, 2, 2000)
    options = {"jvp": lambda x, v: 1e-7 * np.cos(x) * v, "fast_mode": True}
    assert checked(lambda x: 1 + 1e-7 * np.sin(x), x, **options).verdict == "PASS"


def of_softmax(x):
    y = np.exp(x - x.max())
    return np.sum(y / y.sum())


# Functions whose derivative is 0, exactly or but for rounding.
ZERO_DERIVATIVES = {
    "a constant": lambda x: np.ones(3),
    "zeros": lambda x: 0 * x,
    "the sum of softmax": of_softmax,
    "a clipped function": lambda x: np.maximum(x - 1e6, 0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["vjp", "jvp"])
@pytest.mark.parametrize("size", [40, 5000])
@pytest.mark.parametrize("f", ZERO_DERIVATIVES.values(), ids=ZERO_DERIVATIVES)
def test_fast_mode_confirms_derivatives_of_zero_at_every_size(f, size, form, dtype):
    x = np.random.default_rng(0).standard_normal(size).astype(dtype)
    right = {"vjp": lambda x, w: 0 * x, "jvp": lambda x, v: 0 * f(x)}
    assert checked(f, x, **{form: right[form]}, fast_mode=True).verdict == "PASS"
    wrong = {"vjp": lambda x, w: 0 * x + 1e-3, "jvp": lambda x, v: 0 * f(x) + 1e-3}
    report = checked(f, x, **{form: wrong[form]}, fast_mode=True, check_undefined_grad=False)
    assert report.verdict == "FAIL"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("scale", [1, 1e5])
@pytest.mark.parametrize("size", [40, 5000])
def test_fast_mode_confirms_inputs_that_are_not_used(size, scale, dtype):
    x, y = (scale * np.random.default_rng(0).standard_normal((2, size))).astype(dtype)
    unused = {"vjp": lambda x, y, w: (2 * w, None), "jvp": lambda x, y, v: 2 * v[0]}
    for form, derivative in unused.items():
        options = {form: derivative, "fast_mode": True}
        assert checked(lambda x, y: 2 * x + 1, (x, y), **options).verdict == "PASS"
        # One that is used, however little, is not taken for such.
        assert checked(lambda x, y: 2 * x + 1 + 1e-4 * y, (x, y), **options).verdict != "PASS"


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32])
@pytest.mark.parametrize("size", [10, 5000])
def test_fast_mode_confirms_no_zero_of_functions_that_round_their_inputs(size, kind):
    x = np.random.default_rng(0).standard_normal(size)
    zero = {"vjp": lambda x, w: 0 * x, "fast_mode": True}
    assert checked(lambda x: np.sin(x.astype(kind).astype(float)), x, **zero).verdict != "PASS"


def test_fast_mode_confirms_zero_between_jumps_that_are_nearer_than_long_steps():
    """The gradient of a sum over sorted numbers does not change until two of them change places."""
    x = np.random.default_rng(0).permutation(8000) + 0.1
    w = np.random.default_rng(1).uniform(-1, 1, 8000)

    def f(x, w):
        return w[x.argsort()]

    def jvp(x, w, v):
        return v[1][x.argsort()]

    # Long steps differ from short ones.
    assert checked(f, (x, w), jvp=jvp, fast_mode=True).verdict in ("PASS", "INCONCLUSIVE")
    vjp = {"vjp": lambda x, w, u: (None, u[x.argsort().argsort()])}
    assert checked(f, (x, w), **vjp, fast_mode=True).verdict in ("PASS", "INCONCLUSIVE")
    wrong = {"jvp": lambda x, w, v: jvp(x, w, v) + 1e-3 * v[0]}
    assert checked(f, (x, w), **wrong, fast_mode=True).verdict != "PASS"


@pytest.mark.parametrize("size", [1e-200, 1e100, 1e160, 1e200])
def test_products_whose_squares_no_float_holds(size):
    x = size * np.array([1.3, 0.7, 2.1])
    for fast_mode in (False, True):
        right = checked(lambda x: 3 * x, x, vjp=lambda x, w: 3 * w, fast_mode=fast_mode)
        assert right.verdict == "PASS", str(right)
        wrong = checked(lambda x: 3 * x, x, vjp=lambda x, w: 3.001 * w, fast_mode=fast_mode)
        # Steps beyond |x| alone resolve 0.1 % of so small an x.
        assert wrong.verdict in (("FAIL",) if size > 1 else ("FAIL", "INCONCLUSIVE")), str(wrong)


@pytest.mark.parametrize("size", [1e100, 1e200])
def test_forms_of_two_matrices_whose_results_are_large(size):
    rate = size * np.array([1.3, 0.7, 2.1])
    report = checked(
        lambda x: rate * x,
        np.ones(3),
        vjp=lambda x, w: w * rate,
        jvp=lambda x, v: 1.001 * v * rate,
    )
    assert "are not derivatives of one function" in report.findings[0]


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(
    ("dtype", "size"), [("f", 1e3), ("f", 1e4), ("f", 1e5), ("d", 1e8), ("d", 1e10)]
)
def test_waves_that_are_far_shorter_than_x_accuse_nobody(dtype, size, fast_mode):
    for seed in range(12):
        x = (size * np.random.default_rng(seed).standard_normal(50)).astype(dtype)
        report = checked(np.sin, x, vjp=sine_vjp, fast_mode=fast_mode)
        assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)
        if dtype == "d":
            wrong = checked(np.sin, x, vjp=lambda x, w: 1.01 * sine_vjp(x, w), fast_mode=fast_mode)
            assert wrong.verdict == "FAIL", str(wrong)


def slightly_wavy(x):
    return x + x.dtype.type(0.1) * np.sin(x)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize("size", [100, 300, 1000, 3000])
def test_waves_of_a_hundred_roundings_accuse_nobody(size, fast_mode):
    for seed in range(10):
        x = np.random.default_rng(seed).uniform(0.5 * size, 1.5 * size, 4).astype("f")
        for factor in (1, 1.3):

            def vjp(x, w, factor=factor):
                return np.float32(factor) * w * (1 + np.float32(0.1) * np.cos(x))

            report = checked(slightly_wavy, x, vjp=vjp, fast_mode=fast_mode)
            assert report.verdict == ("PASS" if factor == 1 else "FAIL"), str(report)


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(("size", "accused"), [(1e4, 0), (3e4, 3)])
def test_waves_of_some_dozen_roundings_accuse_hardly_anybody(size, accused, fast_mode):
    told = []
    for seed in range(10):
        x = np.random.default_rng(seed).uniform(0.5 * size, 1.5 * size, 4).astype("f")

        def vjp(x, w, factor=1):
            return np.float32(factor) * w * (1 + np.float32(0.1) * np.cos(x))

        told.append(checked(slightly_wavy, x, vjp=vjp, fast_mode=fast_mode).verdict)
        wrong = checked(slightly_wavy, x, vjp=partial(vjp, factor=1.3), fast_mode=fast_mode)
        assert wrong.verdict == "FAIL", str(wrong)
    # Where a wave's slope is nearly 0, rounding hides it at the larger x.
    assert told.count("FAIL") <= accused, told


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_softmax_vjp(x, w):
    return w - np.exp(log_softmax(x)) * w.sum(axis=-1, keepdims=True)


erf = np.vectorize(math.erf, otypes="d")
erfc = np.vectorize(math.erfc, otypes="d")


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_vjp(x, w):
    slope = erfc(-x / math.sqrt(2)) / 2 + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return w * slope


def gelu_by_tanh(x):
    return 0.5 * x * (1 + np.tanh(0.8 * (x + 0.044715 * x**3)))


def gelu_by_tanh_vjp(x, w):
    u = 0.8 * (x + 0.044715 * x**3)
    slope = x * 0.8 * (1 + 0.134145 * x * x) / np.cosh(np.clip(u, -300, 300)) ** 2 / 2
    return w * (1 / (1 + np.exp(np.clip(-2 * u, None, 700))) + slope)


def divergence(x):
    """Divergence of rows from those in reverse: the middle one is none from itself."""
    p, q = np.exp(log_softmax(x[::-1])), log_softmax(x)
    return np.sum(p * (np.log(p) - q))


def divergence_vjp(x, w):
    p, q = np.exp(log_softmax(x[::-1])), log_softmax(x)
    inner = np.log(p) - q
    of_p = p * (inner - np.sum(p * inner, axis=-1, keepdims=True))
    return w * (of_p[::-1] - (p - np.exp(q)))


SATURATED = {
    "log_softmax": (log_softmax, log_softmax_vjp, 10.0),
    "log_softmax, far": (log_softmax, log_softmax_vjp, 30.0),
    "gelu": (gelu, gelu_vjp, 10.0),
    "gelu, far": (gelu, gelu_vjp, 30.0),
    "gelu by tanh": (gelu_by_tanh, gelu_by_tanh_vjp, 6.0),
}


@pytest.mark.parametrize("name", SATURATED)
def test_entries_that_are_nothing_beside_others_accuse_nobody(name):
    f, vjp, size = SATURATED[name]
    unknown = 0
    for seed in range(12):
        x = size * np.random.default_rng(seed).standard_normal((3, 4))
        report = checked(f, x, vjp=vjp)
        assert report.verdict in ("PASS", "INCONCLUSIVE"), str(report)
        unknown += report.verdict != "PASS"
        wrong = checked(f, x, vjp=lambda x, w: vjp(x, w) * (1 + 1e-5))
        assert wrong.verdict == "FAIL", str(wrong)
    # 1 + erf(x) is rounded alike at the shortest steps from x = -5.5, and not at others.
    assert unknown <= ("gelu" in name)


def test_products_that_cancel_are_linear_but_for_rounding():
    """Nor is the entry told, as digits of f cancel, too."""
    for seed in range(12):
        x = 1e-3 * np.random.default_rng(seed).standard_normal((3, 4))
        report = checked(divergence, x, vjp=divergence_vjp)
        assert report.verdict != "FAIL", str(report)


@pytest.mark.parametrize("off", [1e-9, -1e-9])
def test_a_small_error_where_f_stands_still_is_seen(off):
    def vjp(x, w):
        return np.where(x > 0, w, off * w)

    x = np.random.default_rng(0).standard_normal(12)
    assert checked(lambda x: np.maximum(x, 0), x, vjp=vjp).verdict == "FAIL"


@pytest.mark.parametrize("x", [[0.41, 0.65], [1.0, 2.0], [1e5, 3e5]])
def test_what_rounding_of_f_hides_along_its_length_is_right(x):
    """Of 1e8 that is 2e-8, far more than what an entry of 1e-4 is off by."""
    matrix = np.array([[1e8, 1e-4], [40.0, 0.0]])
    for off, verdict in ((1e-9, "PASS"), (1e-6, "FAIL")):
        claimed = matrix + [[0, off], [0, 0]]
        report = checked(lambda x: matrix @ x, np.array(x), jac=lambda x, a=claimed: a)
        assert report.verdict == verdict, off


@pytest.mark.parametrize("off", [1e-9, 1e-8, 2e-8, 1e-7])
def test_where_f_stands_still_an_entry_may_be_rounding_of_the_largest_beside_it(off):
    claimed = np.array([[off, 6e6], [0.0, 1.0]])
    report = checked(lambda x: np.array([6e6 * x[1], x[1]]), np.zeros(2), jac=lambda x: claimed)
    assert report.verdict == ("PASS" if off <= 1e-8 else "FAIL")


def test_rounding_hides_no_entry_where_small_steps_of_f_are_known():
    """It hides what rounding of the largest entry may leave, over the lengths of x: 1.6e-9 here."""
    x = np.array([-4.6e-7, -1.5e-6, 1.7e-7])
    for off, verdict in ((1e-11, "PASS"), (1e-8, "FAIL")):
        claimed = np.array([[3.4e5, 0.0, off]])
        found = checked(lambda x: 3.4e5 * x[:1], x, jac=lambda x, a=claimed: a).verdict
        assert (found == "PASS") == (verdict == "PASS"), off


@pytest.mark.parametrize("side", [np.maximum, np.minimum])
def test_where_f_and_its_derivative_are_0_slopes_beside_x_tell_sizes(side):
    for off, verdict in ((0.0, "PASS"), (1e-10, "PASS"), (1.0, "FAIL")):
        claimed = np.array([[off]])
        report = checked(lambda x: 1e6 * side(x, 0) ** 2, np.zeros(1), jac=lambda x, a=claimed: a)
        assert report.verdict == verdict, off


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("off", [1e-3, 0.1])
def test_noise_excuses_no_wrong_entry(offset, off):
    def f(x):
        return (offset + np.sin(x)) - offset

    def vjp(x, w):
        return w * np.cos(x) * np.where(np.arange(x.size) == 2, 1 + off, 1)

    told = [
        checked(f, np.random.default_rng(seed).uniform(0.5, 1.5, 6), vjp=vjp).verdict
        for seed in range(20)
    ]
    assert told.count("FAIL") >= 19


@pytest.mark.parametrize(("offset", "off"), [(30, 0.02), (300, 0.1)])
def test_noise_confirms_nothing_wrong(offset, off):
    def f(x):
        return (x.dtype.type(offset) + np.sin(x)) - x.dtype.type(offset)

    def vjp(x, w):
        return np.float32(1 + off) * w * np.cos(x)

    for seed in range(150):
        x = np.random.default_rng(seed).uniform(0.5, 1.5, 1).astype("f")
        assert checked(f, x, vjp=vjp).verdict != "PASS"


@pytest.mark.parametrize("form", ["vjp", "jvp"])
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize("size", [1e-3, 1.0, 10.0])
def test_fast_mode_sees_entries_by_elements_that_are_zero(form, dtype, size):
    x = size * np.random.default_rng(0).standard_normal(100)
    x[::3] = 0

    def tangent(x, v):
        return np.where(np.arange(x.size) == 30, 0, 3 * v)

    report = checked(lambda x: 3 * x, x.astype(dtype), fast_mode=True, **{form: tangent})
    assert report.verdict == "FAIL", str(report)
    assert report.worst.input_index == (30,)


def test_fast_mode_sees_a_kink_at_zero():
    x = np.array([0.5, 0.0, -1.2])
    report = checked(np.abs, x, vjp=lambda x, w: w * np.sign(x), fast_mode=True)
    assert report.verdict == "NONSMOOTH", str(report)


def test_noise_accuses_nobody():
    for seed in range(60):
        random = np.random.default_rng(seed)
        a, x = random.standard_normal((8, 8)) / 3, random.standard_normal(8)

        def f(x, a=a):
            noise = np.random.default_rng(zlib.crc32(x.tobytes())).uniform(-1, 1, 8)
            return np.tanh(a @ x) * (1 + 1e-8 * noise)

        def jac(x, a=a):
            return (1 - np.tanh(a @ x) ** 2)[:, None] * a

        assert checked(f, x, jac=jac).verdict != "FAIL", seed
        assert checked(f, x, jac=lambda x, jac=jac: 1.03 * jac(x)).verdict == "FAIL"


@pytest.mark.parametrize(("n", "verdict"), [(300, "PASS"), (20_000, "INCONCLUSIVE")])
def test_products_that_rounding_hides_cost_seconds_at_most(n, verdict):
    def offset(x):
        return np.float32(1e6) + np.sin(x).sum()

    x = np.random.default_rng(0).standard_normal(n).astype(np.float32)
    report = calipers.gradcheck(
        offset, x, vjp=lambda x, w: w * np.cos(x), fast_mode=True, raise_exception=False
    )
    assert report.verdict == verdict
    if verdict == "INCONCLUSIVE":
        assert report.calls["f"] < 100
        assert "check without fast_mode" in str(report)


@pytest.mark.parametrize("seed", range(10))
def test_products_that_are_known_badly_pass_nothing(seed):
    x = (1e4 * np.random.default_rng(seed).standard_normal(3)).astype(np.float32)
    report = calipers.gradcheck(
        np.sin,
        x,
        vjp=lambda x, w: np.float32(1.1) * w * np.cos(x),
        fast_mode=True,
        raise_exception=False,
    )
    assert report.verdict in ("FAIL", "INCONCLUSIVE")


def standardized(x):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)


def standardized_vjp(x, w, factor=1.0):
    h, deviation = standardized(x), np.sqrt(x.var(axis=0) + 1e-5)
    return factor * (w - w.mean(axis=0) - h * (w * h).mean(axis=0)) / deviation


def test_what_varies_within_a_step_and_is_flat_beyond_has_hardly_ever_a_kink():
    """A batch norm of numbers like 1e6, that differ by 1: a step of 6 is far beyond the others."""
    wrong = lambda x, w: standardized_vjp(x, w, 1.001)  # noqa: E731
    verdicts = []
    for seed in range(8):
        x = 1e6 + np.random.default_rng(seed).standard_normal((4, 3))
        verdicts.append(checked(standardized, x, vjp=standardized_vjp).verdict)
        assert checked(standardized, x, vjp=wrong).verdict == "FAIL"
    assert verdicts.count("PASS") >= 7
    assert "FAIL" not in verdicts


@pytest.mark.parametrize("claim", [1e-3, 1.0, 1e3])
def test_a_jump_within_a_step_is_no_slope(claim):
    f = lambda x: np.where(x > 1 + 5e-7, 1.0, 0.0)  # noqa: E731
    assert checked(f, np.ones(1), vjp=lambda x, w: w * claim).verdict != "PASS"
