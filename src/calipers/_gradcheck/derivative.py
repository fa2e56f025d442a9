"""The caller's derivative, whatever its form, as a map between the same real numbers as f.

With torch's convention the gradient of complex numbers pairs with them as real ones do:
``Re(conj(w)*dF) == Re(conj(g)*dz)``; vjp is then the transposed real Jacobian. jax and others leave
out both conjugates.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._arrays import as_array
from .._protocols import NDArray
from .subject import Part, Subject, real_vector

_TOGETHER = 64  # columns that are stored together: a column alone is spread over the memory
CONVENTIONS = ("torch", "jax")


class WrongFormError(Exception):
    """A derivative whose result has the wrong count, shape or kind: a finding, not a crash."""


@dataclass
class Derivative:
    """One of jac, vjp and jvp."""

    name: str
    call: Callable[..., Any]
    subject: Subject
    conjugate: bool  # jax's convention
    strict: bool = False  # about dtypes
    batches: bool = False  # whether vjp may take a batch of cotangents
    calls: int = 0
    known: NDArray | None = None  # what jac gave, as a matrix
    touched: list[str] = field(default_factory=list)  # by the first call

    def __call__(self, *last: Any) -> Any:
        """Call the caller's function with private arguments."""
        self.calls += 1
        given = self.subject.arguments()
        if self.calls > 1:
            return self.call(*given, *last, **self.subject.kwargs)
        flat = [x for item in last for x in (item if isinstance(item, tuple) else (item,))]
        before = [np.array(x) for x in flat]
        result = self.call(*given, *last, **self.subject.kwargs)
        self.touched = self.subject.changed(given)
        what = "cotangent" if self.name == "vjp" else "tangent"
        pairs = zip(before, flat, strict=True)
        if any(old.tobytes() != np.asarray(new).tobytes() for old, new in pairs):
            self.touched.append(f"its {what}")
        return result

    def matrix(self) -> NDArray:
        """Return the real Jacobian."""
        subject = self.subject
        if self.name == "jac":
            self.known = self._from_blocks(self())
            return self.known
        found = np.empty((subject.rows, subject.columns))
        if self.name == "vjp":
            start = self._fill_together(found) if self.batches else 0
            for i in range(start, subject.rows):
                found[i] = self.pull(_unit(subject.rows, i))
            return found
        for start in range(0, subject.columns, _TOGETHER):
            stop = min(start + _TOGETHER, subject.columns)
            columns = [self.push(_unit(subject.columns, j)) for j in range(start, stop)]
            found[:, start:stop] = np.array(columns).T
        return found

    def _fill_together(self, matrix: NDArray) -> int:
        """Fill rows by batches of cotangents, if vjp gives the same as alone; return how many."""
        rows = len(matrix)
        alone = self.pull(_unit(rows, 0)).copy()
        for start in range(0, rows, _TOGETHER):
            stop = min(start + _TOGETHER, rows)
            units = np.zeros((stop - start, rows))
            units[np.arange(stop - start), np.arange(start, stop)] = 1
            try:
                matrix[start:stop] = self._pull_together(units)
            except Exception:  # whatever vjp does that has no batch
                return 0
            size = 256 * self.subject.eps * np.abs(alone).max(initial=0.0)
            if start == 0 and not np.allclose(matrix[0], alone, rtol=0, atol=size, equal_nan=True):
                return 0
        return rows

    def _pull_together(self, w: NDArray) -> NDArray:
        subject, count = self.subject, len(w)
        cotangents = tuple(np.stack([p.shaped(line) for line in w]) for p in subject.kept)
        if self.conjugate:
            cotangents = tuple(np.conj(c) for c in cotangents)
        found = self(cotangents if subject.several else cotangents[0])
        lines = []
        for gradient, part in zip(found, subject.active, strict=True):
            like = part.example
            wide = np.complex128 if like.dtype.kind == "c" else np.float64
            if gradient is None:
                gradient = np.zeros((count, *like.shape))
            array = np.ascontiguousarray(gradient, wide).reshape(count, like.size)
            if self.conjugate:
                array = np.conj(array)
            lines.append(array.view(float) if like.dtype.kind == "c" else array)
        return np.concatenate(lines, axis=1)

    def pull(self, w: NDArray) -> NDArray:
        """Return the real Jacobian's transpose times w, maybe in memory that the caller fills."""
        subject = self.subject
        cotangents = [p.shaped(w) for p in subject.kept]
        if self.conjugate:
            cotangents = [np.conj(c) for c in cotangents]
        return self.gradient(tuple(cotangents) if subject.several else cotangents[0])

    def gradient(self, w: Any) -> NDArray:
        """Return what vjp gives for a cotangent in the caller's form, in real numbers."""
        subject = self.subject
        found = self._fitted(self(w), subject.active, len(subject.values), "gradient", "input")
        if self.conjugate:
            found = [np.conj(g) for g in found]
        return real_vector(found).astype(float, copy=False)

    def push(self, v: NDArray) -> NDArray:
        """Return the real Jacobian times v."""
        subject = self.subject
        tangents = tuple(p.shaped(v) for p in subject.active)
        result = self(tangents if len(tangents) > 1 else tangents[0])
        found = self._fitted(result, subject.kept, len(subject.outputs), "tangent", "output")
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
        several = isinstance(result, (tuple, list))
        given = list(result) if several else [result]
        if several and len(given) == every and every != len(parts):
            given = [given[p.position] for p in parts]
        if len(given) != len(parts):
            wanted = f"{len(parts)}" if every == len(parts) else f"{len(parts)} (or {every})"
            count = len(given)
            msg = (
                f"{self.name} returned {count} {what}{'s' * (count != 1)}, expected {wanted}: "
                f"one for each differentiable {whose}"
            )
            raise WrongFormError(msg)
        return [self._one(g, p, what, whose) for g, p in zip(given, parts, strict=True)]

    def _one(self, value: Any, part: Part, what: str, whose: str) -> NDArray:
        like = part.example
        if value is None:
            return np.zeros_like(like)
        if hasattr(value, "toarray"):
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.position} is of a sparse "
                f"layout, and the {whose} is dense: return an array of shape {like.shape}"
            )
            raise WrongFormError(msg)
        array = value if type(value) is np.ndarray else np.asarray(as_array(value, self.name))
        if array.shape != like.shape:
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.position} has a wrong "
                f"shape: expected {like.shape}, got {array.shape}"
            )
            raise WrongFormError(msg)
        if array.dtype.kind not in "biufc" or (array.dtype.kind == "c" and like.dtype.kind != "c"):
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.position} is of dtype "
                f"{array.dtype}, and the {whose} of {like.dtype}"
            )
            raise WrongFormError(msg)
        if self.strict and array.dtype != like.dtype:
            msg = (
                f"the {what} that {self.name} returned for {whose} {part.position} has dtype "
                f"{array.dtype}, expected {like.dtype} (check_grad_dtypes)"
            )
            raise WrongFormError(msg)
        wide = np.complex128 if like.dtype.kind == "c" else np.float64
        return array.astype(wide, copy=False)

    def _from_blocks(self, result: Any) -> NDArray:
        subject = self.subject
        outputs = self._chosen(result, subject.kept, len(subject.outputs), subject.several)
        several = len(subject.active) > 1
        lines = []
        for out, by_input in zip(subject.kept, outputs, strict=True):
            blocks = self._chosen(by_input, subject.active, len(subject.values), several)
            pairs = zip(subject.active, blocks, strict=True)
            lines.append([self._block(block, out, part) for part, block in pairs])
        if len(lines) == len(lines[0]) == 1:
            return np.ascontiguousarray(lines[0][0], dtype=float)
        return np.block(lines).astype(float, copy=False)

    def _chosen(self, given: Any, parts: tuple[Part, ...], every: int, several: bool) -> list[Any]:
        """Return what is for the parts, from one item for each of them, or for each of all."""
        if not several:
            return [given]
        if not isinstance(given, (tuple, list)) or len(given) not in (len(parts), every):
            found = len(given) if isinstance(given, (tuple, list)) else type(given).__name__
            msg = f"jac must return jac[output][input]; expected {len(parts)} items, got {found}"
            raise WrongFormError(msg)
        return list(given) if len(given) == len(parts) else [given[p.position] for p in parts]

    def _block(self, block: Any, out: Part, part: Part) -> NDArray:
        """Return one block as real numbers."""
        shape = out.example.shape + part.example.shape
        expected = np.result_type(out.example, part.example)
        if self.strict and getattr(block, "dtype", expected) != expected:
            msg = (
                f"the Jacobian of output {out.position} with respect to input {part.position} has "
                f"dtype {block.dtype}, expected {expected} (check_grad_dtypes)"
            )
            raise WrongFormError(msg)
        wirtinger = isinstance(block, tuple) and len(block) == 2
        pair = block if wirtinger else (block, None)
        arrays = []
        for item in pair:
            array = np.zeros(shape) if item is None else _dense(item)
            if array.shape != shape:
                flat = (out.example.size, part.example.size)
                if array.shape != flat:
                    msg = (
                        f"the Jacobian of output {out.position} with respect to input "
                        f"{part.position} has a wrong shape: expected {shape}, got {array.shape}"
                    )
                    raise WrongFormError(msg)
            arrays.append(array.reshape(out.example.size, part.example.size))
        p, q = arrays
        complex_in, complex_out = part.example.dtype.kind == "c", out.example.dtype.kind == "c"
        if not complex_in:
            if not complex_out and np.iscomplexobj(p):
                msg = f"the Jacobian of real output {out.position} by real input is complex"
                raise WrongFormError(msg)
            columns = [p]
        elif complex_out or wirtinger:
            columns = [p + q, 1j * (p - q)]
        else:  # the gradient of a real number: d/d(real) + i d/d(imaginary)
            columns = [p.real, -p.imag if self.conjugate else p.imag]
        if not complex_in and not complex_out:
            return p
        found = np.empty((len(p) * (1 + complex_out), p.shape[1] * len(columns)))
        for k, column in enumerate(columns):
            found[:: 1 + complex_out, k :: len(columns)] = column.real
            if complex_out:
                found[1::2, k :: len(columns)] = column.imag
        return found


def _dense(block: Any) -> NDArray:
    if hasattr(block, "toarray"):  # scipy.sparse
        block = block.toarray()
    return np.asarray(as_array(block, "jac"))


def _unit(size: int, k: int) -> NDArray:
    unit = np.zeros(size)
    unit[k] = 1
    return unit
