"""A check of what is said to be the derivative of a function, with all its options."""

import os
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from .._differences.checkpoint import require_folder
from .._differences.progress import Progress
from .._types import Excuse, Inplace, Method, ProgressLike
from .._warnings import warn
from .batches import without_warnings_of_batches
from .check import Check
from .given import Given, require_way
from .numerical import Way
from .options import (
    SWITCHES,
    chosen_of,
    masked_of,
    require_analytic,
    require_choices,
    require_forms,
    require_returned,
    require_seed,
    require_tested,
    rule_of,
    step_of,
    steps_for,
)
from .report import CalipersWarning, GradcheckReport, answer
from .rule import FAIL, default_resolution
from .subject import has_differences


def check_given(
    given: Given,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool | None = None,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool | None = None,
    check_backward_ad: bool | None = None,
    fast_mode: bool = False,
    masked: bool | None = None,
    check_sparse_nnz: bool | None = None,
    method: Method = "adaptive",
    step: Any = None,
    scale: Any = None,
    bounds: Any = None,
    out_like: Any = None,
    inplace: Inplace | None = None,
    workers: Any = None,
    progress: ProgressLike = False,
    checkpoint: str | os.PathLike[str] | None = None,
    equal_nan: bool = False,
    allow: Collection[Excuse] = (),
    seed: int = 0,
) -> GradcheckReport:
    """Check it; the options are `gradcheck`'s."""
    require_choices(given.convention, nondet_tol, allow, method)
    require_seed(seed)
    require_folder(checkpoint)
    step = step_of(eps, step)
    require_way(inplace, given)
    only_specified = masked_of(masked, check_sparse_nnz)
    given = given.of_arrays(out_like, inplace, only_specified)
    require_analytic(method, given.of_library)
    subject = given.subject()
    if not subject.kept and any(has_differences(o.dtype) for o in subject.outputs):
        given, subject = given.zeros(subject)
        check_undefined_grad, inplace = False, None
    chosen = chosen_of(check_forward_ad, check_backward_ad, given.of_library)
    require_forms(given.derivatives, chosen, check_forward_ad, check_backward_ad)
    derivatives = given.checked(subject, chosen, inplace, check_grad_dtypes)
    forms = {d.form for d in derivatives}
    tests = {
        "check_undefined_grad": check_undefined_grad,
        "check_batched_grad": check_batched_grad,
        "check_batched_forward_grad": check_batched_forward_grad,
    }
    there = {form: SWITCHES[form] for form in SWITCHES if given.derivatives[form] is not None}
    require_tested(tests, forms, there)
    require_returned(tests, inplace)
    undefined = {"vjp", "jvp"} if check_undefined_grad else set()
    if check_undefined_grad is None and given.of_library and given.convention == "torch":
        undefined = forms & {"vjp"}
    batched = {"vjp": check_batched_grad, "jvp": check_batched_forward_grad}
    resolution = default_resolution(subject.eps)
    rule = rule_of(eps, atol, rtol, resolution, subject.eps, equal_nan, nondet_tol)
    check = Check(subject, derivatives, rule, resolution, fast_mode, seed, tuple(allow))
    steps = steps_for(len(subject.active), step=step, scale=scale, bounds=bounds)
    heard = Progress(progress, 0)
    try:
        with without_warnings_of_batches():
            report = check.run(
                [{"method": method, **each} for each in steps],
                Way(workers, heard if heard.wanted else None, checkpoint),
                nondet_tol,
                undefined,
                batched,
                given.primals,
            )
    finally:
        heard.close()
    if given.leaves is not None:
        of_outputs = tuple(given.leaves.outputs)
        report = replace(report, input_names=given.leaves.names, output_names=of_outputs)
    if given.of_library and report and not (check.any_slope or given.constant):
        told = "f does not depend on the inputs that it is checked by; does it use other tensors?"
        report = replace(report, vacuous=True, reason=told)
    if given.constant and report.verdict == FAIL and not report.findings:
        told = "no result carries a graph: f detaches it, or leaves torch by .numpy() or .item()"
        report = replace(report, reason=f"{report.reason}; {told}")
    if report.vacuous:
        warn(f"gradcheck compared nothing: {report.reason}", CalipersWarning)
    return answer(report, raise_exception, check.cause)
