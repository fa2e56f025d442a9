"""Narrow formats against their definition in exact arithmetic, ml_dtypes, NumPy and torch."""

import array
import collections
import inspect
import math
import operator
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers

ml_dtypes = pytest.importorskip("ml_dtypes")

# Bits of fraction, exponent of the smallest normal number, largest finite number, infinity.
DEFINITIONS = {
    "tf32": (10, -126, (2 - Fraction(1, 2**10)) * Fraction(2) ** 127, True),
    "bfloat16": (7, -126, (2 - Fraction(1, 2**7)) * Fraction(2) ** 127, True),
    "float16": (10, -14, Fraction(65504), True),
    "float8_e4m3": (3, -6, Fraction(448), False),
    "float8_e5m2": (2, -14, Fraction(57344), True),
    "float32": (23, -126, (2 - Fraction(1, 2**23)) * Fraction(2) ** 127, True),
    "float64": (52, -1022, (2 - Fraction(1, 2**52)) * Fraction(2) ** 1023, True),
}
PEERS = {
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
}
NARROW = [name for name in DEFINITIONS if name not in ("float32", "float64")]
WAYS = [{}, {"rounding": "truncate"}, {"flush": True}, {"rounding": "truncate", "flush": True}]

formats = pytest.mark.parametrize("fmt", DEFINITIONS)
narrow_formats = pytest.mark.parametrize("fmt", NARROW)
carriers = pytest.mark.parametrize("dtype", ["f4", "f8"])
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: ",".join(way) or "nearest")


def identity(x):
    return x


def rounded(x, fmt, **options):
    return calipers.emulate(identity, fmt, where="inputs", **options)(x)


def exact(x, fmt, rounding="nearest", flush=False):
    """Round a float or a Fraction to a format by its definition; as a float."""
    fraction, lowest, largest, infinity = DEFINITIONS[fmt]
    sign = -1.0 if (math.copysign(1, x) < 0 if isinstance(x, float) else x < 0) else 1.0
    if isinstance(x, float) and not math.isfinite(x):
        return x if infinity else math.nan
    size = abs(Fraction(x))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(exponent - (size < Fraction(2) ** exponent), lowest)
    steps = size / Fraction(2) ** (exponent - fraction)
    steps = round(steps) if rounding == "nearest" else math.floor(steps)
    result = steps * Fraction(2) ** (exponent - fraction)
    if result > largest:
        beyond = math.inf if infinity else math.nan
        return sign * (beyond if rounding == "nearest" else float(largest))
    if flush and result < Fraction(2) ** lowest:
        return sign * 0.0
    return sign * float(result)


def same(a, b):
    """Tell whether two arrays hold the same numbers, with signs of zeros; all NaN are the same."""
    a, b = np.asarray(a), np.asarray(b)
    nan = np.isnan(a) & np.isnan(b)
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return a.dtype == b.dtype and a.shape == b.shape and bool((nan | equal).all())


def expected(x, fmt, **options):
    with np.errstate(all="ignore"):
        values = [exact(v, fmt, **options) for v in x.astype(float).reshape(-1).tolist()]
        return np.array(values).astype(x.dtype).reshape(x.shape)


def every(fmt):
    """Return all bit patterns of a format, as numbers of it."""
    dtype = PEERS[fmt]
    return np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)


def spacing(x, fmt):
    """Return the distance of numbers of a format to the next larger ones."""
    fraction, lowest, *_ = DEFINITIONS[fmt]
    exponent = np.where(x == 0, lowest, np.frexp(x)[1] - 1)
    return np.ldexp(1.0, np.maximum(exponent, lowest) - fraction)


def positive(fmt):
    """Return numbers of a format in order from 0, then what would come after the largest."""
    fraction, lowest, largest, _ = DEFINITIONS[fmt]
    if fmt in PEERS:
        with np.errstate(all="ignore"):
            x = every(fmt).astype(float)
        x = np.unique(np.abs(x[np.isfinite(x)]))
    else:
        # of tf32 the neighbours of powers of two, and some in between
        steps = np.array([0, 1, 2, 3, 340, 341, 511, 512, 513, 1022, 1023]) * 2.0**-fraction
        x = np.ldexp(1 + steps, np.arange(lowest, 128)[:, None]).ravel()
        x = np.concatenate([steps * 2.0**lowest, x])
    assert x[-1] == largest
    return np.append(x, x[-1] + spacing(x[-1], fmt))


# Rounding


@pytest.mark.parametrize("fmt", PEERS)
@carriers
def test_every_number_of_a_format_stays_itself(fmt, dtype):
    with np.errstate(all="ignore"):
        x = every(fmt).astype(dtype)
    assert same(rounded(x, fmt), x)
    assert same(rounded(x, fmt, rounding="truncate"), x)
    assert (np.signbit(rounded(x, fmt)) == np.signbit(x)).all()


def test_every_number_of_tf32_stays_itself():
    x = (np.arange(2**19, dtype=np.uint32) << 13).view(np.float32)
    assert same(rounded(x, "tf32"), x)
    x = x[~np.isnan(x)].astype(float)
    assert same(rounded(x, "tf32", rounding="truncate"), x)


def near_midpoints(fmt, dtype):
    """Return midpoints of adjacent numbers and their neighbours, with the numbers on each side."""
    low, high = positive(fmt)[:-1], positive(fmt)[1:]
    if fmt == "tf32":  # not all are listed
        high = low + spacing(low, fmt)
    with np.errstate(all="ignore"):
        low, high = low.astype(dtype), high.astype(dtype)
        middle = (0.5 * low.astype(float) + 0.5 * high.astype(float)).astype(dtype)
        middle[-1] = (0.5 * low[-1].astype(float)) + 0.5 * positive(fmt)[-1]
    assert ((low < middle) & (middle < high)).all()
    below, above = np.nextafter(middle, low), np.nextafter(middle, high)
    return low, below, middle, above, high


@narrow_formats
@carriers
def test_numbers_next_to_midpoints(fmt, dtype):
    low, below, middle, above, high = near_midpoints(fmt, dtype)
    _, _, largest, infinity = DEFINITIONS[fmt]
    even = (low.astype(float) / spacing(low.astype(float), fmt)) % 2 == 0
    top = np.where(high > float(largest), np.inf if infinity else np.nan, high).astype(dtype)
    for sign in (1, -1):
        assert same(rounded(sign * below, fmt), sign * low)
        assert same(rounded(sign * middle, fmt), sign * np.where(even, low, top))
        assert same(rounded(sign * above, fmt), sign * top)
        for x in (low, np.nextafter(low, high), below, middle, above, np.nextafter(high, low)):
            assert same(rounded(sign * x, fmt, rounding="truncate"), sign * low)


@narrow_formats
@carriers
@ways
def test_the_definition(fmt, dtype, way):
    numbers = np.concatenate(near_midpoints(fmt, dtype))
    random = np.random.default_rng(0)
    if numbers.size > 4000:
        ends = numbers.reshape(5, -1)[:, [*range(40), *range(-40, 0)]].ravel()
        numbers = np.concatenate([ends, random.choice(numbers, 3000)])
    numbers = numbers * random.choice([-1, 1], numbers.size).astype(dtype)
    assert same(rounded(numbers, fmt, **way), expected(numbers, fmt, **way))


@pytest.mark.parametrize("fmt", PEERS)
def test_casts_of_peers(fmt):
    random = np.random.default_rng(0)
    x = random.integers(0, 2**32, 1_000_000, dtype=np.uint32).view(np.float32)
    usual = np.ldexp(random.standard_normal(200_000), random.integers(-20, 20, 200_000))
    x = np.concatenate([x, usual.astype(np.float32), *near_midpoints(fmt, "f4")])
    with np.errstate(all="ignore"):
        cast = x.astype(PEERS[fmt]).astype(np.float32)
        wide = np.concatenate([x.astype(float), *near_midpoints(fmt, "f8")])
        assert same(rounded(x, fmt), cast)
        assert (np.signbit(rounded(x, fmt)) == np.signbit(cast)).all()
        if fmt == "float16":  # NumPy rounds binary64 to it once, ml_dtypes does not to others
            assert same(rounded(wide, fmt), wide.astype(np.float16).astype(float))


@pytest.mark.parametrize("fmt", PEERS)
def test_casts_of_torch(fmt):
    torch = pytest.importorskip("torch")
    x = np.concatenate(near_midpoints(fmt, "f4"))
    if fmt == "float8_e4m3":  # torch's may saturate
        x = x[x <= 448]
    x = np.concatenate([x, -x])
    cast = torch.from_numpy(x).to(getattr(torch, PEERS[fmt].name)).float().numpy()
    assert same(rounded(x, fmt), cast)


def test_binary64_is_rounded_once():
    # In between binary32 would take these for midpoints, and round them to even.
    for above in (1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-40):
        assert rounded(above, "bfloat16") == 1 + 2.0**-7
    assert rounded(1 + 2.0**-11 + 2.0**-40, "tf32") == 1 + 2.0**-10
    assert rounded(2.0**-134 * (1 + 2.0**-40), "bfloat16") == 2.0**-133
    assert rounded(2.0**-134, "bfloat16") == 0
    assert rounded(464 + 2.0**-30, "float8_e4m3") != rounded(464.0, "float8_e4m3") == 448


@narrow_formats
@carriers
@ways
def test_special_numbers(fmt, dtype, way):
    largest, infinity = DEFINITIONS[fmt][2:]
    with np.errstate(over="ignore"):
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 5e-324, -1e300]).astype(dtype)
    result = rounded(x, fmt, **way)
    assert same(result[:2], x[:2])
    assert same(result[2:4], x[2:4]) if infinity else np.isnan(result[2:4]).all()
    assert np.isnan(result[4:6]).all()
    assert (np.signbit(result) == np.signbit(x)).all()
    assert result[6] == 0
    if "rounding" in way and dtype == "f8":  # -1e300 is an infinity in float32
        assert result[7] == -float(largest)
    else:
        assert result[7] == -np.inf if infinity else np.isnan(result[7])


@formats
@ways
@settings(max_examples=100, deadline=None)
@given(x=st.floats(), y=st.floats(width=32))
def test_any_number(fmt, way, x, y):
    assert same(rounded(np.array(x), fmt, **way), expected(np.array(x), fmt, **way))
    y = np.array(y, np.float32)
    assert same(rounded(y, fmt, **way), expected(y, fmt, **way))


@pytest.mark.slow
@narrow_formats
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_number_near_the_format(fmt, data):
    """Numbers of up to 60 bits about the range of the format."""
    fraction, lowest, largest, _ = DEFINITIONS[fmt]
    highest = math.frexp(float(largest))[1]
    exponent = data.draw(st.integers(lowest - fraction - 3, highest + 2))
    steps = data.draw(st.integers(2 ** (fraction + 1), 2 ** (fraction + 3)))
    bit = data.draw(st.sampled_from([0, 0, 1, -1]))
    position = data.draw(st.integers(20, 45))
    x = np.array(math.ldexp(steps + math.ldexp(bit, -position), exponent - fraction - 2))
    for way in WAYS:
        assert same(rounded(x, fmt, **way), expected(x, fmt, **way))


@pytest.mark.parametrize("fmt", ["float32", "float64"])
@carriers
def test_a_format_that_is_no_narrower_changes_nothing(fmt, dtype):
    if (fmt, dtype) == ("float32", "f8"):
        x = np.random.default_rng(0).standard_normal(10_000) * 1e-40
        assert same(rounded(x, fmt), x.astype("f4").astype("f8"))
        return
    bits = np.random.default_rng(0).integers(0, 2**62, 10_000).astype(f"i{dtype[1]}")
    x = np.concatenate([bits.view(dtype), np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype)])
    assert same(rounded(x, fmt), x)
    assert same(rounded(x, fmt, rounding="truncate"), x)


def test_subnormal_numbers_are_flushed_after_rounding():
    tiny = np.float32(2.0**-126)
    x = np.array([tiny, np.nextafter(tiny, np.float32(0)), -tiny / 2], np.float32)
    assert same(rounded(x, "float32", flush=True), np.array([tiny, 0, -0.0], np.float32))
    # 1 - 2**-12 units of the smallest normal number round to it, and it stays
    x = 2.0**-14 * np.array([1 - 2.0**-12, 1 - 2.0**-10, -0.5])
    assert same(rounded(x, "float16", flush=True), np.array([2.0**-14, 0.0, -0.0]))
    assert same(rounded(x, "float16", flush=True, rounding="truncate"), np.array([0.0, 0.0, -0.0]))


def test_numbers_that_are_subnormal_where_they_are_held_are_normal_in_a_wider_range():
    x = np.array([1e-45, -1e-40, 2.0**-126, 0.0, -0.0, np.inf], np.float32)
    for way in WAYS:
        assert same(rounded(x, "float64", **way), x)
    counts = calipers.denormals(x, "float64")
    assert (counts.subnormals, counts.zeros) == (0, 2)
    assert calipers.denormals(x).subnormals == 2


def test_a_processor_that_flushes_is_not_asked():
    torch = pytest.importorskip("torch")
    x = np.array([1, 0x00400000, 0x80000001, 0], np.uint32).view(np.float32)
    if not torch.set_flush_denormal(True):
        pytest.skip("no such mode here")
    try:
        assert x[1] * np.float32(1) == 0
        assert (rounded(x, "float32").view("u4") == x.view("u4")).all()
        assert rounded(x, "bfloat16").view("u4").tolist() == [0, 0x00400000, 0x80000000, 0]
        counts = calipers.denormals(x)
        assert (counts.subnormals, counts.zeros) == (3, 1)
    finally:
        torch.set_flush_denormal(False)


# Arrays of all kinds


def _unaligned(x):
    view = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def _readonly(x):
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS = {
    "c": np.ascontiguousarray,
    "f": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "readonly": _readonly,
    "byteswapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": _unaligned,
    "permuted": lambda x: np.ascontiguousarray(np.moveaxis(x, 0, 1)).swapaxes(0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "c16", "bfloat16"])
def test_layouts_and_dtypes(layout, dtype):
    if dtype == "bfloat16" and layout == "byteswapped":
        pytest.skip("ml_dtypes have one byte order")
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 4, 3)) + 1j * random.standard_normal((5, 4, 3))
    x = LAYOUTS[layout]((x if dtype in ("c8", "c16") else x.real).astype(dtype))
    before = x.tobytes()
    result = rounded(x, "float8_e5m2")
    parts = (x.real, x.imag) if x.dtype.kind == "c" else (x, 0 * x)
    values = [p.astype(float).astype(np.float32).astype(PEERS["float8_e5m2"]) for p in parts]
    found = (result.real, result.imag) if x.dtype.kind == "c" else (result, 0 * x)
    assert result.dtype == x.dtype
    assert result.shape == x.shape
    assert x.tobytes() == before
    assert not np.shares_memory(result, x)
    for own, value in zip(found, values, strict=True):
        assert (own.astype(float) == value.astype(float)).all()
    counts = calipers.denormals(parts[0], "float8_e5m2")
    size = np.abs(values[0].astype(float))
    assert counts.zeros == (size == 0).sum()
    assert counts.subnormals == ((0 < size) & (size < 2.0**-14)).sum()


def test_sizes_and_scalars():
    assert rounded(np.array(1.01), "bfloat16").shape == ()
    assert isinstance(rounded(np.array(1.01), "bfloat16"), np.ndarray)
    for empty in (np.zeros(0), np.zeros((3, 0), "f4"), np.zeros((0, 2), "c8")):
        result = rounded(empty, "bfloat16")
        assert (result.shape, result.dtype) == (empty.shape, empty.dtype)
    for number in (1.01, np.float32(1.01), np.float64(1.01), np.float16(1.01), 1.01 + 1.01j):
        result = rounded(number, "bfloat16")
        assert type(result) is type(number)
        assert result.real == 1.0078125
    # what is not of floating point, or nothing to round at all
    for other in (3, True, "x", None, np.arange(3), np.array(["a"]), np.int8(3), object(), len):
        assert rounded(other, "bfloat16") is other


def test_what_does_not_fit_the_dtype_is_rounded_to_it():
    assert rounded(np.float16(65504), "bfloat16") == np.inf
    assert rounded(np.float16(2.0**-24), "bfloat16") == 2.0**-24


def test_containers():
    point = collections.namedtuple("point", "x y")
    given = {"a": [1.01, (np.float32(1.01), 2)], "b": point(1.01, "z")}
    result = rounded(given, "bfloat16")
    assert result == {"a": [1.0078125, (1.0078125, 2)], "b": point(1.0078125, "z")}
    assert type(result["b"]) is point
    assert given["a"][0] == 1.01
    ordered = collections.OrderedDict(x=1.01)
    assert rounded(ordered, "bfloat16") == collections.OrderedDict(x=1.0078125)
    default = collections.defaultdict(list, x=1.01)
    assert rounded(default, "bfloat16").default_factory is list


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ma.array([1.0]), "argument 0 is a MaskedArray, .*pass a numpy.ndarray"),
        (np.array([1.0], object), "argument 0 has dtype object, .*pass float64"),
        (np.array([1.0], np.longdouble), "argument 0 has dtype .*, .*pass float64"),
        (np.zeros(2, [("x", float)]), "argument 0 has dtype .*, .*pass float64"),
        ([1.0, np.ma.array([1.0])], r"argument 0\[1\] is a MaskedArray"),
        ({"w": np.ma.array([1.0])}, r"argument 0\['w'\] is a MaskedArray"),
    ],
)
def test_what_cannot_be_rounded_is_named(bad, message):
    with pytest.raises(TypeError, match=message):
        rounded(bad, "bfloat16")


def test_arrays_of_unknown_libraries_are_not_passed_over():
    class Series:
        def __array__(self, dtype=None, copy=None):
            return np.ones(3)

    with pytest.raises(TypeError, match=r"argument 0 has type Series, .*pass an array of NumPy"):
        rounded(Series(), "bfloat16")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_threads_give_the_same(dtype):
    x = np.random.default_rng(0).standard_normal(3_000_000).astype(dtype)
    x[::1000] *= 1e-7
    a, b = x[:90_000].reshape(300, 300), x[90_000:180_000].reshape(300, 300)
    results = []
    for n in (1, 3):
        with calipers.num_threads(n):
            products = calipers.emulated_matmul(a, b, "float16", accumulate="float16", split=3)
            results.append((rounded(x, "float16"), calipers.denormals(x, "float16"), products))
    with np.errstate(over="ignore"):
        assert same(results[0][0], x.astype("f2").astype(dtype))
    assert same(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]
    assert results[0][1].subnormals > 2000
    assert same(results[0][2], results[1][2])


def test_blocks_of_any_length():
    random = np.random.default_rng(0)
    for n in (1, 2, 7, 8, 31, 511, 512, 513, 1025):
        x = random.standard_normal(n).astype("f4")
        assert same(rounded(x, "float16"), x.astype("f2").astype("f4"))
        assert calipers.denormals(x * np.float32(1e-6), "float16").subnormals == n - sum(
            np.abs(x * np.float32(1e-6)).astype("f2") == 0
        )


PLAIN = """
import hashlib, numpy as np, calipers
x = np.random.default_rng(0).standard_normal((60, 50)) * 2.0 ** np.arange(-30, 20)
found = []
for a in (x, x.astype("f4")):
    found.append(calipers.emulate(lambda x: x, "float16")(a))
    for accumulate in (None, "bfloat16"):
        found.append(calipers.emulated_matmul(a, a.T, "tf32", accumulate=accumulate, split=3))
    found.append(calipers.denormals(a, "float16").subnormals)
print(hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in found)).hexdigest())
"""


@pytest.mark.slow
def test_a_plain_processor_gives_the_same(tmp_path):
    """LLVM aborts the process where a conversion needs an instruction that a target lacks."""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    answers = set()
    for environment in ({}, plain, {"NUMBA_DISABLE_JIT": "1"}):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PLAIN],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)} | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers.add(done.stdout)
    assert len(answers) == 1


# emulate


def test_inputs_and_outputs():
    x, y = np.float32(1.0194), np.float32(1.0194)
    a, b = rounded(x, "bfloat16"), rounded(y, "bfloat16")
    assert calipers.emulate(operator.mul, "bfloat16")(x, y) == rounded(a * b, "bfloat16")
    assert calipers.emulate(operator.mul, "bfloat16", where="inputs")(x, y) == a * b
    outputs = calipers.emulate(operator.mul, "bfloat16", where=["outputs"])
    assert outputs(x, y) == rounded(x * y, "bfloat16")
    results = a * b, rounded(a * b, "bfloat16"), rounded(x * y, "bfloat16")
    assert len({float(v) for v in results}) == 3


def test_arguments():
    def f(x, y, *, scale, shift=0.0):
        return [x, y, scale, shift]

    given = {"scale": 1.01, "shift": 1.01}

    def changed(**options):
        result = calipers.emulate(f, "bfloat16", where="inputs", **options)(1.01, 1.01, **given)
        return [x != 1.01 for x in result]

    assert changed() == [True, True, True, True]
    assert changed(arguments=(1,)) == [False, True, False, False]
    assert changed(arguments=0) == [True, False, False, False]
    assert changed(arguments=["shift", 0]) == [True, False, False, True]
    assert changed(arguments="scale") == [False, False, True, False]
    assert changed(arguments=()) == [False, False, False, False]
    for missing in (2, "bias"):
        call = calipers.emulate(f, "bfloat16", arguments=[missing])
        with pytest.raises(
            ValueError, match=f"arguments contains {missing!r}, but f is called with"
        ):
            call(1.0, 1.0, **given)


def test_the_callers_arrays_are_never_written():
    def f(x, out=None):
        x[0] = 7
        out[:] = x
        return out

    x, out = np.array([1.01, 2.0]), np.zeros(2)
    x.flags.writeable = False
    result = calipers.emulate(f, "bfloat16")(x, out=out)
    assert result.tolist() == [7, 2]
    assert x.tolist() == [1.01, 2.0]
    assert out.tolist() == [0, 0]
    y = np.array([1.01])
    assert calipers.emulate(identity, "bfloat16", where="outputs")(y) is not y
    assert y[0] == 1.01


def test_the_function_keeps_its_name_and_its_errors():
    def f(x):
        """Double."""
        raise KeyError(x)

    emulated = calipers.emulate(f, "tf32")
    assert (emulated.__name__, emulated.__doc__) == ("f", "Double.")
    assert list(inspect.signature(emulated).parameters) == ["x"]
    with pytest.raises(KeyError):
        emulated(1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fmt": "bf16"}, "fmt must be one of tf32, bfloat16, float16, .*, got 'bf16'"),
        ({"fmt": np.int16}, "fmt must be one of tf32, .*, got <class 'numpy.int16'>"),
        ({"fmt": np.ones(9, "f4")}, r"fmt must be one of .* got array.*: pass the .dtype of an"),
        ({"fmt": ["tf32"]}, "fmt must be one of tf32"),
        ({"where": "input"}, 'where must be "inputs", "outputs" or both, got .input.'),
        ({"where": ()}, "where must be"),
        ({"where": ("inputs", "between")}, "where must be"),
        ({"rounding": "up"}, 'rounding must be "nearest" or "truncate", got \'up\''),
        ({"arguments": (-1,)}, "arguments must contain positions .0, 1, .... or keywords, got -1"),
        ({"arguments": (1.5,)}, "arguments must contain .* got 1.5"),
        (
            {"arguments": 0, "where": "outputs"},
            "where='outputs' rounds no inputs, but arguments names some",
        ),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        calipers.emulate(identity, **{"fmt": "tf32"} | options)


def test_what_is_not_callable_is_named():
    with pytest.raises(TypeError, match="f must be callable, got str: 'tf32'"):
        calipers.emulate("tf32", "tf32")


class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self):
        self.torch = pytest.importorskip("torch")

    @pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "complex64"])
    def test_tensors_stay_tensors(self, name):
        torch = self.torch
        dtype = getattr(torch, name)
        x = torch.linspace(-2, 2, 60, dtype=torch.float64).to(dtype).reshape(3, 4, 5).mT
        before = x.clone()
        result = calipers.emulate(identity, "float8_e5m2")(x)
        assert result.dtype == dtype
        parts = (x.real, x.imag) if dtype.is_complex else (x,)
        found = (result.real, result.imag) if dtype.is_complex else (result,)
        for part, own in zip(parts, found, strict=True):
            assert torch.equal(own, part.to(torch.float8_e5m2).to(part.dtype))
        assert torch.equal(x, before)

    def test_a_layer(self):
        torch = self.torch
        layer = torch.nn.functional.linear
        x, w = torch.randn(4, 8), torch.randn(3, 8, requires_grad=True)
        bias = torch.zeros(3)
        with torch.no_grad():
            reference = layer(x.bfloat16().float(), w.bfloat16().float(), bias)
        result = calipers.emulate(layer, "bfloat16")(x, w, bias)
        assert torch.equal(result, reference.bfloat16().float())
        matrix = calipers.emulated_matmul(x.bfloat16(), w.T, "bfloat16")
        assert isinstance(matrix, torch.Tensor)
        assert matrix.dtype == torch.float32
        assert torch.allclose(matrix, reference, rtol=1e-5, atol=1e-6)

    def test_what_is_not_rounded(self):
        torch = self.torch
        index = torch.arange(3)
        assert rounded(index, "bfloat16") is index
        with pytest.raises(TypeError, match="argument 0 is a torch Tensor on meta"):
            rounded(torch.zeros(3, device="meta"), "bfloat16")
        with pytest.raises(TypeError, match="a is a torch Tensor on meta"):
            calipers.denormals(torch.zeros(3, device="meta"))
        with pytest.raises(TypeError, match="to_dense"):
            rounded(torch.eye(3).to_sparse(), "bfloat16")

    def test_census(self):
        x = self.torch.full((2, 3), 2.0**-130).bfloat16()
        assert calipers.denormals(x).subnormals == 6
        assert calipers.denormals(x).format == "bfloat16"


class TestJax:
    @pytest.fixture(autouse=True)
    def _jax(self):
        self.jax = pytest.importorskip("jax")

    @pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "complex64"])
    def test_arrays_stay_arrays(self, name):
        jnp = self.jax.numpy
        x = jnp.linspace(-2, 2, 60, dtype="float32").astype(name).reshape(3, 4, 5)
        result = calipers.emulate(lambda x: jnp.swapaxes(x, 0, 2), "float8_e5m2")(x)
        assert isinstance(result, self.jax.Array)
        assert result.dtype == x.dtype
        expected = x.real.astype(jnp.float8_e5m2).astype(x.real.dtype)
        assert (result.real == jnp.swapaxes(expected, 0, 2)).all()

    def test_keys_and_products(self):
        jax = self.jax
        key = jax.random.key(0)
        noise = calipers.emulate(lambda key, x: x + jax.random.normal(key, x.shape), "tf32")
        assert noise(key, jax.numpy.ones(3)).shape == (3,)
        x = jax.numpy.arange(6.0).reshape(2, 3)
        result = calipers.emulated_matmul(x, x.T, "float16")
        assert isinstance(result, jax.Array)
        assert (result == x @ x.T).all()

    def test_tracers_are_refused(self):
        with pytest.raises(TypeError, match="traced jax array"):
            self.jax.jit(calipers.emulate(identity, "tf32"))(self.jax.numpy.ones(3))


# emulated_matmul


def dot(x, y, fmt, accumulate, split=1, step=1):
    """Sum products as the documentation says, in exact arithmetic."""
    x, y = ([exact(float(v), fmt) for v in vector] for vector in (x, y))
    products = [Fraction(a) * Fraction(b) for a, b in zip(x, y, strict=True)]
    n, total = len(products), None
    for p in range(split):
        part = products[n * p // split : n * (p + 1) // split]
        running = 0.0
        for k in range(0, len(part), step):
            term = part[k]
            if step > 1:
                term = Fraction(0)
                for product in part[k : k + step]:
                    term = Fraction(exact(term + product, "float64"))
            running = exact(Fraction(running) + term, accumulate)
        if split > 1:
            running = exact(running, fmt)
        total = running if p == 0 else exact(Fraction(total) + Fraction(running), accumulate)
    return total


@pytest.mark.parametrize(("split", "step"), [(1, 1), (3, 1), (1, 4), (2, 3), (7, 5), (20, 1)])
@pytest.mark.parametrize(
    ("fmt", "accumulate"),
    [
        ("tf32", "float32"),
        ("bfloat16", "bfloat16"),
        ("bfloat16", "float32"),
        ("float16", "float16"),
        ("float16", "tf32"),
        ("float8_e4m3", "float16"),
        ("float8_e5m2", "bfloat16"),
        ("float32", "bfloat16"),
        ("float32", "float32"),
        ("bfloat16", "float64"),
        ("float64", "float64"),
    ],
)
@pytest.mark.parametrize("shape", [(2, 13, 5), (5, 13, 2)])
def test_products(fmt, accumulate, split, step, shape):
    rows, length, columns = shape
    random = np.random.default_rng(0)
    a, b = random.standard_normal((rows, length)), random.standard_normal((length, columns))
    a, b = a * 2.0 ** random.integers(-6, 6, a.shape), b * 2.0 ** random.integers(-3, 3, b.shape)
    options = {"accumulate": accumulate, "split": split, "step": step}
    result = calipers.emulated_matmul(a, b, fmt, **options)
    reference = [[dot(row, column, fmt, **options) for column in b.T] for row in a]
    assert result.tolist() == reference
    if fmt not in ("float32", "float64"):
        narrow = a.astype("f4"), b.astype("f4")
        result = calipers.emulated_matmul(*narrow, fmt, **options)
        reference = [
            [dot(row, column, fmt, **options) for column in narrow[1].T] for row in narrow[0]
        ]
        assert result.dtype == np.float32
        assert result.tolist() == np.array(reference, "f4").tolist()


@settings(max_examples=300, deadline=None)
@given(
    a=st.lists(st.floats(-(2.0**60), 2.0**60), min_size=1, max_size=6),
    b=st.lists(st.floats(-(2.0**60), 2.0**60), min_size=1, max_size=6),
    accumulate=st.sampled_from(["bfloat16", "tf32", "float32", "float64"]),
    split=st.integers(1, 3),
)
def test_any_product(a, b, accumulate, split):
    n = min(len(a), len(b))
    options = {"accumulate": accumulate, "split": split}
    result = calipers.emulated_matmul(a[:n], b[:n], "bfloat16", **options)
    assert result == dot(a[:n], b[:n], "bfloat16", **options)


@pytest.mark.parametrize(
    ("tiny", "expected"),
    [
        (2.0**-80, 1.1328125),
        (-(2.0**-80), 1.125),
        (2.0**-52 * (1 - 2.0**-8), 1.1328125),
        (-(2.0**-53) * (1 - 2.0**-8), 1.125),
        (0.0, 1.125),
    ],
)
def test_each_sum_is_rounded_once(tiny, expected):
    # In binary64 the sum is a midpoint of bfloat16, or next to one on the wrong side of the sum.
    midpoint = (1 + 2.0**-4) ** 2
    assert midpoint == (1.125 + 1.1328125) / 2
    for sign in (1, -1):
        a, b = [tiny, 1 + 2.0**-4], [sign, sign * (1 + 2.0**-4)]
        result = calipers.emulated_matmul(a, b, "bfloat16", accumulate="bfloat16")
        assert result == sign * expected


def test_the_running_sum_is_that_of_the_result_by_default():
    x = np.full(3, 2.0**-12)
    x[0] = 2.0**12
    assert calipers.emulated_matmul(x, x, "bfloat16") == 2.0**24 + 2 * 2.0**-24
    x = x.astype("f4")
    assert calipers.emulated_matmul(x, x, "bfloat16") == 2.0**24
    assert calipers.emulated_matmul(x, x, "bfloat16", accumulate="float64") == 2.0**24


def test_more_parts_than_terms():
    x = [1.0, 1.0078125]
    given = {"fmt": "bfloat16", "accumulate": "float32"}
    assert calipers.emulated_matmul(x, x, **given) == 1 + 1.0078125**2
    for split in (2, 3, 10**30):
        assert calipers.emulated_matmul(x, x, **given, split=split) == 2.015625
    assert calipers.emulated_matmul(x[1:], x[1:], **given, split=2) == 1.015625
    assert calipers.emulated_matmul(x, x, **given, step=10**30) == 1 + 1.0078125**2


def test_elements_of_float64_are_not_rounded_to_the_running_sums_format():
    x = [1 + 2.0**-24]
    assert calipers.emulated_matmul(x, x, "float64", accumulate="float32") == 1 + 2.0**-23


def test_products_that_overflow():
    x = np.full((1, 4), 300.0, "f4")
    assert calipers.emulated_matmul(x, x.T, "float16").item() == 360_000
    assert calipers.emulated_matmul(x, x.T, "float16", accumulate="float16").item() == np.inf
    assert np.isnan(calipers.emulated_matmul(x, x.T, "float8_e4m3", accumulate="float8_e4m3"))
    # partial sums overflow though the sum would not
    y = np.array([[1.0], [1.0], [-1.0], [-1.0]], "f4") * 300
    assert calipers.emulated_matmul(x, y, "float16") == 0
    assert np.isnan(calipers.emulated_matmul(x, y, "float16", split=2))
    with np.errstate(all="raise"):
        x = np.array([3e38, 3e38])
        assert calipers.emulated_matmul(x.astype("f4"), x.astype("f4"), "tf32") == np.inf
        for accumulate in ("tf32", "float32", "float64"):
            given = {"fmt": "bfloat16", "accumulate": accumulate}
            assert (
                calipers.emulated_matmul([1.0, -np.inf, 1.0], [1.0, 1.0, 1.0], **given) == -np.inf
            )
            assert np.isnan(calipers.emulated_matmul([np.inf, 1.0], [0.0, 1.0], **given))


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((9, 3), (3, 4)),
        ((5, 1, 2, 3), (4, 3, 6)),
        ((3, 4, 3), (3,)),
        ((3,), (2, 3, 4)),
        ((1, 3), (7, 3, 1)),
        ((0, 3), (3, 2)),
        ((2, 0), (0, 3)),
        ((0,), (0,)),
        ((0, 2, 3), (3, 3)),
        ((2, 3), (3, 0)),
    ],
)
@pytest.mark.parametrize("accumulate", [None, "float16"])
def test_shapes_are_those_of_matmul(shape_a, shape_b, accumulate):
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, shape_a).astype("f4")
    b = random.integers(-3, 4, shape_b).astype("f4")
    for x, y in ((a, b), (a.astype("i8"), b.astype("f2")), (np.asfortranarray(a), b[..., ::-1])):
        expected = np.asarray(np.matmul(x, y))
        result = calipers.emulated_matmul(x, y, "bfloat16", accumulate=accumulate)
        assert np.shape(result) == expected.shape
        assert np.array_equal(result, expected)
        assert not np.signbit(result)[expected == 0].any()
        assert isinstance(result, np.generic) is (expected.ndim == 0)
        assert result.dtype == ("f8" if x.dtype.kind == "i" else "f4")


def test_bad_operands_are_named():
    a = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"broadcast, got \(2, 3\) and \(2, 3\)"):
        calipers.emulated_matmul(a, a, "tf32")
    with pytest.raises(ValueError, match="that broadcast, got"):
        calipers.emulated_matmul(np.ones((2, 3, 3)), np.ones((4, 3, 3)), "tf32")
    with pytest.raises(ValueError, match="b has no dimension"):
        calipers.emulated_matmul(a, 2.0, "tf32")
    for bad in (a * 1j, a.astype(object), a.astype(np.longdouble), np.ma.array(a), np.array(["x"])):
        with pytest.raises(TypeError, match="b must be an array of real numbers"):
            calipers.emulated_matmul(a, bad, "tf32")
    with pytest.raises(ValueError, match=r"fmt must be one of .* got 'quarter'"):
        calipers.emulated_matmul(a, a.T, "quarter")
    with pytest.raises(ValueError, match=r"accumulate must be one of .* got 'quarter'"):
        calipers.emulated_matmul(a, a.T, "tf32", accumulate="quarter")
    for name, bad in (("split", 0), ("split", 1.5), ("step", -1), ("step", "x")):
        with pytest.raises(ValueError, match=f"{name} must be a positive integer, got {bad!r}"):
            calipers.emulated_matmul(a, a.T, "tf32", **{name: bad})


# denormals


@pytest.mark.parametrize("fmt", PEERS)
def test_a_census_of_every_number(fmt):
    fraction, _, _, infinity = DEFINITIONS[fmt]
    x = every(fmt)
    counts = calipers.denormals(x)
    special = 2 * 2**fraction if infinity else 2
    assert counts.format == fmt
    assert counts.size == x.size
    assert counts.finite == x.size - special
    assert counts.zeros == 2
    assert counts.subnormals == 2 * (2**fraction - 1)
    assert counts.fraction == counts.subnormals / counts.size
    with np.errstate(all="ignore"):
        wide = x.astype(float)
    assert calipers.denormals(wide, fmt) == counts
    assert calipers.denormals(wide).subnormals == 0


def test_a_census_in_a_format_is_that_of_the_rounded():
    x = np.array([1.0, 0.0, -0.0, 2.0**-25, 2.0**-24, -(2.0**-15), 70000.0, np.inf, np.nan])
    counts = calipers.denormals(x, "float16")
    assert (counts.size, counts.zeros, counts.subnormals, counts.finite) == (9, 3, 2, 6)
    assert counts.to_dict() == {
        "format": "float16",
        "size": 9,
        "finite": 6,
        "zeros": 3,
        "subnormals": 2,
        "fraction": 2 / 9,
    }
    assert str(counts) == "of 9 elements 2 (22.2 %) are subnormal in float16, 3 zero, 3 not finite"
    for dtype in ("f4", "f8"):
        tiny = np.finfo(dtype).tiny * np.array([1, 0.5], dtype)
        assert calipers.denormals(tiny).subnormals == 1
        assert calipers.denormals(-tiny).subnormals == 1
    assert calipers.denormals([]).fraction == 0.0
    assert calipers.denormals(1e-310).subnormals == 1


def test_a_census_of_what_has_no_subnormal_numbers():
    for bad in ([1, 2], np.array([1j]), np.array(["x"])):
        with pytest.raises(TypeError, match="a must have real floating-point numbers, got dtype"):
            calipers.denormals(bad)
    with pytest.raises(TypeError, match="a is a MaskedArray"):
        calipers.denormals(np.ma.array([1.0]))
    other = np.ones(3, ml_dtypes.float8_e4m3b11fnuz)
    with pytest.raises(TypeError, match=r"a has dtype float8_e4m3b11fnuz, .*pass a format as fmt"):
        calipers.denormals(other)
    assert calipers.denormals(other, "float16").finite == 3
    with pytest.raises(ValueError, match="fmt must be one of"):
        calipers.denormals([1.0], "quarter")


@pytest.mark.parametrize("kind", [lambda x: array.array("d", x), lambda x: memoryview(np.array(x))])
def test_buffers_are_not_handed_on_as_they_are(kind):
    with pytest.raises(TypeError, match=r"argument 0 has type .*, which emulate cannot round"):
        calipers.emulate(np.sum, "bfloat16")(kind([1.01]))


def test_a_position_may_be_an_integer_of_numpy():
    second = calipers.emulate(np.add, "bfloat16", where="inputs", arguments=np.int64(1))
    assert second(1 / 3, 0.0) == 1 / 3


def test_sparse_arrays_are_told_from_objects():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(TypeError, match=r"b is sparse, but must be dense: pass b\.toarray"):
        calipers.emulated_matmul(np.eye(3), sparse.eye(3), "tf32")
    with pytest.raises(TypeError, match=r"a is sparse, but must be dense: pass a\.toarray"):
        calipers.denormals(sparse.eye(3))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (np.float16, "float16"),
        (np.dtype("f4"), "float32"),
        (float, "float64"),
        (ml_dtypes.bfloat16, "bfloat16"),
        ("float8_e4m3fn", "float8_e4m3"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3"),
        ("torch.float8_e5m2", "float8_e5m2"),
    ],
)
def test_formats_are_named_as_elsewhere(given, name):
    x = np.linspace(1e-9, 3, 40).reshape(4, 10)
    for form in {given, getattr(pytest.importorskip("torch"), name, given)}:
        assert calipers.emulate(abs, form)(x).tolist() == calipers.emulate(abs, name)(x).tolist()
        for options in {}, {"accumulate": form}:
            named = dict.fromkeys(options, name)
            products = (
                calipers.emulated_matmul(x, x.T, form, **options),
                calipers.emulated_matmul(x, x.T, name, **named),
            )
            assert np.array_equal(*products)
        assert calipers.denormals(x, form) == calipers.denormals(x, name)


def test_a_float8_with_infinities_is_another():
    with pytest.raises(ValueError, match=r"fmt is .*, which has infinities: pass float8_e4m3fn"):
        calipers.emulate(abs, ml_dtypes.float8_e4m3)


def test_one_is_subnormal():
    assert str(calipers.denormals([1e-6], "float16")).startswith("of 1 element 1 (100 %) is sub")
    assert str(calipers.denormals([1.0], "float16")).startswith("of 1 element 0 (0 %) are sub")
