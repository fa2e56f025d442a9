"""Run a gradient check, from the tests without differences to the verdict, and report it."""

from collections.abc import Iterable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from .._core.arguments import warn
from .._core.dtypes import SPACINGS
from .._core.protocols import NDArray
from .._derivatives.steps import COMPLEX_STEP
from .._derivatives.thresholds import THRESHOLDS
from .._execution.run import Progress
from . import invariants
from .adapt import CheckArguments
from .analytic import AnalyticDerivative
from .basis_vectors import FEW_VECTORS, Rows
from .calls import Call
from .columns import Jacobian, Sizes, jacobian_of
from .entry_rules import FAIL, PASS, Rule, default_resolution
from .fast_mode import is_moderate, project
from .flatten import WrongFormError, has_kernels
from .function_at_point import FunctionAtPoint, without_warnings_of_batches
from .linearity import linearity
from .numerical import ExecutionPolicy, FiniteDifferences, plan_differences
from .options import Settings
from .perturb import Claims
from .report import CalipersWarning, GradcheckReport, answer
from .summary import CheckOutcome, FlaggedEntries
from .verdict import examine

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

# Functions of the inputs that lead to points where a stationary f has a different value.
_ELSEWHERE = np.negative, partial(np.multiply, 1.5), partial(np.add, 0.25), partial(np.add, -2.0)


@dataclass
class Check:
    """One check: consistency tests, comparison with differences, verdict."""

    subject: FunctionAtPoint
    derivatives: list[AnalyticDerivative]
    rule: Rule
    resolution: float
    fast_mode: bool
    seed: int
    allow: tuple[str, ...]
    call: Call
    order: int = 1  # 2 if f is a gradient
    library: str = ""  # whose derivatives are checked, if they were not passed
    cause: BaseException | None = None  # the exception of a derivative in a test
    any_slope: bool = True  # whether some compared entry is not zero

    def __post_init__(self) -> None:
        about = self.derivatives, self.rule, self.fast_mode, self.allow
        self._outcome = CheckOutcome(self.subject, *about)

    def run(
        self,
        steps: list[dict[str, Any]],
        way: ExecutionPolicy,
        undefined: set[str],
        batched: dict[str, bool],
        primals: dict[str, Any],
    ) -> GradcheckReport:
        """
        Run all tests, compare with differences and return the report.

        `steps` has the step options of each input, and `undefined` the forms that are called with
        None. Derivatives store the value of f that they computed in `primals`.
        """
        subject, outcome, nondet_tol = self.subject, self._outcome, self.rule.noise
        random = np.random.default_rng(self.seed)
        if subject.touched:
            outcome.findings += invariants.mutation("f", subject.touched)
        outcome.findings += invariants.determinism(subject, nondet_tol)
        if outcome.findings:  # nothing else can be trusted
            return self._reported()
        if not subject.rows or not subject.columns:
            return self._empty()
        findings: dict[str, list[str]] = {}  # errors of each derivative
        others: list[str] = []  # errors of values, counts and shapes
        mismatches: list[str] = []  # of two derivatives; entries show which of them is wrong
        try:
            if not self.fast_mode:
                outcome.jacobians = self._jacobians()
            for d in self.derivatives:
                findings[d.name] = []
                if d.call.likes is not None:
                    findings[d.name] += invariants.output_arrays(d, random, nondet_tol)
                d.first = invariants.first_result(d, random)
                if d.form in undefined:
                    outcome.late += self._findings_of(invariants.none_directions(d, self.rule.rtol))
                if batched.get(d.form):
                    outcome.late += self._findings_of(invariants.batches(d, random))
            for source, value in primals.items():
                others += invariants.primal(source, value, subject, self._near)
            mismatches = self._adjoint(random)
            outcome.late += mismatches
            with np.errstate(all="ignore"):
                sizes, every = self._compared(steps, way, random)
            for d in self.derivatives:  # needs the sizes of entries, which are known by now
                assert d.first is not None
                if d.form == "jac":
                    d.change = invariants.change_of_jacobian(d, d.first)
                    continue
                rows = outcome.jacobians[d.name].unit_products if outcome.jacobians else None
                findings[d.name] += self._linearity(d, random, sizes, rows, every)
        except WrongFormError as wrong:
            others.append(str(wrong))
            outcome.jacobians, outcome.late = {}, []
        for d in self.derivatives:  # modified arguments come first: they explain other errors
            if d.touched:
                outcome.findings += invariants.mutation(d.name, d.touched)
            failed = others or mismatches or findings.get(d.name) or outcome.entries.count[FAIL]
            if (failed or d.change > 0) and d.first is not None and not d.touched:
                outcome.findings += self._findings_of(
                    invariants.statelessness(d, random, nondet_tol)
                )
            outcome.findings += findings.get(d.name, ())
        outcome.findings += others
        if outcome.entries.count[FAIL] and not outcome.findings:
            self._set_undecided(invariants.memory_order(subject))
        if outcome.entries.left_out == subject.columns and not (outcome.findings or outcome.late):
            return self._reported("no element of the inputs is finite and has a nonzero step")
        return self._reported()

    def _jacobians(self) -> dict[str, Jacobian]:
        alone = len(self.derivatives) == 1
        return {d.name: jacobian_of(d, alone) for d in self.derivatives}

    def _set_undecided(self, why: str | None) -> None:
        """Make the verdict undecided for a reason that excuses all entries, if there is one."""
        if why is not None:
            self._outcome.undecided, self._outcome.entries = why, FlaggedEntries()

    def _linearity(
        self,
        d: AnalyticDerivative,
        random: np.random.Generator,
        sizes: Sizes | None,
        rows: Rows | None,
        every: list[FiniteDifferences],
    ) -> list[str]:
        """Check that d is linear, up to the rounding of f, which is measured if it is not."""
        rule, late, eps = self.rule, invariants.late_results(d), self.subject.eps
        coarsest = 2 * rule.rtol if rule.share == 1 else 0.0  # within the user's tolerance
        formats = [k for k, each in SPACINGS.items() if each > max(eps, coarsest)]
        spacing = SPACINGS[formats[0]] if formats else np.inf
        if rows is not None and invariants.is_linear(d, late, rows, rule.rtol, spacing):
            return []
        options = rule.noise, rule, sizes, rows
        findings = list(linearity(d, random, *options, eps, formats, late))
        noise = max((one.relative_noise for one in every[:1] if findings), default=eps)
        if noise > THRESHOLDS.noisy * eps:
            formats = [k for k in formats if SPACINGS[k] > noise]
            findings = list(linearity(d, random, *options, noise, formats, late))
        return findings

    def _compared(
        self,
        steps: list[dict[str, Any]],
        way: ExecutionPolicy,
        random: np.random.Generator,
    ) -> tuple[Sizes | None, list[FiniteDifferences]]:
        """Compare products or all entries of each input, by screening and refinement."""
        subject, outcome, sizes = self.subject, self._outcome, None
        probed: list[FiniteDifferences] = []
        whole: list[FiniteDifferences] = []
        self.any_slope = not subject.active
        try:
            for part, step in zip(subject.active, steps, strict=True):
                options = {**step, "policy": way}
                if self.fast_mode:
                    # Products evaluate one point at a time, never a batch.
                    probed.append(plan_differences(subject, part, batches=False, **options))
                    before = deepcopy(outcome.entries)
                    try:
                        whole_input, any_slope = project(
                            outcome,
                            probed[-1],
                            self.derivatives,
                            self.rule,
                            self.resolution,
                            random,
                        )
                        self.any_slope |= any_slope
                        if not whole_input:
                            continue
                    except WrongFormError:
                        raise
                    except Exception:
                        # A direction moves all elements at once, perhaps out of the domain of f. An
                        # error that does not depend on this is raised again below.
                        if not is_moderate(probed[-1]):
                            raise
                    outcome.entries = before  # the comparison of all entries finds these again
                whole.append(plan_differences(subject, part, **options))
            outcome.whole = whole
            if whole:
                outcome.jacobians = outcome.jacobians or self._jacobians()
                about = self.rule, outcome.entries, random
                claims = Claims(self.derivatives, random)
                sizes = examine(whole, outcome.jacobians, *about, claims)
                self.any_slope |= bool(sizes.rows.any())
        finally:
            every = [*probed, *whole]
            subject.calls += sum(differences.calls for differences in every)
        return sizes, every

    def _empty(self) -> GradcheckReport:
        """Check the shapes of derivatives that have no entries."""
        for d in self.derivatives if self.subject.active_outputs else ():
            try:
                if d.form == "jac":
                    d.matrix()
                else:
                    segments = d.direction_segments
                    d.product(np.zeros(segments[-1].stop if segments else 0))
            except WrongFormError as wrong:
                self._outcome.findings.append(str(wrong))
        has_errors = bool(self._outcome.findings)
        return self._reported("" if has_errors else "there is no number to differentiate")

    def _near(self, value: NDArray) -> NDArray:
        """Return the tolerance of the value that a derivative returns with the Jacobian."""
        share = max(self.rule.rtol, invariants.ROUNDING * self.subject.eps)
        return self.rule.atol + share * np.abs(value)

    def _findings_of(self, findings: Iterable[str]) -> list[str]:
        """Return the findings of a test, or the error that it raised as a finding."""
        try:
            return list(findings)
        except WrongFormError as wrong:
            self.cause = wrong.__cause__
            return [f"{wrong} ({self.cause!r})" if self.cause else str(wrong)]

    def _adjoint(self, random: np.random.Generator) -> list[str]:
        """Compare the forms of the derivative by pairs."""
        share = self.rule.rtol if self.rule.share == 1 else 0.0  # if the caller set a tolerance
        pairs = combinations(self.derivatives, 2)
        return [text for pair in pairs for text in invariants.adjoint(*pair, random, share)]

    def _reported(self, vacuous: str = "") -> GradcheckReport:
        """Return the report; `vacuous` says why nothing was compared."""
        subject, outcome = self.subject, self._outcome
        return GradcheckReport(
            outcome.verdict,
            vacuous or outcome.reason,
            (*outcome.findings, *outcome.late),
            outcome.failures,
            dict(outcome.entries.count),
            outcome.blocks,
            outcome.entries.largest_error,
            self.resolution,
            self.rule.atol,
            self.rule.rtol,
            bool(vacuous),
            {"f": subject.calls, **{d.name: d.calls for d in self.derivatives}},
            self.seed,
            tuple(d.name for d in self.derivatives),
            (subject.rows, subject.columns),
            self.fast_mode,
            self.allow,
            self.order,
            subject.structure.names if subject.structure else (),
            tuple(subject.structure.outputs) if subject.structure else (),
            hidden=outcome.entries.hidden,
            again=self.call.text(),
            next="" if vacuous else outcome.next_step(self.call),
            outputs=tuple((p.label, p.stop - p.start) for p in subject.active_outputs),
            inputs=tuple((p.label, p.stop - p.start) for p in subject.active),
            library=self.library,
        )


def run_check(
    arguments: CheckArguments, settings: Settings, call: Call, order: int = 1
) -> GradcheckReport:
    """
    Run one gradient check, and return its report or raise it.

    `call` is the user's call, for the report. If `order` is 2, f is a gradient.
    """
    if settings.inplace is not None:
        passed = bool(arguments.forms) and not arguments.with_value
        settings.require_inplace(arguments.several, passed)
    only_specified = settings.only_specified()
    arguments = arguments.adapted(settings.out_like, settings.inplace, only_specified)
    if settings.method == COMPLEX_STEP:
        settings.require_analytic(arguments.of_library)
    subject = arguments.at_point()
    if not subject.active_outputs and any(has_kernels(o.dtype) for o in subject.outputs):
        arguments, subject = arguments.zeros(subject)
        settings = replace(settings, check_undefined_grad=False, inplace=None)
    steps = settings.steps(len(subject.active))
    if settings.bounds is not None:
        subject.confine(steps)
    forms = arguments.forms
    chosen = settings.chosen(forms, arguments.of_library)
    derivatives = arguments.checked(subject, chosen, settings.inplace, settings.check_grad_dtypes)
    checked = {d.form for d in derivatives}
    settings.require_tests(checked, forms)
    undefined = {"vjp", "jvp"} if settings.check_undefined_grad else set()
    by_torch = arguments.of_library and arguments.convention == "torch"
    if settings.check_undefined_grad is None and by_torch:
        undefined = checked & {"vjp"}
    batched = {"vjp": settings.check_batched_grad, "jvp": settings.check_batched_forward_grad}
    resolution = default_resolution(subject.eps)
    check = Check(
        subject,
        derivatives,
        settings.rule(resolution, subject.eps),
        resolution,
        settings.fast_mode,
        settings.seed,
        tuple(settings.allow),
        call,
        order,
        arguments.convention if arguments.of_library else "",
    )
    heard = None if settings.progress is False else Progress(settings.progress, 0)
    shown = heard if heard is not None and heard.wanted else None
    way = ExecutionPolicy(settings.workers, shown, settings.checkpoint)
    may_batch = arguments.of_library and max(subject.rows, subject.columns) > FEW_VECTORS
    try:
        with without_warnings_of_batches() if may_batch or any(batched.values()) else nullcontext():
            report = check.run(steps, way, undefined, batched, arguments.primals)
    finally:
        if heard is not None:
            heard.close()
    constant = arguments.library is not None and arguments.library.constant
    all_zero = not (check.any_slope or constant)
    if arguments.of_library and report.verdict == PASS and all_zero:
        report = replace(report, vacuous=True, reason=_why_all_is_zero(subject))
    if constant and report.verdict == FAIL and not report.findings:
        message = (
            "no output has an autograd graph: f detaches it, or leaves torch by .numpy() or .item()"
        )
        report = replace(report, reason=f"{report.reason}; {message}")
    if arguments.library is not None and arguments.library.used:
        named = " and ".join(subject.names[k] for k in arguments.library.used)
        message = (
            f"f uses input {named} itself, or a result computed from it, in addition to "
            "its arguments"
        )
        warn(f"{message}: that use is held constant and is not checked", CalipersWarning)
    if report.vacuous:
        what = "nothing of second order" if order == 2 else "nothing"
        warn(f"gradcheck compared {what}: {report.reason}", CalipersWarning)
    return answer(report, settings.raise_exception, check.cause)


def _why_all_is_zero(subject: FunctionAtPoint) -> str:
    """Return why all derivatives are 0, from results of f at other inputs."""
    if any(subject.changes_with(move) for move in _ELSEWHERE):
        return (
            "every derivative is 0 at these inputs, although f depends on them: a wrong "
            "factor cannot show at a stationary point; check at different inputs"
        )
    return (
        "f does not depend on the inputs with respect to which it is checked: is it "
        "constant, or does it use other tensors?"
    )
