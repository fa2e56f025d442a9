"""Summarize a check: the verdict, its reason, the next step and the worst entries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .._core.dtypes import as_real_vector, is_double
from .._core.protocols import NDArray
from .._derivatives.steps import COMPLEX_STEP
from .._derivatives.thresholds import THRESHOLDS
from .analytic import AnalyticDerivative
from .calls import Call, in_float64
from .columns import Jacobian
from .entry_rules import FAIL, INCONCLUSIVE, NONSMOOTH, PASS, VERDICTS, Rule
from .flatten import Segment, segment_at
from .function_at_point import FunctionAtPoint
from .mistakes import BlockDiagnosis
from .numerical import FiniteDifferences
from .report_data import Entry, ScaleTable
from .scale_table import (
    contradiction,
    explanation,
    grows,
    has_kink,
    is_near_kink,
    is_staircase,
    kink,
)
from .text import measured

_MAX_ENTRIES = 100_000  # entries that a report can show one by one; more are counted
_MAX_TABLES = 4  # entries of each verdict whose scales are retained for the report
_MAX_NUMERICAL_VALUES = 1 << 22  # numbers in the numerical columns that are retained for the report


@dataclass
class FlaggedEntries:
    """Entries that do not pass, as real numbers: column, row, form of the derivative, values."""

    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VERDICTS, 0))
    columns: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    values: list[tuple[float, float, float]] = field(default_factory=list)
    numerical: dict[int, NDArray] = field(default_factory=dict)  # by column
    # By verdict: the severity of the worst entries, their column, row and form, and their scales.
    worst: dict[str, list[tuple[list[float], tuple[int, int, str], ScaleTable]]] = field(
        default_factory=dict
    )
    errors: dict[int, NDArray] = field(default_factory=dict)  # of these
    tied: set[tuple[int, int]] = field(default_factory=set)  # columns and rows of entries
    largest_error: float = 0.0
    left_out: int = 0  # columns
    hidden: int = 0  # entries that pass because rounding of f hides whether they are right
    products: int = 0  # random products that confirm all entries; 0 if each was compared

    def keep(self, column: int, numerical: NDArray, error: NDArray) -> None:
        """Store a numerical column and its errors, unless there are too many."""
        if len(self.numerical) * numerical.size < _MAX_NUMERICAL_VALUES:
            self.numerical[column] = numerical.copy()  # a view would hold its whole block
            self.errors[column] = error.copy()

    def add(
        self,
        columns: NDArray,
        rows: NDArray,
        form: str,
        verdicts: NDArray,
        analytic: NDArray,
        numerical: NDArray,
        error: NDArray,
        rule: Rule | None = None,
        table: Callable[[int], ScaleTable | None] = lambda _: None,
    ) -> None:
        """
        Count entries by verdict, and store those that do not pass.

        The worst of them by the `rule` are stored with their scales, which `table` returns.
        """
        for k, verdict in enumerate(VERDICTS):
            (which,) = np.nonzero(verdicts == k)
            self.count[verdict] += len(which)
            if verdict == PASS:
                continue
            for i in which[: max(0, _MAX_ENTRIES - len(self.rows))].tolist():
                self.columns.append(int(columns[i]))
                self.rows.append(int(rows[i]))
                self.forms.append(form)
                self.verdicts.append(verdict)
                self.values.append((float(analytic[i]), float(numerical[i]), float(error[i])))
            if rule is None or not len(which):
                continue
            worst = self.worst.setdefault(verdict, [])
            severity = rule.severity(analytic[which], numerical[which], error[which])
            for index in _worst_first(severity)[:_MAX_TABLES].tolist():
                i, size = which[index], severity[index].tolist()
                if len(worst) == _MAX_TABLES and size <= worst[-1][0]:
                    break
                scales = table(i)
                if scales is not None:
                    entry = int(columns[i]), int(rows[i]), form
                    worst[_MAX_TABLES - 1 :] = [(size, entry, scales)]
                    worst.sort(key=lambda item: item[0], reverse=True)  # equal ones stay in order

    @property
    def scales(self) -> dict[tuple[int, int, str], ScaleTable]:
        """The scales of the worst entries by their column, row and form."""
        return {entry: scales for worst in self.worst.values() for _, entry, scales in worst}

    def accused(self, part: Segment) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Return the indices of wrong entries of an input, their columns, rows and differences."""
        of_part = range(part.start, part.stop)
        indices = np.array(
            [k for k, v in enumerate(self.verdicts) if v == FAIL and self.columns[k] in of_part],
            int,
        )
        columns, rows = (np.array(each, int)[indices] for each in (self.columns, self.rows))
        values = np.array(self.values).reshape(-1, 3)[indices]
        return indices, columns, rows, np.abs(values[:, 0] - values[:, 1])

    def call_tied(self, indices: NDArray) -> None:
        """Change the verdict of wrong entries to NONSMOOTH: f is not differentiable there."""
        for k in indices.tolist():
            self.count[FAIL] -= 1
            self.count[NONSMOOTH] += 1
            self.verdicts[k] = NONSMOOTH
            self.tied.add((self.columns[k], self.rows[k]))


# Options of gradcheck with which f is called differently than by `jacobian` without options.
_OF_CALLS = frozenset(
    {"args", "kwargs", "argnums", "out_like", "step", "eps", "scale", "bounds", "masked", "inplace"}
)
_NO_CHANGE = (
    "f does not change within the steps that were passed: without step= and eps=, "
    "calipers tests whether f rounds x to few bits"
)
_TOO_SMALL = "too small to be checked (below the rounding error of f)"
_TIED = (
    "slopes along single elements of x do not add up to the slope along their sum, as where "
    "values tie or eigenvalues are equal"
)
_FEW = 8.0  # spacings of x: bounds nearer than that leave no two steps


@dataclass
class CheckOutcome:
    """The results of a check, from which its report is made."""

    subject: FunctionAtPoint
    derivatives: list[AnalyticDerivative]
    rule: Rule
    fast_mode: bool
    allow: Sequence[str] = ()
    entries: FlaggedEntries = field(default_factory=FlaggedEntries)
    jacobians: dict[str, Jacobian] = field(default_factory=dict)
    whole: Sequence[FiniteDifferences] = ()  # of inputs whose entries are all compared
    findings: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # findings less severe than a wrong entry
    undecided: str | None = None  # why there is no verdict, apart from entries

    @cached_property
    def verdict(self) -> str:
        """The most severe verdict of the entries and findings."""
        verdict = PASS if self.undecided is None else INCONCLUSIVE
        if self.findings or self.late:
            verdict = FAIL
        for name in reversed(VERDICTS[:-1]):
            if self.entries.count[name] and VERDICTS.index(name) < VERDICTS.index(verdict):
                verdict = name
        return verdict

    @cached_property
    def failures(self) -> tuple[Entry, ...]:
        """Entries that do not pass, the worst first."""
        entries = self.entries
        if not entries.rows:
            return ()
        result, scales = [], entries.scales
        numbers = np.array(entries.values).T
        about = entries.columns, entries.rows, entries.forms, entries.verdicts, entries.values
        for column, row, form, verdict, (analytic, right, error), excess in zip(
            *about, self.rule.excess(*numbers).tolist(), strict=True
        ):
            out = _part_of(self.subject.active_outputs, row)
            part = _part_of(self.subject.active, column)
            result.append(
                Entry(
                    verdict,
                    form,
                    out.position,
                    *out.index(row),
                    part.position,
                    *part.index(column),
                    analytic,
                    right,
                    error,
                    excess,
                    row,
                    column,
                    f"d {out.element(row)} / d {part.element(column)}",
                    scales.get((column, row, form)),
                )
            )
        order = _worst_first(self.rule.severity(*numbers)).tolist()
        return tuple(sorted((result[k] for k in order), key=_weight, reverse=True))

    @cached_property
    def _causes(self) -> BlockDiagnosis:
        forms = {d.name: d.form for d in self.derivatives}
        of_torch = any(d.of_library and not d.conjugate for d in self.derivatives)
        # Only gradients have labels other than out[0], out[1], ...
        of_backward = of_torch and self.subject.output_labels is not None
        return BlockDiagnosis(
            self.subject, self.jacobians, forms, self.entries.numerical, of_backward
        )

    @cached_property
    def _causes_of_blocks(self) -> dict[tuple[str, int, int], str]:
        return self._causes.blocks(self.failures)

    @property
    def blocks(self) -> tuple[str, ...]:
        """Descriptions of wrong blocks as a whole."""
        if not self.failures:
            return ()
        return tuple(self._of_block(key, text) for key, text in self._causes_of_blocks.items())

    @property
    def is_allowed(self) -> bool:
        """Whether the verdict is one that the caller accepts."""
        return self.verdict in self.allow

    @property
    def reason(self) -> str:
        """The reason of the verdict in one sentence."""
        return f"{self._reason()}{'; accepted by allow=' * self.is_allowed}"

    def _reason(self) -> str:
        failures, verdict = self.failures, self.verdict
        if self.findings:
            return self.findings[0]
        if self.late and not (failures and failures[0].verdict == FAIL):
            return self.late[0]
        if verdict == PASS:
            return self._agreement()
        if verdict == INCONCLUSIVE and self.undecided is not None:
            return self.undecided
        worst = failures[0]
        if verdict == NONSMOOTH and (worst.column, worst.row) in self.entries.tied:
            text = f"{worst.name} is undefined: {_TIED}"
            advice = '; move x, or pass allow={"NONSMOOTH"}'
            return text if self.is_allowed else f"{text}{advice}"
        if verdict == NONSMOOTH:
            return self._kink(worst)
        if verdict == INCONCLUSIVE:
            obstacle, _ = self._obstacle(worst)
            by_scales = "" if worst.scales is None else contradiction(worst.scales)
            has_values = by_scales and by_scales in obstacle  # which has the numerical values
            values = f"analytic {worst.analytic:.6g}" if has_values else measured(worst)
            return f"{worst.name} could not be confirmed: {values}; {obstacle}"
        if _are_nan(worst):
            return f"{worst.name} is NaN, analytic and numerical; equal_nan=True accepts that"
        return self._mistake(worst)

    def next_step(self, call: Call) -> str:
        """Return code for the next step after a call, or ""."""
        verdict, failures = self.verdict, self.failures
        if self.findings or verdict == PASS or self.is_allowed:
            return ""
        if verdict == NONSMOOTH:
            return call.text(allow={*call.arguments.get("allow", ()), NONSMOOTH})
        if verdict == INCONCLUSIVE:
            if self.undecided is None:
                return self._obstacle(failures[0])[1](call)
            return call.text(fast_mode=None) if self.fast_mode else ""
        if not failures or failures[0].verdict != FAIL:
            return ""
        if _are_nan(failures[0]):
            return call.text(equal_nan=True)
        if self._has_plain_jacobian(call):
            return f"calipers.jacobian({call.f}, {call.each_input()})  # the numerical Jacobian"
        return f"{call.text(raise_exception=False)}.failures"

    def _has_plain_jacobian(self, call: Call) -> bool:
        """Whether `jacobian` takes f and its input as they are."""
        alone = not isinstance(call.arguments["inputs"], (tuple, list))
        options = set(call.arguments).isdisjoint(_OF_CALLS) and call.checker == "gradcheck"
        of_library = any(d.of_library for d in self.derivatives)
        structure = self.subject.structure
        of_containers = structure is not None and bool(structure.names or structure.outputs)
        return alone and options and not (self.subject.several or of_containers or of_library)

    def _agreement(self) -> str:
        names, count, left = [d.name for d in self.derivatives], self.entries.left_out, ""
        if count:
            what = "columns" if count > 1 else "column"
            left = f", except for {count} {what} without a step (it is 0, or x is not finite)"
        forms = " and ".join(names)
        if self.fast_mode:
            agree, every = (
                f"products of {forms} with random directions agree with differences",
                "",
            )
        else:
            verb = "agree" if len(names) > 1 else "agrees"
            agree, every = f"{forms} {verb} with differences", " in every entry"
            if self.entries.products:
                every += f", by {self.entries.products} products with random cotangents"
        hidden, total = self.entries.hidden, sum(self.entries.count.values())
        if not hidden:
            return f"{agree}{every}{left}"
        if hidden == total and len(self.whole) == len(self.subject.active):
            return f"{forms} may be right: all entries are {_TOO_SMALL}{left}"
        verb = "are" if hidden > 1 else "is"
        return f"{agree}, except for {hidden} of {total} entries that {verb} {_TOO_SMALL}{left}"

    def _obstacle(self, entry: Entry) -> tuple[str, Callable[[Call], str]]:
        """Return why an entry is not confirmed, and a function that writes the next step."""
        if not np.isfinite(self.subject.base[entry.row]):
            return "f is not finite at x", lambda _: ""
        if np.isnan(entry.numerical) and self._is_confined(entry):
            text = "bounds= leave no room for a difference there; step=0 excludes an element"
            return text, lambda call: call.text(bounds=None)
        if entry.analytic != 0 and self._is_constant_at_user_steps(entry.verdict):
            return _NO_CHANGE, lambda call: call.text(step=None, eps=None)
        text = "" if entry.scales is None else explanation(entry.scales)
        text = text or "f is noisy or varies too fast there"
        if is_double(self.subject.eps) and entry.scales and is_staircase(entry.scales):
            if entry.error > THRESHOLDS.rtol_single * abs(entry.numerical):
                return f"{text}: it computes in few bits, check it in float64", lambda _: ""
            rtol = THRESHOLDS.rtol_single
            text = f"{text}; rtol={rtol:g} is the default of float32"
            return text, lambda call: call.text(rtol=rtol)
        if not is_double(self.subject.eps):
            return f"{text}; try float64", lambda call: call.text(
                inputs=call.each_input(in_float64)
            )
        none = any(d.of_library for d in self.derivatives)
        none |= entry.scales is not None and grows(entry.scales)

        def by_complex_steps(call: Call) -> str:
            takes_none = none or call.arguments.get("method") == COMPLEX_STEP
            return "" if takes_none else f"{call.text(method=COMPLEX_STEP)}  # for analytic f"

        return text, by_complex_steps

    def _kink(self, entry: Entry) -> str:
        """Describe an entry that is undefined, and what the caller may do."""
        table = entry.scales
        is_near = table is not None and table.near_kink >= 0 and not has_kink(table)
        text = explanation(table, nonsmooth=True) if table is not None else ""
        text = text or "f has a kink or a jump there, or is not finite next to x"
        if not np.isfinite(self.subject.base[entry.row]):
            text = "f is not finite at x"
        advice = f'; move x{", pass a shorter step=," * is_near} or pass allow={{"NONSMOOTH"}}'
        return f"{entry.name} is undefined: {text}{advice * (not self.is_allowed)}"

    def _mistake(self, entry: Entry) -> str:
        """Describe a wrong entry, and its block or row if these are wrong as a whole."""
        text = f"{entry.name} is wrong{self._by(entry)}: {measured(entry)}"
        if entry.analytic == 0:
            returned_none = any(d.returns_none for d in self.derivatives if d.name == entry.form)
            text += f"; {entry.form} returned None" if returned_none else ""
        elif self._is_constant_at_user_steps(entry.verdict):
            text += f"; {_NO_CHANGE}"
        if entry.scales is not None and is_near_kink(entry.scales):
            text += f"; {kink(entry.scales)}"
        block = entry.form, entry.output, entry.input
        cause = self._causes_of_blocks.get(block) or self._causes.column_or_row(entry)
        return text if cause is None else f"{text}; {cause}"

    def _is_constant_at_user_steps(self, verdict: str) -> bool:
        """Return True if f does not change over the caller's steps in any entry of a verdict."""
        user_steps = bool(self.whole) and all(differences.user_step for differences in self.whole)
        return user_steps and all(e.numerical == 0 for e in self.failures if e.verdict == verdict)

    def _by(self, entry: Entry) -> str:
        """Name the forms of the derivative that are wrong in an entry, if several are checked."""
        if len(self.derivatives) == 1:
            return ""
        index = entry.row, entry.column
        wrong = {e.form for e in self.failures if (e.row, e.column) == index and e.verdict == FAIL}
        return f" in {' and '.join(d.name for d in self.derivatives if d.name in wrong)}"

    def _of_block(self, key: tuple[str, int, int], text: str) -> str:
        form, output, position = key
        out = segment_at(self.subject.active_outputs, output)
        part = segment_at(self.subject.active, position)
        return f"{form}, d {out.label} / d {part.label}: {text}"

    def _is_confined(self, entry: Entry) -> bool:
        """Return True if bounds leave only a few numbers next to an element."""
        for differences in self.whole:
            steps, column = differences.coarse, entry.column - differences.part.start
            if differences.part.position == entry.input and steps.lows.size:
                x = as_real_vector(differences.problem.x)[column]
                available = max(steps.highs[column] - x, x - steps.lows[column])
                return bool(available <= _FEW * max(np.spacing(abs(x)), differences.eps * abs(x)))
        return False


def _worst_first(severity: NDArray) -> NDArray:
    """Return the order of entries by their severity; equal ones stay in order."""
    return np.lexsort((-severity[:, 1], -severity[:, 0]))


def _are_nan(entry: Entry) -> bool:
    return bool(np.isnan(entry.analytic) and np.isnan(entry.numerical))


def _weight(entry: Entry) -> int:
    return len(VERDICTS) - VERDICTS.index(entry.verdict)


def _part_of(parts: tuple[Segment, ...], number: int) -> Segment:
    return next(p for p in parts if p.start <= number < p.stop)
