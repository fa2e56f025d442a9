"""NumPy versions of kernels: the same results as the kernels, to the last bit, or none."""

from itertools import product

import numpy as np
import pytest

from calipers._compare.statistics import Criteria, PairStatistics, kernel_arguments
from calipers._core.arrays import ArrayPair
from calipers._kernels import numpy_versions
from calipers._kernels.closeness import FIRST_MISMATCH, MASK
from calipers._kernels.comparison import TALLIES, scratch_dtype
from calipers._kernels.diagnose import PERTURB, perturb_by_numpy

WIDE = ["float64", "float32", "int64", "uint64", "complex128"]
NARROW = ["float16", "int8", "uint32", "bool", "complex64"]
TOLERANCES = [(1e-5, 1e-8), (0.0, 0.0), (1.0, 0.0), (0.0, 1e-3), (0.0, np.inf)]


def pairs(dtype, seed, n=20_000):
    """Return two vectors: many small differences, some of other sizes, and special values."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind in "biu":
        largest = 1 if kind == "b" else np.iinfo(dtype).max
        a = rng.integers(0, min(largest, 2**52), n, endpoint=True).astype(dtype)
        b = a.copy()
        k = rng.integers(0, n, n // 5)
        b[k] = rng.permutation(a)[k]
        return a, b
    a = (rng.normal(size=n) * 10.0 ** rng.integers(-4, 4, n)).astype(dtype)
    if kind == "c":
        a.imag = rng.normal(size=n)
    b = a.copy()
    k = rng.integers(0, n, n // 3)
    b[k] *= 1 + rng.normal(size=k.size) * 10.0 ** rng.integers(-17, 1, k.size)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    for x in (a, b):
        k = rng.integers(0, n, 60)
        x[k] = np.resize(special, k.size)
    if kind == "c":
        a.imag[rng.integers(0, n, 20)] = np.inf
    return a, b


def tally_of(function, a, b, rule, shape, max_ulp):
    statistics = PairStatistics.empty(shape)
    pair = ArrayPair(a, b, (a.dtype, b.dtype), None)
    outputs = statistics.record, statistics.axes, statistics.counts
    options = kernel_arguments(pair, Criteria(*rule, None if max_ulp < 0 else max_ulp, True))
    result = function(a, b, *options, 0, *outputs, np.zeros(1, scratch_dtype(a.dtype)))
    return result, statistics


def assert_same_tally(found, expected):
    for name in found.record.dtype.names:
        assert found[name].tobytes() == expected[name].tobytes(), name
    assert np.array_equal(found.axes, expected.axes)
    assert np.array_equal(found.counts, expected.counts)


@pytest.mark.parametrize("dtype", WIDE)
@pytest.mark.parametrize("max_ulp", [-1, 0, 3])
@pytest.mark.parametrize("seed", range(8))
def test_the_tally_is_that_of_the_kernel(dtype, max_ulp, seed):
    a, b = pairs(dtype, seed)
    kernel = TALLIES[a.dtype, a.dtype]
    for rule, shape in product(TOLERANCES, [(a.size,), (20, 50, 20)]):
        result, found = tally_of(numpy_versions.tally, a, b, rule, shape, max_ulp)
        if result is NotImplemented:  # an infinite bound, and complex numbers with a bound of 0
            assert np.inf in rule or (a.dtype.kind == "c" and rule[1] == 0)
            assert_same_tally(found, PairStatistics.empty(shape))
        else:
            assert_same_tally(found, tally_of(kernel, a, b, rule, shape, max_ulp)[1])


@pytest.mark.parametrize("dtype", WIDE + NARROW)
@pytest.mark.parametrize("seed", range(8))
def test_verdicts_are_those_of_the_kernels(dtype, seed):
    a, b = pairs(dtype, seed)
    for rule, equal_nan in product(TOLERANCES, [False, True]):
        found, expected = np.empty((2, a.size), bool)
        if numpy_versions.mask(a, b, *rule, equal_nan, found) is NotImplemented:
            assert np.inf in rule or a.dtype.kind == "c"
            continue
        MASK[a.dtype](a, b, *rule, equal_nan, expected)
        assert np.array_equal(found, expected)
        for start in (0, a.size // 2, a.size):
            arguments = a[start:], b[start:], *rule, equal_nan
            at = FIRST_MISMATCH[a.dtype](*arguments)
            assert numpy_versions.first_mismatch(*arguments) == at


@pytest.mark.parametrize("dtypes", ["f8 f4", "i8 f8", "i4 u4", "c8 f8", "? i1"])
def test_verdicts_of_two_dtypes_are_those_of_the_kernels(dtypes):
    a, b = (x.astype(t) for x, t in zip(pairs("int8", 0), dtypes.split(), strict=True))
    found, expected = np.empty((2, a.size), bool)
    for rule in (TOLERANCES[0], TOLERANCES[3]):  # bounds above 0
        assert numpy_versions.mask(a, b, *rule, False, found) == -1
        MASK[a.dtype, b.dtype](a, b, *rule, False, expected)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("values", [(1e-300, 2e-300), (1e308, -1e308), (2e-310, 3e-310)])
def test_pairs_at_the_ends_of_the_range_are_left_to_the_kernel(values):
    a, b = np.array([[x] for x in values])
    rule = 1e-5, 0.0
    assert numpy_versions.first_mismatch(a, b, *rule, False) is NotImplemented
    assert numpy_versions.mask(a, b, *rule, False, np.empty(1, bool)) is NotImplemented
    assert tally_of(numpy_versions.tally, a, b, rule, (1,), -1)[0] is NotImplemented


@pytest.mark.parametrize("dtypes", ["f8 f8", "f4 f4", "f4 f8", "f8 f4"])
@pytest.mark.parametrize("n", [0, 1, 64, 1000, 40_000])
def test_perturbations_are_those_of_the_kernel(dtypes, n):
    kinds = tuple(map(np.dtype, dtypes.split()))
    x = np.random.default_rng(n).normal(size=n).astype(kinds[0])
    found, expected = np.zeros((2, n), kinds[1])
    for seed in (0, 1, 2**40):
        perturb_by_numpy(x, 1e-7, seed, found)
        PERTURB[kinds](x, 1e-7, seed, expected)
        assert found.tobytes() == expected.tobytes()


def test_a_boolean_of_any_byte_is_true():
    a, b = np.array([2, 255, 0], np.uint8).view(bool), np.array([True, True, False])
    assert numpy_versions.first_mismatch(a, b, 0.0, 0.0, False) == -1
