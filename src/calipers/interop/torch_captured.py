"""Tensors that a function uses though it is given copies, as a module does its parameters."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import Any

import numpy as np

_lending = RLock()  # of tensors, which have the values of one call at a time


def copied(x: Any, active: bool) -> Any:
    """Return a copy of a tensor, by which it may be differentiated."""
    return leaf(x.detach().clone(), x, active)


def leaf(fresh: Any, like: Any, active: bool) -> Any:
    """Return a new tensor as a leaf, and as a parameter where it stands for one."""
    parameter = sys.modules["torch"].nn.Parameter
    if isinstance(like, parameter):
        return parameter(fresh, active)
    return fresh.requires_grad_(active)


def captured_by(
    outputs: Iterable[Any], inputs: tuple[Any, ...], argnums: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """
    Return which inputs f used themselves when given copies: those that its results lead to.

    First those that can be lent other values, and then those that cannot: one that is given twice
    has no one copy, and results that were computed do not follow their tensors' data.
    """
    tensors = [y for y in outputs if isinstance(y, sys.modules["torch"].Tensor)]
    todo = [(y.grad_fn, y.output_nr) for y in tensors]
    used, seen = set(map(id, tensors)), set()
    while todo:
        node, number = todo.pop()
        if node is None or (node, number) in seen:
            continue
        seen.add((node, number))
        if node.name() == "torch::autograd::AccumulateGrad":
            used.add(id(node.variable))
        todo += node.next_functions
    once = Counter(map(id, inputs))
    found = [k for k in argnums if id(inputs[k]) in used]
    able = tuple(k for k in found if inputs[k].is_leaf and once[id(inputs[k])] == 1)
    computed = [k for k in argnums if (inputs[k].grad_fn, inputs[k].output_nr) in seen]
    return able, tuple(sorted({*found, *computed}.difference(able)))


@contextmanager
def lent(inputs: tuple[Any, ...], captured: tuple[int, ...], tensors: list[Any]) -> Iterator[None]:
    """
    Let a function be called with autograd, and what it captured have the values of `tensors`.

    Captured inputs stand in the place of these, whose numbers they have for as long.
    """
    with sys.modules["torch"].enable_grad(), _lending if captured else nullcontext():
        own = {k: inputs[k].data for k in captured}
        try:
            for k in own:
                inputs[k].data = tensors[k].data
                tensors[k] = inputs[k]
            yield
        finally:
            for k, data in own.items():
                inputs[k].data = data


def cotangent(c: Any, like: Any) -> Any:
    """Return a tensor like an output with the numbers of an array, contiguous if that is."""
    w = sys.modules["torch"].from_numpy(np.array(c)).to(device=like.device, dtype=like.dtype)
    return w if np.asarray(c).flags.c_contiguous else noncontiguous(w)


def noncontiguous(x: Any) -> Any:
    """Return the same numbers in Fortran order, with a gap after each in memory."""
    torch, axes = sys.modules["torch"], tuple(range(x.ndim))[::-1]
    return torch.stack((x.permute(axes),) * 2, -1)[..., 0].permute(axes)
