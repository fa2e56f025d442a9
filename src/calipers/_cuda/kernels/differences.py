"""Kernels that differentiate a function compiled for a device by fixed steps.

Points and weights are those of `_kernels.differences.tabulate`. Each thread, or each block, has one
copy of x, in which it displaces one coordinate at a time; so memory is for as many columns as run
together. Arguments of f before and after x come as tuples.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import config, cuda, from_dtype, types

from ..launch import CALLING
from .loading import plain_viewer

_CACHED_KERNELS = 64  # kernels of users' functions that stay in memory, the latest ones
_LIMIT = {} if config.ENABLE_CUDASIM else {"max_registers": CALLING}  # which it does not know


# Elements of `status`: 1 if f changes its argument, and the number of unfinished blocks. An error
# that f raises on a device ends its thread without a report.
CHANGED, UNFINISHED = range(2)

_view_table, _view_status = plain_viewer("float64"), plain_viewer("int64")


@cuda.jit(device=True)
def begin(left, status):
    """Count a block as unfinished."""
    if cuda.threadIdx.x == 0:
        left[0] = cuda.blockDim.x
        cuda.atomic.add(status, UNFINISHED, 1)
    cuda.syncthreads()


@cuda.jit(device=True)
def end(left, status):
    """Count a block as finished once the last of its threads is."""
    if cuda.atomic.add(left, 0, -1) == 1:
        cuda.atomic.add(status, UNFINISHED, -1)


@lru_cache(_CACHED_KERNELS)
def fill_columns(f: Any) -> Any:
    """
    Return the kernel that differentiates ``f(x, out)``, a thread for each column.

    Copies of x and results of f have the threads, or the columns, along their last axis, so that
    threads side by side read and write side by side. Each is passed in f's shape and as a matrix.
    """

    @cuda.jit
    def kernel(
        x, table, before, after, copies, coords, uppers, above, lowers, below, out, jacobian,
        status,
    ):  # fmt: skip
        left = cuda.shared.array(1, types.int32)
        begin(left, status)
        lane = cuda.grid(1)
        lanes = coords.shape[1]
        if lane >= lanes:
            end(left, status)
            return
        for i in range(x.size):
            coords[i, lane] = x[i]
        point = copies[..., lane]
        lower = lowers[..., lane]
        upper = uppers[..., lane % uppers.shape[uppers.ndim - 1]]
        at_base = False
        for k in range(lane, jacobian.shape[1], lanes):
            for p in range(table.shape[1]):
                top, bottom, weight = table[0, p, k], table[1, p, k], table[2, p, k]
                if top == bottom:
                    if p == 0:
                        for i in range(jacobian.shape[0]):
                            jacobian[i, k] = weight
                    continue
                coords[k, lane] = top
                if p == 0:
                    column = out[..., k]
                    f(*(before + (point,) + after + (column,)))
                else:
                    f(*(before + (point,) + after + (upper,)))
                if bottom != x[k] or not at_base:
                    coords[k, lane] = bottom
                    f(*(before + (point,) + after + (lower,)))
                    at_base = bottom == x[k]
                coords[k, lane] = x[k]
                if p == 0:
                    for i in range(jacobian.shape[0]):
                        jacobian[i, k] = (jacobian[i, k] - below[i, lane]) * weight
                else:
                    for i in range(jacobian.shape[0]):
                        jacobian[i, k] += (above[i, lane] - below[i, lane]) * weight
        for i in range(x.size):
            if coords[i, lane] != x[i] and x[i] == x[i]:
                status[CHANGED] = 1
        end(left, status)

    return kernel


@lru_cache(_CACHED_KERNELS)
def compute_rows(f: Any, dtype: str, out: str, shared: bool) -> Any:
    """
    Return the kernel that differentiates ``f(i, x)``, a thread for each entry of a block's column.

    The Jacobian is transposed: threads side by side write side by side. The block's copy of x is in
    shared memory, as a vector, or a row of `copies`. What f is at x, and at one end of a pair of
    several, it keeps in two rows of `buffer`, if there are columns for that; of these, which a
    thread has written, it alone reads. Most arrays come as addresses, of vectors of n and rows of
    m.
    """

    view_x, view_y = plain_viewer(dtype), plain_viewer(out)
    type_x, type_y = from_dtype(np.dtype(dtype)), from_dtype(np.dtype(out))

    @cuda.jit(**_LIMIT)
    def kernel(
        x, table, before, after, blocks, n, m, pairs, copies, coords, buffer, transposed, status,
    ):  # fmt: skip
        x, table, status = view_x(x), _view_table(table), _view_status(status)
        buffer, transposed = view_y(buffer), view_y(transposed)
        block, me, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
        if block >= blocks:
            return
        left = cuda.shared.array(1, types.int32)
        begin(left, status)
        if shared:
            point = cuda.shared.array(0, type_x)
            block_x = point
        else:
            point = copies[block]
            block_x = coords[block]
        # As it is stored: f may compute in more digits.
        held = cuda.local.array(1, type_y)
        for i in range(me, n, threads):
            block_x[i] = x[i]
        at_x, at_top = block * m, (blocks + block) * m
        at_base = False
        for k in range(block, n, blocks):
            row = k * m
            for p in range(pairs):
                top, bottom = table[p * n + k], table[(pairs + p) * n + k]
                weight = table[(2 * pairs + p) * n + k]
                if top == bottom:
                    if p == 0:
                        for i in range(me, m, threads):
                            transposed[row + i] = weight
                    continue
                sided = bottom == x[k]
                # At x, at the top, and at the bottom. The first is the bottom of one-sided columns,
                # and the same for all of them.
                for node in range(0 if sided and not at_base else 1, 2 if sided else 3):
                    cuda.syncthreads()
                    if me == 0:
                        block_x[k] = x[k] if node == 0 else top if node == 1 else bottom
                    cuda.syncthreads()
                    for i in range(me, m, threads):
                        held[0] = f(*((i,) + before + (point,) + after))
                        value = held[0]
                        if node == 0:
                            buffer[at_x + i] = value
                        elif node == 1 and sided:
                            change = (value - buffer[at_x + i]) * weight
                            transposed[row + i] = change if p == 0 else transposed[row + i] + change
                        elif node == 1 and p == 0:
                            transposed[row + i] = value
                        elif node == 1:
                            buffer[at_top + i] = value
                        elif p == 0:
                            transposed[row + i] = (transposed[row + i] - value) * weight
                        else:
                            transposed[row + i] += (buffer[at_top + i] - value) * weight
                at_base |= sided
            cuda.syncthreads()
            if me == 0:
                block_x[k] = x[k]
        cuda.syncthreads()
        for i in range(me, n, threads):
            if block_x[i] != x[i] and x[i] == x[i]:
                status[CHANGED] = 1
        end(left, status)

    return kernel


@lru_cache(_CACHED_KERNELS)
def fill_values(f: Any) -> Any:
    """Return the kernel that evaluates ``f(x, out)``, a thread for each point."""

    @cuda.jit
    def kernel(points, before, after, values, status):
        left = cuda.shared.array(1, types.int32)
        begin(left, status)
        for k in range(cuda.grid(1), points.shape[0], cuda.gridsize(1)):
            point, value = points[k], values[k]
            f(*(before + (point,) + after + (value,)))
        end(left, status)

    return kernel


@lru_cache(_CACHED_KERNELS)
def compute_values(f: Any) -> Any:
    """Return the kernel that evaluates ``f(i, x)``, a thread for each value of each point."""

    @cuda.jit
    def kernel(points, before, after, values, status):
        left = cuda.shared.array(1, types.int32)
        begin(left, status)
        rows = values.shape[1]
        for k in range(cuda.grid(1), values.size, cuda.gridsize(1)):
            i = k % rows
            point = points[k // rows]
            values[k // rows, i] = f(*((i,) + before + (point,) + after))
        end(left, status)

    return kernel


@lru_cache(_CACHED_KERNELS)
def once(f: Any) -> Any:
    """Return the kernel that calls a function in one thread."""

    @cuda.jit
    def kernel(arguments, status):
        left = cuda.shared.array(1, types.int32)
        begin(left, status)
        if cuda.grid(1) == 0:
            f(*arguments)
        end(left, status)

    return kernel
