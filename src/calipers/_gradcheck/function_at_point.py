"""A function at a point, as a map of real numbers to real numbers."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from threading import RLock
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._core.arguments import SEVERAL_INPUTS, note_form
from .._core.dtypes import finfo
from .._core.protocols import NDArray
from .._derivatives.function import REAL, WIRTINGER, Problem
from .._derivatives.steps import COMPLEX_STEP, limits_of, modes_of
from .calls import AdaptedFunction, private, same
from .containers import Structure
from .entry_rules import all_agree
from .flatten import (
    Segment,
    as_outputs,
    has_differences,
    has_fractions,
    has_kernels,
    labels_of,
    largest_by_segment,
    moduli,
    real_vector,
    segments_of,
)
from .numerical_gradient import NumericalGradient

_BATCH_ROUNDINGS = 128.0  # ulps by which results of a batch may differ from those of single calls

_OF_TORCH = "There is a performance drop", "An output with one or more elements was resized"
Labels = tuple[Sequence[str], Sequence[str]]  # of all inputs and of all outputs
_BATCH_BYTES = 1 << 21  # arguments and results of one call of a batched library function
_ROUNDINGS = 64.0  # rounding errors of the terms that remain if a sum cancels, in units of eps
_FEW = 6  # inputs of at most so many numbers are differentiated without batches


_EXAMPLE = attrgetter("example")

_lock = RLock()  # reentrant, since a signal handler or a finalizer may check on the same thread
_checks = 0  # number of checks that run now, in all threads
_filters = ExitStack()


@contextmanager
def without_warnings_of_batches() -> Iterator[None]:
    """Ignore torch's warnings about operations that loop over a batch."""
    # Once around all batches and checks: threads would put back each other's filters.
    global _checks
    with _lock:
        if not _checks:
            _filters.enter_context(warnings.catch_warnings())
            for message in _OF_TORCH:
                warnings.filterwarnings("ignore", message)
        _checks += 1
    try:
        yield
    finally:
        with _lock:
            _checks -= 1
            if not _checks:
                _filters.close()


def _agrees(values: NDArray, expected: NDArray) -> bool:
    """Return True if the results of a batch are those of single calls, up to rounding."""
    if values.shape != expected.shape:
        return False
    tolerance = _BATCH_ROUNDINGS * float(np.finfo(expected.dtype).eps)
    size = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    return all_agree(values, expected, tolerance * size)


def no_batches(position: int) -> None:
    """Return None: f has no batched version and is called point by point."""


@dataclass
class FunctionAtPoint:
    """
    A function at a point, with private copies of its arguments.

    `active` are the segments of the differentiable inputs, `active_outputs` of such outputs.
    """

    adapted: AdaptedFunction
    values: list[Any]
    kwargs: dict[str, Any]
    scalars: frozenset[int]
    active: tuple[Segment, ...]
    nondifferentiable: frozenset[int]
    batched: Callable[[int], Callable[..., Any] | None]
    structure: Structure | None = None  # how arguments and results are made of arrays
    held: tuple[int, ...] = ()  # positions of inputs that cannot be differentiated
    terms: float = 0.0  # size of terms that results may be sums of, should these cancel
    laid_out: Mapping[int, NDArray] = field(default_factory=dict)  # inputs as the caller has them
    output_labels: Sequence[str] | None = None  # if they are not those of outputs
    active_outputs: tuple[Segment, ...] = field(init=False)
    outputs: tuple[NDArray, ...] = field(init=False)
    several: bool = field(init=False)
    # A function of NumPy arrays: the caller's if possible, with arrays that it fills last.
    f: Callable[..., Any] = field(init=False)
    compiled: bool = field(init=False)  # whether kernels can call f
    base: NDArray = field(init=False)
    rows: int = field(init=False)  # of the Jacobian
    columns: int = field(init=False)
    calls: int = 0
    seconds: float = math.inf  # duration of the fastest call of f
    touched: list[str] = field(default_factory=list)  # arguments that the first call modified
    # Bounds of inputs by position; derivatives are called within them as well.
    limits: dict[int, tuple[NDArray, NDArray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        y = self.call()
        names = tuple(self.structure.outputs) if self.structure else ()
        outputs, self.several = as_outputs(y, names)
        self.outputs, positions, kinds = (), [], []
        for k, output in enumerate(outputs):
            self.outputs += (output.copy(),)  # f may fill the same buffer again
            kinds.append((output.shape, output.dtype))
            if has_fractions(output.dtype) and k not in self.nondifferentiable:
                positions.append(k)
        for k in self.nondifferentiable:
            if k not in range(len(self.outputs)):
                msg = (
                    f"nondifferentiable_outputs names output {k}, but f has "
                    f"{len(self.outputs)} outputs, counted from 0"
                )
                raise ValueError(msg)
        for k in positions:
            if not has_differences(self.outputs[k].dtype):
                kind, name = self.outputs[k].dtype, names[k] if names else k
                msg = (
                    f"output {name} of f has dtype {kind}, which is not differentiated "
                    "numerically: return it in float32 or 64, or name it in "
                    "nondifferentiable_outputs"
                )
                raise TypeError(msg)
        every = names or tuple(map(str, range(len(outputs))))
        labels = self.output_labels or labels_of("out", every)
        differentiable = list(map(self.outputs.__getitem__, positions))
        self.active_outputs = segments_of(differentiable, positions, every, labels)
        self.base = real_vector(differentiable)
        self.rows = self.base.size
        self.columns = self.active[-1].stop if self.active else 0
        one_input = len(self.active) == 1
        self.adapted = replace(
            self.adapted, kinds=kinds, positions=tuple(positions), one_input=one_input
        )
        self.f = self.adapted.direct
        self._alone = not self.several and bool(positions) and has_kernels(differentiable[0].dtype)
        self.compiled = self._alone and isinstance(self.f, Dispatcher)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs: positions, or paths in containers."""
        return names_of(self.values, self.structure)

    @cached_property
    def sizes(self) -> NDArray:
        """Magnitudes of the results; both parts of a complex number have its modulus."""
        return moduli(list(map(_EXAMPLE, self.active_outputs)))

    @property
    def rounded(self) -> NDArray:
        """Magnitudes that are rounded: those of results, or of terms that results are sums of."""
        return np.fmax(self.sizes, _ROUNDINGS * self.terms)

    @cached_property
    def units(self) -> NDArray:
        """Scales of the inputs: the natural size of an entry is that of a result over these."""
        return np.fmax(1.0, moduli([p.example for p in self.active]))

    @cached_property
    def natural(self) -> NDArray:
        """The largest magnitude of each output, but at most 1, and 1 if all its results are 0."""
        largest = largest_by_segment(self.sizes, self.active_outputs)
        return np.asarray(np.where(largest == 0, 1.0, np.fmin(1.0, largest)))

    @cached_property
    def noise(self) -> NDArray:
        """Errors of the results in addition to their own rounding."""
        if not isinstance(self.f, NumericalGradient):
            return np.full(self.rows, self.eps * _ROUNDINGS * self.terms)
        return self.f.noise(self.arguments(), self.kwargs)

    @cached_property
    def eps(self) -> float:
        """The largest eps among the dtypes of inputs and outputs."""
        eps = 0.0
        for part in (*self.active, *self.active_outputs):
            eps = max(eps, float(finfo(part.example.dtype).eps))
        return eps or 2.0**-52

    def arguments(self) -> list[Any]:
        """Return copies of the arguments for one call."""
        return list(map(private, self._handed))

    def named(self) -> dict[str, Any]:
        """Return copies of the arguments by name for one call."""
        return private(self.kwargs) if self.kwargs else {}

    def confine(self, steps: Sequence[Mapping[str, Any]]) -> None:
        """Set limits on the inputs from the bounds among the step options."""
        for part, options in zip(self.active, steps, strict=True):
            if options["bounds"] is not None:
                x = part.example
                lows, highs = limits_of(x, modes_of(x, "", False), options["bounds"])
                self.limits[part.position] = lows.reshape(x.shape), highs.reshape(x.shape)

    def perturbed(self, perturb: Callable[[NDArray], NDArray]) -> "FunctionAtPoint":
        """Return f at another point: `perturb` changes all real numbers, within bounds."""
        other = copy(self)
        other.__dict__.pop("_handed", None)
        other.values = list(self.values)
        for part in self.active:
            x = np.array(part.example)
            low, high = self.limits.get(part.position, (-np.inf, np.inf))
            for reals in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
                np.clip(perturb(reals), low, high, out=reals, casting="same_kind")
            other.values[part.position] = x
        pairs = ((part, other.values[part.position]) for part in self.active)
        other.active = tuple(replace(part, example=x) for part, x in pairs)
        return other

    def changes_with(self, perturb: Callable[[NDArray], NDArray]) -> bool:
        """Return True if f is defined at other inputs, and its result differs there."""
        other = self.perturbed(perturb)
        try:
            values = other.reals_of(other.call())
        except Exception:  # f may raise anything where it is not defined
            return False
        finally:
            self.calls = other.calls
        return not np.array_equal(values, self.base, equal_nan=True)

    @cached_property
    def _handed(self) -> list[Any]:
        handed = list(self.values)
        for k in self.scalars:
            handed[k] = handed[k][()]
        return handed

    def call(self) -> Any:
        """Call f at the point."""
        self.calls += 1
        arguments, named = self.arguments(), self.named()
        started = time.perf_counter()
        try:
            y = self.adapted(*arguments, **named)
        except TypeError as error:
            if self.calls == 1:
                count = f"{len(arguments)} argument{'s' * (len(arguments) != 1)}"
                by_name = f" and {', '.join(named)} by name" if named else ""
                note_form(
                    error,
                    f"f is called with {count}{by_name}, one for each item of inputs and "
                    f"args: {SEVERAL_INPUTS}, and the numbers of one input in an array; "
                    "pass out_like= if f stores its results in arrays that it takes last",
                )
            raise
        self.seconds = min(self.seconds, time.perf_counter() - started)
        if self.calls == 1:
            self.touched = self.changed(arguments, named)
        return y

    def call_as_laid_out(self) -> Any:
        """Call f at the point, with inputs in the caller's memory order instead of C order."""
        self.calls += 1
        arguments = self.arguments()
        for k, x in self.laid_out.items():
            arguments[k] = private(x)
        return self.adapted(*arguments, **self.named())

    def changed(self, arguments: list[Any], named: dict[str, Any]) -> list[str]:
        """Return the names of arguments that a call modified."""
        changed = []
        for k, (new, old) in enumerate(zip(arguments, self.values, strict=True)):
            if not same(new, old):
                changed.append(f"input {self.names[k]}")
        for name, old in self.kwargs.items():
            if not same(named[name], old):
                changed.append(f"argument {name}")
        return changed

    def reals_of(self, y: Any) -> NDArray:
        """Return the real numbers of the differentiable outputs."""
        return self.adapted.reals_of(y)

    def problem(self, part: Segment, batches: bool) -> Problem:
        """Return the problem of differentiating f by one input, in batches if f takes them."""
        x = np.array(part.example, order="C")
        before, after, named = self._others(part)
        mode = WIRTINGER if x.dtype.kind == "c" else REAL
        f: Callable[..., Any]
        if self.compiled:
            f, y = self.f, self.active_outputs[0].example
            out_like = y if self._fills else None
        else:
            f, y, out_like = self.adapted.real_outputs, np.asarray(self.base), None
        together = None
        if batches and part.stop - part.start > _FEW:
            together = self._in_batches(part, x, before, after, named)
        paired = all(map(np.iscomplexobj, map(_EXAMPLE, self.active_outputs)))
        rest = before, x, after, named, mode
        if together is not None:
            f, y = together
            result = Problem(f, *rest, False, batched=True, paired=paired, base_value=y)
            result.batch_bytes = _BATCH_BYTES
            result.has_independent_rows = True  # as `base_in_batches` has checked
        else:
            scalar = part.position in self.scalars
            result = Problem(f, *rest, scalar, out_like, paired=paired, base_value=y)
        result.seconds = self.seconds
        return result

    def _in_batches(
        self,
        part: Segment,
        x: NDArray,
        before: tuple[Any, ...],
        after: tuple[Any, ...],
        named: dict[str, Any],
    ) -> tuple[Callable[..., Any], NDArray] | None:
        """
        Return f of batches of one input, and its value at x; None if f takes no batches.

        A batch of x and a nearby point must agree with single calls.
        """
        of_batch = self.batched(part.position)
        if of_batch is None:
            return None
        f = replace(self.adapted, of_batch=of_batch, position=part.position)
        # Two different points: a wrong batch may return the result of one point for all.
        nearby = x + float(finfo(x.dtype).eps) ** (1 / 3) * np.maximum(1, np.abs(x))
        points = np.stack([x, nearby.astype(x.dtype, copy=False)])
        try:
            values = f.real_rows(*before, points, *after, **named)
            expected = np.stack([self.base, f.real_outputs(*before, points[1], *after, **named)])
        except Exception:  # an f that takes no batches may raise anything
            return None
        return (f.real_rows_or_each, values[0]) if _agrees(values, expected) else None

    def complex_problem(self, part: Segment) -> Problem:
        """Return the problem of differentiating f by one input with complex steps."""
        mode = modes_of(part.example, COMPLEX_STEP, False)
        x = part.example.astype(np.result_type(part.example, np.complex64))
        before, after, named = self._others(part)
        f, out_like = self.f, self.active_outputs[0].example if self._fills else None
        if self._fills and not self._alone:
            msg = "method='cs' takes a function that stores one result in out_like=, not several"
            raise ValueError(msg)
        if not (self._fills or (len(self.active) == 1 and self._alone)):
            f = self.adapted.complex_outputs
        scalar = part.position in self.scalars
        self.calls += 1
        return Problem(f, before, x, after, named, mode, scalar, out_like)

    def _others(self, part: Segment) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """Return copies of the arguments before and after an input, and of those by name."""
        arguments = self.arguments()
        before, after = arguments[: part.position], arguments[part.position + 1 :]
        return tuple(before), tuple(after), self.named()

    @property
    def _fills(self) -> bool:
        return self.adapted.likes is not None and self.f is self.adapted.inner


def names_of(inputs: Sequence[Any], structure: Structure | None) -> tuple[str, ...]:
    """Return the names of inputs: positions, or paths in containers."""
    return (structure and structure.names) or tuple(map(str, range(len(inputs))))
