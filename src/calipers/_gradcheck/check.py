"""One check, from the tests without differences to the verdict."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from .._kernels.differences import NOISY
from .._kernels.rungs import COARSE
from .._protocols import NDArray
from .._reals import reals
from . import identities
from .analytic import Jacobian, Sizes, jacobian_of
from .blocks import WrongFormError
from .causes import Causes
from .derivative import GivenDerivative
from .exhaustive import Entries, examine
from .numerical import Looks, Way, looks
from .parts import Part, part_at
from .projected import CLEAR, UNKNOWN, Probe, column_of
from .report import Entry, GradcheckReport
from .rule import (
    FAIL,
    INCONCLUSIVE,
    NONSMOOTH,
    PASS,
    VERDICTS,
    Rule,
    default_resolution,
    disputed,
    rounding_of,
    sided,
)
from .second_look import MANY
from .subject import Subject
from .text import place, values

_SHOWN = 2  # wrong columns that products are traced to
_SUSPECTS = 8  # columns that a product may lead to
_FEW = 8.0  # spacings of x, in which a ladder has no two steps
_MODERATE = 1 << 24  # numbers that a call of f for each column takes and gives


@dataclass
class Check:
    """One check, from the tests without differences to the verdict."""

    subject: Subject
    derivatives: list[GivenDerivative]
    rule: Rule
    resolution: float
    fast_mode: bool
    seed: int
    allow: tuple[str, ...]
    cause: BaseException | None = None  # of what a derivative could not be asked
    any_slope: bool = True  # whether some entry is not zero, as far as all were looked at
    _whole: Sequence[Looks] = ()  # at all entries by an input
    _undecided: str | None = None
    _narrow: str = ""  # the format that f computes in, if it is not that of its results
    _eps: float = 0.0  # the spacing of the numbers that f computes with

    def run(
        self,
        steps: list[dict[str, Any]],
        way: Way,
        nondet_tol: float,
        undefined: set[str],
        batched: dict[str, bool],
        primals: dict[str, Any],
    ) -> GradcheckReport:
        """
        Check all; `steps` are for each input, and `undefined` names what is given None.

        Derivatives that are asked note in `primals` what they take for f's value.
        """
        subject = self.subject
        random = np.random.default_rng(self.seed)
        self._entries = Entries()
        findings = list(identities.mutation("f", subject.touched))
        findings += identities.determinism(subject, nondet_tol)
        if findings:  # nothing else can be trusted
            return self._reported(findings, "", {})
        if not subject.rows or not subject.columns:
            return self._empty()
        jacobians: dict[str, Jacobian] = {}
        late: list[str] = []  # what matters less than a wrong entry
        own: dict[str, list[str]] = {}  # what is found of one derivative
        steady: dict[str, bool] = {}  # whether it gives the same twice
        others: list[str] = []  # and of it beside another one
        try:
            if not self.fast_mode:
                jacobians = self._jacobians()
            for d in self.derivatives:
                own[d.name] = [
                    *identities.storing(d, random, nondet_tol),
                    *identities.reentrance(d, random, nondet_tol),
                ]
                steady[d.name] = not own[d.name]
                if d.form in undefined:
                    late += self._told(identities.none_directions(d, self.rule.rtol))
                if batched.get(d.form):
                    late += self._told(identities.batches(d, random))
            for source, value in primals.items():
                others += identities.primal(source, value, subject, self._near)
            vouched, adjoint = self._adjoint(random)
            others += adjoint
            with np.errstate(all="ignore"):
                jacobians, sizes = self._differences(jacobians, steps, way, random, vouched)
            for d in self.derivatives:  # which is measured by sizes, known by now
                lines = jacobians[d.name].lines if jacobians else None
                known = None if sizes is None else sizes.of_results(d.form)
                given = nondet_tol, self.rule, known, lines, self._eps
                own[d.name] += identities.linearity(d, random, *given)
        except WrongFormError as wrong:
            others.append(str(wrong))
            jacobians, late = {}, []
        for d in self.derivatives:  # what is changed, by any call, explains what else is found
            findings += identities.mutation(d.name, d.touched)
            failed = others or own.get(d.name) or self._entries.count[FAIL]
            if (failed or d.strays) and steady.get(d.name) and not d.touched:
                findings += self._told(identities.memory(d, random, nondet_tol))
            findings += own.get(d.name, ())
        nothing = ""
        if self._entries.left_out == subject.columns and not (findings or others or late):
            nothing = "no element of the inputs is finite and has a step"
        return self._reported(findings + others, nothing, jacobians, bool(nothing), late)

    def _jacobians(self) -> dict[str, Jacobian]:
        return {d.name: jacobian_of(d) for d in self.derivatives}

    def _differences(
        self,
        jacobians: dict[str, Jacobian],
        steps: list[dict[str, Any]],
        way: Way,
        random: np.random.Generator,
        vouched: bool,
    ) -> tuple[dict[str, Jacobian], Sizes | None]:
        """Judge what differences tell; return the Jacobians that were seen, and their sizes."""
        subject, sizes = self.subject, None
        probed: list[Looks] = []
        whole: list[Looks] = []
        try:
            for part, given in zip(subject.active, steps, strict=True):
                if self.fast_mode:
                    # A product takes one point after the other, and none in batches.
                    probed.append(looks(subject, part, way=way, batches=False, **given))
                    before = deepcopy(self._entries)
                    if not self._project(probed[-1], random):
                        continue
                    self._entries = before  # a look at all entries finds these again
                whole.append(looks(subject, part, way=way, **given))
            self._whole = whole
            if whole:
                jacobians = jacobians or self._jacobians()
                sizes = examine(whole, jacobians, self.rule, self._entries, vouched)
                self.any_slope = bool(sizes.rows.any())
        finally:
            every = *probed, *whole
            subject.calls += sum(look.calls for look in every)
            self._narrow = next((k.coarse.narrow for k in every if k.coarse.narrow), "")
            self._eps = max([subject.eps, *(look.eps for look in every)])
        return jacobians, sizes

    def _empty(self) -> GradcheckReport:
        """Look at the form of derivatives that have no entries."""
        findings = []
        for d in self.derivatives if self.subject.kept else ():
            try:
                if d.form == "jac":
                    d.matrix()
                else:
                    d.product(np.zeros(d.taken[-1].stop if d.taken else 0))
            except WrongFormError as wrong:
                findings.append(str(wrong))
        nothing = "" if findings else "there is no number to differentiate"
        return self._reported(findings, nothing, {}, vacuous=not findings)

    def _near(self, value: NDArray) -> NDArray:
        """Return what the value that comes with a Jacobian may be off by."""
        share = max(self.rule.rtol, identities.ROUNDING * self.subject.eps)
        return self.rule.atol + share * np.abs(value)

    def _told(self, findings: Iterable[str]) -> list[str]:
        """Return what a test finds, or what keeps it from an answer."""
        try:
            return list(findings)
        except WrongFormError as wrong:
            self.cause = wrong.__cause__
            return [f"{wrong} ({self.cause!r})" if self.cause else str(wrong)]

    def _adjoint(self, random: np.random.Generator) -> tuple[bool, list[str]]:
        pairs = list(combinations(self.derivatives, 2))
        share = self.rule.rtol if self.rule.share == 1 else 0.0  # as the caller says
        told = [identities.adjoint(*pair, random, share) for pair in pairs]
        # What only rounding of x excuses does not vouch for what differences do not resolve.
        vouched = bool(pairs) and all(agree for agree, _ in told)
        return vouched, [text for _, text in told if text is not None]

    def _project(self, look: Looks, random: np.random.Generator) -> bool:
        """
        Compare products by one input; return whether all its entries have to be looked at.

        What products show is traced to a column, and that is judged. Where it is right after all,
        or products do not tell, all columns are looked at if calls of f for them are moderate work;
        else the next suspects are, and what differences do not resolve is INCONCLUSIVE.
        """
        self._entries.left_out += int(np.count_nonzero(look.steps == 0))
        columns = look.problem.coordinates
        moderate = columns * (columns + self.subject.rows) <= _MODERATE
        for d in self.derivatives:
            probe = Probe(look, d, self.resolution, random)
            wrong = 0
            for _ in range(_SUSPECTS):
                told = probe.ask()
                if told == CLEAR or wrong == _SHOWN:
                    break
                if told == UNKNOWN:
                    if moderate and not wrong:
                        return True
                    self._undecided = (
                        f"differences do not resolve products of {d.name} by input "
                        f"{look.part.name}: f is noisy, or not smooth, somewhere; check without "
                        f"fast_mode"
                    )
                    break
                column = probe.suspect()
                wrong += self._judged_column(look, d, column) == FAIL
                if moderate and not wrong:
                    return True
                probe.settle(column)
            else:
                self._undecided = (
                    f"products of {d.name} by input {look.part.name} are off by more than "
                    f"rounding, and the {_SUSPECTS} columns that were looked at are within the "
                    f"tolerance: check without fast_mode"
                )
        return False

    def _judged_column(self, look: Looks, d: GivenDerivative, column: int) -> str:
        """Judge what a derivative gives in a column, and note it if it is wrong."""
        number = look.part.start + column
        if (number, d.name) in zip(self._entries.columns, self._entries.forms, strict=True):
            return FAIL
        value, error, state = look.derivative(column)
        rows, own = column_of(d, number, value)
        size = np.full(len(rows), np.abs(own).max(initial=0.0))
        noisy = bool(state["status"] == NOISY)
        verdict = self.rule.judge(own, value[rows], error[rows], size, noisy)
        slope = look.slope(column)[rows]
        noise = rounding_of(look.subject.sizes[rows], look.eps) / look.steps[column]
        verdict[disputed(own, value[rows], slope, noise)] = VERDICTS.index(PASS)
        waves = verdict == VERDICTS.index(FAIL)
        if waves.any():
            entries = np.zeros(len(rows), int), rows
            below = look.below_now(np.array([column]), np.array([state]), entries, MANY)
            waves &= sided(own, value[rows], *below)
        verdict[waves] = VERDICTS.index(INCONCLUSIVE)
        if not np.any(verdict == VERDICTS.index(FAIL)):
            return PASS
        numbers = np.full(len(rows), number)
        self._entries.add(numbers, rows, d.name, verdict, own, value[rows], error[rows])
        return FAIL

    def _reported(
        self,
        findings: list[str],
        nothing: str,
        jacobians: dict[str, Jacobian],
        vacuous: bool = False,
        late: Sequence[str] = (),
    ) -> GradcheckReport:
        subject, found = self.subject, self._entries
        failures = tuple(sorted(self._failures(), key=lambda e: (-_weight(e), -e.excess)))
        forms = {d.name: d.form for d in self.derivatives}
        causes = Causes(subject, jacobians, forms, found.numerical)
        blocks = causes.blocks(failures)
        verdict = PASS if self._undecided is None else INCONCLUSIVE
        if findings or late:
            verdict = FAIL
        for name in reversed(VERDICTS[:-1]):
            if found.count[name] and VERDICTS.index(name) < VERDICTS.index(verdict):
                verdict = name
        calls = {"f": subject.calls, **{d.name: d.calls for d in self.derivatives}}
        return GradcheckReport(
            verdict,
            nothing or self._reason(verdict, findings, late, failures, causes, blocks),
            (*findings, *late),
            failures,
            dict(found.count),
            tuple(self._block(key, text) for key, text in blocks.items()),
            found.largest_error,
            self.resolution,
            self.rule.atol,
            self.rule.rtol,
            vacuous,
            calls,
            self.seed,
            tuple(forms),
            (subject.rows, subject.columns),
            self.fast_mode,
            self.allow,
        )

    def _block(self, key: tuple[str, int, int], text: str) -> str:
        form, output, position = key
        out, part = self._parts(output, position)
        return f"{form}, output {out.name}, input {part.name}: {text}"

    def _step_of(self, entry: Entry) -> float:
        """Return the length of the steps by which an entry was looked at."""
        look = next(k for k in self._whole if k.part.position == entry.input)
        return float(look.steps[entry.column - look.part.start])

    def _is_confined(self, entry: Entry) -> bool:
        """Tell whether bounds leave a number few others beside it."""
        for look in self._whole:
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

    def _failures(self) -> list[Entry]:
        found = self._entries
        result = []
        for column, row, form, verdict, (own, right, error) in zip(
            found.columns, found.rows, found.forms, found.verdicts, found.values, strict=True
        ):
            out, part = _part_of(self.subject.kept, row), _part_of(self.subject.active, column)
            allowed = self.rule.atol + self.rule.rtol * abs(right) + error
            apart = abs(own - right)
            excess = apart / allowed if allowed > 0 else np.inf
            result.append(
                Entry(
                    verdict,
                    form,
                    out.position,
                    *out.index(row),
                    part.position,
                    *part.index(column),
                    own,
                    right,
                    error,
                    np.inf if np.isnan(excess) else float(excess),
                    row,
                    column,
                )
            )
        return result

    def _reason(
        self,
        verdict: str,
        findings: list[str],
        late: Sequence[str],
        failures: tuple[Entry, ...],
        causes: Causes,
        blocks: dict[tuple[str, int, int], str],
    ) -> str:
        found = self._entries
        if findings:
            return findings[0]
        if late and not (failures and failures[0].verdict == FAIL):
            return late[0]
        if verdict == PASS:
            forms = " and ".join(d.name for d in self.derivatives)
            left = ""
            if found.left_out:
                what = "columns that have" if found.left_out > 1 else "column that has"
                left = f", but for {found.left_out} {what} no step: it is 0, or x is not finite"
            if self.fast_mode:
                return f"products of {forms} with random directions are those of differences{left}"
            verb = f"agree{'s' * (' and ' not in forms)}"
            return f"{forms} {verb} with differences in every entry{left}"
        if verdict == INCONCLUSIVE and self._undecided is not None:
            return self._undecided
        worst = failures[0]
        if verdict == NONSMOOTH:
            text = self._place(worst, "not to be had: f has a kink or a jump within a step of x")
            return f"{text}; the step is {self._step_of(worst):.2g}: a shorter step= may end before"
        if verdict == INCONCLUSIVE:
            text = self._place(worst, "not to be confirmed")
            finite = np.isfinite(self.subject.base[worst.row])
            why = "f is noisy or varies too fast there" if finite else "f is not finite at x"
            if finite and self.subject.eps > COARSE:
                why += " for float32: try float64"
            if finite and self._narrow:
                resolved = default_resolution(float(np.finfo(np.float32).eps))
                why = f"f computes in {self._narrow}; rtol={resolved:g} is the default of float32"
            if finite and np.isnan(worst.numerical) and self._is_confined(worst):
                why = "bounds= leave no room for a difference there; a step of 0 leaves it out"
            return f"{text}{values(worst)}; {why}"
        if np.isnan(worst.analytic) and np.isnan(worst.numerical):
            text = self._place(worst, "NaN") + values(worst).partition(":")[0]
            return f"{text}, claimed and found alike: equal_nan=True lets that pass"
        text = self._place(worst, "wrong") + values(worst)
        if worst.analytic == 0:
            silent = any(d.silent for d in self.derivatives if d.name == worst.form)
            text += f"; {worst.form} returned None" if silent else "; it is claimed to be zero"
        told = blocks.get((worst.form, worst.output, worst.input)) or causes.line(worst)
        return text if told is None else f"{text}; {told}"


def _weight(entry: Entry) -> int:
    return len(VERDICTS) - VERDICTS.index(entry.verdict)


def _part_of(parts: tuple[Part, ...], number: int) -> Part:
    return next(p for p in parts if p.start <= number < p.stop)
