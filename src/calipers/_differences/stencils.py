"""The fixed-step methods, as data: which differences are taken, and how long the step is."""

from typing import Any, Final, NamedTuple

import numpy as np

from .._protocols import NDArray


class Method(NamedTuple):
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
    "2-point": Method(_stencil((1, 0, 1)), _stencil((1, 0, 1)), 1 / 2),
    "3-point": Method(_stencil((1, -1, 1)), _stencil((1, 0, 2), (2, 0, -1)), 1 / 3),
    "5-point": Method(
        _stencil((1, -1, 4 / 3), (2, -2, -1 / 3)),
        _stencil((1, 0, 4), (2, 0, -6), (3, 0, 4), (4, 0, -1)),
        1 / 5,
    ),
}
IMAGINARY = "cs"
ADAPTIVE: Final = "adaptive"
NAMES: tuple[Any, ...] = (*METHODS, IMAGINARY, ADAPTIVE)


def require_method(method: Any) -> None:
    """Refuse a method that there is not."""
    if method not in NAMES:
        msg = f"method must be one of {', '.join(map(repr, NAMES))}, got {method!r}"
        raise ValueError(msg)
