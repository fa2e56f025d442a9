"""The text and the plot of a gradcheck report."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.report import calls_text, field, new_figure, use_integer_ticks, wrapped
from .entry_rules import FAIL, INCONCLUSIVE, NONSMOOTH, VERDICTS
from .scale_table import cells, draw, has_kink, kink

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report_data import Entry, GradcheckData, ScaleTable


_AGREE, _NAN = "#eef2f5", "#7b3294"
_OTHERS = {NONSMOOTH: ("^", "#b8860b"), INCONCLUSIVE: ("o", "0.5")}
_MOST_NAMES = 12  # inputs or outputs whose names an axis has room for
_FEW_NAMES = 6  # names that stand next to each other along the horizontal axis
_LONG_NAME = 8  # characters of a name there; longer or more names are turned
# Larger or infinite ratios of error to tolerance get the color of this ratio.
_LARGEST = 1e12
_LEGEND_MARK = 7.0  # points, the size of a mark in the legend
_AXES = 300.0  # points that the shorter side of the axes has


def report_figure(report: "GradcheckData") -> "Figure":
    """Draw the Jacobian with a mark for each wrong entry, and the slopes of the worst."""
    table = report.worst.scales if report.worst is not None else None
    figure = new_figure(figsize=(6.5 if table is None else 12, 5.5), layout="constrained")
    from matplotlib.patches import Patch

    figure.suptitle(_title(report), fontsize=11)
    axes, *beyond = figure.subplots(1, 1 if table is None else 2, squeeze=False)[0]
    if report.worst is not None and table is not None:
        draw(beyond[0], table, report.worst.name)
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


def _name(axes: Any, axis_name: str, blocks: Sequence[tuple[str, int]]) -> None:
    """Name the inputs or outputs along an axis, and draw lines between them."""
    axis = getattr(axes, f"{axis_name}axis")
    kind = "inputs" if axis_name == "x" else "outputs"
    if len(blocks) < 2:
        name = blocks[0][0] if blocks else kind
        axis.set_label_text(f"elements of {name}")
        use_integer_ticks(axis)
        return
    stops = np.cumsum([count for _, count in blocks])
    for stop in stops[:-1] if len(blocks) <= _MOST_NAMES else ():
        (axes.axvline if axis_name == "x" else axes.axhline)(stop - 0.5, color="0.6", linewidth=0.8)
    largest = sorted(range(len(blocks)), key=lambda k: -blocks[k][1])[:_MOST_NAMES]
    shown = sorted(largest)
    middles = [stops[k] - blocks[k][1] / 2 - 0.5 for k in shown]
    names = [blocks[k][0] for k in shown]
    axis.set_ticks(middles, labels=names)
    if axis_name == "x" and (len(names) > _FEW_NAMES or max(map(len, names)) > _LONG_NAME):
        axes.tick_params("x", labelrotation=90)
    axis.set_label_text(kind)


def _marks(figure: "Figure", axes: Any, report: "GradcheckData", size: float) -> list[Any]:
    """Mark entries that do not agree, and return their handles for a legend."""
    from matplotlib.colors import LogNorm

    def drawn(entries: Sequence["Entry"], **how: Any) -> Any:
        positions = [e.column for e in entries], [e.row for e in entries]
        return axes.scatter(*positions, s=size, clip_on=False, zorder=3, **how)

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


_WIDTH = 88  # characters of a line of the report
_SHOWN = 5  # findings, blocks, and entries after the worst one
_DIGITS = 6  # significant digits of numbers in the report
# Names of derivatives that a library computes, where users know them by another name.
_ALSO_CALLED = {"torch": {"vjp": "vjp (backward)"}}
_wrapped = partial(wrapped, width=_WIDTH, break_long_words=False, break_on_hyphens=False)
_field = partial(field, most=None, width=_WIDTH, break_long_words=False, break_on_hyphens=False)


def measured(entry: "Entry") -> str:
    """Write the analytic and the numerical value of an entry, its error and its tolerance."""
    if entry.scales is not None and has_kink(entry.scales):
        return f"analytic {_number(entry.analytic)}, but {kink(entry.scales)}"
    analytic, numerical = (_number(x) for x in (entry.analytic, entry.numerical))
    difference = abs(entry.analytic - entry.numerical)
    if analytic == numerical and difference > 0:
        values = f"analytic and numerical are {analytic} and differ by {difference:.2g}"
        error = f", the numerical error is {entry.error:.2g}"
    else:
        values, error = f"analytic {analytic}, numerical {numerical}", f" ± {entry.error:.2g}"
    tolerance = difference / entry.excess if entry.excess > 0 else math.nan
    allowed = f", tolerance {tolerance:.2g}" if 0 < tolerance < math.inf else ""
    return f"{values}{error}{allowed}"


def report_text(report: "GradcheckData") -> str:
    """Write a report within about 25 lines."""
    lines = _wrapped(headline(report), rest="    ")
    lines += _field("checked", _checked(report))
    lines += _field("tolerance", f"|analytic - numerical| <= {_tolerance(report)}")
    if sum(report.counts.values()):
        lines += _field("entries", _counts(report))
    for text in report.findings[:_SHOWN]:
        if text not in report.reason:  # which may say that it is of the second order
            lines += _field("also", text)
    for text in report.blocks[:_SHOWN]:
        if text.partition(": ")[2] not in report.reason:
            lines += _field("block", text)
    worst = report.worst
    named = int(worst is not None and worst.name in report.reason)
    if worst is not None and worst.scales is not None:
        lines += _scales(worst.scales, "" if named else worst.name)
    entries = report.failures[named : named + _SHOWN]
    lines += _table(entries, "others" if named else "worst", several=len(report.forms) > 1)
    lines += _field("calls", calls_text(report.calls))
    if report.again:
        lines.append(f"again: {report.again}")
    if report.next:
        lines.append(f"next: {report.next}")
    return "\n".join(lines)


def headline(report: "GradcheckData") -> str:
    return f"{report.verdict}: {report.reason}"


def _checked(report: "GradcheckData") -> str:
    """Write which derivatives were checked, with how many entries and how."""
    names = _ALSO_CALLED.get(report.library, {})
    forms = ", ".join(names.get(form, form) for form in report.forms)
    rows, columns = report.shape
    outputs, inputs = "output" + "s" * (rows != 1), "input" + "s" * (columns != 1)
    how = "random products" if report.fast_mode else "every entry"
    return f"{forms}: {rows} {outputs} x {columns} {inputs}, {how}"


def _number(x: float) -> str:
    return f"{x:.{_DIGITS}g}"


def _tolerance(report: "GradcheckData") -> str:
    terms = [f"{report.atol:.3g}"] if report.atol else []
    terms += [f"{report.rtol:.3g}*|numerical|"] if report.rtol else []
    return " + ".join([*terms, "error"])


def _counts(report: "GradcheckData") -> str:
    counts = {name: n for name, n in report.counts.items() if n}
    verdicts = ", ".join(f"{n} {name}" for name, n in counts.items())
    small = f", {report.hidden} of them too small to be checked" if report.hidden else ""
    return f"{sum(counts.values())}: {verdicts}{small}"


def _table(entries: tuple["Entry", ...], label: str, several: bool) -> list[str]:
    """Write entries in lines, each with its form of the derivative if there are several."""
    names = [f"{e.form} {e.name}" if several else e.name for e in entries]
    cells = [
        (_number(e.analytic), _number(e.numerical), f"{e.error:.2g}", f"{e.excess:.3g}")
        for e in entries
    ]
    head = label, ("analytic", "numerical", "error", "error/tolerance")
    rows = [(f"  {name}", row) for name, row in zip(names, cells, strict=True)]
    return _aligned([head, *rows], str.rjust) if entries else []


def _scales(table: "ScaleTable", name: str) -> list[str]:
    """Write the slopes at some scales of an entry, below its name unless that is ""."""
    head, *rows = cells(table)
    body = _aligned([(head[0], head[1:]), *((f"  {r[0]}", r[1:]) for r in rows)], str.ljust)
    return [*_wrapped(f"  {name}", rest="    "), *body] if name else body


def _aligned(rows: list[tuple[str, tuple[str, ...]]], last: Callable[[str, int], str]) -> list[str]:
    """Write names and cells in columns: right-aligned, except for the first and the last."""
    left = max(12, *(len(name) for name, _ in rows))
    widths = [max(map(len, column)) for column in zip(*(row for _, row in rows), strict=True)]
    aligned = []
    for name, (*numbers, end) in rows:
        texts = [cell.rjust(width) for cell, width in zip(numbers, widths[:-1], strict=True)]
        line = "  ".join([f"  {name:<{left}}", *texts, last(end, widths[-1])])
        aligned.append(line.rstrip())
    return aligned
