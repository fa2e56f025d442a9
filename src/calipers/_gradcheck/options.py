"""Options of gradcheck and gradgradcheck: their defaults, and checks of their values."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core.arguments import brief, is_integer, is_real, require_callable, require_flags, warn
from .._core.arrays import is_sparse
from .._core.types import (
    AllowedStatus,
    ArrayLike,
    BoundsLike,
    Inplace,
    Method,
    ProgressLike,
    WorkersLike,
)
from .._derivatives.steps import COMPLEX_STEP, require_method
from .._derivatives.thresholds import THRESHOLDS
from .._execution.checkpoint import require_folder
from .calls import WAYS
from .containers import holds_arrays
from .entry_rules import INCONCLUSIVE, NONSMOOTH, Rule
from .report import CalipersWarning

_FORM_NAMES = {"vjp": "vjp", "jvp": "jvp"}
SWITCHES = {"vjp": "check_backward_ad", "jvp": "check_forward_ad"}
TESTS = {  # the form of the derivative that each option tests
    "check_undefined_grad": "vjp",
    "check_batched_grad": "vjp",
    "check_batched_forward_grad": "jvp",
}
_TORCH = {"atol": 1e-5, "rtol": 1e-3}
_FLAGS = (
    "raise_exception",
    "check_undefined_grad",
    "check_grad_dtypes",
    "check_batched_grad",
    "check_batched_forward_grad",
    "check_forward_ad",
    "check_backward_ad",
    "fast_mode",
    "masked",
    "check_sparse_nnz",
    "equal_nan",
)


def one_jac(jac: Any, value_and_jac: Any) -> Any:
    """Return `jac` or `value_and_jac`, whichever was passed; raise if both were."""
    if jac is not None and value_and_jac is not None:
        msg = "jac and value_and_jac are the same derivative: pass only one of them"
        raise ValueError(msg)
    return jac if value_and_jac is None else value_and_jac


def steps_for(count: int, **steps: Any) -> list[dict[str, Any]]:
    """Return a dict of the step options for each differentiable input."""
    if count == 1:
        return [steps]
    each = zip(*(for_each(name, value, count) for name, value in steps.items()), strict=True)
    return [dict(zip(steps, values, strict=True)) for values in each]


def for_each(name: str, value: Any, count: int) -> list[Any]:
    """Return one value of a step option for each differentiable input."""
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
    """Raise if f or a derivative that is passed is not callable."""
    require_callable(f=f)
    for name, call in derivatives.items():
        if call is not None:
            require_callable(**{name: call})


def require_seed(seed: Any) -> None:
    """Raise unless the seed is a nonnegative integer."""
    if not is_integer(seed) or seed < 0:
        msg = f"seed must be an integer, at least 0, got {seed!r:.60}"
        raise ValueError(msg)


def positions_of(outputs: Any) -> tuple[int, ...]:
    """Return the positions of outputs as a tuple."""
    if outputs == ():
        return ()
    several = np.iterable(outputs) and not isinstance(outputs, str)
    if not several or not all(map(is_integer, outputs)):
        msg = f"nondifferentiable_outputs must be a sequence of positions, got {outputs!r}"
        raise TypeError(msg)
    return tuple(outputs)


def require_tested(
    options: Mapping[str, Any],
    checked: Container[str],
    switches: Mapping[str, str],
    names: Mapping[str, str] = _FORM_NAMES,
) -> None:
    """
    Raise if an option tests a form of the derivative that is not checked.

    `switches` are the options that enable a form, and `names` the caller's names of forms.
    """
    for option, form in TESTS.items():
        if options.get(option) and form not in checked:
            name = names[form]
            how = f"set {switches[form]}=True" if form in switches else f"pass {name}="
            msg = f"{option}=True tests {name}, which is not checked: {how}, or omit {option}"
            raise ValueError(msg)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """
    The keywords of `gradcheck` that control how derivatives are checked.

    Its signature is made from them. `gradgradcheck` passes those that `SecondOptions` lists.
    """

    eps: float | None = None
    atol: float | None = None
    rtol: float | None = None
    raise_exception: bool = True
    nondet_tol: float = 0.0
    check_undefined_grad: bool | None = None
    check_grad_dtypes: bool = False
    check_batched_grad: bool = False
    check_batched_forward_grad: bool = False
    check_forward_ad: bool | None = None
    check_backward_ad: bool | None = None
    fast_mode: bool = False
    masked: bool | None = None
    check_sparse_nnz: bool | None = None
    method: Method = "adaptive"
    step: ArrayLike | Sequence[ArrayLike | None] | None = None
    scale: ArrayLike | Sequence[ArrayLike | None] | None = None
    bounds: BoundsLike | Sequence[BoundsLike | None] | None = None
    out_like: ArrayLike | Sequence[ArrayLike] | None = None
    inplace: Inplace | None = None
    workers: WorkersLike | None = None
    progress: ProgressLike = False
    checkpoint: str | os.PathLike[str] | None = None
    equal_nan: bool = False
    allow: Collection[AllowedStatus] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise if an option is not valid; most have their defaults."""
        for name, value in vars(self).items():
            if value is not getattr(type(self), name):
                self._require_valid()
                return

    def _require_valid(self) -> None:
        require_method(self.method)
        flags = {name: getattr(self, name) for name in _FLAGS}
        # The default of a flag may be None.
        require_flags(**{n: x for n, x in flags.items() if x is not getattr(type(self), n)})
        if not is_real(self.nondet_tol) or not self.nondet_tol >= 0:
            msg = f"nondet_tol must be at least 0, got {self.nondet_tol!r}"
            raise ValueError(msg)
        several = np.iterable(self.allow) and not isinstance(self.allow, str)
        if not several or any(name not in (NONSMOOTH, INCONCLUSIVE) for name in self.allow):
            msg = (
                'allow must be a collection such as {"NONSMOOTH"}, of NONSMOOTH and INCONCLUSIVE, '
                f"got {type(self.allow).__name__}: {brief(self.allow)}"
            )
            raise ValueError(msg)
        require_seed(self.seed)
        if self.checkpoint is not None:
            require_folder(self.checkpoint)
        if self.eps is not None and self.step is not None:
            msg = "eps and step are the same option: pass only one of them"
            raise ValueError(msg)
        if self.eps is not None and not (is_real(self.eps) and 0 < self.eps < np.inf):
            msg = f"eps must be positive and finite, got {self.eps!r:.60}"
            raise ValueError(msg)

    def only_specified(self) -> bool:
        """Return the option `masked`, under either of its names."""
        if self.check_sparse_nnz is None:
            return bool(self.masked)
        warn("check_sparse_nnz is deprecated: use masked= instead", CalipersWarning)
        if self.masked is not None:
            msg = "masked and check_sparse_nnz are the same option: pass only masked"
            raise ValueError(msg)
        return bool(self.check_sparse_nnz)

    def rule(self, resolution: float, spacing: float) -> Rule:
        """Return the rule that judges entries; `spacing` is the eps of the lowest precision."""
        tolerances = {"atol": 0.0, "rtol": resolution} if self.eps is None else dict(_TORCH)
        for name, value in (("atol", self.atol), ("rtol", self.rtol)):
            if value is not None:
                if not is_real(value) or not (value >= 0 and np.isfinite(value)):
                    msg = f"{name} must be a finite number, at least 0, got {value!r}"
                    raise ValueError(msg)
                tolerances[name] = float(value)
        explicit = not (self.eps is None and self.atol is None and self.rtol is None)
        bend = max(THRESHOLDS.bend, THRESHOLDS.curvature * spacing ** (1 / 3))
        return Rule(
            **tolerances,
            share=1.0 if explicit else THRESHOLDS.screened,
            bend=np.inf if explicit else bend,
            equal_nan=self.equal_nan,
            noise=self.nondet_tol,
        )

    def steps(self, count: int) -> list[dict[str, Any]]:
        """Return the method and the steps for each differentiable input."""
        step = self.step if self.eps is None else self.eps
        each = steps_for(count, step=step, scale=self.scale, bounds=self.bounds)
        for options in each:
            options["method"] = self.method
        return each

    def chosen(self, available: Container[str], of_library: bool) -> dict[str, bool]:
        """
        Return which forms of the derivative are checked.

        Forward mode of a library is checked only if `check_forward_ad` is True. Raise if a form is
        to be checked that is not available, or if none is.
        """
        pulls = self.check_backward_ad is not False
        pushes = not of_library if self.check_forward_ad is None else bool(self.check_forward_ad)
        chosen = {"jac": pulls, "vjp": pulls, "jvp": pushes}
        there = list(filter(available.__contains__, chosen))
        if self.check_forward_ad and "jvp" not in there:
            msg = "check_forward_ad=True needs jvp="
            raise ValueError(msg)
        if self.check_backward_ad and there == ["jvp"]:
            msg = "check_backward_ad=True needs vjp= or jac="
            raise ValueError(msg)
        if not there:
            msg = (
                "gradcheck needs a derivative to check: pass at least one of jac=, vjp= "
                "and jvp=; only functions of torch tensors that require grad, and of jax "
                "arrays, need none"
            )
            raise ValueError(msg)
        if not any(map(chosen.get, there)):
            msg = (
                f"nothing is left to check of {', '.join(there)}: at least one of "
                f"check_forward_ad and check_backward_ad must not be False"
            )
            raise ValueError(msg)
        return chosen

    def require_tests(self, checked: Container[str], available: Container[str]) -> None:
        """Raise if an option tests a form that is not checked, or results that are not returned."""
        if not any(map(vars(self).get, TESTS)):
            return
        there = {form: switch for form, switch in SWITCHES.items() if form in available}
        options = dict(vars(self))
        if "jvp" in checked:  # whose tangents may be None, as vjp's cotangents
            del options["check_undefined_grad"]
        require_tested(options, checked, there)
        for option in TESTS:
            if getattr(self, option) and self.inplace is not None:
                msg = (
                    f"{option}=True needs derivatives that return their results: omit it, or "
                    "omit inplace="
                )
                raise ValueError(msg)

    def require_inplace(self, inputs: tuple[Any, ...], applies: bool) -> None:
        """Raise if `inplace` is not valid, or not for these inputs or any passed derivative."""
        if self.inplace is None:
            return
        if self.inplace not in WAYS:
            msg = f"inplace must be None, {' or '.join(map(repr, WAYS))}, got {self.inplace!r}"
            raise ValueError(msg)
        if not applies:
            msg = "inplace= applies to jac=, vjp= and jvp=: pass one of them, or omit it"
            raise ValueError(msg)
        if any(is_sparse(x) for x in inputs):
            msg = (
                "inplace= needs dense inputs, and one is a sparse matrix: pass functions that "
                "return their results"
            )
            raise ValueError(msg)
        if any(map(holds_arrays, inputs)):
            msg = (
                "inplace= needs arrays, and an input is a container: pass functions that return "
                "their results"
            )
            raise ValueError(msg)

    def require_analytic(self, of_library: bool) -> None:
        """Raise if complex steps are requested for a function of a library's arrays."""
        if self.method == COMPLEX_STEP and of_library:
            msg = (
                f"method={self.method!r} needs a function of NumPy arrays, and f takes "
                "arrays of a different library: omit method"
            )
            raise ValueError(msg)
