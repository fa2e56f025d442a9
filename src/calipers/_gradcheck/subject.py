"""What is checked: a function of several arrays, seen as a map of real numbers to real numbers."""

import math
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._arity import note_form
from .._arrays import as_array, given_array
from .._containers import several
from .._differences.problem import REAL, WIRTINGER, Problem
from .._differences.stencils import IMAGINARY as COMPLEX_STEP
from .._differences.steps import modes_of
from .._libraries import library_of
from .._protocols import NDArray
from ..interop.containers import Leaves
from .batches import base_in_batches
from .inplace import InPlace
from .numerical_gradient import NumericalGradient
from .outputs import ComplexOutputs, RealBatches, RealOutputs, as_outputs
from .parts import Part, moduli, parts_of, real_vector

_BATCH_BYTES = 1 << 21  # a call of what a library made of f takes longer than one of f
_ROUNDINGS = 64.0  # of terms, in what is left where they cancel
_FEW = 6  # numbers, by which f is asked sooner than in batches


def is_differentiable(value: Any) -> bool:
    """Tell whether an input is of floating-point numbers."""
    if isinstance(value, (bool, int, str, bytes)) or value is None or callable(value):
        return False
    try:
        return as_array(value).dtype.kind in "fc"
    except (TypeError, ValueError, RuntimeError):
        return False


def has_differences(dtype: np.dtype[Any]) -> bool:
    """Tell whether differences are taken of numbers of a dtype."""
    return dtype.char in "fdFD"


def has_fractions(dtype: np.dtype[Any]) -> bool:
    """Tell whether numbers of a dtype are no integers, be differences taken of them or not."""
    return dtype.kind in "fc" or (dtype.isbuiltin == 2 and "int" not in dtype.name)  # bfloat16


def _each(of: Callable[[Any], Any], value: Any) -> Any:
    """Return what a function makes of a value, or of all that lists, tuples and dicts hold."""
    if type(value) in (list, tuple):
        return type(value)(_each(of, item) for item in value)
    if type(value) is dict:
        return {key: _each(of, item) for key, item in value.items()}
    return of(value)


def private(value: Any) -> Any:
    """Copy arrays, in lists, tuples and dicts too; all else is handed on."""
    return _each(lambda x: x.copy(order="K") if isinstance(x, np.ndarray) else x, value)


def _of_numpy(value: Any) -> Any:
    """Copy a library's array to one of NumPy's, if that has one like it."""
    if library_of(value) is None:
        return value
    try:
        return np.array(as_array(value))
    except TypeError:
        return value


def _same(new: Any, old: Any) -> bool:
    """Whether arrays that were copied are bitwise the same."""
    if isinstance(old, np.ndarray):
        return np.asarray(new).tobytes() == old.tobytes()
    if type(old) in (list, tuple):
        return len(new) == len(old) and all(map(_same, new, old))
    if type(old) is dict:
        return new.keys() == old.keys() and all(_same(new[key], old[key]) for key in old)
    return True


@dataclass
class Subject:
    """
    A function at a point, with private copies of what it is called with.

    `active` are the differentiable inputs and `kept` the differentiable outputs, in real numbers.
    """

    f: Callable[..., Any]
    values: list[Any]
    kwargs: dict[str, Any]
    scalars: frozenset[int]
    active: tuple[Part, ...]
    nondifferentiable: frozenset[int]
    batched: Callable[[int], Callable[..., Any] | None]
    leaves: Leaves | None = None  # what f's arguments were taken out of
    held: tuple[int, ...] = ()  # inputs that cannot be differentiated
    terms: float = 0.0  # that results may be sums of, should they cancel
    kept: tuple[Part, ...] = field(init=False)
    outputs: tuple[NDArray, ...] = field(init=False)
    several: bool = field(init=False)
    base: NDArray = field(init=False)
    calls: int = 0
    seconds: float = math.inf  # that a call of f took at best
    touched: list[str] = field(default_factory=list)  # by the first call

    def __post_init__(self) -> None:
        y = self.call()
        names = self.leaves.outputs if self.leaves else ()
        self.outputs, self.several = as_outputs(y, names)
        positions = [
            k
            for k, o in enumerate(self.outputs)
            if has_fractions(o.dtype) and k not in self.nondifferentiable
        ]
        for k in self.nondifferentiable:
            if k not in range(len(self.outputs)):
                msg = (
                    f"nondifferentiable_outputs names output {k}: f has {len(self.outputs)}, from 0"
                )
                raise ValueError(msg)
        for k in positions:
            if not has_differences(self.outputs[k].dtype):
                kind, name = self.outputs[k].dtype, names[k] if names else k
                msg = (
                    f"output {name} of f has dtype {kind}, of which no differences are taken: "
                    f"return it in float32 or 64, or name it in nondifferentiable_outputs"
                )
                raise TypeError(msg)
        self.outputs = tuple(o.copy() for o in self.outputs)  # f may fill the same buffer again
        self.kept = parts_of([self.outputs[k] for k in positions], positions, names)
        self.base = real_vector([p.example for p in self.kept]) if self.kept else np.empty(0)

    @property
    def names(self) -> tuple[str, ...]:
        """How the caller reaches the inputs."""
        return names_of(self.values, self.leaves)

    @property
    def columns(self) -> int:
        return self.active[-1].stop if self.active else 0

    @property
    def rows(self) -> int:
        return self.kept[-1].stop if self.kept else 0

    @cached_property
    def sizes(self) -> NDArray:
        """Those of the results, in which a part of a complex number is rounded as all of it."""
        return moduli([p.example for p in self.kept])

    @property
    def rounded(self) -> NDArray:
        """Return what is rounded in the results: themselves, or terms that they are sums of."""
        return np.fmax(self.sizes, _ROUNDINGS * self.terms)

    @cached_property
    def units(self) -> NDArray:
        """What entries are by: a result's size over that is the natural size of an entry."""
        return np.fmax(1.0, moduli([p.example for p in self.active]))

    @cached_property
    def noise(self) -> NDArray:
        """What the results are off by, beyond rounding of themselves."""
        if not isinstance(self.f, NumericalGradient):
            return np.full(self.rows, self.eps * _ROUNDINGS * self.terms)
        return self.f.noise(self.arguments(), self.kwargs)

    @cached_property
    def eps(self) -> float:
        """The coarsest spacing among what f takes and gives."""
        dtypes = [p.example.dtype for p in (*self.active, *self.kept)]
        return max((float(np.finfo(d).eps) for d in dtypes), default=2.0**-52)

    def arguments(self) -> list[Any]:
        """Return private arguments for one call."""
        return list(map(private, self._handed))

    def beside(self, random: np.random.Generator) -> "Subject":
        """Return this at a point up to three roundings of each number nearer to 0."""
        other = copy(self)
        other.__dict__.pop("_handed", None)
        other.values = list(self.values)
        for part in self.active:
            x = np.array(part.example)
            eps = np.finfo(x.dtype).eps
            for reals in (x.real, x.imag) if x.dtype.kind == "c" else (x,):
                reals *= 1 - eps * random.integers(0, 4, x.shape)
            other.values[part.position] = x
        return other

    @cached_property
    def _handed(self) -> list[Any]:
        return [v[()] if k in self.scalars else v for k, v in enumerate(self.values)]

    def call(self) -> Any:
        """Call f at the point."""
        self.calls += 1
        given, named = self.arguments(), private(self.kwargs)
        started = time.perf_counter()
        try:
            y = self.f(*given, **named)
        except TypeError as error:
            if self.calls == 1:
                note_form(
                    error,
                    f"f is called with {len(given)} argument{'s' * (len(given) != 1)}: each item "
                    f"of inputs and of args is one, so pass the numbers of one array as an array; "
                    f"if f stores its results in arrays that it takes last, give out_like=",
                )
            raise
        self.seconds = min(self.seconds, time.perf_counter() - started)
        if self.calls == 1:
            self.touched = self.changed(given, named)
        return y

    def changed(self, given: list[Any], named: dict[str, Any]) -> list[str]:
        """Name the arguments that are not bitwise what they were."""
        places = [f"input {name}" for name in self.names]
        pairs = zip(places, given, self.values, strict=True)
        return [
            *(name for name, new, old in pairs if not _same(new, old)),
            *(
                f"argument {name}"
                for name, old in self.kwargs.items()
                if not _same(named[name], old)
            ),
        ]

    def reals_of(self, y: Any) -> NDArray:
        """Return the real numbers of the differentiable outputs."""
        return self._real_outputs.of(y)

    @property
    def _real_outputs(self) -> "RealOutputs":
        kinds = tuple((o.shape, o.dtype) for o in self.outputs)
        return RealOutputs(self.f, kinds, tuple(p.position for p in self.kept))

    def problem(self, part: Part, batches: bool) -> Problem:
        """Return the problem of differentiating f by one input, in batches if f takes them."""
        x = np.array(part.example, order="C")
        before, after, named = self._others(part)
        mode = WIRTINGER if x.dtype.kind == "c" else REAL
        f: Callable[..., Any]
        if self._alone and isinstance(self._inner, Dispatcher):
            f, y = self._inner, self.kept[0].example
            out_like = y if self._fills else None
        else:
            f, y, out_like = self._real_outputs, np.asarray(self.base), None
        together = None
        if batches and part.stop - part.start > _FEW:
            together = self._in_batches(part, x, before, after, named)
        paired = all(p.example.dtype.kind == "c" for p in self.kept)
        rest = before, x, after, named, mode
        if together is not None:
            f, y = together
            found = Problem(f, *rest, False, batched=True, paired=paired, known=y)
            found.batch_bytes = _BATCH_BYTES
            found.rows_are_apart = True  # as `base_in_batches` has seen
        else:
            scalar = part.position in self.scalars
            found = Problem(f, *rest, scalar, out_like, paired=paired, known=y)
        found.seconds = self.seconds
        return found

    def _in_batches(
        self,
        part: Part,
        x: NDArray,
        before: tuple[Any, ...],
        after: tuple[Any, ...],
        named: dict[str, Any],
    ) -> tuple[Callable[..., Any], NDArray] | None:
        """Return f of a batch of one input, and its own value at x, if it takes batches."""
        together = self.batched(part.position)
        if together is None:
            return None
        f = RealBatches(together, part.position, self._real_outputs)

        def of_batch(points: NDArray) -> NDArray:
            return f.together(*before, points, *after, **named)

        def alone(point: NDArray) -> NDArray:
            return f.alone(*before, point, *after, **named)

        base = base_in_batches(of_batch, alone, x, self.base)
        return None if base is None else (f, base)

    def complex_problem(self, part: Part) -> Problem:
        """Return the problem of differentiating f by steps of one input off the real axis."""
        mode = modes_of(part.example, COMPLEX_STEP, False)
        x = part.example.astype(np.result_type(part.example, np.complex64))
        before, after, named = self._others(part)
        f, out_like = self._inner, self.kept[0].example if self._fills else None
        if self._fills and not self._alone:
            msg = "method='cs' takes a function that stores one result in out_like=, not several"
            raise ValueError(msg)
        one = len(self.active) == 1
        if not (self._fills or (one and self._alone)):
            f = ComplexOutputs(f, tuple(p.position for p in self.kept), lenient=not one)
        scalar = part.position in self.scalars
        self.calls += 1
        return Problem(f, before, x, after, named, mode, scalar, out_like)

    def _others(self, part: Part) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]:
        """Return private arguments before and after an input, and by name."""
        given = self.arguments()
        before, after = given[: part.position], given[part.position + 1 :]
        return tuple(before), tuple(after), private(self.kwargs)

    @property
    def _alone(self) -> bool:
        """Whether f has one output, of a dtype that kernels know."""
        return not self.several and has_differences(self.kept[0].example.dtype)

    @property
    def _fills(self) -> bool:
        return isinstance(self.f, InPlace)

    @property
    def _inner(self) -> Callable[..., Any]:
        return self.f.inner if isinstance(self.f, InPlace) else self.f


def argnums_of(argnums: Any, count: int) -> list[int]:
    """Return the inputs that the caller named, one or several, of so many."""
    chosen: list[Any] = list(argnums) if np.iterable(argnums) else [argnums]
    for k in chosen:
        if chosen.count(k) > 1:
            msg = f"argnums names input {k} more than once"
            raise ValueError(msg)
        if not isinstance(k, (int, np.integer)) or not 0 <= k < count:
            msg = f"argnums names input {k!r}: there are {count}, from 0"
            raise ValueError(msg)
    return chosen


def names_of(inputs: Sequence[Any], leaves: Leaves | None) -> tuple[str, ...]:
    """Return how the caller reaches inputs: by position, or where they are in containers."""
    return (leaves and leaves.names) or tuple(map(str, range(len(inputs))))


def _kind(x: Any) -> str:
    name = type(x).__name__
    return f"{name} of dtype {x.dtype}" if hasattr(x, "dtype") else name


def no_batches(position: int) -> None:
    """Return no function of a batch: what is not known to be one is called point by point."""


def pose(
    f: Any,
    inputs: Any,
    args: Any,
    kwargs: Any,
    argnums: Any,
    nondifferentiable_outputs: Any,
    batched: Callable[[int], Callable[..., Any] | None] = no_batches,
    leaves: Leaves | None = None,
    held: tuple[int, ...] = (),
    of_library: bool = False,
    terms: float = 0.0,
) -> Subject:
    """
    Check what the caller gave, and copy it.

    `batched` may give f of a batch of an input. Unless f is of a library's own arrays, it gets
    NumPy's in their place.
    """
    given = [*several(inputs), *args]
    if argnums is None:
        count = len(given) - len(args)
        chosen = [k for k in range(count) if is_differentiable(given[k])]
        held = tuple(k for k in range(count) if k not in chosen)
    else:
        chosen = argnums_of(argnums, len(given))
    if not chosen:
        kinds = ", ".join(dict.fromkeys(map(_kind, given))) or "nothing"
        integers = any(getattr(getattr(x, "dtype", None), "kind", "b") in "iu" for x in given)
        advice = ": give integers as floats" if integers else ""
        msg = (
            f"gradcheck needs an input of real or complex floating-point numbers, an array or "
            f"arrays in lists, tuples, dicts and dataclasses, and got {kinds}: nothing can be "
            f"differentiated{advice}"
        )
        raise ValueError(msg)
    names = names_of(given, leaves)
    values: list[Any] = []
    scalars = set()
    for k, value in enumerate(given):
        copied: Any = value
        if k in chosen or isinstance(value, np.ndarray):
            array = np.asarray(given_array(value, f"input {names[k]}"))
            if array.ndim == 0 and not isinstance(value, np.ndarray):
                scalars.add(k)
            # As differences will hand it over, so that f sees one layout.
            native = array.dtype.newbyteorder("=") if k in chosen else array.dtype
            copied = array.astype(native, order="C" if k in chosen else "K", copy=True)
        if k in chosen and not has_differences(copied.dtype):
            kind = copied.dtype
            able = has_fractions(kind)
            advice = "pass it in float32 or 64" if able else "leave it out of argnums"
            told = f"input {names[k]} has dtype {kind}, which is not differentiated numerically"
            msg = f"{told}: {advice}"
            raise TypeError(msg)
        values.append(copied)
    active = parts_of([values[k] for k in chosen], chosen, names)
    named = dict(kwargs or {})
    if not of_library:
        values, named = _each(_of_numpy, values), _each(_of_numpy, named)
    return Subject(
        f,
        values,
        named,
        frozenset(scalars),
        active,
        frozenset(nondifferentiable_outputs),
        batched,
        leaves,
        held,
        terms,
    )
