"""What a comparison asks of two arrays on the host; `_device.comparison` asks it of a device's."""

from collections.abc import Sequence

import numpy as np

from ._arrays import Pair, as_pair
from ._protocols import NDArray
from ._question import Question, plainly_close, plainly_each
from ._shapes import broadcast_arrays
from ._tally import tally_pair

__all__ = ["all_close", "as_pair", "broadcast", "each_close", "elements", "tally_pair"]


def broadcast(pair: Pair) -> Pair:
    """Bring two arrays to one shape; a ValueError tells that there is none."""
    a, b = broadcast_arrays(pair.a, pair.b, subok=pair.dtypes is None)
    return pair._replace(a=a, b=b)


def all_close(a: NDArray, b: NDArray, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Give the verdict on all elements, as early as it can be had."""
    verdict = plainly_close(a, b, rtol, atol, equal_nan)
    if verdict is not None:
        return verdict
    return Question(as_pair(a, b), rtol, atol, equal_nan).all_close()


def each_close(a: NDArray, b: NDArray, rtol: float, atol: float, equal_nan: bool) -> NDArray:
    """Return the verdict on each element."""
    verdicts = plainly_each(a, b, rtol, atol, equal_nan)
    if verdicts is not None:
        return verdicts
    return Question(as_pair(a, b), rtol, atol, equal_nan).each_close()


def elements(pair: Pair, positions: Sequence[int]) -> list[Pair]:
    """Take the pairs at some positions in C order, as arrays of one element each."""
    places = [np.unravel_index(i, pair.a.shape) for i in positions]
    return [
        pair._replace(a=pair.a[(*place, np.newaxis)], b=pair.b[(*place, np.newaxis)])
        for place in places
    ]
