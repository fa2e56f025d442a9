"""What a derivative is off by, as its answers at points beside x tell."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .._protocols import NDArray
from .derivative import GivenDerivative
from .unit_vectors import unit_vector

_BESIDE = 8  # points, of which few give by chance what x gives
_CHANGES = 16.0  # of an answer between them, that rounding of x explains
_SHARE = 0.05  # of x, by which what is smooth changes by far less than itself
_OTHERS = 4.0  # times that what is all rounding changes


def moved(
    d: GivenDerivative, ask: Callable[[GivenDerivative], Any], random: np.random.Generator
) -> Any:
    """Return what an answer of d may be off by as x, and what is computed of x, is rounded."""
    return _CHANGES * _change(d, ask, random, None)


def scattered(
    d: GivenDerivative, ask: Callable[[GivenDerivative], Any], random: np.random.Generator
) -> Any:
    """
    Return what an answer of d may be if it is nothing but rounding.

    That is another number at every point, even where it is the same for all roundings of x: as of
    ``1 - exp(2j*pi*n)``, at 0 by the nearest number to ``2*pi*n``.
    """
    try:
        return _OTHERS * _change(d, ask, random, _SHARE)
    except Exception:  # d is not defined everywhere
        return np.zeros(())


def _change(
    d: GivenDerivative,
    ask: Callable[[GivenDerivative], Any],
    random: np.random.Generator,
    share: float | None,
) -> Any:
    here, most = np.array(ask(d)), np.zeros(())
    for _ in range(_BESIDE):
        other = replace(d, subject=d.subject.beside(random, share), known=None)
        with np.errstate(invalid="ignore", over="ignore"):
            apart = np.abs(ask(other) - here)
            most = np.maximum(most, np.where(np.isfinite(apart), apart, 0.0))
        d.calls = other.calls
    return most


def entries_of(d: GivenDerivative, rows: NDArray, columns: NDArray) -> NDArray:
    """Return some entries of a derivative."""
    if d.form == "jac":
        return np.asarray(d.matrix()[rows, columns]).ravel()
    lines, within, count = rows, columns, d.subject.rows
    if d.form == "jvp":
        lines, within, count = columns, rows, d.subject.columns
    found = np.empty(len(rows))
    for line in np.unique(lines):
        own = lines == line
        found[own] = d.product(unit_vector(count, line))[within[own]]
    return found
