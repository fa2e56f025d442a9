"""Checks of second derivatives: gradgradcheck."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from .._core.arguments import require_flags
from .._core.arrays import is_sparse
from .._core.protocols import FunctionLibrary
from .._core.types import ArrayLike, Convention, PyTree, SecondOptions
from .._derivatives.options import Options, others_of
from .._derivatives.steps import ADAPTIVE
from .adapt import FORMS, CheckArguments, function_library
from .analytic import CONVENTIONS
from .calls import Call, explains_call
from .check import run_check
from .containers import holds_arrays
from .entry_rules import FAIL
from .flatten import labels_of
from .function_at_point import Labels, names_of
from .numerical_gradient import NumericalGradient
from .options import Settings, for_each, positions_of, require_functions, steps_for
from .report import GradcheckReport, answer
from .second_order import (
    Gradient,
    SecondForms,
    cotangents,
    layout,
    require_gradcheck_options,
    skewness,
    terms_of,
)

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

__all__ = ["gradgradcheck"]

_SKEW = 1e-2  # asymmetry allowed in second derivatives, as a share of the resolution


@explains_call
def gradgradcheck(
    f: Callable[..., Any],
    inputs: PyTree,
    grad_outputs: ArrayLike | Sequence[ArrayLike] | None = None,
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
    convention: Convention = "torch",
    raise_exception: bool = True,
    seed: int = 0,
    **options: Unpack[SecondOptions],
) -> GradcheckReport:
    """
    Check second derivatives of a function against finite differences of its gradient.

    The first derivative is checked, too: differences of a wrong gradient would confirm a second
    derivative that is wrong in the same way.

    Parameters
    ----------
    f : callable
        ``f(*inputs, *args, **kwargs)`` returns an array or a tuple of arrays.
    inputs : array or number, or a tuple or list of them
        Point at which to check, as for `gradcheck`.
    grad_outputs : array_like or tuple of them, optional
        Cotangents of the differentiable outputs. By default drawn uniformly from [-1, 1).
    vjp : callable, optional
        The first derivative, as for `gradcheck`. Functions of torch and jax need none.
    vjp_vjp : callable, optional
        ``vjp_vjp(*inputs, w, u)`` returns the gradients of ``<u, vjp(*inputs, w)>`` with respect to
        each differentiable input, and to w.
    vjp_jvp : callable, optional
        ``vjp_jvp(*inputs, w, v)`` returns the derivative of ``vjp(*inputs, w)`` along v, a tuple of
        tangents for each differentiable input, and for w.
    hess : callable, optional
        ``hess(*inputs)`` returns the Hessian of a real scalar f with respect to one input, of shape
        ``x.shape + x.shape``.
    hvp : callable, optional
        ``hvp(*inputs, v)`` returns the product of the Hessian with v.
    first_order : bool, default True
        If True, check `vjp` first.
    gen_non_contig_grad_outputs : bool, default False
        If True, the random cotangents are not contiguous.
    check_fwd_over_rev : bool, optional
        If True, check `vjp_jvp`. By default it is checked if it is passed.
    check_rev_over_rev : bool, optional
        If True, check `vjp_vjp`. By default it is checked if it is passed, and for functions of
        torch and jax.
    args : tuple, default ()
        Other positional arguments of f and of the derivatives.
    kwargs : dict, optional
        Keyword arguments of f and of the derivatives.
    argnums : int or sequence of int, optional
        Positions of the inputs to differentiate. By default all floating-point inputs.
    nondifferentiable_outputs : sequence of int, default ()
        Positions of outputs to exclude.
    convention : {"torch", "jax"}, default "torch"
        Convention for gradients of complex functions, as for `gradcheck`.
    raise_exception : bool, default True
        If True, raise a GradcheckError if the verdict is neither PASS nor in `allow`.
    seed : int, default 0
        Seed of random cotangents and directions.
    **options
        Keywords of `gradcheck`, with the same defaults: tolerances, steps, `workers`, `allow` and
        so on.

    Returns
    -------
    GradcheckReport
        The report on the first derivative if that is wrong, else on the second.

    Raises
    ------
    GradcheckError, ValueError, TypeError, Exception
        As for `gradcheck`.

    See Also
    --------
    gradcheck : Check first derivatives.
    hessian : Compute second derivatives numerically.

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
    call = Call.of(gradgradcheck, locals())
    require_functions(f, vjp=vjp, vjp_vjp=vjp_vjp, vjp_jvp=vjp_jvp, hess=hess, hvp=hvp)
    require_gradcheck_options(gradgradcheck, options)
    require_flags(first_order=first_order, gen_non_contig_grad_outputs=gen_non_contig_grad_outputs)
    wanted = check_fwd_over_rev, check_rev_over_rev
    pairs = zip(("check_fwd_over_rev", "check_rev_over_rev"), wanted, strict=True)
    require_flags(**{name: flag for name, flag in pairs if flag is not None})
    settings = Settings(**options, raise_exception=raise_exception, seed=seed)
    arguments = CheckArguments(
        f,
        inputs,
        {**dict.fromkeys(FORMS), "vjp": vjp},
        argnums,
        positions_of(nondifferentiable_outputs),
        convention,
        others_of(args),
        kwargs,
    )
    library = function_library(arguments.several) if vjp is None else None
    forms = SecondForms(vjp, vjp_vjp, vjp_jvp, hess, hvp, *wanted, library is not None)
    spread = gen_non_contig_grad_outputs
    forms.require(options, grad_outputs=grad_outputs, gen_non_contig_grad_outputs=spread)
    if library is None and any(map(holds_arrays, arguments.several)):
        msg = (
            "gradgradcheck takes containers of arrays only for functions of torch and "
            "jax: with vjp=, hess= or hvp=, pass the arrays as separate inputs"
        )
        raise TypeError(msg)
    active = range(len(arguments.several)) if argnums is None else np.atleast_1d(argnums)
    sparse = [k for k, x in enumerate(arguments.several) if is_sparse(x) and k in active]
    if sparse:
        kind = type(arguments.several[sparse[0]]).__name__
        msg = (
            f"gradgradcheck needs dense inputs, and input {sparse[0]} is a {kind}: omit it "
            "from argnums=, or pass its values, the array .data, as the input and build "
            "the matrix in f"
        )
        raise TypeError(msg)
    if forms.of_number:
        return _check_hessian(arguments, forms, first_order, settings, call)
    if first_order:
        report = _check_first(arguments, settings, call)
        if not report:
            return report
    if library is not None:
        flat = arguments.of_leaves()
        report = _check_library_gradient(library, flat, grad_outputs, spread, forms, settings, call)
    else:
        report = _check_user_gradient(arguments, grad_outputs, spread, forms, settings, call)
    return answer(_noted(report, first_order), raise_exception)


def _check_first(arguments: CheckArguments, settings: Settings, call: Call) -> GradcheckReport:
    """Check the first derivative, which has no forward mode."""
    return run_check(arguments, replace(settings, check_batched_forward_grad=False), call)


def _check_library_gradient(
    library: FunctionLibrary,
    arguments: CheckArguments,
    grad_outputs: Any,
    spread: bool,
    forms: SecondForms,
    settings: Settings,
    call: Call,
) -> GradcheckReport:
    """Check the second derivatives by a library such as torch or jax."""
    f, inputs = arguments.f, arguments.several
    first = arguments.translated(False).at_point()
    w = cotangents(first, grad_outputs, settings.seed)
    active, outputs = (
        tuple(p.position for p in parts) for parts in (first.active, first.active_outputs)
    )
    gradient, point = library.gradient(f, inputs, active, outputs, w, spread)
    contiguous = library.gradient(f, inputs, active, outputs, w, False)[0] if spread else None
    by = *active, *range(len(inputs), len(inputs) + len(w))
    second = replace(
        _second(gradient, point, by, arguments.convention),
        terms=terms_of(first, w),
        labels=_labels(names_of(inputs, arguments.structure), active, len(w)),
    )
    second_settings = replace(
        _with_cotangents(settings, len(active), len(w)),
        check_forward_ad=forms.pushes,
        check_backward_ad=forms.pulls,
    )
    report = _check_gradient(second, first.columns, contiguous, second_settings, call)
    if arguments.structure is not None and arguments.structure.names:
        held = arguments.structure.names
        report = replace(
            report,
            input_names=(*held, *["a cotangent"] * len(w)),
            output_names=tuple(held[k] for k in active),
        )
    return report


def _check_user_gradient(
    arguments: CheckArguments,
    grad_outputs: Any,
    spread: bool,
    forms: SecondForms,
    settings: Settings,
    call: Call,
) -> GradcheckReport:
    """Check the caller's derivatives of the caller's gradient, vjp."""
    assert forms.vjp is not None
    subject = arguments.at_point()
    inputs = (*arguments.several, *arguments.args)
    w = cotangents(subject, grad_outputs, settings.seed)
    gradient = Gradient(subject, forms.vjp, forms.vjp_vjp, forms.vjp_jvp, spread)
    contiguous = replace(gradient, spread=False) if spread else None
    by = *(p.position for p in subject.active), *range(len(inputs), len(inputs) + len(w))
    pull = gradient.pull if forms.pulls else None
    push = gradient.push if forms.pushes else None
    second = replace(
        _second(gradient, (*inputs, *w), by, arguments.convention, vjp=pull, jvp=push),
        kwargs=arguments.kwargs,
        names=forms.names,
        terms=terms_of(subject, w),
        labels=_labels(subject.names, [p.position for p in subject.active], len(w)),
    )
    second_settings = _with_cotangents(settings, len(subject.active), len(w))
    return _check_gradient(second, subject.columns, contiguous, second_settings, call)


def _second(
    gradient: Callable[..., Any],
    point: tuple[Any, ...],
    by: Sequence[int],
    convention: str,
    **derivatives: Callable[..., Any] | None,
) -> CheckArguments:
    """Return the arguments of a check of a gradient and its derivatives at a point."""
    every: dict[str, Any] = {**dict.fromkeys(FORMS), **derivatives}
    return CheckArguments(gradient, point, every, by, (), convention)


def _labels(names: Sequence[str], active: Sequence[int], cotangents: int) -> Labels:
    """Return the labels of the inputs of f, of its cotangents and of its gradients in reports."""
    gradients = labels_of("grad", names)
    inputs = *labels_of("in", names), *(f"w[{k}]" for k in range(cotangents))
    return inputs, [gradients[k] for k in active]


def _with_cotangents(settings: Settings, inputs: int, cotangents: int) -> Settings:
    """Return settings with the steps and bounds of the inputs, and None for cotangents."""
    names = [n for n in ("step", "scale", "bounds") if getattr(settings, n) is not None]
    each = {name: for_each(name, getattr(settings, name), inputs) for name in names}
    changes: dict[str, Any] = {name: (*x, *[None] * cotangents) for name, x in each.items()}
    return replace(settings, **changes)


def _check_gradient(
    arguments: CheckArguments,
    size: int,
    contiguous: Callable[..., Any] | None,
    settings: Settings,
    call: Call,
) -> GradcheckReport:
    """
    Check derivatives of a gradient; the first `size` rows and columns must be symmetric.

    If cotangents are not contiguous, `contiguous` is the same gradient with those that are. The
    report is returned, whatever the verdict.
    """
    report = run_check(arguments, replace(settings, raise_exception=False), call, order=2)
    if report.shape[0] and not report.findings:
        spread, arguments = arguments, arguments.adapted()
        subject = arguments.at_point()
        subject.confine(settings.steps(len(subject.active)))
        if contiguous is not None:
            other = replace(spread, f=contiguous).adapted().at_point()
            report = _with_finding(report, layout(subject, other))
        checked_forms = {name: arguments.names.get(name, name) in report.forms for name in FORMS}
        # Without conjugates, as in jax, the matrix of real numbers is not symmetric.
        of_reals = all(p.example.dtype.kind == "f" for p in subject.active)
        if arguments.convention == CONVENTIONS[0] or of_reals:
            derivatives = arguments.checked(subject, checked_forms, None, False)
            share, noise = report.resolution * _SKEW, float(settings.nondet_tol)
            report = _with_finding(report, skewness(derivatives, size, share, noise, report.seed))
    return replace(report, reason=f"second order: {report.reason}")


def _noted(report: GradcheckReport, first_order: bool) -> GradcheckReport:
    """Return a report that notes a first derivative that was not checked."""
    if first_order:
        return report
    note = "the first derivative was not checked (first_order=False)"
    return replace(report, reason=f"{report.reason}; {note}")


def _with_finding(report: GradcheckReport, message: str | None) -> GradcheckReport:
    """Return a report that fails with a message, if there is one."""
    if message is None:
        return report
    return replace(
        report, verdict=FAIL, reason=message, findings=(message, *report.findings), next=""
    )


def _check_hessian(
    arguments: CheckArguments, forms: SecondForms, first_order: bool, settings: Settings, call: Call
) -> GradcheckReport:
    """Check the Hessian of a real scalar with respect to one input, or products with it."""
    subject, inputs = arguments.at_point(), (*arguments.several, *arguments.args)
    if subject.rows != 1 or len(subject.active) != 1:
        numbers, count = subject.rows, len(subject.active)
        msg = (
            "hess= and hvp= are derivatives of one real number with respect to one input, "
            f"and f returns {numbers} number{'s' * (numbers != 1)} for {count} "
            f"input{'s' * (count != 1)}: use vjp_vjp= or vjp_jvp="
        )
        raise ValueError(msg)
    part = subject.active[0]
    if part.example.dtype.kind == "c":
        msg = (
            f"hess= and hvp= need a real input, and input {part.name} is complex: use vjp= "
            "with vjp_vjp= or vjp_jvp="
        )
        raise ValueError(msg)
    vjp = forms.vjp
    if vjp is not None and first_order:
        first = replace(arguments, inputs=inputs, args=(), argnums=part.position)
        report = _check_first(first, settings, call)
        if not report:
            return report

    def slope(*args: Any, **kwargs: Any) -> Any:
        assert vjp is not None
        w = np.ones_like(subject.active_outputs[0].example)[()]
        gradients = vjp(*args, (w,) if subject.several else w, **kwargs)
        if not isinstance(gradients, (tuple, list)):
            return gradients
        return gradients[0] if len(gradients) == 1 else gradients[part.position]

    gradient: Callable[..., Any] = slope
    if vjp is None:  # differences of f itself do not inherit errors of a first derivative
        where = steps_for(1, scale=settings.scale, bounds=settings.bounds)[0]
        gradient = NumericalGradient(arguments.f, part.position, Options(method=ADAPTIVE, **where))
    by, convention = (part.position,), arguments.convention
    second = replace(
        _second(gradient, inputs, by, convention, jac=forms.hess, jvp=forms.hvp),
        kwargs=arguments.kwargs,
        names=forms.names,
        labels=_labels(subject.names, by, 0),
    )
    report = _check_gradient(second, part.stop, None, settings, call)
    return answer(_noted(report, first_order or vjp is None), settings.raise_exception)
