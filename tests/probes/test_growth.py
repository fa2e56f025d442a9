"""Growth of errors whose size is known."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest

import calipers

SIZES = [1, 4, 16, 64, 256]
U = 2.0**-24


def identity(x):
    return x


def ones(n):
    return np.ones((3, n), np.float32)


def running(x):
    return np.cumsum(x, axis=-1)[..., -1]


def inputs(n):
    return np.random.default_rng(n).standard_normal((300, n)).astype(np.float32)


def test_equal_functions_do_not_grow():
    found = calipers.growth(running, running, inputs, SIZES)
    assert found.apart == found.totals == (0,) * 5
    assert found.error_f == found.error_g
    assert math.isnan(found.slope)
    assert found.format == "float32"
    assert found.sizes == (1, 4, 16, 64, 256)


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_a_difference_that_is_planted(power):
    def off(x):
        return x * np.float32(1 + 64 * U * x.shape[1] ** power)

    found = calipers.growth(off, identity, ones, SIZES)
    assert found.apart == tuple(64.0 * n**power for n in SIZES)
    assert found.slope == pytest.approx(power, abs=1e-6)
    # one more power in the sum, of 3 n elements
    assert found.totals == pytest.approx([64 * U * n**power * 3 * n for n in SIZES])
    assert found.slopes["totals"] == pytest.approx(power + 1)


def test_errors_are_from_exact_sums():
    def exact(row):
        return float(sum(map(Fraction, row.tolist())))

    found = calipers.growth(running, lambda x: x.sum(1), inputs, SIZES[1:])
    for n, own, other in zip(found.sizes, found.error_f, found.error_g, strict=True):
        x = inputs(n)
        y = np.array([exact(row) for row in x])
        size = U * np.sqrt(np.mean(x.sum(1).astype(float) ** 2))
        for error, sums in ((own, running(x)), (other, x.sum(1))):
            assert error == pytest.approx(np.sqrt(np.mean((sums - y) ** 2)) / size, rel=1e-6)


def test_running_sums_grow_as_the_square_root_and_blocks_hardly():
    found = calipers.growth(running, lambda x: x.sum(1), inputs, [2**k for k in range(4, 13)])
    assert found.slopes["error_f"] == pytest.approx(0.5, abs=0.08)
    assert found.slopes["error_g"] < 0.3
    assert all(error < math.sqrt(n) for n, error in zip(found.sizes, found.error_f, strict=True))


def test_sums_with_a_bias_grow_in_proportion():
    def downwards(x):
        return np.asarray(calipers.emulated_matmul(x, np.ones(x.shape[1], x.dtype), "float32"))

    def truncated(x):
        total = np.zeros(len(x), x.dtype)
        for column in x.T:
            total = (total.astype(float) + column).astype(x.dtype) * (1 - x.dtype.type(2 * U))
        return total

    found = calipers.growth(truncated, downwards, lambda n: abs(inputs(n)), [16, 64, 256])
    assert found.slope == pytest.approx(1, abs=0.1)


def test_the_bound():
    found = calipers.growth(identity, identity, lambda n: np.ones(n, np.float16), [1, 2**10, 2**11])
    assert found.bounds == (1 / (1 - 2.0**-11), 2048, math.inf)
    assert found.format == "float16"


def test_what_takes_no_wider_format():
    def narrow(x):
        assert x.dtype == np.float32
        return x

    found = calipers.growth(narrow, identity, ones, SIZES)
    assert all(map(math.isnan, found.error_f))
    assert found.error_g == (0,) * 5
    assert "-" in str(found)


def test_what_is_narrow_inside_has_no_error_to_be_known():
    def narrow(x):
        return running(x.astype(np.float32))

    found = calipers.growth(narrow, running, ones, SIZES)
    assert all(map(math.isnan, found.error_f))


def test_arrays_in_containers_have_a_format():
    def inputs(n):
        return {"x": np.random.default_rng(n).random((3, n), np.float32)}

    def last(held):
        return held["x"].cumsum(axis=1)[:, -1]

    found = calipers.growth(last, last, inputs, [300])
    assert found.format == "float32"
    assert found.error_f[0] > 0


def test_tensors_and_several_inputs():
    torch = pytest.importorskip("torch")

    def layer(n):
        return torch.ones(4, n), torch.ones(n, n), torch.ones(n)

    def by_hand(x, w, b):
        return x @ w.T + b

    found = calipers.growth(by_hand, torch.nn.functional.linear, layer, SIZES)
    assert found.apart == found.error_f == found.error_g == (0,) * 5
    shifted = calipers.growth(lambda x, w, b: by_hand(x, w, 1.5 * b), by_hand, layer, [3])
    assert shifted.apart == pytest.approx([0.5 / 4 / U])


def test_results_of_zero_nan_and_nothing():
    found = calipers.growth(lambda x: 0 * x, lambda x: 0 * x, ones, SIZES)
    assert found.apart == (0,) * 5
    assert calipers.growth(lambda x: x, lambda x: 0 * x, ones, [2]).apart == (math.inf,)
    found = calipers.growth(lambda x: x * np.nan, lambda x: x * np.nan, ones, [2, 4])
    assert found.apart == (0, 0)
    found = calipers.growth(lambda x: x * np.nan, identity, ones, [2, 4])
    assert found.apart == (math.inf, math.inf)
    assert math.isnan(found.slope)
    assert calipers.growth(identity, identity, lambda n: np.ones((0, n)), [2]).apart == (0,)


def test_functions_that_write():
    kept = np.ones((3, 2))

    def doubles(x):
        x *= 2
        return x

    assert calipers.growth(doubles, lambda x: 2 * x, lambda n: kept, [1, 2]).apart == (0, 0)
    assert (kept == 1).all()


def fails(x):
    raise ZeroDivisionError("on purpose")


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((identity, identity, ones, []), ValueError, "sizes is empty"),
        ((identity, identity, ones, [0]), ValueError, "sizes must be positive integers, got 0"),
        ((identity, identity, ones, [2.0]), ValueError, "sizes must be positive integers, got 2.0"),
        ((3, identity, ones, [1]), TypeError, "f must be callable, got int"),
        ((identity, 3, ones, [1]), TypeError, "g must be callable, got int"),
        ((identity, identity, 3, [1]), TypeError, "make_inputs must be callable, got int"),
        ((fails, identity, ones, [1]), ZeroDivisionError, "on purpose"),
        ((identity, fails, ones, [1]), ZeroDivisionError, "on purpose"),
        ((identity, identity, fails, [1]), ZeroDivisionError, "on purpose"),
        (
            (identity, lambda x: x + 0j, ones, [4]),
            ValueError,
            "only one of f and g returns complex",
        ),
        ((identity, running, ones, [4]), ValueError, "at size 4: f returns shape"),
        (
            (identity, identity, lambda n: np.ones(n, "f" if n > 1 else "d"), [1, 2]),
            ValueError,
            "one dtype for all sizes, got float32, float64",
        ),
    ],
)
def test_what_cannot_be_measured(arguments, error, match):
    with pytest.raises(error, match=match):
        calipers.growth(*arguments)


def test_the_table_is_short_and_for_machines():
    found = calipers.growth(running, lambda x: x.sum(1), ones, range(1, 60))
    lines = str(found).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 88
    assert "  43 smaller sizes are not shown: see .sizes" in lines
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert written["sizes"] == list(range(1, 60))
    assert len(written["bounds"]) == 59


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    figure = calipers.growth(running, lambda x: x.sum(1), inputs, SIZES).plot()
    assert figure.axes[0].get_xlabel() == "n, the size passed to make_inputs"
    assert "rounding error of float32" in figure.axes[0].get_ylabel()
    figure.savefig(tmp_path / "growth.png")
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert [label.partition(",")[0] for label in labels[:3]] == [
        "|f - g|",
        "error of f",
        "error of g",
    ]
    calipers.growth(identity, identity, ones, [1]).plot().savefig(tmp_path / "nothing.png")


@pytest.mark.parametrize("scale", [2.0**-700, 2.0**700])
def test_errors_are_told_where_their_squares_are_out_of_range(scale):
    def usual(n):
        return np.random.default_rng(n).standard_normal((50, n))

    def total(x):
        return x.sum(axis=1)

    found = calipers.growth(running, total, lambda n: scale * usual(n), [64, 256])
    expected = calipers.growth(running, total, usual, [64, 256])
    assert found.apart == pytest.approx(expected.apart)
    assert found.error_f == pytest.approx(expected.error_f)


def test_functions_of_integers_have_the_format_of_their_results():
    def f(x):
        return running((x / np.float32(255)).astype(np.float32))

    def pixels(n):
        return np.random.default_rng(n).integers(0, 256, (30, n), dtype=np.uint8)

    found = calipers.growth(f, lambda x: f(x[:, ::-1]), pixels, [64])
    assert found.format == "float32"
    assert 0.1 < found.apart[0] < 10


def test_results_under_other_names_are_refused():
    told = r"at size 2: f returns results named \['a'\], and g \['b'\]"
    with pytest.raises(ValueError, match=told):
        calipers.growth(lambda x: {"a": x}, lambda x: {"b": x}, np.ones, [2])


def test_again_repeats_the_measurement():
    def running(x):
        return np.cumsum(x)[-1]

    def ones(n):
        return np.ones(n, np.float32)

    found = calipers.growth(running, np.sum, ones, [4, 8])
    code = str(found).splitlines()[-1].removeprefix("again: ")
    assert code == "calipers.growth(running, np.sum, ones, [4, 8])"
    again = eval(code, {"calipers": calipers, "running": running, "np": np, "ones": ones})
    assert again == found
