"""The caller's derivative, in any form, as a linear map between real vectors.

With torch's convention the gradient of complex numbers pairs with them as real ones do:
``Re(conj(w)*dF) == Re(conj(g)*dz)``; vjp is then the transposed real Jacobian. jax and others leave
out both conjugates.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

import numpy as np

from .._core.arguments import note_form
from .._core.arrays import as_dense_array, is_sparse
from .._core.containers import as_tuple
from .._core.protocols import NDArray
from .calls import AdaptedDerivative, noncontiguous, same
from .flatten import Segment, WrongFormError, picked, real_rows, real_vector, require_zero
from .function_at_point import FunctionAtPoint
from .jacobian_storage import compact


def as_matrix(result: Any, subject: FunctionAtPoint, conjugate: bool, strict: bool) -> Any:
    """
    Return the real Jacobian from the result of jac.

    It is a csc_array if all blocks are real sparse matrices of SciPy, and else an array in C order.
    A large array that is mostly zero becomes `Compact`, so that its memory can be reused.
    `conjugate` is jax's convention for gradients; `strict` raises if dtypes differ from those of f.
    """
    outputs = _chosen(result, subject.active_outputs, len(subject.outputs), subject.several)
    several = len(subject.active) > 1
    rows = []
    for out, by_input in zip(subject.active_outputs, outputs, strict=True):
        blocks = _chosen(by_input, subject.active, len(subject.values), several)
        pairs = zip(subject.active, blocks, strict=True)
        rows.append([_Block(out, part, block, strict) for part, block in pairs])
    if all(block.is_sparse for row in rows for block in row):
        return _joined(rows)
    dense = [[block.reals(conjugate) for block in row] for row in rows]
    if len(dense) == len(dense[0]) == 1:
        return compact(np.ascontiguousarray(dense[0][0], dtype=float))
    return compact(np.ascontiguousarray(np.block(dense), dtype=float))


def _chosen(items: Any, parts: tuple[Segment, ...], every: int, several: bool) -> list[Any]:
    """Return one item for each part, from a list of these or of all inputs or outputs."""
    if not several:
        return [items]
    are_several = isinstance(items, (tuple, list))
    chosen = picked(items, [p.position for p in parts], every) if are_several else None
    if chosen is None:
        got = len(items) if are_several else type(items).__name__
        msg = f"jac must return jac[output][input]; expected {len(parts)} items, got {got}"
        raise WrongFormError(msg)
    return chosen


class _Block:
    """The derivative of one output by one input, as jac returned it."""

    def __init__(self, out: Segment, part: Segment, value: Any, strict: bool) -> None:
        self._out, self._part, self.value = out, part, value
        self._name = f"the block d {out.label} / d {part.label} of jac"
        self._complex_in = part.example.dtype.kind == "c"
        self._complex_out = out.example.dtype.kind == "c"
        expected = np.result_type(out.example, part.example)
        if strict and getattr(value, "dtype", expected) != expected:
            msg = f"{self._name} has dtype {value.dtype}, expected {expected} (check_grad_dtypes)"
            raise WrongFormError(msg)

    @property
    def is_sparse(self) -> bool:
        """Whether it is a real sparse matrix of SciPy, which needs no conversion."""
        real = not (self._complex_in or self._complex_out)
        return real and hasattr(self.value, "tocsc") and self.value.dtype.kind in "biuf"

    def array(self, item: Any) -> NDArray:
        """Return an array as a matrix with a row for each element of the output."""
        out, part = self._out.example, self._part.example
        flat = out.size, part.size
        if item is None:
            return np.zeros(flat)
        array = np.asarray(as_dense_array(item.toarray() if is_sparse(item) else item, "jac"))
        if array is not item and array.dtype.kind in "OSU":
            kind, shape = type(item).__name__, out.shape + part.shape
            msg = f"{self._name} is of type {kind}: return an array of shape {shape}"
            raise WrongFormError(msg)
        self.require_shape(array.shape)
        return array.reshape(flat)

    def require_shape(self, shape: tuple[int, ...]) -> None:
        out, part = self._out.example, self._part.example
        expected = out.shape + part.shape
        if shape not in (expected, (out.size, part.size)):
            msg = f"{self._name} has a wrong shape: expected {expected}, got {shape}"
            raise WrongFormError(msg)

    def reals(self, conjugate: bool) -> NDArray:
        """Return it as a real matrix."""
        if self._complex_in and isinstance(self.value, tuple) and len(self.value) == 2:
            p, q = map(self.array, self.value)  # Wirtinger's
            columns = [p + q, 1j * (p - q)]
        else:
            columns = self._columns(self.array(self.value), conjugate)
            if not (self._complex_in or self._complex_out):
                return columns[0]
        rows, count = columns[0].shape
        matrix = np.empty((rows * (1 + self._complex_out), count * len(columns)))
        for k, column in enumerate(columns):
            matrix[:: 1 + self._complex_out, k :: len(columns)] = column.real
            if self._complex_out:
                matrix[1::2, k :: len(columns)] = column.imag
        return matrix

    def _columns(self, p: NDArray, conjugate: bool) -> list[NDArray]:
        """Return the derivatives by the real and the imaginary part of the input."""
        if not self._complex_in:
            if not self._complex_out and np.iscomplexobj(p):
                msg = f"{self._name} is complex, but the output and the input are real"
                raise WrongFormError(msg)
            return [p]
        if self._complex_out:
            return [p, 1j * p]
        # The gradient of a real number: d/d(real) + i d/d(imaginary).
        return [p.real, -p.imag if conjugate else p.imag]


def _joined(rows: list[list[_Block]]) -> Any:
    from scipy.sparse import block_array, csc_array

    for row in rows:
        for block in row:
            block.require_shape(block.value.shape)
    alone = len(rows) == len(rows[0]) == 1
    stacked = rows[0][0].value if alone else block_array([[b.value for b in row] for row in rows])
    matrix = csc_array(stacked, dtype=float, copy=True)  # duplicates are summed in place
    matrix.sum_duplicates()
    return matrix


CONVENTIONS = ("torch", "jax")
_LAST = {"vjp": ("w",), "jvp": ("v",)}


@dataclass
class AnalyticDerivative:
    """A jac, vjp or jvp of the caller or of a library, as a function of real vectors."""

    form: str
    call: AdaptedDerivative
    subject: FunctionAtPoint
    conjugate: bool  # jax's convention
    strict: bool = False  # whether results must have the dtypes of inputs and outputs
    of_library: bool = False  # whether it is a library's, which may take batches of directions
    called: str = ""  # the caller's name for it, if that is not its form
    calls: int = 0
    last_matrix: Any = None  # the matrix that jac returned last
    returns_none: bool = False  # whether a call returned None
    first: tuple[Any, Any] | None = None  # the first of some results; see `first_result`
    change: float = 0.0  # how far a later result for the same arguments differs
    touched: list[str] = field(default_factory=list)  # arguments that the first call modified
    name: str = field(init=False)  # the caller's name for it
    # The parts of a direction, outputs for vjp and inputs for jvp, and those of a result.
    direction_segments: tuple[Segment, ...] = field(init=False)
    result_segments: tuple[Segment, ...] = field(init=False)
    several: bool = field(init=False)  # whether directions are tuples

    def __post_init__(self) -> None:
        subject, self.name = self.subject, self.called or self.form
        inputs, outputs = subject.active, subject.active_outputs
        if self.form == "vjp":
            self.direction_segments, self.result_segments = outputs, inputs
            self.several = subject.several
        else:
            self.direction_segments, self.result_segments = inputs, outputs
            self.several = len(inputs) > 1

    def __call__(self, *last: Any) -> Any:
        """Call the derivative with copies of the arguments."""
        self.calls += 1
        arguments, named = self.subject.arguments(), self.subject.named()
        if self.calls > 1:
            result = self.call(*arguments, *last, **named)
            self.returns_none |= result is None
            return result
        flat = [*chain.from_iterable(map(as_tuple, last))]
        before = list(map(np.array, flat))
        try:
            result = self.call(*arguments, *last, **named)
        except TypeError as error:
            fills = ("*outs",) if self.call.likes is not None else ()
            named_too = ("**kwargs",) if named else ()
            takes = ", ".join(("*inputs", "*args", *_LAST.get(self.form, ()), *fills, *named_too))
            note_form(error, f"{self.name} is called as {self.name}({takes})")
            raise
        self.returns_none = result is None
        self.touched = self.subject.changed(arguments, named)
        what = "cotangent" if self.form == "vjp" else "tangent"
        if not all(map(same, flat, before)):
            self.touched.append(f"its {what}")
        if self.form == "vjp":
            self._require_constants(result)
        return result

    def _require_constants(self, gradients: Any) -> None:
        """Raise if a gradient by an input that is not of floating-point numbers is not zero."""
        subject = self.subject
        every = isinstance(gradients, (tuple, list)) and len(gradients) == len(subject.values)
        for k in subject.held if every and len(subject.active) < len(gradients) else ():
            require_zero(gradients[k], self.name, f"input {subject.names[k]}")

    def matrix(self) -> Any:
        """Return the real Jacobian from jac: an array, a `Compact` matrix or a csc_array."""
        self.last_matrix = as_matrix(self(), self.subject, self.conjugate, self.strict)
        return self.last_matrix

    @property
    def _every(self) -> int:
        """The number of results if there is one for each constant as well."""
        return len(self.subject.values if self.form == "vjp" else self.subject.outputs)

    def shaped(self, v: NDArray, contiguous: bool = True) -> Any:
        """Return a real vector, or a batch of them, as a direction that the derivative takes."""
        items = list(map(Segment.shaped, self.direction_segments, repeat(v)))
        if not contiguous:
            items = list(map(noncontiguous, items))
        if self.conjugate and self.form == "vjp":
            items = [np.conj(item) for item in items]
        return tuple(items) if self.several else items[0]

    def applied(self, v: NDArray, contiguous: bool = True) -> NDArray:
        """Return the result of vjp or jvp for v, in memory that the next call does not reuse."""
        return self.answer(self.shaped(v, contiguous)).copy()

    def product(self, v: NDArray) -> NDArray:
        """Return the real Jacobian or its transpose times v; the next call may overwrite it."""
        return self.answer(self.shaped(v))

    def answer(self, direction: Any) -> NDArray:
        """Return the result of vjp or jvp for a direction of `shaped` as a real vector."""
        result = self._fitted(self(direction))
        if self.conjugate and self.form == "vjp":
            result = [np.conj(g) for g in result]
        return real_vector(result)

    def batch_products(self, v: NDArray) -> NDArray:
        """Return the results of vjp or jvp for the rows of v, from one call with a batch."""
        count = len(v)
        results = as_tuple(self(self.shaped(v)))
        chosen = picked(results, [p.position for p in self.result_segments], self._every)
        if chosen is None:
            expected = len(self.result_segments)
            msg = f"{self.name} of a batch returned {len(results)} results, expected {expected}"
            raise WrongFormError(msg)
        arrays = []
        for result, part in zip(chosen, self.result_segments, strict=True):
            shape = (count, *part.example.shape)
            array = np.zeros(shape) if result is None else np.asarray(result)
            if array.shape != shape:
                msg = f"{self.name} of a batch gave shape {array.shape}, expected {shape}"
                raise WrongFormError(msg)
            array = array.astype(part.wide, copy=False)
            arrays.append(np.conj(array) if self.conjugate and self.form == "vjp" else array)
        return real_rows(arrays)

    def times(self, v: NDArray) -> NDArray:
        """Return the real Jacobian times v, from jac or jvp."""
        if self.form == "jvp":
            return self.product(v)
        matrix = self.matrix() if self.last_matrix is None else self.last_matrix
        product: NDArray = matrix @ v
        return product

    def transposed_times(self, w: NDArray) -> NDArray:
        """Return the transpose of the real Jacobian times w, from jac or vjp."""
        if self.form == "vjp":
            return self.product(w)
        matrix = self.matrix() if self.last_matrix is None else self.last_matrix
        product: NDArray = w @ matrix
        return product

    def _fitted(self, result: Any) -> list[NDArray]:
        """Return one array for each part; None stands for zeros."""
        parts, items = self.result_segments, as_tuple(result)
        chosen: Sequence[Any] | None = items
        if len(items) != len(parts):
            chosen = picked(items, [p.position for p in parts], self._every)
        if chosen is None:
            what, whose = self._words
            every = self._every
            wanted = f"{len(parts)}" if every == len(parts) else f"{len(parts)} (or {every})"
            count = len(items)
            msg = (
                f"{self.name} returned {count} {what}{'s' * (count != 1)}, expected {wanted}: "
                f"one for each differentiable {whose}"
            )
            if len(parts) == 1 and count > 1 and np.ndim(items[0]) == 0:
                msg += (
                    f"; a {type(result).__name__} is taken as one result for each {whose}: "
                    "return an array"
                )
            raise WrongFormError(msg)
        return list(map(self._one, chosen, parts))

    @property
    def _words(self) -> tuple[str, str]:
        """The words for a result and for what it belongs to."""
        return ("gradient", "input") if self.form == "vjp" else ("tangent", "output")

    def _one(self, value: Any, part: Segment) -> NDArray:
        like = part.example
        if type(value) is np.ndarray and value.shape == like.shape and value.dtype == like.dtype:
            return value.astype(part.wide, copy=False)
        if value is None:
            return np.zeros(like.shape, part.wide)
        what, whose = self._words
        returned = f"the {what} that {self.name} returned for {whose} {part.name}"
        if is_sparse(value):
            msg = (
                f"{returned} has a sparse layout, but the {whose} is dense: return an "
                f"array of shape {like.shape}"
            )
            raise WrongFormError(msg)
        array = value if type(value) is np.ndarray else np.asarray(as_dense_array(value, self.name))
        if array is not value and array.dtype.kind in "OSU":
            kind = type(value).__name__
            msg = f"{returned} is of type {kind}: return an array of shape {like.shape}"
            raise WrongFormError(msg)
        if array.shape != like.shape:
            msg = (
                f"{returned} has a wrong shape: expected {like.shape}, got "
                f"{array.shape}{_advice(like, array)}"
            )
            raise WrongFormError(msg)
        if array.dtype.kind not in "biufc" or (array.dtype.kind == "c" and like.dtype.kind != "c"):
            msg = f"{returned} has dtype {array.dtype}, but the {whose} has dtype {like.dtype}"
            raise WrongFormError(msg)
        if self.strict and array.dtype != like.dtype:
            msg = f"{returned} has dtype {array.dtype}, expected {like.dtype} (check_grad_dtypes)"
            raise WrongFormError(msg)
        return array.astype(part.wide, copy=False)


def _advice(like: NDArray, array: NDArray) -> str:
    """Return advice if a gradient has the shape that its input was broadcast to."""
    try:
        broadcasts = np.broadcast_shapes(like.shape, array.shape) == array.shape
    except ValueError:
        return ""
    return "; sum it over the broadcast axes" if broadcasts else ""
