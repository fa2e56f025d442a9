"""The picture of a check: where in the Jacobian entries are wrong, and by how much."""

from typing import TYPE_CHECKING

import numpy as np

from .rule import VERDICTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report import GradcheckReport

_MARKERS = {"FAIL": ("s", "#c1272d"), "NONSMOOTH": ("^", "#b8860b"), "INCONCLUSIVE": ("o", "0.5")}


def report_figure(report: "GradcheckReport") -> "Figure":
    """Draw a point for each entry that is not right; its size tells by how much."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6, 5.5), layout="constrained")
    total = sum(report.counts.values())
    wrong = total - report.counts["PASS"]
    are = "is" if wrong == 1 else "are"
    figure.suptitle(f"{report.verdict}: {wrong} of {total} entries {are} not right", fontsize=11)
    axes = figure.subplots()
    rows, columns = report.shape
    axes.set(xlim=(-0.5, max(columns, 1) - 0.5), ylim=(max(rows, 1) - 0.5, -0.5))
    axes.set_xlabel("real numbers of the inputs")
    axes.set_ylabel("real numbers of the outputs")
    for axis in axes.xaxis, axes.yaxis:
        axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    for verdict in VERDICTS[:-1]:
        chosen = [e for e in report.failures if e.verdict == verdict]
        if not chosen:
            continue
        marker, color = _MARKERS[verdict]
        excess = np.array([min(e.excess, 1e12) for e in chosen])
        axes.scatter(
            [e.column for e in chosen],
            [e.row for e in chosen],
            s=12 + 6 * np.log10(np.maximum(excess, 1)),
            marker=marker,
            color=color,
            label=f"{verdict}: {report.counts[verdict]}",
        )
    if report.failures:
        axes.legend(loc="upper right", fontsize=8)
    else:
        axes.text(0.5, 0.5, "all right", transform=axes.transAxes, ha="center")
    return figure
