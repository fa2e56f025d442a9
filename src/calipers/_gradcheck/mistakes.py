"""What a wrong derivative looks like: a factor, a sign, a transpose, something left out."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .._core.protocols import NDArray
from .columns import Jacobian, taken
from .entry_rules import FAIL, default_resolution
from .flatten import Part, part_at
from .mistake_patterns import CLOSE, alike, assigned, explains, lines_of
from .point import Subject
from .report_data import Entry

_NAMED = {2.0: "twice too large", 0.5: "half of what it should be", -1.0: "of the opposite sign"}
_MOST_DECOMPOSED = 1 << 18  # entries of the largest block whose rank is computed
_MOST = 1 << 22  # entries of a block that is looked at as a whole
_FEW = 32  # inputs, each of which is compared with all


@dataclass(frozen=True)
class Causes:
    """Analytic columns, and those of differences, as far as they were in doubt."""

    subject: Subject
    jacobians: dict[str, Jacobian]  # by what the caller calls them
    forms: dict[str, str]
    numerical: dict[int, NDArray]
    of_backward: bool = False  # whether they are derivatives of torch's backward

    def line(self, entry: Entry) -> str | None:
        """Say how the whole column of an entry, or else its row, is wrong."""
        right = self.numerical.get(entry.column)
        if right is None:
            return None
        out = part_at(self.subject.kept, entry.output)
        part, rows = part_at(self.subject.active, entry.input), _range(out)
        (own,) = taken(self.jacobians[entry.form], np.array([entry.column]))
        text = _factor(own[rows], right[rows], self._least)
        if text is not None:
            return f"all of d {out.label} / d {part.element(entry.column)} is {text}"
        if self._is_large(part):
            return None
        every, known = self._sides(entry.form, part)
        text = _factor(every[:, entry.row], known[:, entry.row], self._least)
        return (
            None
            if text is None
            else f"all of d {out.element(entry.row)} / d {part.label} is {text}"
        )

    def blocks(self, entries: Iterable[Entry]) -> dict[tuple[str, int, int], str]:
        """Say what blocks look like that wrong entries are in, by name, output and input."""
        worst: dict[tuple[str, int, int], Entry] = {}
        for e in entries:
            if e.verdict == FAIL and e.form in self.jacobians:
                worst.setdefault((e.form, e.output, e.input), e)
        texts = {key: self._block(*key, e) for key, e in worst.items()}
        return {key: text for key, text in texts.items() if text is not None}

    def _block(self, name: str, output: int, position: int, worst: Entry) -> str | None:
        """Say what a block looks like, if that is true of its worst entry."""
        out, part = part_at(self.subject.kept, output), part_at(self.subject.active, position)
        if self._is_large(part) or worst.column not in self.numerical:
            return None
        sides = self._sides(name, part)
        own, right = (side[:, _range(out)] for side in sides)
        at = worst.column - part.start, worst.row - out.start
        if self.of_backward and not own.any():
            return "the whole block is zero: the backward may be detached or once_differentiable"
        return (
            _whole(own, right, out, part, self.forms[name], at, self._least)
            or self._swapped(sides, out, part, name)
            or (_reduction(own, right, out, part) if own[at] == 0 else None)
            or lines_of(own, right, out, part, at)
            or _missing(own, right)
        )

    @property
    def _least(self) -> float:
        """The share of the largest entry below which one may be off and be let pass."""
        return default_resolution(self.subject.eps)

    def _is_large(self, part: Part) -> bool:
        return (part.stop - part.start) * self.subject.rows > _MOST

    def _sides(self, name: str, part: Part) -> tuple[NDArray, NDArray]:
        """Return what is claimed and what is right, a row for each number of an input."""
        own = taken(self.jacobians[name], np.arange(part.start, part.stop))
        right = own.copy()  # a column that was never in doubt is right
        for column, value in self.numerical.items():
            if part.start <= column < part.stop:
                right[column - part.start] = value
        return own, right

    def _swapped(
        self, sides: tuple[NDArray, NDArray], out: Part, part: Part, name: str
    ) -> str | None:
        """Say that a block is that of another output or input."""
        own, right = (side[:, _range(out)] for side in sides)
        if alike(own, right):
            return None
        for other in self.subject.kept:
            claimed, known = (side[:, _range(other)] for side in sides)
            if own.shape == known.shape and alike(own, known):
                return f"it is d {other.label} / d {part.label}{_mutual(claimed, right)}"
        whole = self.subject.columns * self.subject.rows
        if whole > _MOST or len(self.subject.active) > _FEW:
            return None
        for other in self.subject.active:
            if other.example.shape != part.example.shape:
                continue
            claimed, known = (side[:, _range(out)] for side in self._sides(name, other))
            if own.shape == known.shape and alike(own, known):
                return f"it is d {out.label} / d {other.label}{_mutual(claimed, right)}"
        return None


def _mutual(claimed: NDArray, right: NDArray) -> str:
    return ": the two are swapped" if alike(claimed, right) else ""


def _range(part: Part) -> slice:
    return slice(part.start, part.stop)


def _whole(
    own: NDArray,
    right: NDArray,
    out: Part,
    part: Part,
    form: str,
    at: tuple[int, int],
    least: float,
) -> str | None:
    """Say how all entries of a block are wrong in the same way, that at a place among them."""
    text = _factor(own, right, least, at)
    if text is not None:
        return f"the whole block is {text}{_averaged(own, right, out, part)}"
    if alike(own, right):  # and so is much else that would explain it
        return None
    return _conjugate(own, right, out, part, form) or _turned(own, right, out, part)


def _conjugate(own: NDArray, right: NDArray, out: Part, part: Part, form: str) -> str | None:
    """Say which numbers of a complex block are the conjugates of what they should be."""
    complex_out, complex_in = (p.example.dtype.kind == "c" for p in (out, part))
    by_out = _conjugated(right) if complex_out else right
    by_both = _conjugated(by_out.T).T if complex_in else by_out
    if alike(own, by_both):
        # jac has a convention where it is the gradient of a real number.
        gradient = form == "vjp" or (form == "jac" and not complex_out)
        also = ", or follows the other convention=" if gradient else ""
        return f"it is the conjugate of the right one{also}"
    if alike(own, by_out):
        return f"it is d conj({out.label}) / d {part.label}"
    if complex_in and alike(own, _conjugated(right.T).T):
        return f"it is d {out.label} / d conj({part.label})"
    return None


def _turned(own: NDArray, right: NDArray, out: Part, part: Part) -> str | None:
    """Say that it is a transpose, or that of one side, as the gradient of a transposed matrix."""
    if own.shape[0] == own.shape[1] and alike(own, right.T):
        return "it is the transpose of the right one"
    if alike(own, _transposed(right, part)):
        return f"it is right if the last two axes of {part.label} are swapped"
    if alike(own, _transposed(right.T, out).T):
        return f"it is right if the last two axes of {out.label} are swapped"
    return _symmetric(own, right, part)


def _symmetric(own: NDArray, right: NDArray, part: Part) -> str | None:
    """Say that it is meant for symmetric matrices; differences move one element at a time."""
    if part.example.ndim < 2 or part.example.shape[-1] != part.example.shape[-2]:
        return None
    hermitian = part.example.dtype.kind == "c"
    swapped = _transposed(_conjugated(right.T).T if hermitian else right, part)
    kind = "Hermitian" if hermitian else "symmetric"
    axes = f"the last two axes of {part.label}"
    meant = (
        f"as if the matrix stayed {kind}: gradcheck perturbs one element at a time, so make f "
        f"take the {kind} part first"
    )
    if alike(own, (right + swapped) / 2):
        return f"it is the {kind} part over {axes}, {meant}"
    both = right + swapped
    diagonal = np.flatnonzero(_is_diagonal(part))
    both[diagonal] = right[diagonal]
    if alike(own, both):
        return f"it counts off-diagonal elements of {axes} twice, {meant}"
    return _one_sided(own, right, part)


def _one_sided(own: NDArray, right: NDArray, part: Part) -> str | None:
    """Say that f reads one triangle of a symmetric matrix, as factorisations do, and not both."""
    rows, columns = np.indices(part.example.shape[-2:])
    folded = own + _transposed(own, part)
    diagonal = np.flatnonzero(_is_diagonal(part))
    folded[diagonal] = own[diagonal]
    for name, read in (("upper", rows <= columns), ("lower", rows >= columns)):
        unread = np.flatnonzero(_is_among(~read, part))
        claim = folded.copy()
        claim[unread] = 0
        if len(unread) and alike(claim, right):
            return (
                f"f reads only the {name} triangle of the last two axes of {part.label}, and the "
                f"derivative covers both: add that of the other triangle to it, or make f read both"
            )
    return None


def _is_diagonal(part: Part) -> NDArray:
    """Tell which numbers of an input are on the diagonal of its last two axes."""
    return _is_among(np.eye(*part.example.shape[-2:]) == 1, part)


def _is_among(places: NDArray, part: Part) -> NDArray:
    """Tell which numbers of an input are at some places of its last two axes."""
    where = np.broadcast_to(places, part.example.shape).ravel()
    return np.repeat(where, (part.stop - part.start) // max(1, where.size))


def _transposed(rows: NDArray, part: Part) -> NDArray:
    """Swap the last two axes of what rows belong to, if they are of one length."""
    shape = part.example.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return rows
    return np.reshape(rows, (*shape, -1)).swapaxes(-2, -3).reshape(rows.shape)


def _factor(
    own: NDArray, right: NDArray, least: float, at: tuple[int, ...] | None = None
) -> str | None:
    """Say what all entries are multiplied by, but for those below a share of the largest."""
    if not own.any():
        return "zero"
    factor = _ratio(own, right)
    if factor is None or factor == 1:  # or what is off is nothing beside the rest
        return None
    claim = factor * right
    if np.abs(own - claim).max() > CLOSE * np.abs(own - right).max():
        return None
    if at is not None and not explains(claim, own, right, at):
        return None  # the factor is that of larger entries
    # So it is where smaller ones are right.
    known = np.abs(right) > least * np.abs(right).max()
    if np.any(known & (np.abs(own - right) <= CLOSE * np.abs(claim - right))):
        return None
    for value, text in _NAMED.items():
        if abs(factor - value) <= CLOSE * abs(value):
            return text
    # Any one entry is some multiple of what it should be.
    return f"{_told(factor)} times what it should be" if np.count_nonzero(right) > 1 else None


def _told(factor: float) -> str:
    """Write a factor with as many digits as tell what it differs from 1 by."""
    digits = max(4, 3 - math.floor(math.log10(abs(factor - 1))))
    return f"{factor:.{digits}g}"


def _ratio(own: NDArray, right: NDArray) -> float | None:
    """Return the number that one is of the other, if there is one."""
    with np.errstate(all="ignore"):  # beyond the range there is none to be told
        factor = float(np.vdot(right, own) / np.vdot(right, right))
    return factor if np.isfinite(factor) and alike(own, factor * right) else None


def _averaged(own: NDArray, right: NDArray, out: Part, part: Part) -> str:
    """Say that a factor is the length of an axis, which a mean divides by and a sum does not."""
    factor = _ratio(own, right)
    if part.example.size == out.example.size:
        return ""
    if not factor or any(abs(factor - named) <= CLOSE for named in _NAMED):
        return ""
    sizes = out.example.size, part.example.size
    ratio = max(sizes) // min(sizes)
    lengths = {*out.example.shape, *part.example.shape, ratio}
    for length in sorted(lengths - {0, 1}):
        if abs(factor * length - 1) <= CLOSE:
            return f", 1/{length}: a mean over an axis of length {length} instead of a sum"
        if abs(factor / length - 1) <= CLOSE:
            return f": a sum over an axis of length {length} instead of a mean"
    return ""


def _reduction(own: NDArray, right: NDArray, out: Part, part: Part) -> str | None:
    """Say that entries are missing, as where a gradient is not summed over a broadcast axis."""
    there = own != 0
    short = (right != 0) & ~there
    size = np.abs(right).max(initial=0.0)
    if np.abs(own - right)[there].max() > CLOSE * size:
        return None
    count, every = np.count_nonzero(short), np.count_nonzero(right)
    text = f"the nonzero entries are right, and {count} of {every} are missing"
    a, b = part.example, out.example
    if a.size < b.size and _broadcasts(a.shape, b.shape) and _spread(short):
        text += ", as if the gradient were not summed over all broadcast axes"
    elif assigned(there, right != 0):
        text += ", as if the gradient were assigned, and not added, at repeated indices"
    return text


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(small, large) == large
    except ValueError:
        return False


def _spread(short: NDArray) -> bool:
    """Whether each input number misses as many outputs."""
    counts = np.count_nonzero(short, axis=1)
    return bool(counts.min() == counts.max())


def _missing(own: NDArray, right: NDArray) -> str | None:
    """Say that what is missing is a term of a simple form."""
    apart = right - own
    size = np.abs(apart).max(initial=0.0)
    wrong = np.abs(apart) > CLOSE * size
    lines, places = np.count_nonzero(wrong.any(axis=1)), np.count_nonzero(wrong.any(axis=0))
    if np.count_nonzero(wrong) < 2:
        return None
    beside = np.eye(*apart.shape) == 0
    # Of a diagonal block that says nothing.
    square = apart.shape[0] == apart.shape[1]
    right_beside = alike(own[beside], right[beside]) and not wrong[beside].any()
    if square and right[beside].any() and right_beside:
        return "all but its diagonal is right: a term on the diagonal is missing or wrong"
    first = apart.flat[0]
    if np.abs(apart - first).max() <= CLOSE * size:
        return f"{first:.4g} is missing in every entry: a constant term"
    rank = _rank(apart[np.ix_(wrong.any(axis=1), wrong.any(axis=0))])
    if min(lines, places) >= 4 * rank - 1:
        size = min(lines, places)
        return f"the error has rank {rank} of {size}: a mean or sum term is probably missing"
    return None


def _rank(matrix: NDArray) -> int:
    """Return the rank, but for what is nothing beside the largest, or that of any large matrix."""
    if matrix.size > _MOST_DECOMPOSED:
        return int(min(matrix.shape))
    sizes = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(sizes > CLOSE * sizes[0]))


def _conjugated(rows: NDArray) -> NDArray:
    """Negate what belongs to imaginary parts along the last axis."""
    changed = rows.copy()
    changed[:, 1::2] *= -1
    return changed
