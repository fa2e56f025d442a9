"""Compare two implementations layer by layer: layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arguments import require_callable
from .._core.containers import as_tuple
from .._core.libraries import library_of
from .._core.report import Report
from .._diagnose.callables import Result
from .._diagnose.evidence import Evidence
from .._diagnose.inputs import (
    checked_inputs,
    infer_precision,
    infer_result_precision,
    is_perturbable,
    longest_axis,
)
from .trials import Trial, trial, unlimited_implementation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_ROWS = 16  # rows of the table, around the first wrong layer
_LEGEND = (
    "  layer error of this layer alone: both implementations get the results of fs",
    "  accumulated of all layers so far: each implementation gets the results of its layers",
    "  unit        expected rounding error: the change of a layer's results when its",
    "              inputs change by 1 ulp",
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
    The errors of all layers; it is true if they are rounding errors.

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
            text_rows = [f"all {len(self.layers)} layers agree within rounding"]
        else:
            text_rows = [
                f"layer {self.layers.index(first)}, {first.name[:40]}, is the first whose error is "
                "above the limit"
            ]
        width = min(24, max((len(layer.name) for layer in self.layers), default=0))
        titles = f"{'layer error':>11}  {'accumulated':>11}  {'limit':>9}"
        text_rows.append(f"  {'layer':{max(width, 5)}}  {titles}")
        shown = self.layers
        if len(shown) > _MAX_ROWS:
            # The first layer above the limit is always shown.
            start = max(0, self.layers.index(first) - _MAX_ROWS // 2) if first is not None else 0
            shown = shown[start : start + _MAX_ROWS]
        for layer in shown:
            text_rows.append(
                f"  {layer.name[:width]:{max(width, 5)}}  {layer.new.units:11.3g}  "
                f"{layer.carried.units:11.3g}  {layer.new.allowed:9.3g}"
                + ("" if layer else f"  {layer.new.problem or 'above the limit'}"[:60])
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


def compare_layers(fs: Sequence[Any], gs: Sequence[Any], x: Any) -> Layers:
    """Run both implementations, and each layer of gs also at the inputs of that of fs."""
    fs, gs = _layers(fs, "fs"), _layers(gs, "gs")
    if len(fs) != len(gs) or not fs:
        counts = f"got {len(fs)} and {len(gs)}"
        msg = f"fs and gs must have the same number of layers, at least 1, {counts}"
        raise ValueError(msg)
    library = next((y for y in as_tuple(x) if library_of(y) is not None), None)
    ours = theirs = checked_inputs(x)
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
        evidence = Evidence(both[1], both[0], ours, form, widens="fg", length=length)
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
