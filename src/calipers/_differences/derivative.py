"""The result of `differentiate` and `hessian`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._protocols import NDArray
from .._report.base import Printable
from .._report.layout import index_text, labelled


@dataclass(frozen=True, repr=False, eq=False)
class Derivative(Printable):
    """
    A derivative with an error estimate for each entry.

    It is returned by `differentiate` and `hessian`, and converts to the array ``.value``.

    Attributes
    ----------
    value : ndarray or csc_array
        The derivative, of shape ``f(x).shape + x.shape``. For complex functions that are not
        holomorphic, a pair of derivatives with respect to z and its conjugate.
    error : ndarray or csc_array
        The estimated absolute error of each entry, of the form of `value`. It is inf where it is
        unknown, as always for fixed steps.
    step : ndarray
        The step for each element of x, 0 if there was none. For the adaptive method it is the first
        step, at the scale that was used.
    status : ndarray of str
        The status of each element of x, of the shape of x:

        - CONVERGED: the extrapolation converged; `error` estimates the remaining error;
        - FIXED: a fixed step was used, so that the error is unknown;
        - NOISY: f has more noise than rounding; `error` includes its effect;
        - NONSMOOTH: the derivatives from both sides differ, or are infinite;
        - ALIASED: f varies on a shorter length than any step;
        - NONFINITE: f is infinite or NaN near x;
        - BOUNDED: the bounds leave no room for a step;
        - EXCLUDED: the step is 0.
    nfev : int
        The number of evaluations of f. A call with a batch counts each of its rows.
    colors : int or None
        The number of groups of columns that were evaluated together; None for dense derivatives.
    seconds : float
        The elapsed time in seconds, without the compilation of calipers' kernels.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> d = calipers.differentiate(np.sin, np.array([0.5, 1e-9]))
    >>> d.status.tolist()
    ['CONVERGED', 'CONVERGED']
    >>> bool(np.all(np.abs(np.diag(d.value) - np.cos([0.5, 1e-9])) <= np.diag(d.error)))
    True
    """

    value: Any
    error: Any
    step: NDArray
    status: NDArray
    nfev: int
    colors: int | None
    seconds: float

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        """Return `value` as an array; raise a TypeError if it is sparse or a pair."""
        if self.colors is not None:
            raise TypeError("the derivative is sparse: use .value or .value.toarray()")
        if isinstance(self.value, tuple):
            raise TypeError(
                "the derivative is a pair: use .value[0], with respect to z, or "
                ".value[1], with respect to its conjugate"
            )
        return np.array(self.value, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        """Return a summary: status counts and positions, the largest error, the calls of f."""
        value = self.value[0] if isinstance(self.value, tuple) else self.value
        error = self.error[0] if isinstance(self.error, tuple) else self.error
        names, counts = np.unique(self.status, return_counts=True)
        columns = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))
        lines = [f"Derivative of shape {value.shape}: {columns or 'no columns'}"]
        lines += [
            labelled(name, _positions(np.argwhere(self.status == name)))
            for name in names
            if name not in _USUAL
        ]
        errors = np.asarray(error if self.colors is None else error.data)
        known = errors[np.isfinite(errors)]
        if known.size:
            index = _largest(error, sparse=self.colors is not None)
            where = f" ({_position('value', index)})" if index else ""
            median = np.median(known)
            text = f"at most {known.max():.2g}{where}, median {median:.2g}"
            lines.append(labelled("error", text))
        if known.size < errors.size:
            text = f"error of {errors.size - known.size} of {errors.size} entries"
            lines.append(labelled("unknown", text))
        groups = "" if self.colors is None else f" in {self.colors} color{'s' * (self.colors != 1)}"
        lines.append(labelled("calls", f"f {self.nfev}{groups}, {self.seconds:.3g} s"))
        return "\n".join(lines)


_USUAL = frozenset({"CONVERGED", "FIXED", "EXCLUDED"})  # as the caller asked for
_SHOWN = 3  # positions


def _position(name: str, index: Any) -> str:
    return f"{name}{index_text(index)}" if len(index) else name


def _positions(indices: NDArray) -> str:
    """Name the first of some elements of x."""
    shown = ", ".join(_position("x", index) for index in indices[:_SHOWN])
    rest = len(indices) - _SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def _largest(error: Any, *, sparse: bool) -> tuple[int, ...]:
    """Return the position of the largest error that is known."""
    data = np.asarray(error.data if sparse else error)
    flat = int(np.argmax(np.where(np.isfinite(data), data, -1.0)))
    if not sparse:
        return tuple(map(int, np.unravel_index(flat, data.shape)))
    column = int(np.searchsorted(error.indptr, flat, side="right")) - 1
    return int(error.indices[flat]), column
