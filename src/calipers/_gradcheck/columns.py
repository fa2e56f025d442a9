"""Columns of the analytic Jacobian, its largest entries, and its products with random weights."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._core.protocols import NDArray
from .._derivatives.fixed_step import runs
from .._kernels.gradcheck_marks import PRODUCT_SHARE
from .analytic import AnalyticDerivative
from .basis_vectors import (
    Rows,
    UnitVectors,
    enlarge,
    enlarge_by_entries,
    rows_per_block,
    unit_vector,
)
from .entry_rules import Rule

_STORED_BYTES = 1 << 24  # size up to which columns of jvp are stored and not computed again
_TILE = 256  # rows of a matrix whose transposes stay in the cache
_MANY = 64  # rows from which on a few products are cheaper than all rows
_COUNT = 4  # products with weights of rows, and as many with weights of columns
_STEPS = 2**11  # weights are multiples of 1 / 2**11, which are exact in float32
_FEW = 64  # rows at most that are computed one by one
_SPARSE = 1 / 4  # share of nonzeros above which products may miss small entries


class Jacobian(Protocol):
    """The analytic Jacobian as a real matrix, by columns."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def concurrent(self) -> bool:
        """Whether several threads may read columns at once."""
        ...

    @property
    def unit_products(self) -> Rows | None:
        """The results of vjp or jvp for unit vectors, if they are stored."""
        ...

    def columns(self, first: int, last: int, out: NDArray) -> None:
        """Store columns first to last as the rows of `out`."""
        ...

    def enlarge(self, by_row: NDArray, by_column: NDArray) -> None:
        """Raise the largest magnitudes of rows and columns to the finite ones of the matrix."""
        ...


@dataclass
class Dense:
    """A Jacobian stored as an array."""

    matrix: NDArray
    unit_products: Rows | None = None
    concurrent = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    def columns(self, first: int, last: int, out: NDArray) -> None:
        for row in range(0, self.shape[0], _TILE):
            tile = slice(row, row + _TILE)
            out[:, tile] = self.matrix[tile, first:last].T

    def enlarge(self, by_row: NDArray, by_column: NDArray) -> None:
        enlarge(self.matrix, by_row, by_column)


@dataclass
class Sparse:
    """A Jacobian stored as a csc_array without duplicates, or as a `Compact` matrix."""

    matrix: Any
    unit_products: Rows | None = None
    concurrent = True

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.matrix.shape
        return int(rows), int(columns)

    def columns(self, first: int, last: int, out: NDArray) -> None:
        matrix, starts = self.matrix, self.matrix.indptr[first : last + 1]
        stored = slice(starts[0], starts[-1])
        out[:] = 0
        which = np.repeat(np.arange(last - first), np.diff(starts))
        out[which, matrix.indices[stored]] = matrix.data[stored]

    def enlarge(self, by_row: NDArray, by_column: NDArray) -> None:
        matrix, columns = self.matrix, np.arange(self.shape[1])
        which = np.repeat(columns, np.diff(matrix.indptr))
        enlarge_by_entries(matrix.data, matrix.indices, which, by_row, by_column)


class Pushed:
    """A Jacobian whose columns jvp computes: stored if small, else computed when read."""

    def __init__(self, units: UnitVectors) -> None:
        self.shape = units.size, units.count
        self.concurrent = units.concurrent
        stored = not units.compiled and 8 * units.size * units.count <= _STORED_BYTES
        self.units, self._stored = units, units.all() if stored else None

    @property
    def unit_products(self) -> Rows | None:
        return self._stored

    def columns(self, first: int, last: int, out: NDArray) -> None:
        if self._stored is None:
            self.units.rows(first, out)
        else:
            self._stored.read(first, last, out)

    def enlarge(self, by_row: NDArray, by_column: NDArray) -> None:
        if self._stored is not None:
            self._stored.enlarge(by_column, by_row)
            return
        rows, count = self.shape
        block = np.empty((rows_per_block(rows), rows))
        for first in range(0, count, len(block)):
            columns = block[: count - first]
            self.units.rows(first, columns)
            enlarge(columns, by_column[first : first + len(block)], by_row)


@dataclass
class Pulled:
    """A Jacobian whose rows vjp computes, if random products do not suffice."""

    d: AnalyticDerivative
    unit_products: Rows | None = None
    concurrent = True

    @property
    def shape(self) -> tuple[int, int]:
        return self.d.subject.rows, self.d.subject.columns

    def columns(self, first: int, last: int, out: NDArray) -> None:
        self.whole.columns(first, last, out)

    def enlarge(self, by_row: NDArray, by_column: NDArray) -> None:
        self.whole.enlarge(by_row, by_column)

    def row(self, row: int) -> NDArray:
        """Compute one row."""
        return self.d.applied(unit_vector(self.shape[0], row))

    def all_rows(self) -> Rows:
        """Return all rows, which are computed once."""
        if self.unit_products is None:
            self.unit_products = UnitVectors(self.d).all()
        return self.unit_products

    @cached_property
    def whole(self) -> Dense | Sparse:
        """The same Jacobian, stored."""
        rows = self.all_rows()
        return Sparse(rows.columns(), rows) if rows.whole is None else Dense(rows.whole, rows)


def jacobian_of(d: AnalyticDerivative, alone: bool) -> Jacobian:
    """Return the Jacobian of a derivative; `alone` if no other derivative is checked."""
    if d.form == "jvp":
        return Pushed(UnitVectors(d))
    if d.form == "vjp":
        pulled = Pulled(d)
        by_products = alone and d.subject.compiled and d.subject.rows >= _MANY
        return pulled if by_products else pulled.whole
    matrix = d.matrix()
    return Dense(matrix) if isinstance(matrix, np.ndarray) else Sparse(matrix)


def select_columns(jacobian: Jacobian, columns: NDArray) -> NDArray:
    """Return some columns as the rows of a matrix."""
    selected = np.empty((len(columns), jacobian.shape[0]))
    for run in runs(columns):
        first = int(columns[run.start])
        jacobian.columns(first, first + run.stop - run.start, selected[run])
    return selected


def largest_terms(jacobians: Iterable[Jacobian], x: NDArray) -> NDArray:
    """Return the largest finite magnitude of the terms in each row of J @ x, in any form of J."""
    largest_by_form = []
    for jacobian in jacobians:
        rows, count = jacobian.shape
        step, largest = rows_per_block(rows), np.zeros(rows)
        for first in range(0, count, step):
            columns = np.arange(first, min(first + step, count))
            terms = np.abs(select_columns(jacobian, columns) * x[columns, None])
            terms[~np.isfinite(terms)] = 0
            np.maximum(largest, terms.max(axis=0), out=largest)
        largest_by_form.append(largest)
    return np.asarray(np.max(largest_by_form, axis=0))


@dataclass
class Sizes:
    """
    The largest magnitudes and errors in the rows and columns of the Jacobian.

    Magnitudes are those of the analytic Jacobian. Errors are those of numerical entries that are 0
    within their errors, or not resolved.
    """

    rows: NDArray
    columns: NDArray
    is_complete: bool = True  # if False, magnitudes are accumulated during screening

    def __post_init__(self) -> None:
        self.row_errors, self._row_doubts = np.zeros((2, len(self.rows)))
        self.column_errors, self._column_doubts = np.zeros((2, len(self.columns)))

    def of_results(self, form: str) -> tuple[NDArray, NDArray]:
        """Return the largest magnitudes and errors of the entries in each result of a form."""
        if form == "vjp":
            return self.columns, np.fmax(self.column_errors, self._column_doubts)
        return self.rows, np.fmax(self.row_errors, self._row_doubts)

    def doubt(self, rows: NDArray, columns: NDArray, errors: NDArray) -> None:
        """Record errors of entries that are not resolved."""
        errors = np.where(np.isfinite(errors), errors, 0.0)
        np.maximum.at(self._row_doubts, rows, errors)
        np.maximum.at(self._column_doubts, columns, errors)

    def note(self, columns: NDArray, values: NDArray, errors: NDArray) -> None:
        """Record errors of numerical columns, a row each."""
        errors = np.where((np.abs(values) <= errors) & np.isfinite(errors), errors, 0.0)
        np.maximum(self.row_errors, errors.max(axis=0, initial=0.0), out=self.row_errors)
        largest = np.maximum(self.column_errors[columns], errors.max(axis=1, initial=0.0))
        self.column_errors[columns] = largest

    @classmethod
    def of(cls, jacobians: dict[str, Jacobian], rows: int, columns: int) -> "Sizes":
        """Measure the finite entries of Jacobians."""
        sizes = cls(np.zeros(rows), np.zeros(columns))
        for jacobian in jacobians.values():
            jacobian.enlarge(sizes.rows, sizes.columns)
        return sizes


def _weights(count: int, size: int, random: np.random.Generator) -> NDArray:
    """Draw weights with magnitudes from 1 to 2 and random signs."""
    drawn = random.integers(-_STEPS, _STEPS, (count, size), dtype=np.int16) / _STEPS
    return np.asarray(drawn + np.copysign(1.0, drawn))


class Products(NamedTuple):
    """
    Products of the analytic Jacobian with random weights of rows, and weights of columns.

    A wrong entry contributes one to two times its error. Two wrong entries in a column cancel in
    one product with probability about 0.1, since a tenth of the tolerance is resolved, and hardly
    ever in all products: this is Freivalds' test of matrix products (MFCS 1979).
    """

    pulled: Pulled
    of_rows: NDArray
    images: NDArray
    of_columns: NDArray
    sampled_rows: dict[int, NDArray]  # some rows, by their index

    @classmethod
    def of(cls, pulled: Pulled, random: np.random.Generator) -> "Products | None":
        """Compute products of a derivative; None if some of its rows are not sparse."""
        sizes = pulled.shape
        sampled_rows = {row: pulled.row(row) for row in (0, sizes[0] // 2)}
        if any(np.count_nonzero(row) > _SPARSE * row.size for row in sampled_rows.values()):
            return None
        rows, columns = (_weights(_COUNT, size, random) for size in sizes)
        images = np.array([pulled.d.applied(w) for w in rows], float)
        return cls(pulled, rows, images, columns, sampled_rows)

    def confirm(
        self, sizes: NDArray, least: float, sums: NDArray, taken: NDArray, rule: Rule
    ) -> bool:
        """
        Return True if rows with `sizes` below `least` and the sampled rows are right.

        Products of all rows cannot resolve such small rows. `sums` are the numerical slopes of the
        `taken` columns, summed with their weights.
        """
        nothing = sizes == 0
        if nothing.any():
            images = (self.pulled.d.product(w * nothing)[taken] for w in self.of_rows)
            if any(np.any(image != 0) for image in images):
                return False
        rows = np.union1d(np.flatnonzero(~nothing & (sizes < least)), [*self.sampled_rows])
        differences = np.abs(self._of(rows, self.of_columns * taken) - sums[:, rows])
        share = min(rule.share, PRODUCT_SHARE)
        return bool(np.all(differences <= share * (rule.atol + rule.rtol * sizes[rows])))

    def _of(self, rows: NDArray, weights: NDArray) -> NDArray:
        """Return products of some rows with weights of columns."""
        if len(rows) > _FEW:
            every = self.pulled.all_rows()
            return np.array([every.times(w)[rows] for w in weights])
        sampled = self.sampled_rows
        selected = (sampled[k] if k in sampled else self.pulled.row(k) for k in rows.tolist())
        return np.array([weights @ row for row in selected]).T
