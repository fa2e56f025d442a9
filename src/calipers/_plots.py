"""Pictures of a comparison."""

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ._protocols import NDArray

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
    name = "|a-b| / (atol + rtol |b|)"
    if report.rule.max_ulp is not None:
        name = f"steps of expected's format, in units of {max(report.rule.max_ulp, 1)}"
    if a.ndim < 2:
        _draw_line(axes, *_largest_excess(a.reshape(-1), b.reshape(-1), report), name)
    else:
        a, b = (x.reshape(-1, x.shape[-1]) for x in (a, b))
        rows = _edges(len(a))
        bands = [
            _largest_excess(a[start:stop].T, b[start:stop].T, report)
            for start, stop in pairwise(rows)
        ]
        _draw_map(axes, np.array([cells for _, cells in bands]), rows, bands[0][0], name)


def _draw_line(axes: Any, edges: NDArray, cells: NDArray, name: str) -> None:
    bad = cells > 1
    infinite = np.isinf(cells)
    shown = np.where(infinite, 10 * np.max(cells, where=~infinite, initial=1.0), cells)
    where = edges[:-1]
    axes.plot(where[~bad], shown[~bad], ".", markersize=4, color="0.4", label="within")
    axes.plot(where[bad], shown[bad], ".", markersize=5, color=_WRONG, label="beyond")
    axes.plot(where[infinite], shown[infinite], "x", color=_WRONG, label="NaN or infinite")
    axes.axhline(1.0, color=_WRONG, linewidth=1, label="tolerance")
    axes.set_yscale("symlog", linthresh=1e-3)
    axes.set_ylim(-5e-4, 10 * max(1.0, float(shown.max())))
    axes.set(xlabel="index", ylabel=name)
    axes.legend(loc="best", fontsize="small")


def _draw_map(axes: Any, cells: NDArray, rows: NDArray, columns: NDArray, name: str) -> None:
    levels = np.log10(np.clip(cells, 1e-3, 1e6))
    # White is the tolerance; red is beyond it.
    mesh = axes.pcolormesh(columns, rows, levels, vmin=-3, vmax=3, cmap="RdBu_r", rasterized=True)
    axes.invert_yaxis()
    axes.set(xlabel="index along the last axis", ylabel="row")
    axes.figure.colorbar(mesh, ax=axes, label=f"log10 of {name}", extend="both")


def _edges(n: int) -> NDArray:
    return np.unique(np.linspace(0, n, min(n, _CELLS) + 1).astype(int))


def _largest_excess(a: NDArray, b: NDArray, report: "Comparison") -> tuple[NDArray, NDArray]:
    """Divide axis 0 into cells, and return their edges and the largest excess in each."""
    edges = _edges(len(a))
    cells = [_excess(a[start:stop], b[start:stop], report) for start, stop in pairwise(edges)]
    return edges, np.array(cells)


def _excess(a: NDArray, b: NDArray, report: "Comparison") -> float:
    """Return the largest excess, for the eye; infinite where NaN or infinities mismatch."""
    rule = report.rule
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    a, b = (_as_numbers(x, wide) for x in (a, b))
    with np.errstate(all="ignore"):
        d: NDArray = abs(a - b)
        size: NDArray = abs(b)
        if rule.max_ulp is None:
            limit = rule.atol + rule.rtol * size
        else:
            limit = max(rule.max_ulp, 1) * _spacing(size, report.expected_dtype)
        excess = np.where((a == b) | (rule.equal_nan & (a != a) & (b != b)), 0.0, d / limit)
    return float(np.max(np.nan_to_num(excess, nan=np.inf, posinf=np.inf), initial=0.0))


def _as_numbers(x: NDArray, wide: type[np.number]) -> NDArray:
    """Return elements as numbers; of text, even digits have no distance."""
    try:
        if x.dtype.kind not in "SUT":
            return np.asarray(x, wide)
    except (TypeError, ValueError):
        pass
    msg = f"elements of dtype {x.dtype} have no distance, so there is nothing to plot"
    raise ValueError(msg)


def _spacing(size: NDArray, dtype: str) -> Any:
    if dtype in ("float16", "float32"):
        return np.spacing(size.astype(dtype)).astype(np.float64)
    return np.spacing(size) if dtype[:5] in ("float", "compl") else 1.0


def _draw_histogram(axes: Any, report: "Comparison") -> None:
    histogram = report.ulp_histogram
    axes.set(xlabel="distance in ULP (0, then powers of two)", ylabel="pairs")
    if not histogram:
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
