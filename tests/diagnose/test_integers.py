"""Integers that functions take as numbers, and those that stand for something else."""

import numpy as np
import pytest

import calipers

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((60, 24), dtype=np.float32)
RATES = 100.0 ** (-np.arange(24) / 24)
FAR = np.arange(100_000, 100_060)


def waves(x, t, kind=np.float64):
    """Return x by cosines of angles in a format."""
    return x * np.cos(t.astype(kind)[:, None] * RATES.astype(kind)).astype(x.dtype)


def in_float32(x, t):
    return waves(x.astype(np.float32), t, np.float32)


@pytest.mark.parametrize("float64", ["auto", "f"])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32])
def test_angles_of_integers_are_off_by_their_last_places(dtype, float64):
    found = calipers.diagnose(waves, in_float32, (X, FAR.astype(dtype)), reference=float64)
    assert found.kind == "AMPLIFIED", str(found)
    assert "with integer inputs treated as float32 numbers, the function is ill-" in found.reason
    assert "inputs, also integers, change by 1 ulp of float32" in " ".join(str(found).split())
    assert found.evidence["kappa"] > 1e3
    assert found.evidence["apart"]["rms"] < 2  # in units of that
    assert found.evidence["likeness_nearby"] < 0.9
    assert found.where is None
    assert found.inputs[1].dtype == dtype
    assert np.abs(in_float32(X, FAR) - waves(X, FAR)).max() < found.recommend_tolerance().atol


def test_angles_of_integers_that_follow_the_inputs_are_so_too():
    found = calipers.diagnose(waves, lambda x, t: waves(x, t, x.dtype.type), (X, FAR))
    assert found.kind == "AMPLIFIED", str(found)
    small = calipers.diagnose(waves, in_float32, (X, FAR - 99_995))
    assert small.kind in ("ROUNDING", "LAYOUT"), str(small)


@pytest.mark.parametrize(
    ("off", "float64", "kind"),
    [(1e-3, "auto", "BUG"), (1e-3, "f", "BUG"), (1e-4, "auto", "SUSPECT"), (1e-4, "f", "BUG")],
)
def test_a_bug_is_not_hidden_by_integers(off, kind, float64):
    """It is less than last places of the integers make, and stays where these change.

    Rounded constants may cause a ten thousandth in float32, unless f is said to be right.
    """

    def g(x, t):
        y = waves(x.astype(np.float32), t)
        y[:, :4] *= y.dtype.type(1 + off)
        return y

    found = calipers.diagnose(waves, g, (X, FAR), reference=float64)
    assert found.kind == kind, str(found)


@pytest.mark.parametrize("t", [FAR + 1, 2 * FAR])
def test_other_integers_are_a_bug(t):
    assert calipers.diagnose(waves, lambda x, _: in_float32(x, t), (X, FAR)).kind == "BUG"


def chosen(x, k):
    return (x * (np.arange(24) == k[:, None])).sum(axis=1)


def summed(x, k):
    return (x * (np.arange(24) < k[:, None])).sum(axis=1)


@pytest.mark.parametrize("f", [chosen, summed])
def test_labels_and_lengths_are_no_numbers(f):
    """Moved by last places they stand for nothing, or for others: that explains any difference."""
    k = np.random.default_rng(1).integers(1, 24, 60)

    def too_large(x, k):
        return f(x.astype(np.float32), k) * np.float32(1.001)

    def another(x, k):
        return f(x.astype(np.float32), np.where(k > 20, k - 1, k))

    assert calipers.diagnose(f, too_large, (X, k)).kind == "BUG"
    assert calipers.diagnose(f, another, (X, k)).kind == "BUG"


def test_what_stays_beside_rounding_is_suspect_as_before():
    def g(x, t):
        return in_float32(x, t) * np.float32(1 + 6e-7)

    found = calipers.diagnose(waves, g, (X, FAR - 99_995), reference="f")
    assert found.kind == "SUSPECT", str(found)
    assert "integers" not in found.reason


def test_what_is_rounding_without_them_is_told_without_them():
    def total(x, t):
        return waves(x, t).sum(axis=1)

    def backwards(x, t):
        return waves(x, t)[:, ::-1].sum(axis=1)

    found = calipers.diagnose(total, backwards, (X, FAR))
    assert found.kind == "ROUNDING", str(found)
    assert "integers" not in found.reason


def test_what_is_right_for_numbers_alone_is_a_bug():
    def g(x, t):
        y = in_float32(x, t)
        return y if t.dtype.kind == "f" else y * y.dtype.type(1.0001)

    assert calipers.diagnose(waves, g, (X, FAR)).kind == "BUG"


def test_few_calls_leave_the_verdict_as_it_is():
    full = calipers.diagnose(waves, in_float32, (X, FAR))
    spent = sum(full.calls.values())
    assert calipers.diagnose(waves, in_float32, (X, FAR), budget=spent - 40).kind == "BUG"


WEIGHTS = np.array([0.299, 0.587, 0.114])


def grey(weights, kind=np.float64):
    """Return bytes of colours, by sums in a format."""
    return lambda x: np.rint(x.astype(kind) @ weights.astype(kind)).astype(np.uint8)


def colours(ties):
    """Return bytes, of which some are half way between two of grey, and all others are not."""
    x = np.random.default_rng(0).integers(0, 256, (100_000, 3), dtype=np.uint8)
    rest = (x.astype(int) @ np.array([299, 587, 114])) % 1000
    return np.concatenate([x[rest == 500][: 60 * ties], x[np.abs(rest - 500) > 5][:400]])


def test_bytes_that_are_rounded_otherwise_half_way_are_no_bug():
    """In float32, or in doubles, a sum of 117.5 is a little more than that, or a little less."""
    found = calipers.diagnose(
        grey(WEIGHTS, np.float32), grey(WEIGHTS), colours(ties=True), batch=()
    )
    assert found.kind == "SUSPECT", str(found)
    assert "treat ties differently" in found.reason
    same = calipers.diagnose(grey(WEIGHTS, np.float32), grey(WEIGHTS), colours(ties=False))
    assert same.kind == "EQUAL", str(same)


def test_bytes_by_other_weights_are_a_bug():
    other = np.array([0.3, 0.59, 0.11])
    found = calipers.diagnose(grey(WEIGHTS), grey(other), colours(ties=True), batch=())
    assert found.kind == "BUG", str(found)
    assert "the inputs are exact: this is not rounding" in found.reason


def test_complex_zeros_are_moved_by_a_share_of_how_large_numbers_are():
    """The mean of squares of imaginary numbers is negative, and no size of them."""
    x = 1j * np.arange(20.0)

    def f(z):
        return (z.imag >= 0) & (z.imag < 7)

    def g(z):
        return (z.imag > 0) & (z.imag < 7.5)

    assert calipers.diagnose(f, g, x, batch=()).kind == "BUG"
