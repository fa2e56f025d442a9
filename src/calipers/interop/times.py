"""Dates and durations, of NumPy, Python, pandas and cftime: their distances in whole ticks."""

import sys
from datetime import date, timedelta
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .._core.protocols import NDArray

DType = np.dtype[Any]

# By the kind of NumPy's dtype: the types that it holds, and the method that converts pandas' types.
_TYPES = {
    "M": (date | np.datetime64, "to_datetime64"),
    "m": (timedelta | np.timedelta64, "to_timedelta64"),
}

# How long units are. A year or a month has no fixed number of days.
_MONTHS = {"Y": Fraction(12), "M": Fraction(1)}
_SECONDS = {"W": Fraction(604800), "D": Fraction(86400), "h": Fraction(3600), "m": Fraction(60)}
for _k, _unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as")):
    _SECONDS[_unit] = Fraction(1, 1000**_k)


class Distances(NamedTuple):
    """How far pairs of times are from each other, as integers without rounding."""

    valid: NDArray  # False for NaT, and for dates that have no difference
    distance: NDArray  # in ticks: of 64 bits without sign, or Python's integers
    size: NDArray | None  # of the second duration; dates have none


def is_duration(x: Any) -> bool:
    """Return True if x is a scalar of NumPy, Python or pandas that says how long."""
    return isinstance(x, np.timedelta64 | timedelta)


def time_format(x: NDArray) -> DType | None:
    """Return the dtype of an array of times, for objects that of their resolution; else None."""
    if x.dtype.kind in "mM":
        return x.dtype
    if x.dtype.kind != "O" or x.size == 0:
        return None
    items = np.ma.getdata(x).ravel().tolist()
    for kind, is_time in (("m", _is_timedelta), ("M", _is_date)):
        if all(map(is_time, items)):
            if _has_scalars(np.ma.getdata(x)):
                held = as_dtype_of_times(np.ma.getdata(x), kind)
                return held.dtype if held.dtype.kind == kind else None
            fine = any(hasattr(item, "to_numpy") for item in items)  # of pandas
            return np.dtype(f"{kind}8[{'ns' if fine else 'us'}]")
    return None


def _is_timedelta(x: Any) -> bool:
    return is_duration(x) or (isinstance(x, date) and bool(x != x))  # pandas' NaT


def _is_date(x: Any) -> bool:
    kinds = date | np.datetime64 | getattr(sys.modules.get("cftime"), "datetime", date)
    return isinstance(x, kinds)


def as_dtype_of_times(objects: NDArray, kind: str) -> NDArray:
    """Return objects in NumPy's dtype, if all are dates or durations that it has: without zones."""
    types, method = _TYPES[kind]
    if not all(isinstance(x, types) and getattr(x, "tzinfo", None) is None for x in objects.flat):
        return objects
    scalars = [getattr(x, method)() if hasattr(x, method) else x for x in objects.flat]
    return np.array(scalars, f"{kind}8").reshape(objects.shape)


def common_format(a: DType | None, b: DType | None) -> DType | None:
    """Return the dtype in whose ticks two arrays of times are measured; None if there is none."""
    if a is None or b is None or a.kind != b.kind or a.kind not in "mM":
        return None
    try:
        return np.promote_types(a, b)
    except TypeError:  # of years and days
        return None


def in_ticks(duration: Any, ticks: DType) -> float | Fraction:
    """Return how many ticks a duration has, exactly: a fraction where no float is that number."""
    unit, count = np.datetime_data(ticks)
    if isinstance(duration, timedelta):
        unit_of_duration, number = "s", Fraction(_nanoseconds(duration), 10**9)
    else:
        unit_of_duration, multiple = np.datetime_data(duration.dtype)
        number = Fraction(int(duration.astype(np.int64)) * multiple)
    lengths = _MONTHS if unit_of_duration in _MONTHS else _SECONDS
    if "generic" not in (unit_of_duration, unit):
        if unit not in lengths:
            msg = f"atol={duration!r} cannot be converted to the unit of the arrays, {unit!r}: "
            raise TypeError(msg + "pass the arrays, or atol, in another unit")
        number *= lengths[unit_of_duration] / (lengths[unit] * count)
    return float(number) if Fraction(float(number)) == number else number


def _nanoseconds(x: timedelta) -> int:
    seconds = x.days * 86400 + x.seconds
    return (seconds * 10**6 + x.microseconds) * 1000 + getattr(x, "nanoseconds", 0)


def distances(a: NDArray, b: NDArray) -> Distances | None:
    """Return how far two arrays of times of one shape are from each other; None for others."""
    formats = time_format(a), time_format(b)
    ticks = common_format(*formats)
    if ticks is None:
        return None
    a, b = np.ma.getdata(a), np.ma.getdata(b)
    if a.dtype.kind == b.dtype.kind == "O" and not any(map(_has_scalars, (a, b))):
        return _of_objects(a, b, ticks)
    a, b = (as_dtype_of_times(x, ticks.kind) if x.dtype.kind == "O" else x for x in (a, b))
    if "O" in (a.dtype.kind, b.dtype.kind):  # of cftime, or with a time zone
        return None
    valid = ~(np.isnat(a) | np.isnat(b))
    x, y = _integers(a, ticks), _integers(b, ticks)
    distance: NDArray
    if "O" in (x.dtype.kind, y.dtype.kind):
        x, y = x.astype(object), y.astype(object)
        distance, size = abs(x - y), abs(y)
    else:
        # The difference of two integers of 64 bits may need one more, and wraps to the right one.
        distance = np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)
        size = abs(y).astype(np.uint64)
    distance, size = (np.where(valid, x, 0) for x in (distance, size))
    return Distances(valid, distance, size if ticks.kind == "m" else None)


def _has_scalars(x: NDArray) -> bool:
    """Return True if some objects are scalars of NumPy."""
    return any(isinstance(item, np.generic) for item in x.flat)


def _integers(x: NDArray, ticks: DType) -> NDArray:
    """Return times as integers: of 64 bits, or Python's where those are too few."""
    if x.dtype == ticks:
        return x.astype(np.int64)
    try:
        converted = x.astype(ticks)
        if np.all((converted.astype(x.dtype) == x) | np.isnat(x)):  # else it wrapped
            return converted.astype(np.int64)
    except OverflowError:
        pass
    unit, count = np.datetime_data(x.dtype)
    if unit in _MONTHS:
        unit, count = "s", 1
        x = x.astype("M8[s]")
    finer, of_finer = np.datetime_data(ticks)
    factor = _SECONDS[unit] * count / (_SECONDS[finer] * of_finer)
    return np.asarray(x.astype(np.int64).astype(object) * int(factor), object)


def _of_objects(a: NDArray, b: NDArray, ticks: DType) -> Distances:
    """Return the distances of objects, by their own differences."""
    scale = 1 if np.datetime_data(ticks)[0] == "ns" else 1000
    valid, distance, size = (np.zeros(a.shape, dtype) for dtype in (bool, object, object))
    for index in np.ndindex(a.shape):
        x: Any = a[index]
        y: Any = b[index]
        difference: Any = None
        try:
            difference = x - y
        except Exception:  # of a time zone on one side alone, or of other calendars
            continue
        if isinstance(difference, timedelta):  # and no NaT
            valid[index] = True
            distance[index] = abs(_nanoseconds(difference)) // scale
            size[index] = abs(_nanoseconds(y)) // scale if isinstance(y, timedelta) else 0
    return Distances(valid, distance, size if ticks.kind == "m" else None)


def within(times: Distances, rtol: Any, atol: Any) -> NDArray:
    """Return for each pair if ``distance <= atol + rtol*size``; only rtol brings in rounding."""
    valid, distance = times.valid, times.distance
    size: Any = 0 if times.size is None else times.size
    d, s, r, t = (np.asarray(x, np.float64) for x in (distance, size, rtol, atol))
    with np.errstate(all="ignore"):
        bound = t + r * s
        margin = 8 * np.finfo(np.float64).eps * (d + abs(t) + abs(r * s))
        close = np.asarray(d <= bound)
        near = np.isfinite(bound) & (abs(d - bound) <= margin) & (d > 0) & valid
    if near.any():  # rounding might decide
        exact = np.frompyfunc(_is_within, 4, 1)(distance, size, rtol, atol)
        close = np.where(near, np.asarray(exact, bool), close)
    return np.asarray(valid & (close | (distance == 0)), bool)


def _is_within(distance: int, size: int, rtol: float, atol: float | Fraction) -> bool:
    # As for numbers: the bound is of binary64, and the distance is not rounded.
    return int(distance) <= (float(atol) + rtol * float(size) if rtol else atol)
