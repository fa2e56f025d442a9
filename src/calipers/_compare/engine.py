"""
Compare the leaves of two containers, for the verdict or for the report.

`all_pass` returns the verdict as early as possible. `compare_leaves` makes one full pass over each
pair of arrays and returns the report. `require_close` calls the second only if the first is False.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, time, timedelta
from functools import cache, partial
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from .._core.arguments import attribute
from .._core.arrays import ArrayPair, common_shape, undecided_objects
from .._core.dtypes import (
    DType,
    distance,
    format_of,
    is_real,
    kernel_dtype,
    record_names,
    value_dtype,
    working_dtypes,
)
from .._core.libraries import device_module, library_of, on_device
from .._core.protocols import ChunkedPair, NDArray, UnevenError
from .._core.types import CompareOptions
from ..interop.frames import is_column, is_frame, labels_differ
from ..interop.times import common_format
from ..interop.units import Unit, UnitError, unit_of_chunks
from . import elementwise
from .chunked import MEMORY_LIMIT, chunked_pair
from .elementwise import fast_agree
from .nested import Leaf
from .patterns import arrangement
from .reports import (
    ClosenessError,
    Comparison,
    Difference,
    NestedComparison,
    embedded,
    merge_comparisons,
)
from .statistics import Criteria, PairStatistics, has_distances, tally_each, tally_pair
from .tolerances import CheckedOptions

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

_NAMES = ("actual", "expected")
_LABELS = "the row labels differ; rows are compared by position, without their labels"


def require_close(
    parts: Sequence[Leaf],
    nested: bool,
    options: CheckedOptions,
    msg: str | Callable[[str], str] | None,
) -> None:
    """Raise ClosenessError with the report if not all leaves agree."""
    if all_pass(parts, options):
        return
    report = compare_leaves(parts, nested, options)
    if report:
        return
    text = str(report)
    if msg is not None:
        text = msg(text) if callable(msg) else msg
    raise ClosenessError(text, report)


def _names(leaf: Leaf) -> tuple[str, str]:
    """Return the expressions of the two arrays of a leaf, for errors."""
    return f"actual{leaf.path}", f"expected{leaf.path}"


def _backend(leaf: Leaf) -> Any:
    """Return the module that compares the arrays: on their device or on the host."""
    if on_device(actual=leaf.actual, expected=leaf.expected):
        return device_module("comparison")
    return elementwise


def _chunked(leaf: Leaf, options: CheckedOptions) -> ChunkedPair | None:
    return chunked_pair(options.memory_limit, actual=leaf.actual, expected=leaf.expected)


def all_pass(parts: Sequence[Leaf], options: CheckedOptions) -> bool:
    """Return True if all leaves agree; False may also mean that a full pass has to decide."""
    return all(_passes(leaf, options) for leaf in parts)


def _passes(leaf: Leaf, options: CheckedOptions) -> bool:
    if leaf.problem or options.rule.max_ulp is not None:
        return False
    if options.memory_limit == MEMORY_LIMIT:  # else it is checked first
        rtol, atol = options.tolerance or (None, None)
        chosen: CompareOptions = {"rtol": rtol, "atol": atol, "equal_nan": options.rule.equal_nan}
        plain = fast_agree(leaf.actual, leaf.expected, chosen)
        if plain is not None:
            return plain
    chunked = _chunked(leaf, options)
    if chunked is not None:
        # Iterators can be read only once, by the full pass.
        return chunked.has_shapes and _chunked_passes(leaf, chunked, options)
    backend = _backend(leaf)
    try:
        pair = backend.as_pair(leaf.actual, leaf.expected, _names(leaf))
    except UnitError:
        return False
    if pair.dtypes is None or _problems(leaf, pair.a, pair.b, options):
        return False
    rule = options.criteria_for(pair.a.dtype, pair.b.dtype, pair.unit)
    verdict: bool = backend.all_close(pair.a, pair.b, rule.rtol, rule.atol, rule.equal_nan)
    return verdict


def compare_leaves(
    parts: Sequence[Leaf], nested: bool, options: CheckedOptions
) -> Comparison | NestedComparison:
    """Return the report of all leaves; a Comparison of the only leaf if not `nested`."""
    comparisons = tuple(_compare_leaf(leaf, options) for leaf in parts)
    return NestedComparison(comparisons) if nested else comparisons[0]


def _compare_leaf(leaf: Leaf, options: CheckedOptions) -> Comparison:
    if leaf.problem:
        return _incomparable(leaf, leaf.problem, options)
    try:
        chunked = _chunked(leaf, options)
        if chunked is not None:
            return _compare_chunked(leaf, chunked, options)
        backend = _backend(leaf)
        pair = backend.as_pair(leaf.actual, leaf.expected, _names(leaf))
    except UnitError as error:
        return _incomparable(leaf, str(error), options)
    has_kernels = pair.dtypes is not None  # else objects, text, times or masked arrays
    a, b = pair.a, pair.b
    formats: tuple[DType, DType]
    formats = (a.dtype, b.dtype) if has_kernels else (format_of(a), format_of(b))
    rule = options.criteria_for(*formats, pair.unit)
    _require_steps(pair, rule, leaf.path)
    problems = _problems(leaf, pair.a, pair.b, options)
    ticks = None if has_kernels else common_format(*formats)
    if not has_kernels and ticks is None and not any(map(has_distances, pair[:2])):
        rule = replace(rule, rtol=0.0, atol=0.0)
    unit = pair.unit if ticks is None else np.datetime_data(ticks)[0]
    report = partial(_report, leaf, pair.a, pair.b, rule, problems, unit)
    try:
        if options.check_shape and pair.a.shape != pair.b.shape:
            raise ValueError
        pair = backend.broadcast(pair)
    except ValueError:
        if pair.a.size > 1 and pair.a.size == pair.b.size:
            return report(arrangement=_arrangement(backend, pair, rule))
        return report()
    try:
        tally, differences = _measured(backend, pair, rule)
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        if all(x.dtype.kind != "O" for x in (pair.a, pair.b)):
            raise
        undecided = undecided_objects(pair.a, pair.b, _names(leaf))
        if undecided is None:
            raise
        raise undecided from error
    return report(
        tally=tally,
        differences=differences,
        arrangement=_arrangement(backend, pair, rule) if tally["mismatches"] > 1 else None,
        arrays=(pair.a, pair.b),
        notes=[] if has_kernels else _notes_on_objects(differences),
    )


def _incomparable(leaf: Leaf, problem: str, options: CheckedOptions) -> Comparison:
    """Return the report of a pair whose elements cannot be compared."""
    shape, other_shape = (tuple(attribute(x, "shape") or ()) for x in (leaf.actual, leaf.expected))
    kinds = type(leaf.actual).__name__, type(leaf.expected).__name__
    return Comparison(leaf.path, shape, other_shape, *kinds, options.rule, (problem,))


def _arrangement(backend: Any, pair: ArrayPair, rule: Criteria) -> str | None:
    """Return the rearrangement of expected that equals actual; None without kernels."""
    if pair.dtypes is None:
        return None
    close = partial(backend.all_close, rtol=rule.rtol, atol=rule.atol, equal_nan=True)
    each = partial(elementwise.each_close, rtol=rule.rtol, atol=rule.atol, equal_nan=True)
    return arrangement(pair.a, pair.b, close, each if backend is elementwise else None)


def _notes_on_objects(differences: Mapping[int, Difference]) -> list[str]:
    """Return notes on objects without a distance, which were compared by their ``==``."""
    both = [(x.actual, x.expected) for x in differences.values()]
    kinds_with_distance = Number, str, bytes, np.generic, type(None), date, time, timedelta
    objects = (x for pair in both for x in pair if not isinstance(x, kinds_with_distance))
    kinds: set[Any] = set(map(type, objects))
    return [
        f"objects of type {kind.__name__} are compared by =="
        + (", which is identity for them" if kind.__eq__ is object.__eq__ else "")
        for kind in sorted(kinds, key=lambda kind: kind.__name__)
    ]


def _require_steps(pair: ArrayPair, rule: Criteria, path: str) -> None:
    """Raise TypeError if `max_ulp` is passed for numbers whose distance in ULP is not defined."""
    if rule.max_ulp is None or pair.dtypes is not None:
        return
    arrays = pair.a, pair.b
    if not all(map(has_distances, arrays)):  # text is equal or unequal
        return
    name, x = next((name, x) for name, x in zip(_NAMES, arrays, strict=True) if not _is_counted(x))
    of_type = "" if type(x) is np.ndarray else f", a {type(x).__name__}"
    msg = f"max_ulp is not defined for {name}{path}{of_type} of dtype {x.dtype}: "
    raise TypeError(msg + "pass rtol= and atol= instead")


def _is_counted(x: NDArray) -> bool:
    return type(x) is np.ndarray and kernel_dtype(x.dtype) is not None


def _report(
    leaf: Leaf,
    a: Any,
    b: Any,
    rule: Criteria,
    problems: list[str],
    unit: Unit | str | None = None,
    notes: Sequence[str] = (),
    **elements: Any,
) -> Comparison:
    """Return a report of shapes, dtypes and labels, and of elements by the fields passed."""
    suffix = f"[{unit}]" if unit is not None and str(unit) else ""  # as in timedelta64[s]
    texts = [
        _name_of(value_dtype(x.dtype)) + (suffix if x.dtype.kind not in "mM" else "")
        for x in (a, b)
    ]
    labelled = leaf.actual is not a and leaf.expected is not b  # an array of NumPy has no labels
    if labelled and labels_differ(leaf.actual, leaf.expected):
        notes = (_LABELS, *notes)
    return Comparison(
        leaf.path,
        a.shape,
        b.shape,
        texts[0],
        texts[1],
        rule,
        tuple(problems),
        notes=tuple(notes),
        **elements,
    )


@cache
def _name_of(dtype: DType) -> str:
    """Return the name of a dtype, which NumPy composes anew each time."""
    return str(dtype)


def _measured(
    backend: Any, pair: ArrayPair, rule: Criteria
) -> tuple[PairStatistics, dict[int, Difference]]:
    tally = backend.tally_pair(pair, rule)
    positions = tally.named_positions()
    if not positions:
        return tally, {}
    named = backend.elements(pair, positions)
    # The extremes of all pairs are the measures of one, if they are at no other.
    is_only = len(positions) == 1 and tally["absolute_at"] >= 0
    tallies = [tally] if is_only else tally_each(named, rule)
    indices = [tuple(map(int, np.unravel_index(i, pair.a.shape))) for i in positions]
    return tally, {
        i: _difference(named, k, tallies[k], indices[k]) for k, i in enumerate(positions)
    }


class _ArrayInfo(NamedTuple):
    """The shape and dtype of an array that is not in memory."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def _array_infos(chunked: ChunkedPair) -> tuple[_ArrayInfo, _ArrayInfo]:
    a, b = map(_ArrayInfo, chunked.shapes(), chunked.dtypes())
    return a, b


def _chunked_passes(leaf: Leaf, chunked: ChunkedPair, options: CheckedOptions) -> bool:
    a, b = _array_infos(chunked)
    if working_dtypes(a.dtype, b.dtype) is None or _problems(leaf, a, b, options):
        return False
    rule = options.criteria_for(a.dtype, b.dtype, unit_of_chunks(leaf.actual, leaf.expected))
    try:
        return chunked.every(partial(_block_passes, rule))
    except UnitError:
        return False


def _block_passes(rule: Criteria, actual: Any, expected: Any) -> bool:
    pair = elementwise.as_pair(actual, expected, _NAMES)
    if pair.dtypes is None:  # the dtype has a kernel, but the block is masked
        return not tally_pair(pair, rule)["mismatches"]
    return elementwise.all_close(pair.a, pair.b, rule.rtol, rule.atol, rule.equal_nan)


def _compare_chunked(leaf: Leaf, chunked: ChunkedPair, options: CheckedOptions) -> Comparison:
    """Return the report of two arrays that are not in memory, compared block by block."""
    a, b = _array_infos(chunked)
    unit = unit_of_chunks(leaf.actual, leaf.expected)
    rule = options.criteria_for(a.dtype, b.dtype, unit)
    shape: tuple[int, ...] | None = None
    if chunked.has_shapes:
        try:
            if options.check_shape and a.shape != b.shape:
                raise ValueError
            shape = common_shape(a.shape, b.shape)
        except ValueError:
            return _report(leaf, a, b, rule, _problems(leaf, a, b, options), unit)
    merged, uneven = None, False
    try:
        merged = chunked.reduce(partial(_compare_block, rule, shape), merge_comparisons)
    except UnevenError:  # the report lists the shapes as a problem
        uneven = True
    a, b = _array_infos(chunked)
    report = partial(_report, leaf, a, b, rule, _problems(leaf, a, b, options), unit)
    if uneven:
        return report()
    if merged is None:
        return report(tally=PairStatistics.empty(shape if shape is not None else a.shape))
    return report(tally=merged.tally, differences=merged.differences)


def _compare_block(
    rule: Criteria,
    shape: tuple[int, ...] | None,
    corner: tuple[int, ...],
    actual: Any,
    expected: Any,
) -> Comparison:
    """Return the report of two blocks at `corner` of an array of some shape.

    If `shape` is None, the length of the array is unknown; it is assumed to end with this block.
    """
    pair = elementwise.as_pair(actual, expected, _NAMES)
    for name, x in zip(_NAMES, pair[:2], strict=True):
        if fields := record_names(x.dtype):
            msg = f"{name} comes in chunks of records, but fields are compared one by one: "
            raise TypeError(msg + f"pass chunks of one field, (x[{fields[0]!r}] for x in {name})")
    _require_steps(pair, rule, "")
    pair = elementwise.broadcast(pair)
    tally, differences = _measured(elementwise, pair, rule)
    alone = Leaf("", None, None)
    part = _report(alone, pair.a, pair.b, rule, [], tally=tally, differences=differences)
    if shape is None:
        rows, *others = pair.a.shape
        shape = (corner[0] + rows, *others)
    return part if shape == pair.a.shape else embedded(part, shape, corner)


def _problems(leaf: Leaf, a: Any, b: Any, options: CheckedOptions) -> list[str]:
    """Return the problems of the shapes and dtypes of two arrays."""
    problems = []
    if a.shape != b.shape:
        try:
            common_shape(a.shape, b.shape)
            advice = "check_shape=False would broadcast them"
        except ValueError:
            advice = "they cannot be broadcast"
            if a.size == b.size:
                advice += f", but both have {a.size} elements"
            if not options.check_shape:
                problems.append(f"shapes {a.shape} and {b.shape} cannot be broadcast together")
        if options.check_shape:
            problems.append(f"shapes differ: {a.shape} and {b.shape}; {advice}")
    dtype, other_dtype = _native(a.dtype), _native(b.dtype)
    typed = _has_dtype(leaf.actual) and _has_dtype(leaf.expected)
    if options.check_dtype and typed and _without_length(dtype) != _without_length(other_dtype):
        problems.append(f"dtypes differ: {dtype} and {other_dtype}; check_dtype=False allows it")
    return problems


def _native(dtype: DType) -> DType:
    """Return the dtype of the values in native byte order."""
    dtype = value_dtype(dtype)
    return dtype.newbyteorder("=") if dtype.byteorder in "<>" else dtype


def _without_length(dtype: DType) -> DType:
    """Return a dtype without the length of strings."""
    return np.dtype(dtype.kind) if dtype.kind in "SU" else dtype


def _has_dtype(x: Any) -> bool:
    """Return True if x has a dtype; Python numbers and lists take that of the other array."""
    typed = isinstance(x, np.ndarray | np.generic | Iterator) or library_of(x) is not None
    return (
        typed or is_frame(x) or attribute(x, "dtype") is not None or is_column(x) or on_device(x=x)
    )


def _difference(
    pair: ArrayPair, k: int, tally: PairStatistics, index: tuple[int, ...]
) -> Difference:
    """Return the Difference of element k of two vectors, which has an index in the whole arrays."""
    values = _value(pair.a[k : k + 1]), _value(pair.b[k : k + 1])
    absolute: float | int
    absolute, relative, excess = (float(tally[m]) for m in ("absolute", "relative", "excess"))
    ulp: int | None = None
    # A call of NumPy after those of kernels clears their floating-point flags. A ufunc that calls
    # this, as np.vectorize's, would warn of them.
    if np.isnan(tally["reference_squares"]).any():  # dates have no magnitude
        relative = math.nan
    if not tally["finite"]:
        absolute = relative = excess = math.nan
    elif pair.dtypes is not None:
        ulp = int(tally["ulp"])
        if all(isinstance(x, int) for x in values):
            absolute = ulp = abs(int(values[0]) - int(values[1]))
    elif math.isinf(absolute) and all(map(is_real, values)):
        absolute = round(distance(*values))
    return Difference(index, *values, absolute, relative, ulp, excess)


def _value(x: NDArray) -> Any:
    kernels = kernel_dtype(x.dtype)
    if x.dtype.isbuiltin == 2:
        return int(x[0]) if kernels is not None and kernels.kind in "iu" else float(x[0])
    return x[0] if kernels is None else x[0].item()
