"""The labels of the cases that judge verdicts are right: what each claims is measured here."""

import math

import numpy as np
import pytest

from tests.data.verdict_cases import CASES, HELD_OUT, KINDS
from tests.data.verdict_cases.case import FORMATS, narrow

SEEDS = range(5)
ALL = CASES + HELD_OUT
SAME = {"EQUAL", "ROUNDING", "LAYOUT"}
# Functions with jumps at their inputs have no one value in float64 either.
JUMPS = {"floor_of_softmax_sum", "floor_to_bytes", "sign_of_zero_sum", "argmax_of_ties"}
# Results that are wider than the inputs, as the cases say.
WIDER = {"linear_wide_result", "float16_denormals_flushed"}
# The first call is right: what it leaves behind is not.
RIGHT_AT_FIRST = {"buffer_not_cleared"}


def named(case):
    return case.name


each_case = pytest.mark.parametrize("case", ALL, ids=named)


def is_tensor(x):
    return type(x).__module__ == "torch"


def array(x):
    return x.numpy() if is_tensor(x) else np.asarray(x)


def call(f, inputs):
    return array(f(*inputs))


def wide(x):
    if is_tensor(x):
        return x.double()
    wider = {"e": np.float64, "f": np.float64, "F": np.complex128, "d": np.longdouble}
    return x.astype(wider.get(x.dtype.char, x.dtype)) if isinstance(x, np.ndarray) else x


def moved(x, u, rng):
    """Return inputs in the wider type, each number off by one unit of rounding."""
    if array(x).dtype.kind not in "fc":
        return x
    signs = rng.choice([-1.0, 1.0], x.shape)
    if is_tensor(x):
        return wide(x) * (1 + u * x.new_tensor(signs).double())
    return wide(x) * (1 + u * signs)


def rms(x):
    return float(np.sqrt(np.mean(np.abs(x).astype(np.longdouble) ** 2)))


def unit(case, inputs):
    if "dtype" in case.options:
        return 2.0 ** -FORMATS[case.options["dtype"]][0]
    kinds = [array(x).dtype for x in inputs if array(x).dtype.kind in "fc"]
    return float(np.finfo(kinds[0]).eps) / 2 if kinds else 0.0


def bound(case, inputs):
    """Return C(n) = 4 + sqrt(n)."""
    longest = max(max(array(x).shape, default=1) for x in inputs)
    return 4 + math.sqrt(case.options.get("reduction", longest))


def reference(case, f, g):
    """Return who may be called in float64, or None."""
    given = case.options.get("reference", "auto")
    return {"auto": f, "f": f, "g": g, None: None}[given] if not callable(given) else given


def differences(f, g, inputs):
    """Return the largest difference in the wider type, as a share of the largest result."""
    a, b = (call(side, tuple(map(wide, inputs))).astype(np.clongdouble) for side in (f, g))
    if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return np.inf
    known = np.isfinite(a)
    return float(np.abs(a - b)[known].max() / max(np.abs(a[known]).max(), 1e-300))


@pytest.fixture(params=ALL, ids=named)
def built(request):
    case = request.param
    return case, [case.make(np.random.default_rng(seed)) for seed in SEEDS]


def test_names_are_unique():
    names = [case.name for case in ALL]
    assert len(names) == len(set(names))


def test_there_are_enough():
    assert sum(not case.needs for case in CASES) >= 100
    assert sum(case.bug for case in CASES) >= 30
    assert not any(case.bug and case.benign for case in CASES)
    assert {kind for case in CASES for kind in case.kinds} == set(KINDS)
    assert sum(not case.needs for case in HELD_OUT) >= 30
    assert sum(case.bug and not case.needs for case in HELD_OUT) >= 10


@each_case
def test_fields(case):
    assert case.kinds
    assert case.kinds <= set(KINDS)
    assert case.options.keys() <= {"dtype", "reference", "reduction", "batch"}
    assert set(case.formats) <= {*FORMATS, "float32"}
    assert bool(case.formats) == (case.kinds == {"REDUCED"})


def test_calls(built):
    """Both sides run, leave their inputs alone, and are the same for the same seed."""
    case, makes = built
    for seed, (f, g, inputs) in enumerate(makes):
        before = [array(x).copy() for x in inputs]
        outcomes = [outcome(side, inputs) for side in (f, g)]
        assert sum(y is None for y in outcomes) == ("RAISES" in case.kinds)
        for x, was in zip(inputs, before, strict=True):
            np.testing.assert_array_equal(array(x), was)
        again = case.make(np.random.default_rng(seed))
        for side, first in zip(again[:2], outcomes, strict=True):
            np.testing.assert_array_equal(outcome(side, again[2]), first)


def outcome(f, inputs):
    """Return what f returns, or None where it raises."""
    try:
        return call(f, inputs)
    except (NotImplementedError, ValueError):  # LinAlgError is a ValueError
        return None


def test_types(built):
    """Results are no wider than the inputs: no constant has made them so."""
    case, makes = built
    f, g, inputs = makes[0]
    if "RAISES" in case.kinds or case.name in WIDER:
        return
    floats = [array(x).dtype for x in inputs if array(x).dtype.kind in "fc"]
    for side in (f, g):
        y = call(side, inputs)
        assert y.dtype.kind not in "fc" or y.dtype in floats, (y.dtype, floats)
    exact = reference(case, f, g)
    if exact and call(exact, inputs).dtype.kind in "fc":
        y = call(exact, tuple(map(wide, inputs)))
        assert y.dtype in [array(wide(x)).dtype for x in inputs]


def test_repeats(built):
    case, makes = built
    for f, g, inputs in makes:
        if "RAISES" in case.kinds:
            return
        same = all(
            all(np.array_equal(first, call(side, inputs), equal_nan=True) for _ in range(3))
            for side, first in ((side, call(side, inputs)) for side in (f, g))
        )
        varies = "NONDETERMINISTIC" in case.kinds or case.name == "racing_without_bias"
        assert same != varies


def test_bits(built):
    """Pairs that are not labelled EQUAL are not, and the others are."""
    case, makes = built
    for f, g, inputs in makes:
        if "RAISES" in case.kinds or case.name in RIGHT_AT_FIRST:
            return
        a, b = call(f, inputs), call(g, inputs)
        assert "EQUAL" in case.kinds or not np.array_equal(a, b, equal_nan=True)
        assert case.kinds != {"EQUAL"} or (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())


def test_float64(built):
    """Where both sides have float64, it tells the same function from another one."""
    case, makes = built
    if case.options.get("reference", "auto") != "auto" or "RAISES" in case.kinds:
        return
    for f, g, inputs in makes:
        difference = differences(f, g, inputs)
        double = unit(case, inputs) < 1e-10
        if case.name in JUMPS:
            continue
        if case.name == "layer_norm_jax_unasked":
            assert 1e-9 < difference < 1e-5
        elif "BUG" in case.kinds and case.name not in RIGHT_AT_FIRST:
            assert difference > (5e-15 if double else 1e-9)
        elif case.kinds == {"SUSPECT"}:
            assert difference > 1e-12
        elif case.kinds <= SAME | {"NONDETERMINISTIC"}:
            assert difference < (1e-15 if double else 1e-13)
        elif case.kinds == {"REDUCED"}:
            assert difference < 16 * 2.0 ** -FORMATS.get(case.formats[0], (24,))[0]
        else:
            assert difference < 1e-6


def test_errors(built):
    """Measure both sides against float64, in units of what one rounding of the inputs does."""
    case, makes = built
    for f, g, inputs in makes:
        exact = reference(case, f, g)
        if exact is None or "RAISES" in case.kinds or case.name in JUMPS:
            return
        sides = [call(side, inputs) for side in (f, g)]
        u, c = unit(case, inputs), bound(case, inputs)
        with np.errstate(invalid="ignore"):
            noise, r = sensitivity(exact, inputs, u)
            if not np.isfinite(r).all() or r.dtype.kind not in "fc" or case.bug:
                return
            errors = [rms(y - r) / math.hypot(noise, u * rms(r)) / c for y in sides]
        amplified = noise > 100 * u * rms(r)
        if case.kinds <= SAME:
            assert max(errors) <= 1
            assert not amplified
        elif case.kinds == {"AMPLIFIED"}:
            assert max(errors) <= 1
            assert amplified
        elif case.kinds == {"NONDETERMINISTIC"} or case.kinds == {"SUSPECT"}:
            assert max(errors) <= 1
        elif case.kinds == {"UNSTABLE"}:
            assert max(errors) >= 10
        elif case.kinds & {"RANGE", "REDUCED"}:
            assert sum(error <= 1 for error in errors) == 1
            assert not all(error <= 10 for error in errors)


def sensitivity(f, inputs, u, count=8):
    """Return the size of f's change where its inputs move by their last places, and f."""
    rng = np.random.default_rng(1)
    r = call(f, tuple(map(wide, inputs)))
    changes = [call(f, tuple(moved(x, u, rng) for x in inputs)) - r for _ in range(count)]
    return math.sqrt(sum(rms(change) ** 2 for change in changes) / count), r


@pytest.mark.parametrize("name", sorted(JUMPS))
def test_jumps(name):
    """The value for inputs moved by their last places is another one by far."""
    (case,) = (case for case in ALL if case.name == name)
    for seed in SEEDS:
        f, _, inputs = case.make(np.random.default_rng(seed))
        change, r = sensitivity(f, inputs, unit(case, inputs))
        assert change > 1e4 * unit(case, inputs) * max(rms(r), 1)


@pytest.mark.parametrize("case", [case for case in ALL if case.kinds == {"BUG"}], ids=named)
def test_bugs_are_visible(case):
    """A bug that must not be a mere suspicion stands out in the working type itself."""
    for seed in SEEDS:
        f, g, inputs = case.make(np.random.default_rng(seed))
        a, b = call(f, inputs), call(g, inputs)
        if a.shape != b.shape or not np.isfinite(b).all():
            continue
        u, c = unit(case, inputs), bound(case, inputs)
        a, b = a.astype(np.clongdouble), b.astype(np.clongdouble)
        share = np.abs(a - b) / np.maximum(np.abs(a), rms(a))
        assert share.max() > (2 if "dtype" in case.options else 10) * c * u


@pytest.mark.parametrize("case", [case for case in ALL if case.arguments is not None], ids=named)
def test_formats_explain(case):
    """To narrow the named arguments of the other side gives the same results but for rounding."""
    for seed in SEEDS:
        f, g, inputs = case.make(np.random.default_rng(seed))
        left = min(
            unexplained(one, other, inputs, case, truncate)
            for one, other in ((f, g), (g, f))
            for truncate in (False, True)
        )
        assert left < 0.01


def unexplained(full, narrowed, inputs, case, truncate):
    there = tuple(
        narrow(x, case.formats[0], truncate) if k in case.arguments else x
        for k, x in enumerate(inputs)
    )
    y = call(narrowed, inputs)
    return rms(y - call(full, there)) / rms(y - call(full, inputs))


@pytest.mark.parametrize(
    "case",
    [case for case in ALL if "LAYOUT" in case.kinds <= {"LAYOUT", "EQUAL"}],
    ids=named,
)
def test_other_layouts_agree(case):
    for seed in SEEDS:
        f, g, inputs = case.make(np.random.default_rng(seed))
        columns = tuple(np.asfortranarray(x) for x in inputs)
        row = inputs[0][:1], *inputs[1:]
        assert any(np.array_equal(call(f, there), call(g, there)) for there in (columns, row))


def test_batches(built):
    """The arguments that are named as batches, or the first one, are."""
    case, makes = built
    axes = case.options.get("batch", (0,))
    if not axes or "RAISES" in case.kinds or case.name in JUMPS:
        return
    for f, g, inputs in makes[:2]:
        exact = reference(case, f, g)
        sides = [exact] if exact else [f]
        if case.benign and case.options.get("reference", "auto") == "auto":
            sides.append(g)
        there = tuple(map(wide, inputs))
        for k in (1, 3):
            part = tuple(x[:k] if i in axes else x for i, x in enumerate(there))
            for side in sides:
                y, z = call(side, part), call(side, there)[:k]
                # Some sides compute in float32 whatever they are given, and some lose digits.
                single = exact is None or case.needs or "float32" in case.formats
                near = 1e-4 if single or case.kinds == {"UNSTABLE"} else 1e-9
                np.testing.assert_allclose(
                    y.astype(np.clongdouble), z, rtol=near, atol=near * np.nanmax(np.abs(z))
                )


def strided(x):
    spread = np.zeros([2 * size for size in x.shape], x.dtype)
    every = spread[..., *(slice(None, None, 2) for _ in x.shape)]
    every[...] = x
    return every


def misaligned(x):
    memory = np.zeros(x.nbytes + 1, np.uint8)[1:]
    y = memory.view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def test_arrangements(built):
    """Memory in another order gives the same results but for rounding."""
    case, makes = built
    f, g, inputs = makes[0]
    if not case.benign or not isinstance(inputs[0], np.ndarray):
        return
    for side in (f, g):
        expected = call(side, inputs)
        for arrange in (np.asfortranarray, strided, misaligned, read_only):
            y = call(side, tuple(map(arrange, inputs)))
            if case.kinds <= SAME | {"NONDETERMINISTIC", "REDUCED"}:
                near = 2e-2 if y.dtype == np.float16 or "dtype" in case.options else 1e-3
                np.testing.assert_allclose(y, expected, rtol=near, atol=near * np.nanmax(abs(y)))


def test_properties():
    bug = {case.name for case in CASES if case.bug}
    benign = {case.name for case in CASES if case.benign}
    assert {"bias_missing", "pi_cut"} <= bug
    assert {"linear_einsum", "linear_tf32", "norm_of_two"} <= benign
    assert not {"dropout_left_on", "exp_by_fixed_polynomial"} & (bug | benign)


def test_narrow():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
    x *= np.exp2(np.random.default_rng(1).integers(-12, 6, x.size)).astype(np.float32)
    kinds = {
        "bfloat16": ml_dtypes.bfloat16,
        "float16": np.float16,
        "float8_e4m3": ml_dtypes.float8_e4m3fn,
        "float8_e5m2": ml_dtypes.float8_e5m2,
    }
    for form, kind in kinds.items():
        np.testing.assert_array_equal(narrow(x, form), x.astype(kind).astype(np.float32))
    bits = x.view(np.uint32)
    down = (bits & 0xFFFFE000).view(np.float32)
    near = ((bits + 0x0FFF + (bits >> 13 & 1)) & 0xFFFFE000).view(np.float32)
    np.testing.assert_array_equal(narrow(x, "tf32", truncate=True), down)
    np.testing.assert_array_equal(narrow(x, "tf32"), near)
