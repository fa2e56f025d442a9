"""A check of what is said to be the derivative of a function, with all its options."""

from dataclasses import replace
from functools import partial

import numpy as np

from .._differences.progress import Progress
from .._warnings import warn
from .batches import without_warnings_of_batches
from .call import Call
from .check import Check
from .given import Given, require_way
from .numerical import Way
from .report import CalipersWarning, GradcheckReport, answer
from .rule import FAIL, PASS, default_resolution
from .settings import Settings
from .subject import Subject, has_differences

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

# Inputs at which f may differ from where all its derivatives are 0.
_ELSEWHERE = np.negative, partial(np.multiply, 1.5), partial(np.add, 0.25), partial(np.add, -2.0)


def check_given(given: Given, settings: Settings, call: Call, order: int = 1) -> GradcheckReport:
    """
    Run one gradient check, and return its report or raise it.

    `call` is what the user wrote. Of order 2, f is a gradient, and so are the report's outputs.
    """
    require_way(settings.inplace, given)
    only_specified = settings.only_specified()
    given = given.of_arrays(settings.out_like, settings.inplace, only_specified)
    settings.require_analytic(given.of_library)
    subject = given.subject()
    if not subject.kept and any(has_differences(o.dtype) for o in subject.outputs):
        given, subject = given.zeros(subject)
        settings = replace(settings, check_undefined_grad=False, inplace=None)
    steps = settings.steps(len(subject.active))
    subject.confine(steps)
    forms = given.forms
    chosen = settings.chosen(forms, given.of_library)
    derivatives = given.checked(subject, chosen, settings.inplace, settings.check_grad_dtypes)
    checked = {d.form for d in derivatives}
    settings.require_tests(checked, forms)
    undefined = {"vjp", "jvp"} if settings.check_undefined_grad else set()
    if settings.check_undefined_grad is None and given.of_library and given.convention == "torch":
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
    )
    heard = Progress(settings.progress, 0)
    way = Way(settings.workers, heard if heard.wanted else None, settings.checkpoint)
    try:
        with without_warnings_of_batches():
            report = check.run(steps, way, undefined, batched, given.primals)
    finally:
        heard.close()
    if given.leaves is not None:
        of_outputs = tuple(given.leaves.outputs)
        report = replace(report, input_names=given.leaves.names, output_names=of_outputs)
    if given.of_library:
        report = replace(report, library=given.convention)
    all_zero = not (check.any_slope or given.constant)
    if given.of_library and report.verdict == PASS and all_zero:
        report = replace(report, vacuous=True, reason=_why_all_is_zero(subject))
    if given.constant and report.verdict == FAIL and not report.findings:
        message = (
            "no output has an autograd graph: f detaches it, or leaves torch by .numpy() or .item()"
        )
        report = replace(report, reason=f"{report.reason}; {message}")
    if given.used:
        named = " and ".join(subject.names[k] for k in given.used)
        message = (
            f"f uses input {named} itself, or a result computed from it, in addition to "
            "its arguments"
        )
        warn(f"{message}: that use is held constant and is not checked", CalipersWarning)
    if report.vacuous:
        what = "nothing of second order" if order == 2 else "nothing"
        warn(f"gradcheck compared {what}: {report.reason}", CalipersWarning)
    return answer(replace(report, order=order), settings.raise_exception, check.cause)


def _why_all_is_zero(subject: Subject) -> str:
    """Return why all derivatives are 0, by results of f at other inputs."""
    if any(subject.changes_with(move) for move in _ELSEWHERE):
        return (
            "every derivative is 0 at these inputs, although f depends on them: a wrong "
            "factor cannot show at a stationary point; check at different inputs"
        )
    return (
        "f does not depend on the inputs with respect to which it is checked: is it "
        "constant, or does it use other tensors?"
    )
