"""Condition numbers of functions and matrices: condition."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arrays import as_dense_array
from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .._core.report import Report
from .._diagnose.arrays import infer_precision
from .trials import ProbedFunction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Values within this many unit roundoffs of the largest one count as equal.
_NEAR_ROUNDOFFS = 100


@dataclass(frozen=True, repr=False)
class Condition(Report):
    """
    The condition number of a function or a matrix; it is returned by `condition`.

    Attributes
    ----------
    kappa : float
        The relative error of the result divided by that of the inputs. For a matrix, the ratio of
        its largest and smallest singular values.
    digits : float
        The number of decimal digits that remain, ``-log10(kappa*u)``, at least 0.
    format : str
        The working precision.
    singular_gap : float or None
        For a matrix, the smallest distance between two singular values, divided by the largest
        singular value. If it is near u, singular vectors are arbitrary and their gradients
        infinite.
    eigen_gap : float or None
        For a Hermitian matrix, the same for its eigenvalues.
    singular_values : tuple of float
        For a matrix, its singular values, the largest first.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> probes.condition(np.diag([4.0, 2.0, 1.0])).kappa
    4.0
    """

    kappa: float
    digits: float
    format: str
    singular_gap: float | None = None
    eigen_gap: float | None = None
    singular_values: tuple[float, ...] = ()

    def __str__(self) -> str:
        """Return a line for the condition number, and one for each gap."""
        text_rows = [
            f"condition number {self.kappa:.3g}: {self.digits:.1f} digits of {self.format} remain"
        ]
        for kind, gap in (("singular ", self.singular_gap), ("eigen", self.eigen_gap)):
            if gap is not None:
                lost = gap < _NEAR_ROUNDOFFS * ROUNDOFF[self.format]
                text = f": their {kind}vectors are arbitrary" if lost else ""
                text_rows.append(f"  smallest gap of {kind}values: {gap:.3g} x the largest{text}")
        return "\n".join(text_rows)

    def plot(self) -> "Figure":
        """
        Plot the singular values of a matrix, with the effect of rounding on them.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ValueError
            If it is the condition number of a function.
        """
        from .plots import condition_figure

        return condition_figure(self.singular_values, self.format, str(self).partition("\n")[0])


def function_condition(f: Callable[..., Any], inputs: Any) -> Condition:
    """Measure the condition number of f by 1-ulp perturbations of the inputs."""
    probed = ProbedFunction(f, inputs)
    evidence, results = probed.evidence, probed.result.numbers(np.float64)
    if results.size and not evidence.can_perturb:
        msg = "inputs must contain floating-point numbers other than 0, which can be perturbed"
        raise ValueError(msg)
    if results.size and not np.isfinite(results).any():
        msg = "f must return a finite number: infinities and NaN have no condition number"
        raise ValueError(msg)
    kappa = evidence.condition
    return Condition(kappa, _digits(kappa, evidence.roundoff), evidence.form)


def matrix_condition(matrix: Any) -> Condition:
    """Compute the condition number of a matrix from its singular values."""
    a = as_dense_array(matrix, "matrix")
    if a.ndim != 2 or not a.size:
        msg = f"a matrix must have 2 axes and elements, got shape {a.shape}; or pass f and inputs"
        raise ValueError(msg)
    if a.dtype.kind not in "biufc" and a.dtype.name != "bfloat16":
        msg = f"a matrix must hold numbers, got dtype {a.dtype}"
        raise TypeError(msg)
    bad = next(map(tuple, np.argwhere(~np.isfinite(a)).tolist()), None)
    if bad is not None:
        msg = f"a matrix must be finite, got {a[bad]} at {bad}"
        raise ValueError(msg)
    form = infer_precision((a,), None)
    wide = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    values = np.linalg.svd(wide, compute_uv=False)
    kappa = float(values[0] / values[-1]) if values[-1] else math.inf
    hermitian = a.shape[0] == a.shape[1] and bool((wide == wide.conj().T).all())
    return Condition(
        kappa,
        _digits(kappa, ROUNDOFF[form]),
        form,
        _gap(values),
        _gap(np.linalg.eigvalsh(wide)) if hermitian else None,
        tuple(values.tolist()),
    )


def _digits(kappa: float, roundoff: float) -> float:
    return max(0.0, -math.log10(max(kappa, 1.0) * roundoff)) if kappa < math.inf else 0.0


def _gap(values: NDArray) -> float | None:
    """Return the smallest distance of two values, relative to the largest magnitude."""
    largest = float(np.abs(values).max())
    if values.size < 2:
        return None
    return float(np.abs(np.diff(np.sort(values))).min()) / largest if largest else 0.0
