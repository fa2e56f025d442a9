"""One check, from the tests without differences to the verdict."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._differences.plan import Options
from .._protocols import NDArray
from . import diagnosis, identities
from .derivative import Derivative, WrongFormError
from .exhaustive import Entries, Sizes, examine
from .numerical import Looks, looks
from .projected import Probe, column_of
from .report import Entry, GradcheckReport
from .rule import FAIL, INCONCLUSIVE, NONSMOOTH, PASS, VERDICTS, Rule
from .subject import Part, Subject
from .text import place, values

_PROBES = 2
_DIAGNOSED = 1 << 22  # entries of a block that is looked at as a whole


@dataclass
class Check:
    """One check, from the tests without differences to the verdict."""

    subject: Subject
    derivatives: list[Derivative]
    rule: Rule
    resolution: float
    fast_mode: bool
    seed: int
    allow: tuple[str, ...]

    def run(
        self,
        steps: dict[str, Any],
        nondet_tol: float,
        undefined: bool,
        batched: dict[str, bool],
    ) -> GradcheckReport:
        subject = self.subject
        random = np.random.default_rng(self.seed)
        self._entries = Entries()
        findings = list(identities.mutation("f", subject.touched))
        findings += identities.determinism(subject, nondet_tol)
        if findings:  # nothing else can be trusted
            return self._reported(findings, "", {})
        if not subject.rows or not subject.columns:
            return self._reported(findings, "there is no number to differentiate", {}, vacuous=True)
        matrices: dict[str, NDArray] = {}
        sizes = None
        try:
            if not self.fast_mode:
                matrices = {d.name: d.matrix() for d in self.derivatives}
                sizes = Sizes.of(matrices, subject.rows, subject.columns)
            for d in self.derivatives:
                findings += identities.reentrance(d, random, nondet_tol, matrices.get(d.name))
                of = None
                if sizes is not None:
                    of = sizes.columns if d.name == "vjp" else sizes.rows
                findings += identities.linearity(d, random, of)
                if d.name == "vjp" and undefined:
                    findings += identities.none_cotangents(d)
                if batched.get(d.name):
                    findings += identities.batches(d, random)
                findings += identities.mutation(d.name, d.touched)
            vouched, adjoint = self._adjoint(random)
            findings += adjoint
        except WrongFormError as wrong:
            if wrong.__cause__ is not None:
                findings.append(f"{wrong} ({wrong.__cause__!r})")
            else:
                findings.append(str(wrong))
            return self._reported(findings, "", {})
        with np.errstate(all="ignore"):
            looked = [looks(subject, part, **steps) for part in subject.active]
            if sizes is None:
                self._project(looked, steps, random)
            else:
                for look in looked:
                    examine(look, matrices, sizes, self.rule, self._entries, vouched)
        subject.calls += sum(look.calls for look in looked)
        return self._reported(findings, "", matrices)

    def _adjoint(self, random: np.random.Generator) -> tuple[bool, list[str]]:
        by_name = {d.name: d for d in self.derivatives}
        if "jvp" not in by_name or "vjp" not in by_name:
            return False, []
        found = list(identities.adjoint(by_name["jvp"], by_name["vjp"], random))
        return not found, found

    def _project(
        self, looked: list[Looks], steps: dict[str, Any], random: np.random.Generator
    ) -> None:
        given = {name: steps[name] for name in ("step", "scale", "bounds")}
        options = Options(method="adaptive", **given)
        for look in looked:
            for d in self.derivatives:
                for _ in range(_PROBES):
                    column = Probe(look, d, options, random).suspect()
                    if column is None:
                        continue
                    value, error = look.ladder(column)
                    rows, own = column_of(d, look.part.start + column, value)
                    size = np.full(len(rows), np.abs(own).max(initial=0.0))
                    verdict = self.rule.judge(own, value[rows], error[rows], size)
                    whole = [np.zeros(self.subject.rows) for _ in range(3)]
                    for array, part in zip(whole, (own, value[rows], error[rows]), strict=True):
                        array[rows] = part
                    every = np.full(self.subject.rows, VERDICTS.index(PASS))
                    every[rows] = verdict
                    self._entries.add(look.part.start + column, d.name, every, *whole)
                    break

    def _reported(
        self, findings: list[str], nothing: str, matrices: dict[str, NDArray], vacuous: bool = False
    ) -> GradcheckReport:
        subject, found = self.subject, self._entries
        failures = tuple(sorted(self._failures(), key=lambda e: (-_weight(e), -e.excess)))
        blocks = self._blocks(failures, matrices)
        verdict = PASS
        if findings:
            verdict = FAIL
        for name in reversed(VERDICTS[:-1]):
            if found.count[name] and VERDICTS.index(name) < VERDICTS.index(verdict):
                verdict = name
        calls = {"f": subject.calls, **{d.name: d.calls for d in self.derivatives}}
        return GradcheckReport(
            verdict,
            nothing or self._reason(verdict, findings, failures, matrices),
            tuple(findings),
            failures,
            dict(found.count),
            blocks,
            found.largest_error,
            self.resolution,
            self.rule.atol,
            self.rule.rtol,
            vacuous,
            calls,
            self.seed,
            tuple(d.name for d in self.derivatives),
            (subject.rows, subject.columns),
            self.fast_mode,
            self.allow,
        )

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

    def _blocks(self, failures: tuple[Entry, ...], matrices: dict[str, NDArray]) -> tuple[str, ...]:
        """Say what wrong blocks look like, as differences of the columns in doubt show them."""
        texts = []
        seen = []
        for entry in failures:
            key = entry.form, entry.output, entry.input
            if entry.verdict != FAIL or key in seen or entry.form not in matrices:
                continue
            seen.append(key)
            out = next(p for p in self.subject.kept if p.position == entry.output)
            part = next(p for p in self.subject.active if p.position == entry.input)
            rows = slice(out.start, out.stop)
            own = matrices[entry.form][rows, part.start : part.stop].T
            if own.size > _DIAGNOSED:
                continue
            right = own.copy()
            for column, value in self._entries.numerical.items():
                if part.start <= column < part.stop:
                    right[column - part.start] = value[rows]
            text = diagnosis.block_text(own, right, out, part)
            if text is None:
                text = self._swapped(own, right, entry, part, matrices)
            if text is not None:
                texts.append(f"{entry.form}, output {out.position}, input {part.position}: {text}")
        return tuple(texts)

    def _swapped(
        self, own: NDArray, right: NDArray, entry: Entry, part: Part, matrices: dict[str, NDArray]
    ) -> str | None:
        for other in self.subject.kept:
            if other.position != entry.output and other.stop - other.start == own.shape[1]:
                rows = slice(other.start, other.stop)
                theirs = matrices[entry.form][rows, part.start : part.stop].T
                if np.allclose(theirs, right, rtol=1e-3, atol=0) and right.any():
                    return f"it is the derivative of output {other.position}: they are swapped"
        return None

    def _reason(
        self,
        verdict: str,
        findings: list[str],
        failures: tuple[Entry, ...],
        matrices: dict[str, NDArray],
    ) -> str:
        if findings:
            return findings[0]
        if verdict == PASS:
            forms = " and ".join(d.name for d in self.derivatives)
            if self.fast_mode:
                return f"products of {forms} with random directions are those of differences"
            return f"{forms} agree{'s' * (' and ' not in forms)} with differences in every entry"
        worst = failures[0]
        if verdict == NONSMOOTH:
            return place(worst).format("not to be had: f has a kink or a jump within a step of x")
        if verdict == INCONCLUSIVE:
            text = place(worst).format("not to be confirmed")
            return f"{text}{values(worst)}; f is noisy or varies too fast there"
        text = place(worst).format("wrong") + values(worst)
        if worst.form in matrices:
            column = worst.column
            right = self._entries.numerical.get(column)
            if right is not None:
                out = next(p for p in self.subject.kept if p.position == worst.output)
                rows = slice(out.start, out.stop)
                told = diagnosis.column_text(matrices[worst.form][rows, column], right[rows])
                if told is not None:
                    return f"{text}; {told}"
        return text


def _weight(entry: Entry) -> int:
    return len(VERDICTS) - VERDICTS.index(entry.verdict)


def _part_of(parts: tuple[Part, ...], number: int) -> Part:
    return next(p for p in parts if p.start <= number < p.stop)
