"""Pictures of a comparison."""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import Pair, as_pair
from ._protocols import NDArray
from ._tally import Rule, has_distances, tally_pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .reports import Comparison

# A map or a line has at most so many cells along an axis; a cell shows the largest excess in it.
_CELLS = 512
_WRONG = "#c1272d"


def comparison_figure(report: "Comparison") -> "Figure":
    """Draw the excess of each element, and the histogram of distances in ULP."""
    from matplotlib.figure import Figure

    if report.tally is None:
        msg = "nothing was compared: shapes or structures do not match, so there is nothing to plot"
        raise ValueError(msg)
    figure = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(str(report).partition("\n")[0])
    elements, distances = figure.subplots(1, 2)
    if report.arrays is None or not report.size:
        elements.set_axis_off()
        text = "compared in parts: no elements were kept" if report.size else "no elements to draw"
        elements.text(0.5, 0.5, text, ha="center", va="center")
    else:
        _draw_elements(elements, report)
    _draw_histogram(distances, report)
    return figure


def _draw_elements(axes: Any, report: "Comparison") -> None:
    assert report.arrays is not None
    a, b = (x if isinstance(x, np.ndarray) else x.to_host() for x in report.arrays)
    for x in (a, b):
        if not has_distances(x):
            msg = f"elements of dtype {x.dtype} have no distance, so there is nothing to plot"
            raise ValueError(msg)
    name = "|a-b| / (atol + rtol |b|)"
    if report.rule.max_ulp is not None:
        name = f"steps of the format / {report.rule.max_ulp}"
    whole = as_pair(a, b)
    if a.ndim < 2:
        pair = whole._replace(a=a.reshape(1, -1), b=b.reshape(1, -1))
        columns = _edges(a.size)
        _draw_line(axes, columns, _largest_excess(pair, report.rule, [0, 1], columns)[0], name)
    else:
        a, b = (x.reshape(-1, x.shape[-1]) for x in (a, b))
        pair = whole._replace(a=a, b=b)
        rows, columns = map(_edges, pair.a.shape)
        _draw_map(axes, _largest_excess(pair, report.rule, rows, columns), rows, columns, name)


def _draw_line(axes: Any, edges: NDArray, cells: NDArray, name: str) -> None:
    from matplotlib.ticker import MaxNLocator

    beyond, unusual = ~(cells <= 1), np.isnan(cells)
    finite = np.isfinite(cells)
    # Beyond a tolerance of 0 is infinitely far beyond it.
    shown = np.where(finite, cells, 10 * np.max(cells, where=finite, initial=1.0))
    where = edges[:-1]
    axes.plot(where[~beyond], shown[~beyond], ".", markersize=4, color="0.4", label="within")
    axes.plot(where[beyond], shown[beyond], ".", markersize=5, color=_WRONG, label="beyond")
    axes.plot(where[unusual], shown[unusual], "x", color=_WRONG, label="NaN or infinite")
    axes.axhline(1.0, color=_WRONG, linewidth=1, label="tolerance")
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_ylim(-5e-4, 10 * max(1.0, float(shown.max())))
    axes.set(xlabel="index", ylabel=name)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axes.legend(loc="best", fontsize="small")


def _draw_map(axes: Any, cells: NDArray, rows: NDArray, columns: NDArray, name: str) -> None:
    levels = np.log10(np.clip(np.nan_to_num(cells, nan=np.inf), 1e-3, 1e6))
    # White is the tolerance; red is beyond it.
    mesh = axes.pcolormesh(columns, rows, levels, vmin=-3, vmax=3, cmap="RdBu_r", rasterized=True)
    axes.invert_yaxis()
    axes.set(xlabel="index along the last axis", ylabel="row")
    axes.figure.colorbar(mesh, ax=axes, label=f"log10 of {name}", extend="both")


def _edges(n: int) -> NDArray:
    return np.unique(np.linspace(0, n, min(n, _CELLS) + 1).astype(int))


def _largest_excess(pair: Pair, rule: Rule, rows: Iterable[int], columns: NDArray) -> NDArray:
    """Divide a table into cells, and return the largest excess in each."""
    return np.array(
        [
            [
                _excess(pair._replace(a=pair.a[i:j, k:m], b=pair.b[i:j, k:m]), rule)
                for k, m in pairwise(columns)
            ]
            for i, j in pairwise(rows)
        ]
    )


def _excess(pair: Pair, rule: Rule) -> float:
    """Return the largest excess of a cell; NaN where NaN or infinities mismatch."""
    tally = tally_pair(pair, rule)
    unusual = tally["nan_actual"] + tally["nan_expected"] + tally["infinite"]
    if unusual or (tally["nan_both"] and not rule.equal_nan):
        return math.nan
    return float(tally["excess"])


def _draw_histogram(axes: Any, report: "Comparison") -> None:
    histogram = report.ulp_histogram
    axes.set(xlabel="distance in ULP (0, then powers of two)", ylabel="pairs")
    if not histogram:
        axes.set_axis_off()
        text = "no ULP for this dtype" if report.finite else "no finite pairs"
        axes.text(0.5, 0.5, text, ha="center", va="center")
        return
    last = max(high.bit_length() for _, high, _ in histogram)
    heights = np.zeros(last + 1)
    for _, high, count in histogram:
        heights[high.bit_length()] = count
    axes.bar(range(last + 1), heights, width=0.9, color="#4878a8")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.5)
    ticks = range(0, last + 1, max(1, -(-last // 8)))
    axes.set_xticks(ticks, ["0" if k == 0 else f"$2^{{{k - 1}}}$" for k in ticks])
    if report.rule.max_ulp is not None:
        limit = report.rule.max_ulp.bit_length() + 0.5
        axes.axvline(limit, color=_WRONG, label=f"max_ulp = {report.rule.max_ulp}")
        axes.legend(loc="best", fontsize="small")
