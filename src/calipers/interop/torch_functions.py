"""PyTorch functions, whose derivatives come from autograd."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np

from .._core.containers import Flattened, as_tuple, contains, flatten
from .._core.protocols import Differentiated, NDArray
from .sparse_inputs import SparseInput, torch_input
from .torch import (
    HeldTensors,
    Torch,
    captured_by,
    copied,
    cotangent,
    has_array,
    leaf,
    lent,
    noncontiguous,
    require_values,
)

_library = Torch()


class TorchFunctions:
    """See `FunctionLibrary`."""

    def owns(self, x: Any) -> bool:
        return "torch" in sys.modules and contains(x, flatten, _library.owns)

    def flatten(self, x: Any) -> Flattened:
        return ([("", x)], itemgetter(0)) if _library.owns(x) else flatten(x)

    def is_active(self, x: Any) -> bool:
        return _library.owns(x) and bool(x.requires_grad)

    def copied(self, x: Any) -> Any:
        return copied(x, x.requires_grad) if _library.owns(x) else x

    def differentiated(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        masked: bool,
        argnums: tuple[int, ...] | None,
        left_out: tuple[int, ...],
        names: tuple[str, ...],
    ) -> Differentiated:
        torch = sys.modules["torch"]
        if torch.is_inference_mode_enabled():
            msg = "torch records no derivatives in inference_mode: call gradcheck outside of it"
            raise ValueError(msg)
        tensors = {k: x for k, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
        if argnums is None:
            argnums = tuple(k for k, x in tensors.items() if x.requires_grad)
        else:
            argnums = tuple(k for k in argnums if k in tensors)
        if not argnums:
            msg = (
                "gradcheck expects at least one input tensor to require gradient: call "
                ".requires_grad_() on the inputs to differentiate"
            )
            raise ValueError(msg)
        for k in argnums:
            require_values(tensors[k], f"input {names[k]}")
            kind = tensors[k].dtype
            if not _has_differences(kind):
                reason = (
                    f"input {names[k]} has dtype {kind}, which is not differentiated numerically"
                )
                msg = f"{reason}: pass it in float32 or 64"
                raise TypeError(msg)
        # A constant without an array is passed to f as it is.
        tensors = {k: x for k, x in tensors.items() if k in argnums or has_array(x)}
        sparse = {
            k: torch_input(x, masked) for k, x in tensors.items() if x.layout is not torch.strided
        }
        function = _TorchFunction(f, inputs, argnums, sparse, left_out)
        arrays = tuple(
            sparse[k].values
            if k in sparse
            else _to_numpy(x, f"input {names[k]}").copy()
            if k in tensors
            else x
            for k, x in enumerate(inputs)
        )
        copies = tuple(x.copy() if isinstance(x, np.ndarray) else x for x in arrays)
        tensors_at_x = function.tensors(copies)
        outputs = function.outputs(tensors_at_x)
        function.captured, held = captured_by(outputs, inputs, argnums)
        if not (function.captured or sparse):
            function.keep_graph(copies, tensors_at_x, outputs)
        without = {
            k
            for k, y in enumerate(outputs)
            if not (isinstance(y, torch.Tensor) and y.requires_grad)
        }
        plain = tuple(sorted(without.union(left_out)))
        constant = len(plain) == len(outputs)
        if constant:  # then the derivative is claimed to be 0
            plain = tuple(
                k
                for k, y in enumerate(outputs)
                if k in left_out or (isinstance(y, torch.Tensor) and y.dtype not in _full())
            )
        return Differentiated(
            function,
            arrays,
            argnums,
            plain,
            function.vjp,
            function.jvp,
            "torch",
            partial(function.batched, arrays),
            constant,
            used=held,
            value_indices={k: matrix.indices for k, matrix in sparse.items()},
        )

    def gradient(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        argnums: tuple[int, ...],
        outputs: tuple[int, ...],
        cotangents: tuple[NDArray, ...],
        spread: bool,
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        torch = sys.modules["torch"]
        copies = [
            copied(x, k in argnums) if isinstance(x, torch.Tensor) else x
            for k, x in enumerate(inputs)
        ]
        with torch.enable_grad():
            captured, _ = captured_by(as_tuple(f(*copies)), inputs, argnums)

        def gradient(*args: Any) -> tuple[Any, ...]:
            point, w = list(args[: len(inputs)]), args[len(inputs) :]
            for k in captured:
                point[k] = inputs[k]
            if spread:
                w = tuple(map(noncontiguous, w))
            active = [point[k] for k in argnums]

            def of_active(*active: Any) -> tuple[Any, ...]:
                whole = list(point)
                for k, x in zip(argnums, active, strict=True):
                    whole[k] = x
                every = as_tuple(f(*whole))
                return tuple(every[k] for k in outputs)

            if not torch.is_grad_enabled():  # as in batches, which autograd.grad does not take
                return tuple(torch.func.vjp(of_active, *active)[1](tuple(w)))
            # What f gives may be constant, here or everywhere; in batches nothing seems to depend.
            able = all(x.requires_grad for x in active)
            every = zip(of_active(*active), w, strict=True)
            pairs = [(y, u) for y, u in every if y.requires_grad or not able]
            gradients: Any = (None,) * len(active)
            if pairs:
                differentiable, grad_outputs = zip(*pairs, strict=True)
                gradients = torch.autograd.grad(
                    differentiable, active, grad_outputs, create_graph=True, allow_unused=True
                )
            # A gradient that is constant depends on the inputs, too: as zeros do.
            return tuple(
                0 * x if g is None else g if g.requires_grad else g + 0 * x
                for g, x in zip(gradients, active, strict=True)
            )

        weights = tuple(_library.from_numpy(w).requires_grad_() for w in cotangents)
        fixed = [
            x.detach() if k not in argnums and isinstance(x, torch.Tensor) else x
            for k, x in enumerate(inputs)
        ]
        return gradient, (*fixed, *weights)


def _has_differences(dtype: Any) -> bool:
    torch = sys.modules["torch"]
    return dtype in (*_full(), torch.float16, torch.bfloat16)


def _full() -> tuple[Any, ...]:
    """Return the dtypes whose constant outputs are mistakes, and not masks or labels."""
    torch = sys.modules["torch"]
    return torch.float32, torch.float64, torch.complex64, torch.complex128


def _to_numpy(x: Any, name: str) -> NDArray:
    try:
        array: NDArray = x.detach().numpy()
    except (RuntimeError, TypeError):  # of a different device, layout or dtype
        return _converted(x, name)
    return array


def _converted(x: Any, name: str) -> NDArray:
    try:
        return _library.as_numpy(x.cpu())
    except TypeError as error:  # of what NumPy has no array for
        raise TypeError(f"{name}: {error}") from None


def _copy_back(tensors: Iterable[Any], arrays: Iterable[Any]) -> None:
    """Copy tensors that f modified back to their arrays."""
    for tensor, array in zip(tensors, arrays, strict=True):
        if tensor is not None and array is not None and tensor._version:
            array[...] = _to_numpy(tensor, "a direction")


class _Sparse:
    """A gradient whose layout differs from that of its input, reported as a finding."""

    nnz = 0  # `is_sparse` recognizes a sparse matrix by nnz and toarray

    def __init__(self, layout: Any) -> None:
        self.layout = layout

    def toarray(self) -> Any:
        msg = f"the gradient is of layout {self.layout}"
        raise TypeError(msg)


class _TorchFunction:
    """Wrapper that calls a function of tensors with NumPy arrays."""

    def __init__(
        self,
        f: Callable[..., Any],
        inputs: tuple[Any, ...],
        argnums: tuple[int, ...],
        sparse: dict[int, SparseInput],
        left_out: tuple[int, ...],
    ) -> None:
        self._left_out = left_out
        self._f, self._inputs, self._argnums, self._sparse = f, inputs, argnums, sparse
        self._torch = sys.modules["torch"]
        # The arrays of a point, its active tensors, and the outputs that autograd differentiates.
        self._graph: tuple[Sequence[Any], list[Any], list[Any]] | None = None
        self._called = False
        self.captured: tuple[int, ...] = ()  # inputs that f uses themselves, not what it is given

    @cached_property
    def _held(self) -> HeldTensors:
        """The containers in which f may store tensors of a batch."""
        return HeldTensors(self._f)

    def tensors(self, arrays: tuple[Any, ...]) -> list[Any]:
        """Return tensors like the caller's, with the values of arrays."""
        result = []
        for k, (array, like) in enumerate(zip(arrays, self._inputs, strict=True)):
            if isinstance(array, self._torch.Tensor):
                array = array.detach().clone()
            if not isinstance(array, np.ndarray) or not isinstance(like, self._torch.Tensor):
                result.append(array)
                continue
            if k in self._sparse:
                result.append(self._sparse[k].build(array).requires_grad_(k in self._argnums))
                continue
            fresh = self._torch.empty_like(like, requires_grad=False)
            fresh.copy_(_library.from_numpy(np.array(array)))
            result.append(leaf(fresh, like, k in self._argnums))
        return result

    def outputs(self, tensors: list[Any]) -> tuple[Any, ...]:
        """Return the outputs of f for tensors, with autograd."""
        with lent(self._inputs, self.captured, tensors):
            return as_tuple(self._f(*tensors))

    def keep_graph(
        self, arrays: Sequence[Any], tensors: list[Any], outputs: tuple[Any, ...]
    ) -> None:
        """Keep the graph of a point for the gradients there."""
        differentiable = [
            y
            for k, y in enumerate(outputs)
            if k not in self._left_out and isinstance(y, self._torch.Tensor) and y.requires_grad
        ]
        self._graph = arrays, [tensors[k] for k in self._argnums], differentiable

    def __call__(self, *arrays: Any) -> Any:
        """Return the results of f as arrays."""
        tensors = self.tensors(arrays)
        with lent(self._inputs, self.captured, tensors):
            y = self._f(*tensors)
            result = self._arrays(y)  # while what was captured, and may be returned, is lent
        if not self._called:
            self._called = True
            self._copy_changes(tensors, arrays)
        return result

    def _copy_changes(self, tensors: list[Any], arrays: tuple[Any, ...]) -> None:
        """Copy inputs that f modified without autograd's notice back to their arrays."""
        for k in self._argnums:
            if k not in self._sparse and isinstance(arrays[k], np.ndarray):
                now = _to_numpy(tensors[k], f"input {k}")
                if now.tobytes() != arrays[k].tobytes():
                    arrays[k][...] = now

    def _arrays(self, y: Any) -> Any:
        if isinstance(y, (tuple, list)):
            return tuple(self._array(output, k) for k, output in enumerate(y))
        return self._array(y, 0)

    def _array(self, y: Any, position: int) -> Any:
        if not isinstance(y, self._torch.Tensor):
            return y
        if y.layout is not self._torch.strided:
            msg = f"f returns a {y.layout} tensor: return its .to_dense()"
            raise ValueError(msg)
        return _to_numpy(y, f"output {position} of f")

    def batched(self, arrays: tuple[Any, ...], position: int) -> Callable[..., Any] | None:
        """Return f batched over one input by vmap; None if it cannot be batched."""
        torch = self._torch
        if self._sparse or position in self.captured:
            return None

        def of_batch(*args: Any) -> Any:
            points = _library.from_numpy(args[position]).to(self._inputs[position].device)
            others = self.tensors((*args[:position], arrays[position], *args[position + 1 :]))
            others = [x.detach() if isinstance(x, torch.Tensor) else x for x in others]

            def at(x: Any) -> Any:
                return self._f(*others[:position], x, *others[position + 1 :])

            with torch.no_grad(), self._held.restored():
                return self._arrays(torch.func.vmap(at)(points))

        return of_batch

    def vjp(self, *args: Any) -> tuple[Any, ...]:
        """Return the gradients by backward mode; the graph of a point is reused."""
        *arrays, cotangents = args
        torch = self._torch
        if self._graph is None or not self._are_same_point(arrays, self._graph[0]):
            tensors = self.tensors(tuple(arrays))
            for k, matrix in self._sparse.items():
                tensors[k] = matrix.original().requires_grad_(k in self._argnums)
            self.keep_graph(arrays, tensors, self.outputs(tensors))
            assert self._graph is not None
        _, sources, differentiable = self._graph
        if not differentiable:
            return (None,) * len(self._argnums)
        ends, weights, batched = [], [], False
        for y, c in zip(differentiable, as_tuple(cotangents), strict=True):
            ends.append(torch._C._functions.UndefinedGrad()(y) if c is None else y)
            weights.append(torch.ones_like(y) if c is None else cotangent(c, y))
            batched |= c is not None and np.ndim(c) > y.ndim
        if batched and self._sparse:
            msg = "gradients with respect to sparse tensors do not take batches"
            raise NotImplementedError(msg)
        gradients = torch.autograd.grad(
            ends, sources, weights, retain_graph=True, allow_unused=True, is_grads_batched=batched
        )
        _copy_back(weights, as_tuple(cotangents))
        return tuple(map(self._gradient, self._argnums, gradients))

    def _are_same_point(self, arrays: Sequence[Any], others: Sequence[Any]) -> bool:
        """Return True if the active arrays are equal; sparse tensors never change."""
        return all(
            k in self._sparse or np.asarray(arrays[k]).tobytes() == np.asarray(others[k]).tobytes()
            for k in self._argnums
        )

    def _gradient(self, position: int, gradient: Any) -> Any:
        if gradient is None:
            return None
        if position in self._sparse:
            return self._sparse[position].read(gradient)
        if gradient.layout is not self._torch.strided:
            return _Sparse(gradient.layout)
        return _to_numpy(gradient, "a gradient")

    def jvp(self, *args: Any) -> tuple[Any, ...]:
        """Return the tangents by forward mode; batches are computed by vmap."""
        *arrays, tangents = args
        v = as_tuple(tangents)
        tensors = self.tensors(tuple(arrays))
        for k, matrix in self._sparse.items():
            tensors[k] = matrix.original().requires_grad_(k in self._argnums)
        batched = np.ndim(v[0]) > np.ndim(arrays[self._argnums[0]])
        directions = [
            None
            if tangent is None
            else self._sparse[k].build(np.array(tangent))
            if k in self._sparse
            else _library.from_numpy(np.array(tangent)).to(tensors[k].device)
            for k, tangent in zip(self._argnums, v, strict=True)
        ]
        results = (self._tangents_of_batch if batched else self._tangents)(tensors, directions)
        pairs = zip(self._argnums, directions, strict=True)
        _copy_back([None if k in self._sparse else d for k, d in pairs], v)
        return tuple(None if t is None else _to_numpy(t, "a tangent") for t in results)

    def _tangents_of_batch(self, tensors: list[Any], directions: list[Any]) -> tuple[Any, ...]:
        func = self._torch.func

        def of_active(*active: Any) -> Any:
            point = list(tensors)
            for k, x in zip(self._argnums, active, strict=True):
                point[k] = x
            return as_tuple(self._f(*point))

        primals = tuple(tensors[k].detach() for k in self._argnums)

        def one(*directions: Any) -> Any:
            return func.jvp(of_active, primals, directions)[1]

        with self._held.restored():
            try:
                return tuple(func.vmap(one)(*directions))
            except RuntimeError as error:
                if "vmap support" not in str(error):  # as of a Function without a rule for vmap
                    raise
            vmap = self._torch._vmap_internals._vmap  # as torch's own check: of tangents alone
            return tuple(vmap(lambda *v: self._tangents(tensors, list(v)))(*directions))

    def _tangents(self, tensors: list[Any], directions: list[Any]) -> tuple[Any, ...]:
        torch = self._torch
        forward = torch.autograd.forward_ad
        with forward.dual_level():
            point = list(tensors)
            for k, direction in zip(self._argnums, directions, strict=True):
                if direction is not None:
                    point[k] = forward.make_dual(point[k], direction)
            with torch.enable_grad():
                y = self._f(*point)
            duals = [forward.unpack_dual(o) for o in as_tuple(y) if isinstance(o, torch.Tensor)]
            # vmap returns tensors alone: what does not depend on the inputs has zeros.
            return tuple(
                torch.zeros_like(t.primal) if t.tangent is None else t.tangent for t in duals
            )
