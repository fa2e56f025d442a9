"""Arrays with a unit, of astropy, unyt and pint: their numbers, in one unit."""

import sys
from typing import Any, NamedTuple

import numpy as np


class UnitError(TypeError):
    """Two arrays have units that do not convert to each other."""


class _Library(NamedTuple):
    module: str
    quantity: str  # the class of its arrays
    unit: str  # their attribute
    to_value: str  # their method that returns the numbers in a unit
    assumes_unit: bool = False  # whether it takes a plain number to have the other array's unit


_LIBRARIES = (
    _Library("astropy.units", "Quantity", "unit", "to_value"),
    _Library("unyt", "unyt_array", "units", "to_value", assumes_unit=True),
    _Library("pint", "Quantity", "units", "m_as"),
)


class Unit(NamedTuple):
    """A unit, and the library that defines it."""

    library: _Library
    unit: Any

    def __str__(self) -> str:
        """Write the unit; a dimensionless one is empty, where the library writes it so."""
        text = str(self.unit)
        return "" if text == "dimensionless" else text

    def numbers_of(self, x: Any) -> Any:
        """Return the numbers of a quantity in this unit."""
        return _numbers_of(x, self.unit)


def unit_of(x: Any) -> Unit | None:
    """Return the unit of an array, or None if it has none, as an array of NumPy."""
    for library in _LIBRARIES:
        module = sys.modules.get(library.module)
        if module is not None and isinstance(x, getattr(module, library.quantity, ())):
            return Unit(library, getattr(x, library.unit))
    return None


def _numbers_of(quantity: Any, unit: Any) -> Any:
    current = unit_of(quantity)
    assert current is not None
    numbers = getattr(quantity, current.library.to_value)(unit)
    return np.asanyarray(numbers) if hasattr(quantity, "dtype") else numbers


def numbers_of(quantity: Any) -> Any:
    """Return the numbers of a quantity in its unit."""
    current = unit_of(quantity)
    return quantity if current is None else current.numbers_of(quantity)


def in_one_unit(
    a: Any, b: Any, names: tuple[str, str], strict: bool = False
) -> tuple[Any, Any, Unit | None]:
    """
    Return the numbers of two arrays in the unit of the first, or of the one that has a unit.

    An array without a unit is dimensionless, but for 0, infinities and NaN, which are the same in
    every unit, and where the library takes it to have the other array's unit (unless `strict`).
    A UnitError is raised if the units do not convert to each other.
    """
    units = unit_of(a), unit_of(b)
    unit = units[0] or units[1]
    if unit is None:
        return a, b, None
    if units[0] is None or units[1] is None:
        plain, quantity = (a, b) if units[0] is None else (b, a)
        if (unit.library.assumes_unit and not strict) or _is_unitless(plain):
            numbers, quantity = plain, unit.numbers_of(quantity)
        else:
            numbers, quantity = plain, _converted(quantity, "", units, names)
            unit = unit._replace(unit="")
        return (numbers, quantity, unit) if units[0] is None else (quantity, numbers, unit)
    x, y = unit.numbers_of(a), _converted(b, unit.unit, units, names)
    kinds = getattr(a, "dtype", None), getattr(b, "dtype", None)
    if None not in kinds and kinds[0] == kinds[1] != y.dtype:  # integers, in another unit
        x = x.astype(y.dtype)
    return x, y, unit


def _is_unitless(x: Any) -> bool:
    """Return True if all numbers are 0, infinite or NaN."""
    try:
        x = np.asanyarray(x)
        return bool(np.all((x == 0) | ~np.isfinite(x)))
    except (TypeError, ValueError):
        return False


def _converted(
    quantity: Any, unit: Any, units: tuple[Unit | None, Unit | None], names: tuple[str, str]
) -> Any:
    try:
        return _numbers_of(quantity, unit)
    except Exception as error:  # each library has an error for this
        first, other = (f"unit {unit}" if unit and str(unit) else "no unit" for unit in units)
        msg = f"units differ: {names[0]} has {first}, {names[1]} has {other}"
        raise UnitError(msg) from error


def unit_of_chunks(a: Any, b: Any) -> Unit | None:
    """Return the unit that the chunks of two arrays are compared in, as `in_one_unit` does."""
    units = [unit_of(getattr(x, "_meta", x)) for x in (a, b)]  # of dask, an empty array like them
    unit = units[0] or units[1]
    plain = unit is not None and None in units and not unit.library.assumes_unit
    return unit._replace(unit="") if unit is not None and plain else unit


def tolerance_in(value: Any, unit: Unit | None, name: str) -> Any:
    """Convert a tolerance to numbers in a unit; tolerances without a unit are unchanged."""
    current = unit_of(value)
    if current is None:
        return value
    try:
        return _numbers_of(value, "" if unit is None else unit.unit)
    except Exception as error:
        needed = f"the unit {unit}" if unit is not None and str(unit) else "no unit"
        msg = f"{name} must have {needed} here, got {value}"
        raise TypeError(msg) from error
