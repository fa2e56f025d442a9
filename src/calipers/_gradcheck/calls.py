"""Calls of functions: their errors, copies of arguments, results in place, the check as code."""

import inspect
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from itertools import takewhile
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .._core.arguments import nearest, note_form
from .._core.arrays import as_array
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .._core.report import MODULES, name_in_code

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
        unknown = [name for name in kwargs if name not in names]
        try:
            if takes_any or not unknown:
                return checker(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # raised inside of the checker
                raise
            if not unknown:
                several = f"pass the inputs as one tuple: {checker.__name__}(f, (x, w, b), ...)"
                note_form(error, several)
                raise
        raise unexpected_option(checker, unknown[0], names)

    return call


def unexpected_option(checker: Callable[..., Any], name: str, names: Iterable[str]) -> TypeError:
    """Return the TypeError for an unexpected keyword, with the most similar one that is valid."""
    msg = f"{checker.__name__}() got an unexpected keyword argument {name!r}"
    return TypeError(f"{msg}{nearest(name, names)}")


def _each(of: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to a value, or to all items of lists, tuples and dicts."""
    if type(value) in (list, tuple):
        return type(value)(_each(of, item) for item in value)
    if type(value) is dict:
        return {key: _each(of, item) for key, item in value.items()}
    return of(value)


def private(value: Any) -> Any:
    """Copy arrays, also in lists, tuples and dicts; return other values unchanged."""
    return _each(lambda x: x.copy(order="K") if isinstance(x, np.ndarray) else x, value)


def noncontiguous(x: NDArray) -> NDArray:
    """Return an equal array in Fortran order, with gaps between elements."""
    view: NDArray = np.stack((x.T, x.T), axis=-1)[..., 0].T
    return view


def _as_numpy(value: Any) -> Any:
    """Copy an array of a library to a NumPy array, if NumPy has its dtype."""
    if library_of(value) is None:
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


class InPlace:
    """
    Wrapper that returns the results of a function that stores them in its last arguments.

    `likes` are arrays like the results. A function that `adds` to these arrays gets zeros.
    `arranged` makes the return value from the arrays.
    """

    def __init__(
        self,
        inner: Callable[..., Any],
        likes: tuple[NDArray, ...],
        adds: bool = False,
        arranged: Callable[[tuple[NDArray, ...]], Any] | None = None,
    ) -> None:
        self.inner, self.likes, self.adds = inner, likes, adds
        self._arranged = arranged or _one_or_all

    @property
    def way(self) -> str:
        return ADD if self.adds else WRITE

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results."""
        # Elements that are not written stay NaN, so that they are not taken for zeros.
        return self.over(0 if self.adds else np.nan, args, kwargs)

    def over(self, start: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the results in new arrays that were filled with `start` before the call."""
        arrays = tuple(np.full_like(like, start) for like in self.likes)
        return self._arranged(self.into(arrays, args, kwargs))

    def into(
        self, arrays: tuple[NDArray, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[NDArray, ...]:
        """Call the function with arrays for its results, and return these arrays."""
        self.inner(*args, *arrays, **kwargs)
        return arrays


def filling_derivative(
    form: str,
    call: Callable[..., Any],
    inputs: Sequence[NDArray],
    outputs: Sequence[NDArray],
    several: bool,
    adds: bool,
) -> InPlace:
    """Wrap a derivative that stores its results in arrays, so that it returns them."""
    if form != "jac":
        return InPlace(call, tuple(inputs if form == "vjp" else outputs), adds)
    pairs = [(out, x) for out in outputs for x in inputs]
    likes = (np.empty(out.shape + x.shape, np.result_type(out, x)) for out, x in pairs)
    width = len(inputs)

    def arranged(arrays: tuple[Any, ...]) -> Any:
        rows = [arrays[k : k + width] for k in range(0, len(arrays), width)]
        blocks = [row if width > 1 else row[0] for row in rows]
        return blocks if several else blocks[0]

    return InPlace(call, tuple(likes), adds, arranged)


def _one_or_all(arrays: tuple[Any, ...]) -> Any:
    return arrays if len(arrays) > 1 else arrays[0]


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
        parameters = _parameters(checker)
        flat = {**arguments, **arguments.get("options", {})}
        flat.pop("options", None)
        names = dict.fromkeys((*parameters, *flat))  # in the order of the signature
        chosen = {
            name: flat[name]
            for name in names
            if name in flat
            and name not in _WITHOUT_EFFECT
            and not (name in parameters and _is_default(flat[name], parameters[name].default))
        }
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

    def each_input(self, code: Callable[[Any, str], str] = lambda _, shown: shown) -> str:
        """Return the inputs as code, each as `code` writes it from its value and its name."""
        inputs = self.arguments["inputs"]
        if not isinstance(inputs, (tuple, list)):
            return code(inputs, _shown(inputs, self._names[0]))
        if len(inputs) > len(_NAMES) or not inputs:
            return "inputs"
        names = zip(inputs, self._names, strict=False)
        items = [code(x, _shown(x, name)) for x, name in names]
        return f"({', '.join(items)}{',' * (len(items) == 1)})"

    def text(self, *, inputs: str | None = None, **changes: Any) -> str:
        """Return the call as code, with changed inputs and options; None removes an option."""
        taken = [self.f, *self._names]
        shown = [self.f, inputs or self.each_input()]
        for name, value in {**self.arguments, **changes}.items():
            if name in _REQUIRED or value is None:
                continue
            text = name_in_code(value, name, taken) if callable(value) else _shown(value, name)
            taken.append(text)
            shown.append(f"{name}={text}")
        return f"calipers.{self.checker}({', '.join(shown)})"


@cache
def _parameters(checker: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a checker; inspection takes a tenth of a small check."""
    return inspect.signature(checker).parameters


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(default, tuple) and isinstance(value, Collection):
        return len(value) == len(default) == 0
    return value is default or (type(value) is type(default) and bool(value == default))


def _parameters_of(f: Any) -> tuple[str, ...]:
    """Return the names of f's first parameters that take one positional argument each."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):  # f is not written in Python
        return ()
    plain = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(p.name for p in takewhile(lambda p: p.kind in plain, parameters))


def _shown(value: Any, name: str) -> str:
    """Return a value as code if it is short and plain, else the name of its argument."""
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
