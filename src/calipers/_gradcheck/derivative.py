"""The caller's derivative, whatever its form, as a map between the same real numbers as f.

With torch's convention the gradient of complex numbers pairs with them as real ones do:
``Re(conj(w)*dF) == Re(conj(g)*dz)``; vjp is then the transposed real Jacobian. jax and others leave
out both conjugates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._arity import note_form
from .._arrays import as_array
from .._containers import several
from .._protocols import NDArray
from .blocks import WrongFormError, as_matrix, require_nothing
from .inplace import InPlace
from .parts import Part, picked, real_rows, real_vector
from .subject import Subject, private

CONVENTIONS = ("torch", "jax")
_LAST = {"vjp": ("w",), "jvp": ("v",)}


@dataclass
class Derivative:
    """One of jac, vjp and jvp."""

    name: str
    call: Callable[..., Any]
    subject: Subject
    conjugate: bool  # jax's convention
    strict: bool = False  # about dtypes
    batches: bool = False  # whether vjp and jvp may take a batch of directions
    calls: int = 0
    known: Any = None  # what jac gave, as a matrix
    silent: bool = False  # whether a call returned None
    touched: list[str] = field(default_factory=list)  # by the first call

    def __call__(self, *last: Any) -> Any:
        """Call the caller's function with private arguments."""
        self.calls += 1
        given, named = self.subject.arguments(), private(self.subject.kwargs)
        if self.calls > 1:
            result = self.call(*given, *last, **named)
            self.silent |= result is None
            return result
        flat = [x for item in last for x in (item if isinstance(item, tuple) else (item,))]
        before = [np.array(x) for x in flat]
        try:
            result = self.call(*given, *last, **named)
        except TypeError as error:
            fills = ("*outs",) if isinstance(self.call, InPlace) else ()
            takes = ", ".join(("*inputs", "*args", *_LAST.get(self.name, ()), *fills))
            note_form(error, f"{self.name} is called as {self.name}({takes})")
            raise
        self.silent = result is None
        self.touched = self.subject.changed(given, named)
        what = "cotangent" if self.name == "vjp" else "tangent"
        pairs = zip(before, flat, strict=True)
        if any(old.tobytes() != np.asarray(new).tobytes() for old, new in pairs):
            self.touched.append(f"its {what}")
        if self.name == "vjp":
            self._require_constants(result)
        return result

    def _require_constants(self, gradients: Any) -> None:
        """Refuse gradients by inputs that are of no floating-point numbers, and not checked."""
        subject = self.subject
        every = isinstance(gradients, (tuple, list)) and len(gradients) == len(subject.values)
        for k in subject.held if every and len(subject.active) < len(gradients) else ():
            require_nothing(gradients[k], self.name, f"input {subject.names[k]}")

    def matrix(self) -> Any:
        """Return the real Jacobian that jac gives: an array, or a csc_array."""
        self.known = as_matrix(self(), self.subject, self.conjugate, self.strict)
        return self.known

    def shaped(self, v: NDArray) -> Any:
        """Return a direction, or a batch of them, in the caller's form."""
        subject = self.subject
        if self.name == "jvp":
            tangents = tuple(p.shaped(v) for p in subject.active)
            return tangents if len(tangents) > 1 else tangents[0]
        cotangents = tuple(p.shaped(v) for p in subject.kept)
        if self.conjugate:
            cotangents = tuple(np.conj(c) for c in cotangents)
        return cotangents if subject.several else cotangents[0]

    def applied(self, v: NDArray) -> NDArray:
        """Return what vjp or jvp gives for v, in new memory: the next call may fill the same."""
        return (self.pull(v) if self.name == "vjp" else self.push(v)).copy()

    def together(self, v: NDArray) -> NDArray:
        """Return what vjp or jvp gives for each row of v, from one call with a batch of them."""
        subject, count = self.subject, len(v)
        back = self.name == "vjp"
        taken = subject.active if back else subject.kept
        found = self(self.shaped(v))
        results = several(found)
        every = len(subject.values) if back else len(subject.outputs)
        chosen = picked(results, [p.position for p in taken], every)
        if chosen is None:
            msg = f"{self.name} of a batch returned {len(results)} results, expected {len(taken)}"
            raise WrongFormError(msg)
        lines = []
        for result, part in zip(chosen, taken, strict=True):
            like = part.example
            wide = np.complex128 if like.dtype.kind == "c" else np.float64
            expected = (count, *like.shape)
            array = np.zeros(expected) if result is None else np.asarray(result)
            if array.shape != expected:
                msg = f"{self.name} of a batch gave shape {array.shape}, expected {expected}"
                raise WrongFormError(msg)
            array = array.astype(wide, copy=False)
            lines.append(np.conj(array) if self.conjugate and back else array)
        return real_rows(lines)

    def pull(self, w: NDArray) -> NDArray:
        """Return the real Jacobian's transpose times w, maybe in memory that the caller fills."""
        return self.gradient(self.shaped(w))

    def gradient(self, w: Any) -> NDArray:
        """Return what vjp gives for a cotangent in the caller's form, in real numbers."""
        subject = self.subject
        found = self._fitted(self(w), subject.active, len(subject.values), "gradient", "input")
        if self.conjugate:
            found = [np.conj(g) for g in found]
        return real_vector(found).astype(float, copy=False)

    def push(self, v: NDArray) -> NDArray:
        """Return the real Jacobian times v."""
        return self.tangent(self.shaped(v))

    def tangent(self, v: Any) -> NDArray:
        """Return what jvp gives for a tangent in the caller's form, in real numbers."""
        subject = self.subject
        found = self._fitted(self(v), subject.kept, len(subject.outputs), "tangent", "output")
        return real_vector(found).astype(float, copy=False)

    def times(self, v: NDArray) -> NDArray:
        """Return the real Jacobian times v, of jac or jvp."""
        if self.name == "jvp":
            return self.push(v)
        product: NDArray = (self.matrix() if self.known is None else self.known) @ v
        return product

    def transposed_times(self, w: NDArray) -> NDArray:
        """Return the real Jacobian's transpose times w, of jac or vjp."""
        if self.name == "vjp":
            return self.pull(w)
        product: NDArray = w @ (self.matrix() if self.known is None else self.known)
        return product

    def _fitted(
        self, result: Any, parts: tuple[Part, ...], every: int, what: str, whose: str
    ) -> list[NDArray]:
        """Return one array for each part; None stands for zeros."""
        items = several(result)
        given: Sequence[Any] | None = items
        if len(items) != len(parts):
            given = picked(items, [p.position for p in parts], every)
        if given is None:
            wanted = f"{len(parts)}" if every == len(parts) else f"{len(parts)} (or {every})"
            count = len(items)
            msg = (
                f"{self.name} returned {count} {what}{'s' * (count != 1)}, expected {wanted}: "
                f"one for each differentiable {whose}"
            )
            if len(parts) == 1 and count > 1 and np.ndim(items[0]) == 0:
                msg += f"; a {type(result).__name__} holds one for each: return an array"
            raise WrongFormError(msg)
        return [self._one(g, p, what, whose) for g, p in zip(given, parts, strict=True)]

    def _one(self, value: Any, part: Part, what: str, whose: str) -> NDArray:
        like = part.example
        if value is None:
            return np.zeros_like(like)
        if hasattr(value, "toarray"):
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.name} is of a sparse "
                f"layout, and the {whose} is dense: return an array of shape {like.shape}"
            )
            raise WrongFormError(msg)
        array = value if type(value) is np.ndarray else np.asarray(as_array(value, self.name))
        if array is not value and array.dtype.kind in "OSU":
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.name} is of type "
                f"{type(value).__name__}: return an array of shape {like.shape}"
            )
            raise WrongFormError(msg)
        if array.shape != like.shape:
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.name} has a wrong "
                f"shape: expected {like.shape}, got {array.shape}{_advice(like, array)}"
            )
            raise WrongFormError(msg)
        if array.dtype.kind not in "biufc" or (array.dtype.kind == "c" and like.dtype.kind != "c"):
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.name} is of dtype "
                f"{array.dtype}, and the {whose} of {like.dtype}"
            )
            raise WrongFormError(msg)
        if self.strict and array.dtype != like.dtype:
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.name} has dtype "
                f"{array.dtype}, expected {like.dtype} (check_grad_dtypes)"
            )
            raise WrongFormError(msg)
        wide = np.complex128 if like.dtype.kind == "c" else np.float64
        return array.astype(wide, copy=False)


def _advice(like: NDArray, array: NDArray) -> str:
    """Say what to do with a gradient of the shape that its input was broadcast to."""
    try:
        wider = np.broadcast_shapes(like.shape, array.shape) == array.shape
    except ValueError:
        return ""
    return "; sum it over the axes that were broadcast" if wider else ""
