"""
Adapt the caller's function, inputs and derivatives to NumPy arrays.

`adapted` makes the one adapter of f (`AdaptedFunction`), `at_point` calls f for the first time, and
`checked` makes an adapter of each derivative (`AdaptedDerivative`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._core.arguments import SEVERAL_INPUTS, brief, note_form, note_tensors
from .._core.arrays import as_array, as_dense_array, is_sparse
from .._core.containers import as_tuple, flatten
from .._core.libraries import HOST_TYPES, device_module, is_device_function, library_of, on_device
from .._core.protocols import ContainerLibrary, Differentiated, FunctionLibrary, NDArray
from .._derivatives.options import require_named
from ..interop.jax import JaxFunctions
from ..interop.torch_functions import TorchFunctions
from .analytic import CONVENTIONS, AnalyticDerivative
from .calls import ADD, AdaptedDerivative, AdaptedFunction, of_numpy
from .containers import (
    NumpyContainers,
    Structure,
    copied,
    holds_arrays,
    is_array,
)
from .flatten import NO_INDICES, has_differences, has_fractions, has_kernels, labels_of, segments_of
from .function_at_point import FunctionAtPoint, Labels, names_of, no_batches
from .numerical_gradient import NumericalGradient

_LIBRARIES: tuple[FunctionLibrary, ...] = (TorchFunctions(), JaxFunctions())


def function_library(inputs: Sequence[Any]) -> FunctionLibrary | None:
    """Return the library that differentiates functions of these inputs, if there is one."""
    for library in _LIBRARIES:
        if any(library.owns(x) for x in inputs):
            return library
    return None


FORMS = ("jac", "vjp", "jvp")


@dataclass(frozen=True)
class CheckArguments:
    """A function, the point at which it is checked, and its derivatives."""

    f: Callable[..., Any]
    inputs: Any
    derivatives: Mapping[str, Callable[..., Any] | None]  # a key for each of FORMS
    argnums: Any
    nondifferentiable_outputs: tuple[int, ...]
    convention: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    batched: Callable[[int], Callable[..., Any] | None] = no_batches
    terms: float = 0.0  # size of terms that results of f may be sums of, should these cancel
    with_value: bool = False  # whether jac returns f's value before the Jacobian
    names: Mapping[str, str] = field(default_factory=dict)  # the caller's names of forms
    labels: Labels | None = None  # of inputs and outputs that are not called in and out
    structure: Structure | None = None  # how arguments and results are made of arrays
    library: Differentiated | None = None  # f as its library differentiates it
    primals: dict[str, Any] = field(default_factory=dict)  # values of f, by the derivative's name

    def __post_init__(self) -> None:
        """Raise if it is unclear how f and the derivatives are called."""
        if self.kwargs is not None:
            require_named(self.kwargs)
        if self.convention not in CONVENTIONS:
            msg = f"convention must be one of {CONVENTIONS}, got {self.convention!r}"
            raise ValueError(msg)

    @cached_property
    def forms(self) -> list[str]:
        """The forms of the derivative that were passed."""
        return [form for form in FORMS if self.derivatives[form] is not None]

    @cached_property
    def several(self) -> tuple[Any, ...]:
        return as_tuple(self.inputs)

    @property
    def whole(self) -> tuple[Any, ...]:
        """All positional arguments of f."""
        return (*self.several, *self.args)

    @property
    def of_library(self) -> bool:
        """Whether the derivatives are those of f's library."""
        return self.library is not None

    def on_device(self) -> bool:
        """Return True if arrays or functions are a device's, and no library differentiates them."""
        if not self.forms and function_library(self.several) is not None:
            return False
        calls = (self.f, *map(self.derivatives.get, self.forms))
        if any(map(is_device_function, calls)):
            return True
        away = not HOST_TYPES.issuperset(map(type, self.whole))
        return away and any(on_device(x=x) for x in self.whole)

    def adapted(
        self, out_like: Any = None, inplace: str | None = None, masked: bool = False
    ) -> "CheckArguments":
        """
        Return the same check with an f that takes and returns NumPy arrays.

        A call of this f goes through the following stages; most checks need only a few:

        1. Arrays become tensors of f's library (`translated`), or values sparse matrices.
        2. Arrays become containers (`Structure.arguments`).
        3. Arrays for the results are appended, as `out_like` says.
        4. Arrays are sent to the device, and results fetched (`on_host`).
        5. The caller's f is called.
        6. A container of results becomes a tuple of arrays (`Structure.result`).

        `AdaptedFunction` does all but 1 for a library and 4. Derivatives follow in `checked`, once
        f was called and the structure of its result is known.
        """
        arguments = self
        if arguments.on_device():
            arguments, out_like = device_module("derivatives").on_host(arguments, out_like, inplace)
        if out_like is not None:
            arguments = arguments.filling(out_like)
        if inplace is None:
            by_library = not arguments.forms
            arguments = arguments.of_leaves() if by_library else arguments.of_containers(masked)
        return arguments if arguments.forms else arguments.translated(masked)

    def filling(self, out_like: Any) -> "CheckArguments":
        """Return the same check with an f that returns its results instead of storing them."""
        if not self.forms and function_library(self.several) is not None:
            msg = (
                "out_like= is for functions that store their results in NumPy arrays, "
                "and f takes arrays of a different library: omit it"
            )
            raise ValueError(msg)
        likes = as_tuple(out_like)
        of_integers = any(isinstance(like, (int, np.integer)) for like in likes)
        arrays = tuple(np.asarray(as_array(like, "out_like")) for like in likes)
        if not likes or of_integers or any(x.dtype.kind not in "biufc" for x in arrays):
            msg = (
                "out_like must be an array like f's result, or a tuple of such arrays, "
                f"got {brief(out_like)}"
            )
            raise TypeError(msg)
        # Zeros, as a checkpoint of f must not depend on the values of out_like.
        return replace(self, f=AdaptedFunction(self.f, likes=tuple(map(np.zeros_like, arrays))))

    def of_leaves(self) -> "CheckArguments":
        """Return the same check for a library's function with containers opened to arrays."""
        library = function_library(self.several)
        if library is None:
            return self
        if isinstance(self.f, type) and hasattr(self.f, "apply"):  # a torch.autograd.Function
            msg = f"f is the class {self.f.__name__}: pass {self.f.__name__}.apply"
            raise TypeError(msg)
        f, chosen = self.f, self._named
        if self.kwargs:
            f = partial(f, **{name: _copy(library, value) for name, value in self.kwargs.items()})
        if chosen is None and self.args:
            chosen = tuple(range(len(self.several)))
        structure = Structure(library, self.whole, chosen)
        return replace(self, kwargs=None)._with(f, structure)

    def of_containers(self, masked: bool) -> "CheckArguments":
        """Return the same check with containers and sparse matrices opened to arrays."""
        takes_arrays = isinstance(self.f, (Dispatcher, AdaptedFunction, NumericalGradient))
        if takes_arrays and not any(holds_arrays(x) or is_sparse(x) for x in self.several):
            return self
        chosen, optional = self._named, 0
        if chosen is None:
            chosen = tuple(
                k
                for k, x in enumerate(self.several)
                if is_differentiable(x) or holds_arrays(x) or is_array(x)
            )
            optional = len(self.several)
        structure = Structure(NumpyContainers(), self.whole, chosen, optional, masked)
        return self._with(self.f, structure)

    @property
    def _named(self) -> tuple[int, ...] | None:
        if self.argnums is None:
            return None
        chosen = tuple(argnums_of(self.argnums, len(self.whole)))
        if not chosen:
            msg = "argnums is empty: name at least one input, or omit it"
            raise ValueError(msg)
        return chosen

    def _with(self, f: Callable[..., Any], structure: Structure) -> "CheckArguments":
        if self.nondifferentiable_outputs:
            structure.exclude_outputs(f, self.nondifferentiable_outputs, self.kwargs or {})
        return replace(
            self,
            f=AdaptedFunction.of(f, structure=structure),
            inputs=structure.arrays,
            args=(),
            argnums=structure.argnums,
            nondifferentiable_outputs=structure.nondifferentiable_outputs,
            structure=structure,
        )

    def translated(self, masked: bool) -> "CheckArguments":
        """Return the same check for NumPy arrays instead of a library's; see `of_leaves`."""
        library = function_library(self.several)
        if library is None:
            return self
        try:
            result = library.differentiated(
                self.f,
                self.several,
                masked,
                self.argnums,
                self.nondifferentiable_outputs,
                names_of(self.several, self.structure),
            )
        except TypeError as error:
            note_form(error, f"f is called as f(*inputs, *args): {SEVERAL_INPUTS}")
            raise
        if self.convention not in (CONVENTIONS[0], result.convention):
            msg = (
                f"convention={self.convention!r} applies to derivatives that are passed, "
                f"and these are {result.convention}'s: omit it"
            )
            raise ValueError(msg)
        return replace(
            self,
            f=AdaptedFunction.of(self.f, by_library=result.f),
            inputs=result.inputs,
            derivatives={"jac": None, "vjp": result.vjp, "jvp": result.jvp},
            argnums=result.argnums if self.argnums is None else self.argnums,
            nondifferentiable_outputs=result.nondifferentiable_outputs,
            convention=result.convention,
            args=(),
            kwargs=None,
            batched=result.batched,
            library=result,
            primals=result.primals,
        )

    def at_point(self) -> FunctionAtPoint:
        """Return f at the point, after one call."""
        try:
            return self._at_point()
        except TypeError as error:
            owners = {library_of(x) for x in self.whole} - {None}
            if owners and not self.of_library:
                error.add_note(
                    "f and the derivatives that were passed are called with NumPy arrays; "
                    "pass no derivatives to check those of the inputs' library"
                )
            note_tensors(error)
            raise

    def _at_point(self) -> FunctionAtPoint:
        """Validate and copy the arguments, and call f."""
        whole, chosen, held = self.whole, *self._chosen()
        names = names_of(whole, self.structure)
        values: list[Any] = []
        laid_out: dict[int, NDArray] = {}
        scalars = set()
        for k, value in enumerate(whole):
            copy: Any = value
            if k in chosen or isinstance(value, np.ndarray):
                plain = type(value) is np.ndarray
                array = value if plain else np.asarray(as_dense_array(value, f"input {names[k]}"))
                if array.ndim == 0 and not isinstance(value, np.ndarray):
                    scalars.add(k)
                # In C order, as finite differences pass it, so that f gets one memory order.
                native = array.dtype.newbyteorder("=") if k in chosen else array.dtype
                copy = array.astype(native, order="C" if k in chosen else "K", copy=True)
                in_c_order = array.ndim <= 1 or array.flags.c_contiguous
                if k in chosen and not in_c_order and not self.of_library:
                    laid_out[k] = array.astype(native, order="K", copy=True)
            if k in chosen and not has_differences(copy.dtype):
                able = has_fractions(copy.dtype)
                advice = "pass it in float32 or 64" if able else "omit it from argnums"
                msg = (
                    f"input {names[k]} has dtype {copy.dtype}, which is not differentiated "
                    f"numerically: {advice}"
                )
                raise TypeError(msg)
            values.append(copy if k in chosen or self.of_library else of_numpy(copy))
        source = self.library or self.structure
        value_indices = NO_INDICES if source is None else source.value_indices
        called = labels_of("in", names) if self.labels is None else self.labels[0]
        active = segments_of([values[k] for k in chosen], chosen, names, called, value_indices)
        kwargs = dict(self.kwargs or {})
        if kwargs and not self.of_library:
            kwargs = of_numpy(kwargs)
        return FunctionAtPoint(
            AdaptedFunction.of(self.f),
            values,
            kwargs,
            frozenset(scalars),
            active,
            frozenset(self.nondifferentiable_outputs),
            self.batched,
            self.structure,
            held,
            self.terms,
            laid_out,
            None if self.labels is None else self.labels[1],
        )

    def _chosen(self) -> tuple[list[int], tuple[int, ...]]:
        """Return which arguments are differentiated, and which inputs cannot be."""
        whole, count = self.whole, len(self.several)
        chosen: list[int]
        held: tuple[int, ...] = ()
        if self.structure is not None:
            chosen, held = list(self.structure.argnums), self.structure.held
        elif self.argnums is None:
            chosen = [k for k in range(count) if is_differentiable(whole[k])]
            held = tuple(k for k in range(count) if k not in chosen)
        else:
            chosen = argnums_of(self.argnums, len(whole))
        if chosen:
            return chosen, held
        kinds = ", ".join(dict.fromkeys(map(_kind, whole))) or "nothing"
        integers = any(getattr(getattr(x, "dtype", None), "kind", "b") in "iu" for x in whole)
        advice = ": pass integers as floats" if integers else ""
        if all(isinstance(x, int) for x in whole) and whole:
            advice = ": pass the numbers of one input as an array of floats"
        msg = (
            "gradcheck needs a floating-point input, an array or arrays in lists, tuples, "
            f"dicts or dataclasses, got {kinds}: nothing can be differentiated{advice}"
        )
        raise ValueError(msg)

    def zeros(self, subject: FunctionAtPoint) -> tuple["CheckArguments", FunctionAtPoint]:
        """Return a check that the derivative of outputs declared nondifferentiable is zero."""
        without = (k for k, o in enumerate(subject.outputs) if not has_kernels(o.dtype))
        claim = replace(self, nondifferentiable_outputs=tuple(without))
        subject = claim.at_point()
        nothing = (None,) * len(subject.active)
        none: dict[str, Callable[..., Any] | None] = dict.fromkeys(FORMS)
        derivatives = {**none, "vjp": lambda *_, **__: nothing}
        return replace(claim, derivatives=derivatives, structure=None), subject

    def checked(
        self,
        subject: FunctionAtPoint,
        chosen: Mapping[str, bool],
        inplace: str | None,
        strict: bool,
    ) -> list[AnalyticDerivative]:
        """Return the derivatives that are to be checked, as functions of NumPy arrays."""
        result = []
        for name in FORMS:
            call = self.derivatives[name]
            if call is None or not chosen[name]:
                continue
            structure = None if self.of_library else self.structure
            primals = self.primals if name == "jac" and self.with_value else None
            adapted = AdaptedDerivative(name, call, structure, primals)
            if inplace is not None:
                active = [p.example for p in subject.active]
                outputs = [p.example for p in subject.active_outputs]
                adapted = adapted.filling(active, outputs, subject.several, inplace == ADD)
            conjugate = self.convention == "jax"
            label = self.names.get(name, name)
            about = subject, conjugate, strict, self.of_library, label
            result.append(AnalyticDerivative(name, adapted, *about))
        return result


def is_differentiable(value: Any) -> bool:
    """Return True if an input is an array of floating-point numbers, or such a number."""
    if type(value) is np.ndarray:
        return _is_real_or_complex(value.dtype)
    if isinstance(value, (bool, int, str, bytes)) or value is None or callable(value):
        return False
    try:
        return _is_real_or_complex(as_array(value).dtype)
    except (TypeError, ValueError, RuntimeError):
        return False


def _is_real_or_complex(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or dtype.name == "bfloat16"


def argnums_of(argnums: Any, count: int) -> list[int]:
    """Return `argnums` as a list of positions, each from 0 to `count` - 1."""
    chosen: list[Any] = list(argnums) if np.iterable(argnums) else [argnums]
    for k in chosen:
        if chosen.count(k) > 1:
            msg = f"argnums names input {k} more than once"
            raise ValueError(msg)
        if not isinstance(k, (int, np.integer)) or not 0 <= k < count:
            msg = f"argnums names input {k!r}, but there are {count} inputs, counted from 0"
            raise ValueError(msg)
    return chosen


def _kind(x: Any) -> str:
    name = type(x).__name__
    return f"{name} of dtype {x.dtype}" if hasattr(x, "dtype") else name


def _copy(library: ContainerLibrary, value: Any) -> Any:
    """Copy the arrays of a container, since f may write into them."""
    leaves, again = flatten(value)
    return again([copied(library, leaf) for _, leaf in leaves])
