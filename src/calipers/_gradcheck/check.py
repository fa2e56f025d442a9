"""One check, from the tests without differences to the verdict."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from .._kernels.differences import NOISY
from .._protocols import NDArray
from . import identities
from .analytic import Jacobian, Sizes, jacobian_of
from .blocks import WrongFormError
from .derivative import GivenDerivative
from .exhaustive import Entries, examine
from .numerical import Looks, Way, looks
from .outcome import Outcome
from .projected import CLEAR, UNKNOWN, Probe, column_of
from .report import GradcheckReport
from .rule import (
    FAIL,
    INCONCLUSIVE,
    PASS,
    VERDICTS,
    Rule,
    disputed,
    rounding_of,
    sided,
)
from .second_look import MANY
from .subject import Subject

_SHOWN = 2  # wrong columns that products are traced to
_SUSPECTS = 8  # columns that a product may lead to
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
        subject = self.subject
        found = Outcome(
            subject,
            self.derivatives,
            self.rule,
            self.fast_mode,
            self._entries,
            jacobians,
            self._whole,
            findings,
            late,
            self._undecided,
            self._narrow,
        )
        return GradcheckReport(
            found.verdict,
            nothing or found.reason,
            (*findings, *late),
            found.failures,
            dict(self._entries.count),
            found.blocks,
            self._entries.largest_error,
            self.resolution,
            self.rule.atol,
            self.rule.rtol,
            vacuous,
            {"f": subject.calls, **{d.name: d.calls for d in self.derivatives}},
            self.seed,
            tuple(d.name for d in self.derivatives),
            (subject.rows, subject.columns),
            self.fast_mode,
            self.allow,
        )
