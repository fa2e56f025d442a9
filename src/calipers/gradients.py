"""Is a derivative right? gradcheck against differences that know their error."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from ._arrays import device_module, is_real, require_callable
from ._containers import several
from ._differences.checkpoint import require_folder
from ._differences.plan import others_of
from ._differences.progress import Progress
from ._differences.stencils import IMAGINARY as COMPLEX_STEP
from ._gradcheck.check import Check
from ._gradcheck.derivative import Derivative
from ._gradcheck.given import FORMS, Given, ValueAndJac, require_way
from ._gradcheck.nested import holds_arrays
from ._gradcheck.numerical import Way
from ._gradcheck.options import (
    for_each,
    positions_of,
    require_choices,
    require_forms,
    require_seed,
    require_tested,
    rule_of,
)
from ._gradcheck.report import (
    ERRORS,
    CalipersWarning,
    GradcheckError,
    GradcheckReport,
    InconclusiveError,
    NonsmoothError,
    WrongDerivativeError,
)
from ._gradcheck.rule import FAIL, default_resolution
from ._gradcheck.second import Gradient, cotangents, layout, skewness
from ._gradcheck.subject import Subject
from ._types import Convention, Excuse, Inplace, Method, ProgressLike, SecondOptions
from ._warnings import warn
from .derivatives import differentiate
from .interop.functions import function_library

__all__ = [
    "CalipersWarning",
    "GradcheckError",
    "GradcheckReport",
    "InconclusiveError",
    "NonsmoothError",
    "WrongDerivativeError",
    "gradcheck",
    "gradgradcheck",
]

_SKEW = 1e-2  # of the resolution, by which second derivatives may miss symmetry


def gradcheck(
    f: Callable[..., Any],
    inputs: Any,
    *,
    jac: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    value_and_jac: Callable[..., Any] | None = None,
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
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    argnums: int | Sequence[int] | None = None,
    out_like: Any = None,
    inplace: Inplace | None = None,
    workers: Any = None,
    progress: ProgressLike = False,
    checkpoint: str | os.PathLike[str] | None = None,
    nondifferentiable_outputs: Sequence[int] = (),
    convention: Convention = "torch",
    equal_nan: bool = False,
    allow: Sequence[Excuse] = (),
    seed: int = 0,
) -> GradcheckReport:
    """
    Check the derivatives of a function against differences of the function.

    The caller's arrays are not changed. Differences are taken with steps of each input's own size;
    where two of them do not confirm an entry, an extrapolation that knows its error decides. A
    difference that rounding or a kink may explain is not called an error.

    Parameters
    ----------
    f : callable
        ``f(*inputs, *args, **kwargs)`` returns an array or a tuple of them.
    inputs : array or number, or a tuple or list of them
        Where to check. Real and complex floating-point inputs are differentiated, all others are
        handed on as they are. Arrays in lists, tuples, dicts and dataclasses (and in what else jax
        knows) are differentiated, too, and f may return such containers: `input_names` and
        `output_names` of the report tell the places in them. Numbers beside arrays in a container
        are settings, and held constant.
        Where `jac`, `vjp` or `jvp` is given, f and it get NumPy's arrays in the place of tensors.
    jac : callable, optional
        ``jac(*inputs)`` returns ``jac[output][input]``, unnested where there is one output or one
        input, of shape ``output.shape + input.shape``.
    vjp : callable, optional
        ``vjp(*inputs, w)`` returns a gradient for each differentiable input; w is the cotangent, a
        tuple where f returns one. What belongs to a container is one of the same form, here and
        below: with None for settings in those that are taken, for zeros in those that are returned.
    jvp : callable, optional
        ``jvp(*inputs, v)`` returns a tangent for each differentiable output; v is the tangent, a
        tuple where there are several differentiable inputs.
    value_and_jac : callable, optional
        ``value_and_jac(*inputs)`` returns f's value, which is compared with f, and the same as
        `jac`.
    eps : float, optional
        The absolute step, as torch's. Then, or with atol or rtol, an entry that one difference
        confirms within the whole tolerance is accepted.
    atol, rtol : float, optional
        What an entry may be off by: ``atol + rtol*|numerical|``, and the error of the numerical
        value. By default 0 and 1e-6, with float32 anywhere 5e-3.
    raise_exception : bool
        Whether to raise an error if the verdict is neither PASS nor in `allow`.
    nondet_tol : float
        What two calls with the same arguments may differ by.
    check_undefined_grad : bool, optional
        Whether `vjp` and `jvp` are tested with directions of None, which stand for zeros: by
        default `vjp` of torch functions is.
    check_grad_dtypes : bool
        Whether gradients and tangents must have the dtypes of inputs and outputs.
    check_batched_grad, check_batched_forward_grad : bool
        Whether `vjp` or `jvp` is tested with two directions along a leading axis.
    check_forward_ad, check_backward_ad : bool, optional
        Whether `jvp`, and whether `vjp` and `jac`, are checked: all that are given, by default.
    fast_mode : bool
        Whether to compare products with a random direction: some 15 calls of f for each input,
        whatever its size. An error is traced to an entry before it is called one.
    masked : bool, optional
        Whether only the specified elements of sparse inputs, SciPy's or torch's, are differentiated
        by; by default all are. `jac` is then by the array of the specified values.
    check_sparse_nnz : bool, optional
        The deprecated name of `masked`.
    method : {"adaptive", "2-point", "3-point", "5-point", "cs"}
        How entries are differentiated that the differences of a first look do not confirm: by
        default by `differentiate`'s ladder. A fixed step is repeated with longer ones and a shorter
        one, which tell its error. "cs" is for f that is analytic and returns complex numbers for
        complex inputs; its step is its own.
    step, scale, bounds
        See `jacobian`; for several differentiable inputs a tuple with an item for each, or a number
        for all.
    args, kwargs
        Other arguments of f and of the derivatives: ``vjp(*inputs, *args, w, **kwargs)``.
    argnums : int or sequence of int, optional
        Which inputs are differentiated.
    out_like : array_like or tuple of them, optional
        Arrays like f's results, if ``f(*inputs, *args, *outs)`` stores them in arrays that it takes
        last.
    inplace : {"write", "add"}, optional
        If given, `jac`, `vjp` and `jvp` take arrays last, one for each that they else return, which
        they fill or add to.
    workers, progress, checkpoint
        See `jacobian`: for looking at all entries, in columns. `total` grows by the columns that
        are looked at again. A checkpoint does not depend on the derivatives that are checked, so
        that a corrected one is compared with the same differences.
    nondifferentiable_outputs : sequence of int
        Positions of outputs that are left out, as integer ones are. Where that leaves none, all
        are checked to have no slope, as by torch.
    convention : {"torch", "jax"}
        How gradients of complex numbers are meant: torch's pair with the numbers as real ones do,
        ``Re(conj(w)*dF) == Re(conj(g)*dz)``; jax's do so without the conjugates.
    equal_nan : bool
        Whether NaN in both derivatives is right.
    allow : sequence of str
        Verdicts that count as true: "NONSMOOTH", "INCONCLUSIVE".
    seed : int
        Of random directions.

    Returns
    -------
    GradcheckReport
        True if all is right.

    Raises
    ------
    GradcheckError
        If the derivative is wrong, or cannot be confirmed: a subclass for each verdict.
    ValueError, TypeError
        If an argument is not what it should be, or nothing can be differentiated.
    Exception
        What f or a derivative raises.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> x = np.array([0.5, 1.0])
    >>> bool(calipers.gradcheck(np.sin, x, vjp=lambda x, w: w * np.cos(x)))
    True
    >>> report = calipers.gradcheck(
    ...     np.sin, x, vjp=lambda x, w: 2 * w * np.cos(x), raise_exception=False
    ... )
    >>> print(report.reason)  # doctest: +ELLIPSIS
    the derivative of output 0 with respect to input 0 is wrong in column 0 in row 0: ...
    """
    require_choices(convention, nondet_tol, allow, method)
    require_seed(seed)
    require_folder(checkpoint)
    if eps is not None:
        if step is not None:
            msg = "eps and step were both given: they are the same, so give one of them"
            raise ValueError(msg)
        if not is_real(eps) or not eps > 0:
            msg = f"eps must be positive, got {eps!r:.60}"
            raise ValueError(msg)
        step = eps
    if check_sparse_nnz is not None:
        warn("check_sparse_nnz is deprecated: masked=", CalipersWarning)
        if masked is not None:
            msg = "masked and check_sparse_nnz are the same: give masked alone"
            raise ValueError(msg)
        masked = check_sparse_nnz
    if value_and_jac is not None and jac is not None:
        msg = "jac and value_and_jac were both given: they are the same, so give one of them"
        raise ValueError(msg)
    wanted = {"jac": jac if value_and_jac is None else value_and_jac, "vjp": vjp, "jvp": jvp}
    named = {**wanted, "jac": jac, "value_and_jac": value_and_jac}
    require_callable(**{name: call for name, call in named.items() if call is not None})
    left_out = positions_of(nondifferentiable_outputs)
    given = Given(f, inputs, wanted, argnums, left_out, convention, others_of(args), kwargs)
    require_way(inplace, given, value_and_jac)
    if given.on_device():
        given, out_like = device_module("gradients").carried(given, out_like, inplace)
    both = given.derivatives["jac"]
    if value_and_jac is not None and both is not None:
        source = ValueAndJac(both, given.primals)
        given = replace(given, derivatives={**given.derivatives, "jac": source})
    if out_like is not None:
        given = given.filling(out_like)
    if inplace is None:
        given = given.of_leaves()
    given = given.translated(bool(masked))
    if method == COMPLEX_STEP and given.of_library:
        msg = (
            f"method={method!r} is for functions of NumPy's arrays, and f is one of another "
            f"library's, in their own dtype: leave method out"
        )
        raise ValueError(msg)
    subject = given.subject()
    if not subject.kept and any(o.dtype.kind in "fc" for o in subject.outputs):
        given, subject = given.zeros()
        check_undefined_grad, inplace = False, None
    chosen = {
        "jac": check_backward_ad is not False,
        "vjp": check_backward_ad is not False,
        "jvp": bool(check_forward_ad) or (check_forward_ad is None and not given.of_library),
    }
    require_forms(given.derivatives, chosen, check_forward_ad, check_backward_ad)
    derivatives = given.checked(subject, chosen, inplace, check_grad_dtypes)
    names = {d.name for d in derivatives}
    undefined = {"vjp", "jvp"} if check_undefined_grad else set()
    if check_undefined_grad is None and given.of_library and given.convention == "torch":
        undefined = names & {"vjp"}
    batched = {"vjp": check_batched_grad, "jvp": check_batched_forward_grad}
    require_tested(names, bool(undefined), batched, inplace)
    resolution = default_resolution(subject.eps)
    rule = rule_of(eps, atol, rtol, resolution, subject.eps, equal_nan, nondet_tol)
    count = len(subject.active)
    steps = {"step": step, "scale": scale, "bounds": bounds}
    each = zip(*(for_each(name, value, count) for name, value in steps.items()), strict=True)
    check = Check(subject, derivatives, rule, resolution, fast_mode, seed, tuple(allow))
    heard = Progress(progress, 0)
    try:
        report = check.run(
            [{"method": method, **dict(zip(steps, values, strict=True))} for values in each],
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
    if report.vacuous:
        warn(f"gradcheck compared nothing: {report.reason}", CalipersWarning)
    return _answer(report, raise_exception, check.cause)


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
    for name in ("jac", "jvp", "value_and_jac", "inplace", "out_like"):
        if options.get(name) is not None:
            msg = f"gradgradcheck takes no {name}=: f returns, and vjp is its first derivative"
            raise ValueError(msg)
    if options.get("checkpoint") is not None:
        msg = "gradgradcheck takes no checkpoint=: it is several checks; give it to gradcheck"
        raise ValueError(msg)
    require_seed(seed)
    args = others_of(args)
    points = several(inputs)
    library = function_library(points) if vjp is None else None
    alone = vjp is None or (vjp_vjp is None and vjp_jvp is None)
    if library is None and hess is None and hvp is None and alone:
        msg = (
            "gradgradcheck needs vjp= with vjp_vjp= or vjp_jvp=, or hess= or hvp=; only a function "
            "of torch's tensors, of which one requires grad, or of jax's arrays needs none"
        )
        raise ValueError(msg)
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
    if first_order and hess is None and hvp is None:
        report = gradcheck(f, inputs, vjp=vjp, **common, **here)
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
    if hess is not None or hvp is not None:
        return _of_number(given.subject(), f, whole, vjp, hess, hvp, first_order, common, here)
    forms: dict[str, Any]
    forward, backward = check_fwd_over_rev is not False, check_rev_over_rev is not False
    if library is not None:
        given = given.of_leaves()
        f, whole = given.f, given.several
        first = given.translated(False).subject()
        w = cotangents(first, grad_outputs, seed)
        chosen, kept = (tuple(p.position for p in parts) for parts in (first.active, first.kept))
        gradient, point = library.gradient(f, whole, chosen, kept, w, gen_non_contig_grad_outputs)
        plain = _with_cotangents(plain, len(chosen), len(w))
        forms = {
            "check_forward_ad": bool(check_fwd_over_rev),
            "check_backward_ad": backward,
            "argnums": [*chosen, *range(len(whole), len(whole) + len(w))],
        }
        plain_gradient = None
        if gen_non_contig_grad_outputs:
            plain_gradient, _ = library.gradient(f, whole, chosen, kept, w, False)
        sizes = first.columns, plain_gradient
        report = _of_gradient(gradient, point, *sizes, forms, plain)
        if given.leaves is not None and given.leaves.names:
            held = given.leaves.names
            report = replace(
                report,
                input_names=(*held, *["a cotangent"] * len(w)),
                output_names=tuple(held[k] for k in chosen),
            )
        return _answer(report, raise_exception)
    assert vjp is not None
    subject = given.subject()
    own = Gradient(subject, vjp, vjp_vjp, vjp_jvp, gen_non_contig_grad_outputs)
    w = cotangents(subject, grad_outputs, seed)
    active = [p.position for p in subject.active]
    plain = _with_cotangents(plain, len(active), len(w))
    forms = {
        "vjp": own.pull if vjp_vjp is not None and backward else None,
        "jvp": own.push if vjp_jvp is not None and forward else None,
        "argnums": [*active, *range(len(whole), len(whole) + len(w))],
        "kwargs": kwargs,
    }
    contiguous = replace(own, spread=False) if own.spread else None
    sizes = subject.columns, contiguous
    return _answer(_of_gradient(own, (*whole, *w), *sizes, forms, plain), raise_exception)


def _with_cotangents(options: dict[str, Any], inputs: int, cotangents: int) -> dict[str, Any]:
    """Return options whose steps and bounds are for the inputs, and none of them for w."""
    given = {name: options[name] for name in ("step", "scale", "bounds") if name in options}
    each = {name: for_each(name, value, inputs) for name, value in given.items()}
    return {**options, **{name: (*own, *[None] * cotangents) for name, own in each.items()}}


def _of_gradient(
    gradient: Callable[..., Any],
    point: tuple[Any, ...],
    size: int,
    contiguous: Callable[..., Any] | None,
    forms: dict[str, Any],
    options: dict[str, Any],
) -> GradcheckReport:
    """
    Check derivatives of a gradient, of which those by `size` real numbers are symmetric.

    If its cotangents are not contiguous, `contiguous` is the same with those that are.
    """
    report = gradcheck(gradient, point, **forms, **options)
    if report.shape[0] and not report.findings:
        given = Given(
            gradient,
            point,
            {name: forms.get(name) for name in FORMS},
            forms.get("argnums"),
            (),
            options.get("convention", "torch"),
            kwargs=forms.get("kwargs"),
        )
        spread, given = given, given.translated(False)
        subject = given.subject()
        if contiguous is not None:
            other = replace(spread, f=contiguous).translated(False).subject()
            report = _found(report, layout(subject, other))
        known = {name: name in report.forms for name in FORMS}
        # Without conjugates, the matrix of real numbers is another one.
        of_reals = all(p.example.dtype.kind == "f" for p in subject.active)
        if given.convention == "torch" or of_reals:
            derivatives = given.checked(subject, known, None, False)
            report = _symmetric(report, derivatives, size, options)
    return replace(report, reason=f"second order: {report.reason}", order=2)


def _symmetric(
    report: GradcheckReport,
    derivatives: Sequence[Derivative],
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
    vjp: Callable[..., Any] | None,
    hess: Callable[..., Any] | None,
    hvp: Callable[..., Any] | None,
    first_order: bool,
    common: dict[str, Any],
    here: dict[str, Any],
) -> GradcheckReport:
    """Check the Hessian of a real number, or products with it, by one input."""
    if subject.rows != 1 or len(subject.active) != 1:
        msg = (
            f"hess= and hvp= are for one real number by one input, and f gives {subject.rows} "
            f"numbers by {len(subject.active)} inputs: take vjp_vjp= or vjp_jvp="
        )
        raise ValueError(msg)
    if vjp is not None and first_order:
        chosen = {"args": (), "argnums": subject.active[0].position}
        report = gradcheck(f, inputs, vjp=vjp, **common, **{**here, **chosen})
        if not report:
            return report
    part = subject.active[0]
    others = (*subject.values[: part.position], *subject.values[part.position + 1 :])

    def slope(*given: Any, **kwargs: Any) -> Any:
        if vjp is not None:
            w = np.ones_like(subject.kept[0].example)[()]
            found = vjp(*given, (w,) if subject.several else w, **kwargs)
            if not isinstance(found, (tuple, list)):
                return found
            return found[0] if len(found) == 1 else found[part.position]
        # Of f alone: a wrong first derivative cannot hide in it.
        x = given[part.position]
        return differentiate(f, x, args=others, argnums=part.position, kwargs=kwargs).value

    forms = {"jac": hess, "jvp": hvp, "argnums": part.position, "kwargs": here["kwargs"]}
    plain = {**common, "raise_exception": False}
    report = _of_gradient(slope, inputs, part.stop, None, forms, plain)
    return _answer(report, common["raise_exception"])


def _answer(
    report: GradcheckReport, raise_exception: bool, cause: BaseException | None = None
) -> GradcheckReport:
    if raise_exception and not report:
        raise ERRORS[report.verdict](report) from cause
    return report
