"""How a whole is cut into blocks: along chunks, whole rows first, and within memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm, prod

Shape = tuple[int, ...]
Region = tuple[slice, ...]


def block_shape(
    shape: Shape,
    units: Sequence[Shape],
    runs: Sequence[Shape],
    enough: int,
    fits: Callable[[Shape], bool],
    order: Sequence[int] | None = None,
) -> Shape:
    """
    Return the shape of blocks of about `enough` elements, or more where units are larger.

    Units are what is read as a whole, and runs what better is. A block holds whole ones of all
    arrays if they line up where they fit, else it is as long as the longest on each axis, and some
    are read twice. It grows along the last axis first, or the last of `order`, as memory does.
    """
    both = (*units, *runs)
    for parts, common in (both, lcm), (both, _longest), (units, lcm), (units, _longest):
        lengths = zip(*parts, strict=True)
        block = [max(1, min(n, common(*each))) for n, each in zip(shape, lengths, strict=True)]
        if fits(tuple(block)):
            break
    for axis in reversed(range(len(shape)) if order is None else order):
        times = min(enough // prod(block), -(-shape[axis] // block[axis]))
        block[axis] = max(1, min(shape[axis], block[axis] * max(1, times)))
        if block[axis] < shape[axis]:
            break
    return tuple(block)


def _longest(*lengths: int) -> int:
    return max(lengths)  # of one, too, which max itself takes for a sequence


def touched(block: Shape, chunks: Shape, whole: Shape) -> int:
    """Return how many elements the chunks have that a block may touch, wherever it is."""
    return prod(
        chunk * min(-(-length // chunk) + (length % chunk != 0), -(-n // chunk))
        for length, chunk, n in zip(block, chunks, whole, strict=True)
    )


@dataclass(frozen=True)
class Grid:
    """A whole cut into blocks of one shape, but for those at its ends; numbered in C order."""

    shape: Shape
    block: Shape

    def __len__(self) -> int:
        return prod(self._counts())

    def _counts(self) -> list[int]:
        return [-(-n // step) for n, step in zip(self.shape, self.block, strict=True)]

    def corner(self, number: int) -> Shape:
        """Return the index of a block's first element."""
        corner = []
        for count, step in zip(reversed(self._counts()), reversed(self.block), strict=True):
            number, place = divmod(number, count)
            corner.append(place * step)
        return tuple(reversed(corner))

    def region(self, number: int) -> Region:
        """Return the place of a block."""
        return tuple(
            slice(start, min(start + step, n))
            for start, step, n in zip(self.corner(number), self.block, self.shape, strict=True)
        )


def own_region(own: Shape, region: Region) -> Region:
    """Return the part of an array of shape `own` that is broadcast to a region of the whole."""
    kept = region[len(region) - len(own) :]
    return tuple(slice(0, 1) if n == 1 else part for n, part in zip(own, kept, strict=True))
