"""For all inputs, half of them within 4 ulp of the threshold: the verdict is the exact oracle's."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from tests.data import oracles

REAL = ["f8", "f4", "f2", "bfloat16"]
COMPLEX = ["c16", "c8"]
INTEGER = ["i8", "u8", "i4", "u4", "i2", "u2", "i1", "u1", "?"]

tolerances = st.one_of(
    st.sampled_from([0.0, 1e-8, 1e-5, 0.5, 1.0, 2.0, -1.0, 5e-324, 1.7e308]),
    st.floats(0, 3),
    st.floats(allow_nan=False, allow_infinity=False, min_value=0),
)


def as_dtype(name):
    return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name) if name == "bfloat16" else name)


def elements(dtype):
    """Draw numbers of a dtype: any bit pattern as often as an ordinary value."""
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return st.one_of(
            st.integers(int(info.min), int(info.max)),
            st.integers(0, 9),
            st.sampled_from([int(info.min), int(info.max)]),
        )
    if dtype.kind == "c":
        part = elements(np.dtype("f8" if dtype.itemsize == 16 else "f4"))
        return st.builds(complex, part, part)
    bits = np.dtype(f"u{dtype.itemsize}")

    def from_bits(i):
        with np.errstate(all="ignore"):  # a signalling NaN raises a flag when widened
            return float(np.array(i, bits).view(dtype).astype("f8"))

    patterns = st.integers(0, int(np.iinfo(bits).max)).map(from_bits)
    return st.one_of(patterns, st.floats(-10, 10), st.sampled_from([0.0, math.inf, math.nan]))


def as_values(numbers, dtype):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.array(numbers).astype(dtype)


def near_threshold(b, rtol, atol, steps, sign):
    """Move from b by the tolerance, then by a few units in the last place."""
    with np.errstate(all="ignore"):
        if b.dtype.kind in "iub":
            bound = [atol + rtol * abs(float(x)) for x in b]
            moved = [
                int(x) + sign * int(min(max(t, -1e19), 1e19)) + int(k)
                for x, t, k in zip(b, bound, steps, strict=True)
            ]
            low, high = (
                (0, 1) if b.dtype.kind == "b" else (np.iinfo(b.dtype).min, np.iinfo(b.dtype).max)
            )
            return np.array([min(max(m, int(low)), int(high)) for m in moved], b.dtype)
        if b.dtype.kind == "c":
            a = as_values(b + sign * (atol + rtol * abs(b.astype("c16"))) * (0.6 + 0.8j), b.dtype)
            parts = a.view(f"f{a.dtype.itemsize // 2}")
            bits = parts.view(f"i{parts.dtype.itemsize}")
            bits[::2] += np.array(steps, bits.dtype)
            return a
        wide = b.astype("f8")
        a = as_values(wide + sign * (atol + rtol * abs(wide)), b.dtype)
        bits = a.view(f"i{a.dtype.itemsize}")
        bits += np.array(steps, bits.dtype)
        return a


@st.composite
def questions(draw, names):
    dtype = as_dtype(draw(st.sampled_from(names)))
    n = draw(st.integers(1, 5))
    rtol, atol = draw(tolerances), draw(tolerances)
    b = as_values(draw(st.lists(elements(dtype), min_size=n, max_size=n)), dtype)
    if draw(st.booleans()):
        a = as_values(draw(st.lists(elements(dtype), min_size=n, max_size=n)), dtype)
    else:
        steps = draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n))
        a = near_threshold(b, rtol, atol, steps, draw(st.sampled_from([-1, 1])))
    return a, b, rtol, atol, draw(st.booleans())


def check(a, b, rtol, atol, equal_nan):
    expected = oracles.isclose(a, b, rtol, atol, equal_nan)
    each = np.full(a.shape, rtol), np.full(a.shape, atol)
    assert calipers.isclose(a, b, rtol, atol, equal_nan).tolist() == expected.tolist()
    assert calipers.isclose(a, b, *each, equal_nan).tolist() == expected.tolist()
    assert calipers.allclose(a, b, rtol, atol, equal_nan) is bool(expected.all())
    assert calipers.allclose(a[::-1], b[::-1], rtol, atol, equal_nan) is bool(expected.all())
    rows = calipers.allclose(a[:, None], b[:, None], rtol, atol, equal_nan, axis=1)
    assert rows.tolist() == expected.tolist()


@settings(max_examples=1500, deadline=None)
@given(questions(REAL))
def test_real(question):
    check(*question)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(questions(COMPLEX))
def test_complex(question):
    check(*question)


@settings(max_examples=1000, deadline=None)
@given(questions(INTEGER))
def test_integers(question):
    check(*question)


@settings(max_examples=500, deadline=None)
@given(elements(np.dtype("i8")), elements(np.dtype("u8")), tolerances, tolerances)
def test_distances_of_65_bits(signed, unsigned, rtol, atol):
    a, b = np.array([signed], "i8"), np.array([unsigned], "u8")
    check(a, b, rtol, atol, False)
    check(b, a, rtol, atol, False)
    exact = float(abs(signed - unsigned))
    for bound in (exact, np.nextafter(exact, 0), np.nextafter(exact, np.inf)):
        check(a, b, 0.0, float(bound), False)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from([*REAL, *INTEGER]), st.sampled_from([*REAL, *INTEGER]), st.data())
def test_mixed_dtypes(name_a, name_b, data):
    a_dtype, b_dtype = as_dtype(name_a), as_dtype(name_b)
    a = as_values([data.draw(elements(a_dtype))], a_dtype)
    b = as_values([data.draw(elements(b_dtype))], b_dtype)
    rtol, atol = data.draw(tolerances), data.draw(tolerances)
    if (a_dtype.kind in "iub") != (b_dtype.kind in "iub"):
        a, b = a.astype("f8"), b.astype("f8")  # NumPy's promotion rounds the integer first
        assert calipers.isclose(a, b, rtol, atol) == oracles.isclose(a, b, rtol, atol)
    check(a, b, rtol, atol, False)
