"""Copies of arguments: of arrays, alone or in lists, tuples and dicts."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._arrays import as_array
from .._libraries import library_of
from .._protocols import NDArray


def _each(of: Callable[[Any], Any], value: Any) -> Any:
    """Return what a function makes of a value, or of all that lists, tuples and dicts hold."""
    if type(value) in (list, tuple):
        return type(value)(_each(of, item) for item in value)
    if type(value) is dict:
        return {key: _each(of, item) for key, item in value.items()}
    return of(value)


def private(value: Any) -> Any:
    """Copy arrays, in lists, tuples and dicts too; all else is handed on."""
    return _each(lambda x: x.copy(order="K") if isinstance(x, np.ndarray) else x, value)


def noncontiguous(x: NDArray) -> NDArray:
    """Return the same numbers in Fortran order, with a gap after each in memory."""
    view: NDArray = np.stack((x.T, x.T), axis=-1)[..., 0].T
    return view


def _as_numpy(value: Any) -> Any:
    """Copy a library's array to one of NumPy's, if that has one like it."""
    if library_of(value) is None:
        return value
    try:
        return np.array(as_array(value))
    except TypeError:
        return value


def of_numpy(value: Any) -> Any:
    """Return a value with copies by NumPy in the place of libraries' arrays that it has one of."""
    return _each(_as_numpy, value)


def same(new: Any, old: Any) -> bool:
    """Whether arrays that were copied are bitwise the same."""
    if isinstance(old, np.ndarray):
        return np.asarray(new).tobytes() == old.tobytes()
    if type(old) in (list, tuple):
        return len(new) == len(old) and all(map(same, new, old))
    if type(old) is dict:
        return new.keys() == old.keys() and all(same(new[key], old[key]) for key in old)
    return True
