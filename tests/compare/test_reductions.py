"""Rules that combine the results of two parts, and the record that holds them."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from calipers._kernels.accumulators import (
    MEASURES,
    POSITIONS,
    RECORD,
    part_of_record,
    word_of,
    words_of,
)
from calipers._kernels.scalar.closeness import HUGE, TINY
from calipers._kernels.scalar.reductions import (
    SCALES,
    lowered,
    may_lead,
    precedes,
    scale_of,
    two_sum,
    united_range,
)


def test_a_sum_of_two_parts_is_exact():
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((1000, 2)) * 2.0 ** rng.integers(-60, 60, (1000, 2))
    for a, b in numbers.tolist():
        total, error = two_sum(a, b)
        assert total == a + b
        assert Fraction(total) + Fraction(error) == Fraction(a) + Fraction(b)


def range_of(indices):
    if not indices:
        return -1, -1, 0
    lowest = min(indices)
    step = int(np.gcd.reduce([i - lowest for i in indices]))
    return lowest, max(indices), step


def test_the_range_of_two_parts_is_that_of_all_indices():
    parts = [[], [0], [7], [3, 9], [9, 3, 15], [2, 3], [4, 10, 16], [100, 40]]
    for one, other in itertools.product(parts, parts):
        assert united_range(*range_of(one), *range_of(other)) == range_of(one + other)


def test_the_first_of_the_largest_precedes():
    pairs = [(1.0, 5), (2.0, 9), (2.0, 3), (0.0, 0)]
    assert max(pairs, key=lambda pair: (pair[0], -pair[1])) == (2.0, 3)
    assert all(precedes(2.0, 3, *other) for other in pairs if other != (2.0, 3))
    assert not any(precedes(*other, 2.0, 3) for other in pairs)


@pytest.mark.parametrize("x", [5e-324, 1e-200, TINY, 1e-100, 1.0, 1e100, HUGE, 1e200, 1.7e308])
def test_squares_are_summed_in_a_scale_that_holds_them(x):
    square = (x * SCALES[scale_of(x)]) ** 2
    assert 2.0**-1000 < square < 2.0**1000


def test_no_pair_with_a_larger_quotient_is_missed():
    rng = np.random.default_rng(1)
    d, bound, other, most = rng.random((4, 10_000)) + 0.5
    largest = most / other
    d[:5000] = largest[:5000] * bound[:5000]  # the same quotient, but for rounding
    larger = d / bound > largest
    assert 0 < np.count_nonzero(larger[:5000]) < 5000
    assert may_lead(d, bound, 1.0, lowered(largest), np.inf)[larger].all()


def test_a_part_of_a_record_has_its_fields_at_their_words():
    part = part_of_record("ulp_at", *MEASURES[:3], "squares", *POSITIONS[:3])
    words = np.arange(words_of(part), dtype=np.int64)
    row = words.view(part)[0]
    for name in part.names:
        assert row[name].view(np.int64).flat[0] == word_of(part, name)
        assert row[name].shape == np.zeros(1, RECORD)[0][name].shape
