"""A user's compiled function, found by the address of its machine code."""

import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numba
import numpy as np
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError

from .._jit import Kernels
from .._kernels.calls import Fills, Form, Returns, Rows
from .._protocols import NDArray

if TYPE_CHECKING:
    from .problem import Problem


@dataclass(frozen=True)
class Native:
    """How kernels call f; `key` names the types, `keep` holds what the address belongs to."""

    form: Form
    key: tuple[Any, ...]
    parallel: bool
    keep: Any
    _entries: dict[Any, Any] = field(default_factory=dict)

    def entry(self, kernels: Kernels, *more: Any) -> Any:
        """Return the kernel for f's types; hashing them takes longer than a small Jacobian."""
        name = (id(kernels), *more)
        found = self._entries.get(name)
        if found is None:
            key = (self.key, *more) if more else self.key
            found = self._entries[name] = kernels[key]
        return found

    def given(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> "Native":
        """Return the same for other arguments of the same kinds."""
        defaults = self.form.after[len(after) :]
        return replace(self, form=self.form._replace(before=before, after=(*after, *defaults)))

    def of_shape(self, shape: tuple[int, ...]) -> "Native":
        """Return the same for results of another shape."""
        return (
            self
            if shape == self.form.shape
            else replace(self, form=self.form._replace(shape=shape))
        )


# What was found of a function, by what it was asked with. The values do not hold the function.
_known: WeakKeyDictionary[Any, dict[Any, Native | None]] = WeakKeyDictionary()


def native_form(problem: "Problem") -> Native | None:
    """Return how kernels can call the function of a problem, or None if Python has to."""
    f, x = problem.f, problem.x
    if not isinstance(f, Dispatcher) or x.dtype.char not in "fdFD":
        return None
    if problem.dtype.char not in "fdFD":
        return None
    question = _question(problem)
    if question is None:
        return _sought(problem)
    answers = _known.setdefault(f, {})
    native = answers.get(question)
    if question not in answers or not _is_current(f, native):
        native = answers[question] = _sought(problem)
    if native is None:
        return None
    if problem.before or problem.after:
        native = native.given(problem.before, problem.after)
    return native.of_shape(_told(problem))


def _told(problem: "Problem") -> tuple[int, ...]:
    """Return the shape of f's results as far as their number does not tell it."""
    return problem.shape if len(problem.shape) > 1 else ()


def _is_current(f: Any, native: Native | None) -> bool:
    """Tell whether a function was not compiled anew since, as its globals have changed maybe."""
    return native is None or any(native.keep is own for own in list(f.overloads.values()))


def _question(problem: "Problem") -> Any:
    """Return what decides the form, or None if it is not worth remembering."""
    others = (*problem.before, *problem.after)
    kinds = tuple(kind_of(a) for a in others)
    if problem.kwargs or any(kind is None for kind in kinds):  # np.dtype(float) == None
        return None
    form = (problem.rowwise, problem.out_like is not None, len(problem.before))
    x = problem.x
    return (*form, x.dtype, x.ndim, problem.dtype, len(problem.shape), kinds)


def kind_of(x: Any) -> Any:
    """Return what decides how compiled code takes an argument, or None if that takes a closer look.

    Two arguments of the same kind are taken the same way.
    """
    if type(x) is np.ndarray:
        return x.dtype, x.ndim, x.flags.c_contiguous, x.flags.f_contiguous, x.flags.writeable
    if type(x) in (int, float, complex, bool) or isinstance(x, np.number):
        return np.dtype(type(x))
    return None


def _sought(problem: "Problem") -> Native | None:
    f: Any = problem.f
    x = problem.x
    others = _positional(problem)
    if others is None:
        return None
    before, after = others
    x_type = types.Array(numba.from_dtype(x.dtype), x.ndim, "C")
    out_type = types.Array(numba.from_dtype(problem.dtype), len(problem.shape), "C")
    kinds = [*map(numba.typeof, before), x_type, *map(numba.typeof, after)]
    make: type[Form] = Returns
    if problem.rowwise:
        make, kinds = Rows, [types.int64, *kinds]
    elif problem.out_like is not None:
        make, kinds = Fills, [*kinds, out_type]
    try:
        f.compile(tuple(kinds))
        compiled = f.overloads[tuple(kinds)]
    except (NumbaError, KeyError, RuntimeError):
        return None  # called from Python, f says itself what is wrong
    example = _example(make, compiled.signature.return_type, problem.dtype)
    if example is _UNFIT:
        return None
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    form = make(address, example, _told(problem), before, after)
    key = (numba.typeof(form), x.dtype, x.ndim, problem.dtype, len(problem.native_shape))
    return Native(form, key, bool(f.targetoptions.get("parallel")), compiled)


def _positional(problem: "Problem") -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return all other arguments of f by position, defaults too, or None if they have none."""
    marks = object(), object(), object()
    first = (marks[0],) if problem.rowwise else ()
    last = (marks[2],) if problem.out_like is not None and not problem.rowwise else ()
    signature = inspect.signature(problem.f.py_func)  # type: ignore[attr-defined]
    if any(
        p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY, p.VAR_KEYWORD)
        for p in signature.parameters.values()
    ):
        return None
    given = (*first, *problem.before, marks[1], *problem.after, *last)
    try:
        bound = signature.bind(*given, **problem.kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    values = list(bound.args)
    position = next(i for i, v in enumerate(values) if v is marks[1])
    if last and values[-1] is not marks[2]:
        return None
    stop = len(values) - len(last)
    return tuple(values[len(first) : position]), tuple(values[position + 1 : stop])


_UNFIT = object()


def _example(make: type[Form], found: Any, dtype: np.dtype[Any]) -> Any:
    """Return something of the type that f returns, if kernels can take that."""
    expected = numba.from_dtype(dtype)
    if make is Fills:
        return None if found == types.none else _UNFIT
    if found == expected:
        return dtype.type(0)
    if make is Rows or not isinstance(found, types.Array) or found.dtype != expected:
        return _UNFIT
    example: NDArray
    if found.layout == "A":
        example = np.empty((4,) * found.ndim, dtype)[(slice(None, None, 2),) * found.ndim]
    else:
        example = np.empty((2,) * found.ndim, dtype, order="F" if found.layout == "F" else "C")
    return example if numba.typeof(example) == found else _UNFIT
