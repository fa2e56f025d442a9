"""Which second derivatives are given to gradgradcheck, and which of them are to be checked."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._arity import nearest
from .._types import SecondOptions
from .options import require_tested

_RETURNS = "the first derivative is vjp=, and functions return their results"
_OF_FIRST = {
    **dict.fromkeys(("jac", "jvp", "value_and_jac", "inplace", "out_like"), _RETURNS),
    "checkpoint": "gradgradcheck runs several checks; pass it to gradcheck",
    "check_forward_ad": "check_fwd_over_rev= is the option for second derivatives",
    "check_backward_ad": "check_rev_over_rev= is the option for second derivatives",
}

# What derivatives of the gradient are called, by form: of any f, and of one that gives a number.
_NAMES = {"vjp": "vjp_vjp", "jvp": "vjp_jvp"}
_OF_NUMBER = {"jac": "hess", "jvp": "hvp"}
_TESTS_OF_PULL = ("check_undefined_grad", "check_batched_grad")
_SWITCHES = {"vjp": "check_rev_over_rev", "jvp": "check_fwd_over_rev"}


@dataclass(frozen=True)
class SecondForms:
    """The caller's first and second derivatives, and what was said of checking them."""

    vjp: Callable[..., Any] | None
    vjp_vjp: Callable[..., Any] | None
    vjp_jvp: Callable[..., Any] | None
    hess: Callable[..., Any] | None
    hvp: Callable[..., Any] | None
    forward: bool | None
    backward: bool | None
    of_library: bool  # which has derivatives of f

    @property
    def of_number(self) -> bool:
        """Whether the second derivatives are those of one number."""
        return self.hess is not None or self.hvp is not None

    @property
    def names(self) -> Mapping[str, str]:
        """What the caller calls the forms of a derivative of the gradient."""
        return _OF_NUMBER if self.of_number else _NAMES

    @property
    def pulls(self) -> bool:
        """Whether backward mode of the gradient is checked."""
        return self.backward is not False and (self.of_library or self.vjp_vjp is not None)

    @property
    def pushes(self) -> bool:
        """Whether forward mode of the gradient is checked: a library's where it is asked for."""
        if self.of_library:
            return bool(self.forward)
        return self.forward is not False and self.vjp_jvp is not None

    def _of_gradient(self) -> list[str]:
        calls = {"vjp_vjp": self.vjp_vjp, "vjp_jvp": self.vjp_jvp}
        return [name for name, call in calls.items() if call is not None]

    def require(self, tests: Mapping[str, Any], **of_gradient: Any) -> None:
        """Refuse what does not go together; `of_gradient` says something of the gradient alone."""
        given = self._of_gradient()
        if self.of_number:
            of_pull = {name: tests.get(name) for name in _TESTS_OF_PULL}
            for name, value in {**dict.fromkeys(given, True), **of_gradient, **of_pull}.items():
                if value is not None and value is not False:
                    msg = (
                        f"{name}= does not apply to hess= and hvp=, which are derivatives of "
                        "one number: omit it"
                    )
                    raise ValueError(msg)
        elif self.of_library and given:
            msg = (
                f"{given[0]}= is a derivative of vjp=: pass vjp=, too, or neither to check the "
                "derivatives of f's library"
            )
            raise ValueError(msg)
        elif not self.of_library and (self.vjp is None or not given):
            msg = (
                "gradgradcheck needs vjp= with vjp_vjp= or vjp_jvp=, or hess= or hvp=; "
                "only functions of torch tensors that require grad, and of jax arrays, "
                "need none"
            )
            raise ValueError(msg)
        self._require_chosen(given)
        checked = {"vjp": self.pulls, "jvp": self.pushes or self.hvp is not None}
        there = {k: v for k, v in _SWITCHES.items() if self.of_library or _NAMES[k] in given}
        require_tested(tests, [k for k, v in checked.items() if v], there, self.names)

    def _require_chosen(self, given: list[str]) -> None:
        """Refuse to check what is not given, and to check nothing."""
        for form, wanted in (("vjp", self.backward), ("jvp", self.forward)):
            if wanted and _NAMES[form] not in given and not self.of_library:
                msg = f"{_SWITCHES[form]}=True needs {_NAMES[form]}="
                raise ValueError(msg)
        if not (self.of_number or self.pulls or self.pushes):
            forms = "check_rev_over_rev= with vjp_vjp=, or check_fwd_over_rev= with vjp_jvp="
            msg = f"nothing is left to check of the second derivative: pass {forms}"
            raise ValueError(msg)


def require_handed_on(checker: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that gradgradcheck, the `checker`, does not pass to gradcheck."""
    for name, value in options.items():
        if name in SecondOptions.__optional_keys__:
            continue
        if name not in _OF_FIRST:
            names = *inspect.signature(checker).parameters, *SecondOptions.__optional_keys__
            msg = f"gradgradcheck() got an unexpected keyword argument {name!r}"
            raise TypeError(f"{msg}{nearest(name, names)}")
        if value is not None:
            msg = f"gradgradcheck takes no {name}=: {_OF_FIRST[name]}"
            raise ValueError(msg)
