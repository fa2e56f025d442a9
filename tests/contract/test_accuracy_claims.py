"""What is said of numerical accuracy, claim by claim, each shown by what calipers has for it.

Most are from PyTorch's note "Numerical accuracy"; others from a thread in its forum in which
implementations of one layer disagree, on CPUs, on GPUs and with each other.
"""

import numpy as np
import pytest

import calipers
from calipers import golden, probes

RANDOM = np.random.default_rng(1)
X = RANDOM.standard_normal((32, 512), dtype=np.float32)
W = (RANDOM.standard_normal((64, 512)) / 22).astype(np.float32)
B = RANDOM.standard_normal(64, dtype=np.float32)


def linear(x, w, b):
    return x @ w.T + b


def loop(x, w, b):
    """Begin with the bias, and add one product after the other."""
    total = np.tile(b, (len(x), 1))
    for k in range(x.shape[1]):
        total += x[:, k, None] * w[:, k]
    return total


def norm(x):
    return np.sqrt((x * x).sum(axis=-1))


def test_1_some_seven_digits_in_float32_and_sixteen_in_float64():
    for dtype, digits in ((np.float32, 7), (np.float64, 16)):
        arrays = tuple(v.astype(dtype) for v in (X, W, B))
        report = calipers.compare(linear(*arrays), loop(*arrays), max_ulp=0)
        assert -np.log10(report.relative_norm) == pytest.approx(digits, abs=1.2)
        assert report.worst("ulp").ulp > 1


def test_2_the_order_of_sums_matters():
    backwards = lambda x: x[:, ::-1].cumsum(axis=1)[:, -1]  # noqa: E731
    found = calipers.diagnose(lambda x: x.sum(axis=1), backwards, X)
    assert found.kind == "ROUNDING"
    assert found.evidence["apart"]["rms"] > 0


def test_3_identical_mathematics_need_not_be_identical_bits():
    assert calipers.diagnose(linear, loop, (X, W, B)).kind in ("ROUNDING", "LAYOUT")
    zeros = calipers.diagnose(lambda x: x * 0, lambda x: -x * 0, X)
    assert zeros.kind in ("ROUNDING", "LAYOUT")  # 0 and -0 are other bits
    assert zeros.evidence["apart"]["largest"] == 0


def test_4_results_of_another_day_get_a_verdict(tmp_path):
    golden.record(tmp_path / "linear", linear, (X, W, B))
    assert golden.check(tmp_path / "linear", linear).kind == "EQUAL"
    assert golden.check(tmp_path / "linear", loop).kind == "ROUNDING"
    other = golden.check(tmp_path / "linear", lambda *a: 1.01 * linear(*a))
    assert other.kind == "DIFFERENT"


def test_5_whether_inputs_are_bitwise_equal(tmp_path):
    found, same, other = (
        calipers.diagnose(linear, linear, (x, W, B)).reproducer
        for x in (X, X.copy(), np.nextafter(X, 9))
    )
    assert found == same != other
    golden.record(tmp_path / "linear", linear, (X, W, B))
    with pytest.raises(ValueError, match=r"inputs\[0\] must be"):
        golden.check(tmp_path / "linear", linear, (np.nextafter(X, 9), W, B))


def test_6_a_row_of_a_product_is_not_the_product_of_the_row():
    sums = lambda x, w: np.concatenate([x[: len(x) // 2] @ w.T, x[len(x) // 2 :] @ w.T])  # noqa: E731
    by_size = lambda x, w: x @ w.T if len(x) > 8 else loop(x, w, np.zeros(64, x.dtype))  # noqa: E731
    for f in (sums, by_size):
        assert probes.batch(f, (X, W))  # within rounding, whatever the bits
    assert not probes.batch(by_size, (X, W)).equal
    mixed = lambda x, w: (x - x.mean(axis=0)) @ w.T  # noqa: E731
    assert not probes.batch(mixed, (X, W))


def test_7_a_slice_of_the_result_is_not_the_result_of_the_slice():
    random = np.random.default_rng(2)
    a = random.standard_normal((999, 77), dtype=np.float32)
    whole, alone = a.sum(axis=0)[0], np.ascontiguousarray(a[:, 0]).sum()
    assert whole != alone
    assert calipers.isclose(whole, alone, rtol=1e-4)
    assert probes.layout(lambda a: a.sum(axis=0), a)
    assert not probes.layout(lambda a: a.sum(axis=0), a).equal


def test_8_what_is_in_between_overflows_though_the_result_fits():
    large = np.array([[1e20, 1e20]], np.float32)
    with np.errstate(over="ignore"):
        assert np.isinf(norm(large)).all()
    assert probes.range(norm, large).kind == "OVERFLOW"
    found = calipers.diagnose(norm, lambda x: np.hypot(x[:, 0], x[:, 1]), large)
    assert found.kind == "RANGE"
    small = calipers.diagnose(norm, lambda x: np.hypot(x[:, 0], x[:, 1]), large * 1e-45)
    assert small.kind == "RANGE"  # without an infinity


def test_9_not_a_number_before_linear_algebra():
    bad = X.copy()
    bad[3, 5] = np.nan
    assert not calipers.allfinite(bad)
    assert calipers.first_nonfinite(bad) == (3, 5)
    fails = lambda x: np.linalg.svd(x, compute_uv=False)  # noqa: E731
    assert calipers.diagnose(fails, norm, bad, batch=()).kind in ("RAISES", "BUG")


def test_10_solvers_of_matrices_that_are_nearly_singular():
    random = np.random.default_rng(2)
    matrix = np.vander(np.linspace(0, 1, 12))
    found = probes.condition(matrix)
    assert found.digits < 8
    assert found.kappa == pytest.approx(np.linalg.cond(matrix), rel=1e-3)
    well = probes.condition(np.eye(12) + 0.01 * random.standard_normal((12, 12)))
    assert well.digits > 14


def test_11_singular_values_that_are_close():
    close = np.diag([3.0, 1.0, 1.0 + 1e-12])
    assert probes.condition(close).singular_gap < 1e-12
    assert probes.condition(np.diag([3.0, 2.0, 1.0])).singular_gap == pytest.approx(1 / 3)


def test_12_float64_helps_not_always():
    matrix = np.vander(np.linspace(0, 1, 25))  # singular to float64, too
    assert probes.condition(matrix).digits < 2
    assert probes.condition(np.vander(np.linspace(0, 1, 6))).digits > 10


def test_13_tf32_reads_ten_bits():
    product = lambda x, w: x @ w.T  # noqa: E731
    tf32 = calipers.emulate(product, "tf32")
    identity = np.eye(512, dtype=np.float32)
    assert not calipers.array_equal(tf32(X, identity), X)
    assert calipers.array_equal(tf32(X, identity), tf32(tf32(X, identity), identity))
    found = calipers.diagnose(product, calipers.emulate(product, "tf32", where=("inputs",)), (X, W))
    assert (found.kind, found.format) == ("REDUCED", "tf32")


def test_14_flags_of_precision_stand_in_the_report():
    torch = pytest.importorskip("torch")
    environment = calipers.diagnose(np.sin, np.sin, X).environment
    flag = torch.backends.cuda.matmul.allow_tf32
    assert environment["torch.backends.cuda.matmul.allow_tf32"] == flag


def test_15_sums_in_half_precision():
    large = np.full((1, 300), 20.0, np.float16)
    assert np.isinf(calipers.emulated_matmul(large, large.T, "float16", accumulate="float16")).all()
    assert np.isfinite(calipers.emulated_matmul(large, large.T, "float16")).all()
    whole = calipers.emulated_matmul(X, W.T, "bfloat16")
    parts = calipers.emulated_matmul(X, W.T, "bfloat16", split=8)
    exact = calipers.emulated_matmul(X.astype(float), W.T.astype(float), "bfloat16")
    assert np.std(parts - exact) > 100 * np.std(whole - exact)


def test_16_subnormal_numbers_that_are_flushed():
    gradient = (X * 1e-5).astype(np.float16)
    assert calipers.denormals(gradient).fraction > 0.5
    flushed = calipers.emulate(lambda x: x, "float16", flush=True)(gradient)
    assert np.count_nonzero(flushed) < 0.5 * gradient.size
    scaled = calipers.emulate(lambda x: x, "float16", flush=True)(gradient * np.float16(2**12))
    assert np.count_nonzero(scaled) == np.count_nonzero(gradient)


def test_17_half_numbers_cast_to_bfloat16_lose_three_bits():
    half = X.astype(np.float16).astype(np.float32)
    chain = calipers.emulate(lambda x, w: x @ w.T, "bfloat16", where=("inputs",))
    lost = chain(half, half) - half @ half.T
    once = calipers.emulate(lambda x, w: x @ w.T, "float16", where=("inputs",))
    kept = once(X, X) - X @ X.T
    assert 4 < np.std(lost) / np.std(kept) < 16


def test_18_the_bias_comes_first_or_last():
    torch = pytest.importorskip("torch")
    inputs = tuple(map(torch.from_numpy, (X, W, B)))
    found = calipers.diagnose(lambda x, w, b: x @ w.T + b, torch.nn.functional.linear, inputs)
    assert found.kind in ("EQUAL", "LAYOUT", "ROUNDING")
    assert found


def test_19_no_sums_of_errors():
    """Errors by element, in units, beside their number; not their sum, which grows by counting."""
    found = calipers.diagnose(linear, loop, (X, W, B))
    twice = calipers.diagnose(linear, loop, (np.tile(X, (2, 1)), W, B))
    for name in ("rms", "normwise", "absolute"):
        one, other = (d.evidence["apart"][name] for d in (found, twice))
        assert other == pytest.approx(one, rel=0.3)
    assert "sum" not in str(found)


def test_20_which_of_several_is_the_odd_one():
    wrong = lambda x, w, b: loop(x, w, b) * x.dtype.type(1.0001)  # noqa: E731
    sides = {"numpy": linear, "loop": loop, "wrong": wrong}
    kinds = {
        (a, b): bool(calipers.diagnose(sides[a], sides[b], (X, W, B)))
        for a in sides
        for b in sides
        if a < b
    }
    assert [pair for pair, fine in kinds.items() if not fine] == [
        ("numpy", "wrong"),
        ("loop", "wrong"),
    ]


def test_21_errors_grow_with_the_dimension():
    random = np.random.default_rng(2)

    def make(n):
        x, w = (random.standard_normal(s, dtype=np.float32) for s in ((8, n), (8, n)))
        return x, w, np.zeros(8, np.float32)

    found = calipers.growth(linear, loop, make, [2**k for k in range(4, 12)])
    assert found.slopes["error_g"] == pytest.approx(0.5, abs=0.2)
    assert found.slopes["error_f"] < found.slopes["error_g"]


def test_22_float64_takes_rounding_away():
    found = calipers.diagnose(linear, loop, (X, W, B))
    assert 2.0**-29 / 256 < found.evidence["drop"] < 2.0**-29 * 256


def test_23_and_what_it_does_not_take_away_is_no_rounding():
    hidden = lambda x, w, b: loop(x, w, b * x.dtype.type(1 + 2e-6))  # noqa: E731
    assert calipers.allclose(linear(X, W, B), hidden(X, W, B), atol=1e-5)
    assert calipers.diagnose(linear, hidden, (X, W, B)).kind == "SUSPECT"


def test_24_errors_of_many_layers():
    random = np.random.default_rng(2)
    square = (random.standard_normal((64, 64)) / 8).astype(np.float32)
    layer = lambda y: np.tanh(y @ square.astype(y.dtype))  # noqa: E731
    wrong = lambda y: np.tanh(y @ square.astype(y.dtype)) * y.dtype.type(1.001)  # noqa: E731
    first = [(f"layer {k}", layer) for k in range(4)]
    second = [(name, wrong if k == 2 else f) for k, (name, f) in enumerate(first)]
    found = probes.layers(first, second, X[:, :64])
    assert found.first.name == "layer 2"
    assert not found.layers[2].new
    assert found.layers[3].new  # its own error is none
    assert not found.layers[3].carried


def test_25_from_run_to_run():
    noise = np.random.default_rng(0)
    drops = lambda x: x * (noise.random(x.shape) > 0.1)  # noqa: E731
    assert probes.repeat(norm, X)
    assert not probes.repeat(drops, X)
    assert calipers.diagnose(norm, lambda x: norm(drops(x)), X).kind in ("BUG", "NONDETERMINISTIC")


def test_26_the_order_of_summation_can_be_seen():
    orders = {
        "numpy": probes.summation_order(np.sum, 64),
        "loop": probes.summation_order(lambda x: x.cumsum()[-1], 64),
        "halves": probes.summation_order(_by_halves, 64),
    }
    assert len({order.nodes for order in orders.values()}) == 3
    assert orders["loop"].depth == 63
    assert orders["halves"].depth == 6


def _by_halves(x):
    while x.size > 1:
        x = x[::2] + x[1::2]
    return x[0]


def test_27_which_is_right():
    exact = linear(*(v.astype(float) for v in (X, W, B)))
    rough = linear(X, W, B) * np.float32(1 + 1e-5)
    found = calipers.compare_to_reference(rough, linear(X, W, B), exact)
    assert "expected is" in found.reason
    both = calipers.diagnose(linear, loop, (X, W, B)).evidence
    assert both["f"]["rms"] < both["g"]["rms"]  # blocks err less than one long sum


def test_28_exact_inputs_make_every_order_equal():
    shapes = [(8, 64), (16, 64), (16,)]
    assert probes.exact(linear, loop, shapes)
    reduced = calipers.emulate(linear, "float8_e5m2", where=("outputs",))
    assert not probes.exact(linear, reduced, shapes)
    assert not probes.exact(linear, lambda x, w, b: linear(x, w, b) + b[0] * b[1], shapes)
