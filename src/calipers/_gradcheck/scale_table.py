"""
Describe the slopes at all scales by which an entry was judged, as text and as a picture.

`scale_table` makes a table; the other functions take one.
"""

import math
from collections.abc import Iterator
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from .._derivatives.sampled import Table
from .._derivatives.thresholds import THRESHOLDS as T
from .report_data import Scale, ScaleTable

AGREES, EXCLUDES, UNSURE, BETWEEN = "agrees", "excludes it", "cannot tell", "lies between"
CONTRADICTED = "contradicted by shorter steps"
_SHOWN = 7  # rows of a table, below its head
_DIGITS = 6, 15  # significant digits of slopes: usually, and at most
_CONSTANT = 3  # least number of scales at which f does not change for a report to say so
_GROWING = 6  # number of scales, the shortest, at which slopes grow at a jump
_CLAIM, _SLOPE = "#d9485f", "#3366aa"  # colors
_GROWTH = 1e3  # ratio of the slopes at the shortest and longest step, at a jump or infinite slope


def scale_table(
    table: Table, at: tuple[int, int], analytic: float, tolerance: float
) -> ScaleTable | None:
    """Return the scales of one entry of a table, at the indices of its direction and output."""
    s, m, length, unit = table.scales, table.estimates, table.length[at[0]], table.unit[at[1]]
    one, k = s.entries(*map(np.atleast_1d, at)), (0, slice(None), 0)
    slopes = (a[k] / length * unit for a in (one.slope, one.error, one.gap, one.gap_error))
    columns = np.array([one.t[k] * length, *slopes])
    finite, contradicted = np.isfinite(columns[:2]).all(axis=0), m.contradicted[at[0], :, at[1]]
    resolved = np.flatnonzero(np.isfinite(columns[2]) & finite)
    finite[resolved[-1] + 1 if len(resolved) else len(finite) :] = False  # they lack shorter steps
    columns = np.where(np.isnan(columns), np.array([[0, 0, np.inf, 0, np.inf]]).T, columns)
    rows = tuple(
        Scale(step, slope, error, gap, gap_error, out)
        for (step, slope, error, gap, gap_error), out in zip(
            columns.T[finite].tolist(), contradicted[finite].tolist(), strict=True
        )
    )
    before = np.cumsum(finite) - 1
    best, near = int(m.scale[at]), int(m.kink[at])
    if not finite[best]:
        return None
    return ScaleTable(
        rows,
        int(before[best]),
        int(before[near]) if near >= 0 and finite[near] else -1,
        analytic,
        tolerance,
        float(m.gap[at]) / length * unit,
        float(one.noise[0, 0]) * unit,
        bool(one.noisy[0, 0]),
        bool(one.broken[0, 0]),
        bool(m.endless[at]),
    )


def has_kink(table: ScaleTable) -> bool:
    """Return True if the one-sided slopes at x differ by more than the tolerance."""
    return table.gap > table.tolerance


def has_one_sided_slopes(table: ScaleTable) -> bool:
    """Return True if f has a kink, so that the slopes on both sides of x are shown."""
    return has_kink(table) or table.near_kink >= 0


def is_near_kink(table: ScaleTable) -> bool:
    """Return True if f has a kink near x, not at x, and the entry lies between its slopes."""
    near = table.near_kink >= 0 and not has_kink(table)
    return near and opinion(table, _at_kink(table)) == BETWEEN


def opinion(table: ScaleTable, row: Scale) -> str:
    """Return whether a scale agrees with the entry, excludes it or cannot tell, as text."""
    off = abs(table.analytic - table.rows[table.best].slope)
    away, kinked = abs(table.analytic - row.slope), _is_kinked(table, row)
    if kinked:
        away, off = away - abs(row.gap) - row.gap_error, math.inf
    supports, excludes = Table.opinions(away, row.error, table.tolerance, off)
    if supports:
        return BETWEEN if kinked else AGREES
    return EXCLUDES if excludes else UNSURE


def _is_kinked(table: ScaleTable, row: Scale) -> bool:
    least = max(table.tolerance, T.kink * row.gap_error)
    return has_one_sided_slopes(table) and abs(row.gap) > least


def _one_sided_slopes(row: Scale) -> tuple[float, float]:
    """Return the left and the right slope, 0 where one is less than its error."""
    slopes, error = (row.slope - row.gap, row.slope + row.gap), row.error + row.gap_error
    left, right = (_rounded(x, error) if abs(x) > error else 0.0 for x in slopes)
    return left, right


def _rounded(x: float, error: float) -> float:
    """Return a number without the digits that its error leaves undetermined."""
    if not 0 < error < math.inf:
        return x
    return round(x, 1 - math.floor(math.log10(error))) + 0.0


def _at_kink(table: ScaleTable) -> Scale:
    """Return the scale at which the one-sided slopes at a kink have the least error."""
    kinked = [row for row in table.rows if _is_kinked(table, row)]
    return min(kinked or table.rows, key=lambda row: row.error + row.gap_error)


def explanation(table: ScaleTable, nonsmooth: bool = False) -> str:
    """Explain in one sentence why the scales do not confirm an entry, or return ""."""
    if has_kink(table) or (nonsmooth and table.near_kink >= 0):
        return kink(table)
    if grows(table) or (nonsmooth and table.endless):
        first, last = table.rows[0], table.rows[-1]
        kinds = ("a jump", table.broken), ("an infinite slope", table.endless)
        likely = [kind for kind, is_likely in kinds if is_likely] or [kind for kind, _ in kinds]
        return (
            f"f has {' or '.join(likely)} at x: its slope grows from {_number(first.slope)} at a "
            f"step of {_step(first)} to {_number(last.slope)} at {_step(last)}"
        )
    if nonsmooth:
        return "f is not continuous at x" if table.broken else ""
    return contradiction(table) or _limit(table)


def kink(table: ScaleTable) -> str:
    """Describe a kink at x, or near x."""
    row, best = _at_kink(table), table.rows[table.best]
    left, right = map(_number, _one_sided_slopes(row))
    slopes = f"{left} on the left and {right} on the right"
    if has_kink(table):
        shortest = min((r for r in table.rows if r is row or _is_kinked(table, r)), key=_length)
        return f"f has a kink at x: its slopes are {slopes}, down to a step of {_step(shortest)}"
    distance = _step(table.rows[table.near_kink])
    nearer = f"{_number(best.slope)} nearer to x"
    return f"f has a kink within {distance} of x: its slopes are {slopes}, and {nearer}"


def contradiction(table: ScaleTable) -> str:
    """Describe slopes at longer and shorter steps that differ, or return ""."""
    best, others = table.rows[table.best], _others(table)
    if not others:
        return ""
    other = min(others, key=lambda row: row.error)
    near = _run(table, best, abs(other.slope - best.slope))
    return (
        f"the slope of f is {_measured(other)} at {_range(table, others)}, but {_measured(best)} "
        f"at {_range(table, near)}: f oscillates, or is piecewise smooth, as where digits cancel"
    )


def _limit(table: ScaleTable) -> str:
    """Name the source of the error of the best scale."""
    best, step = table.rows[table.best], _step(table.rows[table.best])
    if best.contradicted:
        return "slopes by longer and by shorter steps contradict each other"
    if best.error <= table.tolerance and opinion(table, best) == EXCLUDES:
        return f"steps of about {step} alone exclude it, and f may differ nearer to x"
    if best.error > table.tolerance and table.best >= len(table.rows) - 2:
        return f"f varies too fast there: its slope still changes at the shortest step ({step})"
    source = f"{'noise' if table.noisy else 'rounding'} of f ({table.noise:.2g})"
    if not math.isfinite(best.error):
        return f"{source} is as large as its changes"
    text = f"{source} leaves an error of {best.error:.2g} at the best step ({step})"
    if is_staircase(table):
        *_, longest = _constant(table)
        text += f", and f does not change at steps up to {_step(longest)}"
    return text


def is_staircase(table: ScaleTable) -> bool:
    """Return True if f does not change at the shortest steps, as where it computes in few bits."""
    return len(_constant(table)) >= _CONSTANT and table.rows[table.best].slope != 0


def _constant(table: ScaleTable) -> list[Scale]:
    """Return the scales at which f does not change, the shortest first."""
    return list(takewhile(lambda row: row.slope == 0, reversed(table.rows)))


def grows(table: ScaleTable) -> bool:
    """Return True if slopes grow as steps get shorter, as fast as at a jump."""
    slopes = [row.slope for row in table.rows]
    shortest = list(pairwise(slopes[-_GROWING:]))
    if len(slopes) < _GROWING or not all(abs(b) > abs(a) and a * b > 0 for a, b in shortest):
        return False
    return abs(slopes[-1]) > _GROWTH * abs(slopes[0])


def _tells(row: Scale, difference: float) -> bool:
    return row.error < T.telling * difference


def _others(table: ScaleTable) -> list[Scale]:
    """Return consecutive scales that agree on a slope other than the best."""
    best = table.rows[table.best]
    away = [
        row
        for row in table.rows
        if abs(row.slope - best.slope) > row.error + best.error
        and _tells(row, abs(row.slope - best.slope))
    ]
    if not away:
        return []
    other = min(away, key=lambda row: row.error)
    others = _run(table, other, abs(other.slope - best.slope))
    return others if len(others) > 1 or opinion(table, other) == AGREES else []


def _run(table: ScaleTable, about: Scale, difference: float) -> list[Scale]:
    """Return the consecutive scales around one that agree with it and resolve a difference."""
    rows, center = table.rows, table.rows.index(about)

    def agrees(row: Scale) -> bool:
        near = abs(row.slope - about.slope) <= row.error + about.error
        return near and _tells(row, difference)

    first = last = center
    while first > 0 and agrees(rows[first - 1]):
        first -= 1
    while last < len(rows) - 1 and agrees(rows[last + 1]):
        last += 1
    return list(rows[first : last + 1])


def _range(table: ScaleTable, rows: list[Scale]) -> str:
    longest, shortest = _step(rows[0]), _step(rows[-1])
    if rows[-1] is table.rows[-1]:
        return f"steps up to {longest}"
    return f"steps from {longest} to {shortest}" if len(rows) > 1 else f"a step of {longest}"


def shown_rows(table: ScaleTable) -> list[Scale]:
    """
    Return the scales that a report shows: the best, the ends, and those that differ from it.

    If all scales that resolve the entry agree, the ends are enough.
    """
    rows, best = table.rows, table.best
    opinions = [opinion(table, row) for row in rows]
    able = [k for k, text in enumerate(opinions) if text != UNSURE]
    contradicted = [k for k, row in enumerate(rows) if row.contradicted]
    chosen = [best, *[k for k in able if k > best][-1:], 0, *contradicted[-1:]]
    supporting = [k for k in able if opinions[k] == AGREES and k != best]
    chosen += sorted(supporting, key=lambda k: rows[k].error)[:1]
    chosen += [table.near_kink] * (table.near_kink >= 0)
    chosen += [len(rows) - 1, *contradicted[:1]]
    if contradicted or opinions[best] == UNSURE or len({opinions[k] for k in able}) > 1:
        chosen += [k for k in (best - 1, best + 1) if 0 <= k < len(rows)]
        chosen += np.linspace(0, len(rows) - 1, _SHOWN).round().astype(int).tolist()
    return [rows[k] for k in sorted(list(dict.fromkeys(chosen))[:_SHOWN])]


def cells(table: ScaleTable) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the table's head and of the rows that a report shows."""
    best = table.rows[table.best]
    one_sided, digits = has_one_sided_slopes(table), _digits(table)
    head = ("left slope", "right slope") if one_sided else ("slope",)
    yield "step", *head, "error", f"analytic {table.analytic:.{digits}g}"
    for row in shown_rows(table):
        text = opinion(table, row)
        if row.contradicted:
            agrees = text == AGREES and not one_sided  # which fits in a line
            text = f"{text}; {CONTRADICTED}" if agrees else CONTRADICTED
        if row is best:
            text += " (numerical)"
        error = row.error + row.gap_error if one_sided else row.error
        numbers = _one_sided_slopes(row) if one_sided else (row.slope,)
        texts = (f"{_rounded(x, error):.{digits}g}" for x in numbers)
        yield _step(row), *texts, f"{error:.2g}", text


def _digits(table: ScaleTable) -> int:
    """Return how many digits distinguish the numerical from the analytic value."""
    least, most = _DIGITS
    pair = table.analytic, table.rows[table.best].slope
    if pair[0] == pair[1]:
        return least
    return next((n for n in range(least, most) if len({f"{x:.{n}g}" for x in pair}) > 1), most)


def _number(x: float) -> str:
    return f"{x:.{_DIGITS[0]}g}"


def _length(row: Scale) -> float:
    return row.step


def _step(row: Scale) -> str:
    return f"{row.step:.2g}"


def _measured(row: Scale) -> str:
    return f"{_number(_rounded(row.slope, row.error))} ± {row.error:.2g}"


def draw(axes: Any, table: ScaleTable, name: str) -> None:
    """Draw the slopes against the steps, with the analytic value and its tolerance."""
    best, one_sided = table.rows[table.best], has_one_sided_slopes(table)
    low, high = limits(table)
    axes.set(xscale="log", xlabel="step", ylabel="slope of f", ylim=(low, high), title=name)
    if grows(table):
        least = abs(table.rows[0].slope) or 1.0
        axes.set_yscale("symlog", linthresh=least)
    tolerance = table.analytic - table.tolerance, table.analytic + table.tolerance
    axes.axhspan(*tolerance, color=_CLAIM, alpha=0.2, linewidth=0, label="tolerance")
    axes.axhline(table.analytic, color=_CLAIM, label="analytic")
    for out, color, label in (
        (True, "0.6", f"slope {CONTRADICTED}"),
        (False, _SLOPE, "slope ± error"),
    ):
        rows = [row for row in table.rows if row.contradicted == out]
        if not rows:
            continue
        for sign, marker in ((-1, "<"), (1, ">")) if one_sided else ((0, "o"),):
            slopes = np.array([row.slope + sign * row.gap for row in rows])
            errors = np.array([row.error + abs(sign) * row.gap_error for row in rows])
            where = "left " if sign < 0 else "right " if sign > 0 else ""
            axes.errorbar(
                [row.step for row in rows],
                np.clip(slopes, low, high),  # values out of range are drawn at the edge
                yerr=np.where(np.isfinite(errors), errors, np.nan),
                fmt=marker,
                color=color,
                markersize=4,
                markerfacecolor="white" if out else color,
                elinewidth=0.8,
                label=f"{where}{label}",
            )
    if not has_kink(table):
        how = {"fmt": "o", "markersize": 9, "fillstyle": "none", "color": "black"}
        axes.errorbar([best.step], [best.slope], label="numerical", **how)
    axes.legend(fontsize=8)


def limits(table: ScaleTable) -> tuple[float, float]:
    """Return the range of slopes that a picture shows."""
    best, others = table.rows[table.best], _others(table)
    shown = [table.analytic, best.slope, *(row.slope for row in others)]
    if has_one_sided_slopes(table):
        shown += _one_sided_slopes(_at_kink(table))
    wide = grows(table)  # on a logarithmic axis
    shown += [0.0, 2 * table.rows[-1].slope] if wide else []
    shown = [x for x in shown if math.isfinite(x)] or [0.0]
    low, high = min(shown), max(shown)
    margins = [0.0 if wide else 0.2 * (high - low), 1e-12 * abs(high)]
    margins.append(3 * min(best.error, table.tolerance))
    margins += [1.5 * best.error] if best.error > table.tolerance else []
    margin = max(x for x in margins if math.isfinite(x)) or 1.0
    return low - margin, high + margin
