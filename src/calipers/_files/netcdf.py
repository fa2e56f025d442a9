"""netCDF files: the CF conventions, and files of netCDF 3."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.protocols import NDArray
from . import FileError
from .contents import Contents, Derived, FileArray, Loaded, add_fields

# These say what numbers mean: where they differ, equal numbers are different quantities. "enum" is
# of a dtype of HDF5, "timezone" of a column of Parquet.
MEANING = (
    *("units", "calendar", "month_lengths", "leap_year", "leap_month", "positive"),
    *("flag_values", "flag_masks", "flag_meanings", "enum", "timezone"),
)
# These say how numbers are stored: values that are equal may be stored in different ways.
PACKING = ("scale_factor", "add_offset", "_Unsigned")
_MISSING = ("_FillValue", "missing_value", "valid_range", "valid_min", "valid_max")
# What the netCDF library writes where a variable without a _FillValue has no value; single bytes
# have no such number.
_FILLS = {
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
    "f4": 9.9692099683868690e36,
    "f8": 9.9692099683868690e36,
}


def add_variable(
    contents: Contents, name: str, entry: FileArray, attributes: Mapping[str, Any]
) -> None:
    """Add a variable with its unpacked values, and where it has none."""
    names = (*MEANING, *PACKING, *_MISSING)
    present = {key: attributes[key] for key in names if key in attributes}
    contents.attributes[name] = _as_text(present)
    if entry.dtype.kind not in "iuf" or not present.keys() & {*PACKING, *_MISSING}:
        add_fields(contents, name, entry)
        return
    try:
        packing = Packing.of(entry.dtype, present)
    except (TypeError, ValueError) as error:
        contents.left_out[name] = f"its attributes do not follow the netCDF conventions: {error}"
        return
    values = Derived(entry, packing.values, packing.dtype, entry.shape, typed=not packing.is_packed)
    nulls = Derived(entry, packing.nulls, np.dtype(bool), entry.shape)
    contents.add(name, values, nulls)


def _as_text(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes as texts that are equal if they mean the same."""
    texts = {}
    for name, x in attributes.items():
        value = x.decode("utf-8", "backslashreplace") if isinstance(x, bytes) else x
        numbers = np.ravel(value)
        texts[name] = " ".join(map(str, numbers.tolist())).strip()
    if " since " in texts.get("units", ""):
        calendar = texts.get("calendar", "standard").lower()
        texts["calendar"] = "standard" if calendar == "gregorian" else calendar
    return texts


@dataclass(frozen=True)
class Packing:
    """How the numbers that a variable stores give its values."""

    stored: np.dtype[Any]
    """The dtype of the stored numbers, unsigned if the attribute _Unsigned says so."""
    dtype: np.dtype[Any]
    """The dtype of the values."""
    scale: Any
    offset: Any
    fills: tuple[Any, ...]
    low: Any
    high: Any
    bounds_values: bool
    """Whether the valid range is that of the values, and not that of the stored numbers."""

    @classmethod
    def of(cls, dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> "Packing":
        """Return the packing that attributes describe."""
        stored = native = dtype.newbyteorder("=")
        unsigned = _as_text(attributes).get("_Unsigned", "").lower()
        if stored.kind in "iu" and unsigned in ("true", "false"):
            stored = np.dtype(f"{'u' if unsigned == 'true' else 'i'}{stored.itemsize}")
        numbers = {
            name: _numbers(name, attributes[name], stored)
            for name in ("scale_factor", "add_offset", *_MISSING)
            if name in attributes
        }
        scale, offset, low, high = (
            _one(name, numbers) for name in ("scale_factor", "add_offset", "valid_min", "valid_max")
        )
        if "valid_range" in numbers:
            low, high = _counted("valid_range", numbers, 2)
        factors = [x.dtype for x in (scale, offset) if x is not None]
        # That of the factors; of integers that a float32 does not hold, float64.
        kind = np.result_type(stored, *factors)
        if factors and kind.kind != "f":
            kind = np.dtype(np.int64)
        bounds = [x.dtype.kind for x in (low, high) if x is not None]
        fills = [x for name in _MISSING[:2] for x in numbers.get(name, ())]
        if "_FillValue" not in numbers and native.str[1:] in _FILLS:
            fills.append(np.array(_FILLS[native.str[1:]], native).view(stored)[()])
        return cls(
            stored,
            kind,
            scale,
            offset,
            # Python's numbers are compared exactly, and as a float32 with those of float32.
            tuple(map(_plain, fills)),
            _plain(low),
            _plain(high),
            bool(factors) and stored.kind != "f" and "f" in bounds,
        )

    @property
    def is_packed(self) -> bool:
        """Whether the values differ from the stored numbers."""
        return self.scale is not None or self.offset is not None

    def nulls(self, x: Any) -> NDArray:
        """Return where there is no value."""
        stored = self._stored(x)
        missing = np.zeros(stored.shape, bool)
        for fill in self.fills:
            missing |= np.isnan(stored) if fill != fill else stored == fill
        bounded = self._unpack(stored) if self.bounds_values else stored
        if self.low is not None:
            missing |= bounded < self.low
        if self.high is not None:
            missing |= bounded > self.high
        return missing

    def values(self, x: Any) -> NDArray:
        """Return the values, and 0 where there is none."""
        return np.where(self.nulls(x), self.dtype.type(0), self._unpack(self._stored(x)))

    def _stored(self, x: Any) -> NDArray:
        array = np.asarray(x)
        return array.astype(array.dtype.newbyteorder("="), copy=False).view(self.stored)

    def _unpack(self, stored: NDArray) -> NDArray:
        values = stored.astype(self.dtype)
        if self.scale is not None:
            values = values * self.dtype.type(self.scale)
        if self.offset is not None:
            values = values + self.dtype.type(self.offset)
        return values


def _numbers(name: str, x: Any, stored: np.dtype[Any]) -> NDArray:
    numbers = np.ravel(x)
    if numbers.dtype.kind not in "iuf" or not numbers.size:
        msg = f"{name} is {_as_text({name: x})[name]!r:.40}, which is not a number"
        raise TypeError(msg)
    numbers = numbers.astype(numbers.dtype.newbyteorder("="))
    # netCDF-3 has no unsigned integers: those of attributes are signed, too.
    reinterpreted = name in _MISSING and {numbers.dtype.kind, stored.kind} == {"i", "u"}
    if reinterpreted and numbers.dtype.itemsize == stored.itemsize:
        numbers = numbers.view(stored)
    return numbers


def _one(name: str, numbers: Mapping[str, NDArray]) -> Any:
    return _counted(name, numbers, 1)[0] if name in numbers else None


def _counted(name: str, numbers: Mapping[str, NDArray], count: int) -> NDArray:
    if numbers[name].size != count:
        msg = f"{name} has {numbers[name].size} numbers; expected {count}"
        raise ValueError(msg)
    return numbers[name]


def _plain(x: Any) -> Any:
    return x.item() if isinstance(x, np.generic) else x


_MAGIC = b"CDF"
# The number of the format follows; of 64-bit data, which SciPy does not know.
_CDF5 = b"CDF\5"


def is_classic(path: str) -> bool:
    """Return True if a netCDF file has the classic format, which is not HDF5."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a file of variables, which are mapped."""
    from scipy.io import netcdf_file

    with open(path, "rb") as start:
        if start.read(len(_CDF5)) == _CDF5:
            msg = "its format is CDF-5, which SciPy cannot read: convert it by nccopy -k nc4"
            raise FileError(msg)
    try:
        file = netcdf_file(path, "r", mmap=True)
    except Exception as error:  # its parser raises anything
        msg = f"SciPy cannot read it: {error}"
        raise FileError(msg) from None
    with file:
        result = _variables(file)
        yield result
        # A file can be closed only when nothing refers to its map.
        result.arrays.clear()
        result.nulls.clear()


def _variables(file: Any) -> Contents:
    result = Contents()
    for name, variable in file.variables.items():
        add_variable(result, name, Loaded(np.asarray(variable.data)), variable._attributes)
    return result
