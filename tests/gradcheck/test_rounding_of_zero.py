"""Functions that are constant but for rounding, whose right derivatives are rounding of 0."""

import numpy as np
import pytest

import calipers
from tests.data.derivative_functions import hashed
from tests.data.gradcheck_functions import checked

pytestmark = pytest.mark.slow

SCALES = [1e-6, 1e-3, 0.1, 1.0, 1e3]
SEEDS = 12
FEW = 4  # of them, for what is wrong everywhere


def mean(x):
    return x.mean(-1, keepdims=True)


def deviation(x):
    return np.sqrt(mean((x - mean(x)) ** 2))


def standard(x):
    return (x - mean(x)) / deviation(x)


def standard_vjp(x, w):
    y = standard(x)
    return (w - mean(w) - y * mean(w * y)) / deviation(x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_vjp(x, w):
    y = softmax(x)
    return y * (w - np.sum(w * y, -1, keepdims=True))


def direction(x):
    return x / np.sqrt(np.sum(x * x, -1, keepdims=True))


def direction_vjp(x, w):
    y = direction(x)
    return (w - y * np.sum(w * y, -1, keepdims=True)) / np.sqrt(np.sum(x * x, -1, keepdims=True))


def summed(of, of_vjp, unit=1.0):
    """Return the sum of each row, and its derivative."""
    return (
        lambda x: unit * of(x).sum(-1),
        lambda x, w: of_vjp(x, unit * w[..., None] * np.ones(x.shape)),
    )


def squared(of, of_vjp):
    """Return the mean of the squares of each row, and its derivative."""
    return (
        lambda x: np.mean(of(x) ** 2, -1),
        lambda x, w: of_vjp(x, 2 * w[..., None] * of(x) / x.shape[-1]),
    )


def exponential(f, vjp):
    """Return the exponential of 100 times it."""
    return lambda x: np.exp(100 * f(x)), lambda x, w: vjp(x, 100 * np.exp(100 * f(x)) * w)


CASES = {
    "sum of standard scores": summed(standard, standard_vjp),
    "in other units": summed(standard, standard_vjp, 2.0**20),
    "total of standard scores": (
        lambda x: standard(x).sum(),
        lambda x, w: standard_vjp(x, w * np.ones(x.shape)),
    ),
    "mean square of standard scores": squared(standard, standard_vjp),
    "sum of probabilities": summed(softmax, softmax_vjp),
    "length of a direction": squared(direction, direction_vjp),
    "exponential of a sum": exponential(*summed(standard, standard_vjp)),
}


def points(scale, seeds=SEEDS):
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        yield scale * random.standard_normal((3, random.integers(2, 9)))


def verdicts(f, vjp, scale, seeds=SEEDS):
    return [checked(f, x, vjp=vjp).verdict for x in points(scale, seeds)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", CASES)
def test_rounding_of_0_is_no_wrong_derivative(name, scale):
    told = verdicts(*CASES[name], scale)
    assert set(told) <= {"PASS", "INCONCLUSIVE"}, told
    # In units of which f and its noise are far above 1e-16, f might vary faster than steps show.
    assert name == "in other units" or told.count("PASS") >= SEEDS - 1, told


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", CASES)
def test_of_what_is_constant_other_derivatives_are_wrong(name, scale):
    """They lack a term, or are as the first of many that cancel."""
    f, vjp = CASES[name]

    def uncentred(x, w):
        return vjp(x, w) + np.sum(w) / scale

    def slight(x, w):
        return vjp(x, w) + 1e-6 * np.sum(w) / scale

    assert set(verdicts(f, uncentred, scale, FEW)) == {"FAIL"}
    # Probabilities of 0 and 1 do not change at all: less than half of the digits may be hidden.
    unknown = {"INCONCLUSIVE"} if (name, scale) == ("sum of probabilities", 1e3) else set()
    assert set(verdicts(f, slight, scale, FEW)) <= {"FAIL"} | unknown


@pytest.mark.parametrize("size", [1e-6, 1e-9])
@pytest.mark.parametrize("scale", SCALES)
def test_what_is_not_constant_beside_rounding_is_seen(size, scale):
    f, vjp = CASES["sum of standard scores"]

    def waves(x):
        return f(x) + size * np.sin(x / scale).sum(-1)

    def waves_vjp(x, w, factor=1.0):
        return vjp(x, w) + factor * size / scale * np.cos(x / scale) * w[:, None]

    told = verdicts(waves, waves_vjp, scale)
    assert "FAIL" not in told
    for factor in (-1.0, 0.0, 2.0):
        told = verdicts(waves, lambda x, w, k=factor: waves_vjp(x, w, k), scale, FEW)
        assert "PASS" not in told, told
        assert told.count("FAIL") >= FEW - 1, told


@pytest.mark.parametrize("x", [1e-10, 1e-14, 1e-16, 1e-18])
@pytest.mark.parametrize("factor", [-1.0, 0.0, 1.001])
def test_numbers_that_are_too_small_to_move_f_hide_no_wrong_slope(x, factor):
    x = x * np.array([1.0, -0.7, 0.4])
    for f, slope in ((np.exp, np.exp), (lambda x: np.sin(x + 1), lambda x: np.cos(x + 1))):
        assert checked(f, x, vjp=lambda x, w, s=slope: s(x) * w).verdict == "PASS"
        verdict = checked(f, x, vjp=lambda x, w, s=slope: factor * s(x) * w).verdict
        # All steps that show it are beyond x, where f may be another function.
        unknown = {"INCONCLUSIVE"} if np.abs(x).max() < 1e-10 else set()
        assert verdict in {"FAIL"} | unknown


@pytest.mark.parametrize("scale", [1e-6, 1e-5, 1e-4])
def test_rounding_may_be_larger_farther_off(scale):
    """With numbers far below the square root of 1e-5, as layer norms have it, scores are small."""

    def deviation(x):
        return np.sqrt(mean((x - mean(x)) ** 2) + 1e-5)

    def f(x):
        return ((x - mean(x)) / deviation(x)).sum(-1)

    def vjp(x, w):
        y, w = (x - mean(x)) / deviation(x), w[:, None] * np.ones(x.shape)
        return (w - mean(w) - y * mean(w * y)) / deviation(x)

    told = verdicts(f, vjp, scale)
    assert set(told) <= {"PASS", "INCONCLUSIVE"}, told
    assert scale == 1e-6 or told.count("PASS") >= SEEDS - 1, told


def test_what_is_smooth_beside_x_is_no_rounding():
    """Noise leaves differences nothing to say, and both forms differ by what is far above it."""
    x = np.array([0.3, 0.7, 1.1])
    report = checked(
        lambda x: np.sin(x) + 1e-4 * hashed(x),
        x,
        jvp=lambda x, v: np.cos(x) * v,
        vjp=lambda x, w: np.cos(x) * (1 + 1e-9) * w,
        rtol=1e-12,
    )
    assert any("not derivatives of one function" in told for told in report.findings)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ["sum of standard scores", "length of a direction"])
def test_rounding_of_0_in_float32_is_no_wrong_derivative(name, scale):
    f, vjp = (lambda *given, of=of: of(*given).astype(np.float32) for of in CASES[name])
    told = [checked(f, x.astype(np.float32), vjp=vjp).verdict for x in points(scale)]
    assert set(told) <= {"PASS", "INCONCLUSIVE"}, told
    assert told.count("PASS") >= SEEDS - 1, told


# Where x is far from 1, a gradient that is all rounding does not show its terms: not all pass.
VAGUE = ("layer_norm", 1e-6), ("layer_norm", 1e-3), *(("scores", k) for k in (1e-6, 1e-3, 1e3))


@pytest.mark.filterwarnings("ignore:gradcheck compared nothing")  # where all is 0
@pytest.mark.parametrize(
    ("normal", "scale"),
    [(normal, scale) for normal in ("layer_norm", "scores") for scale in (1e-6, 1e-3, 1e3)],
)
def test_second_derivatives_of_what_is_constant_are_rounding(normal, scale):
    torch = pytest.importorskip("torch")

    def scores(x):
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)

    def layer_norm(x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    f = {"layer_norm": layer_norm, "scores": scores}[normal]
    told = []
    for x in points(scale):
        tensor = torch.from_numpy(x).requires_grad_()
        told.append(
            calipers.gradgradcheck(lambda x: f(x).sum(-1), (tensor,), raise_exception=False).verdict
        )
    assert "FAIL" not in told
    assert (normal, scale) in VAGUE or told.count("PASS") >= SEEDS - 2, told


@pytest.mark.parametrize("off", [0.0, 1e-12, 1e-9])
def test_what_is_linear_and_cancels_is_rounding_for_other_directions(off):
    """Its derivatives are the same numbers at all points."""
    told = []
    for seed in range(40 if off else 160):
        random = np.random.default_rng(seed)
        n = random.integers(2, 7)
        m, x = np.linspace(-1, 1, n * n).reshape(n, n), random.standard_normal((2, n))

        def f(x, m=m, n=n):
            return ((x.sum(-1, keepdims=True) * np.ones(n)) @ m).mean()

        def vjp(x, w, m=m, n=n):
            return (
                np.zeros(x.shape) + (np.full((2, n), w / (2 * n)) @ m.T).sum(-1)[:, None] + off * w
            )

        told.append(checked(f, x, vjp=vjp, jvp=lambda x, v, f=f: f(v) + off * v.sum()).verdict)
    if off:
        assert set(told) <= {"FAIL", "INCONCLUSIVE"}
        assert told.count("FAIL") >= 0.9 * len(told)
    else:
        assert set(told) <= {"PASS", "INCONCLUSIVE"}
        assert told.count("PASS") >= 0.9 * len(told)


@pytest.mark.parametrize("size", [1e-9, 1e-10, 1e-12, 1e-14])
def test_a_kink_of_what_is_small_is_one(size):
    def f(x):
        return size * np.abs(x)

    report = checked(f, np.array([0.5, 0.0, -1.2]), vjp=lambda x, w: w * size * np.sign(x))
    assert report.verdict == "NONSMOOTH"


def test_a_slope_of_what_has_none_is_wrong():
    """As one that stands in for that of a step, and random numbers where there is only noise."""

    def steps(x):
        return np.sign(np.sin(100 * x))

    def waves(x, w):
        return 100 * np.cos(100 * x) * w

    def noise(x):
        return 1 + 1e-15 * hashed(x)

    def numbers(x, w):
        return 1e-3 * hashed(x) * w

    x = np.array([1.0, 2.0, 3.0])
    assert checked(steps, x, vjp=waves).verdict != "PASS"
    assert checked(noise, x, vjp=numbers).verdict != "PASS"
