"""Is a derivative right? gradcheck against differences that know their error."""

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ._differences.plan import others_of
from ._gradcheck.checking import check_given
from ._gradcheck.given import Given
from ._gradcheck.options import one_jac, positions_of, require_functions
from ._gradcheck.report import (
    CalipersWarning,
    GradcheckError,
    GradcheckReport,
    InconclusiveError,
    NonsmoothError,
    WrongDerivativeError,
)
from ._gradcheck.settings import Settings
from ._types import Convention, Excuse, Inplace, Method, ProgressLike

__all__ = [
    "CalipersWarning",
    "GradcheckError",
    "GradcheckReport",
    "InconclusiveError",
    "NonsmoothError",
    "WrongDerivativeError",
    "gradcheck",
]


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
    allow: Collection[Excuse] = (),
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
        Where to check; f and the derivatives get copies in C order. Real and complex floating-point
        inputs are differentiated, all others are handed on as they are. Arrays in lists, tuples,
        dicts and dataclasses (and in what else jax knows) are differentiated, too, and f may return
        such containers: `input_names` and `output_names` of the report tell the places in them.
        Numbers beside arrays in a container are settings, and held constant.
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
        What two calls with the same arguments may differ by, those of f beyond rounding.
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
        complex inputs; its step is its own, and differences that contradict it count instead.
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
    allow : collection of str
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
    require_functions(f, jac=jac, vjp=vjp, jvp=jvp, value_and_jac=value_and_jac)
    given = Given(
        f,
        inputs,
        {"jac": one_jac(jac, value_and_jac), "vjp": vjp, "jvp": jvp},
        argnums,
        positions_of(nondifferentiable_outputs),
        convention,
        others_of(args),
        kwargs,
        with_value=value_and_jac is not None,
    )
    settings = Settings(
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_batched_forward_grad=check_batched_forward_grad,
        check_forward_ad=check_forward_ad,
        check_backward_ad=check_backward_ad,
        fast_mode=fast_mode,
        masked=masked,
        check_sparse_nnz=check_sparse_nnz,
        method=method,
        step=step,
        scale=scale,
        bounds=bounds,
        out_like=out_like,
        inplace=inplace,
        workers=workers,
        progress=progress,
        checkpoint=checkpoint,
        equal_nan=equal_nan,
        allow=allow,
        seed=seed,
    )
    return check_given(given, settings)
