"""Statistics of the differences of two arrays, computed in one pass, and their merge.

`tally_pair` computes them, by kernels or by NumPy. `merge` combines the statistics of two parts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import lru_cache, partial
from numbers import Number
from typing import Any, ClassVar

import numpy as np

from .._core.arguments import as_float
from .._core.arrays import ArrayPair, broadcast_arrays
from .._core.dtypes import (
    FLOAT32,
    FLOAT64,
    DType,
    finfo,
    is_close,
    is_exact,
    is_real,
    measures,
    widest,
)
from .._core.protocols import NDArray
from .._execution.block_passes import converted, fold
from .._kernels.accumulators import (
    COUNTED,
    COUNTS,
    FIRST,
    HIGHEST,
    LENGTH,
    LOWEST,
    MEASURES,
    PASSING,
    POSITIONS,
    RANGE,
    RECORD,
    SQUARES,
    STEP,
)
from .._kernels.comparison import TALLIES, scratch_dtype
from .._kernels.numpy_versions import note_mismatches
from .._kernels.scalar.reductions import SCALES, precedes, scale_of, two_sum, united_range
from ..interop.times import Distances, distances, within

# Mismatches are counted for each index of an axis of at most this length: 128 KiB of counters.
_MAX_COUNTED_LENGTH = 1 << 14


@dataclass(frozen=True)
class Criteria:
    """
    The tolerances of a comparison, ``Comparison.rule``.

    Attributes
    ----------
    rtol, atol : float
        Two elements are close if ``|actual - expected| <= atol + rtol*|expected|``.
    max_ulp : int or None
        The largest difference in ULP, used in place of the tolerances if it is not None.
    equal_nan : bool
        True if two NaN are equal.
    max_mismatches : int
        The number of mismatches that is allowed.
    max_mismatch_ratio : float
        The fraction of mismatches that is allowed; an array passes if it satisfies this or
        ``max_mismatches``.

    Examples
    --------
    >>> import calipers
    >>> rule = calipers.compare([1.0], [1.0], rtol=1e-3, atol=0.0).rule
    >>> rule.rtol, rule.atol, rule.max_ulp
    (0.001, 0.0, None)
    """

    rtol: float
    atol: float
    max_ulp: int | None = None
    equal_nan: bool = False
    max_mismatches: int = 0
    max_mismatch_ratio: float = 0.0


_EMPTY = np.zeros(1, RECORD)
for _name in ("first", *POSITIONS):
    _EMPTY[_name] = -1


@dataclass(frozen=True, eq=False)
class PairStatistics:
    """Counts, extremes, sums and positions (in C order) of the differences of two arrays."""

    record: NDArray  # of dtype RECORD, one element
    axes: NDArray
    counts: NDArray

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> "PairStatistics":
        lengths = shape or (1,)
        axes, total = [], 0
        for length in lengths:
            is_counted = length <= _MAX_COUNTED_LENGTH and len(lengths) > 1
            axes.append((-1, -1, 0, length, total if is_counted else -1))
            total += length if is_counted else 0
        return cls(_EMPTY.copy(), np.array(axes, np.int64), np.zeros(total, np.int64))

    @classmethod
    def after(cls, shape: tuple[int, ...], earlier: "PairStatistics | None") -> "PairStatistics":
        """Return empty statistics that record only extremes above those of an earlier block."""
        tally = cls.empty(shape)
        if earlier is not None:
            for name in (*MEASURES, *PASSING):
                tally.record[name] = earlier.record[name]
        return tally

    def __getitem__(self, name: str) -> Any:
        return self.record[name][0]

    def __eq__(self, other: object) -> bool:
        """Return True if all are equal except the sums of squares, which depend on the order."""
        if not isinstance(other, PairStatistics):
            return NotImplemented
        names = [name for name in RECORD.names or () if name not in SQUARES]
        columns = [LENGTH, LOWEST, HIGHEST, STEP]
        return (
            all(np.array_equal(self[name], other[name], equal_nan=True) for name in names)
            and np.array_equal(self.axes[:, columns], other.axes[:, columns])
            and np.array_equal(self.counts, other.counts)
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def named_positions(self) -> list[int]:
        """Return the positions of the pairs in the report: first mismatches and largest errors."""
        farthest = [self[name] for name in POSITIONS]
        return sorted({int(i) for i in (*self["first"], *farthest) if i >= 0})

    def axis_counts(self, axis: int) -> NDArray | None:
        """Return the number of mismatches at each index of an axis, if they were counted."""
        length, start = self.axes[axis, LENGTH], self.axes[axis, COUNTS]
        return self.counts[start : start + length] if start >= 0 else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes; a number has one, of length 1."""
        return tuple(self.axes[:, LENGTH].tolist())

    def placed(self, shape: tuple[int, ...], corner: tuple[int, ...]) -> "PairStatistics":
        """Return the statistics of a block, with positions in the whole array."""
        whole = PairStatistics.empty(shape)
        whole.record[:] = self.record
        for name in ("first", *POSITIONS):
            positions = whole.record[name]
            present = positions >= 0
            positions[present] = shifted_positions(positions[present], self.shape, corner, shape)
        columns = [LOWEST, HIGHEST]
        whole.axes[:, STEP] = self.axes[:, STEP]
        for axis, start in enumerate(corner):
            values = self.axes[axis, columns]
            whole.axes[axis, columns] = values + start if values[0] >= 0 else values
            counts, part = whole.axis_counts(axis), self.axis_counts(axis)
            if counts is not None and part is not None:
                counts[start : start + part.size] = part
        return whole

    @property
    def rms(self) -> float:
        """Return the root of the mean square of the difference."""
        return _root(self._sum("squares"), int(self["finite"]))

    @property
    def relative_norm(self) -> float:
        """Return the 2-norm of the difference over that of the reference; NaN if it has no size."""
        squares, reference = self._sum("squares"), self._sum("reference_squares")
        if squares and np.isnan(self["reference_squares"]).any():
            return math.nan
        return _root(squares, reference) if reference or not squares else math.inf

    def _sum(self, name: str) -> Fraction | float:
        """Return a sum of squares, infinite if a term overflows binary64."""
        if not np.isfinite(self[name]).all():
            return math.inf
        total = Fraction(0)
        for scale, (high, low) in zip(SCALES, self[name].tolist(), strict=True):
            total += (Fraction(high) + Fraction(low)) / Fraction(scale) ** 2
        return total


def _root(numerator: Fraction | float, denominator: Fraction | float) -> float:
    """Return the square root of a quotient, 0 for 0/0."""
    if not numerator:
        return 0.0
    if isinstance(numerator, float):
        return math.nan if isinstance(denominator, float) else math.inf
    if isinstance(denominator, float):
        return 0.0
    quotient = numerator / denominator
    # An even power of two that leaves more bits than binary64 has in the integer root.
    shift = max(0, 128 - quotient.numerator.bit_length() + quotient.denominator.bit_length())
    shift += shift % 2
    root = math.isqrt((quotient.numerator << shift) // quotient.denominator)
    try:
        return float(Fraction(root, 1 << (shift // 2)))
    except OverflowError:
        return math.inf


def shifted_positions(
    positions: NDArray, part: tuple[int, ...], corner: tuple[int, ...], whole: tuple[int, ...]
) -> NDArray:
    """Convert positions in a block to positions in the whole array, both in C order.

    The order is preserved, so that the first of equal extremes stays the first.
    """
    indices = np.unravel_index(positions, part)
    shifted = tuple(i + start for i, start in zip(indices, corner, strict=True))
    return np.asarray(np.ravel_multi_index(shifted, whole))


def merge(left: PairStatistics, right: PairStatistics) -> PairStatistics:
    """Merge the statistics of two parts of an array; associative except for rounding of sums."""
    total = PairStatistics(left.record.copy(), left.axes.copy(), left.counts + right.counts)
    record, x, y = total.record[0], left.record[0], right.record[0]
    for name in (*COUNTED, "histogram"):
        record[name] = x[name] + y[name]
    for name in PASSING:
        record[name] = max(x[name], y[name])
    for measure, at in zip(MEASURES, POSITIONS, strict=True):
        if y[at] >= 0 and (x[at] < 0 or precedes(y[measure], y[at], x[measure], x[at])):
            record[measure], record[at] = y[measure], y[at]
    positions = np.concatenate([x["first"], y["first"]])
    positions = np.sort(positions[positions >= 0])[:FIRST]
    record["first"] = -1
    record["first"][: positions.size] = positions
    for name in SQUARES:
        high, low = record[name].T
        high[:], error = two_sum(high, y[name][:, 0])
        low += error + y[name][:, 1]
    for axis, part in zip(total.axes, right.axes, strict=True):
        axis[:RANGE] = united_range(*axis[:RANGE].tolist(), *part[:RANGE].tolist())
    return total


def tally_pair(pair: ArrayPair, rule: Criteria) -> PairStatistics:
    """Return the statistics of two arrays of one shape, in one pass."""
    if pair.dtypes is None:
        return _tally_by_numpy(pair, rule)
    arrays = broadcast_arrays(pair.a, pair.b, subok=False)
    call, dtypes = _kernel_call(pair, rule, pair.dtypes)
    return fold(call, partial(PairStatistics.after, arrays[0].shape), merge, arrays, dtypes)


def tally_each(pair: ArrayPair, rule: Criteria) -> list[PairStatistics]:
    """Return the statistics of each pair of elements of two vectors."""
    parts = [slice(k, k + 1) for k in range(pair.a.size)]
    if pair.dtypes is None:
        return [_tally_by_numpy(pair._replace(a=pair.a[k], b=pair.b[k]), rule) for k in parts]
    call, dtypes = _kernel_call(pair, rule, pair.dtypes)
    vectors = converted([pair.a, pair.b], dtypes)
    assert vectors is not None  # few elements
    a, b = vectors
    tallies = [PairStatistics.empty((1,)) for _ in parts]
    for k, tally in zip(parts, tallies, strict=True):
        call(tally, 0, a[k], b[k])
    return tallies


def _kernel_call(
    pair: ArrayPair, rule: Criteria, dtypes: tuple[DType, DType]
) -> tuple[Callable[[PairStatistics, int, NDArray, NDArray], None], tuple[DType, DType]]:
    """Return a function that adds two vectors to statistics, and the dtypes that it takes."""
    x, y = map(widened, dtypes)
    kernel = TALLIES.entry_point((x, y), pair.a.size)
    options, scratch = kernel_arguments(pair, rule), scratch_dtype(x)

    def call(tally: PairStatistics, start: int, a: NDArray, b: NDArray) -> None:
        outputs = tally.record, tally.axes, tally.counts
        kernel(a, b, *options, start, *outputs, np.zeros(1, scratch))

    return call, (x, y)


def kernel_arguments(pair: ArrayPair, rule: Criteria) -> tuple[float, float, int, bool, int, float]:
    """Return the arguments of kernels that depend on the criteria and the dtypes."""
    max_ulp = -1 if rule.max_ulp is None else rule.max_ulp
    return rule.rtol, rule.atol, max_ulp, rule.equal_nan, *_ulp_format(pair.a.dtype, pair.b.dtype)


def _tally_by_numpy(pair: ArrayPair, rule: Criteria) -> PairStatistics:
    """Compute statistics by NumPy for dtypes without kernels: longdouble, objects, strings."""
    a, b = broadcast_arrays(pair.a, pair.b, subok=True)
    times = distances(a, b)
    if "O" in (a.dtype.kind, b.dtype.kind):  # objects are compared exactly with Python numbers
        a, b = map(_as_pythons, (a, b))
    tally = PairStatistics.empty(a.shape)
    record = tally.record[0]
    record["size"] = a.size
    record["passing_rtol"] = record["passing_atol"] = np.nan  # not computed
    with np.errstate(all="ignore"):
        masked_a, masked_b = _masked(a), _masked(b)
        masked = masked_a | masked_b  # masked pairs are not compared, and in no other count
        nan_a, nan_b = _nan(a) & ~masked, _nan(b) & ~masked
        infinite = (_infinite(a) | _infinite(b)) & ~masked
        usual = ~(nan_a | nan_b | infinite | masked)
        if times is None:
            exact = usual & _are_exact(a, b)
            others, d, size = _distances(a, b, usual & ~exact)
            usual = others | exact
        else:
            exact = np.zeros(a.shape, bool)
            usual = usual & times.valid
            # Dates have no magnitude.
            lengths = np.nan if times.size is None else _as_longdouble(times.size)
            d, size = (np.where(usual, x, 0) for x in (_as_longdouble(times.distance), lengths))
        # A rtol of 0 avoids 0*inf. Rounding of an exact atol here does not affect the verdict.
        bound = float(rule.atol) + (rule.rtol * size if rule.rtol else 0.0)
        # Numbers beyond the largest float are close only if they are equal.
        near = usual & (d <= bound) & (d < np.inf)
        excess, relative = (np.where(d > 0, d / unit, 0.0) for unit in (bound, size))
        if np.any(exact):
            others_measured = near, d, size, excess, relative
            pairs = zip(_measured_exactly(a, b, exact, rule), others_measured, strict=True)
            near, d, size, excess, relative = (np.where(exact, x, y) for x, y in pairs)
        if times is None:
            bad = ~(_accepted(a, b, rule, near.astype(bool)) | masked)
            # NumPy accepts an infinity if its bound overflows.
            bad |= infinite & ~(nan_a | nan_b | _equal(a, b))
        else:
            bad = ~(times_close(a, b, times, rule.rtol, rule.atol, rule.equal_nan) | masked)
        for name, values in (("excess", excess), ("absolute", d), ("relative", relative)):
            if values.size and values.max() > 0:
                record[name], record[f"{name}_at"] = values.max(), values.argmax()
        for name, values in (("squares", d), ("reference_squares", size)):
            largest = values.max(initial=0)
            scale = scale_of(largest)
            record[name][scale, 0] = np.sum((values * SCALES[scale]) ** 2)
    record["finite"] = np.count_nonzero(usual)
    record["nan_both"] = np.count_nonzero(nan_a & nan_b)
    record["nan_actual"] = np.count_nonzero(nan_a & ~nan_b)
    record["nan_expected"] = np.count_nonzero(nan_b & ~nan_a)
    record["masked_both"] = np.count_nonzero(masked_a & masked_b)
    record["masked_actual"] = np.count_nonzero(masked_a & ~masked_b)
    record["masked_expected"] = np.count_nonzero(masked_b & ~masked_a)
    record["infinite"] = np.count_nonzero(bad & infinite & ~nan_a & ~nan_b)
    record["without_distance"] = np.count_nonzero(bad & ~(usual | nan_a | nan_b | infinite))
    note_mismatches(np.flatnonzero(bad), record, tally.axes, tally.counts)
    return tally


def _are_exact(a: NDArray, b: NDArray) -> NDArray:
    """Return where both elements are real, and one is an int, Fraction or Decimal."""
    if not a.dtype.kind == b.dtype.kind == "O":
        return np.zeros(a.shape, bool)
    real = np.frompyfunc(lambda x, y: is_real(x) and is_real(y), 2, 1)
    exact = np.frompyfunc(lambda x, y: is_exact(x) or is_exact(y), 2, 1)
    a, b = np.ma.filled(a), np.ma.filled(b)
    return np.asarray(real(a, b) & exact(a, b), dtype=bool)


def _measured_exactly(a: NDArray, b: NDArray, exact: NDArray, rule: Criteria) -> NDArray:
    """Return for exact numbers: whether close, |a - b|, |b|, error/tol and relative error."""
    values = np.zeros((5, *a.shape))
    for index in np.ndindex(a.shape):
        if exact[index]:
            pair = a[index], b[index], rule.rtol, rule.atol
            values[(..., *index)] = is_close(*pair), *measures(*pair)
    return values


def _as_pythons(x: NDArray) -> NDArray:
    """Convert numbers to objects, and NumPy scalars among objects to Python numbers."""
    if x.dtype.kind in "biufc":
        return x.astype(object)
    if x.dtype.kind != "O" or not any(isinstance(item, np.number) for item in x.flat):
        return x
    x = x.copy()
    for index, item in np.ndenumerate(x):
        if isinstance(item, np.number):
            x[index] = item.item()
    return x


def _accepted(a: NDArray, b: NDArray, rule: Criteria, near: NDArray) -> NDArray:
    if "O" in (a.dtype.kind, b.dtype.kind):
        return near | each_equal(a, b, rule.equal_nan)
    try:
        return np.ma.filled(np.isclose(a, b, rule.rtol, rule.atol, rule.equal_nan), True)
    except (TypeError, ArithmeticError):  # text, or a duration and a number
        return np.broadcast_to(near | each_equal(a, b, rule.equal_nan), a.shape)


def times_close(
    a: NDArray, b: NDArray, times: Distances, rtol: Any, atol: Any, equal_nan: bool
) -> NDArray:
    """Return for each pair of times whether it is close."""
    close = within(times, rtol, atol)
    if "O" in (a.dtype.kind, b.dtype.kind):
        close |= ~times.valid & _equal(a, b)  # dates whose difference is not defined
    return close | (_nan(a) & _nan(b)) if equal_nan else close


def each_equal(a: NDArray, b: NDArray, equal_nan: bool) -> NDArray:
    """Return for each pair of any dtypes whether it is equal."""
    equal = _equal(a, b)
    return equal | (_nan(a) & _nan(b)) if equal_nan else equal


def _equal(a: NDArray, b: NDArray) -> NDArray:
    try:
        return np.asarray(np.ma.filled(a == b, True), dtype=bool)
    except TypeError:  # structured dtypes with different fields
        return np.zeros(a.shape, dtype=bool)


def _nan(x: NDArray) -> NDArray:
    if x.dtype.kind == "T":  # `!=` of a missing string is neither true nor false
        return np.asarray(np.isnan(x))
    unequal = np.asarray(np.ma.filled(x != x, False), dtype=bool)
    if x.dtype.kind == "O" and unequal.any():
        # Other objects may be unequal to themselves, too.
        unequal &= np.asarray(np.frompyfunc(_may_be_nan, 1, 1)(np.ma.filled(x)), dtype=bool)
    return unequal


def _may_be_nan(x: Any) -> bool:
    return isinstance(x, Number | np.generic | date | timedelta) and not isinstance(x, np.void)


def _masked(x: NDArray) -> NDArray:
    # The mask of a structured dtype has a value for each field; NumPy's == handles it.
    return np.ma.getmaskarray(x) if x.dtype.names is None else np.zeros(x.shape, bool)


def _infinite(x: NDArray) -> NDArray:
    isinf = np.frompyfunc(_is_infinite, 1, 1) if x.dtype.kind == "O" else np.isinf
    try:
        return np.asarray(np.ma.filled(isinf(x), False), dtype=bool)
    except TypeError:
        return np.zeros(x.shape, dtype=bool)


def _is_infinite(x: Any) -> bool:
    try:
        return bool(abs(x) == math.inf)
    except (TypeError, ValueError, ArithmeticError):  # not a number
        return False


def _distances(a: NDArray, b: NDArray, usual: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Return where a distance is defined, and |a - b| and |b| as floats, 0 elsewhere."""
    for measurable in (usual, usual & are_numbers(a) & are_numbers(b)):
        x, y = (_without(v, ~measurable) if v.dtype.kind == "O" else v for v in (a, b))
        try:
            measured = _absolute_difference(x, y), abs(y)
            d, size = (
                np.where(measurable, _as_longdouble(np.ma.filled(v, 0)), 0) for v in measured
            )
        except (TypeError, ValueError):  # text
            continue
        return measurable, d, size
    return np.zeros(a.shape, dtype=bool), np.zeros(a.shape), np.zeros(a.shape)


def are_numbers(x: NDArray) -> NDArray:
    """Return which elements of an object array are numbers; all of other arrays."""
    if x.dtype.kind != "O":
        return np.ones(x.shape, dtype=bool)
    return np.asarray(np.frompyfunc(_is_number, 1, 1)(np.ma.filled(x)), dtype=bool)


def _is_number(x: Any) -> bool:
    return isinstance(x, Number)


def _without(x: NDArray, missing: NDArray) -> NDArray:
    """Return a copy of objects with some set to 0, such as infinities, whose difference raises."""
    x = x.copy()
    x[missing] = 0
    return x


def _as_longdouble(x: NDArray) -> NDArray:
    try:
        return np.asarray(x, np.longdouble)
    except (OverflowError, ValueError):  # integers beyond the largest float
        return np.asarray(np.frompyfunc(as_float, 1, 1)(x), np.longdouble)


def has_distances(x: NDArray) -> bool:
    """Return True if elements are numbers, dates or durations, or some objects are numbers."""
    if x.dtype.kind == "O":
        return any(isinstance(item, Number) for item in x.flat)
    return x.dtype.kind in "biufcm" or x.dtype.isbuiltin == 2


def _absolute_difference(a: NDArray, b: NDArray) -> NDArray:
    try:
        return np.asanyarray(abs(a - b))
    except OverflowError:  # a float and an integer beyond the largest float
        return np.asarray(np.frompyfunc(_exact_difference, 2, 1)(a, b))


def _exact_difference(a: Any, b: Any) -> Fraction:
    return abs(Fraction(a) - Fraction(b))


def widened(dtype: DType) -> DType:
    """Return the dtype of the kernel for `dtype`; one large kernel serves several dtypes."""
    return dtype if dtype == FLOAT32 else widest(dtype)


@lru_cache
def _ulp_format(a: DType, b: DType) -> tuple[int, float]:
    """Return the format of ULP as two differences from binary64, for kernels that compute in it.

    They are the number of fraction bits that it lacks, and the ratio of the smallest normal
    numbers. The ULP of a pair of two formats is that of binary64.
    """
    dtype = a.newbyteorder("=")
    if dtype != b.newbyteorder("=") or (dtype.isbuiltin == 2 and "float" not in dtype.name):
        dtype = FLOAT64
    if dtype.kind in "biu":
        return 0, 1.0
    info = finfo(dtype)
    return 52 - int(info.nmant), 2.0**-1022 / float(info.smallest_normal)
