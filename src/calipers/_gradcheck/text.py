"""The text of a gradcheck report: the verdict in a sentence, and what it rests on."""

import math
from functools import partial
from typing import TYPE_CHECKING

from .._report.layout import calls_text, field, wrapped

if TYPE_CHECKING:
    from .report_data import Entry, GradcheckData

_WIDTH = 88  # columns
_SHOWN = 5  # findings, blocks, and entries after the worst one
_DIGITS = 6
# Names of derivatives that a library computes, where users know them by another name.
_ALSO_CALLED = {"torch": {"vjp": "vjp (backward)"}}
_wrapped = partial(wrapped, width=_WIDTH, break_long_words=False, break_on_hyphens=False)
_field = partial(field, most=None, width=_WIDTH, break_long_words=False, break_on_hyphens=False)


def measured(entry: "Entry") -> str:
    """Say what an entry is, what it should be, and what it may be off by."""
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
    """Say which derivatives were checked, how many entries they have, and how."""
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
    rows = [(label, ("analytic", "numerical", "error", "error/tolerance"))]
    rows += [(f"  {name}", row) for name, row in zip(names, cells, strict=True)]
    left = max(12, *(len(name) for name, _ in rows))
    widths = [max(map(len, column)) for column in zip(*(row for _, row in rows), strict=True)]
    texts = (
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for _, row in rows
    )
    lines = [f"  {name:<{left}}  {text}" for (name, _), text in zip(rows, texts, strict=True)]
    return lines if entries else []
