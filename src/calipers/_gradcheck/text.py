"""The text of a gradcheck report: the verdict in a sentence, and what it rests on."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Entry, GradcheckReport

_WIDTH = 100
_SHOWN = 5


def place(entry: "Entry", output: str, by: str, what: str) -> str:
    """Say what the derivative of an output by an input is in a column."""
    where = _index(entry.input_index, entry.input_part)
    return (
        f"the derivative of output {output} with respect to input {by} is {what} in column {where}"
    )


def values(entry: "Entry") -> str:
    where = _index(entry.output_index, entry.output_part)
    row = "" if where == "()" else f" in row {where}"
    return f"{row}: analytic {_pair(entry)} ± {entry.error:.2g}"


def _pair(entry: "Entry") -> str:
    for digits in range(6, 17):
        own, right = f"{entry.analytic:.{digits}g}", f"{entry.numerical:.{digits}g}"
        if own != right:
            break
    return f"{own}, numerical {right}"


def _index(index: tuple[int, ...], part: str) -> str:
    text = f"({', '.join(map(str, index))})" if len(index) != 1 else str(index[0])
    return f"{text} ({part} part)" if part else text


def report_text(report: "GradcheckReport") -> str:
    """Write a report within about 25 lines."""
    lines = [f"{report.verdict}: {report.reason}"]
    rows, columns = report.shape
    how = "random products" if report.fast_mode else "every entry"
    lines.append(f"  checked     {', '.join(report.forms)}: {rows} x {columns} numbers, {how}")
    lines.append(
        f"  allowed     |analytic - numerical| <= {report.atol:g} + {report.rtol:g}*|numerical| "
        f"+ its error"
    )
    counts = report.counts
    total = sum(counts.values())
    if total:
        told = ", ".join(f"{n} {name}" for name, n in counts.items() if n and name != "PASS")
        share = f"{100 * report.unresolved:.3g} %"
        lines.append(f"  entries     {total}; {told or 'all right'}; unresolved {share}")
    for text in report.findings[:_SHOWN]:
        if not report.reason.endswith(text):  # which may say that it is of the second order
            lines.append(f"  also        {text}")
    for text in report.blocks[:_SHOWN]:
        if text.partition(": ")[2] not in report.reason:
            lines.append(f"  block       {text}")
    worst = report.failures[:_SHOWN]
    if worst:
        lines.append("  worst       output      input       analytic      numerical     error")
        for entry in worst:
            out = f"{entry.output}{list(entry.output_index)}{entry.output_part[:1]}"
            own = f"{entry.input}{list(entry.input_index)}{entry.input_part[:1]}"
            lines.append(
                f"    {entry.form:<9} {out:<11} {own:<11} {entry.analytic:<13.6g} "
                f"{entry.numerical:<13.6g} {entry.error:.2g}"
            )
        lines += _places("inputs", report.input_names, {entry.input for entry in worst})
        lines += _places("outputs", report.output_names, {entry.output for entry in worst})
    calls = ", ".join(f"{name} {count}" for name, count in report.calls.items())
    lines.append(f"  calls       {calls}")
    by_cotangents = report.order == 2 and not {"hess", "hvp"} & set(report.forms)
    if by_cotangents and not report.input_names:
        lines.append("  inputs      of the gradient: those of f, and then the cotangents")
    name = "gradcheck" if report.order == 1 else "gradgradcheck"
    lines.append(f"  again       calipers.{name}(..., seed={report.seed})")
    first, *others = lines
    return "\n".join([first, *map(_cut, others)])


def _places(what: str, names: tuple[str, ...], shown: set[int]) -> list[str]:
    """Tell where in containers some inputs or outputs are."""
    told = [f"{k} is {names[k]}" for k in sorted(shown) if names and names[k] != str(k)]
    return [f"  {what:<11} {', '.join(told)}"] if told else []


def _cut(line: str) -> str:
    return line.rstrip() if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
