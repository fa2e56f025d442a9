"""How the work is laid out on a device: numbers alone."""

from functools import cache
from typing import NamedTuple

# What must be on its way from memory per multiprocessor to use all of its bandwidth, in bytes, is
# 48 KiB on the widest memories of today (CUB, tuning_transform.cuh). With all 2048 threads of one
# resident, each needs 24 bytes in flight; twice that leaves room for half of them.
_BYTES_IN_FLIGHT = 48
_THREADS = 256
_MOST_ITEMS = 8  # that the compiler keeps in registers
_MOST_STRIDED = 4  # with the arithmetic of their places
_REGISTERS = 1 << 16  # of a multiprocessor
CALLING = 80  # registers that a kernel may take which calls a user's function for each entry
RESIDENT = 8  # blocks of that many threads fill the largest multiprocessors


class Policy(NamedTuple):
    """
    Threads of a block, and elements of each array that a thread loads before it looks.

    And how many blocks a multiprocessor has room for at once. One more would begin when the others
    have ended, all of which do the same work, and be alone then.
    """

    threads: int
    items: int
    blocks: int

    @property
    def tile(self) -> int:
        """Elements that a block looks at together."""
        return self.threads * self.items

    @property
    def registers(self) -> int:
        """How many a thread may take, so that there is room for the blocks."""
        return _REGISTERS // (self.threads * self.blocks) // 8 * 8


@cache
def policy_of(itemsize: int, flat: bool = True, blocks: int = RESIDENT) -> Policy:
    """Return the layout for pairs of elements of a size in bytes, one after the other or not."""
    most = _MOST_ITEMS if flat else _MOST_STRIDED
    return Policy(_THREADS, min(max(2, _BYTES_IN_FLIGHT // (2 * itemsize)), most), blocks)


def blocks_for(registers: int) -> int:
    """Return how many blocks have room at once whose threads take so many registers."""
    return max(1, _REGISTERS // (_THREADS * (-(-registers // 8) * 8)))


# The simulator runs a Python thread for each of the device's.
SIMULATED = Policy(8, 2, 1)
