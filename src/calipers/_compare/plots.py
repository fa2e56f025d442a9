"""The figure of a comparison: a map of errors, and a histogram of differences in ULP."""

import math
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arrays import ArrayPair, as_pair
from .._core.protocols import NDArray
from .._core.report import index_text, new_figure, show_text, use_integer_ticks
from .statistics import Criteria, has_distances, tally_pair
from .text import headline_and_rest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report_data import ComparisonData

# Cells along an axis of the map or line at most; each shows the largest error of its elements.
_MAX_CELLS = 512
# Characters in a line of the title of a figure that is 10 inches wide.
_TITLE_WIDTH = 90
# The error that marks cells whose elements are all masked; other errors are not negative.
_HIDDEN = -1.0
# Equal elements are light gray, errors within the tolerance blue, and those above it red.
_EQUAL, _WITHIN, _ABOVE = "#f2f4f6", ("#e3eaf1", "#8fb3d3"), ("#fdc48a", "#8c0d12")
_WRONG, _NAN, _GRAY = "#c1272d", "#7b3fa0", "#a9adb2"
# Labels of the colorbar: the base-10 logarithm of error/tolerance, and error/tolerance.
_POWERS = {-3: "0.001", -2: "0.01", -1: "0.1", 0: "1", 1: "10", 2: "100", 3: "1000"}


def comparison_figure(report: "ComparisonData") -> "Figure":
    """Draw the excess of each element, and the histogram of distances in ULP."""
    if report.tally is None:
        msg = "nothing was compared: shapes or structures do not match, so there is nothing to plot"
        raise ValueError(msg)
    figure = new_figure(figsize=(10, 4), layout="constrained")
    headline = headline_and_rest(report)[0]
    title = f"{report.path}: {headline}" if report.path else headline
    figure.suptitle(textwrap.fill(title, _TITLE_WIDTH, max_lines=3))
    elements, distances = figure.subplots(1, 2)
    if report.arrays is None or not report.size:
        text = "compared in chunks: no elements to draw" if report.size else "no elements"
        show_text(elements, text)
    else:
        _draw_elements(elements, report)
    _draw_histogram(distances, report)
    return figure


def _draw_elements(axes: Any, report: "ComparisonData") -> None:
    assert report.arrays is not None
    a, b = (x if isinstance(x, np.ndarray) else x.to_host() for x in report.arrays)
    for x in (a, b):
        if not has_distances(x):
            msg = f"elements of dtype {x.dtype} have no distance, so there is nothing to plot"
            raise ValueError(msg)
    name = "error / tolerance" if report.rule.max_ulp is None else "ULP / max_ulp"
    hidden = np.broadcast_to(np.ma.mask_or(np.ma.getmask(a), np.ma.getmask(b)), a.shape)
    if hidden.any():  # masked pairs become pairs of zeros, which are equal
        a, b = (_with_zeros(x, hidden) for x in (a, b))
    shape = a.shape
    rows_and_columns = (-1, shape[-1]) if a.ndim > 1 else (1, -1)
    a, b, hidden = (x.reshape(rows_and_columns) for x in (a, b, hidden))
    rows, columns = map(_edges, a.shape)
    cells = _largest_excess(as_pair(a, b), hidden, report.rule, rows, columns)
    if len(shape) < 2:
        _draw_line(axes, columns, cells[0], name)
        return
    _draw_map(axes, cells, rows, columns, name)
    axes.set(xlabel="column", ylabel="row")
    if len(shape) > 2:
        _label_planes(axes, shape)


def _with_zeros(x: NDArray, hidden: NDArray) -> NDArray:
    values = np.ma.getdata(x).copy()
    values[hidden] = 0
    return values


def _label_planes(axes: Any, shape: tuple[int, ...]) -> None:
    """Label the rows of a flattened array by their indices along all axes but the last."""
    from matplotlib.ticker import FuncFormatter

    first = shape[:-1]
    total = math.prod(first)

    def index(row: float, _: Any) -> str:
        indices = np.unravel_index(round(row), first) if 0 <= round(row) < total else ()
        return index_text(indices) if indices else ""

    axes.yaxis.set_major_formatter(FuncFormatter(index))
    others = ", ".join(map(str, range(len(first))))
    axes.set(xlabel=f"index of axis {len(first)}", ylabel=f"index of axes {others}")


def _draw_line(axes: Any, edges: NDArray, cells: NDArray, name: str) -> None:
    finite = np.isfinite(cells) & (cells >= 0)
    top = 10 * np.max(cells, where=finite, initial=1.0)
    # With a tolerance of 0, error/tolerance is infinite.
    shown = np.where(finite, cells, np.where(cells == _HIDDEN, 0.0, top))
    kinds = {
        "within tolerance": (finite & (cells <= 1), ".", "0.45"),
        "above tolerance": (cells > 1, ".", _WRONG),
        "NaN or infinite": (np.isnan(cells), "x", _NAN),
        "masked": (cells == _HIDDEN, "|", _GRAY),
    }
    for label, (chosen, marker, color) in kinds.items():
        if chosen.any():
            axes.plot(edges[:-1][chosen], shown[chosen], marker, color=color, label=label)
    axes.axhline(1.0, color=_WRONG, linewidth=1, label="tolerance")
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.yaxis.get_major_locator().set_params(numticks=9)
    axes.set_ylim(-5e-4, 10 * max(1.0, float(shown.max())))
    axes.set(xlabel="index", ylabel=name)
    use_integer_ticks(axes.xaxis)
    axes.legend(loc="best", fontsize="small")


def _draw_map(axes: Any, cells: NDArray, rows: NDArray, columns: NDArray, name: str) -> None:
    from matplotlib.colors import ListedColormap

    # -4 is below the range of the colorbar, whose color for that is the one of equal elements.
    levels = np.where(cells > 0, np.log10(np.clip(cells, 1e-3, 1e3)), -4.0)
    levels[np.isnan(cells)] = np.nan
    shades = ListedColormap([*_between(_WITHIN), *_between(_ABOVE)])
    colors = shades.with_extremes(under=_EQUAL, over=_ABOVE[1], bad=_NAN)
    # An index is the middle of its cell.
    edges = columns - 0.5, rows - 0.5
    mesh = axes.pcolormesh(*edges, levels, vmin=-3, vmax=3, cmap=colors, rasterized=True)
    _draw_legend(axes, edges, cells)
    axes.invert_yaxis()
    use_integer_ticks(axes.xaxis)
    use_integer_ticks(axes.yaxis)
    bar = axes.figure.colorbar(mesh, ax=axes, label=name, extend="min")
    bar.set_ticks(list(_POWERS), labels=list(_POWERS.values()))


def _draw_legend(axes: Any, edges: tuple[NDArray, NDArray], cells: NDArray) -> None:
    """Draw masked cells, and the legend of colors that are not in the colorbar."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    hidden = cells == _HIDDEN
    if hidden.any():
        masked = np.where(hidden, 1.0, np.nan)
        axes.pcolormesh(*edges, masked, cmap=ListedColormap([_GRAY]), rasterized=True)
    named = {
        "equal": (cells == 0, _EQUAL),
        "NaN or infinite": (np.isnan(cells), _NAN),
        "masked": (hidden, _GRAY),
    }
    patches = [
        Patch(facecolor=color, edgecolor="0.6", label=label)
        for label, (chosen, color) in named.items()
        if chosen.any()
    ]
    if patches:
        position = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.3}
        axes.legend(handles=patches, ncols=3, fontsize="small", frameon=False, **position)


def _between(colors: tuple[str, str]) -> NDArray:
    """Return 64 colors from one to another, linear in RGB."""
    from matplotlib.colors import to_rgb

    first, last = map(to_rgb, colors)
    return np.linspace(first, last, 64)


def _edges(n: int) -> NDArray:
    return np.unique(np.linspace(0, n, min(n, _MAX_CELLS) + 1).astype(int))


def _largest_excess(
    pair: ArrayPair, hidden: NDArray, rule: Criteria, rows: Iterable[int], columns: Iterable[int]
) -> NDArray:
    """Return the largest excess in each cell of a table."""
    edges = list(pairwise(columns))
    return np.array(
        [
            [
                _HIDDEN
                if hidden[i:j, k:m].all()
                else _excess(pair._replace(a=pair.a[i:j, k:m], b=pair.b[i:j, k:m]), rule)
                for k, m in edges
            ]
            for i, j in pairwise(rows)
        ]
    )


def _excess(pair: ArrayPair, rule: Criteria) -> float:
    """Return the largest excess of a cell; NaN where NaN or infinities mismatch."""
    tally = tally_pair(pair, rule)
    unusual = tally["nan_actual"] + tally["nan_expected"] + tally["infinite"]
    if unusual or (tally["nan_both"] and not rule.equal_nan):
        return math.nan
    return float(tally["excess"])


def _draw_histogram(axes: Any, report: "ComparisonData") -> None:
    histogram = report.ulp_histogram
    axes.set(xlabel="distance in ULP (0, then powers of two)", ylabel="number of pairs")
    if not histogram:
        show_text(axes, "no ULP for this dtype" if report.finite else "no finite pairs")
        return
    last = max(high.bit_length() for _, high, _ in histogram)
    heights = np.zeros(last + 1)
    for _, high, count in histogram:
        heights[high.bit_length()] = count
    colors = ["#c3ccd6", *["#4878a8"] * last]
    axes.bar(range(last + 1), heights, width=0.9, color=colors)
    axes.set_yscale("log")
    axes.set_ylim(0.5, 2 * max(10.0, heights.max()))
    axes.set_xlim(-0.6, max(last, 4) + 0.6)
    ticks = range(0, last + 1, max(1, -(-last // 8)))
    axes.set_xticks(ticks, ["0" if k == 0 else f"$2^{{{k - 1}}}$" for k in ticks])
    if report.rule.max_ulp is not None:
        limit = report.rule.max_ulp.bit_length() + 0.5
        axes.axvline(limit, color=_WRONG, label=f"max_ulp = {report.rule.max_ulp}")
        axes.legend(loc="best", fontsize="small")
