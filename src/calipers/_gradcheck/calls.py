"""Calls of f and its derivatives: errors, adapters, copies of arguments, the check as code."""

import inspect
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, wraps
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .._core.arguments import note_form, unexpected_keyword
from .._core.arrays import as_array
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .._core.report import MODULES, name_in_code
from .containers import Structure
from .flatten import WrongFormError, as_outputs, real_rows, real_vector

P = ParamSpec("P")
R = TypeVar("R")

__tracebackhide__ = True  # pytest shows an error at the line that called calipers

WRITE, ADD = WAYS = ("write", "add")
_REQUIRED = ("f", "inputs")
# Options that change how long a check takes and what it does with its report, not the verdict.
_WITHOUT_EFFECT = frozenset({"raise_exception", "workers", "progress", "checkpoint"})
# Names of inputs if f has none; more inputs than these are shown as one tuple, `inputs`.
_NAMES = ("x", "w", "b")
_LONGEST = 40  # characters: a longer value is replaced by the name of its option


def explains_call(checker: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``checker(f, inputs, ...)`` so that its errors say how several inputs are passed."""
    names = inspect.signature(checker).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in names.values())  # and checks them itself

    @wraps(checker)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if takes_any or kwargs.keys() <= names.keys():
                return checker(*args, **kwargs)
            unknown = [name for name in kwargs if name not in names]
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # raised inside of the checker
                raise
            unknown = [name for name in kwargs if name not in names]
            if not unknown:
                several = f"pass the inputs as one tuple: {checker.__name__}(f, (x, w, b), ...)"
                note_form(error, several)
                raise
        raise unexpected_keyword(checker.__name__, unknown[0], names, listed=False)

    return call


def _each(of: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to a value, or to all items of lists, tuples and dicts."""
    if type(value) in (list, tuple):
        return type(value)(_each(of, item) for item in value)
    if type(value) is dict:
        return {key: _each(of, item) for key, item in value.items()}
    return of(value)


def private(value: Any) -> Any:
    """Copy arrays, also in lists, tuples and dicts; return other values unchanged."""
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    return _each(private, value) if type(value) in (list, tuple, dict) else value


def noncontiguous(x: NDArray) -> NDArray:
    """Return an equal array in Fortran order, with gaps between elements."""
    view: NDArray = np.stack((x.T, x.T), axis=-1)[..., 0].T
    return view


def _as_numpy(value: Any) -> Any:
    """Copy an array of a library to a NumPy array, if NumPy has its dtype."""
    if isinstance(value, np.ndarray) or library_of(value) is None:
        return value
    try:
        return np.array(as_array(value))
    except TypeError:
        return value


def of_numpy(value: Any) -> Any:
    """Replace arrays of libraries by NumPy copies, also in lists, tuples and dicts."""
    return _each(_as_numpy, value)


def same(new: Any, old: Any) -> bool:
    """Return True if arrays are bitwise equal to the originals that they were copied from."""
    if isinstance(old, np.ndarray):
        return np.asarray(new).tobytes() == old.tobytes()
    if type(old) in (list, tuple):
        return len(new) == len(old) and all(map(same, new, old))
    if type(old) is dict:
        return new.keys() == old.keys() and all(same(new[key], old[key]) for key in old)
    return True


@dataclass(frozen=True)
class AdaptedFunction:
    """
    The caller's function, as a function of NumPy arrays that returns NumPy arrays.

    A call converts what the caller's function takes and returns: containers, sparse matrices, and
    arrays in which it stores its results. The other methods return the differentiable outputs in
    one array.
    """

    inner: Callable[..., Any]
    structure: Structure | None = None  # how arguments and results are made of arrays
    likes: tuple[NDArray, ...] | None = None  # arrays like the results, if f stores them
    fill_value: float = np.nan  # so that elements that are not written are not taken for zeros
    by_library: Callable[..., Any] | None = None  # f of NumPy arrays, as f's library calls it
    kinds: Sequence[Any] = ()  # the shape and dtype of each output
    positions: tuple[int, ...] = ()  # of the differentiable outputs
    one_input: bool = True  # whether f is differentiated with respect to one input only
    of_batch: Callable[..., Any] | None = None  # f of batches of one input
    position: int = 0  # of that input

    @classmethod
    def of(cls, f: Callable[..., Any], **changes: Any) -> "AdaptedFunction":
        """Return the adapter of f with some fields changed; f may be an adapter."""
        return replace(f, **changes) if isinstance(f, cls) else cls(f, **changes)

    @property
    def direct(self) -> Callable[..., Any]:
        """The caller's function if that takes NumPy arrays, with those for results; else this."""
        takes_arrays = self.structure is None and self.by_library is None
        return self.inner if takes_arrays else self

    def __call__(self, *arrays: Any, **kwargs: Any) -> Any:
        """Return an array or a tuple of arrays."""
        if self.by_library is not None:
            return self.by_library(*arrays)
        structure, likes, arguments = self.structure, self.likes, arrays
        if structure is not None and not structure.takes_arrays:
            arguments = tuple(structure.arguments(arrays))
        if likes is None:
            y = self.inner(*arguments, **kwargs)
        else:
            outs = tuple(np.full_like(like, self.fill_value) for like in likes)
            self.inner(*arguments, *outs, **kwargs)
            y = outs if len(outs) > 1 else outs[0]
        return y if structure is None or isinstance(y, np.ndarray) else structure.result(y)

    def real_outputs(self, *arrays: Any, **kwargs: Any) -> NDArray:
        """Return the outputs as a real vector; NaN if f raises LinAlgError (singular matrix)."""
        try:
            y = self(*arrays, **kwargs)
        except Exception as error:
            if not type(error).__name__.endswith("LinAlgError"):  # NumPy's, SciPy's, or torch's
                raise
            zeros = real_vector([np.zeros(*self.kinds[k]) for k in self.positions])
            return np.full_like(zeros, np.nan)
        return self.reals_of(y)

    def reals_of(self, y: Any) -> NDArray:
        """Return the real vector of a result of f, whose shapes and dtypes must not change."""
        if type(y) is np.ndarray and [(y.shape, y.dtype)] == self.kinds and self.positions:
            return real_vector([y])
        outputs = (y,) if type(y) is np.ndarray else as_outputs(y)[0]
        kinds = [(output.shape, output.dtype) for output in outputs]
        if kinds != self.kinds:
            as_outputs(y)  # raises a TypeError for an array that is not of numbers
            raise ValueError(_changed(self.kinds, kinds))
        return real_vector([outputs[k] for k in self.positions])

    def complex_outputs(self, *arrays: Any, **kwargs: Any) -> NDArray:
        """Return the outputs for complex arguments as a vector, complex if one of them is."""
        outputs, _ = as_outputs(self(*arrays, **kwargs))
        flat = np.concatenate([outputs[k].reshape(-1) for k in self.positions])
        # Real outputs may mean that f depends on other inputs.
        return flat if self.one_input else flat.astype(np.result_type(flat, np.complex64))

    def real_rows(self, *arrays: Any, **kwargs: Any) -> NDArray:
        """Return a row of real numbers for each point of a batch of one input."""
        assert self.of_batch is not None
        outputs, _ = as_outputs(self.of_batch(*arrays, **kwargs))
        return real_rows([outputs[k] for k in self.positions])

    def real_rows_or_each(self, *arrays: Any, **kwargs: Any) -> NDArray:
        """Return the rows for a batch; if the batch fails, from one point at a time."""
        try:
            return self.real_rows(*arrays, **kwargs)
        except Exception:  # one of the points may raise again, and then explains it
            k = self.position
            before, points, after = arrays[:k], arrays[k], arrays[k + 1 :]
            return np.stack([self.real_outputs(*before, x, *after, **kwargs) for x in points])


def _changed(kinds: Sequence[Any], others: Sequence[Any]) -> str:
    """Return the message for outputs whose shape or dtype has changed."""
    of_shape = [shape for shape, _ in kinds] != [shape for shape, _ in others]
    k, what = (0, "shape") if of_shape else (1, "dtype")
    then, since = (", ".join(str(kind[k]) for kind in each) for each in (kinds, others))
    return (
        f"f returned outputs of {what} {then} and then {since}: "
        f"their {what} must not depend on the values of the inputs"
    )


@dataclass(frozen=True)
class AdaptedDerivative:
    """
    The caller's jac, vjp or jvp, as a function of NumPy arrays that returns NumPy arrays.

    The last argument of vjp and jvp is a direction.
    """

    form: str
    inner: Callable[..., Any]
    structure: Structure | None = None  # how arguments and results are made of arrays
    primals: dict[str, Any] | None = None  # where the value of value_and_jac is stored
    likes: tuple[NDArray, ...] | None = None  # arrays like the results, if it stores them
    adds: bool = False  # whether it adds the results to these arrays
    width: int = 1  # the number of arrays for one output of jac
    several: bool = False  # whether results are a tuple

    @property
    def direct(self) -> Callable[..., Any]:
        """The caller's function if calls of that suffice, with arrays that it overwrites last."""
        suffices = self.structure is None and self.primals is None and not self.adds
        return self.inner if suffices else self

    def filling(
        self, inputs: Sequence[NDArray], outputs: Sequence[NDArray], several: bool, adds: bool
    ) -> "AdaptedDerivative":
        """Return the adapter of a derivative that stores its results in arrays."""
        if self.form != "jac":
            likes = tuple(inputs if self.form == "vjp" else outputs)
            return replace(self, likes=likes, adds=adds, several=len(likes) > 1)
        pairs = [(out, x) for out in outputs for x in inputs]
        likes = tuple(np.empty(y.shape + x.shape, np.result_type(y, x)) for y, x in pairs)
        return replace(self, likes=likes, adds=adds, width=len(inputs), several=several)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the derivative by arrays."""
        if self.likes is not None:
            start = 0 if self.adds else np.nan
            outs = tuple(np.full_like(like, start) for like in self.likes)
            self.inner(*args, *outs, **kwargs)
            width = self.width
            rows = [outs[k : k + width] for k in range(0, len(outs), width)]
            blocks: Sequence[Any] = rows if width > 1 else outs
            return blocks if self.several else blocks[0]
        structure = self.structure
        if structure is not None and structure.takes_arrays and not structure.outputs:
            structure = None  # arguments and results are arrays themselves
        arguments = args if structure is None else structure.of_derivative(self.form, args)
        result = self.inner(*arguments, **kwargs)
        if self.primals is not None:
            result = self._without_value(result, self.primals)
        return result if structure is None else structure.by_arrays(self.form, result)

    def _without_value(self, result: Any, primals: dict[str, Any]) -> Any:
        """Return the Jacobian from (value, jac), and store the value."""
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            size = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
            msg = f"value_and_jac returned {type(result).__name__}{size}, expected (value, jac)"
            raise WrongFormError(msg)
        primals["value_and_jac"] = result[0]
        return result[1]


@dataclass(frozen=True)
class Call:
    """
    A call of a checker, and its text as code.

    Functions are shown by their names if these are identifiers, inputs by the names of f's
    parameters or as x, w and b. Options are shown if they differ from their defaults and affect the
    verdict.
    """

    checker: str
    arguments: Mapping[str, Any]  # by name, without those that have their default

    @classmethod
    def of(cls, checker: Callable[..., Any], arguments: Mapping[str, Any]) -> "Call":
        """Return the call of `checker`, from a value for each of its parameters."""
        defaults = _defaults(checker)
        flat = {**arguments, **arguments.get("options", {})}
        flat.pop("options", None)
        chosen = {}
        for name in dict.fromkeys((*defaults, *flat)):  # in the order of the signature
            if name in flat and name not in _WITHOUT_EFFECT:
                value, default = flat[name], defaults.get(name, _NO_DEFAULT)
                if value is not default and not _is_default(value, default):
                    chosen[name] = value
        return cls(checker.__name__, chosen)

    @property
    def f(self) -> str:
        """The function, as code."""
        return name_in_code(self.arguments["f"], "f", self._names)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The names of the inputs: those of f's first parameters, unless code uses them."""
        inputs = self.arguments["inputs"]
        count = len(inputs) if isinstance(inputs, (tuple, list)) else 1
        names = _parameters_of(self.arguments["f"])[:count]
        taken = {"calipers", *MODULES.values(), *self.arguments}
        return names if len(names) == count and taken.isdisjoint(names) else _NAMES

    def each_input(self, code: Callable[[Any, str], str] | None = None) -> str:
        """Return the inputs as code, each as `code` writes it from its value and its name."""
        inputs = self.arguments["inputs"]
        if not isinstance(inputs, (tuple, list)):
            text = _shown(inputs, self._names[0])
            return text if code is None else code(inputs, text)
        if len(inputs) > len(_NAMES) or not inputs:
            return "inputs"
        names = zip(inputs, self._names, strict=False)
        pairs = [(x, _shown(x, name)) for x, name in names]
        items = [text if code is None else code(x, text) for x, text in pairs]
        return f"({', '.join(items)}{',' * (len(items) == 1)})"

    def text(self, *, inputs: str | None = None, **changes: Any) -> str:
        """Return the call as code, with changed inputs and options; None removes an option."""
        f = self.f
        taken, shown = [f, *self._names], [f, inputs or self.each_input()]
        for name, value in {**self.arguments, **changes}.items():
            if name in _REQUIRED or value is None:
                continue
            text = name_in_code(value, name, taken) if callable(value) else _shown(value, name)
            taken.append(text)
            shown.append(f"{name}={text}")
        return f"calipers.{self.checker}({', '.join(shown)})"


_NO_DEFAULT = object()


@cache
def _defaults(checker: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the defaults of a checker's options; inspection takes a tenth of a small check."""
    return {name: p.default for name, p in inspect.signature(checker).parameters.items()}


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(default, tuple) and isinstance(value, Collection):
        return len(value) == len(default) == 0
    return value is default or (type(value) is type(default) and bool(value == default))


def _parameters_of(f: Any) -> tuple[str, ...]:
    """Return the names of f's first parameters that take one positional argument each."""
    if type(f) is FunctionType and not f.__dict__:  # inspection takes ten times as long
        return f.__code__.co_varnames[: f.__code__.co_argcount]
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # f is not written in Python
        return ()
    names: list[str] = []
    for p in parameters:
        if p.kind not in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            break
        names.append(p.name)
    return tuple(names)


def _shown(value: Any, name: str) -> str:
    """Return a value as code if it is short and plain, else the name of its argument."""
    if isinstance(value, np.ndarray):
        return name
    value = value.item() if isinstance(value, (np.number, np.bool)) else value
    text = _literal(value) if _is_plain(value) else name
    return text if len(text) <= _LONGEST else name


def _literal(value: Any) -> str:
    """Return the code of plain values, with strings in double quotes and sets sorted."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, (set, frozenset)) and value:
        return f"{{{', '.join(sorted(map(_literal, value)))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list, set, frozenset):
        return all(map(_is_plain, value))
    if type(value) in (float, complex):
        return bool(np.isfinite(value))
    return value is None or type(value) in (bool, int, str)


def in_float64(x: Any, name: str) -> str:
    """Return code for an input in double precision."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "fc":
        return f'{name}.astype("{"complex128" if x.dtype.kind == "c" else "float64"}")'
    is_tensor = "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor)
    return f"{name}.detach().double().requires_grad_()" if is_tensor else name
