"""What gradcheck and gradgradcheck take, and refuse, alike."""

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from .._arguments import is_integer, require_callable

_OWN_NAMES = {"vjp": "vjp", "jvp": "jvp"}
SWITCHES = {"vjp": "check_backward_ad", "jvp": "check_forward_ad"}
TESTS = {  # by option, of which form of the derivative
    "check_undefined_grad": "vjp",
    "check_batched_grad": "vjp",
    "check_batched_forward_grad": "jvp",
}


def one_jac(jac: Any, value_and_jac: Any) -> Any:
    """Return what gives the Jacobian, alone or with the value."""
    if jac is not None and value_and_jac is not None:
        msg = "jac and value_and_jac are the same derivative: pass only one of them"
        raise ValueError(msg)
    return jac if value_and_jac is None else value_and_jac


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
        f"{name} must be a tuple of {count} {what}, one for each differentiable input; or "
        "select one input with argnums"
    )
    raise ValueError(msg)


def _is_pair(bounds: Any) -> bool:
    several = isinstance(bounds, (tuple, list)) and len(bounds) == 2
    return bounds is None or hasattr(bounds, "lb") or several


def require_functions(f: Callable[..., Any], **derivatives: Callable[..., Any] | None) -> None:
    """Refuse an f or given derivatives that cannot be called."""
    given = {name: call for name, call in derivatives.items() if call is not None}
    require_callable(f=f, **given)


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
    for option, form in TESTS.items():
        if asked.get(option) and form not in checked:
            name = names[form]
            how = f"set {switches[form]}=True" if form in switches else f"pass {name}="
            msg = f"{option}=True tests {name}, which is not checked: {how}, or omit {option}"
            raise ValueError(msg)
