"""How do errors grow with the size of a problem? growth."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ._agreement.answers import Answer, comparable, other_names
from ._agreement.inputs import inputs_of, is_movable, widened
from ._agreement.nest import Nest
from ._agreement.trials import side_of
from ._agreement.units import ROUNDOFF, difference, rms_of
from ._agreement.working_format import format_of, format_of_results, is_wide
from ._arguments import require_callable
from ._containers import several
from ._notebook import Shown
from ._protocols import NDArray
from ._report import jsonable, jsonable_fields

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Growth", "growth"]

_LINES = 18
_HEADS = ("|f - g|", "f", "g", "sqrt n", "bound")
_CURVES = {"apart": "|f - g|", "error_f": "error of f", "error_g": "error of g"}


@dataclass(frozen=True, repr=False)
class Growth(Shown):
    """
    Differences and errors by the size of a problem.

    All but `totals` are root mean squares per element. Their unit is one rounding of the results:
    u times the root mean square of g's.

    Attributes
    ----------
    sizes : tuple of int
        Of the problems.
    format : str
        Whose roundings are the unit.
    apart : tuple of float
        How far f and g are apart.
    error_f, error_g : tuple of float
        How far each is from its own result in the next wider format; NaN if it takes none.
    totals : tuple of float
        The sums of all ``|f - g|``, which also grow with the number of elements.
    slopes : dict of float
        Of each of these by size, fitted to the logarithms of what is not 0; NaN with fewer than two
        such sizes.
    """

    sizes: tuple[int, ...]
    format: str
    apart: tuple[float, ...]
    error_f: tuple[float, ...]
    error_g: tuple[float, ...]
    totals: tuple[float, ...]
    slopes: dict[str, float] = field(hash=False)

    @property
    def slope(self) -> float:
        """How the difference grows: as n to this power; 0.5 is a running sum, 1 a bias."""
        return self.slopes["apart"]

    @property
    def bounds(self) -> tuple[float, ...]:
        """
        In units of u, ``gamma_n = n u / (1 - n u)``.

        A sum of n terms is never off by more than this times the sum of its terms' sizes.
        """
        u = ROUNDOFF[self.format]
        return tuple(n / (1 - n * u) if n * u < 1 else math.inf for n in self.sizes)

    def __str__(self) -> str:
        """Write a table."""
        lines = [
            f"errors per element in units of {self.format}'s rounding of the result",
            f"  {'n':>8}" + "".join(f"{name:>10}" for name in _HEADS) + f"{'sum |f-g|':>12}",
        ]
        rows = range(len(self.sizes))
        # The last are those that matter.
        for k in rows[-_LINES:]:
            n = self.sizes[k]
            cells = (self.apart[k], self.error_f[k], self.error_g[k], math.sqrt(n), self.bounds[k])
            text = "".join(f"{_text(x):>10}" for x in cells)
            lines.append(f"  {n:>8}{text}{_text(self.totals[k]):>12}")
        slopes = "".join(f"{_text(self.slopes[name]):>10}" for name in _CURVES)
        lines.append(
            f"  {'slope':>8}{slopes}{'0.5':>10}{'1':>10}{_text(self.slopes['totals']):>12}"
        )
        if len(rows) > _LINES:
            lines.append(f"  {len(rows) - _LINES} smaller sizes are left out: see .sizes")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all as built-in types, which JSON can write."""
        return jsonable_fields(self) | {"bounds": jsonable(self.bounds)}

    def plot(self) -> "Figure":
        """
        Draw the curves on logarithmic axes, beside sqrt(n) and the bound.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from ._agreement.probe_plots import growth_figure

        return growth_figure(self, _CURVES)


def growth(
    f: Callable[..., Any],
    g: Callable[..., Any],
    make_inputs: Callable[[int], Any],
    sizes: Sequence[Any],
) -> Growth:
    """
    Measure how two implementations' difference and errors grow with the size of a problem.

    A sum of n random terms that are added one after the other has an error of about sqrt(n) u;
    in blocks or pairs it hardly grows; one with a bias grows as n. And no sum is beyond gamma_n
    times the sum of the terms' sizes [1]_.

    Parameters
    ----------
    f, g : callable
        Functions of the same inputs.
    make_inputs : callable
        Of a size n: the inputs, an array or a tuple.
    sizes : sequence of int
        The sizes, each positive.

    Returns
    -------
    Growth
        By size: differences and errors per element; ``slope``, ``str()`` and ``plot()``.

    Raises
    ------
    ValueError
        If there are no sizes, one is not positive, or f and g return different shapes, or one of
        them complex numbers.

    Notes
    -----
    f, and g, are each called once at a size, and once in the next wider format. What one of them
    raises in its own format is raised.

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
        msg = "sizes is empty; pass at least two to see a slope"
        raise ValueError(msg)
    forms, rows = [], []
    for n in sizes:
        form, row = _measured(f, g, make_inputs(int(n)), int(n))
        forms.append(form)
        rows.append(row)
    if len(set(forms)) > 1:
        msg = f"make_inputs must give one format for all sizes, got {', '.join(sorted({*forms}))}"
        raise ValueError(msg)
    columns = dict(zip((*_CURVES, "totals"), zip(*rows, strict=True), strict=True))
    return Growth(
        tuple(map(int, sizes)),
        forms[0],
        **columns,
        slopes={name: _slope(sizes, column) for name, column in columns.items()},
    )


def _measured(
    f: Callable[..., Any], g: Callable[..., Any], inputs: Any, n: int
) -> tuple[str, tuple[float, ...]]:
    """Return the working format, the difference and both errors at one size, and the total."""
    nest = Nest(several(inputs))
    arrays = inputs_of(nest.leaves, nest.names)
    require_callable(f=f, g=g)
    sides = side_of("f", nest.called(f), nest.leaves), side_of("g", nest.called(g), nest.leaves)
    answers = [side(arrays) for side in sides]
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    if answers[0].shapes != answers[1].shapes:
        shapes = " and ".join(str(answer.shapes) for answer in answers)
        msg = f"f and g must return the same shapes, got {shapes} at size {n}"
        raise ValueError(msg)
    told = other_names(*answers)
    if told is not None:
        raise ValueError(f"{told}, at size {n}: these are not compared")
    if answers[0].forms != answers[1].forms:
        msg = f"f and g must both return real numbers, or complex ones, and do not at size {n}"
        raise ValueError(msg)
    movable = any(map(is_movable, arrays))
    form = format_of(arrays, None) if movable else format_of_results(*answers)
    results = answers[1].numbers(np.float64)
    unit = ROUNDOFF[form] * rms_of(results)
    errors = []
    for side, answer in zip(sides, answers, strict=True):
        exact = side(widened(arrays))
        errors.append(_error(answer, exact, unit, form))
    d = difference(*answers)
    return form, (_ratio(_rms(d), unit), *errors, float(np.sum(np.abs(d))))


def _error(answer: Answer, exact: Answer, unit: float, form: str) -> float:
    known = comparable(exact, answer) and is_wide(exact, form)
    return _ratio(_rms(difference(answer, exact)), unit) if known else math.nan


def _ratio(size: float, unit: float) -> float:
    return size / unit if unit else (math.inf if size else 0.0)


def _rms(errors: NDArray) -> float:
    return rms_of(errors) if np.isfinite(errors).all() else math.inf


def _slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Fit a power of the size, by least squares of logarithms."""
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
