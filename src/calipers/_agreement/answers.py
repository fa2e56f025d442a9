"""What a side returned or raised, as arrays, and how answers are told apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._protocols import NDArray
from .._reals import real_parts, reals

_SAID = 300  # characters of what an error says
_X87_BYTES = 10  # of a long double that is one of the processor's; the rest is padding


@dataclass(frozen=True)
class Answer:
    """What a side returned, as arrays in order; or what it raised."""

    arrays: tuple[NDArray, ...] = ()
    error: Exception | None = None
    names: tuple[str, ...] = ()  # of the arrays: the keys that lead to each
    given: tuple[str, ...] = ()  # the dtypes that were returned, where arrays hold them in wider

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The names of the dtypes that were returned."""
        return self.given or tuple(x.dtype.name for x in self.arrays)

    def bits(self) -> tuple[Any, ...]:
        """Return what two answers that are the same to the last bit have in common."""
        arrays = tuple((x.shape, x.dtype.str, raw(x).tobytes()) for x in self.arrays)
        return *arrays, *self.dtypes

    def title(self, k: int) -> str:
        """Return how one of the arrays is reached: by its keys, or by its place."""
        return (self.names[k] if self.names else "") or str(k)

    def joined(self) -> "Answer":
        """Return several numbers as one array; all else as it is."""
        if len(self.arrays) < 2 or any(self.names) or {*self.shapes} != {()}:
            return self
        return Answer((np.array([x[()] for x in self.arrays]),), names=("",))

    def numbers(self, dtype: Any) -> NDArray:
        """Return all real numbers, one after the other; a complex one is two."""
        with np.errstate(over="ignore"):
            parts = [reals(np.ascontiguousarray(x)) for x in self.arrays]
            wide = [part.astype(dtype, copy=False) for part in parts]
        if len(wide) == 1:
            return wide[0]
        return np.concatenate([np.empty(0, dtype), *wide])

    @property
    def integers(self) -> NDArray:
        """Which of the real numbers are integers or truth values."""
        return self.spread(np.array([x.dtype.kind in "biu" for x in self.arrays], bool))

    @property
    def _counts(self) -> NDArray:
        """How many real numbers each array is."""
        return np.array([x.size * real_parts(x.dtype) for x in self.arrays], int)

    def spread(self, values: NDArray) -> NDArray:
        """Return what there is of each array for each of its real numbers."""
        return np.repeat(values, self._counts)

    def split(self, numbers: NDArray) -> list[NDArray]:
        """Return what belongs to each array, of one item for each of the real numbers."""
        return np.split(numbers, np.cumsum(self._counts)[:-1])

    def place(self, number: int) -> tuple[int, tuple[int, ...]]:
        """Return which array a real number is of, and the index of its element there."""
        starts = np.cumsum(self._counts) - self._counts
        k = int(np.searchsorted(starts, number, side="right")) - 1
        x = self.arrays[k]
        element = (number - int(starts[k])) // real_parts(x.dtype)
        return k, tuple(int(i) for i in np.unravel_index(element, x.shape))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(x.shape for x in self.arrays)

    @property
    def forms(self) -> tuple[Any, ...]:
        """What answers that are compared number by number have in common."""
        return tuple((x.shape, x.dtype.kind == "c") for x in self.arrays)


def comparable(*answers: Answer) -> bool:
    """Tell whether answers can be compared number by number: none of them is an error."""
    return all(x.error is None and x.forms == answers[0].forms for x in answers)


def other_names(f: Answer, g: Answer) -> str | None:
    """Tell the names of results where f and g give other ones; a tuple has none, and suits any."""
    names = [dict.fromkeys(filter(None, x.names)) for x in (f, g)]
    if not all(names) or names[0].keys() == names[1].keys():
        return None
    return "f returns results named {}, and g {}".format(*map(", ".join, names))


def raw(x: NDArray) -> NDArray:
    """Return the bytes of an array, a row for each element; padding is left out."""
    parts = reals(np.ascontiguousarray(x))
    rows = parts.view(np.uint8).reshape(parts.size, parts.itemsize)
    if x.dtype.char in "gG" and np.finfo(x.dtype).nmant == 63:
        rows = rows[:, :_X87_BYTES]
    return rows.reshape(x.size, rows.shape[1] * real_parts(x.dtype))


def listed(x: tuple[Any, ...]) -> str:
    """Write several things, or that there are none."""
    return ", ".join(map(str, x)) or "none"


def in_a_line(error: BaseException) -> str:
    """Write what was raised so that it is part of a sentence, and moves no cursor."""
    text = " ".join(str(error).split())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    text = text if len(text) <= _SAID else f"{text[: _SAID - 3]}..."
    return f"{type(error).__name__}: {text}".removesuffix(": ")
