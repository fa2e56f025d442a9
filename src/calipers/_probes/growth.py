"""Growth of errors with the size of a problem: growth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arguments import require_callable
from .._core.containers import as_tuple
from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .._core.report import Report, name_in_code, wrapped_code
from .._core.types import PyTree
from .._diagnose.arrays import (
    NestedInputs,
    Result,
    as_inputs,
    comparable,
    describe_mismatch,
    infer_precision,
    infer_result_precision,
    is_perturbable,
    is_wide,
    to_higher_precision,
)
from .._diagnose.noise_level import difference, finite_rms
from .._diagnose.report import names_in_code
from .trials import unlimited_implementation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Growth", "growth"]

_MAX_ROWS = 16  # rows of the table, for the largest sizes
_HEADS = ("|f - g|", "f", "g", "sqrt n", "bound")
_CURVES = {"apart": "|f - g|", "error_f": "error of f", "error_g": "error of g"}


@dataclass(frozen=True, repr=False)
class Growth(Report):
    """
    Differences and errors of two implementations by the size of a problem.

    It is returned by `growth`. ``print(growth)`` shows a table. All errors but `totals` are root
    mean squares per element, in units of u times the root mean square of g's results, where u is
    the unit roundoff.

    Attributes
    ----------
    sizes : tuple of int
        The sizes, n.
    format : str
        The working precision.
    apart : tuple of float
        The difference of f and g.
    error_f, error_g : tuple of float
        The error of each function, relative to its result in the next higher precision; NaN if it
        cannot be called with that.
    totals : tuple of float
        The sum of ``|f - g|`` over all elements.
    slopes : dict of str to float
        The exponent p of a fit ``n**p`` for each of "apart", "error_f", "error_g" and "totals"; NaN
        with fewer than two nonzero values.
    names : tuple of str
        Names of f, g and make_inputs as code.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> def inputs(n):
    ...     return random.standard_normal((100, n), dtype=np.float32)
    >>> def running(x):
    ...     return x.cumsum(axis=1)[:, -1]
    >>> found = calipers.growth(running, lambda x: x.sum(1), inputs, [64, 1024])
    >>> found.sizes, found.format
    ((64, 1024), 'float32')
    >>> found.error_f[1] > found.error_f[0]
    True
    """

    sizes: tuple[int, ...]
    format: str
    apart: tuple[float, ...]
    error_f: tuple[float, ...]
    error_g: tuple[float, ...]
    totals: tuple[float, ...]
    slopes: dict[str, float] = field(hash=False)
    names: tuple[str, str, str] = ("f", "g", "make_inputs")

    @property
    def slope(self) -> float:
        """The exponent of the growth of the difference: 0.5 for rounding of sums, 1 for a bias."""
        return self.slopes["apart"]

    @property
    def bounds(self) -> tuple[float, ...]:
        """
        The error bound ``gamma_n = n u / (1 - n u)`` of sums of n terms, in units of u.

        The error of a sum never exceeds this times the sum of the magnitudes of its terms.
        """
        u = ROUNDOFF[self.format]
        return tuple(n / (1 - n * u) if n * u < 1 else math.inf for n in self.sizes)

    def __str__(self) -> str:
        """Return a table."""
        text_rows = [
            f"RMSE per element, in rounding errors of {self.format} results (u x their RMS)",
            f"  {'n':>8}" + "".join(f"{name:>10}" for name in _HEADS) + f"{'sum |f-g|':>12}",
        ]
        rows = range(len(self.sizes))
        # Only the largest sizes are shown.
        for k in rows[-_MAX_ROWS:]:
            n = self.sizes[k]
            cells = (self.apart[k], self.error_f[k], self.error_g[k], math.sqrt(n), self.bounds[k])
            text = "".join(f"{_text(x):>10}" for x in cells)
            text_rows.append(f"  {n:>8}{text}{_text(self.totals[k]):>12}")
        slopes = "".join(f"{_text(self.slopes[name]):>10}" for name in _CURVES)
        text_rows.append(
            f"  {'slope':>8}{slopes}{'0.5':>10}{'1':>10}{_text(self.slopes['totals']):>12}"
        )
        if len(rows) > _MAX_ROWS:
            text_rows.append(f"  {len(rows) - _MAX_ROWS} smaller sizes are not shown: see .sizes")
        text_rows += wrapped_code(
            "again", f"calipers.growth({', '.join(self.names)}, {[*self.sizes]})"
        )
        return "\n".join(text_rows)

    def _contents(self) -> dict[str, Any]:
        return super()._contents() | {"bounds": self.bounds}

    def plot(self) -> Figure:
        """
        Plot the errors by size on logarithmic axes, with sqrt(n) and the bound for comparison.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from .plots import growth_figure

        curves = [
            (label, self.slopes[name], getattr(self, name)) for name, label in _CURVES.items()
        ]
        return growth_figure(self.sizes, curves, self.bounds, self.format)


def growth(
    f: Callable[..., Any],
    g: Callable[..., Any],
    make_inputs: Callable[[int], PyTree],
    sizes: Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]],
) -> Growth:
    """
    Measure how the difference and the errors of two implementations grow with the problem size.

    The error of a sequential sum of n random terms grows as sqrt(n), that of a pairwise or blocked
    sum hardly grows, and one with a bias grows as n. No error exceeds gamma_n times the sum of the
    magnitudes of the terms [1]_.

    Parameters
    ----------
    f, g : callable
        Functions of the same inputs.
    make_inputs : callable
        ``make_inputs(n)`` returns the inputs of size n: an array or a tuple of arrays.
    sizes : sequence of int
        The sizes, all positive; at least two for a slope.

    Returns
    -------
    Growth
        Differences and errors per element for each size, and the exponents of their growth.

    Raises
    ------
    TypeError
        If `sizes` is not a sequence, or a function is not callable.
    ValueError
        If there are no sizes, one is not positive, the shapes of f's and g's results differ, only
        one of them is complex, or the inputs have a different dtype for different sizes.
    Exception
        Whatever f or g raises in the working precision.

    See Also
    --------
    diagnose : Classify the difference at one size.

    Notes
    -----
    For each size, f and g are each called once in the working precision and once in the next higher
    one.

    References
    ----------
    .. [1] N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SIAM
       Journal on Scientific Computing 41 (2019) A2815-A2835.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> def running(x):
    ...     return np.cumsum(x, axis=1)[:, -1]
    >>> random = np.random.default_rng(0)
    >>> def inputs(n):
    ...     return random.standard_normal((200, n), dtype=np.float32)
    >>> found = calipers.growth(running, lambda x: x.sum(1), inputs, [64, 256, 1024, 4096])
    >>> bool(0.4 < found.slopes["error_f"] < 0.6), bool(found.slopes["error_g"] < 0.4)
    (True, True)
    """
    if np.ndim(sizes) == 0:
        msg = f"sizes must be a sequence of positive integers, got {sizes!r}"
        raise TypeError(msg)
    for n in sizes:
        if not isinstance(n, int | np.integer) or n < 1:
            msg = f"sizes must be positive integers, got {n!r}"
            raise ValueError(msg)
    require_callable(make_inputs=make_inputs)
    if not len(sizes):
        msg = "sizes is empty; pass at least two, for a slope"
        raise ValueError(msg)
    forms, rows = [], []
    for n in sizes:
        form, row = _measured(f, g, make_inputs(int(n)), int(n))
        forms.append(form)
        rows.append(row)
    if len(set(forms)) > 1:
        msg = f"make_inputs must return one dtype for all sizes, got {', '.join(sorted({*forms}))}"
        raise ValueError(msg)
    columns = dict(zip((*_CURVES, "totals"), zip(*rows, strict=True), strict=True))
    return Growth(
        tuple(map(int, sizes)),
        forms[0],
        **columns,
        slopes={name: _slope(sizes, column) for name, column in columns.items()},
        names=(*names_in_code(f, g), name_in_code(make_inputs, "make_inputs", ("f", "g"))),
    )


def _measured(
    f: Callable[..., Any], g: Callable[..., Any], inputs: Any, n: int
) -> tuple[str, tuple[float, ...]]:
    """Return the working precision, the RMS difference, both errors, and the sum of |f - g|."""
    nest = NestedInputs(as_tuple(inputs))
    arrays = as_inputs(nest.leaves, nest.names)
    require_callable(f=f, g=g)
    implementations = (
        unlimited_implementation("f", nest.accepting_leaves(f), nest.leaves),
        unlimited_implementation("g", nest.accepting_leaves(g), nest.leaves),
    )
    answers = [implementation(arrays) for implementation in implementations]
    for result in answers:
        if result.error is not None:
            raise result.error
    mismatch = describe_mismatch(*answers)
    if mismatch is not None:
        raise ValueError(f"results cannot be compared at size {n}: {mismatch}")
    movable = any(map(is_perturbable, arrays))
    form = (
        infer_precision(arrays, None, nest.names) if movable else infer_result_precision(*answers)
    )
    results = answers[1].numbers(np.float64)
    unit = ROUNDOFF[form] * finite_rms(results)
    errors = []
    for implementation, result in zip(implementations, answers, strict=True):
        exact = implementation(to_higher_precision(arrays))
        errors.append(_error(result, exact, unit, form))
    d = difference(*answers)
    return form, (_ratio(_rms(d), unit), *errors, float(np.sum(np.abs(d))))


def _error(result: Result, exact: Result, unit: float, form: str) -> float:
    is_higher = comparable(exact, result) and is_wide(exact, form)
    return _ratio(_rms(difference(result, exact)), unit) if is_higher else math.nan


def _ratio(size: float, unit: float) -> float:
    return size / unit if unit else (math.inf if size else 0.0)


def _rms(errors: NDArray) -> float:
    return finite_rms(errors) if np.isfinite(errors).all() else math.inf


def _slope(sizes: Iterable[int], values: Sequence[float]) -> float:
    """Fit a power of the size by least squares of logarithms, and return its exponent."""
    points = [
        (math.log(n), math.log(y)) for n, y in zip(sizes, values, strict=True) if 0 < y < math.inf
    ]
    x, y = np.array(points).reshape(-1, 2).T
    if len({*x}) < 2:
        return math.nan
    x = x - x.mean()
    return float(x @ (y - y.mean()) / (x @ x))


def _text(x: float) -> str:
    return "-" if math.isnan(x) else f"{x:.3g}"
