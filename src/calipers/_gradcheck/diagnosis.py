"""What a wrong derivative looks like: a factor, a sign, a transpose, something left out."""

import numpy as np

from .._protocols import NDArray
from .subject import Part

_CLOSE = 1e-3
_NAMED = {2.0: "twice too large", 0.5: "half of what it should be", -1.0: "of the opposite sign"}


def column_text(own: NDArray, right: NDArray) -> str | None:
    """Say how a whole column is wrong."""
    text = _factor(own, right)
    return None if text is None else f"the whole column is {text}"


def block_text(own: NDArray, right: NDArray, out: Part, part: Part) -> str | None:
    """Say how a block is wrong, from both forms of it, transposed: a row for each input number."""
    text = _factor(own, right)
    if text is not None:
        return f"the whole block is {text}"
    complex_out, complex_in = (p.example.dtype.kind == "c" for p in (out, part))
    by_out = _conjugated(right) if complex_out else right
    by_both = _conjugated(by_out.T).T if complex_in else by_out
    if complex_out and complex_in and _alike(own, by_both):
        return "it is right for the other convention= of complex gradients, without conjugates"
    if complex_out and _alike(own, by_out):
        return "it is the conjugate of the right one"
    if complex_in and _alike(own, _conjugated(right.T).T):
        return "it is the conjugate of the right one, or meant for the other convention="
    if own.shape[0] == own.shape[1] and _alike(own, right.T):
        return "it is the transpose of the right one"
    return None


def _factor(own: NDArray, right: NDArray) -> str | None:
    if own.size < 2 and not right.any():
        return None
    if not own.any():
        return "zero" if right.any() else None
    if not (np.isfinite(own).all() and np.isfinite(right).all()) or not right.any():
        return None
    factor = float(np.vdot(right, own) / np.vdot(right, right))
    if abs(factor - 1) < _CLOSE**2 or not _alike(own, factor * right):
        return None
    for value, text in _NAMED.items():
        if abs(factor - value) <= _CLOSE * abs(value):
            return text
    # Any one entry is some multiple of what it should be.
    return f"{factor:.4g} times what it should be" if np.count_nonzero(right) > 1 else None


def _alike(own: NDArray, other: NDArray) -> bool:
    size = np.abs(other).max(initial=0.0)
    return bool(size > 0 and np.all(np.abs(own - other) <= _CLOSE * size))


def _conjugated(rows: NDArray) -> NDArray:
    """Negate what belongs to imaginary parts along the last axis."""
    changed = rows.copy()
    changed[:, 1::2] *= -1
    return changed
