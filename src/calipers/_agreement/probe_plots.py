"""Pictures of what probes found."""

from typing import TYPE_CHECKING

import numpy as np

from .._plots import new_figure
from .units import ROUNDOFF

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..scaling import Growth
    from .conditions import Condition
    from .layers import Layers
    from .summation import SummationOrder

_WRONG = "#c1272d"
_FEW = 64  # elements, whose numbers can be read


def order_figure(order: "SummationOrder") -> "Figure":
    """Draw the tree of a summation."""
    n = order.n
    figure = new_figure(figsize=(min(12, 4 + n / 8), 4.5), layout="constrained")
    axes = figure.subplots()
    leaves = _leaves(order)
    place = np.empty(n + len(order.nodes))
    place[leaves] = np.arange(n)
    height = np.array(order.sizes, float)
    lines = []
    for k, parts in enumerate(order.nodes, start=n):
        place[k] = np.mean([place[part] for part in parts])
        for part in parts:
            # Of many elements stems would be a wall.
            foot = height[part] if n <= _FEW or part >= n else height[k] / 1.3
            lines.append([(place[part], foot), (place[part], height[k])])
        ends = [place[part] for part in parts]
        lines.append([(min(ends), height[k]), (max(ends), height[k])])
    from matplotlib.collections import LineCollection

    axes.add_collection(LineCollection(lines, colors="#4878a8", linewidths=1 if n <= _FEW else 0.5))
    axes.set_yscale("log", base=2)
    axes.set(xlim=(-1, n), ylim=(0.8, 1.3 * n))
    axes.set_ylabel("elements in the sum")
    if n <= _FEW:
        axes.set_xticks(
            range(n), [str(i) for i in leaves], fontsize=7, rotation=90 if n > 20 else 0
        )
        axes.set_xlabel("element")
    else:
        ticks = np.unique(np.linspace(0, n - 1, 17).astype(int))
        axes.set_xticks(ticks, [str(leaves[i]) for i in ticks], fontsize=8)
        axes.set_xlabel("element, in the order of the tree")
    name = order.name and f"\n{order.name}"
    axes.set_title(f"order of summation of {n} elements, depth {order.depth}{name}", fontsize=11)
    return figure


def _leaves(order: "SummationOrder") -> list[int]:
    """Return the elements from left to right, so that no lines cross."""
    first = list(range(order.n))
    for parts in order.nodes:
        first.append(min(first[part] for part in parts))
    found, waiting = [], [len(first) - 1]
    while waiting:
        k = waiting.pop()
        if k < order.n:
            found.append(k)
        else:
            waiting += sorted(order.nodes[k - order.n], key=lambda part: -first[part])
    return found


def layers_figure(found: "Layers") -> "Figure":
    """Draw the errors of each layer itself, and those of all layers so far."""
    figure = new_figure(figsize=(min(12, 4 + len(found.layers) / 3), 4), layout="constrained")
    axes = figure.subplots()
    where = np.arange(len(found.layers))
    # What is not finite has a height, too.
    new, carried = (
        np.array([min(getattr(layer, name).units, 1e16) for layer in found.layers])
        for name in ("new", "carried")
    )
    allowed = [layer.new.allowed for layer in found.layers]
    axes.plot(where, carried, "s-", color="0.7", markersize=10, label="accumulated error")
    axes.plot(where, new, "o-", color="#4878a8", label="layer error")
    wrong = np.array([not layer for layer in found.layers])
    if wrong.any():
        axes.plot(where[wrong], new[wrong], "o", color=_WRONG, label="layer error, above the limit")
    axes.plot(where, allowed, color=_WRONG, linewidth=1, label="limit")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(bottom=0)
    names = [layer.name[:20] for layer in found.layers]
    axes.set_xticks(where, names, rotation=45, ha="right", fontsize=8)
    axes.set_xlabel("layer")
    axes.set_ylabel("error / expected rounding error")
    figure.suptitle(str(found).partition("\n")[0], fontsize=9, wrap=True)
    axes.legend(loc="best", fontsize="small")
    return figure


def condition_figure(found: "Condition") -> "Figure":
    """Draw singular values."""
    if not found.singular_values:
        msg = "only the condition number of a matrix can be plotted: its singular values"
        raise ValueError(msg)
    figure = new_figure(figsize=(6, 4), layout="constrained")
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    values = np.array(found.singular_values)
    floor = ROUNDOFF[found.format] * values[0]
    axes.plot(np.maximum(values, floor * 1e-3), "o", color="#4878a8", label="singular values")
    axes.axhline(
        floor, color=_WRONG, linewidth=1, label=f"unit roundoff of {found.format} x the largest"
    )
    axes.set_yscale("log")
    axes.set(xlabel="index, from the largest", ylabel="singular value")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axes.set_title(str(found).partition("\n")[0], fontsize=11)
    axes.legend(loc="best", fontsize="small")
    return figure


def growth_figure(found: "Growth", names: dict[str, str]) -> "Figure":
    """Draw errors by size."""
    figure = new_figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.subplots()
    sizes = np.array(found.sizes, float)
    styles = ("k", "o", 4), ("#4878a8", "s", 8), ("#b8860b", "o", 4)
    for (name, label), (color, marker, size) in zip(names.items(), styles, strict=True):
        values = np.array(getattr(found, name))
        drawn = (values > 0) & np.isfinite(values)
        if drawn.any():
            slope = found.slopes[name]
            text = label if np.isnan(slope) else f"{label}, slope {slope:.2f}"
            x, y = sizes[drawn], values[drawn]
            axes.plot(x, y, color=color, marker=marker, markersize=size, label=text)
    axes.plot(sizes, np.sqrt(sizes), "--", color="0.5", linewidth=1, label=r"$\sqrt{n}$")
    axes.plot(sizes, found.bounds, ":", color=_WRONG, label=r"bound $\gamma_n/u$")
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="n, the size passed to make_inputs")
    axes.set_ylabel(f"RMSE per element / rounding error of {found.format}")
    axes.set_title("growth of errors with n", fontsize=11)
    axes.legend(loc="best", fontsize="small")
    return figure
