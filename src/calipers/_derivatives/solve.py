"""Evaluate a numerical derivative: prepare f and x, choose steps, run, shape the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._compare.elementwise import equal_arrays
from .._core.arguments import is_integer, require_callable
from .._core.arrays import as_dense_array
from .._core.dtypes import as_real_vector
from .._core.jit import work_clock
from .._core.libraries import device_module, is_device_function, library_of, on_device
from .._core.protocols import NDArray
from .._execution.run import run
from .._kernels.differences import NAMES_OF_STATUS
from .adaptive import ExtrapolatedColumns, ExtrapolatedValues
from .compiled import LibraryFunction
from .fixed_step import Columns, lost_step
from .function import IMAGINARY, WIRTINGER, Problem, are_boxed, empty_like
from .options import Options
from .steps import Steps, modes_of, plan_steps

STATUS = np.array(NAMES_OF_STATUS)


_MIN_FIRST_STEP_ULPS = 8.0  # least first step, in ulps of x, for which a quarter of it is exact


@dataclass(frozen=True)
class RowResults:
    """A dense derivative by rows of its transpose, with error, status and step of each."""

    rows: NDArray
    errors: NDArray | None
    status: NDArray
    step: NDArray
    nfev: int
    seconds: float


def runs_on_device(f: Any, x: Any, target: str | None) -> bool:
    """Return True if f is evaluated on a device: by `target`, or since x or f is on one."""
    if target is not None:
        return target == "cuda"
    return on_device(x=x) or is_device_function(f)


def as_host_array(x: Any, name: str = "x") -> NDArray:
    """Return an array of any library or device as a NumPy array."""
    if on_device(x=x):
        copy: NDArray = device_module("arrays").operand(x, name).to_host()
        return copy
    return np.asarray(as_dense_array(x, name))


def as_point(x: Any) -> tuple[NDArray, bool]:
    """Return x as a new floating array in C order, and whether it is a scalar."""
    array = x if type(x) is np.ndarray else as_dense_array(x, "x")
    if array.dtype.kind in "biu":
        array = array.astype(float)
    native = np.dtype(array.dtype.type)  # in the machine's byte order
    if native.kind not in "fc" or native.isbuiltin != 1:
        got = f"dtype {array.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        msg = f"x must be an array of real or complex numbers, got {got}"
        if isinstance(x, dict):
            msg += ": ravel its arrays into one array, and split that in f"
        elif are_boxed(array):
            msg += ": pass only numbers, as numpy.asarray(x, float)"
        raise TypeError(msg)
    return np.array(array, dtype=native, order="C", subok=False), array.ndim == 0


def by_argument(
    f: Callable[..., Any], x: Any, options: Options, compute: Callable[..., Any]
) -> Any:
    """Differentiate with respect to one argument of f, or to each of several."""
    args = options.args
    argnums: Any = options.argnums
    if isinstance(argnums, list):
        msg = f"argnums must be an int or a tuple of ints, got {argnums!r}: pass tuple(argnums)"
        raise TypeError(msg)
    if not isinstance(argnums, tuple):
        return compute(f, x, options)
    count = len(args) + len(argnums)
    valid = all(is_integer(k) and 0 <= k < count for k in argnums)
    if not valid or len(set(argnums)) < len(argnums):
        msg = f"argnums must be different integers from 0 to {count - 1}, got {argnums}"
        raise ValueError(msg)
    if not isinstance(x, (tuple, list)) or len(x) != len(argnums):
        msg = f"x must be a tuple of {len(argnums)} arrays, one for each of argnums {argnums}"
        raise ValueError(msg)
    arguments = list(args)
    for position, value in sorted(zip(argnums, x, strict=True), key=lambda pair: pair[0]):
        arguments.insert(position, value)
    results = []
    for position in argnums:
        lent = [_copied(value) if k in argnums else value for k, value in enumerate(arguments)]
        others = (*lent[:position], *lent[position + 1 :])
        chosen = replace(options, args=others, argnums=position)
        if options.checkpoint is not None:
            folder = os.path.join(options.checkpoint, f"argument-{position}")
            chosen = replace(chosen, checkpoint=folder)
        results.append(compute(f, arguments[position], chosen))
        for k in argnums:
            if k != position and not _are_same(lent[k], arguments[k]):
                msg = (
                    f"f changes its argument {k}, which makes derivatives with respect to "
                    f"argument {position} wrong: make it work on a copy"
                )
                raise ValueError(msg)
    return tuple(results)


def _copied(x: Any) -> Any:
    """Copy an array of any library; return everything else unchanged."""
    library = library_of(x)
    if library is not None:
        return library.put(library.fetch(x), x)
    return x.copy(order="K") if isinstance(x, np.ndarray) else x


def _are_same(one: Any, other: Any) -> bool:
    library = library_of(one)
    if library is not None:
        one, other = library.fetch(one), library.fetch(other)
    elif not isinstance(one, np.ndarray):
        return True
    return equal_arrays(one, other, equal_nan=True)


def prepare(
    f: Any,
    x: Any,
    options: Options,
    dense: bool = False,
) -> Problem:
    """Return f as a function of its argument `options.argnums`, evaluated at x."""
    args, position = options.args, options.argnums
    require_callable(f=f)
    if not is_integer(position) or not 0 <= position <= len(args):
        what = f"an int from 0 to {len(args)}" if args else "0"
        msg = (
            f"argnums is {position!r}: it must be {what}, an index of f's positional "
            "arguments, which are x and those of args="
        )
        raise ValueError(msg)
    if runs_on_device(f, x, options.target):
        f, x, options = device_module("derivatives").as_host(f, x, options)
    elif library_of(x) is not None and not isinstance(f, Dispatcher):
        fills = options.out_like is not None and not options.rowwise
        f = LibraryFunction(f, position + options.rowwise, x, fills)
    point, scalar = as_point(x)
    _require_doubles("x", point.dtype, options)
    mode = modes_of(point, options.method, options.holomorphic)
    if mode == IMAGINARY:
        point = point.astype(np.result_type(point.dtype, np.complex64))
    if dense and options.out_like is not None:  # else only f(x) shows the size
        size = empty_like(options.out_like).size
        require_memory(size, point.size, point.itemsize, options.memory_limit)
    problem = Problem(
        f,
        args[:position],
        point,
        args[position:],
        dict(options.kwargs or {}),
        mode,
        scalar,
        options.out_like,
        options.rowwise,
        options.batched,
        getattr(f, "batch_bytes", Problem.batch_bytes),
    )
    _require_doubles("f(x)", problem.dtype, options)
    return problem


def _require_doubles(name: str, dtype: np.dtype[Any], options: Options) -> None:
    """Raise if the adaptive method does not support a dtype."""
    if options.adaptive and dtype.char in "egG":
        msg = (
            f"method='adaptive' needs {name} in float32 or float64, got {dtype}: convert "
            "it, or use method='5-point'"
        )
        raise ValueError(msg)


def steps_of(problem: Problem, options: Options) -> Steps:
    """Return the steps of the options."""
    chosen = options.method, options.step, options.scale, options.bounds
    steps = plan_steps(problem.x, problem.mode, problem.dtype, *chosen)
    if options.adaptive:
        require_representable_steps(problem, steps, options)
    return steps


def require_representable_steps(problem: Problem, steps: Steps, options: Options) -> None:
    """Raise if the caller's first step is too short for extrapolation in the format of x."""
    if options.step is None and options.scale is None:
        return
    x = as_real_vector(problem.x)[:: problem.stride]
    first = 0.25 * steps.lengths
    with np.errstate(invalid="ignore"):
        lost = (first > 0) & (first < _MIN_FIRST_STEP_ULPS * np.spacing(np.abs(x)))
    if lost.any():
        raise lost_step(problem, int(np.argmax(lost)))


def free_memory() -> float:
    """Return the free memory of the machine in bytes, or inf if it is unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            sizes = dict(line.split(":") for line in file)
        return 1024.0 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    if sys.platform != "win32":
        with suppress(OSError, ValueError):
            return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float("inf")


def require_memory(rows: int, columns: int, itemsize: int, limit: float | None) -> None:
    """Raise a MemoryError if a dense result exceeds the limit."""
    needed = rows * columns * itemsize
    if needed <= (1 << 20):
        return
    allowed = free_memory() if limit is None else limit
    if needed > allowed:
        msg = (
            f"the dense derivative of {rows} values with respect to {columns} elements "
            f"needs {needed / 1000000000.0:.3g} GB, and the limit is "
            f"{allowed / 1000000000.0:.3g} GB: pass sparsity=, use jvp, vjp, "
            "linear_operator or jacobian_blocks, or raise memory_limit="
        )
        raise MemoryError(msg)


def require_dense_memory(problem: Problem, options: Options, errors: bool = False) -> None:
    """Raise a MemoryError if a dense Jacobian, with its errors, exceeds the limit."""
    itemsize = 16 if errors else problem.base.itemsize  # values and errors in binary64
    require_memory(problem.base.size, problem.coordinates, itemsize, options.memory_limit)


def rows_of(
    problem: Problem,
    steps: Steps,
    options: Options,
    count: int,
    start: int = 0,
    report: Any = False,
) -> NDArray:
    """Return rows of the transposed Jacobian, in real numbers, without errors and status."""
    work = (
        ExtrapolatedValues(ExtrapolatedColumns(problem, steps))
        if options.adaptive
        else Columns(problem, steps)
    )
    settings: dict[str, Any] = {"start": start, "checkpoint": options.checkpoint}
    return run(work, count, options.workers, report, **settings)[0]


def differentiate_dense(problem: Problem, steps: Steps, options: Options) -> RowResults:
    """Differentiate along every coordinate."""
    started = work_clock()
    count = problem.coordinates
    settings = options.workers, options.progress
    checkpoint = options.checkpoint
    if options.adaptive:
        work = ExtrapolatedColumns(problem, steps)
        values, errors, states = run(work, count, *settings, checkpoint=checkpoint)
        nfev = int(states["calls"].sum()) + 1 + problem.batched
        status, step = states["status"].astype(np.int8), states["step"]
        rows = values.astype(problem.base.dtype, copy=False)
        return RowResults(rows, errors, status, step, nfev, work_clock() - started)
    rows, status = run(Columns(problem, steps), count, *settings, checkpoint=checkpoint)
    seconds = work_clock() - started
    return RowResults(rows, None, status, *_spent(problem, steps, count), seconds)


def gradient(problem: Problem, options: Options) -> tuple[NDArray, NDArray]:
    """Return the gradient of a scalar function by adaptive differences, and its errors."""
    result = differentiate_dense(problem, steps_of(problem, options), options)
    assert result.errors is not None
    return shaped(problem, result.rows).reshape(problem.x.shape), result.errors[:, 0]


def _spent(problem: Problem, steps: Steps, count: int) -> tuple[NDArray, int]:
    """Return the steps, and the number of calls of f."""
    if problem.imaginary:
        lengths = np.broadcast_to(steps.lengths, (count,))
        return lengths, 1 + problem.batched + int(np.count_nonzero(lengths))
    table, _ = steps.tables(problem.x, problem.stride, 0, count)
    x = as_real_vector(problem.x)[:: problem.stride][:count]
    calls = np.count_nonzero(table[0] != x)
    if not steps.one_sided:
        calls += np.count_nonzero(table[1] != x)
    return np.abs(table[0, 0] - x), 1 + problem.batched + int(calls)


def shaped(problem: Problem, rows: NDArray) -> Any:
    """Return rows of real numbers as an array of shape f(x).shape + x.shape: a view, or a pair."""
    if problem.dtype.kind == "c" and not problem.imaginary:
        rows = rows.view(problem.dtype)
    if problem.mode == WIRTINGER:
        by_real, by_imaginary = rows[0::2], rows[1::2]
        holomorphic = (by_real - 1j * by_imaginary) / 2
        return tuple(
            _reshaped(problem, r) for r in (holomorphic, (by_real + 1j * by_imaginary) / 2)
        )
    return _reshaped(problem, rows)


def shaped_errors(problem: Problem, errors: NDArray) -> Any:
    """Return errors of real numbers as errors of the result of `shaped`."""
    if problem.dtype.kind == "c":
        errors = np.hypot(errors[:, 0::2], errors[:, 1::2])
    if problem.mode == WIRTINGER:
        each = _reshaped(problem, (errors[0::2] + errors[1::2]) / 2)
        return each, each
    return _reshaped(problem, errors)


def _reshaped(problem: Problem, rows: NDArray) -> NDArray:
    if problem.x.ndim == 1 and len(problem.shape) == 1:
        return rows.T
    whole = rows.reshape(problem.x.shape + problem.shape)
    inner, outer = problem.x.ndim, len(problem.shape)
    return whole.transpose(*range(inner, inner + outer), *range(inner))


def like_input(x: Any, value: Any) -> Any:
    """Return a derivative on the device of x; if dense, as an array of x's library."""
    if on_device(x=x):
        return device_module("derivatives").at_home(value, x)
    library = library_of(x)
    if isinstance(value, tuple):
        return tuple(like_input(x, part) for part in value)
    dense = isinstance(value, np.ndarray | np.generic)
    return library.from_numpy(value) if library is not None and dense else value
