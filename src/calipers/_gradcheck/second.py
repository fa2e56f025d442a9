"""Second derivatives as first ones: of the function that gives the gradient."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._arity import note_form
from .._arrays import given_array
from .._containers import several
from .._protocols import NDArray
from .analytic import GivenDerivative
from .beside import Move, moved, scattered
from .calls import noncontiguous
from .flatten import WrongFormError, norm, picked
from .identities import ROUNDING, cancelled, largest_difference
from .point import Subject
from .rule import few_roundings


def cotangents(subject: Subject, given: Any, seed: int) -> tuple[NDArray, ...]:
    """Return the caller's cotangents of the differentiable outputs, or draw some in [-1, 1)."""
    examples = [p.example for p in subject.kept]
    if given is not None:
        arrays = [np.asarray(given_array(w, "grad_outputs")) for w in several(given)]
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


_NATURAL = 1.0  # what results of a nonlinear function are computed with, however large they are


def terms_of(subject: Subject, w: tuple[NDArray, ...]) -> float:
    """
    Return how large the terms are that the gradient of <w, f> may be a sum of.

    That of softmax is ``y * (w - <w, y>)``: nothing where y is 1 or 0, but for rounding of w.
    """
    pairs = zip(w, subject.kept, strict=True)
    terms = [np.abs(a) * np.fmin(np.abs(p.example), _NATURAL) for a, p in pairs]
    return float(sum(np.sum(x[np.isfinite(x)], dtype=float) for x in terms))


@dataclass(frozen=True)
class Gradient:
    """The gradient of <w, f> as a function of the inputs and of w, and its derivatives."""

    subject: Subject
    vjp: Callable[..., Any]
    vjp_vjp: Callable[..., Any] | None
    vjp_jvp: Callable[..., Any] | None
    spread: bool = False  # cotangents in memory, so that they are not contiguous

    def _split(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        count = len(self.subject.values)
        inputs, w = args[:count], args[count:]
        if self.spread:
            w = tuple(map(noncontiguous, w))
        return inputs, tuple(w) if self.subject.several else w[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the gradients by the differentiable inputs."""
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
        if count - len(self.subject.kept) not in (chosen, every):
            msg = (
                f"vjp_vjp returned {count} gradient{'s' * (count != 1)}, expected "
                f"{chosen + len(self.subject.kept)}: one for each differentiable input, and one "
                f"for each cotangent"
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
    """Return gradients by the inputs and by w in one tuple, wherever w's are a tuple themselves."""
    if isinstance(result, (tuple, list)) and result and isinstance(result[-1], (tuple, list)):
        return (*result[:-1], *result[-1])
    return result


def layout(spread: Subject, contiguous: Subject) -> str | None:
    """Say that a gradient depends on how its cotangent lies in memory."""
    other = contiguous.base
    worst = largest_difference(spread.base, other)
    if worst > ROUNDING * spread.eps * np.abs(other[np.isfinite(other)]).max(initial=0.0):
        return (
            f"the gradient for a cotangent that is not contiguous differs by {worst:.3g} "
            "from that for a contiguous one"
        )
    return None


def skewness(
    derivatives: Sequence[GivenDerivative], size: int, share: float, tolerance: float, seed: int
) -> str | None:
    """
    Say that second derivatives by the first `size` real numbers are not symmetric.

    That is <u, Hv> == <v, Hu>, up to a share of the terms in them; `tolerance` is what two calls of
    a derivative may differ by.
    """
    random = np.random.default_rng(seed)
    for d in derivatives:
        if d.form == "jac":
            message = _asymmetry(d.matrix(), share)
            if message is not None:
                return message
            continue
        u, v = (random.standard_normal(size) for _ in range(2))

        def skew(d: GivenDerivative, turn: Move, u: NDArray = u, v: NDArray = v) -> float:
            u, v = turn(u), turn(v)
            return float(u @ _product(d, v, size) - v @ _product(d, u, size))

        def longer(d: GivenDerivative, times: float, skew: Callable[..., float] = skew) -> float:
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
            allowed += moved(d, skew, random) + min(negligible, scattered(d, longer, random))
        if difference > allowed:
            called = "differentiating the vjp (backward)" if d.of_library else d.name
            return (
                f"{called} gives a second derivative that is not symmetric (two products that must "
                f"be equal are {left:.6g} and {right:.6g}): a part of it is probably detached or "
                "wrong"
            )
    return None


def _product(d: GivenDerivative, v: NDArray, size: int) -> NDArray:
    """Return H v of what stands for H on the side of the inputs, or on that of the gradients."""
    whole = np.zeros(d.subject.columns if d.form == "jvp" else d.subject.rows)
    whole[:size] = v
    return d.applied(whole)[:size]


def _asymmetry(hessian: Any, share: float) -> str | None:
    """Say where a matrix of second derivatives is not symmetric."""
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
