"""Are second derivatives right? gradgradcheck, which is gradcheck of the gradient."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ._containers import several
from ._differences.plan import Options, others_of
from ._differences.stencils import ADAPTIVE
from ._gradcheck.checking import check_given
from ._gradcheck.derivative import CONVENTIONS, GivenDerivative
from ._gradcheck.given import FORMS, Given
from ._gradcheck.nested import holds_arrays
from ._gradcheck.numerical_gradient import NumericalGradient
from ._gradcheck.options import (
    for_each,
    positions_of,
    require_functions,
    require_seed,
    steps_for,
)
from ._gradcheck.report import GradcheckReport, answer
from ._gradcheck.rule import FAIL
from ._gradcheck.second import Gradient, cotangents, layout, skewness, terms_of
from ._gradcheck.second_forms import SecondForms, require_handed_on
from ._gradcheck.subject import Subject
from ._protocols import FunctionLibrary
from ._types import SecondOptions
from .gradients import gradcheck
from .interop.functions import function_library

__all__ = ["gradgradcheck"]

_SKEW = 1e-2  # of the resolution, by which second derivatives may miss symmetry
# What the derivatives of the gradient are called: of any f, and of one that gives a number.
_NAMES = {"vjp": "vjp_vjp", "jvp": "vjp_jvp"}
_OF_NUMBER = {"jac": "hess", "jvp": "hvp"}


def gradgradcheck(
    f: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    vjp: Callable[..., Any] | None = None,
    vjp_vjp: Callable[..., Any] | None = None,
    vjp_jvp: Callable[..., Any] | None = None,
    hess: Callable[..., Any] | None = None,
    hvp: Callable[..., Any] | None = None,
    first_order: bool = True,
    gen_non_contig_grad_outputs: bool = False,
    check_fwd_over_rev: bool | None = None,
    check_rev_over_rev: bool | None = None,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    argnums: int | Sequence[int] | None = None,
    nondifferentiable_outputs: Sequence[int] = (),
    raise_exception: bool = True,
    seed: int = 0,
    **options: Unpack[SecondOptions],
) -> GradcheckReport:
    """
    Check second derivatives: those of the gradient, against differences of the gradient.

    Differences of a wrong gradient confirm a second derivative that is wrong in the same way; the
    first derivative is therefore checked, too.

    Parameters
    ----------
    f, inputs
        See `gradcheck`.
    grad_outputs : array_like or tuple of them, optional
        Cotangents of the differentiable outputs; by default drawn from [-1, 1).
    vjp : callable, optional
        The first derivative, as for `gradcheck`. A torch or jax function needs none of these.
    vjp_vjp : callable, optional
        ``vjp_vjp(*inputs, w, u)`` returns the gradients of ``<u, vjp(*inputs, w)>`` by each
        differentiable input, and by w.
    vjp_jvp : callable, optional
        ``vjp_jvp(*inputs, w, v)`` returns the derivative of ``vjp(*inputs, w)`` along v, which has
        a tangent for each differentiable input, and for w.
    hess : callable, optional
        ``hess(*inputs)`` returns the second derivatives of a real number f by one input, of shape
        ``x.shape + x.shape``.
    hvp : callable, optional
        ``hvp(*inputs, v)`` returns the product of those with v.
    first_order : bool
        Whether to check `vjp` itself, first.
    gen_non_contig_grad_outputs : bool
        Whether the cotangents that are drawn are not contiguous.
    check_fwd_over_rev, check_rev_over_rev : bool, optional
        Whether `vjp_jvp`, and whether `vjp_vjp`, are checked: all that are given, by default; of
        torch and jax functions only the latter.
    args, kwargs, argnums, nondifferentiable_outputs, raise_exception, seed, **options
        See `gradcheck`.

    Returns
    -------
    GradcheckReport
        Of the first derivative if that is not right, else of the second.

    Raises
    ------
    GradcheckError, ValueError, TypeError, Exception
        See `gradcheck`.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> report = calipers.gradgradcheck(
    ...     np.sin,
    ...     np.array([0.5, 1.0]),
    ...     vjp=lambda x, w: w * np.cos(x),
    ...     vjp_vjp=lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
    ... )
    >>> bool(report)
    True
    """
    require_functions(f, vjp=vjp, vjp_vjp=vjp_vjp, vjp_jvp=vjp_jvp, hess=hess, hvp=hvp)
    require_handed_on(options)
    require_seed(seed)
    args = others_of(args)
    points = several(inputs)
    library = function_library(points) if vjp is None else None
    wanted = check_fwd_over_rev, check_rev_over_rev
    forms = SecondForms(vjp, vjp_vjp, vjp_jvp, hess, hvp, *wanted, library is not None)
    spread = gen_non_contig_grad_outputs
    forms.require(options, grad_outputs=grad_outputs, gen_non_contig_grad_outputs=spread)
    if library is None and any(map(holds_arrays, points)):
        msg = (
            "gradgradcheck takes containers of arrays for functions of torch and jax alone: with "
            "vjp=, hess= or hvp=, pass the arrays as inputs of their own"
        )
        raise TypeError(msg)
    common: dict[str, Any] = {**options, "raise_exception": raise_exception, "seed": seed}
    here: dict[str, Any] = {
        "args": args,
        "kwargs": kwargs,
        "argnums": argnums,
        "nondifferentiable_outputs": nondifferentiable_outputs,
    }
    first = {**common, "check_batched_forward_grad": False}  # of which there is no forward mode
    if first_order and not forms.of_number:
        report = gradcheck(f, inputs, vjp=vjp, **first, **here)
        if not report:
            return report
    plain: dict[str, Any] = {**common, "raise_exception": False}
    given = Given(
        f,
        points,
        dict.fromkeys(FORMS),
        argnums,
        positions_of(nondifferentiable_outputs),
        "torch",
        args,
        kwargs,
    )
    whole = (*points, *args)
    if forms.of_number:
        return _of_number(given.subject(), f, whole, forms, first_order, common, here)
    how = grad_outputs, spread, seed, forms, plain
    if library is not None:
        report = _of_library(library, given.of_leaves(), *how)
    else:
        report = _of_own(given, *how)
    return answer(report, raise_exception)


def _of_library(
    library: FunctionLibrary,
    given: Given,
    grad_outputs: Any,
    spread: bool,
    seed: int,
    forms: SecondForms,
    options: dict[str, Any],
) -> GradcheckReport:
    """Check what a library has for the gradient of a function of its arrays."""
    f, inputs = given.f, given.several
    first = given.translated(False).subject()
    w = cotangents(first, grad_outputs, seed)
    active, kept = (tuple(p.position for p in parts) for parts in (first.active, first.kept))
    gradient, point = library.gradient(f, inputs, active, kept, w, spread)
    contiguous = library.gradient(f, inputs, active, kept, w, False)[0] if spread else None
    by = *active, *range(len(inputs), len(inputs) + len(w))
    second = replace(_second(gradient, point, by, options), terms=terms_of(first, w))
    own = {
        **_with_cotangents(options, len(active), len(w)),
        "check_forward_ad": forms.pushes,
        "check_backward_ad": forms.pulls,
    }
    report = _of_gradient(second, first.columns, contiguous, own)
    if given.leaves is not None and given.leaves.names:
        held = given.leaves.names
        report = replace(
            report,
            input_names=(*held, *["a cotangent"] * len(w)),
            output_names=tuple(held[k] for k in active),
        )
    return report


def _of_own(
    given: Given,
    grad_outputs: Any,
    spread: bool,
    seed: int,
    forms: SecondForms,
    options: dict[str, Any],
) -> GradcheckReport:
    """Check the caller's derivatives of the caller's gradient."""
    assert forms.vjp is not None
    subject = given.subject()
    inputs = (*given.several, *given.args)
    w = cotangents(subject, grad_outputs, seed)
    gradient = Gradient(subject, forms.vjp, forms.vjp_vjp, forms.vjp_jvp, spread)
    contiguous = replace(gradient, spread=False) if spread else None
    by = *(p.position for p in subject.active), *range(len(inputs), len(inputs) + len(w))
    pull = gradient.pull if forms.pulls else None
    push = gradient.push if forms.pushes else None
    second = replace(
        _second(gradient, (*inputs, *w), by, options, vjp=pull, jvp=push),
        kwargs=given.kwargs,
        names=_NAMES,
        terms=terms_of(subject, w),
    )
    own = _with_cotangents(options, len(subject.active), len(w))
    return _of_gradient(second, subject.columns, contiguous, own)


def _second(
    gradient: Callable[..., Any],
    point: tuple[Any, ...],
    by: Sequence[int],
    options: dict[str, Any],
    **derivatives: Callable[..., Any] | None,
) -> Given:
    """Return a gradient at a point, and derivatives of it by some of what it takes."""
    derivatives = {name: derivatives.get(name) for name in FORMS}
    return Given(gradient, point, derivatives, by, (), options.get("convention", CONVENTIONS[0]))


def _with_cotangents(options: dict[str, Any], inputs: int, cotangents: int) -> dict[str, Any]:
    """Return options whose steps and bounds are for the inputs, and none of them for w."""
    given = {name: options[name] for name in ("step", "scale", "bounds") if name in options}
    each = {name: for_each(name, value, inputs) for name, value in given.items()}
    return {**options, **{name: (*own, *[None] * cotangents) for name, own in each.items()}}


def _of_gradient(
    given: Given, size: int, contiguous: Callable[..., Any] | None, options: dict[str, Any]
) -> GradcheckReport:
    """
    Check derivatives of a gradient, of which those by `size` real numbers are symmetric.

    If its cotangents are not contiguous, `contiguous` is the same with those that are.
    """
    options = {name: value for name, value in options.items() if name != "convention"}
    report = check_given(given, **options)
    if report.shape[0] and not report.findings:
        spread, given = given, given.translated(False)
        subject = given.subject()
        if contiguous is not None:
            other = replace(spread, f=contiguous).translated(False).subject()
            report = _found(report, layout(subject, other))
        known = {name: given.names.get(name, name) in report.forms for name in FORMS}
        # Without conjugates, the matrix of real numbers is another one.
        of_reals = all(p.example.dtype.kind == "f" for p in subject.active)
        if given.convention == CONVENTIONS[0] or of_reals:
            derivatives = given.checked(subject, known, None, False)
            report = _symmetric(report, derivatives, size, options)
    return replace(report, reason=f"second order: {report.reason}", order=2)


def _symmetric(
    report: GradcheckReport,
    derivatives: Sequence[GivenDerivative],
    size: int,
    options: dict[str, Any],
) -> GradcheckReport:
    share = report.resolution * _SKEW
    noise = float(options.get("nondet_tol", 0.0))
    return _found(report, skewness(derivatives, size, share, noise, report.seed))


def _found(report: GradcheckReport, told: str | None) -> GradcheckReport:
    """Return a report of what was found beside the entries, if anything was."""
    if told is None:
        return report
    return replace(report, verdict=FAIL, reason=told, findings=(told, *report.findings))


def _of_number(
    subject: Subject,
    f: Callable[..., Any],
    inputs: tuple[Any, ...],
    forms: SecondForms,
    first_order: bool,
    common: dict[str, Any],
    here: dict[str, Any],
) -> GradcheckReport:
    """Check the Hessian of a real number, or products with it, by one input."""
    if subject.rows != 1 or len(subject.active) != 1:
        numbers, count = subject.rows, len(subject.active)
        msg = (
            f"hess= and hvp= are for one real number by one input, and f gives {numbers} "
            f"number{'s' * (numbers != 1)} by {count} input{'s' * (count != 1)}: take "
            f"vjp_vjp= or vjp_jvp="
        )
        raise ValueError(msg)
    part = subject.active[0]
    if part.example.dtype.kind == "c":
        msg = (
            f"hess= and hvp= are by real numbers, and input {part.name} is complex: take vjp= with "
            f"vjp_vjp= or vjp_jvp="
        )
        raise ValueError(msg)
    vjp = forms.vjp
    if vjp is not None and first_order:
        chosen = {"args": (), "argnums": part.position}
        first = {**common, "check_batched_forward_grad": False}
        report = gradcheck(f, inputs, vjp=vjp, **first, **{**here, **chosen})
        if not report:
            return report

    def slope(*given: Any, **kwargs: Any) -> Any:
        assert vjp is not None
        w = np.ones_like(subject.kept[0].example)[()]
        found = vjp(*given, (w,) if subject.several else w, **kwargs)
        if not isinstance(found, (tuple, list)):
            return found
        return found[0] if len(found) == 1 else found[part.position]

    gradient: Callable[..., Any] = slope
    if vjp is None:  # of f alone: a wrong first derivative cannot hide in it
        where = steps_for(1, scale=common.get("scale"), bounds=common.get("bounds"))[0]
        gradient = NumericalGradient(f, part.position, Options(ADAPTIVE, **where))
    second = replace(
        _second(gradient, inputs, (part.position,), common, jac=forms.hess, jvp=forms.hvp),
        kwargs=here["kwargs"],
        names=_OF_NUMBER,
    )
    report = _of_gradient(second, part.stop, None, {**common, "raise_exception": False})
    return answer(report, common["raise_exception"])
