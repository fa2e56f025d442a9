"""Step lengths and stencils of each method."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from .._core.arguments import brief
from .._core.arrays import as_array
from .._core.dtypes import as_real_vector, finfo, is_double
from .._core.protocols import NDArray
from .._core.threads import in_parts
from .._kernels.differences import TABULATE, StepRule, tabulate
from .function import HOLOMORPHIC, IMAGINARY, REAL, WIRTINGER


class DifferenceMethod(NamedTuple):
    """Stencils (see `_kernels.differences`), and the power of eps that is the relative step."""

    central: NDArray
    sided: NDArray  # of the same order, where bounds leave room on one side only
    power: float


def _stencil(*pairs: tuple[float, float, float]) -> NDArray:
    array: NDArray = np.array(pairs, dtype=float)
    array.flags.writeable = False
    return array


# The optimal power is 1 / (1 + order): there truncation, h**order, equals rounding, eps / h.
METHODS = {
    "2-point": DifferenceMethod(_stencil((1, 0, 1)), _stencil((1, 0, 1)), 1 / 2),
    "3-point": DifferenceMethod(_stencil((1, -1, 1)), _stencil((1, 0, 2), (2, 0, -1)), 1 / 3),
    "5-point": DifferenceMethod(
        _stencil((1, -1, 4 / 3), (2, -2, -1 / 3)),
        _stencil((1, 0, 4), (2, 0, -6), (3, 0, 4), (4, 0, -1)),
        1 / 5,
    ),
}
COMPLEX_STEP = "cs"
ADAPTIVE: Final = "adaptive"
NAMES: tuple[Any, ...] = (*METHODS, COMPLEX_STEP, ADAPTIVE)


def require_method(method: Any) -> None:
    """Raise if a method is unknown."""
    if method not in NAMES:
        msg = f"method must be one of {', '.join(map(repr, NAMES))}, got {method!r}"
        raise ValueError(msg)


NATURAL_LENGTH = -1.0  # an adaptive length that is |x|, rounded down to a power of two
_NONE = np.empty(0)
# Elements that NumPy compares while Python handles a coordinate; see `Kernels.is_worth_compiling`.
ELEMENTS_PER_COORDINATE = 64
_TASK_COORDINATES = 1 << 17  # coordinates that take longer to tabulate than a thread to wake
_SMALL_X = {4: 1e-3, 8: 2.5e-7}  # by the bytes of a number; a kink at 5e-7 is near 0 still
_COMPLEX_STEP_FACTOR = 1e-20  # far below any length scale, far above the smallest number


@dataclass(frozen=True)
class Steps:
    """
    The steps of a method, for every coordinate.

    `lengths` has an element for each coordinate, or one for all, or none: then it is max(1, |x|),
    or |x| for the adaptive method. The step is `factor` times the length. `lows` and `highs` are
    the bounds, empty for none.
    """

    method: str
    lengths: NDArray
    factor: float
    lows: NDArray
    highs: NDArray
    eps: float  # of the format of x and f(x)
    is_explicit: bool  # whether the caller passed step= or scale=
    stencil: NDArray | None = None  # in place of the central one of the method

    @property
    def central(self) -> NDArray:
        return METHODS[self.method].central if self.stencil is None else self.stencil

    @property
    def sided(self) -> NDArray:
        return METHODS[self.method].sided

    def lengths_at(self, x: NDArray) -> NDArray:
        """Return the lengths of the numbers x; NATURAL_LENGTH stands for |x|."""
        if self.lengths.size:
            return np.asarray(np.broadcast_to(self.lengths, x.shape))
        if self.method == ADAPTIVE:
            return np.full(x.shape, NATURAL_LENGTH)
        return np.asarray(np.maximum(1.0, np.abs(x)).astype(float))

    @property
    def rule(self) -> StepRule:
        """The steps in the form of kernels."""
        arguments = self.lengths, self.factor, self.lows, self.highs
        return StepRule(*arguments, self.central, self.sided)

    @property
    def one_sided(self) -> bool:
        """Whether all differences are from x itself."""
        # All pairs of a stencil are alike in this, and those at bounds are always one-sided.
        return bool(self.central[0, 1] == 0)

    @property
    def pairs(self) -> int:
        return max(len(self.central), len(self.sided)) if self.lows.size else len(self.central)

    def tables(self, x: NDArray, stride: int, start: int, stop: int) -> tuple[NDArray, NDArray]:
        """Return the table and status of coordinates of x; see the kernel `tabulate`."""
        table, status = self.allocate(x, stop - start)
        self.tabulate(x, stride, start, table, status)
        return table, status

    def allocate(self, x: NDArray, count: int) -> tuple[NDArray, NDArray]:
        """Return arrays for the table and status of `count` coordinates."""
        wide = np.promote_types(x.real.dtype, np.float64)
        return np.empty((3, self.pairs, count), wide), np.empty(count, np.int8)

    def tabulate(
        self, x: NDArray, stride: int, start: int, table: NDArray, status: NDArray
    ) -> None:
        """Fill the table and status of coordinates from `start`."""
        coords = as_real_vector(x)
        count = len(status)
        # Some dtypes have no kernel.
        compiled = coords.dtype.char in "fd" and TABULATE.is_worth_compiling(
            coords.dtype, count * ELEMENTS_PER_COORDINATE
        )
        call = TABULATE[coords.dtype] if compiled else tabulate

        def fill(first: int, last: int) -> None:
            cell = np.empty(1, coords.dtype)
            call(coords, stride, start, self.rule, cell, table, status, first, last)

        if not compiled:
            with np.errstate(all="ignore"):
                fill(0, count)
        elif count <= _TASK_COORDINATES:
            fill(0, count)
        else:
            in_parts(fill, range(0, count, _TASK_COORDINATES), count)


def plan_steps(
    x: NDArray,
    mode: str,
    dtype: np.dtype[Any],
    method: str,
    step: Any,
    scale: Any,
    bounds: Any,
) -> Steps:
    """Validate the caller's steps, and return those of each coordinate."""
    eps = max(float(finfo(d).eps) for d in {x.dtype, dtype})
    lows, highs = limits_of(x, mode, bounds)
    if step is not None and scale is not None:
        msg = "step and scale exclude each other, as step is absolute: pass only one of them"
        raise ValueError(msg)
    if step is not None:
        lengths, factor = _lengths(x, mode, step, "step"), 1.0
        if method == ADAPTIVE:
            lengths = 4 * lengths  # the longest step is a quarter of the length
    elif scale is not None:
        lengths, factor = _lengths(x, mode, scale, "scale"), _factor(method, eps)
        if not np.all(factor * lengths):
            least = float(lengths.min())
            msg = f"scale={least!r} makes steps that underflow: pass a larger scale"
            raise ValueError(msg)
    elif method == ADAPTIVE:
        lengths, factor = _default_lengths(x, mode, eps), 1.0
    elif mode == REAL:
        lengths, factor = _NONE, _factor(method, eps)
    else:
        lengths = _per_coordinate(x, mode, np.maximum(1.0, np.abs(x)))
        factor = _factor(method, eps)
    if mode == IMAGINARY:
        if not lengths.size:
            lengths = np.maximum(1.0, np.abs(as_real_vector(x)[::2]).astype(float))
        lengths, factor = lengths * factor, 1.0
    explicit = step is not None or scale is not None
    return Steps(method, np.ascontiguousarray(lengths), factor, lows, highs, eps, explicit)


def sizes_of(x: NDArray, eps: float) -> tuple[NDArray, NDArray]:
    """
    Return the magnitudes of x, and which are small: their steps are relative to x.

    Zeros get the magnitude of the largest element if all are small, else 1.
    """
    sizes = np.abs(x).astype(float)
    largest, limit = float(sizes.max(initial=0.0)), _SMALL_X[8 if is_double(eps) else 4]
    sizes = np.where(sizes == 0, largest if 0 < largest < limit else 1.0, sizes)
    return sizes, sizes < limit


def _factor(method: str, eps: float) -> float:
    if method == ADAPTIVE:
        return 1.0
    return float(eps ** METHODS[method].power) if method in METHODS else _COMPLEX_STEP_FACTOR


def _default_lengths(x: NDArray, mode: str, eps: float) -> NDArray:
    """Return powers of two near |x|, or an empty array if kernels compute them."""
    if mode == REAL and x.all():
        return _NONE
    sizes, small = sizes_of(x, eps)
    if mode == REAL and not small.all():
        return _NONE
    with np.errstate(all="ignore"):
        return _per_coordinate(x, mode, np.exp2(np.floor(np.log2(sizes))))


def _per_coordinate(x: NDArray, mode: str, values: NDArray) -> NDArray:
    """Return the value of each coordinate's element of x."""
    if values.shape != x.shape:
        values = np.broadcast_to(values, x.shape)
    flat = values.reshape(-1).astype(float)
    return np.repeat(flat, 2) if mode == WIRTINGER else flat


def _lengths(x: NDArray, mode: str, value: Any, name: str) -> NDArray:
    values = _real_array(value, name).astype(float)
    zero_allowed = name == "step" and values.ndim > 0
    good = np.isfinite(values) & ((values >= 0) if zero_allowed else (values > 0))
    if not good.all():
        bad = float(values[~good].flat[0] if values.ndim else values[()])
        advice = "; a 0 in an array excludes that element" if name == "step" else ""
        if bad < 0:
            advice += "; for differences only to the left of x, pass bounds=(-numpy.inf, x)"
        msg = f"{name} must be positive and finite, found {bad!r}{advice}"
        raise ValueError(msg)
    if values.ndim == 0:
        return values.reshape(1)
    return _per_coordinate(x, mode, _broadcast_to_x(x, values, name))


def _broadcast_to_x(x: NDArray, values: NDArray, name: str) -> NDArray:
    try:
        return np.broadcast_to(values, x.shape)
    except ValueError:
        msg = f"{name} has shape {values.shape}, but x has {x.shape}: pass one of x's shape"
        raise ValueError(msg) from None


def _real_array(value: Any, name: str) -> NDArray:
    try:
        values = np.asarray(as_array(value, name))
    except ValueError:  # lists of unlike lengths
        values = np.empty(0, object)
    if values.dtype.kind not in "biuf":
        for_none = "; for no bound pass numpy.inf or -numpy.inf" if name == "bounds" else ""
        msg = f"{name} must be a real number or an array of them, got {brief(value)}{for_none}"
        raise TypeError(msg)
    return values.astype(np.promote_types(values.dtype, float))


def limits_of(x: NDArray, mode: str, bounds: Any) -> tuple[NDArray, NDArray]:
    """Check bounds, and return them for each number in x, or nothing if there are none."""
    if bounds is None:
        return _NONE, _NONE
    if x.dtype.kind == "c" and mode != IMAGINARY:
        msg = "bounds are for real x, but x is complex: omit them"
        raise ValueError(msg)
    if isinstance(bounds, list) and bounds and all(isinstance(pair, tuple) for pair in bounds):
        msg = (
            f"bounds is a list of tuples, {brief(bounds)}, as for scipy.optimize.minimize: "
            "pass (lower, upper), which is tuple(zip(*bounds)), or scipy.optimize.Bounds"
        )
        raise ValueError(msg)
    try:
        low, high = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds
    except (TypeError, ValueError):
        msg = f"bounds must be a pair (lower, upper), got {brief(bounds)}"
        each = bounds.tolist() if isinstance(bounds, np.ndarray) else bounds
        by_element = isinstance(each, list | tuple) and all(
            isinstance(pair, list | tuple) and len(pair) == 2 for pair in each
        )
        if by_element and each:
            msg += ": for pairs by element pass tuple(zip(*bounds))"
        raise ValueError(msg) from None
    shaped = [
        _broadcast_to_x(x, _real_array(b, "bounds"), "bounds").reshape(-1) for b in (low, high)
    ]
    if np.isnan(shaped).any():
        msg = "bounds must not be NaN: for no bound pass numpy.inf or -numpy.inf"
        raise ValueError(msg)
    kind = x.real.dtype.type
    lows, highs = (
        _rounded(b, kind, inward) for b, inward in zip(shaped, (np.inf, -np.inf), strict=True)
    )
    require_inside(x, lows, highs)
    # A complex step leaves the real parts where they are, and needs no room.
    return (_NONE, _NONE) if mode == IMAGINARY else (lows, highs)


def _rounded(bound: NDArray, kind: Any, inward: float) -> NDArray:
    """Round bounds inwards to x's format, so that clipped numbers are within them."""
    rounded = bound.astype(kind)
    outside = rounded < bound if inward > 0 else rounded > bound
    inner = np.where(outside, np.nextafter(rounded, kind(inward)), rounded)
    return np.ascontiguousarray(inner, dtype=np.promote_types(kind, float))


def require_inside(x: NDArray, lows: NDArray, highs: NDArray) -> None:
    """Raise if x is outside the bounds."""
    x = x.real.reshape(-1)
    outside = ~((lows <= x) & (x <= highs))
    if outside.any():
        j = int(np.argmax(outside))
        crossed = ": the lower one is above the upper one" if lows[j] > highs[j] else ""
        msg = f"x[{j}] = {x[j]} is outside its bounds [{lows[j]}, {highs[j]}]{crossed}"
        raise ValueError(msg)


def modes_of(x: NDArray, method: str, holomorphic: bool) -> str:
    """Return how the numbers of x become coordinates."""
    if method == "cs":
        if x.dtype.kind == "c":
            msg = "method='cs' perturbs real x along the imaginary axis, but x is complex"
            raise ValueError(msg)
        return IMAGINARY
    if x.dtype.kind == "c":
        return HOLOMORPHIC if holomorphic else WIRTINGER
    return REAL
