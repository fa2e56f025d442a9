"""Plots of the reports of probes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._core.dtypes import ROUNDOFF
from .._core.protocols import NDArray
from .._core.report import new_figure, use_integer_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WRONG = "#c1272d"
# Largest number of elements whose labels are legible.
_FEW = 64
# Errors above this, or not finite, are drawn at this height.
_HIGHEST = 1e16


def order_figure(nodes: Sequence[Sequence[int]], sizes: Sequence[int], title: str) -> "Figure":
    """Draw the tree of a summation from the children and the sizes of its nodes."""
    n = len(sizes) - len(nodes)
    figure = new_figure(figsize=(min(12, 4 + n / 8), 4.5), layout="constrained")
    axes = figure.subplots()
    leaves = _leaves(n, nodes)
    position = np.empty(len(sizes))
    position[leaves] = np.arange(n)
    height = np.array(sizes, float)
    segments = []
    for k, parts in enumerate(nodes, start=n):
        position[k] = np.mean([position[part] for part in parts])
        for part in parts:
            # The stems of many elements would merge.
            foot = height[part] if n <= _FEW or part >= n else height[k] / 1.3
            segments.append([(position[part], foot), (position[part], height[k])])
        ends = [position[part] for part in parts]
        segments.append([(min(ends), height[k]), (max(ends), height[k])])
    from matplotlib.collections import LineCollection

    axes.add_collection(
        LineCollection(segments, colors="#4878a8", linewidths=1 if n <= _FEW else 0.5)
    )
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
    axes.set_title(title, fontsize=11)
    return figure


def _leaves(n: int, nodes: Sequence[Sequence[int]]) -> list[int]:
    """Return the elements from left to right, in an order in which no lines cross."""
    first = list(range(n))
    for parts in nodes:
        first.append(min(first[part] for part in parts))
    elements, waiting = [], [len(first) - 1]
    while waiting:
        k = waiting.pop()
        if k < n:
            elements.append(k)
        else:
            waiting += sorted(nodes[k - n], key=lambda part: -first[part])
    return elements


def layers_figure(
    names: Sequence[str],
    errors: Sequence[float],
    accumulated: Sequence[float],
    limits: Sequence[float],
    wrong: NDArray,
    title: str,
) -> "Figure":
    """Draw the error of each layer, and those accumulated so far; `wrong` selects layers."""
    figure = new_figure(figsize=(min(12, 4 + len(names) / 3), 4), layout="constrained")
    axes = figure.subplots()
    where = np.arange(len(names))
    new, carried = (np.minimum(x, _HIGHEST) for x in (errors, accumulated))
    axes.plot(where, carried, "s-", color="0.7", markersize=10, label="accumulated error")
    axes.plot(where, new, "o-", color="#4878a8", label="layer error")
    if wrong.any():
        axes.plot(where[wrong], new[wrong], "o", color=_WRONG, label="layer error, above the limit")
    axes.plot(where, limits, color=_WRONG, linewidth=1, label="limit")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(bottom=0)
    axes.set_xticks(where, [name[:20] for name in names], rotation=45, ha="right", fontsize=8)
    axes.set_xlabel("layer")
    axes.set_ylabel("error / expected rounding error")
    figure.suptitle(title, fontsize=9, wrap=True)
    axes.legend(loc="best", fontsize="small")
    return figure


def condition_figure(singular_values: Sequence[float], form: str, title: str) -> "Figure":
    """Draw the singular values of a matrix, and the unit roundoff of a format."""
    if not singular_values:
        msg = "only the condition number of a matrix can be plotted: its singular values"
        raise ValueError(msg)
    figure = new_figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    values = np.array(singular_values)
    floor = ROUNDOFF[form] * values[0]
    axes.plot(np.maximum(values, floor * 1e-3), "o", color="#4878a8", label="singular values")
    axes.axhline(floor, color=_WRONG, linewidth=1, label=f"unit roundoff of {form} x the largest")
    axes.set_yscale("log")
    axes.set(xlabel="index, from the largest", ylabel="singular value")
    use_integer_ticks(axes.xaxis)
    axes.set_title(title, fontsize=11)
    axes.legend(loc="best", fontsize="small")
    return figure


def growth_figure(
    ns: Sequence[int],
    curves: Sequence[tuple[str, float, Sequence[float]]],
    bounds: Sequence[float],
    form: str,
) -> "Figure":
    """Draw errors and their bounds by problem size; a curve is its label, slope and errors."""
    figure = new_figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.subplots()
    sizes = np.array(ns, float)
    styles = ("k", "o", 4), ("#4878a8", "s", 8), ("#b8860b", "o", 4)
    for (label, slope, errors), (color, marker, size) in zip(curves, styles, strict=True):
        values = np.array(errors)
        drawn = (values > 0) & np.isfinite(values)
        if drawn.any():
            text = label if np.isnan(slope) else f"{label}, slope {slope:.2f}"
            x, y = sizes[drawn], values[drawn]
            axes.plot(x, y, color=color, marker=marker, markersize=size, label=text)
    axes.plot(sizes, np.sqrt(sizes), "--", color="0.5", linewidth=1, label=r"$\sqrt{n}$")
    axes.plot(sizes, bounds, ":", color=_WRONG, label=r"bound $\gamma_n/u$")
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel="n, the size passed to make_inputs")
    axes.set_ylabel(f"RMSE per element / rounding error of {form}")
    axes.set_title("growth of errors with n", fontsize=11)
    axes.legend(loc="best", fontsize="small")
    return figure
