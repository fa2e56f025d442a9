"""The record of a comparison: its fields, in groups that are combined in the same way."""

from typing import Any

import numpy as np

from .._types import Measure
from .scalar.measures import BUCKETS
from .scalar.reductions import SCALES

# The number of mismatches, the first ones, whose positions are recorded.
FIRST = 5

# The counts of pairs that are not compared, since one or both of their elements are masked.
MASKED = ("masked_both", "masked_actual", "masked_expected")
# Counts, which are added.
COUNTED = (
    "size",
    "finite",
    "nan_both",
    "nan_actual",
    "nan_expected",
    "infinite",
    "mismatches",
    "signs",
    # of text and other objects, and of masked arrays, which no kernel takes
    "without_distance",
    *MASKED,
)
# The largest over all finite pairs. The first pair that has it is at position `<measure>_at`.
MEASURES: tuple[Measure, ...] = ("excess", "absolute", "relative", "ulp")
POSITIONS = tuple(f"{measure}_at" for measure in MEASURES)
# Tolerances that would pass all pairs, of which the larger counts.
PASSING = ("passing_rtol", "passing_atol")
# Sums of squares: the high and the low part of each of SCALES.
SQUARES = ("squares", "reference_squares")

RECORD = np.dtype(
    [
        *((name, np.int64) for name in COUNTED),
        ("first", np.int64, FIRST),
        *((name, np.uint64 if name == "ulp" else np.float64) for name in MEASURES),
        *((name, np.int64) for name in POSITIONS),
        *((name, np.float64) for name in PASSING),
        *((name, np.float64, (len(SCALES), 2)) for name in SQUARES),
        ("histogram", np.int64, BUCKETS),
    ],
    align=True,
)

# Where mismatches lie along an axis: the lowest and highest index, and the greatest common divisor
# of the distances between them. The CPU's rows have the axis' length, too, and where its counts
# begin, or -1.
LOWEST, HIGHEST, STEP, LENGTH, COUNTS = range(5)
RANGE = 3

_WORD = 8  # bytes of each number of a record


def part_of_record(*names: str) -> np.dtype[Any]:
    """Return the dtype of some fields of a record, one after the other."""
    return np.dtype([(name, RECORD[name]) for name in names])


def word_of(part: np.dtype[Any], name: str) -> int:
    """Return where a field of a part begins, in an array of 64-bit numbers."""
    assert part.fields is not None
    return int(part.fields[name][1]) // _WORD


def words_of(part: np.dtype[Any]) -> int:
    """Return how many 64-bit numbers a part has."""
    return part.itemsize // _WORD
