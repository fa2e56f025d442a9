"""The function that is differentiated, as a map from real coordinates to real values."""

import time
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from numbers import Number
from typing import Any, ClassVar

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from .._core.arguments import brief, is_integer, note_form, note_tensors
from .._core.arrays import as_array
from .._core.dtypes import as_real_vector, real_parts
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .._execution.tasks import user_callable
from .compiled import CallForm, Native, kind_of, native_form

REAL, HOLOMORPHIC, WIRTINGER, IMAGINARY = "real", "holomorphic", "wirtinger", "imaginary"


@dataclass
class Problem:
    """
    A function f around a point x, seen as a map from coordinates to real values.

    Coordinate j is number ``stride * j`` among the real numbers of `x`. `base` holds the real
    values of f at x.
    """

    f: Callable[..., Any]
    before: tuple[Any, ...]
    x: NDArray
    after: tuple[Any, ...]
    kwargs: dict[str, Any]
    mode: str
    scalar: bool
    out_like: Any = None
    rowwise: bool = False
    batched: bool = False
    batch_bytes: int = 1 << 19  # arguments and results of one call: near the caches
    paired: bool = False  # f's real values are, two by two, parts of complex numbers
    base_value: InitVar[Any] = None  # f(x), where the caller has it
    is_hashed_by_parts: ClassVar[bool] = True  # by checkpoints, which compare each part
    base: NDArray = field(init=False)
    shape: tuple[int, ...] = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    has_independent_rows: bool = field(init=False, default=False)  # as a batch has shown
    seconds: float = field(init=False)  # that the call for `base` took
    native: Native | None = field(init=False, default=None)
    may_write: bool = field(init=False, default=True)  # whether f may change its copy of x
    noise: NDArray | None = field(init=False, default=None)  # lower bound on that of f's values

    def __post_init__(self, base_value: Any) -> None:
        if self.out_like is not None:
            like = empty_like(self.out_like)
            self.shape, self.dtype = like.shape, like.dtype
            if self.mode == IMAGINARY and self.dtype.kind != "c":
                self.dtype = np.result_type(self.dtype, np.complex64)
        started = time.perf_counter()
        y = self._base() if base_value is None else base_value
        y = np.array(y, dtype=y.dtype.newbyteorder("="), order="C")  # kernels know no other
        self.seconds = time.perf_counter() - started
        self.shape, self.dtype = y.shape, y.dtype
        self.base = as_real_vector(y)
        self._find_native()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "native": None}  # an address is of one process

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._find_native()

    def _find_native(self) -> None:
        if isinstance(self.f, Dispatcher) and not (self.batched or self.scalar):
            call = CallForm(
                self.f,
                self.before,
                self.x,
                self.after,
                self.kwargs,
                self.shape,
                self.dtype,
                self.out_like is not None,
                self.rowwise,
            )
            self.native = native_form(call)

    def same_kinds(self, others: tuple[Any, ...]) -> bool:
        """
        Return True if other arguments can replace those of this problem.

        They must have the same types in compiled code, and not change the shape of f's values.
        """
        arguments = (*self.before, *self.after)
        if not arguments:
            return not others
        if len(arguments) != len(others):
            return False
        if any(
            _shape_and_dtype(a) != _shape_and_dtype(b)
            for a, b in zip(arguments, others, strict=True)
            if a is not b
        ):
            return False
        if self.native is None:
            return True
        return all(
            a is b or (kind_of(a) is not None and kind_of(a) == kind_of(b))
            for a, b in zip(arguments, others, strict=True)
        )

    def with_point(
        self, x: NDArray, before: tuple[Any, ...], after: tuple[Any, ...], evaluate: bool
    ) -> "Problem":
        """Return the same problem at a different point; compute f(x) only if `evaluate`."""
        new = object.__new__(Problem)
        new.__dict__.update(self.__dict__)
        same = x.dtype == self.x.dtype and x.flags.c_contiguous
        new.x = x if same else np.array(x, dtype=self.x.dtype, order="C")
        new.before, new.after = before, after
        if self.native is not None and (before or after):
            new.native = self.native.with_arguments(before, after)
        if evaluate:
            new.base = new.values(new.x.copy())
        return new

    def on_the_real_axis(self) -> "Problem":
        """Return the problem of real steps from x, of real parts: f gets complex x all the same."""

        def real_values(x: NDArray) -> NDArray:
            return self.at(as_real_vector(x.astype(self.x.dtype)))[::2]

        x, base = np.ascontiguousarray(self.x.real), self.base[::2]
        return Problem(real_values, (), x, (), {}, REAL, False, base_value=base)

    def contracted(self, weights: NDArray) -> "Problem":
        """Return the problem of one number, the weighted sum of f's real values."""

        def weighted_sum(values: NDArray) -> NDArray:
            # Summed in pairs: a sum in a row is rounded by more than its terms.
            return np.array([np.sum(weights * values)])

        def contracted_value(x: NDArray) -> NDArray:
            return weighted_sum(self.at(as_real_vector(x)))

        base = weighted_sum(self.base)
        new = Problem(contracted_value, (), self.x, (), {}, self.mode, False, base_value=base)
        new.noise = None if self.noise is None else np.array([np.linalg.norm(weights * self.noise)])
        return new

    def interpreted(self) -> "Problem":
        """Return the same problem without its compiled form."""
        new = object.__new__(Problem)
        new.__dict__.update(self.__dict__, native=None)
        return new

    @property
    def parallel(self) -> bool:
        """Whether f was compiled with parallel=True, which two threads may not enter at a time."""
        f: Any = user_callable(self.f)
        return isinstance(f, Dispatcher) and bool(f.targetoptions.get("parallel"))

    @property
    def parts(self) -> int:
        """The number of consecutive real values that are rounded together."""
        return 2 if self.paired else real_parts(self.dtype)

    @property
    def native_shape(self) -> tuple[int, ...]:
        """The shape in which compiled code hands over f's values: flat, unless f fills them in."""
        if self.out_like is not None and not self.rowwise:
            return self.shape
        return (self.base.size // real_parts(self.dtype),)

    @property
    def stride(self) -> int:
        return 2 if self.mode in (HOLOMORPHIC, IMAGINARY) else 1

    @property
    def coordinates(self) -> int:
        return as_real_vector(self.x).size // self.stride

    @property
    def has_complex_x(self) -> bool:
        """Whether the caller's x is complex, and not only the argument of f."""
        return self.mode in (HOLOMORPHIC, WIRTINGER)

    @property
    def imaginary(self) -> bool:
        return self.mode == IMAGINARY

    def _base(self) -> NDArray:
        x = self.x.copy()
        try:
            if self.out_like is not None and not self.rowwise:
                y = self._filled_whole(x)
            else:
                y = self.call_batch(x[None])[0] if self.batched else self.call(x)
        except (TypeError, NumbaError) as error:
            if self.imaginary and not hasattr(error, "__notes__"):
                error.add_note(
                    "method='cs' calls f with complex numbers: if f takes only real ones, "
                    "use a different method"
                )
            raise
        if y.dtype.kind in "biu":
            y = y.astype(float)
        if self.imaginary and y.dtype.kind != "c":
            msg = (
                "method='cs' needs an f that returns complex numbers for complex x, but "
                f"it returned {y.dtype}: use a different method"
            )
            raise ValueError(msg)
        if self.imaginary and (np.abs(y.imag) > 0).any():
            msg = (
                "method='cs' needs an f that is real for real x, but f(x) is complex: use "
                "a different method"
            )
            most, share = np.abs(y.imag).max(), np.finfo(y.dtype).eps ** 0.5
            if most <= share * np.abs(y.real).max():
                msg += (
                    f"; its imaginary part, {most:.2g} at most, is rounding error of "
                    "compiled powers: write x * x * x instead of x**3"
                )
            raise ValueError(msg)
        return y

    def _filled(self, x: NDArray, before: float) -> NDArray:
        out = np.full(self.shape, before, self.dtype)
        try:
            self.f(*self.before, x[()] if self.scalar else x, *self.after, out, **self.kwargs)
        except TypeError as error:
            note_form(
                error,
                "with out_like= f is called as f(x, *args, out), and stores its results "
                "in out: omit out_like= if f returns them",
            )
            raise
        return out

    def _filled_whole(self, x: NDArray) -> NDArray:
        """Return f(x), unless f leaves elements of its result as they were, or adds to them."""
        out = self._filled(x, np.nan)
        unknown = np.isnan(out)
        if unknown.any():
            left = unknown & ~np.isnan(self._filled(self.x.copy(), 0.0))
            if left.any():
                msg = (
                    f"f(x, out) must store every element of out: {np.count_nonzero(left)} "
                    f"of {left.size} elements keep their previous values, or add to them"
                )
                raise ValueError(msg)
        return out

    def call(self, x: NDArray) -> NDArray:
        """Return f(x) as an array, which may share memory with anything."""
        argument = x[()] if self.scalar else x
        arguments = (*self.before, argument, *self.after)
        if self.rowwise:
            out = np.empty(self.shape, self.dtype)
            flat = out.reshape(-1)
            for i in range(flat.size):
                copied = argument.copy() if isinstance(argument, np.ndarray) else argument
                try:
                    value = self.f(i, *self.before, copied, *self.after, **self.kwargs)
                except TypeError as error:
                    note_form(
                        error,
                        "with rowwise=True f is called as f(i, x, *args), and returns its "
                        "result number i",
                    )
                    raise
                try:
                    if value is None:  # which becomes NaN
                        raise TypeError
                    flat[i] = value
                except (TypeError, ValueError):
                    kind = "None" if value is None else type(value).__name__
                    dtype = getattr(value, "dtype", kind)
                    shape = f" of shape {np.shape(value)}" if np.ndim(value) else ""
                    msg = (
                        f"f(i, x) must return a number that {out.dtype} holds, the dtype of "
                        f"out_like=, got {dtype}{shape} for i = {i}"
                    )
                    raise TypeError(msg) from None
            return out
        if self.out_like is not None:
            return self._filled(x, np.nan)
        try:
            return _numbers(self.f(*arguments, **self.kwargs))
        except TypeError as error:
            note_form(
                error,
                "f is called as f(x, *args, **kwargs): pass its other arguments as args= "
                "or kwargs=; jacobian and differentiate take several x as a tuple with "
                "argnums=(0, 1); if f stores its results, f(x, out), pass their shape as "
                "out_like=",
            )
            note_tensors(error)
            raise

    def call_batch(self, x: NDArray) -> NDArray:
        """Return f of a batch of arguments, one result for each."""
        y = _numbers(self.f(*self.before, x, *self.after, **self.kwargs))
        if y.ndim == 0 or y.shape[0] != x.shape[0]:
            msg = (
                f"f must return one result per row with batched=True: "
                f"got shape {y.shape} for arguments of shape {x.shape}"
            )
            raise ValueError(msg)
        return y

    def result(self, x: NDArray) -> NDArray:
        """Return f(x), if it is what f(x) was before; it may share memory with anything."""
        y = self.call_batch(x[None])[0] if self.batched else self.call(x)
        if y.shape != self.shape:
            msg = f"f returned results of two shapes: {self.shape} and then {y.shape}"
            raise ValueError(msg)
        if y.dtype.kind == "c" and self.dtype.kind != "c":
            msg = f"f returned {self.dtype} at x and {y.dtype} near it: return one dtype"
            raise ValueError(msg)
        return y

    def values(self, x: NDArray) -> NDArray:
        """Return the real values of f at x: new memory."""
        y = self.result(x)
        # What f filled is new; what it returned may be x, or a buffer that the next call fills.
        filled = self.out_like is not None
        return as_real_vector(y if filled else np.array(y, dtype=self.dtype, order="C"))

    def at(self, coordinates: NDArray) -> NDArray:
        """Return the real values of f where its real numbers are `coordinates`: new memory."""
        x = np.empty_like(self.x)
        as_real_vector(x)[:] = coordinates
        return self.values(x)

    @property
    def batch_size(self) -> int:
        """The number of points in one call, if f's value at a point depends on no other; else 1."""
        if not getattr(self.f, "evaluates_points_independently", False):
            return 1
        return max(1, self.batch_bytes // max(1, self.x.nbytes + self.base.nbytes))

    def at_each(self, points: Sequence[NDArray] | NDArray) -> Sequence[NDArray]:
        """Return the real values of f at each of `points`, its real numbers: new memory."""
        if self.batch_size == 1:
            return [self.at(coordinates) for coordinates in points]
        x = np.empty((len(points), *self.x.shape), self.x.dtype)
        as_real_vector(x).reshape(len(points), -1)[:] = points
        values = self.call_batch(x).astype(self.dtype, order="C", copy=False)
        return list(as_real_vector(values).reshape(len(points), -1))


def _shape_and_dtype(x: Any) -> Any:
    """Return the shape and dtype of an array, or None."""
    return (x.shape, x.dtype) if isinstance(x, np.ndarray) else None


def empty_like(out_like: Any) -> NDArray:
    """Return an array of the shape and dtype that the caller gave for f's values."""
    shape = out_like if isinstance(out_like, tuple) else (out_like,)
    if all(is_integer(n) and not isinstance(n, bool) for n in shape):
        if min(shape, default=0) < 0:
            msg = f"out_like must be a shape, or an array like f's results, got {out_like!r}"
            raise ValueError(msg)
        return np.empty(shape)
    try:
        like = np.asarray(as_array(out_like, "out_like"))
    except ValueError:  # lists of unlike lengths
        like = np.empty(0, object)
    if like.dtype.kind not in "biufc":
        msg = f"out_like must be a shape, or an array like f's results, got {brief(out_like)}"
        raise TypeError(msg)
    dtype = like.dtype.newbyteorder("=") if like.dtype.kind in "fc" else float
    return np.empty(like.shape, dtype)


def are_boxed(array: NDArray) -> bool:
    """Return True if an object array holds only numbers."""
    every = array.dtype == object and array.size > 0
    return bool(every and all(isinstance(value, Number) for value in array.flat))


def _numbers(y: Any) -> NDArray:
    plain = type(y) is np.ndarray or isinstance(y, (np.generic, float, int, complex))
    array = np.asarray(y) if plain else _as_array(y)
    if array.dtype.kind not in "biufc":
        hint = "for several arrays, return numpy.concatenate((a, b))"
        if y is None:
            hint = "for a function f(x, out), pass out_like="
        elif hasattr(y, "toarray"):
            hint = "return y.toarray()"
        elif are_boxed(array):
            hint = "return an array of floats, as numpy.asarray(y, float)"
        kind = f"dtype {y.dtype}" if isinstance(y, np.ndarray) else type(y).__name__
        msg = f"f must return one array of numbers, got {kind} ({hint})"
        raise TypeError(msg)
    return array


def _as_array(y: Any) -> NDArray:
    if np.ma.is_masked(y):
        msg = "f returned masked elements, which have no value: return y.filled(...)"
        raise ValueError(msg)
    library = library_of(y)
    try:
        return np.asarray(y if library is None else library.fetch(y))
    except ValueError as error:
        msg = (
            f"f must return one array, got {type(y).__name__} of unlike parts: return "
            f"numpy.concatenate of them, raveled"
        )
        raise TypeError(msg) from error
