"""The picture of a check: where in the Jacobian entries are wrong, and by how much."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._report.figures import new_figure, use_integer_ticks
from .rule import FAIL, INCONCLUSIVE, NONSMOOTH, VERDICTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report_data import Entry, GradcheckData

_AGREE, _NAN = "#eef2f5", "#7b3294"
_OTHERS = {NONSMOOTH: ("^", "#b8860b"), INCONCLUSIVE: ("o", "0.5")}
_MOST_NAMES = 12  # inputs or outputs whose names an axis has room for
_FEW_NAMES = 6  # names that stand next to each other along the horizontal axis
_LONG_NAME = 8  # characters of a name there; longer or more names are turned
_LARGEST = 1e12  # error/tolerance; what is beyond it, or infinite, has this color
_LEGEND_MARK = 7.0  # points, the size of a mark in the legend
_AXES = 300.0  # points that the shorter side of the axes has


def report_figure(report: "GradcheckData") -> "Figure":
    """Draw the Jacobian with a mark for each entry that does not agree."""
    figure = new_figure(figsize=(6.5, 5.5), layout="constrained")
    from matplotlib.patches import Patch

    figure.suptitle(_title(report), fontsize=11)
    axes = figure.subplots()
    rows, columns = (max(n, 1) for n in report.shape)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), facecolor=_AGREE)
    _name(axes, "x", report.inputs)
    _name(axes, "y", report.outputs)
    handles: list[Any] = []
    if report.counts["PASS"]:
        handles.append(Patch(color=_AGREE, label=f"agree: {report.counts['PASS']}", ec="0.7"))
    size = float(np.clip(0.8 * _AXES / max(rows, columns), 3, 20)) ** 2
    handles += _marks(figure, axes, report, size)
    if handles:
        scale = min(1.0, _LEGEND_MARK / size**0.5)
        where: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles)}
        figure.legend(handles=handles, markerscale=scale, fontsize=9, **where)
    return figure


def _title(report: "GradcheckData") -> str:
    total, agree = sum(report.counts.values()), report.counts["PASS"]
    if report.fast_mode and report.verdict == "PASS":
        return "PASS: products with random directions agree"
    if not total:
        return f"{report.verdict}: no entries were compared"
    if agree == total:
        hidden = f"\n({report.hidden} of them are too small to be checked)" * bool(report.hidden)
        return f"{report.verdict}: all {total} entries agree{hidden}"
    of_all = "" if report.fast_mode else f" of {total}"  # the others were not examined
    return f"{report.verdict}: entries that do not agree: {total - agree}{of_all}"


def _name(axes: Any, side: str, blocks: Sequence[tuple[str, int]]) -> None:
    """Name the inputs or outputs along an axis, and draw lines between them."""
    axis = getattr(axes, f"{side}axis")
    kind = "inputs" if side == "x" else "outputs"
    if len(blocks) < 2:
        name = blocks[0][0] if blocks else kind
        axis.set_label_text(f"elements of {name}")
        use_integer_ticks(axis)
        return
    stops = np.cumsum([count for _, count in blocks])
    for stop in stops[:-1] if len(blocks) <= _MOST_NAMES else ():
        (axes.axvline if side == "x" else axes.axhline)(stop - 0.5, color="0.6", linewidth=0.8)
    largest = sorted(range(len(blocks)), key=lambda k: -blocks[k][1])[:_MOST_NAMES]
    shown = sorted(largest)
    middles = [stops[k] - blocks[k][1] / 2 - 0.5 for k in shown]
    names = [blocks[k][0] for k in shown]
    axis.set_ticks(middles, labels=names)
    if side == "x" and (len(names) > _FEW_NAMES or max(map(len, names)) > _LONG_NAME):
        axes.tick_params("x", labelrotation=90)
    axis.set_label_text(kind)


def _marks(figure: "Figure", axes: Any, report: "GradcheckData", size: float) -> list[Any]:
    """Mark entries that do not agree, and return what a legend says of them."""
    from matplotlib.colors import LogNorm

    def drawn(entries: Sequence["Entry"], **how: Any) -> Any:
        places = [e.column for e in entries], [e.row for e in entries]
        return axes.scatter(*places, s=size, clip_on=False, zorder=3, **how)

    handles = []
    nan = [e for e in report.failures if math.isnan(e.analytic) or math.isnan(e.numerical)]
    rest = [e for e in report.failures if not (math.isnan(e.analytic) or math.isnan(e.numerical))]
    for verdict in VERDICTS[:-1]:
        chosen = [e for e in rest if e.verdict == verdict]
        if not chosen:
            continue
        label = f"{verdict}: {len(chosen)}"
        if verdict == FAIL:
            levels = [min(e.excess, _LARGEST) for e in chosen]
            norm = LogNorm(1, max(10.0, *levels))
            how = {"c": levels, "norm": norm, "cmap": "autumn_r", "edgecolors": "0.4"}
            handles.append(drawn(chosen, marker="s", linewidths=0.3, label=label, **how))
            figure.colorbar(handles[-1], ax=axes, label="error/tolerance")
        else:
            marker, color = _OTHERS[verdict]
            handles.append(drawn(chosen, marker=marker, color=color, label=label))
    if nan:
        handles.append(drawn(nan, marker="x", color=_NAN, label=f"NaN: {len(nan)}"))
    return handles
