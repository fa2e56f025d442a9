"""What the caller gave, in whatever form, as functions of NumPy arrays that return arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from .._arguments import brief
from .._arity import SEVERAL_INPUTS, note_form, note_tensors
from .._arrays import as_array, is_sparse
from .._containers import apart, several
from .._differences.plan import require_named
from .._libraries import device_module, is_device_function, library_of, on_device
from .._protocols import ContainerLibrary, Differentiated, NDArray
from ..interop.containers import Leaves, copied, leaves_of
from ..interop.functions import function_library
from .analytic import CONVENTIONS, GivenDerivative, WrongFormError
from .calls import ADD, WAYS, InPlace
from .containers import DenseView, Nested, NumpyContainers, holds_arrays, is_array
from .flatten import has_differences
from .numerical_gradient import NumericalGradient
from .point import Labels, Subject, names_of
from .posing import argnums_of, is_differentiable, no_batches, pose

FORMS = ("jac", "vjp", "jvp")


@dataclass(frozen=True)
class Given:
    """A function, where it is checked, and what is said to be its derivative."""

    f: Callable[..., Any]
    inputs: Any
    derivatives: dict[str, Callable[..., Any] | None]  # a key for each of FORMS
    argnums: Any
    nondifferentiable_outputs: tuple[int, ...]
    convention: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    batched: Callable[[int], Callable[..., Any] | None] = no_batches
    of_library: bool = False  # whose own derivatives these are
    constant: bool = False  # as the library says
    primals: dict[str, Any] = field(default_factory=dict)  # what came for f's value, by its source
    leaves: Leaves | None = None  # what was taken out of containers
    held: tuple[int, ...] = ()  # inputs that cannot be differentiated
    terms: float = 0.0  # that f's results may be sums of, should they cancel
    used: tuple[int, ...] = ()  # inputs that f uses themselves, and not what it is given
    places: Mapping[int, tuple[NDArray, ...]] = field(default_factory=dict)  # by sparse input
    with_value: bool = False  # whether jac gives f's value before the Jacobian
    names: Mapping[str, str] = field(default_factory=dict)  # of forms that have others
    labels: Labels | None = None  # of inputs and outputs that are not called in and out

    def __post_init__(self) -> None:
        """Refuse what does not say how f and the derivatives are called."""
        require_named(self.kwargs)
        if self.convention not in CONVENTIONS:
            msg = f"convention must be one of {CONVENTIONS}, got {self.convention!r}"
            raise ValueError(msg)

    @property
    def forms(self) -> list[str]:
        """The forms in which the derivative is given."""
        return [form for form in FORMS if self.derivatives[form] is not None]

    @property
    def several(self) -> tuple[Any, ...]:
        return several(self.inputs)

    def on_device(self) -> bool:
        """Return True if arrays or functions are a device's, and no library differentiates them."""
        if not self.forms and function_library(self.several) is not None:
            return False
        calls = [self.derivatives[form] for form in self.forms]
        whole = (*self.several, *self.args)
        return any(map(is_device_function, (self.f, *calls))) or any(on_device(x=x) for x in whole)

    def of_arrays(self, out_like: Any, inplace: str | None, masked: bool) -> "Given":
        """
        Return the same for NumPy's arrays, whatever f and the derivatives take and return.

        They may be on a device, be a library's or contain arrays, and f may store its results in
        arrays like `out_like`.
        """
        given = self
        if given.on_device():
            given, out_like = device_module("gradients").carried(given, out_like, inplace)
        jac = given.derivatives["jac"]
        if given.with_value and jac is not None:
            source = ValueAndJac(jac, given.primals)
            given = replace(given, derivatives={**given.derivatives, "jac": source})
        if out_like is not None:
            given = given.filling(out_like)
        if inplace is None:
            given = given.of_leaves()
        return given.translated(masked)

    def of_leaves(self) -> "Given":
        """Return the same for arrays alone, where the function is of containers of them."""
        if self.forms:
            return self._of_containers()
        library = function_library(self.several)
        if library is None:
            return self
        if isinstance(self.f, type) and hasattr(self.f, "apply"):  # a torch.autograd.Function
            msg = f"f is the class {self.f.__name__}: pass {self.f.__name__}.apply"
            raise TypeError(msg)
        f = self.f
        if self.kwargs:
            f = partial(f, **{name: _own(library, value) for name, value in self.kwargs.items()})
        chosen = self._named
        if chosen is None and self.args:
            chosen = tuple(range(len(self.several)))
        left_out = self.nondifferentiable_outputs
        flat = leaves_of(library, f, self._whole, chosen, left_out, {})
        return replace(self._with(flat), kwargs=None)

    @property
    def _whole(self) -> tuple[Any, ...]:
        return (*self.several, *self.args)

    @property
    def _named(self) -> tuple[int, ...] | None:
        if self.argnums is None:
            return None
        chosen = tuple(argnums_of(self.argnums, len(self._whole)))
        if not chosen:
            msg = "argnums is empty: name at least one input, or omit it"
            raise ValueError(msg)
        return chosen

    def _with(self, leaves: Leaves) -> "Given":
        return replace(
            self,
            f=leaves.f,
            inputs=leaves.inputs,
            args=(),
            argnums=leaves.argnums,
            nondifferentiable_outputs=leaves.nondifferentiable_outputs,
            leaves=leaves,
        )

    def _of_containers(self) -> "Given":
        """Return the same for arrays alone, with the derivatives that the caller gave."""
        nested, chosen = any(map(holds_arrays, self.several)), self._named
        if isinstance(self.f, (Dispatcher, InPlace, NumericalGradient)) and not nested:
            return self  # which take and return arrays
        if chosen is None:
            able = (holds_arrays(x) or is_differentiable(x) or is_array(x) for x in self.several)
            chosen = tuple(compress(range(len(self.several)), able))
        left_out, kwargs = self.nondifferentiable_outputs, self.kwargs or {}
        flat = leaves_of(NumpyContainers(), self.f, self._whole, chosen, left_out, kwargs)
        held: tuple[int, ...] = ()
        if self.argnums is None:
            opened, count = flat.f.opened, len(self.several)
            every = (k for owner in range(count) for k in opened.of_owner(owner))
            held = tuple(k for k in every if k not in flat.argnums)
        wrapped = Nested(flat, self._whole, held)
        calls = {
            name: None if call is None else getattr(wrapped, name)(call)
            for name, call in self.derivatives.items()
        }
        return replace(self._with(flat), derivatives=calls, held=held)

    def translated(self, masked: bool) -> "Given":
        """
        Return the same for NumPy's arrays: of a library's function, or of sparse matrices.

        A library's is one of arrays alone; see `of_leaves`.
        """
        if self.forms:
            return self._of_dense(masked)
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
                names_of(self.several, self.leaves),
            )
        except TypeError as error:
            note_form(error, f"f is called as f(*inputs, *args): {SEVERAL_INPUTS}")
            raise
        return self._of_library(result)

    def _of_library(self, result: Differentiated) -> "Given":
        if self.convention not in (CONVENTIONS[0], result.convention):
            msg = (
                f"convention={self.convention!r} applies to derivatives that are passed, "
                f"and these are {result.convention}'s: omit it"
            )
            raise ValueError(msg)
        return Given(
            result.f,
            result.inputs,
            {"jac": None, "vjp": result.vjp, "jvp": result.jvp},
            result.argnums if self.argnums is None else self.argnums,
            result.nondifferentiable_outputs,
            result.convention,
            batched=result.batched,
            of_library=True,
            constant=result.constant,
            primals=result.primals,
            leaves=self.leaves,
            terms=self.terms,
            used=result.used,
            places=result.places,
            names=self.names,
            labels=self.labels,
        )

    def _of_dense(self, masked: bool) -> "Given":
        dense = DenseView(self.several, masked, self.argnums)
        if not dense:
            return self
        derivatives = {
            name: None if call is None else getattr(dense, name)(call)
            for name, call in self.derivatives.items()
        }
        f, inputs = dense.function(self.f), dense.inputs
        return replace(self, f=f, inputs=inputs, derivatives=derivatives, places=dense.places)

    def filling(self, out_like: Any) -> "Given":
        """Return the same, with f one that stores its results in arrays like some."""
        if not self.forms:
            library = function_library(self.several)
            if library is not None:
                msg = (
                    "out_like= is for functions that store their results in NumPy arrays, "
                    "and f takes arrays of a different library: omit it"
                )
                raise ValueError(msg)
        likes = several(out_like)
        of_integers = any(isinstance(like, (int, np.integer)) for like in likes)
        arrays = tuple(np.asarray(as_array(like, "out_like")) for like in likes)
        if not likes or of_integers or any(x.dtype.kind not in "biufc" for x in arrays):
            msg = (
                "out_like must be an array like f's result, or a tuple of such arrays, "
                f"got {brief(out_like)}"
            )
            raise TypeError(msg)
        return replace(self, f=InPlace(self.f, arrays))

    def subject(self) -> Subject:
        """Return f at the point, after one call."""
        try:
            return pose(
                self.f,
                self.inputs,
                self.args,
                self.kwargs,
                self.argnums,
                self.nondifferentiable_outputs,
                self.batched,
                self.leaves,
                self.held,
                self.of_library,
                self.terms,
                self.places,
                self.labels,
            )
        except TypeError as error:
            owners = {library_of(x) for x in (*self.several, *self.args)} - {None}
            if owners and not self.of_library:
                error.add_note(
                    "f and the derivatives that were passed are called with NumPy arrays; "
                    "pass no derivatives to check those of the inputs' library"
                )
            note_tensors(error)
            raise

    def zeros(self, subject: Subject) -> tuple["Given", Subject]:
        """Return the claim that outputs declared not to be differentiable have no slope."""
        without = (k for k, o in enumerate(subject.outputs) if not has_differences(o.dtype))
        claim = replace(self, nondifferentiable_outputs=tuple(without))
        subject = claim.subject()
        nothing = (None,) * len(subject.active)
        none: dict[str, Callable[..., Any] | None] = dict.fromkeys(FORMS)
        return replace(claim, derivatives={**none, "vjp": lambda *_, **__: nothing}), subject

    def checked(
        self, subject: Subject, chosen: dict[str, bool], inplace: str | None, strict: bool
    ) -> list[GivenDerivative]:
        """Return the derivatives that are to be checked."""
        result = []
        for name in FORMS:
            call = self.derivatives[name]
            if call is None or not chosen[name]:
                continue
            if inplace is not None:
                call = _returning(call, name, subject, inplace == ADD)
            conjugate = self.convention == "jax"
            label = self.names.get(name, name)
            of_library = self.of_library
            result.append(
                GivenDerivative(name, call, subject, conjugate, strict, of_library, label)
            )
        return result


def _own(library: ContainerLibrary, value: Any) -> Any:
    """Copy what f may write into, also in containers."""
    leaves, again = apart(value)
    return again([copied(library, leaf) for _, leaf in leaves])


def _returning(
    call: Callable[..., Any], name: str, subject: Subject, adds: bool
) -> Callable[..., Any]:
    active = [p.example for p in subject.active]
    examples = [p.example for p in subject.kept]
    if name != "jac":
        return InPlace(call, tuple(active if name == "vjp" else examples), adds)
    pairs = [(out, x) for out in examples for x in active]
    likes = (np.empty(out.shape + x.shape, np.result_type(out, x)) for out, x in pairs)
    width = len(active)

    def arranged(arrays: tuple[Any, ...]) -> Any:
        rows = [arrays[k : k + width] for k in range(0, len(arrays), width)]
        outputs = [line if width > 1 else line[0] for line in rows]
        return outputs if subject.several else outputs[0]

    return InPlace(call, tuple(likes), adds, arranged)


def require_way(inplace: Any, given: Given) -> None:
    """Refuse a way of handing over that there is not, or that does not go with the rest."""
    if inplace is None:
        return
    if inplace not in WAYS:
        msg = f"inplace must be None, {' or '.join(map(repr, WAYS))}, got {inplace!r}"
        raise ValueError(msg)
    if given.with_value or not given.forms:
        msg = "inplace= applies to jac=, vjp= and jvp=: pass one of them, or omit it"
        raise ValueError(msg)
    if any(is_sparse(x) for x in given.several):
        msg = (
            "inplace= needs dense inputs, and one is a sparse matrix: pass functions that "
            "return their results"
        )
        raise ValueError(msg)
    if any(map(holds_arrays, given.several)):
        msg = (
            "inplace= needs arrays, and an input is a container: pass functions that return "
            "their results"
        )
        raise ValueError(msg)


class ValueAndJac:
    """A function that returns f's value and the Jacobian, as one that returns the latter."""

    def __init__(self, inner: Callable[..., Any], primals: dict[str, Any]) -> None:
        self._inner, self._primals = inner, primals

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the Jacobian, and note the value."""
        result = self._inner(*args, **kwargs)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            size = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
            msg = f"value_and_jac returned {type(result).__name__}{size}, expected (value, jac)"
            raise WrongFormError(msg)
        self._primals["value_and_jac"] = result[0]
        return result[1]
