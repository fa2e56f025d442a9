"""Reading beside comparing: the next block is read while the last one is worked on."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._protocols import Result
from .._threads import get_num_threads, submitted, threads

if TYPE_CHECKING:
    from concurrent.futures import Future

IN_FLIGHT = 2
"""Blocks in memory at a time: one is worked on while another is read."""


def overlapped(
    blocks: Iterable[tuple[Any, ...]],
    work: Callable[..., Result],
    may_overlap: Callable[[], bool] = lambda: True,
) -> Iterator[Result]:
    """
    Yield ``work(*block)`` of each block in turn.

    Blocks are read by the calling thread: iterators and files may not like another. `may_overlap`
    tells of the block that was read last whether it stays as it is while the next is read.
    """
    with threads(1, "calipers-blocks") as helper:
        begun: Future[Result] | None = None
        for block in blocks:
            if begun is not None:
                yield begun.result()
                begun = None
            if get_num_threads() > 1 and may_overlap():
                begun = submitted(helper, work, *block)
            else:
                yield work(*block)
        if begun is not None:
            yield begun.result()
