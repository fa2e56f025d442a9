"""What `differentiate` and `hessian` return."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._notebook import Shown
from .._protocols import NDArray


@dataclass(frozen=True, repr=False, eq=False)
class Derivative(Shown):
    """
    A derivative, and what is known of it.

    Attributes
    ----------
    value : ndarray or csc_array
        Of shape ``f(x).shape + x.shape``; for a complex function that is not holomorphic, the pair
        of derivatives by z and by its conjugate.
    error : like value
        An estimate, for each entry, of how far `value` is from the derivative. It is inf where
        that is not known: always with a fixed step, which estimates nothing.
    step : ndarray
        The step along each element of x, 0 where none was made; the adaptive method's is the one
        that it began with, or began anew with at a smaller scale.
    status : ndarray of str
        What became of each element of x: CONVERGED; FIXED (a fixed step: nothing is known of the
        error); NOISY (f has far more noise than rounding, the error says how much it matters);
        NONSMOOTH (the derivatives from both sides differ, or are infinite); ALIASED (f varies on
        a shorter length than any step that was tried); NONFINITE (f is not finite around x);
        BOUNDED (the bounds leave no room); EXCLUDED (its step is 0).
    nfev : int
        How often f was called; a call with a batch counts each of its rows.
    colors : int or None
        How many groups of columns were evaluated together, if the derivative is sparse.
    seconds : float
        How long it took, without compiling calipers' kernels.

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
        """Return `value`, so that a Derivative goes where an array goes; not if it is no array."""
        if self.colors is not None:
            raise TypeError("the derivative is sparse: take .value, or .value.toarray()")
        if isinstance(self.value, tuple):
            raise TypeError(
                "the derivative is a pair: take .value[0], that by z, or .value[1], that by its "
                "conjugate"
            )
        return np.array(self.value, dtype=dtype, copy=copy)

    def __str__(self) -> str:
        """Summarise in a few lines."""
        names, counts = np.unique(self.status, return_counts=True)
        columns = ", ".join(f"{count} {name}" for name, count in zip(names, counts, strict=True))
        value = self.value[0] if isinstance(self.value, tuple) else self.value
        lines = [f"Derivative of shape {value.shape}: {columns or 'no columns'}"]
        error = self.error[0] if isinstance(self.error, tuple) else self.error
        errors = np.asarray(error if self.colors is None else error.data)
        known = errors[np.isfinite(errors)]
        if known.size:
            lines.append(f"error: at most {known.max():.2g}, median {np.median(known):.2g}")
        if known.size < errors.size:
            lines.append(f"error unknown: {errors.size - known.size} of {errors.size} entries")
        groups = "" if self.colors is None else f" in {self.colors} color{'s' * (self.colors != 1)}"
        calls = "1 call" if self.nfev == 1 else f"{self.nfev} calls"
        lines.append(f"{calls} of f{groups}, {self.seconds:.3g} s")
        return "\n".join(lines)
