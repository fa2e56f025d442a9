"""Calls of a user's compiled function by the address of its machine code."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from threading import get_ident
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numba
import numpy as np
from numba.core import types
from numba.core.errors import NumbaError
from numba.core.types.containers import BaseTuple

from .._core.jit import Kernels, require_no_compilation
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .._core.threads import get_num_threads
from .._kernels.function_calls import Fills, Form, Returns, RowCall

_MAX_OVERLAP_WORK = 1000  # work of np.shares_memory to exclude an overlap of two arrays


def size_of(values: tuple[Any, ...]) -> float:
    """Return the bytes of a copy of arguments; inf if they cannot be copied."""
    arrays: dict[int, Any] = {}
    if not _collect(values, arrays):
        return np.inf
    if any(_overlap(a, b) for a, b in combinations(arrays.values(), 2)):
        return np.inf
    return float(sum(array.nbytes for array in arrays.values()))


def _collect(value: Any, arrays: dict[int, Any]) -> bool:
    """Collect the writeable arrays in a value; return False if it is mutable otherwise."""
    if isinstance(value, tuple):
        return all(_collect(each, arrays) for each in value)
    if type(value) is np.ndarray and value.flags.aligned:
        if value.flags.writeable:
            arrays[id(value)] = value
        return True
    return not numba.typeof(value).mutable


def _overlap(one: Any, other: Any) -> bool:
    try:
        return bool(np.shares_memory(one, other, max_work=_MAX_OVERLAP_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def copy_writeable(value: Any, copies: dict[int, Any]) -> Any:
    """Copy writeable arrays, also in tuples; the same array is copied once."""
    if isinstance(value, tuple):
        items = [copy_writeable(each, copies) for each in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if not (isinstance(value, np.ndarray) and value.flags.writeable):
        return value
    if id(value) not in copies:
        copies[id(value)] = _like(value)
    return copies[id(value)]


def _like(array: Any) -> Any:
    """Copy an array, with a layout that has the same type in compiled code."""
    if array.flags.forc:
        return array.copy(order="K")
    strided = np.empty((*array.shape, 2), array.dtype)[..., 0]
    strided[...] = array
    return strided


def only_reads(f: Any, kinds: tuple[types.Type, ...], written: set[int]) -> bool:
    """Return True if f compiles with all arguments except `written` read-only."""
    untouched = tuple(k if i in written else _untouched(k) for i, k in enumerate(kinds))
    if any(_is_mutable(k) for i, k in enumerate(untouched) if i not in written):
        return False
    require_no_compilation()
    try:
        f.compile(untouched)
    except (NumbaError, RuntimeError):  # or f has explicit signatures
        return False
    return True


def _untouched(kind: types.Type) -> types.Type:
    if isinstance(kind, BaseTuple):
        made: types.Type = BaseTuple.from_types(
            tuple(map(_untouched, kind.types)), getattr(kind, "instance_class", None)
        )
        return made
    return kind.copy(readonly=True) if isinstance(kind, types.Array) else kind


def _is_mutable(kind: types.Type) -> bool:
    if isinstance(kind, BaseTuple):
        return any(map(_is_mutable, kind.types))
    return bool(kind.mutable)


@dataclass(frozen=True)
class LibraryFunction:
    """
    A function that takes an array of the library of `like` at a position.

    If `fills`, it also writes its results to an array of that library.
    """

    inner: Callable[..., Any]
    position: int
    like: Any
    fills: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's result, as NumPy's array if it is a library's."""
        library: Any = library_of(self.like)
        arguments = list(args)
        arguments[self.position] = library.put(arguments[self.position], self.like)
        if self.fills:
            arguments[-1] = library.from_numpy(arguments[-1])
        y = self.inner(*arguments, **kwargs)
        result_library = library_of(y)
        return y if result_library is None else result_library.fetch(y)


_SMALL_COPY_BYTES = 1 << 18  # bytes that fit the cache of a core next to other data
_THREAD_COPY_BYTES = 1 << 30  # largest copies for threads together, in bytes
_CHARS = frozenset("fdFD")  # dtypes of kernels


class CallForm(NamedTuple):
    """How f is called, ``f(*before, x, *after, **kwargs)``, and what it returns or fills."""

    f: Any
    before: tuple[Any, ...]
    x: NDArray
    after: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...]  # of the results
    dtype: np.dtype[Any]
    fills: bool  # whether f writes its results to an array
    rowwise: bool  # whether f returns one result, by its index


@dataclass(frozen=True)
class Native:
    """
    How kernels call f; `key` identifies the types, `keep` keeps the machine code alive.

    f may write to its other arguments: all threads except the creating one get copies of them.
    Large arguments are shared if f only reads them. Copies last for one run, since the caller may
    change the arguments before the next.
    """

    original_form: Form
    key: tuple[Any, ...]
    parallel: bool
    keep: Any
    f: Any  # a weak reference
    defaults: tuple[Any, ...]  # defaults of the last arguments
    _entries: dict[Any, Any] = field(default_factory=dict)
    _reads: list[bool] = field(default_factory=list)  # cached result of only_reads, if known
    _forms: dict[int, Form] = field(default_factory=dict, init=False)  # by thread

    def __post_init__(self) -> None:
        self._forms[get_ident()] = self.original_form

    @property
    def form(self) -> Form:
        """How this thread calls f."""
        thread = get_ident()
        form = self._forms.get(thread)
        if form is None:
            form = self.original_form
            if not self._shares:
                before, after = copy_writeable((form.before, form.after), {})
                form = form._replace(before=before, after=after)
            self._forms[thread] = form
        return form

    @property
    def forms(self) -> list[Form]:
        """How each thread called it in this run."""
        return list(self._forms.values())

    def begin(self) -> None:
        """Drop the copies of the last run."""
        if len(self._forms) > 1:
            for thread, form in list(self._forms.items()):
                if form is not self.original_form:
                    self._forms.pop(thread, None)

    @property
    def threads(self) -> int:
        """How many threads may call f at once."""
        wanted = 1 if self.parallel else get_num_threads()
        if wanted == 1 or self._shares:
            return wanted
        return min(wanted, 1 + int(_THREAD_COPY_BYTES / self._size if self._size < np.inf else 0))

    @cached_property
    def _size(self) -> float:
        return size_of((self.original_form.before, self.original_form.after))

    @property
    def _shares(self) -> bool:
        """Whether all threads may have the same arguments."""
        return self._size == 0 or (self._size > _SMALL_COPY_BYTES and self._only_reads)

    @property
    def _only_reads(self) -> bool:
        """Whether f can be compiled for arguments that it may not write into."""
        if not self._reads:
            form, kinds = self.original_form, self.keep.signature.args
            x = isinstance(form, RowCall) + len(form.before)
            self._reads.append(only_reads(self.f(), kinds, {x, x + len(form.after) + 1}))
        return self._reads[0]

    def is_worth_compiling(self, kernels: Kernels, elements: int) -> bool:
        """Return True if the kernel for f's types is compiled, or is worth it."""
        return (id(kernels),) in self._entries or kernels.is_worth_compiling(self.key, elements)

    def entry(self, kernels: Kernels, *more: Any) -> Any:
        """Return the kernel for f's types, cached since hashing them is slower than a small run."""
        name = (id(kernels), *more)
        entry = self._entries.get(name)
        if entry is None:
            key = (self.key, *more) if more else self.key
            entry = self._entries[name] = kernels[key]
        return entry

    def with_arguments(self, before: tuple[Any, ...], after: tuple[Any, ...]) -> "Native":
        """Return the same for other arguments of the same kinds."""
        form = self.original_form._replace(before=before, after=(*after, *self.defaults))
        return replace(self, original_form=form)

    def of_shape(self, shape: tuple[int, ...]) -> "Native":
        """Return the same for results of another shape."""
        form = self.original_form
        return (
            self if shape == form.shape else replace(self, original_form=form._replace(shape=shape))
        )


# Forms of a function by cache key. The values hold neither the arguments nor f.
_native_forms: WeakKeyDictionary[Any, dict[Any, Native | None]] = WeakKeyDictionary()


def native_form(call: CallForm) -> Native | None:
    """Return how kernels can call a compiled f, or None if Python has to."""
    f = call.f
    if not {call.x.dtype.char, call.dtype.char} <= _CHARS:
        return None
    key = _cache_key(call)
    if key is None:
        return _compile_form(call)
    forms = _native_forms.setdefault(f, {})
    native = forms.get(key)
    if key not in forms or not is_current(f, native):
        native = _compile_form(call)
        forms[key] = native and native.with_arguments((), ())
    elif native is not None:
        if call.before or call.after:
            native = native.with_arguments(call.before, call.after)
        native = native.of_shape(_array_shape(call))
    return native


def _array_shape(call: CallForm) -> tuple[int, ...]:
    """Return the shape of f's results if it has several axes, else ()."""
    return call.shape if len(call.shape) > 1 else ()


def is_current(f: Any, native: Native | None) -> bool:
    """Return True unless f was recompiled since, for example after a change of globals."""
    return native is None or any(native.keep is overload for overload in list(f.overloads.values()))


def _cache_key(call: CallForm) -> Any:
    """Return a key that determines the form of a call, or None if it is not to be cached."""
    others = (*call.before, *call.after)
    kinds = tuple(kind_of(a) for a in others)
    if call.kwargs or any(kind is None for kind in kinds):  # np.dtype(float) == None
        return None
    form = (call.rowwise, call.fills, len(call.before))
    x = call.x
    return (*form, x.dtype, x.ndim, call.dtype, len(call.shape), kinds)


def kind_of(x: Any) -> Any:
    """Return a key that determines an argument's type in compiled code, or None if unknown.

    Two arguments of the same kind have the same type.
    """
    if type(x) is np.ndarray:
        return x.dtype, x.ndim, x.flags.c_contiguous, x.flags.f_contiguous, x.flags.writeable
    if type(x) in (int, float, complex, bool) or isinstance(x, np.number):
        return np.dtype(type(x))
    return None


def _compile_form(call: CallForm) -> Native | None:
    f, x = call.f, call.x
    others = _positional(call)
    if others is None:
        return None
    before, after = others
    x_type = types.Array(numba.from_dtype(x.dtype), x.ndim, "C")
    out_type = types.Array(numba.from_dtype(call.dtype), len(call.shape), "C")
    kinds = [*map(numba.typeof, before), x_type, *map(numba.typeof, after)]
    make: type[Form] = Returns
    if call.rowwise:
        make, kinds = RowCall, [types.int64, *kinds]
    elif call.fills:
        make, kinds = Fills, [*kinds, out_type]
    require_no_compilation()
    try:
        f.compile(tuple(kinds))
        compiled = f.overloads[tuple(kinds)]
    except (NumbaError, KeyError, RuntimeError):
        return None  # f raises its own error when called from Python
    example = _example(make, compiled.signature.return_type, call.dtype)
    if example is _UNFIT:
        return None
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    form = make(address, example, _array_shape(call), before, after)
    axes = len(call.shape) if make is Fills else 1
    key = (numba.typeof(form), x.dtype, x.ndim, call.dtype, axes)
    parallel = bool(f.targetoptions.get("parallel"))
    return Native(form, key, parallel, compiled, ref(f), after[len(call.after) :])


def _positional(call: CallForm) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return all other arguments of f by position, defaults too, or None if they have none."""
    marks = object(), object(), object()
    first = (marks[0],) if call.rowwise else ()
    last = (marks[2],) if call.fills and not call.rowwise else ()
    signature = inspect.signature(call.f.py_func)
    if any(
        p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY, p.VAR_KEYWORD)
        for p in signature.parameters.values()
    ):
        return None
    positional = (*first, *call.before, marks[1], *call.after, *last)
    try:
        bound = signature.bind(*positional, **call.kwargs)
    except TypeError:
        return None
    named = set(bound.arguments)
    bound.apply_defaults()
    # Numba compiles into f what an array was when it first met it as a default.
    if any(_holds_array(v) for name, v in bound.arguments.items() if name not in named):
        return None
    values = list(bound.args)
    position = next(i for i, v in enumerate(values) if v is marks[1])
    if last and values[-1] is not marks[2]:
        return None
    stop = len(values) - len(last)
    return tuple(values[len(first) : position]), tuple(values[position + 1 : stop])


def _holds_array(value: Any) -> bool:
    return any(map(_holds_array, value)) if isinstance(value, tuple) else np.ndim(value) > 0


_UNFIT = object()


def _example(make: type[Form], kind: Any, dtype: np.dtype[Any]) -> Any:
    """Return an example of the type that f returns, or _UNFIT if kernels cannot use it."""
    expected = numba.from_dtype(dtype)
    if make is Fills:
        return None if kind == types.none else _UNFIT
    if kind == expected:
        return dtype.type(0)
    if make is RowCall or not isinstance(kind, types.Array) or kind.dtype != expected:
        return _UNFIT
    example: NDArray
    if kind.layout == "A":
        example = np.empty((4,) * kind.ndim, dtype)[(slice(None, None, 2),) * kind.ndim]
    else:
        example = np.empty((2,) * kind.ndim, dtype, order="F" if kind.layout == "F" else "C")
    return example if numba.typeof(example) == kind else _UNFIT
