"""Recognize common mistakes in a wrong derivative: a factor, a sign, a transpose, a lost term."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .._core.protocols import NDArray
from .columns import Jacobian, select_columns
from .entry_rules import FAIL, default_resolution
from .flatten import Segment, segment_at
from .function_at_point import FunctionAtPoint
from .report_data import Entry
from .row_mistakes import CLOSE, assigned, blocks_agree, explains, row_or_column_mistake

_NAMED = {2.0: "twice too large", 0.5: "half of what it should be", -1.0: "of the opposite sign"}
_MOST_DECOMPOSED = 1 << 18  # entries of the largest block whose rank is computed
_MOST = 1 << 22  # entries of the largest block that is compared as a whole
_FEW = 32  # inputs up to which blocks are compared with those of all others


@dataclass(frozen=True)
class BlockDiagnosis:
    """Compare wrong blocks of the analytic Jacobian with the numerical columns."""

    subject: FunctionAtPoint
    jacobians: dict[str, Jacobian]  # by the keyword of the derivative
    forms: dict[str, str]
    numerical: dict[int, NDArray]
    of_backward: bool = False  # whether torch's backward is differentiated

    def column_or_row(self, entry: Entry) -> str | None:
        """Describe how the whole column of an entry, or else its row, is wrong."""
        expected = self.numerical.get(entry.column)
        if expected is None:
            return None
        out = segment_at(self.subject.active_outputs, entry.output)
        part, rows = segment_at(self.subject.active, entry.input), _range(out)
        (analytic,) = select_columns(self.jacobians[entry.form], np.array([entry.column]))
        text = _factor(analytic[rows], expected[rows], self._least)
        if text is not None:
            return f"all of d {out.label} / d {part.element(entry.column)} is {text}"
        if self._is_large(part):
            return None
        every, every_expected = self._analytic_and_expected(entry.form, part)
        text = _factor(every[:, entry.row], every_expected[:, entry.row], self._least)
        return (
            None
            if text is None
            else f"all of d {out.element(entry.row)} / d {part.label} is {text}"
        )

    def blocks(self, entries: Iterable[Entry]) -> dict[tuple[str, int, int], str]:
        """Describe the blocks of wrong entries, by form, output and input."""
        worst: dict[tuple[str, int, int], Entry] = {}
        for e in entries:
            if e.verdict == FAIL and e.form in self.jacobians:
                worst.setdefault((e.form, e.output, e.input), e)
        texts = {key: self._block(*key, e) for key, e in worst.items()}
        return {key: text for key, text in texts.items() if text is not None}

    def _block(self, name: str, output: int, position: int, worst: Entry) -> str | None:
        """Describe a block, if the description holds for its worst entry."""
        out = segment_at(self.subject.active_outputs, output)
        part = segment_at(self.subject.active, position)
        if self._is_large(part) or worst.column not in self.numerical:
            return None
        blocks = self._analytic_and_expected(name, part)
        analytic, expected = (block[:, _range(out)] for block in blocks)
        at = worst.column - part.start, worst.row - out.start
        if self.of_backward and not analytic.any():
            return "the whole block is zero: the backward may be detached or once_differentiable"
        return (
            _whole(analytic, expected, out, part, self.forms[name], at, self._least)
            or self._swapped(blocks, out, part, name)
            or (_reduction(analytic, expected, out, part) if analytic[at] == 0 else None)
            or row_or_column_mistake(analytic, expected, out, part, at)
            or _missing(analytic, expected)
        )

    @property
    def _least(self) -> float:
        """The relative size below which wrong entries are not considered."""
        return default_resolution(self.subject.eps)

    def _is_large(self, part: Segment) -> bool:
        return (part.stop - part.start) * self.subject.rows > _MOST

    def _analytic_and_expected(self, name: str, part: Segment) -> tuple[NDArray, NDArray]:
        """Return the analytic and the expected block, a row for each number of an input."""
        analytic = select_columns(self.jacobians[name], np.arange(part.start, part.stop))
        expected = analytic.copy()  # a column that was never in doubt is right
        for column, value in self.numerical.items():
            if part.start <= column < part.stop:
                expected[column - part.start] = value
        return analytic, expected

    def _swapped(
        self, blocks: tuple[NDArray, NDArray], out: Segment, part: Segment, name: str
    ) -> str | None:
        """Recognize the block of another output or input."""
        analytic, expected = (block[:, _range(out)] for block in blocks)
        if blocks_agree(analytic, expected):
            return None
        for other in self.subject.active_outputs:
            other_analytic, other_expected = (block[:, _range(other)] for block in blocks)
            if analytic.shape == other_expected.shape and blocks_agree(analytic, other_expected):
                return f"it is d {other.label} / d {part.label}{_mutual(other_analytic, expected)}"
        whole = self.subject.columns * self.subject.rows
        if whole > _MOST or len(self.subject.active) > _FEW:
            return None
        for other in self.subject.active:
            if other.example.shape != part.example.shape:
                continue
            other_analytic, other_expected = (
                block[:, _range(out)] for block in self._analytic_and_expected(name, other)
            )
            if analytic.shape == other_expected.shape and blocks_agree(analytic, other_expected):
                return f"it is d {out.label} / d {other.label}{_mutual(other_analytic, expected)}"
        return None


def _mutual(claimed: NDArray, expected: NDArray) -> str:
    return ": the two are swapped" if blocks_agree(claimed, expected) else ""


def _range(part: Segment) -> slice:
    return slice(part.start, part.stop)


def _whole(
    analytic: NDArray,
    expected: NDArray,
    out: Segment,
    part: Segment,
    form: str,
    at: tuple[int, int],
    least: float,
) -> str | None:
    """Describe how all entries of a block, that at an index among them, are wrong alike."""
    text = _factor(analytic, expected, least, at)
    if text is not None:
        return f"the whole block is {text}{_averaged(analytic, expected, out, part)}"
    if blocks_agree(analytic, expected):  # other mistakes would fit as well
        return None
    return _conjugate(analytic, expected, out, part, form) or _turned(analytic, expected, out, part)


def _conjugate(
    analytic: NDArray, expected: NDArray, out: Segment, part: Segment, form: str
) -> str | None:
    """Recognize a complex block whose numbers are conjugated."""
    complex_out, complex_in = (p.example.dtype.kind == "c" for p in (out, part))
    by_out = _conjugated(expected) if complex_out else expected
    by_both = _conjugated(by_out.T).T if complex_in else by_out
    if blocks_agree(analytic, by_both):
        # jac has a convention where it is the gradient of a real number.
        gradient = form == "vjp" or (form == "jac" and not complex_out)
        also = ", or follows the other convention=" if gradient else ""
        return f"it is the conjugate of the right one{also}"
    if blocks_agree(analytic, by_out):
        return f"it is d conj({out.label}) / d {part.label}"
    if complex_in and blocks_agree(analytic, _conjugated(expected.T).T):
        return f"it is d {out.label} / d conj({part.label})"
    return None


def _turned(analytic: NDArray, expected: NDArray, out: Segment, part: Segment) -> str | None:
    """Recognize a transposed block, or one with two axes of its input or output swapped."""
    if analytic.shape[0] == analytic.shape[1] and blocks_agree(analytic, expected.T):
        return "it is the transpose of the right one"
    if blocks_agree(analytic, _transposed(expected, part)):
        return f"it is right if the last two axes of {part.label} are swapped"
    if blocks_agree(analytic, _transposed(expected.T, out).T):
        return f"it is right if the last two axes of {out.label} are swapped"
    return _symmetric(analytic, expected, part)


def _symmetric(analytic: NDArray, expected: NDArray, part: Segment) -> str | None:
    """Recognize a derivative for symmetric matrices; gradcheck perturbs one element at a time."""
    if part.example.ndim < 2 or part.example.shape[-1] != part.example.shape[-2]:
        return None
    hermitian = part.example.dtype.kind == "c"
    swapped = _transposed(_conjugated(expected.T).T if hermitian else expected, part)
    kind = "Hermitian" if hermitian else "symmetric"
    axes = f"the last two axes of {part.label}"
    meant = (
        f"as if the matrix stayed {kind}: gradcheck perturbs one element at a time, so make f "
        f"take the {kind} part first"
    )
    if blocks_agree(analytic, (expected + swapped) / 2):
        return f"it is the {kind} part over {axes}, {meant}"
    both = expected + swapped
    diagonal = np.flatnonzero(_is_diagonal(part))
    both[diagonal] = expected[diagonal]
    if blocks_agree(analytic, both):
        return f"it counts off-diagonal elements of {axes} twice, {meant}"
    return _one_sided(analytic, expected, part)


def _one_sided(analytic: NDArray, expected: NDArray, part: Segment) -> str | None:
    """Recognize that f reads one triangle of a symmetric matrix, as factorizations do."""
    rows, columns = np.indices(part.example.shape[-2:])
    folded = analytic + _transposed(analytic, part)
    diagonal = np.flatnonzero(_is_diagonal(part))
    folded[diagonal] = analytic[diagonal]
    for name, read in (("upper", rows <= columns), ("lower", rows >= columns)):
        unread = np.flatnonzero(_is_among(~read, part))
        claim = folded.copy()
        claim[unread] = 0
        if len(unread) and blocks_agree(claim, expected):
            return (
                f"f reads only the {name} triangle of the last two axes of {part.label}, and the "
                f"derivative covers both: add that of the other triangle to it, or make f read both"
            )
    return None


def _is_diagonal(part: Segment) -> NDArray:
    """Return True for numbers of an input on the diagonal of its last two axes."""
    return _is_among(np.eye(*part.example.shape[-2:]) == 1, part)


def _is_among(mask: NDArray, part: Segment) -> NDArray:
    """Return True for numbers of an input where a mask of its last two axes is True."""
    where = np.broadcast_to(mask, part.example.shape).ravel()
    return np.repeat(where, (part.stop - part.start) // max(1, where.size))


def _transposed(rows: NDArray, part: Segment) -> NDArray:
    """Swap the last two axes of the array that rows belong to, if they have equal length."""
    shape = part.example.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return rows
    return np.reshape(rows, (*shape, -1)).swapaxes(-2, -3).reshape(rows.shape)


def _factor(
    analytic: NDArray, expected: NDArray, least: float, at: tuple[int, ...] | None = None
) -> str | None:
    """Describe a factor of all entries, except those below a share of the largest."""
    if not analytic.any():
        return "zero"
    factor = _ratio(analytic, expected)
    if factor is None or factor == 1:  # a factor of 1: the wrong entries are negligible
        return None
    claim = factor * expected
    if np.abs(analytic - claim).max() > CLOSE * np.abs(analytic - expected).max():
        return None
    if at is not None and not explains(claim, analytic, expected, at):
        return None  # only larger entries have the factor
    # The same holds if some entries are right.
    significant = np.abs(expected) > least * np.abs(expected).max()
    if np.any(significant & (np.abs(analytic - expected) <= CLOSE * np.abs(claim - expected))):
        return None
    for value, text in _NAMED.items():
        if abs(factor - value) <= CLOSE * abs(value):
            return text
    # A single entry always has a factor.
    return (
        f"{_format_factor(factor)} times what it should be"
        if np.count_nonzero(expected) > 1
        else None
    )


def _format_factor(factor: float) -> str:
    """Format a factor with enough digits to show its difference from 1."""
    digits = max(4, 3 - math.floor(math.log10(abs(factor - 1))))
    return f"{factor:.{digits}g}"


def _ratio(analytic: NDArray, expected: NDArray) -> float | None:
    """Return the factor between two blocks, if there is one."""
    with np.errstate(all="ignore"):  # no factor is reported if products overflow
        factor = float(np.vdot(expected, analytic) / np.vdot(expected, expected))
    return factor if np.isfinite(factor) and blocks_agree(analytic, factor * expected) else None


def _averaged(analytic: NDArray, expected: NDArray, out: Segment, part: Segment) -> str:
    """Recognize a factor that is the length of an axis: a mean instead of a sum, or vice versa."""
    factor = _ratio(analytic, expected)
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


def _reduction(analytic: NDArray, expected: NDArray, out: Segment, part: Segment) -> str | None:
    """Recognize missing entries, as of a gradient not summed over a broadcast axis."""
    there = analytic != 0
    short = (expected != 0) & ~there
    size = np.abs(expected).max(initial=0.0)
    if np.abs(analytic - expected)[there].max() > CLOSE * size:
        return None
    count, every = np.count_nonzero(short), np.count_nonzero(expected)
    text = f"the nonzero entries are right, and {count} of {every} are missing"
    a, b = part.example, out.example
    if a.size < b.size and _broadcasts(a.shape, b.shape) and _spread(short):
        text += ", as if the gradient were not summed over all broadcast axes"
    elif assigned(there, expected != 0):
        text += ", as if the gradient were assigned, and not added, at repeated indices"
    return text


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(small, large) == large
    except ValueError:
        return False


def _spread(short: NDArray) -> bool:
    """Return True if each input number lacks equally many outputs."""
    counts = np.count_nonzero(short, axis=1)
    return bool(counts.min() == counts.max())


def _missing(analytic: NDArray, expected: NDArray) -> str | None:
    """Recognize a missing term of a simple form: diagonal, constant or of low rank."""
    difference = expected - analytic
    size = np.abs(difference).max(initial=0.0)
    wrong = np.abs(difference) > CLOSE * size
    n_rows, n_columns = np.count_nonzero(wrong.any(axis=1)), np.count_nonzero(wrong.any(axis=0))
    if np.count_nonzero(wrong) < 2:
        return None
    off_diagonal = np.eye(*difference.shape) == 0
    # In a diagonal block, all other entries are 0 anyway.
    square = difference.shape[0] == difference.shape[1]
    off_diagonal_is_right = (
        blocks_agree(analytic[off_diagonal], expected[off_diagonal])
        and not wrong[off_diagonal].any()
    )
    if square and expected[off_diagonal].any() and off_diagonal_is_right:
        return "all but its diagonal is right: a term on the diagonal is missing or wrong"
    first = difference.flat[0]
    if np.abs(difference - first).max() <= CLOSE * size:
        return f"{first:.4g} is missing in every entry: a constant term"
    rank = _rank(difference[np.ix_(wrong.any(axis=1), wrong.any(axis=0))])
    if min(n_rows, n_columns) >= 4 * rank - 1:
        size = min(n_rows, n_columns)
        return f"the error has rank {rank} of {size}: a mean or sum term is probably missing"
    return None


def _rank(matrix: NDArray) -> int:
    """Return the numerical rank; full rank for a matrix too large to decompose."""
    if matrix.size > _MOST_DECOMPOSED:
        return int(min(matrix.shape))
    sizes = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(sizes > CLOSE * sizes[0]))


def _conjugated(rows: NDArray) -> NDArray:
    """Negate the entries of imaginary parts along the last axis."""
    changed = rows.copy()
    changed[:, 1::2] *= -1
    return changed
