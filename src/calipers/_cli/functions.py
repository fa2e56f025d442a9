"""Commands on functions: gradcheck and diagnose."""

import importlib
import importlib.util
import itertools
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from types import FunctionType, ModuleType
from typing import Any, ClassVar

import click

from .output import echo_report, json_option, user_output

_LIBRARIES = ("numpy", "torch", "jax")


def input_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the inputs of functions."""
    options = (
        click.option(
            "--inputs",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="File with the inputs, in order: .npy, .npz or .safetensors.",
        ),
        click.option(
            "--shape",
            "shapes",
            metavar="N,N",
            multiple=True,
            help="Shape of a normal random input, as 3,4; repeat for more inputs.",
        ),
        click.option("--dtype", help="dtype of the random inputs.  [default: float64]"),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="Seed of the random inputs.",
        ),
        click.option(
            "--library",
            type=click.Choice(_LIBRARIES),
            default="numpy",
            show_default=True,
            help="The library of the arrays that functions take.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def function_of(text: str) -> Callable[..., Any]:
    """Return the function of "module:name" or "file.py:name"."""
    home, colon, name = text.rpartition(":")
    if not colon or not home or not name:
        msg = f"{text!r} is not a function: write module:function or file.py:function"
        raise click.UsageError(msg)
    folder = _home(os.path.dirname(os.path.abspath(home)) if home.endswith(".py") else os.getcwd())
    with errors_in_one_line(f"{home} cannot be imported"):
        folder.enter()
        result: Any = _module(home)
        for part in name.split("."):
            if not hasattr(result, part):
                msg = f"{home} has no {name}"
                raise click.UsageError(msg)
            result = getattr(result, part)
    if not callable(result):
        msg = f"{text} cannot be called: it is of type {type(result).__name__}"
        raise click.UsageError(msg)
    call: Callable[..., Any] = result
    return folder.at_home(call)


class _Home:
    """A folder, and the modules of it that were imported while it was the one to import from."""

    current: ClassVar["_Home | None"] = None

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.modules: dict[str, ModuleType] = {}
        self.earlier: set[str] = set()

    def enter(self) -> None:
        """Let imports find the modules next to a file, as when it is run, and no other file's."""
        if _Home.current is self:
            return
        if _Home.current is not None:
            _Home.current._leave()
        self.earlier = {name.partition(".")[0] for name in sys.modules}
        sys.path.insert(0, self.folder)
        sys.modules.update(self.modules)
        _Home.current = self

    def _leave(self) -> None:
        with suppress(ValueError):
            sys.path.remove(self.folder)
        for name, module in list(sys.modules.items()):
            top = name.partition(".")[0]
            if top not in self.earlier and self._holds(sys.modules.get(top, module)):
                self.modules[name] = module
        for name in self.modules:
            sys.modules.pop(name, None)

    def _holds(self, module: ModuleType) -> bool:
        spec = getattr(module, "__spec__", None)
        locations = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
        return self.folder in (
            os.path.dirname(os.path.abspath(location)) for location in locations if location
        )

    def at_home(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """Return f, whose calls can import the modules next to it."""
        # What else can be called stays what it is, for libraries that look at its type.
        if not isinstance(f, FunctionType):
            return f

        @wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.enter()
            return f(*args, **kwargs)

        return call


_home = lru_cache(_Home)
_count = itertools.count()


def _module(home: str) -> Any:
    if not home.endswith(".py"):
        return importlib.import_module(home)
    # A name that no import asks for: a file may have that of a library.
    name = f"_calipers_{next(_count)}_{os.path.basename(home)[:-3].replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, home)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def inputs_of(
    inputs: str | None, shapes: tuple[str, ...], dtype: str | None, seed: int, library: str
) -> tuple[Any, ...]:
    """Return the inputs that the options name."""
    if (inputs is None) == (not shapes):
        msg = "pass the inputs by --inputs FILE or by --shape"
        raise click.UsageError(msg)
    if inputs is not None and dtype is not None:
        msg = f"--dtype {dtype} applies to random inputs; the arrays of {inputs} have dtypes"
        raise click.UsageError(msg)
    with errors_in_one_line("inputs"):
        arrays = _random(shapes, _dtype(dtype), seed) if inputs is None else _read(inputs)
        result = tuple(_of_library(x, library) for x in arrays)
    if library == "jax" and dtype is not None:
        for x, y in zip(arrays, result, strict=True):
            if x.dtype != y.dtype:  # jax itself says nothing
                msg = (
                    f"--dtype {dtype}: jax makes {y.dtype} of it; set JAX_ENABLE_X64=1 for float64"
                )
                raise click.UsageError(msg)
    return result


def _read(path: str) -> list[Any]:
    from .._files import FileError
    from .._files.opening import is_foreign, opened

    if is_foreign(path):
        msg = f"{path}: inputs are read from .npy, .npz and .safetensors"
        raise FileError(msg)
    with opened(path, follow_links=False) as contents:
        for name, reason in contents.left_out.items():
            msg = f"{path}: {name or 'the array'} is not an input: {reason}"
            raise FileError(msg)
        return [entry.load() for entry in contents.arrays.values()]


def _dtype(name: str | None) -> Any:
    import numpy as np

    with suppress(TypeError):
        result = np.dtype(name or "float64")
        if result.kind in "biufc":
            return result
    msg = f"--dtype {name}: not a numeric dtype of NumPy, such as float32 or complex64"
    raise click.UsageError(msg)


def _random(shapes: tuple[str, ...], kind: Any, seed: int) -> list[Any]:
    import numpy as np

    random = np.random.default_rng(seed)
    result = []
    for shape in map(_shape, shapes):
        x: Any = random.normal(size=shape)
        if kind.kind == "c":
            x = x + 1j * random.normal(size=shape)
        result.append(np.asarray(x, kind))
    return result


def _shape(text: str) -> tuple[int, ...]:
    """Return lengths with commas between them; the empty text has none."""
    try:
        shape = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        msg = f"--shape {text}: not a shape, such as 3,4"
        raise click.UsageError(msg)
    return shape


def _of_library(x: Any, library: str) -> Any:
    if library == "torch":
        import torch

        return torch.from_numpy(x).requires_grad_(x.dtype.kind in "fc")
    if library == "jax":
        import jax.numpy

        return jax.numpy.asarray(x)
    return x


@contextmanager
def errors_in_one_line(what: str) -> Iterator[None]:
    """Turn any error, and an exit of the user's code, into one line that says where it arose."""
    from .._files import described, one_line

    try:
        yield
    except (click.ClickException, KeyboardInterrupt):
        raise
    except BaseException as error:
        # jax has notes of several lines, about its own frames.
        notes = [one_line(note) for note in getattr(error, "__notes__", ()) if "\n" not in note]
        msg = "; ".join([f"{what}: {described(error)}{_location(error)}", *notes])
        raise click.ClickException(msg) from error


def _location(error: BaseException) -> str:
    """Return the line of the user's code that an error comes from."""
    home = os.path.dirname(os.path.dirname(__file__))
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if frame.filename.startswith((home, "<")):
        return ""
    return f" ({frame.filename}:{frame.lineno})"


@click.command(short_help="Find why two implementations differ: rounding or a bug.")
@click.argument("f")
@click.argument("g")
@input_options
@json_option
def diagnose(f: str, g: str, *, seed: int, as_json: bool, **inputs: Any) -> int:
    """
    Find why two implementations of one function differ: rounding or a bug.

    F and G are module:function, or file.py:function. The modules are imported, so their code runs.

    The status is 0 if they are EQUAL or differ by ROUNDING, LAYOUT or AMPLIFIED rounding, and 1
    for every other verdict.
    """
    with user_output(as_json):
        implementations = function_of(f), function_of(g)
        arrays = inputs_of(seed=seed, **inputs)
        import calipers

        with errors_in_one_line(f"{f} and {g}"):
            report = calipers.diagnose(*implementations, arrays, seed=seed)
    return echo_report(report, {"f": f, "g": g}, as_json)


@click.command(short_help="Check a derivative against finite differences.")
@click.argument("function")
@click.option("--jac", metavar="MODULE:NAME", help="The Jacobian, called as jac(*inputs).")
@click.option(
    "--vjp", metavar="MODULE:NAME", help="w times the Jacobian, called as vjp(*inputs, w)."
)
@input_options
@json_option
def gradcheck(
    function: str,
    *,
    jac: str | None,
    vjp: str | None,
    seed: int,
    library: str,
    as_json: bool,
    **inputs: Any,
) -> int:
    """
    Check a derivative against finite differences with error estimates.

    FUNCTION is module:function, or file.py:function. Functions of torch or jax are differentiated
    by their library, with --library, and need no --jac or --vjp. The module is imported, so its
    code runs.

    The status is 0 for the verdict PASS, and 1 for FAIL, NONSMOOTH and INCONCLUSIVE.
    """
    if library == "numpy" and jac is None and vjp is None:
        msg = "pass the derivative by --jac or --vjp, or --library torch or jax"
        raise click.UsageError(msg)
    with user_output(as_json):
        f = function_of(function)
        jac_f, vjp_f = (None if text is None else function_of(text) for text in (jac, vjp))
        arrays = inputs_of(seed=seed, library=library, **inputs)
        import calipers

        with errors_in_one_line(function), warnings.catch_warnings():
            # Of a report that compared nothing, which is an error below.
            warnings.simplefilter("ignore", calipers.CalipersWarning)
            report = calipers.gradcheck(
                f, arrays, jac=jac_f, vjp=vjp_f, seed=seed, raise_exception=False
            )
    if report.vacuous:
        msg = f"nothing was compared: {report.reason}"
        raise click.ClickException(msg)
    return echo_report(report, {"function": function, "jac": jac, "vjp": vjp}, as_json)
