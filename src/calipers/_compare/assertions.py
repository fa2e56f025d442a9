"""The assertions of `calipers.testing`: by kernels, or by NumPy's assertions without kernels."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.testing import build_err_msg

from .._core.arguments import attribute
from .._core.arrays import as_array, as_pair, in_memory, overrides_numpy
from .._core.dtypes import is_comparable, working_dtypes
from .._core.libraries import IN_MEMORY_TYPES, library_of, on_device
from ..interop.frames import is_column, is_frame
from ..interop.times import is_duration
from ..interop.torch import Torch, difference, members, require_supported_layout
from ..interop.units import UnitError, unit_of
from ..interop.zarr_h5py import field_names
from . import compare as comparison
from .chunked import MEMORY_LIMIT, chunked_pair
from .elementwise import as_alike_arrays, fast_all_close
from .nested import Leaf, have_named_parts, leaves, require_depth
from .reports import ClosenessError

_TORCH = Torch()
# Attributes of tensors, in the order in which they are compared.
_COMPARED = ("layout", "stride", "device", "dtype")


class Checks(NamedTuple):
    """The attributes that have to be equal in addition to values and shapes."""

    allow_subclasses: bool
    device: bool
    dtype: bool
    layout: bool
    stride: bool


def related_leaves(
    actual: Any, expected: Any, checks: Checks, path: str = "", depth: int = 0
) -> Iterator[Leaf]:
    """
    Yield all pairs of arrays in two containers, and all differences of structure and type.

    Pairs that are decided without their elements are skipped. Raise TypeError for pairs of types
    that are not related.
    """
    require_depth(path, depth)
    # The items of a string are strings.
    strings = isinstance(actual, str) or isinstance(expected, str)
    if _are(actual, expected, Sequence) and not strings:
        if len(actual) != len(expected):
            text = f"actual has {len(actual)} items, expected has {len(expected)}"
            yield Leaf(path, actual, expected, text)
        for i, (a, b) in enumerate(zip(actual, expected, strict=False)):
            part = related_leaves(a, b, checks, f"{path}[{i}]", depth + 1)
            yield from part if len(actual) == len(expected) else _until_unrelated(part)
    elif _are(actual, expected, Mapping):
        same_keys = actual.keys() == expected.keys()
        for key, value in actual.items():
            item_path = f"{path}[{key!r}]"
            if key in expected:
                part = related_leaves(value, expected[key], checks, item_path, depth + 1)
                yield from part if same_keys else _until_unrelated(part)
            else:
                yield Leaf(item_path, value, None, "only in actual")
        for key, value in expected.items():
            if key not in actual:
                yield Leaf(f"{path}[{key!r}]", None, value, "only in expected")
    elif actual is None or expected is None:
        if actual is not expected:
            yield Leaf(path, actual, expected, f"{_kind(actual)} is not {_kind(expected)}")
    elif _are(actual, expected, bool | np.bool):
        if bool(actual) != bool(expected):
            yield Leaf(path, actual, expected, f"{actual} is not {expected}")
    elif _are(actual, expected, int | float | complex | np.number):
        yield _numbers(path, _python_number(actual), _python_number(expected), checks)
    else:
        _require_related(actual, expected, checks)
        if have_named_parts(actual, expected):
            yield from (leaf._replace(path=path + leaf.path) for leaf in leaves(actual, expected))
            return
        yield from _arrays(path, actual, expected, checks)


def _until_unrelated(part: Iterator[Leaf]) -> Iterator[Leaf]:
    """Yield leaves up to unrelated types; the difference of the containers is reported instead."""
    with suppress(TypeError):
        yield from part


def _are(actual: Any, expected: Any, kind: Any) -> bool:
    return isinstance(actual, kind) and isinstance(expected, kind)


def _kind(x: Any) -> str:
    return "None" if x is None else f"a {type(x).__name__}"


def _python_number(x: Any) -> Any:
    return x.item() if isinstance(x, np.number) else x


def _numbers(path: str, actual: Any, expected: Any, checks: Checks) -> Leaf:
    kinds = type(actual).__name__, type(expected).__name__
    if checks.dtype and kinds[0] != kinds[1]:
        text = f"types differ: {kinds[0]} and {kinds[1]}; check_dtype=False allows it"
        return Leaf(path, actual, expected, text)
    return Leaf(path, actual, expected)


def _require_related(actual: Any, expected: Any, checks: Checks) -> None:
    kinds = type(actual), type(expected)
    related = issubclass(*kinds) or issubclass(*reversed(kinds))
    if kinds[0] is not kinds[1] and not (related and checks.allow_subclasses):
        msg = f"actual and expected must be of related types, got {kinds[0]} and {kinds[1]}"
        raise TypeError(msg)
    if library_of(actual) is None and attribute(actual, "dtype") is None and not is_frame(actual):
        msg = f"actual and expected must be arrays or numbers, got {kinds[0]}"
        raise TypeError(msg)


def _arrays(path: str, actual: Any, expected: Any, checks: Checks) -> Iterator[Leaf]:
    problem = None
    tensors = _TORCH.owns(actual)
    if tensors:
        require_supported_layout(actual, "actual")
        require_supported_layout(expected, "expected")
    if actual.shape != expected.shape:
        problem = f"shapes differ: {tuple(actual.shape)} and {tuple(expected.shape)}"
    elif tensors:
        problem = difference(actual, expected, [n for n in _COMPARED if getattr(checks, n)])
    elif checks.stride and actual.strides != expected.strides:
        problem = f"strides differ: {actual.strides} and {expected.strides} bytes"
    if problem is not None:
        yield Leaf(path, actual, expected, problem)
    elif tensors:
        for name, *both, text in members(actual, expected):
            # NumPy views take the fast path.
            a, b = (_TORCH.as_numpy(x) if x.is_cpu and text is None else x for x in both)
            yield Leaf(f"{path}{name}", a, b, text)
    else:
        yield Leaf(path, actual, expected)


__tracebackhide__ = True  # pytest shows an error at the line that called calipers

_NAMES = ("actual", "desired")
_SIMPLE_TYPES = frozenset({bool, int, float, np.float64, str})


class ErrorHeader:
    """The text before a report: NumPy's header and the caller's `err_msg`."""

    def __init__(self, header: str, err_msg: object, verbose: bool) -> None:
        self.header: str = header
        self.err_msg: str = str(err_msg)
        self.verbose: bool = verbose

    def prepend_to(self, report: str) -> str:
        """Return the header followed by the report, or by its first line if not verbose."""
        head = build_err_msg([], self.err_msg, header=self.header, verbose=False)
        text = report if self.verbose else report.partition("\n")[0]
        return f"{head}\n{text}"

    def mismatch(self, what: str, a: Any, b: Any) -> ClosenessError:
        """Return the error for arrays of different shapes or dtypes."""
        reason = f"{self.err_msg}\n({what} mismatch)"
        return ClosenessError(
            build_err_msg([a, b], reason, header=self.header, verbose=self.verbose)
        )


def fast_equal(actual: Any, desired: Any) -> bool:
    """Return True if two numbers or strings are equal; False if NumPy has to decide.

    Zeros have to be compared by NumPy, whose `assert_equal` compares their signs.
    """
    if not _SIMPLE_TYPES.issuperset((type(actual), type(desired))):
        return False
    signed = isinstance(actual, float) or isinstance(desired, float)
    return bool(actual == desired and (actual != 0 or not signed))


def fast_pass(
    actual: Any, desired: Any, rtol: float, atol: Any, equal_nan: bool = True, strict: bool = False
) -> bool:
    """Return True if small arrays or numbers are close; False if `assert_within` has to decide.

    Unlike in `allclose`, numbers have a dtype, and only numbers are broadcast.
    """
    if not IN_MEMORY_TYPES.issuperset((type(actual), type(desired))):
        return False
    a, b = np.asarray(actual), np.asarray(desired)
    if a.shape != b.shape and (strict or () not in (a.shape, b.shape)):
        return False
    if strict and a.dtype != b.dtype:
        return False
    verdict = fast_all_close(a, b, rtol, atol, equal_nan)
    if verdict is None and (pair := as_alike_arrays(a, b)) is not None:
        verdict = fast_all_close(*pair, rtol, atol, equal_nan)
    return bool(verdict)


def assert_within(
    actual: Any,
    desired: Any,
    rtol: float,
    atol: Any,
    by_numpy: Callable[[Any, Any], None],
    header: ErrorHeader,
    equal_nan: bool = True,
    strict: bool = False,
) -> None:
    """Raise ClosenessError if two arrays are not close; call NumPy for dtypes without kernels."""
    if _is_left_to_numpy(actual, desired) and not is_duration(atol):
        _run_numpy_on_any(by_numpy, actual, desired)
        return
    if _by_fields(actual, desired):
        comparison.assert_close(
            actual,
            desired,
            rtol=rtol,
            atol=atol,
            equal_nan=equal_nan,
            check_dtype=strict,
            msg=header.prepend_to,
        )
        return
    a, b = arrays = to_array(actual), to_array(desired)
    held = chunked_pair(MEMORY_LIMIT, actual=a, desired=b) is None
    if held and not on_device(actual=a, desired=b):
        try:
            pair = as_pair(a, b, _NAMES)
        except UnitError as error:
            raise ClosenessError(header.prepend_to(str(error))) from None
        compared_exactly = is_comparable(pair.a, pair.b) or is_duration(atol)
        if pair.dtypes is None and not compared_exactly:
            _run_numpy_on_any(by_numpy, pair.a, pair.b)
            return
        arrays = pair.a, pair.b  # a number of pint has neither shape nor dtype
        if pair.unit is None:
            a, b = arrays
    shapes, dtypes = [x.shape for x in arrays], [x.dtype for x in arrays]
    if shapes[0] != shapes[1] and (strict or () not in shapes):
        raise header.mismatch(f"shapes {shapes[0]}, {shapes[1]}", a, b)
    if strict and dtypes[0] != dtypes[1]:
        raise header.mismatch(f"dtypes {dtypes[0]}, {dtypes[1]}", a, b)
    comparison.assert_close(
        a,
        b,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_dtype=False,
        check_shape=False,
        msg=header.prepend_to,
    )


def _is_left_to_numpy(a: Any, b: Any) -> bool:
    """Return True if two arrays hold text, dates or durations, which have no kernels."""
    if not type(a) is type(b) is np.ndarray:
        return False
    objects = "OV"
    unlike = a.dtype.kind in objects or b.dtype.kind in objects
    return not unlike and working_dtypes(a.dtype, b.dtype) is None


def _by_fields(a: Any, b: Any) -> bool:
    """Return True for frames, columns and structured arrays, which NumPy rounds or refuses."""
    types = (np.ndarray, np.void, np.memmap)
    return all(is_frame(x) or is_column(x) or (type(x) in types and field_names(x)) for x in (a, b))


def _run_numpy_on_any(by_numpy: Callable[[Any, Any], None], a: Any, b: Any) -> None:
    """Run NumPy's assertion; add advice on tolerances to its TypeError for dates."""
    try:
        run_numpy_assertion(by_numpy, a, b)
    except TypeError as error:
        if "M" in np.asarray(a).dtype.kind + np.asarray(b).dtype.kind:
            advice = "pass rtol=0 and atol=numpy.timedelta64(...), or use assert_array_equal"
            error.add_note(f"actual or desired holds dates, which have no size: {advice}")
        raise


def run_numpy_assertion(assertion: Callable[..., None], *args: Any, **options: Any) -> None:
    """Run NumPy's assertion, and raise its AssertionError as a ClosenessError."""
    try:
        assertion(*args, **options)
    except AssertionError as error:
        raise ClosenessError(str(error)) from None


def spacing_message(x: Any, y: Any, nulp: float) -> str:
    """Return the message for arrays of longdouble, for which NumPy raises ValueError."""
    with np.errstate(all="ignore"):
        distance = np.abs(x - y) / np.spacing(np.maximum(np.abs(x), np.abs(y)))
    return f"Arrays are not equal to {nulp} ULP (max is {np.max(distance):g})"


def ulp_error(text: str, a: Any, b: Any, steps: Any, equal_nan: bool) -> ClosenessError:
    """Return the error for arrays that differ by too many ULP, with the report if that agrees."""
    a, b = np.asarray(a), np.asarray(b)
    # Of complex numbers NumPy measures the modulus, calipers the parts.
    if "c" in (a.dtype.kind, b.dtype.kind) or not (is_tolerance(steps) and steps < 2**63):
        return ClosenessError(text)
    common = np.common_type(a, b)
    report = comparison.compare(
        a.astype(common),
        b.astype(common),
        max_ulp=int(steps),
        equal_nan=equal_nan,
        check_shape=False,
    )
    return ClosenessError(text) if report else ClosenessError(f"{text}\n{report}", report)


def is_tolerance(x: Any) -> bool:
    """Return True if x is a finite number that is not negative."""
    is_number = isinstance(x, int | float | np.integer | np.floating) and not is_duration(x)
    return is_number and bool(0 <= x < math.inf)


def is_array(x: Any) -> bool:
    """Return True if x is an array of any library, and not a list or number."""
    recognised = isinstance(x, np.ndarray) or library_of(x) is not None or unit_of(x) is not None
    return recognised or is_frame(x) or is_column(x) or on_device(x=x)


def to_array(x: Any) -> Any:
    """Return an array of any library unchanged; convert other objects by NumPy, so with a dtype."""
    if (
        type(x) is np.ndarray
        or is_frame(x)
        or (hasattr(x, "dtype") and hasattr(x, "shape"))
        or overrides_numpy(x)
    ):
        return x
    array = np.asanyarray(x)
    # A NumPy scalar may be compared with an array on a device, an array of no axes may not.
    return array[()] if array.dtype.kind in "biufc" else array


def views(x: Any, y: Any) -> list[Any]:
    """Convert two arrays to NumPy arrays in one unit, as views where possible."""
    try:
        x, y, _ = in_memory(x, y, _NAMES)
    except UnitError as error:
        raise ClosenessError(str(error)) from None
    return [as_array(z) if library_of(z) is not None else z for z in (x, y)]
