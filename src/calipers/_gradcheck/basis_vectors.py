"""Call vjp or jvp with unit vectors, which gives the rows or the columns of the Jacobian."""

import contextlib
import threading
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._core.dtypes import as_real_vector
from .._core.protocols import NDArray
from .._derivatives.fixed_step import aligned
from .._derivatives.function import REAL, WIRTINGER, Problem
from .._execution.run import run
from .._execution.tasks import Buffers
from .._kernels.gradcheck import AT_POINTS
from .analytic import AnalyticDerivative
from .entry_rules import all_agree
from .jacobian_storage import Rows

_MANY = 64  # unit vectors from which on a compiled loop is worth its compilation
FEW_VECTORS = 4  # unit vectors that are passed one by one rather than in a batch
_TOGETHER = 128  # unit vectors in one batch at most
_BATCH_BYTES = 1 << 24  # size of the results of one batch at most


@dataclass
class _Loop:
    """A compiled function, called with unit vectors in a compiled loop."""

    problem: Problem
    length: float  # of the unit vectors, as a power of 2

    def store(self, start: int, out: NDArray) -> None:
        """Store a row of values for each unit vector from `start`."""
        problem = self.problem
        assert problem.native is not None
        kind, count = problem.base.dtype, len(out)
        rows = out if out.dtype == kind else aligned(out.shape, kind)
        zeros, like = as_real_vector(problem.x), np.empty(problem.native_shape, problem.dtype)
        numbers, ones = np.arange(start, start + count), np.full(count, self.length, zeros.dtype)
        points = zeros, numbers, ones, like
        kernel = problem.native.entry(AT_POINTS)
        kernel(problem.native.form, np.empty_like(problem.x), *points, rows, np.empty(1, np.int64))
        if rows is not out:
            out[:] = rows


@dataclass
class _Filling:
    """Task for `run` that stores the results of a loop, in several threads."""

    loop: _Loop
    rows: Rows
    calls = 1.0

    @property
    def problem(self) -> Problem:
        return self.loop.problem

    def results(self, count: int) -> Buffers:
        """Return arrays with one item per row, as `run` needs: `rows` stores the results."""
        return (np.empty(count, np.int8),)

    def __call__(self, start: int, outs: Buffers) -> None:
        self.rows.fill(start, start + len(outs[0]), self.loop.store)


class UnitVectors:
    """A derivative called with unit vectors times `length`: compiled, in batches, or one by one."""

    def __init__(self, d: AnalyticDerivative, length: float = 1.0) -> None:
        subject = d.subject
        back = d.form == "vjp"
        self.count, self.size = (subject.rows, subject.columns)[:: 1 if back else -1]
        self._d, self._length = d, length
        self._one_at_a_time = threading.Lock()
        self._work = _compiled(d, length) if self.count >= _MANY else None
        self._batches = d.of_library and self.count > FEW_VECTORS
        self._together = min(_TOGETHER, max(2, _BATCH_BYTES // (8 * self.size)))
        self._first: NDArray | None = None  # batch
        if self._work is not None or self._batches:
            self._compare(d.applied(length * unit_vector(self.count, 0)))

    @property
    def compiled(self) -> bool:
        return self._work is not None

    @property
    def loop(self) -> Problem | None:
        """The compiled derivative, if another loop can call it in doubles; see `record_calls`."""
        problem = None if self._work is None else self._work.problem
        return problem if problem is not None and problem.base.dtype == np.dtype(float) else None

    def record_calls(self, count: int) -> bool:
        """Count calls by another loop, and return True if they modified no argument."""
        pure = self._is_pure()
        self._counted(count if pure else 0)
        return pure

    @property
    def concurrent(self) -> bool:
        """Whether several threads may call the derivative at once."""
        native = None if self._work is None else self._work.problem.native
        return native is not None and native.threads > 1

    def _compare(self, alone: NDArray) -> None:
        """Disable the loop and batches if they do not reproduce the result of a single call."""
        first = np.empty((1, self.size))
        tolerance = 256 * self._d.subject.eps * float(np.abs(alone).max(initial=0.0))
        try:
            if self._work is not None:
                self._work.store(0, first)
            else:
                first = self._first = self._batch(0, min(self._together, self.count))
            same = not self._d.touched and all_agree(first[0], alone, tolerance)
        except Exception:  # a derivative that is meant for single calls may raise anything
            same = False
        if not same:
            self._work, self._batches, self._first = None, False, None

    def all(self) -> Rows:
        """Return a row for each unit vector."""
        if self._work is not None:
            with contextlib.suppress(
                Exception
            ):  # a call from Python raises the error again, with its message
                rows = Rows(self.count, self.size)
                run(_Filling(self._work, rows), self.count)
                if self.record_calls(self.count):
                    return rows
            self._work = None
        rows = Rows(self.count, self.size)
        rows.fill(0, self.count, self._ask, self._together if self._batches else 0)
        return rows

    def rows(self, start: int, out: NDArray) -> None:
        """Store in `out` a row for each unit vector from `start`."""
        count, work = len(out), self._work
        if work is not None:
            with contextlib.suppress(Exception):  # as above
                work.store(start, out)
                if self.record_calls(count):
                    return
            self._work = None
        self._ask(start, out)

    def _ask(self, start: int, out: NDArray) -> None:
        """Store in `out` a row for each unit vector from `start`, by calls from Python."""
        count = len(out)
        step = self._together if self._batches else 1
        for first in range(0, count, step):
            last = min(first + step, count)
            if self._first is not None and start + last <= len(self._first):
                out[first:last] = self._first[start + first : start + last]
            elif self._batches:
                out[first:last] = self._batch(start + first, start + last)
            else:
                out[first] = self._d.product(self._length * unit_vector(self.count, start + first))

    def _is_pure(self) -> bool:
        """Return True if no thread of the loop modified its arguments."""
        assert self._work is not None
        problem, subject = self._work.problem, self._d.subject
        assert problem.native is not None
        copies = [form.before[: len(problem.before)] for form in problem.native.forms]
        changed = (subject.changed(list(x), problem.kwargs) for x in (problem.before, *copies))
        self._d.touched += dict.fromkeys(chain.from_iterable(changed))
        return not self._d.touched

    def _counted(self, count: int) -> None:
        with self._one_at_a_time:
            self._d.calls += count

    def _batch(self, first: int, last: int) -> NDArray:
        units = np.zeros((last - first, self.count))
        units[np.arange(last - first), np.arange(first, last)] = self._length
        return self._d.batch_products(units)


def unit_vector(size: int, k: int) -> NDArray:
    """Return the unit vector with a 1 at index k."""
    unit = np.zeros(size)
    unit[k] = 1
    return unit


def _compiled(d: AnalyticDerivative, length: float) -> _Loop | None:
    """Return a loop that calls a compiled derivative with unit vectors; None if there is none."""
    subject = d.subject
    one_to_one = len(subject.active) == 1 and not subject.several and not d.conjugate
    call, fills = d.call.direct, d.call.likes is not None
    if not one_to_one or not isinstance(call, Dispatcher):
        return None
    source, taken = subject.active_outputs[0].example, subject.active[0].example
    if d.form == "jvp":
        source, taken = taken, source
    problem = Problem(
        call,
        tuple(subject.arguments()),
        np.zeros(source.shape, source.dtype),
        (),
        subject.named(),
        WIRTINGER if source.dtype.kind == "c" else REAL,
        False,
        taken if fills else None,
        base_value=np.zeros(taken.shape, taken.dtype),
    )
    return None if problem.native is None else _Loop(problem, length)
