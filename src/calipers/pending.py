"""Do two arrays agree, as soon as it is known? allclose_async, and the verdict to be."""

from collections.abc import Generator
from typing import Any

from ._libraries import device_module, on_device
from ._threads import in_background
from .closeness import allclose

__all__ = ["PendingBool", "allclose_async"]


def allclose_async(
    a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False
) -> "PendingBool":
    """
    Begin to compare two arrays as `allclose` does, and return at once.

    Arrays on a device are compared there, after what the stream that they name has begun: of
    torch's tensors that is torch's current stream. Arrays on the host are compared on calipers'
    threads. Change no array before the answer is there.

    Parameters
    ----------
    a, b, rtol, atol, equal_nan
        As for `allclose`.

    Returns
    -------
    PendingBool
        The answer to be.

    Raises
    ------
    TypeError, ValueError
        As `allclose`: at once for arrays on a device, else when the answer is asked for.

    See Also
    --------
    allclose : Waits for the answer.

    Examples
    --------
    >>> import calipers
    >>> pending = calipers.allclose_async([1.0, 2.0], [1.0, 2.0])
    >>> pending.result()
    True
    """
    if on_device(a=a, b=b):
        return PendingBool(device_module("closeness").ask_allclose(a, b, rtol, atol, equal_nan))
    return PendingBool(in_background(lambda: allclose(a, b, rtol, atol, equal_nan)))


class PendingBool:
    """
    A verdict that is being worked out; ``await`` it, or ask for its `result`.

    Its truth value is that of the result, which is waited for.

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
        """Write the verdict, or that it is not there."""
        if not self.done():
            return "<PendingBool: pending>"
        try:
            return f"<PendingBool: {self.result()}>"
        except Exception as error:  # that came in the verdict's place
            return f"<PendingBool: {type(error).__name__}>"

    def done(self) -> bool:
        """Tell whether `result` would return at once."""
        return bool(self._work.done())

    def result(self) -> bool:
        """Wait for the verdict and return it, or raise the error that came in its place."""
        return bool(self._work.result())

    def __bool__(self) -> bool:
        """Wait for the verdict."""
        return self.result()

    def __await__(self) -> Generator[Any, None, bool]:
        """Let other tasks run until the verdict is there."""
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            yield from loop.run_in_executor(None, self.result)
        return self.result()
