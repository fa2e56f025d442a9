"""Entries of a Jacobian that are not right, as a check comes upon them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._protocols import NDArray
from .rule import PASS, VERDICTS

_KEPT = 100_000  # entries that a report can show one by one; more are counted
_KEPT_NUMBERS = 1 << 22  # of numerical columns


@dataclass
class Entries:
    """Entries that are not right, in real numbers: column, row, form of the derivative, values."""

    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    columns: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    values: list[tuple[float, float, float]] = field(default_factory=list)
    numerical: dict[int, NDArray] = field(default_factory=dict)  # by column
    largest_error: float = 0.0
    left_out: int = 0  # columns
    hidden: int = 0  # that pass since rounding of f hides whether they are right
    products: int = 0  # by which all are told to be right, and not one by one

    def keep(self, column: int, numerical: NDArray) -> None:
        """Keep a numerical column for the diagnosis, unless there are too many."""
        if len(self.numerical) * numerical.size < _KEPT_NUMBERS:
            self.numerical[column] = numerical.copy()  # and not what it is a part of

    def add(
        self,
        columns: NDArray,
        rows: NDArray,
        form: str,
        verdicts: NDArray,
        own: NDArray,
        d: NDArray,
        e: NDArray,
    ) -> None:
        """Note entries."""
        for k, verdict in enumerate(VERDICTS):
            (which,) = np.nonzero(verdicts == k)
            self.count[verdict] += len(which)
            if verdict == PASS:
                continue
            for i in which[: max(0, _KEPT - len(self.rows))].tolist():
                self.columns.append(int(columns[i]))
                self.rows.append(int(rows[i]))
                self.forms.append(form)
                self.verdicts.append(verdict)
                self.values.append((float(own[i]), float(d[i]), float(e[i])))

    def let_pass(self, which: NDArray) -> None:
        """Let entries pass that rounding hides, by their places in the lists."""
        left_out = set(which.tolist())
        for k in left_out:
            self.count[self.verdicts[k]] -= 1
        self.count[PASS] += len(left_out)
        self.hidden += len(left_out)
        lists: tuple[list[Any], ...] = (
            self.columns,
            self.rows,
            self.forms,
            self.verdicts,
            self.values,
        )
        for kept in lists:
            kept[:] = [item for k, item in enumerate(kept) if k not in left_out]
