"""What gradcheck's options mean, and which of them it refuses."""

from collections.abc import Callable, Collection, Container, Mapping
from typing import Any

import numpy as np

from .._arguments import is_integer, is_real, require_callable
from .._differences.stencils import IMAGINARY as COMPLEX_STEP
from .._differences.stencils import require_method
from .._warnings import warn
from .derivative import CONVENTIONS
from .report import CalipersWarning
from .rule import INCONCLUSIVE, NONSMOOTH, Rule

# Relative change of slope across x that calls for a second look: more than curvature explains.
_BEND, _CURVATURE = 0.03, 16.0
_TORCH = {"atol": 1e-5, "rtol": 1e-3}
_OWN_NAMES = {"vjp": "vjp", "jvp": "jvp"}
SWITCHES = {"vjp": "check_backward_ad", "jvp": "check_forward_ad"}
_TESTS = {  # by option, of which form of the derivative
    "check_undefined_grad": "vjp",
    "check_batched_grad": "vjp",
    "check_batched_forward_grad": "jvp",
}


def rule_of(
    eps: float | None,
    atol: float | None,
    rtol: float | None,
    resolution: float,
    spacing: float,
    equal_nan: bool,
    noise: float,
) -> Rule:
    """Return what entries may be off by; `spacing` is that of the numbers."""
    tolerances = {"atol": 0.0, "rtol": resolution} if eps is None else dict(_TORCH)
    for name, value in (("atol", atol), ("rtol", rtol)):
        if value is not None:
            if not is_real(value) or not (value >= 0 and np.isfinite(value)):
                msg = f"{name} must be a finite number, at least 0, got {value!r}"
                raise ValueError(msg)
            tolerances[name] = float(value)
    own = eps is not None or atol is not None or rtol is not None
    return Rule(
        **tolerances,
        share=1.0 if own else 0.1,
        bend=np.inf if own else max(_BEND, _CURVATURE * spacing ** (1 / 3)),
        equal_nan=equal_nan,
        noise=noise,
    )


def step_of(eps: float | None, step: Any) -> Any:
    """Return the step under either of its names."""
    if eps is None:
        return step
    if step is not None:
        msg = "eps and step were both given: they are the same, so give one of them"
        raise ValueError(msg)
    if not is_real(eps) or not 0 < eps < np.inf:
        msg = f"eps must be positive and finite, got {eps!r:.60}"
        raise ValueError(msg)
    return eps


def masked_of(masked: bool | None, check_sparse_nnz: bool | None) -> bool:
    """Return whether only specified elements count, under either name of that."""
    if check_sparse_nnz is None:
        return bool(masked)
    warn("check_sparse_nnz is deprecated: use masked= instead", CalipersWarning)
    if masked is not None:
        msg = "masked and check_sparse_nnz are the same: give masked alone"
        raise ValueError(msg)
    return bool(check_sparse_nnz)


def one_jac(jac: Any, value_and_jac: Any) -> Any:
    """Return what gives the Jacobian, alone or with the value."""
    if jac is not None and value_and_jac is not None:
        msg = "jac and value_and_jac were both given: they are the same, so give one of them"
        raise ValueError(msg)
    return jac if value_and_jac is None else value_and_jac


def chosen_of(forward: bool | None, backward: bool | None, of_library: bool) -> dict[str, bool]:
    """Return which forms are to be checked; a library's forward mode only where asked for."""
    pulls = backward is not False
    pushes = not of_library if forward is None else bool(forward)
    return {"jac": pulls, "vjp": pulls, "jvp": pushes}


def steps_for(count: int, **steps: Any) -> list[dict[str, Any]]:
    """Return what is said of steps, by name, for each of several inputs."""
    each = zip(*(for_each(name, value, count) for name, value in steps.items()), strict=True)
    return [dict(zip(steps, values, strict=True)) for values in each]


def for_each(name: str, value: Any, count: int) -> list[Any]:
    """Return what is said of steps for each of several inputs."""
    if count == 1 or value is None:
        return [value] * count
    if isinstance(value, (tuple, list)):
        if len(value) == count and (name != "bounds" or all(map(_is_pair, value))):
            return list(value)
    elif name != "bounds" and np.ndim(value) == 0:
        return [value] * count
    what = "pairs" if name == "bounds" else "numbers or arrays"
    msg = (
        f"{name} must be a tuple of {count} {what}, one for each differentiable input, "
        f"or choose one input by argnums"
    )
    raise ValueError(msg)


def _is_pair(bounds: Any) -> bool:
    several = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    return bounds is None or hasattr(bounds, "lb") or several


def require_functions(f: Callable[..., Any], **derivatives: Callable[..., Any] | None) -> None:
    """Refuse an f or given derivatives that cannot be called."""
    given = {name: call for name, call in derivatives.items() if call is not None}
    require_callable(f=f, **given)


def require_choices(
    convention: str, nondet_tol: float, allow: Collection[str], method: str
) -> None:
    """Refuse choices that there are not."""
    require_method(method)
    if convention not in CONVENTIONS:
        msg = f"convention must be one of {CONVENTIONS}, got {convention!r}"
        raise ValueError(msg)
    if not is_real(nondet_tol) or not nondet_tol >= 0:
        msg = f"nondet_tol must be at least 0, got {nondet_tol!r}"
        raise ValueError(msg)
    several = np.iterable(allow) and not isinstance(allow, str)
    if not several or any(name not in (NONSMOOTH, INCONCLUSIVE) for name in allow):
        msg = f"allow must be a collection of NONSMOOTH and INCONCLUSIVE, got {allow!r}"
        raise ValueError(msg)


def require_analytic(method: str, of_library: bool) -> None:
    """Refuse complex steps of functions that take a library's own numbers."""
    if method == COMPLEX_STEP and of_library:
        msg = (
            f"method={method!r} is for functions of NumPy's arrays, and f is one of another "
            f"library's, in their own dtype: leave method out"
        )
        raise ValueError(msg)


def require_seed(seed: Any) -> None:
    """Refuse a seed that does not repeat a check, or that there is not."""
    if not is_integer(seed) or seed < 0:
        msg = f"seed must be an integer, at least 0, got {seed!r:.60}"
        raise ValueError(msg)


def positions_of(outputs: Any) -> tuple[int, ...]:
    """Return the positions of outputs as a tuple."""
    several = np.iterable(outputs) and not isinstance(outputs, str)
    if not several or not all(map(is_integer, outputs)):
        msg = f"nondifferentiable_outputs must be a sequence of positions, got {outputs!r}"
        raise TypeError(msg)
    return tuple(outputs)


def require_forms(
    wanted: dict[str, Any], chosen: dict[str, bool], forward: bool | None, backward: bool | None
) -> None:
    """Refuse to check forms that are not given, and to check none."""
    given = [name for name, call in wanted.items() if call is not None]
    if forward and "jvp" not in given:
        msg = "check_forward_ad=True needs jvp="
        raise ValueError(msg)
    if backward and given == ["jvp"]:
        msg = "check_backward_ad=True needs vjp= or jac="
        raise ValueError(msg)
    if not given:
        msg = (
            "gradcheck needs a derivative to check: give at least one of jac=, vjp= and jvp=; only "
            "a function of torch's tensors, of which one requires grad, or of jax's arrays needs "
            "none"
        )
        raise ValueError(msg)
    if not any(chosen[name] for name in given):
        msg = (
            f"nothing is left to check of {', '.join(given)}: at least one of check_forward_ad and "
            f"check_backward_ad must not be False"
        )
        raise ValueError(msg)


def require_tested(
    asked: Mapping[str, Any],
    checked: Container[str],
    switches: Mapping[str, str],
    names: Mapping[str, str] = _OWN_NAMES,
) -> None:
    """
    Refuse tests of a form of the derivative that is not checked.

    `switches` are the options that have a form checked that is there, and `names` what a form is
    called.
    """
    for option, form in _TESTS.items():
        if asked.get(option) and form not in checked:
            name = names[form]
            how = f"set {switches[form]}=True" if form in switches else f"give {name}="
            msg = f"{option}=True tests {name}, not checked here: {how}, or leave {option} out"
            raise ValueError(msg)


def require_returned(asked: Mapping[str, Any], inplace: str | None) -> None:
    """Refuse tests of what derivatives return where they return nothing."""
    for option in _TESTS:
        if asked.get(option) and inplace is not None:
            msg = f"{option}=True is for derivatives that return: leave it, or inplace=, out"
            raise ValueError(msg)
