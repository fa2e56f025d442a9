"""What jac returns, jac[output][input] in whatever nesting, as one matrix of real numbers."""

from typing import Any

import numpy as np

from .._arrays import as_array, given_array, is_sparse
from .._protocols import NDArray
from .compact import compact
from .parts import Part, picked
from .subject import Subject


class WrongFormError(Exception):
    """A derivative whose result has the wrong count, shape or kind: a finding, not a crash."""


def as_matrix(result: Any, subject: Subject, conjugate: bool, strict: bool) -> Any:
    """
    Return the real Jacobian: an array in C order, or a csc_array where real blocks are all scipy's.

    A large array of which most is 0 becomes `Compact`, and is let go of: that of the next call then
    finds memory which is at hand.

    `conjugate` is jax's convention of gradients; `strict` refuses other dtypes than f's.
    """
    outputs = _chosen(result, subject.kept, len(subject.outputs), subject.several)
    several = len(subject.active) > 1
    lines = []
    for out, by_input in zip(subject.kept, outputs, strict=True):
        blocks = _chosen(by_input, subject.active, len(subject.values), several)
        pairs = zip(subject.active, blocks, strict=True)
        lines.append([_Block(out, part, block, strict) for part, block in pairs])
    if all(block.is_sparse for line in lines for block in line):
        return _joined(lines)
    dense = [[block.reals(conjugate) for block in line] for line in lines]
    if len(dense) == len(dense[0]) == 1:
        return compact(np.ascontiguousarray(dense[0][0], dtype=float))
    return compact(np.ascontiguousarray(np.block(dense), dtype=float))


def _chosen(given: Any, parts: tuple[Part, ...], every: int, several: bool) -> list[Any]:
    """Return what is for the parts, from one item for each of them, or for each of all."""
    if not several:
        return [given]
    are_several = isinstance(given, (tuple, list))
    found = picked(given, [p.position for p in parts], every) if are_several else None
    if found is None:
        got = len(given) if are_several else type(given).__name__
        msg = f"jac must return jac[output][input]; expected {len(parts)} items, got {got}"
        raise WrongFormError(msg)
    return found


def require_nothing(gradient: Any, name: str, place: str) -> None:
    """Refuse what is said of the derivative by something that is held constant."""
    try:
        something = gradient is not None and bool(np.any(np.asarray(as_array(gradient, name))))
    except (TypeError, ValueError):
        something = True
    if something:
        msg = (
            f"{name} returned a derivative with respect to {place}, which is not a "
            "floating-point array and is held constant: pass it as one, or return None "
            "for it"
        )
        raise WrongFormError(msg)


class _Block:
    """The derivative of one output by one input, as the caller gave it."""

    def __init__(self, out: Part, part: Part, given: Any, strict: bool) -> None:
        self._out, self._part, self.given = out, part, given
        self._name = f"the block d {out.label} / d {part.label} of jac"
        self._complex_in = part.example.dtype.kind == "c"
        self._complex_out = out.example.dtype.kind == "c"
        expected = np.result_type(out.example, part.example)
        if strict and getattr(given, "dtype", expected) != expected:
            msg = f"{self._name} has dtype {given.dtype}, expected {expected} (check_grad_dtypes)"
            raise WrongFormError(msg)

    @property
    def is_sparse(self) -> bool:
        """Whether it can stay a sparse matrix of scipy's."""
        real = not (self._complex_in or self._complex_out)
        return real and hasattr(self.given, "tocsc") and self.given.dtype.kind in "biuf"

    def array(self, item: Any) -> NDArray:
        """Return one item with a row for each element of the output."""
        out, part = self._out.example, self._part.example
        flat = out.size, part.size
        if item is None:
            return np.zeros(flat)
        array = np.asarray(given_array(item.toarray() if is_sparse(item) else item, "jac"))
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
        """Return it as real numbers."""
        if self._complex_in and isinstance(self.given, tuple) and len(self.given) == 2:
            p, q = map(self.array, self.given)  # Wirtinger's
            columns = [p + q, 1j * (p - q)]
        else:
            columns = self._columns(self.array(self.given), conjugate)
            if not (self._complex_in or self._complex_out):
                return columns[0]
        rows, count = columns[0].shape
        found = np.empty((rows * (1 + self._complex_out), count * len(columns)))
        for k, column in enumerate(columns):
            found[:: 1 + self._complex_out, k :: len(columns)] = column.real
            if self._complex_out:
                found[1::2, k :: len(columns)] = column.imag
        return found

    def _columns(self, p: NDArray, conjugate: bool) -> list[NDArray]:
        """Return the derivatives by the real and the imaginary part of the input, of one array."""
        if not self._complex_in:
            if not self._complex_out and np.iscomplexobj(p):
                msg = f"{self._name} is complex, but the output and the input are real"
                raise WrongFormError(msg)
            return [p]
        if self._complex_out:
            return [p, 1j * p]
        # The gradient of a real number: d/d(real) + i d/d(imaginary).
        return [p.real, -p.imag if conjugate else p.imag]


def _joined(lines: list[list[_Block]]) -> Any:
    from scipy.sparse import block_array, csc_array

    for line in lines:
        for block in line:
            block.require_shape(block.given.shape)
    alone = len(lines) == len(lines[0]) == 1
    found = lines[0][0].given if alone else block_array([[b.given for b in line] for line in lines])
    matrix = csc_array(found, dtype=float, copy=True)  # whose order of elements is ours to change
    matrix.sum_duplicates()
    return matrix
