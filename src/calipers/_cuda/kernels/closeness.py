"""Loops of the closeness rule on a device; the rule, and its quick tests, are the CPU's.

A block takes tiles in turn. Each of its threads loads some pairs, one block's width apart, before
it looks at any, so that they are on their way together; a quick test of all of them is followed by
the rule itself only where one is in doubt. For each tile the block checks whether a different block
has found what ends the search.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import cuda, types

from ..._kernels.scalar import closeness
from ..._kernels.scalar.closeness import reduced, sure_narrow, sure_wide
from ..._kernels.scalar.formats import double, single
from ..launch import Policy, cached_kernel
from .loading import as_is, latest, loaded, loader, locator, rule, viewer, wrap_rule

close = wrap_rule(closeness.close)
finite = wrap_rule(closeness.finite)


@cuda.jit(device=True)
def _lowered(rtol, atol):
    return reduced(rtol, atol)


@rule
def _wide(a, b, rtol, atol, narrow_rtol, narrow_atol, equal_nan):
    return sure_wide(a, b, rtol, atol)


@rule
def _narrow(a, b, rtol, atol, narrow_rtol, narrow_atol, equal_nan):
    return sure_narrow(a, b, narrow_rtol, narrow_atol)


@rule
def _exact(a, b, rtol, atol, narrow_rtol, narrow_atol, equal_nan):
    return closeness.close(a, b, rtol, atol, equal_nan)


_as_wide = wrap_rule(double)
_as_narrow = wrap_rule(single)


_NARROW = {"float16", "bfloat16", "float32", "bool", "int8", "int16", "uint8", "uint16"}
_EXACT_IN_BINARY64 = {*_NARROW, "float64", "int32", "uint32"}


def _quick(kinds: tuple[str, str]) -> tuple[Any, Any, Any]:
    """Return the type of loaded pairs, the conversion to it, and a quick test of a pair."""
    if set(kinds) <= _NARROW:
        return types.float32, _as_narrow, _narrow
    if set(kinds) <= _EXACT_IN_BINARY64:
        return types.float64, _as_wide, _wide
    return None, as_is, _exact


# Kinds whose kernels leave registers for six blocks on a multiprocessor without spilling.
_FEW_REGISTERS = {"float16", "bfloat16", "float32", "float64", "int64", "uint64"}
_FEW_FOR_MASKS = {"float64", "int64", "uint64", "complex128"}
# Least bytes per element in the policy of kernels that store verdicts or search one array: eight
# smaller elements would not stay in registers.
LEAST_BYTES = 4


def masks(kinds: set[str], flat: bool) -> int:
    """Return how many blocks that store verdicts a multiprocessor has room for at once."""
    return 6 if flat and kinds <= _FEW_FOR_MASKS else 4


def searches(kinds: set[str], flat: bool) -> int:
    """Return how many blocks that search a multiprocessor has room for at once."""
    return 6 if flat and kinds <= _FEW_REGISTERS else 4


_view_flag = viewer("int64")
_view_mask = viewer("bool")


@cache
def any_mismatch(kinds: tuple[str, str], flat: bool, policy: Policy) -> Any:
    """
    Return the kernel that sets ``answer[0]`` to `epoch` if any pair is not close.

    The answer is in the host's memory, slow to read for blocks: they read ``flag[0]``.
    """
    held, as_held, sure = _quick(kinds)
    load_a, load_b = map(loader, kinds)
    view_a, view_b = map(viewer, kinds)
    type_a, type_b = (held or loaded(kind) for kind in kinds)
    locate = locator(flat)
    threads, items, _ = policy
    tile = policy.tile

    @cached_kernel(kinds, flat, policy, registers=policy.registers)
    def kernel(a, b, layout, size, rtol, atol, equal_nan, flag, answer, epoch):
        a, b = view_a(a), view_b(b)
        flag, answer = _view_flag(flag), _view_flag(answer)
        latest_call = cuda.shared.array(1, types.int64)
        p = cuda.local.array(items, types.int64)
        q = cuda.local.array(items, types.int64)
        x = cuda.local.array(items, type_a)
        y = cuda.local.array(items, type_b)
        me = cuda.threadIdx.x
        low_rtol, low_atol = _lowered(rtol, atol)
        for start in range(cuda.blockIdx.x * tile, size, cuda.gridDim.x * tile):
            # The last tile looks at the last pair more than once, and needs no test of its own.
            for k in range(items):
                i = min(start + me + k * threads, size - 1)
                p[k], q[k] = locate(i, layout)
            for k in range(items):
                x[k] = as_held(load_a(a[p[k]]))
                y[k] = as_held(load_b(b[q[k]]))
            # While these are on their way: has another block found something?
            if me == 0:
                latest_call[0] = latest(flag, 0)
            cuda.syncthreads()
            if latest_call[0] == epoch:
                return
            clear = True
            for k in range(items):
                clear &= sure(x[k], y[k], rtol, atol, low_rtol, low_atol, equal_nan)
            mismatch = np.int32(0)
            if not clear:
                for k in range(items):
                    i = min(start + me + k * threads, size - 1)
                    here, there = locate(i, layout)
                    one, other = load_a(a[here]), load_b(b[there])
                    if not close(one, other, rtol, atol, equal_nan):
                        mismatch = np.int32(1)
            if cuda.syncthreads_or(mismatch):
                if me == 0:
                    cuda.atomic.exch(flag, 0, epoch)
                    answer[0] = epoch
                return

    return kernel


@cache
def mask(kinds: tuple[str, str], flat: bool, policy: Policy) -> Any:
    """Return the kernel that stores each pair's verdict."""
    load_a, load_b = map(loader, kinds)
    view_a, view_b = map(viewer, kinds)
    type_a, type_b = map(loaded, kinds)
    locate = locator(flat)
    threads, items, _ = policy
    tile = policy.tile

    @cached_kernel(kinds, flat, policy, registers=policy.registers)
    def kernel(a, b, layout, size, rtol, atol, equal_nan, out):
        a, b, out = view_a(a), view_b(b), _view_mask(out)
        x = cuda.local.array(items, type_a)
        y = cuda.local.array(items, type_b)
        me = cuda.threadIdx.x
        for start in range(cuda.blockIdx.x * tile, size, cuda.gridDim.x * tile):
            for k in range(items):
                i = min(start + me + k * threads, size - 1)
                here, there = locate(i, layout)
                x[k] = load_a(a[here])
                y[k] = load_b(b[there])
            for k in range(items):
                i = min(start + me + k * threads, size - 1)
                out[i] = close(x[k], y[k], rtol, atol, equal_nan)

    return kernel


@cache
def first_nonfinite(kind: str, flat: bool, policy: Policy) -> Any:
    """Return the kernel that lowers ``lowest[0]`` to the first NaN or infinity in C order."""
    load, view, numba_type = loader(kind), viewer(kind), loaded(kind)
    locate = locator(flat)
    threads, items, _ = policy
    tile = policy.tile

    @cached_kernel(kind, flat, policy, registers=policy.registers)
    def kernel(a, layout, size, lowest):
        a, lowest = view(a), _view_flag(lowest)
        lowest_yet = cuda.shared.array(1, types.int64)
        x = cuda.local.array(items, numba_type)
        me = cuda.threadIdx.x
        for start in range(cuda.blockIdx.x * tile, size, cuda.gridDim.x * tile):
            for k in range(items):
                i = min(start + me + k * threads, size - 1)
                here, _ = locate(i, layout)
                x[k] = load(a[here])
            if me == 0:
                lowest_yet[0] = latest(lowest, 0)
            cuda.syncthreads()
            if lowest_yet[0] < start:
                return
            clear = True
            for k in range(items):
                clear &= finite(x[k])
            if not clear:
                for k in range(items):
                    i = min(start + me + k * threads, size - 1)
                    here, _ = locate(i, layout)
                    if not finite(load(a[here])):
                        cuda.atomic.min(lowest, 0, i)
            cuda.syncthreads()

    return kernel
