"""Gradient checks: gradcheck, its report and its errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from .._core.arguments import takes_options
from .._core.types import Convention, GradcheckOptions, PyTree
from .._derivatives.options import others_of
from .adapt import CheckArguments
from .calls import Call, explains_call
from .check import run_check
from .options import Settings, one_jac, positions_of, require_functions
from .report import (
    CalipersWarning,
    GradcheckError,
    GradcheckReport,
    InconclusiveError,
    NonsmoothError,
    WrongDerivativeError,
)

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

__all__ = [
    "CalipersWarning",
    "GradcheckError",
    "GradcheckReport",
    "InconclusiveError",
    "NonsmoothError",
    "WrongDerivativeError",
    "gradcheck",
]


@explains_call
@takes_options(Settings)
def gradcheck(
    f: Callable[..., Any],
    inputs: PyTree,
    *,
    jac: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    value_and_jac: Callable[..., Any] | None = None,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    argnums: int | Sequence[int] | None = None,
    nondifferentiable_outputs: Sequence[int] = (),
    convention: Convention = "torch",
    **options: Unpack[GradcheckOptions],
) -> GradcheckReport:
    """
    Check derivatives of a function against finite differences with error estimates.

    Each entry of the Jacobian is first compared with central differences, at a step that fits the
    size of its input. For entries that these do not confirm, f is evaluated at steps of all
    lengths. An entry is wrong only if steps that can tell agree on this, and none supports it: not
    if noise or a kink may explain the difference.

    Parameters
    ----------
    f : callable
        ``f(*inputs, *args, **kwargs)`` returns an array or a tuple of arrays.
    inputs : array or number, or a tuple or list of them
        Point at which to check. Real and complex floating-point inputs are differentiated; others
        are passed through. See Notes for containers.
    jac : callable, optional
        ``jac(*inputs)`` returns ``jac[output][input]``, of shape ``output.shape + input.shape``.
        With one output or one input, that level of nesting is omitted.
    vjp : callable, optional
        ``vjp(*inputs, w)`` returns a gradient for each differentiable input. w is the cotangent: an
        array, or a tuple if f returns one.
    jvp : callable, optional
        ``jvp(*inputs, v)`` returns a tangent for each differentiable output. v is the tangent: an
        array, or a tuple if there are several differentiable inputs.
    value_and_jac : callable, optional
        ``value_and_jac(*inputs)`` returns the result of f, which is compared with f, and what `jac`
        returns.
    eps : float, optional
        Absolute step, as in torch. If it, `atol` or `rtol` is passed, an entry passes if one
        difference confirms it within the tolerance. By default steps fit the size of each input.
    atol : float, optional
        Absolute tolerance of ``|analytic - numerical|``, in addition to the error estimate of the
        numerical value. By default 0.
    rtol : float, optional
        Relative tolerance, relative to the numerical value. By default 1e-6, or 5e-3 if any array
        is float32, 0.03 if one is float16, and 0.09 if one is bfloat16.
    raise_exception : bool, default True
        If True, raise a GradcheckError if the verdict is neither PASS nor in `allow`.
    nondet_tol : float, default 0.0
        Largest difference between two calls with the same arguments. For f, rounding is allowed,
        too.
    check_undefined_grad : bool, optional
        If True, call `vjp` and `jvp` with None for directions that are zero. By default only for
        the vjp of torch functions.
    check_grad_dtypes : bool, default False
        If True, gradients must have the dtypes of the inputs, and tangents those of the outputs.
    check_batched_grad : bool, default False
        If True, call `vjp` also with two cotangents along a leading axis.
    check_batched_forward_grad : bool, default False
        If True, call `jvp` also with two tangents along a leading axis.
    check_forward_ad : bool, optional
        If True, check `jvp`. By default it is checked if it is passed.
    check_backward_ad : bool, optional
        If True, check `vjp` and `jac`. By default they are checked if they are passed.
    fast_mode : bool, default False
        If True, compare products with random directions, with about 25 calls of f for each input,
        whatever its size. An error is then located before it is reported.
    masked : bool, optional
        If True, differentiate with respect to the specified elements of sparse inputs only; `jac`
        is then with respect to the array of these values. By default with respect to all elements.
    check_sparse_nnz : bool, optional
        Deprecated name of `masked`.
    method : {"adaptive", "2-point", "3-point", "5-point", "cs"}, default "adaptive"
        How entries are differentiated that the first differences do not confirm. Fixed steps are
        repeated at longer and shorter steps to estimate their error. "cs" is for analytic f that
        return complex numbers for complex inputs.
    step, scale : float, array_like or tuple of them, optional
        Absolute step and typical size, as for `jacobian`; a number for all inputs, or a tuple with
        an item for each differentiable input.
    bounds : (lower, upper) or tuple of such pairs, optional
        Limits on the points at which f is called, as for `jacobian`.
    args : tuple, default ()
        Other positional arguments of f and of the derivatives, ``vjp(*inputs, *args, w,
        **kwargs)``.
    kwargs : dict, optional
        Keyword arguments of f and of the derivatives.
    argnums : int or sequence of int, optional
        Positions of the inputs to differentiate. By default all floating-point inputs.
    out_like : array_like or tuple of them, optional
        Arrays like the results of f, for f that write their results into arrays,
        ``f(*inputs, *args, *outs)``.
    inplace : {"write", "add"}, optional
        If passed, `jac`, `vjp` and `jvp` take arrays as last arguments, one for each result, which
        they overwrite or add to. By default they return their results.
    workers : int, executor, dask Client or map-like callable, optional
        Where f is called, as for `jacobian`.
    progress : bool or callable, default False
        Show a progress bar, or call ``progress(done, total)``. `total` grows if columns are
        evaluated again.
    checkpoint : str or path, optional
        Folder in which finished differences are stored, as for `jacobian`. They do not depend on
        the derivatives, so that a corrected one is compared with the stored differences.
    nondifferentiable_outputs : sequence of int, default ()
        Positions of outputs to exclude; integer outputs are always excluded. If none remain, the
        derivatives must be zero, as in torch.
    convention : {"torch", "jax"}, default "torch"
        Convention for gradients of complex functions. torch:
        ``Re(conj(w)*dF) == Re(conj(g)*dz)``; jax: the same without the conjugates.
    equal_nan : bool, default False
        If True, NaN in both derivatives is right.
    allow : collection of {"NONSMOOTH", "INCONCLUSIVE"}, default ()
        Verdicts that count as success.
    seed : int, default 0
        Seed of random directions.

    Returns
    -------
    GradcheckReport
        True if the derivatives are right. ``print(report)`` lists the errors.

    Raises
    ------
    WrongDerivativeError
        If the verdict is FAIL.
    NonsmoothError
        If the verdict is NONSMOOTH: f is not differentiable at the point.
    InconclusiveError
        If the verdict is INCONCLUSIVE: rounding or noise of f hides the derivative.
    ValueError, TypeError
        If an argument is invalid, or there is nothing to differentiate.
    Exception
        Whatever f or a derivative raises.

    Warns
    -----
    CalipersWarning
        If there is nothing to compare, or f uses a tensor of `inputs` other than through its
        arguments, which is then held constant.

    See Also
    --------
    gradgradcheck : Check second derivatives.
    differentiate : The numerical derivative, with error estimates.

    Notes
    -----
    The three errors are subclasses of `GradcheckError`. The arrays of the caller are not modified:
    f and the derivatives get copies in C order. They are NumPy arrays, even if `inputs` are
    tensors, if `jac`, `vjp` or `jvp` is passed. Without these, f must be a function of torch
    tensors or jax arrays, whose automatic differentiation is checked.

    Arrays in lists, tuples, dicts and dataclasses (and other jax pytrees) are differentiated as
    well, and f may return such containers. Numbers in containers with arrays are constants.
    Cotangents, tangents and gradients of a container have its structure. None marks a constant leaf
    in arguments and a zero gradient in results.

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
    >>> report.verdict, report.counts["FAIL"]
    ('FAIL', 2)
    """
    call = Call.of(gradcheck, locals())
    require_functions(f, jac=jac, vjp=vjp, jvp=jvp, value_and_jac=value_and_jac)
    arguments = CheckArguments(
        f,
        inputs,
        {"jac": one_jac(jac, value_and_jac), "vjp": vjp, "jvp": jvp},
        argnums,
        positions_of(nondifferentiable_outputs),
        convention,
        others_of(args) if type(args) is not tuple or args else (),
        kwargs,
        with_value=value_and_jac is not None,
    )
    return run_check(arguments, Settings(**options), call)
