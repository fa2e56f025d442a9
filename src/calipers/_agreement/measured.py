"""The numbers of a report: how far two sides are from the truth and from each other."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._protocols import NDArray
from .inquiry import Inquiry
from .sides import BudgetError
from .units import Size, rms_of


@dataclass(frozen=True)
class Measured:
    """What an inquiry has measured, for the report."""

    evidence: dict[str, Any]
    units: NDArray | None = None  # that the sides are apart, element by element
    reference: NDArray | None = None


def measured(q: Inquiry) -> Measured:
    """Return errors as numbers, as far as the calls that are left allow."""
    try:
        evidence: dict[str, Any] = {"apart": _numbers(q.eta_apart)}
        evidence["apart"]["absolute_largest"] = float(np.abs(q.apart).max(initial=0))
        with np.errstate(all="ignore"):
            units = np.where(q.apart == 0, 0.0, np.abs(q.apart) / q.scale)
        if q.standard is None:
            evidence["scale"] = rms_of(q.of_f.numbers(np.float64))
            return Measured(evidence, units)
        reference = q.standard[1].numbers(np.float64)
        evidence |= {
            "f": _numbers(q.eta_f),
            "g": _numbers(q.eta_g),
            "kappa": q.unit.kappa,
            "scale": rms_of(reference),
            "measured_from": q.standard[0].name,
        }
        if q.standard[0].name in q.sides:
            evidence["higher_precision"] = [*q.wide_answers]
        if q.wide is not None:
            evidence["wide"] = _numbers(q.wide.size)
            if q.eta_apart.absolute:
                evidence["drop"] = q.wide.size.absolute / q.eta_apart.absolute
        return Measured(evidence, units, reference)
    except BudgetError:
        return Measured({})


def _numbers(size: Size) -> dict[str, float | int]:
    """Return the norms of errors: infinite if an error is, which `Size` counts and leaves out."""
    names = ("rms", "largest", "normwise", "absolute")
    norms = {name: math.inf if size.broken else getattr(size, name) for name in names}
    return norms | {"broken": size.broken}
