"""Comparison in the background: allclose_async and the PendingBool that it returns."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .._core.libraries import device_module, on_device
from .._core.threads import in_background
from .._core.types import ArrayLike, Chunks
from .closeness import allclose

__all__ = ["PendingBool", "allclose_async"]


def allclose_async(
    a: ArrayLike | Chunks,
    b: ArrayLike | Chunks,
    rtol: ArrayLike = 1e-5,
    atol: ArrayLike = 1e-8,
    equal_nan: bool = False,
) -> PendingBool:
    """
    Start to compare two arrays as `allclose` does, and return without waiting for the result.

    Arrays on a CUDA device are compared there, in the order of the stream that they name; for torch
    tensors that is torch's current stream. Arrays in host memory are compared on calipers' threads.
    The arrays must not be changed before the result is there.

    Parameters
    ----------
    a, b : array_like
        Arrays whose shapes broadcast together; `b` is the reference.
    rtol : float or array_like, default 1e-5
        Relative tolerance.
    atol : float, array_like, timedelta or quantity, default 1e-8
        Absolute tolerance.
    equal_nan : bool, default False
        If True, two NaN are equal.

    Returns
    -------
    PendingBool
        The future result: ``await`` it, or call ``.result()``.

    Raises
    ------
    TypeError, ValueError
        As for `allclose`: immediately for arrays on a device, and by ``.result()`` for others.

    See Also
    --------
    allclose : Waits for the result.

    Examples
    --------
    >>> import calipers
    >>> pending = calipers.allclose_async([1.0, 2.0], [1.0, 2.0])
    >>> pending.result()
    True
    """
    if on_device(a=a, b=b):
        return PendingBool(device_module("closeness").start_allclose(a, b, rtol, atol, equal_nan))
    return PendingBool(in_background(lambda: allclose(a, b, rtol, atol, equal_nan)))


class PendingBool:
    """
    The result of a comparison that may still be running.

    It is returned by `allclose_async`. ``await pending`` returns the bool, and ``bool(pending)``
    waits for it.

    Examples
    --------
    >>> import asyncio
    >>> import calipers
    >>> async def agree(a, b):
    ...     return await calipers.allclose_async(a, b)
    >>> asyncio.run(agree([1.0], [2.0]))
    False
    """

    def __init__(self, work: Any) -> None:
        self._work = work

    def __repr__(self) -> str:
        """Return the result, or "pending"."""
        if not self.done():
            return "<PendingBool: pending>"
        try:
            return f"<PendingBool: {self.result()}>"
        except Exception as error:  # the comparison raised
            return f"<PendingBool: {type(error).__name__}>"

    def done(self) -> bool:
        """Return True if the comparison has ended, so that `result` returns at once."""
        return bool(self._work.done())

    def result(self) -> bool:
        """Wait for the comparison to end, and return its result or raise its error."""
        return bool(self._work.result())

    def __bool__(self) -> bool:
        """Wait for the result."""
        return self.result()

    def __await__(self) -> Generator[Any, None, bool]:
        """Run other tasks until the result is there."""
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            yield from loop.run_in_executor(None, self.result)
        return self.result()
