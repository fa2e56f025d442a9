"""Reading beside comparing: the next block is read while the last one is worked on."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .._protocols import Result
from .._threads import get_num_threads

IN_FLIGHT = 2
"""Blocks in memory at a time: one is worked on while another is read."""


def overlapped(blocks: Iterable[tuple[Any, ...]], work: Callable[..., Result]) -> Iterator[Result]:
    """
    Yield ``work(*block)`` of each block in turn.

    Blocks are read by the calling thread: iterators and files may not like another.
    """
    if get_num_threads() == 1:
        for block in blocks:
            yield work(*block)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="calipers-blocks") as helper:
        begun: Future[Result] | None = None
        for block in blocks:
            if begun is not None:
                yield begun.result()
            begun = helper.submit(work, *block)
        if begun is not None:
            yield begun.result()
