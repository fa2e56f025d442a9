"""What a check found, and what it says of that: the verdict, a sentence, the worst entries."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .._kernels.rungs import COARSE
from .._reals import reals
from .analytic import Jacobian
from .causes import Causes
from .derivative import GivenDerivative
from .entries import Entries
from .numerical import Looks
from .parts import Part, part_at
from .report import Entry
from .rule import (
    FAIL,
    INCONCLUSIVE,
    NONSMOOTH,
    PASS,
    VERDICTS,
    Rule,
    default_resolution,
)
from .subject import Subject
from .text import place, values

_FEW = 8.0  # spacings of x, in which a ladder has no two steps


@dataclass
class Outcome:
    """What a check of something finds, which it notes here; what it says of that, in the end."""

    subject: Subject
    derivatives: list[GivenDerivative]
    rule: Rule
    fast_mode: bool
    entries: Entries = field(default_factory=Entries)
    jacobians: dict[str, Jacobian] = field(default_factory=dict)
    whole: Sequence[Looks] = ()  # at all entries by an input
    findings: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)  # what matters less than a wrong entry
    undecided: str | None = None  # why there is no verdict, beside the entries
    narrow: str = ""  # the format that f computes in, if it is not that of its results

    @cached_property
    def verdict(self) -> str:
        """The one of most weight."""
        verdict = PASS if self.undecided is None else INCONCLUSIVE
        if self.findings or self.late:
            verdict = FAIL
        for name in reversed(VERDICTS[:-1]):
            if self.entries.count[name] and VERDICTS.index(name) < VERDICTS.index(verdict):
                verdict = name
        return verdict

    @cached_property
    def failures(self) -> tuple[Entry, ...]:
        """Entries that are not right, the worst first."""
        entries = self.entries
        result = []
        for column, row, form, verdict, (analytic, right, error) in zip(
            entries.columns,
            entries.rows,
            entries.forms,
            entries.verdicts,
            entries.values,
            strict=True,
        ):
            out, part = _part_of(self.subject.kept, row), _part_of(self.subject.active, column)
            allowed = self.rule.atol + self.rule.rtol * abs(right) + error
            difference = abs(analytic - right)
            excess = difference / allowed if allowed > 0 else np.inf
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
                    np.inf if np.isnan(excess) else float(excess),
                    row,
                    column,
                )
            )
        return tuple(sorted(result, key=lambda e: (-_weight(e), -e.excess)))

    @cached_property
    def _causes(self) -> Causes:
        forms = {d.name: d.form for d in self.derivatives}
        return Causes(self.subject, self.jacobians, forms, self.entries.numerical)

    @cached_property
    def _causes_of_blocks(self) -> dict[tuple[str, int, int], str]:
        return self._causes.blocks(self.failures)

    @property
    def blocks(self) -> tuple[str, ...]:
        """What wrong blocks look like as a whole."""
        return tuple(self._of_block(key, text) for key, text in self._causes_of_blocks.items())

    @property
    def reason(self) -> str:
        """All of it in one sentence."""
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
        if verdict == NONSMOOTH:
            kink = "a kink, a jump or an infinite slope"
            text = self._place(worst, f"not to be had: f has {kink} within a step of x")
            step = f"the step is {self._step_of(worst):.2g}"
            return f"{text}; {step}: a shorter step= may end before, unless that is at x itself"
        if verdict == INCONCLUSIVE:
            text = self._place(worst, "not to be confirmed")
            return f"{text}{values(worst)}; {self._obstacle(worst)}"
        if np.isnan(worst.analytic) and np.isnan(worst.numerical):
            text = self._place(worst, "NaN") + values(worst).partition(":")[0]
            return f"{text}, claimed and found alike: equal_nan=True lets that pass"
        return self._mistake(worst)

    def _agreement(self) -> str:
        names, count, left = [d.name for d in self.derivatives], self.entries.left_out, ""
        if count:
            what = "columns that have" if count > 1 else "column that has"
            left = f", but for {count} {what} no step: it is 0, or x is not finite"
        forms = " and ".join(names)
        if self.fast_mode:
            agree, every = (
                f"products of {forms} with random directions are those of differences",
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
            return f"{forms} may be right: rounding of f hides all entries{left}"
        return f"{agree}, but for {hidden} of {total} entries that rounding of f hides{left}"

    def _obstacle(self, entry: Entry) -> str:
        """Say why an entry is not confirmed."""
        if not np.isfinite(self.subject.base[entry.row]):
            return "f is not finite at x"
        if np.isnan(entry.numerical) and self._is_confined(entry):
            return "bounds= leave no room for a difference there; a step of 0 leaves it out"
        if self.narrow and self.narrow != np.dtype(np.float32).name:
            return f"f computes in {self.narrow}, which tells little: check it in float64"
        if self.narrow:
            resolved = default_resolution(float(np.finfo(np.float32).eps))
            return f"f computes in {self.narrow}; rtol={resolved:g} is the default of float32"
        advice = " for float32: try float64" if self.subject.eps > COARSE else ""
        return f"f is noisy or varies too fast there{advice}"

    def _mistake(self, entry: Entry) -> str:
        """Say what is wrong with an entry, and with what is about it."""
        text = self._place(entry, f"wrong{self._by(entry)}") + values(entry)
        if entry.analytic == 0:
            silent = any(d.silent for d in self.derivatives if d.name == entry.form)
            text += f"; {entry.form} returned None" if silent else "; it is claimed to be zero"
        elif self._stands_still():
            text += (
                "; f stands still within the steps that are given: without step= and eps=, it is "
                "asked whether it rounds x to few bits"
            )
        block = entry.form, entry.output, entry.input
        cause = self._causes_of_blocks.get(block) or self._causes.line(entry)
        return text if cause is None else f"{text}; {cause}"

    def _stands_still(self) -> bool:
        """Tell whether all that is wrong is claimed where f does not move by the caller's steps."""
        wrong = (e for e in self.failures if e.verdict == FAIL)
        own_steps = bool(self.whole) and all(look.own_step for look in self.whole)
        return own_steps and all(e.numerical == 0 for e in wrong)

    def _by(self, entry: Entry) -> str:
        """Name the forms of the derivative that are wrong in an entry, if there are several."""
        if len(self.derivatives) == 1:
            return ""
        index = entry.row, entry.column
        wrong = {e.form for e in self.failures if (e.row, e.column) == index and e.verdict == FAIL}
        return f" in {' and '.join(d.name for d in self.derivatives if d.name in wrong)}"

    def _of_block(self, key: tuple[str, int, int], text: str) -> str:
        form, output, position = key
        out, part = self._parts(output, position)
        return f"{form}, output {out.name}, input {part.name}: {text}"

    def _step_of(self, entry: Entry) -> float:
        """Return the length of the steps by which an entry was looked at."""
        look = next(k for k in self.whole if k.part.position == entry.input)
        return float(look.steps[entry.column - look.part.start])

    def _is_confined(self, entry: Entry) -> bool:
        """Tell whether bounds leave a number few others beside it."""
        for look in self.whole:
            steps, column = look.coarse, entry.column - look.part.start
            if look.part.position == entry.input and steps.lows.size:
                x = reals(look.problem.x)[column]
                room = max(steps.highs[column] - x, x - steps.lows[column])
                return bool(room <= _FEW * max(np.spacing(abs(x)), look.eps * abs(x)))
        return False

    def _place(self, entry: Entry, what: str) -> str:
        out, part = self._parts(entry.output, entry.input)
        return place(entry, out.name, part.name, what)

    def _parts(self, output: int, position: int) -> tuple[Part, Part]:
        return part_at(self.subject.kept, output), part_at(self.subject.active, position)


def _weight(entry: Entry) -> int:
    return len(VERDICTS) - VERDICTS.index(entry.verdict)


def _part_of(parts: tuple[Part, ...], number: int) -> Part:
    return next(p for p in parts if p.start <= number < p.stop)
