"""Pictures of a diagnosis."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .._report.figures import new_figure, show_text
from .report import compared
from .units import ROUNDOFF, difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .diagnosis_data import DiagnosisData

_F, _G, _BOUND = "#3b6ea5", "#c1272d", "0.4"
_SHOWN = 1e-3, 1e15  # units; errors may be none, or infinite
_RANGE = 1e-290, 1e290  # of numbers; axes reach beyond theirs


def diagnosis_figure(found: "DiagnosisData") -> "Figure":
    """Draw differences by size, errors of both sides, and how alike differences stay."""
    alike = found.evidence.get("likeness_by_move")
    figure = new_figure(figsize=(12 if alike else 9, 4), layout="constrained")
    figure.suptitle(f"{found.kind}: {found.reason}", fontsize=9, wrap=True)
    panels = figure.subplots(1, 3 if alike else 2)
    if not found.answers:
        for axes in panels:
            axes.set_axis_off()
        figure.text(0.5, 0.5, "there are no results to draw", ha="center", va="center")
        return figure
    _differences(panels[0], found)
    _sizes(panels[1], found)
    if alike:
        _likeness(panels[2], alike, found.dtype)
    return figure


def _differences(axes: Any, found: "DiagnosisData") -> None:
    from matplotlib.ticker import LogLocator

    f, g = found.answers
    size, apart = np.abs(g.numbers(np.float64)), np.abs(difference(f, g))
    shown = np.flatnonzero(_drawn(apart) & _drawn(size))
    if not shown.size:
        text = "there are no finite differences" if apart.any() else "all results are equal"
        show_text(axes, text)
        return
    if shown.size > 20000:
        shown = shown[:: shown.size // 20000 + 1]
    axes.loglog(size[shown], apart[shown], ".", markersize=2, color=_G, label="|f - g|")
    scale = float(np.clip(found.evidence.get("scale") or 1.0, *_RANGE))
    grid = np.geomspace(*_limits(size, scale), 100)
    roundoff = ROUNDOFF[found.dtype]
    bound = found.allowed * roundoff * np.hypot(grid, scale)
    axes.loglog(grid, bound, color=_BOUND, label=f"{found.allowed:.3g} x unit roundoff")
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))  # a decade has no room for nine labels
    axes.set_xlabel("|g|, the size of a result")
    axes.set_ylabel("|f - g|")
    axes.legend(fontsize=8)


def _drawn(x: Any) -> Any:
    return (x > _RANGE[0]) & (x < _RANGE[1])


def _limits(size: Any, scale: float) -> tuple[float, float]:
    finite = size[_drawn(size)]
    low = float(finite.min()) if finite.size else scale
    high = float(finite.max()) if finite.size else scale
    return low, max(high, 10 * low)


def _sizes(axes: Any, found: "DiagnosisData") -> None:
    names = compared(found) + ["wide"] * ("wide" in found.evidence)
    if not names:
        show_text(axes, "no errors were measured")
        return
    titles = {"f": "error of f", "g": "error of g", "apart": "f - g"}
    titles["wide"] = "f - g in higher\nprecision"
    sizes = [min(found.evidence[name][k] for k in ("rms", "normwise")) for name in names]
    values = [float(np.clip(size, *_SHOWN)) for size in sizes]
    colors = {"f": _F, "g": _G, "apart": "0.5", "wide": "0.75"}
    axes.bar([titles[n] for n in names], values, color=[colors[n] for n in names])
    axes.axhline(found.allowed, color=_BOUND, linestyle="--", label=f"limit {found.allowed:.3g}")
    axes.set_yscale("log")
    axes.set_ylim(min(0.1, *values) / 2, 5 * max(found.allowed, *values))
    axes.set_xlim(-0.6, max(2, len(names)) - 0.4)
    axes.set_ylabel("error / expected rounding error")
    axes.tick_params(axis="x", labelsize=8)
    axes.legend(fontsize=8)


def _likeness(axes: Any, alike: list[tuple[float, float]], dtype: str) -> None:
    moves, cosines = zip(*alike, strict=True)
    axes.semilogx(moves, cosines, "o-", color=_F, base=2)
    names: dict[float, list[str]] = {}
    for name, roundoff in ROUNDOFF.items():
        if min(moves) / 2 <= roundoff <= 2 * max(moves) and name != dtype:
            names.setdefault(roundoff, []).append(name)
    for roundoff, same in names.items():
        axes.axvline(roundoff, color=_BOUND, linewidth=0.7)
        text = " = ".join(same)
        axes.text(roundoff, -0.95, text, rotation=90, fontsize=7, va="bottom", ha="right")
    axes.axhline(0.5, color=_BOUND, linestyle="--", linewidth=0.7)
    axes.set_ylim(-1.0, 1.1)
    axes.set_xlabel("relative perturbation of the inputs")
    axes.set_ylabel("cosine of f - g before and after")
