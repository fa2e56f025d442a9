"""Compare two implementations layer by layer: layers."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arguments import require_callable
from .._core.containers import as_tuple
from .._core.dtypes import ROUNDOFF
from .._core.libraries import library_of
from .._core.report import Report, brief, wrapped
from .._diagnose.arrays import (
    Result,
    as_inputs,
    infer_precision,
    infer_result_precision,
    is_perturbable,
    longest_axis,
)
from .._diagnose.diagnose import diagnose
from .._diagnose.evidence import Evidence
from .._diagnose.noise_level import finite_rms
from .._diagnose.observed_formats import roundoff_of
from .._diagnose.parameters import is_module
from .._diagnose.thresholds import THRESHOLDS
from .trials import Trial, trial, unlimited_implementation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_ROWS = 16  # rows of the table, around the first wrong layer
_LEGEND = (
    "  layer alone  both implementations get the results of the layers of fs",
    "  accumulated  each implementation gets the results of its own layers",
    "  errors are relative to the expected rounding error: the change of a layer's",
    "  results when its inputs change by 1 ulp",
)


@dataclass(frozen=True)
class Layer:
    """
    The errors of one layer; it is true if they are rounding errors.

    The ``.layers`` of a `Layers` are such errors.

    Attributes
    ----------
    name : str
        The name of the layer.
    new : Trial
        The error of this layer alone: the difference of both implementations if both get the
        results of the layers of f.
    carried : Trial
        The accumulated error: the difference if each gets the results of its layers so far.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> layers = [("double", lambda x: 2 * x), ("exp", np.exp)]
    >>> layer = probes.layers(layers, layers, np.linspace(0, 1, 5)).layers[1]
    >>> layer.name, bool(layer), layer.carried.equal
    ('exp', True, True)
    """

    name: str
    new: Trial
    carried: Trial

    def __bool__(self) -> bool:
        """Return True if the error of this layer is a rounding error."""
        return bool(self.new)


@dataclass(frozen=True, repr=False)
class Layers(Report):
    """
    The errors of all layers; it is true if all differences are explained.

    It is returned by `layers`.

    Attributes
    ----------
    layers : tuple of Layer
        The layers in their order, up to the first whose results cannot be compared.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> layers = [("double", lambda x: 2 * x), ("exp", np.exp)]
    >>> found = probes.layers(layers, layers, np.linspace(0, 1, 5))
    >>> bool(found), found.first
    (True, None)
    """

    layers: tuple[Layer, ...]

    def __bool__(self) -> bool:
        """Return True if the errors of all layers are rounding errors."""
        return all(self.layers)

    @property
    def first(self) -> Layer | None:
        """The first layer whose error is not a rounding error, or None."""
        return next((layer for layer in self.layers if not layer), None)

    def __str__(self) -> str:
        """Return a line for the verdict, and one for each layer."""
        first = self.first
        if first is None:
            text_rows = [f"the differences of all {len(self.layers)} layers are explained"]
        else:
            number = self.layers.index(first) + 1
            reason = first.new.problem or "it is more than rounding"
            text = (
                f"layer {first.name[:40]!r}, number {number} of {len(self.layers)}, is the first "
            )
            text_rows = wrapped(f"{text}whose difference is not explained: {reason}", rest="  ")
        width = min(24, max((len(layer.name) for layer in self.layers), default=0))
        titles = f"{'layer alone':>11}  {'accumulated':>11}  {'allowed':>9}"
        text_rows.append(f"  {'layer':{max(width, 5)}}  {titles}")
        shown = self.layers
        if len(shown) > _MAX_ROWS:
            # The first layer above the limit is always shown.
            start = max(0, self.layers.index(first) - _MAX_ROWS // 2) if first is not None else 0
            shown = shown[start : start + _MAX_ROWS]
        for layer in shown:
            text_rows.append(
                f"  {layer.name[:width]:{max(width, 5)}}  {brief(layer.new.units):>11}  "
                f"{brief(layer.carried.units):>11}  {brief(layer.new.allowed):>9}"
                + ("" if layer else "  not explained")
            )
        if len(self.layers) > len(shown):
            text_rows.append(f"  {len(self.layers) - len(shown)} layers are not shown: see .layers")
        return "\n".join([*text_rows, *_LEGEND])

    def _contents(self) -> dict[str, Any]:
        first = next((layer.name for layer in self.layers if not layer), None)
        return super()._contents() | {"passed": bool(self), "first": first}

    def plot(self) -> "Figure":
        """
        Plot the error of each layer alone, the accumulated error, and the limit.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from .plots import layers_figure

        return layers_figure(
            [layer.name for layer in self.layers],
            [layer.new.units for layer in self.layers],
            [layer.carried.units for layer in self.layers],
            [layer.new.allowed for layer in self.layers],
            np.array([not layer for layer in self.layers]),
            str(self).partition("\n")[0],
        )


def compare_modules(f: Any, g: Any, x: Any) -> Layers:
    """
    Run two torch modules of one structure, and each module in g also at the inputs of that in f.

    Modules come in the order in which they return: children before what contains them, whose own
    operations are then the only new ones.
    """
    called, there = _record(f, x), _record(g, x)
    if [*called] != [*there]:
        other = next(iter({*called} ^ {*there}), "their order")
        msg = f"the modules must have the same structure; {other!r} is called in only one of them"
        raise ValueError(msg)
    return Layers(tuple(_module_layer(name, called[name], there[name]) for name in called))


def _record(model: Any, x: Any) -> dict[str, tuple[Any, tuple[Any, ...], Any]]:
    """Return each submodule that a model calls with its arguments and result, in order."""
    calls: dict[str, tuple[Any, tuple[Any, ...], Any]] = {}
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)

    def watch(name: str, module: Any) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if name not in calls and all(library_of(y) is not None for y in args) and args:
                calls[name] = partial(_call, module, kwargs, dtype), args, output

        return module.register_forward_hook(hook, with_kwargs=True)

    hooks = [watch(name or type(model).__name__, part) for name, part in model.named_modules()]
    try:
        _call(model, {}, dtype, *as_tuple(x))
    finally:
        for handle in hooks:
            handle.remove()
    return calls


def _call(module: Any, kwargs: Any, dtype: Any, *args: Any) -> Any:
    """Call a module with arguments in its own format, and return results in theirs."""
    before = args[0].dtype
    cast = [y.to(dtype) if y.is_floating_point() and dtype is not None else y for y in args]
    y = module(*cast, **kwargs)
    outputs = [part.to(before) if part is not None else part for part in as_tuple(y)]
    return outputs[0] if library_of(y) is not None else tuple(outputs)


def _module_layer(name: str, f: Any, g: Any) -> Layer:
    """Compare one module of g with that of f, at the inputs of that of f and at its own."""
    (original, args, output), (port, _, other) = f, g
    diagnosis = diagnose(original, port, args, batch=())
    names = ("f", "g", "apart")
    errors = [diagnosis.evidence[k] for k in names if k in diagnosis.evidence]
    units = max((min(e["rms"], e["normwise"]) for e in errors), default=0.0)
    largest = max((e["largest"] for e in errors), default=0.0)
    times = roundoff_of(diagnosis.format) / ROUNDOFF[diagnosis.dtype] if diagnosis.format else 1.0
    explained = diagnosis.ok(["ROUNDING", "LAYOUT", "AMPLIFIED", "REDUCED"])
    problem = None if explained else diagnosis.reason
    size = sum(y.numel() for y in as_tuple(output) if library_of(y) is not None)
    allowed = diagnosis.allowed * times
    if explained:  # at jumps, say, by more than the limit
        allowed = max(allowed, units, largest / THRESHOLDS.single)
    new = Trial(name, size, size if units else 0, units, largest, allowed, problem)
    unit = ROUNDOFF[diagnosis.dtype] * (_distance(output, None) or 1.0)
    distance = _distance(output, other) / unit
    return Layer(name, new, Trial(name, size, size if distance else 0, distance, distance, allowed))


def _distance(a: Any, b: Any) -> float:
    """Return the RMS of the difference of two results of modules, or of one of them."""
    results = [
        np.concatenate([np.ravel(library.fetch(part)).astype(float) for part, library in parts])
        for y in (a, b)
        if (parts := [(part, lib) for part in as_tuple(y) if (lib := library_of(part)) is not None])
    ]
    return finite_rms(results[0] - results[-1] if len(results) > 1 else results[0])


def compare_layers(fs: Any, gs: Any, x: Any) -> Layers:
    """Run both implementations, and each layer of gs also at the inputs of that of fs."""
    if is_module(fs) and is_module(gs):
        return compare_modules(fs, gs, x)
    fs, gs = _layers(fs, "fs"), _layers(gs, "gs")
    if len(fs) != len(gs) or not fs:
        counts = f"got {len(fs)} and {len(gs)}"
        msg = f"fs and gs must have the same number of layers, at least 1, {counts}"
        raise ValueError(msg)
    library = next((y for y in as_tuple(x) if library_of(y) is not None), None)
    ours = theirs = as_inputs(x)
    compared: list[Layer] = []
    for (f_name, f), (g_name, g) in zip(fs, gs, strict=True):
        name = f_name if f_name == g_name else f"{f_name} / {g_name}"
        likes = (
            as_tuple(x) if not compared else [library if library is not None else y for y in ours]
        )
        both = (
            unlimited_implementation(f_name, f, likes),
            unlimited_implementation(g_name, g, likes),
        )
        # The noise level is that of g's layer; of f's if g's results are not finite.
        form, length = infer_precision(ours, None), longest_axis(ours)
        evidence = Evidence(both[1], both[0], ours, form, source="both", length=length)
        _require(evidence.result_f, "gs", g_name)
        _require(evidence.result_g, "fs", f_name)
        if not any(map(is_perturbable, ours)):
            evidence.form = infer_result_precision(evidence.result_f, evidence.result_g)
        new = _compared(evidence, evidence.result_g, evidence.result_f)
        if new.problem is not None:
            compared.append(Layer(name, new, new))
            break
        after = (
            evidence.result_f
            if theirs is ours
            else unlimited_implementation(g_name, g, likes)(theirs)
        )
        _require(after, "gs", g_name)
        compared.append(Layer(name, new, _compared(evidence, evidence.result_g, after)))
        ours, theirs = evidence.result_g.arrays, after.arrays
    return Layers(tuple(compared))


def _layers(items: Any, name: str) -> list[tuple[str, Any]]:
    """Return a list of layers; an iterator such as torch's named_children() is accepted."""
    if not np.iterable(items) or isinstance(items, dict):
        kind = type(items).__name__
        msg = f"{name} must be a sequence of (name, callable), got {kind}"
        raise TypeError(msg + (": pass its .items()" if kind == "dict" else ""))
    layers = list(items)
    for k, item in enumerate(layers):
        if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
            msg = f"{name}[{k}] must be a tuple of a name and a callable, got {item!r:.60}"
            raise TypeError(msg)
        require_callable(**{f"{name}[{k}][1]": item[1]})
    return layers


def _require(result: Result, argument: str, name: str) -> None:
    if result.error is not None:
        result.error.add_note(f"raised by layer {name!r} of {argument}")
        raise result.error


def _compared(evidence: Evidence, result: Result, expected: Result) -> Trial:
    return trial(evidence.g.name, result, expected, lambda: evidence.scale, evidence.allowed)
