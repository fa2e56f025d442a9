"""Whether a function that a library made take batches gives what it gave before."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import RLock

import numpy as np

from .._protocols import NDArray
from .rule import alike

_ROUNDINGS = 128.0  # by which a batch may differ from single calls

_OF_TORCH = "There is a performance drop", "An output with one or more elements was resized"


_lock = RLock()  # a signal handler or a finalizer may check on the same thread
_checks = 0  # that run now, in threads
_filters = ExitStack()


@contextmanager
def without_warnings_of_batches() -> Iterator[None]:
    """Ignore what torch says of operations that loop over a batch, which nobody asked for."""
    # Once around all batches and checks: threads would put back each other's filters.
    global _checks
    with _lock:
        if not _checks:
            _filters.enter_context(warnings.catch_warnings())
            for message in _OF_TORCH:
                warnings.filterwarnings("ignore", message)
        _checks += 1
    try:
        yield
    finally:
        with _lock:
            _checks -= 1
            if not _checks:
                _filters.close()


def base_in_batches(
    of_batch: Callable[[NDArray], NDArray], f: Callable[[NDArray], NDArray], x: NDArray, y: NDArray
) -> NDArray | None:
    """
    Return f(x) out of a batch of x and a point beside it, if that gives what f does there.

    That is y at x; rounding may differ.
    """
    # Not the same point twice: some batches are of one of their points alone.
    nearby = x + np.finfo(x.dtype).eps ** (1 / 3) * np.maximum(1, np.abs(x))
    points = np.stack([x, nearby.astype(x.dtype, copy=False)])
    try:
        values = of_batch(points)
        expected = np.stack([y, f(points[1])])
    except Exception:  # whatever f does that has no batch
        return None
    if values.shape != expected.shape:
        return None
    tolerance = _ROUNDINGS * float(np.finfo(expected.dtype).eps)
    size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return values[0] if alike(values, expected, tolerance * size) else None
