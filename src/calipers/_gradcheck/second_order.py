"""Second derivatives, checked as first derivatives of the gradient."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._core.arguments import note_form, unexpected_keyword
from .._core.arrays import as_dense_array
from .._core.containers import as_tuple
from .._core.protocols import NDArray
from .._core.types import SecondOptions
from .analytic import AnalyticDerivative
from .calls import noncontiguous
from .entry_rules import few_roundings
from .flatten import WrongFormError, norm, picked
from .function_at_point import FunctionAtPoint
from .invariants import ROUNDING, cancelled, largest_difference
from .options import require_tested
from .perturb import Move, perturbation_error, rounding_magnitude

_RETURNS = "the first derivative is vjp=, and functions return their results"
_OF_FIRST = {
    **dict.fromkeys(("jac", "jvp", "value_and_jac", "inplace", "out_like"), _RETURNS),
    "checkpoint": "gradgradcheck runs several checks; pass it to gradcheck",
    "check_forward_ad": "check_fwd_over_rev= is the option for second derivatives",
    "check_backward_ad": "check_rev_over_rev= is the option for second derivatives",
}

# Keywords of the derivatives of the gradient, by form: for any f, and for a scalar f.
_NAMES = {"vjp": "vjp_vjp", "jvp": "vjp_jvp"}
_OF_NUMBER = {"jac": "hess", "jvp": "hvp"}
_TESTS_OF_PULL = ("check_undefined_grad", "check_batched_grad")
_SWITCHES = {"vjp": "check_rev_over_rev", "jvp": "check_fwd_over_rev"}


@dataclass(frozen=True)
class SecondForms:
    """The caller's first and second derivatives, and the options that select the checks."""

    vjp: Callable[..., Any] | None
    vjp_vjp: Callable[..., Any] | None
    vjp_jvp: Callable[..., Any] | None
    hess: Callable[..., Any] | None
    hvp: Callable[..., Any] | None
    forward: bool | None
    backward: bool | None
    of_library: bool  # whether a library differentiates f

    @property
    def of_number(self) -> bool:
        """Whether the second derivatives are those of a scalar."""
        return self.hess is not None or self.hvp is not None

    @property
    def names(self) -> Mapping[str, str]:
        """The keywords of the forms of a derivative of the gradient."""
        return _OF_NUMBER if self.of_number else _NAMES

    @property
    def pulls(self) -> bool:
        """Whether backward mode of the gradient is checked."""
        return self.backward is not False and (self.of_library or self.vjp_vjp is not None)

    @property
    def pushes(self) -> bool:
        """Whether forward mode of the gradient is checked; a library's only on request."""
        if self.of_library:
            return bool(self.forward)
        return self.forward is not False and self.vjp_jvp is not None

    def _of_gradient(self) -> list[str]:
        calls = {"vjp_vjp": self.vjp_vjp, "vjp_jvp": self.vjp_jvp}
        return [name for name, call in calls.items() if call is not None]

    def require(self, tests: Mapping[str, Any], **of_gradient: Any) -> None:
        """Raise if arguments conflict; `of_gradient` are options of the gradient alone."""
        supplied = self._of_gradient()
        if self.of_number:
            of_pull = {name: tests.get(name) for name in _TESTS_OF_PULL}
            for name, value in {**dict.fromkeys(supplied, True), **of_gradient, **of_pull}.items():
                if value is not None and value is not False:
                    msg = (
                        f"{name}= does not apply to hess= and hvp=, which are derivatives of "
                        "one number: omit it"
                    )
                    raise ValueError(msg)
        elif self.of_library and supplied:
            msg = (
                f"{supplied[0]}= is a derivative of vjp=: pass vjp=, too, or neither to check the "
                "derivatives of f's library"
            )
            raise ValueError(msg)
        elif not self.of_library and (self.vjp is None or not supplied):
            msg = (
                "gradgradcheck needs vjp= with vjp_vjp= or vjp_jvp=, or hess= or hvp=; "
                "only functions of torch tensors that require grad, and of jax arrays, "
                "need none"
            )
            raise ValueError(msg)
        self._require_chosen(supplied)
        checked = {"vjp": self.pulls, "jvp": self.pushes or self.hvp is not None}
        there = {k: v for k, v in _SWITCHES.items() if self.of_library or _NAMES[k] in supplied}
        require_tested(tests, [k for k, v in checked.items() if v], there, self.names)

    def _require_chosen(self, supplied: list[str]) -> None:
        """Raise if a check needs a derivative that was not passed, or nothing is left to check."""
        for form, wanted in (("vjp", self.backward), ("jvp", self.forward)):
            if wanted and _NAMES[form] not in supplied and not self.of_library:
                msg = f"{_SWITCHES[form]}=True needs {_NAMES[form]}="
                raise ValueError(msg)
        if not (self.of_number or self.pulls or self.pushes):
            forms = "check_rev_over_rev= with vjp_vjp=, or check_fwd_over_rev= with vjp_jvp="
            msg = f"nothing is left to check of the second derivative: pass {forms}"
            raise ValueError(msg)


def require_gradcheck_options(checker: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise if gradgradcheck, the `checker`, does not pass an option to gradcheck."""
    for name, value in options.items():
        if name in SecondOptions.__optional_keys__:
            continue
        if name not in _OF_FIRST:
            names = *inspect.signature(checker).parameters, *SecondOptions.__optional_keys__
            raise unexpected_keyword(checker.__name__, name, names, listed=False)
        if value is not None:
            msg = f"gradgradcheck takes no {name}=: {_OF_FIRST[name]}"
            raise ValueError(msg)


def cotangents(subject: FunctionAtPoint, grad_outputs: Any, seed: int) -> tuple[NDArray, ...]:
    """Return the caller's cotangents of the differentiable outputs, or draw some in [-1, 1)."""
    examples = [p.example for p in subject.active_outputs]
    if grad_outputs is not None:
        arrays = [np.asarray(as_dense_array(w, "grad_outputs")) for w in as_tuple(grad_outputs)]
        for w in arrays:
            if w.dtype.kind in "OSUMm":
                msg = f"grad_outputs must be arrays of numbers, got one of dtype {w.dtype}"
                raise TypeError(msg)
        shapes, expected = [w.shape for w in arrays], [e.shape for e in examples]
        if shapes != expected:
            msg = f"grad_outputs have shapes {shapes}, but the outputs have {expected}"
            raise ValueError(msg)
        pairs = list(zip(arrays, examples, strict=True))
        for w, e in pairs:
            if not np.can_cast(w.dtype, e.dtype, "same_kind"):
                msg = f"grad_outputs have an array of dtype {w.dtype}, but its output has {e.dtype}"
                raise TypeError(msg)
        return tuple(w.astype(e.dtype, copy=True) for w, e in pairs)
    random = np.random.default_rng(seed)
    return tuple(_drawn(random, e) for e in examples)


def _drawn(random: np.random.Generator, like: NDArray) -> NDArray:
    drawn: NDArray = np.asarray(random.uniform(-1, 1, like.shape))
    if like.dtype.kind == "c":
        drawn = drawn + 1j * random.uniform(-1, 1, like.shape)
    return np.asarray(drawn, like.dtype)


_NATURAL = 1.0  # magnitude of the terms that large results of a nonlinear f are computed from


def terms_of(subject: FunctionAtPoint, w: tuple[NDArray, ...]) -> float:
    """
    Return the magnitude of the terms that the gradient of <w, f> may be a sum of.

    For softmax it is ``y * (w - <w, y>)``: where y is 1 or 0, only rounding of w remains.
    """
    pairs = zip(w, subject.active_outputs, strict=True)
    terms = [np.abs(a) * np.fmin(np.abs(p.example), _NATURAL) for a, p in pairs]
    return float(sum(np.sum(x[np.isfinite(x)], dtype=float) for x in terms))


@dataclass(frozen=True)
class Gradient:
    """The gradient of <w, f> as a function of the inputs and of w, and its derivatives."""

    subject: FunctionAtPoint
    vjp: Callable[..., Any]
    vjp_vjp: Callable[..., Any] | None
    vjp_jvp: Callable[..., Any] | None
    spread: bool = False  # whether cotangents are not contiguous in memory

    def _split(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        count = len(self.subject.values)
        inputs, w = args[:count], args[count:]
        if self.spread:
            w = tuple(map(noncontiguous, w))
        return inputs, tuple(w) if self.subject.several else w[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the gradients with respect to the differentiable inputs."""
        inputs, w = self._split(args)
        result = self.vjp(*inputs, w, **kwargs)
        if not isinstance(result, (tuple, list)):
            return result
        active = self.subject.active
        chosen = picked(result, [p.position for p in active], len(inputs)) or ()
        parts = zip(chosen, active, strict=True)
        return tuple(np.zeros_like(p.example) if g is None else g for g, p in parts)

    def pull(self, *args: Any, **kwargs: Any) -> Any:
        """Return ``vjp_vjp(*inputs, w, u)``."""
        assert self.vjp_vjp is not None
        *point, u = args
        inputs, w = self._split(tuple(point))
        try:
            result = _flat(self.vjp_vjp(*inputs, w, u, **kwargs))
        except TypeError as error:
            note_form(error, "vjp_vjp is called as vjp_vjp(*inputs, *args, w, u)")
            raise
        count = len(result) if isinstance(result, (tuple, list)) else 1
        chosen, every = (len(x) for x in (self.subject.active, inputs))
        if count - len(self.subject.active_outputs) not in (chosen, every):
            msg = (
                f"vjp_vjp returned {count} gradient{'s' * (count != 1)}, expected "
                f"{chosen + len(self.subject.active_outputs)}: one for each differentiable input, "
                f"and one for each cotangent"
            )
            raise WrongFormError(msg)
        return result

    def push(self, *args: Any, **kwargs: Any) -> Any:
        """Return ``vjp_jvp(*inputs, w, v)``."""
        assert self.vjp_jvp is not None
        *point, v = args
        inputs, w = self._split(tuple(point))
        try:
            return self.vjp_jvp(*inputs, w, v, **kwargs)
        except TypeError as error:
            note_form(error, "vjp_jvp is called as vjp_jvp(*inputs, *args, w, v)")
            raise


def _flat(result: Any) -> Any:
    """Return gradients of the inputs and of w in one flat tuple."""
    if isinstance(result, (tuple, list)) and result and isinstance(result[-1], (tuple, list)):
        return (*result[:-1], *result[-1])
    return result


def layout(spread: FunctionAtPoint, contiguous: FunctionAtPoint) -> str | None:
    """Check that the gradient for a cotangent does not depend on its memory layout."""
    other = contiguous.base
    worst = largest_difference(spread.base, other)
    if worst > ROUNDING * spread.eps * np.abs(other[np.isfinite(other)]).max(initial=0.0):
        return (
            f"the gradient for a cotangent that is not contiguous differs by {worst:.3g} "
            "from that for a contiguous one"
        )
    return None


def skewness(
    derivatives: Sequence[AnalyticDerivative], size: int, share: float, tolerance: float, seed: int
) -> str | None:
    """
    Check that second derivatives with respect to the first `size` real numbers are symmetric.

    That is <u, Hv> == <v, Hu>, up to a share of the terms; `tolerance` is the difference allowed
    between two calls of a derivative.
    """
    random = np.random.default_rng(seed)
    for d in derivatives:
        if d.form == "jac":
            message = _asymmetry(d.matrix(), share)
            if message is not None:
                return message
            continue
        u, v = (random.standard_normal(size) for _ in range(2))

        def skew(d: AnalyticDerivative, turn: Move, u: NDArray = u, v: NDArray = v) -> float:
            u, v = turn(u), turn(v)
            return float(u @ _product(d, v, size) - v @ _product(d, u, size))

        def longer(d: AnalyticDerivative, times: float, skew: Callable[..., float] = skew) -> float:
            return skew(d, partial(np.multiply, times)) / times**2

        forward, backward = (_product(d, w, size) for w in (v, u))
        left, right = float(u @ forward), float(v @ backward)
        terms = np.abs(u) @ np.abs(forward) + np.abs(v) @ np.abs(backward)
        noise = tolerance * float(np.abs(u).sum() + np.abs(v).sum())
        noise += cancelled(d, u, v) + cancelled(d, v, u)
        difference = abs(left - right)
        allowed = share * terms + noise
        if difference > allowed:
            negligible = few_roundings(d.subject.eps) * d.subject.natural.max() * norm(u) * norm(v)
            allowed += perturbation_error(d, skew, random) + min(
                negligible, rounding_magnitude(d, longer, random)
            )
        if difference > allowed:
            called = "differentiating the vjp (backward)" if d.of_library else d.name
            return (
                f"{called} gives a second derivative that is not symmetric (two products that must "
                f"be equal are {left:.6g} and {right:.6g}): a part of it is probably detached or "
                "wrong"
            )
    return None


def _product(d: AnalyticDerivative, v: NDArray, size: int) -> NDArray:
    """Return H v, by a jvp or vjp of the gradient."""
    whole = np.zeros(d.subject.columns if d.form == "jvp" else d.subject.rows)
    whole[:size] = v
    return d.applied(whole)[:size]


def _asymmetry(hessian: Any, share: float) -> str | None:
    """Check that a matrix of second derivatives is symmetric."""
    hessian = hessian if isinstance(hessian, np.ndarray) else hessian.toarray()
    size = np.abs(hessian)
    difference = np.abs(hessian - hessian.T)
    with np.errstate(invalid="ignore"):
        wrong = difference > share * (size + size.T)
    if not wrong.any():
        return None
    worst = np.argmax(np.where(wrong, difference, 0))
    i, j = (int(k) for k in np.unravel_index(worst, difference.shape))
    return (
        f"the Hessian is not symmetric: entries ({i}, {j}) = {hessian[i, j]:.6g} and ({j}, "
        f"{i}) = {hessian[j, i]:.6g} differ by {difference[i, j]:.2g}"
    )
