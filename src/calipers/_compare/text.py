"""The text of a comparison, at most 80 columns wide and about 25 lines long."""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._core.report import INDENT, WIDTH, brief, field, index_text, values, wrapped
from .._kernels.accumulators import MASKED, MEASURES
from ..interop.times import common_format
from .advice import next_call, remedy
from .patterns import percent, region
from .report_data import ComparisonData, Difference, worst_leaf

if TYPE_CHECKING:
    from .statistics import Criteria

# The number of failing leaves, or of dtypes with their tolerances, that a report lists.
_MAX_LEAVES = 8
# The number of rows of the report of the worst leaf.
_WORST_ROWS = 19
# The widths in columns of a leaf's path before its description, and of a path in a row of its own.
_NAME_WIDTH, _PATH_WIDTH = 24, 66
_COLUMNS = ("actual", "expected", "error/tol", "absolute", "relative", "ULP")
_GLUE = "\N{NO-BREAK SPACE}"  # a space at which rows are not wrapped
_NARROW = ("actual", "expected", "error/tol", "abs", "rel", "ULP")


def comparison_text(report: ComparisonData, advise: bool = True) -> str:
    """Return the text of a report: verdict, arrays, mismatches, largest errors and next call."""
    text = _text(report, advise)
    call = next_call(report) if advise else ""
    return f"{text}\nnext: {call}" if call else text


def _text(report: ComparisonData, advise: bool) -> str:
    rows = [_headline(report)]
    for problem in report.problems:
        rows += wrapped(problem, "  ", "    ")
    rows += _arrays(report)
    similar = _entry("looks", report.arrangement) if report.arrangement else []
    if report.tally is None:
        return "\n".join(rows + similar)
    rows += _entry("tolerance", _tolerance(report) + _allowances(report.rule))
    if report.mismatches:
        rows += _entry("counts", _counts(report))
        if report.mismatches > 1:
            rows += _entry("where", region(report.tally))
    if _masked(report):
        rows += _entry("masked", _masked_counts(report))
    rows += similar
    rows += _table(report)
    rows += _summary(report, advise)
    rows += _notes(report.notes)
    return "\n".join(line[:WIDTH].rstrip() for line in rows)


def headline_and_rest(report: ComparisonData) -> tuple[str, str]:
    """Return the verdict with its problems as one line, and the rest of the text."""
    headline, _, rest = comparison_text(report).partition("\n")
    if report.problems and not report.mismatches:
        headline += f"{':' if report.tally is None else ''} {'; '.join(report.problems)}"
    return headline, rest


def nested_text(
    leaves: Sequence[ComparisonData],
    names: tuple[str, str] = ("item", "items"),
    rest: str = "see .failing",
    advise: bool = True,
) -> str:
    """Return a text with a line for each failing leaf, and the report of the worst."""
    failing = [leaf for leaf in leaves if not leaf]
    allowed = _allowances(leaves[0].rule) if leaves else ""
    if not failing:
        agree = f"{names[0]} agrees" if len(leaves) == 1 else f"{names[1]} agree"
        masked = sum(map(_masked, leaves))
        if masked:
            agree += f" ({masked} masked pair{'s' * (masked != 1)} not compared)"
        notes = _notes(note for leaf in leaves for note in leaf.notes)
        headline = f"Close: {len(leaves)} {agree}{allowed}"
        return "\n".join([headline, *_tolerances(leaves), *notes])
    of_all = f"{len(leaves)} {names[len(leaves) != 1]}"
    differ = "differs" if len(failing) == 1 else "differ"
    rows = [f"Not close: {len(failing)} of {of_all} {differ}{allowed}"]
    rows += _leaf_rows(failing[:_MAX_LEAVES])
    if len(failing) > _MAX_LEAVES:
        rows.append(f"  and {len(failing) - _MAX_LEAVES} more: {rest}")
    worst = worst_leaf(leaves)
    if worst is not None:
        measure = " by error/tol" if len(failing) > 1 and worst.worst() is not None else ""
        heading = f"The worst{measure}, {_ending(worst.path)}:"
        rows += ["", heading, *_beginning(worst, _WORST_ROWS, advise)]
        calls = {next_call(leaf, leaf.path) for leaf in failing}
        if advise and len(calls) == 1 and "" not in calls:
            rows.append(f"next: {calls.pop()}")
    return "\n".join(rows)


def _leaf_rows(leaves: Sequence[ComparisonData]) -> list[str]:
    """Return a row for each leaf with a description and its largest differences."""
    cells = [_largest(leaf) for leaf in leaves]
    pairs = zip(leaves, cells, strict=True)
    texts = [_difference(leaf, has_numbers=bool(numbers)) for leaf, numbers in pairs]
    name_width = max(
        (len(leaf.path) for leaf in leaves if len(leaf.path) <= _NAME_WIDTH), default=0
    )
    widths = [len(text) for text, numbers in zip(texts, cells, strict=True) if numbers]
    margin = " " * (name_width + 4 if any(leaf.path for leaf in leaves) else 2)
    header = ["max abs", "max rel", "error/tol"]
    if len(margin) + max(widths, default=0) + len(_numbers(header)) > WIDTH:
        header.pop()
    width = min(max(widths, default=0), WIDTH - len(margin) - len(_numbers(header)))
    rows = []
    if widths:
        rows.append(f"{margin}{'':{width}}{_numbers(header)}")
    for leaf, text, numbers in zip(leaves, texts, cells, strict=True):
        name = leaf.path
        if len(name) > _NAME_WIDTH:
            rows.append(f"  {_ending(name)}")
            name = ""
        start = f"  {name:{name_width}}  " if leaf.path else "  "
        if numbers:
            text = textwrap.shorten(text, width, placeholder=" ...")
            rows.append(f"{start}{text:{width}}{_numbers(numbers[: len(header)])}")
        else:
            rows += wrapped(text, start, most=1, break_on_hyphens=False)
    return rows


def _difference(leaf: ComparisonData, has_numbers: bool) -> str:
    """Return the description of a leaf's mismatches: one pair of values, or counts."""
    if leaf.problems:
        return leaf.problems[0]
    text = _mismatches(leaf)
    first = next(iter(leaf.first_mismatches), None)
    if first is not None and (leaf.size == 1 or not has_numbers):
        unequal = " != ".join(values(first.actual, first.expected))
        return unequal if leaf.size == 1 else f"{text}: {index_text(first.index)} {unequal}"
    return f"{text}; {leaf.arrangement.partition(':')[0]}" if leaf.arrangement else text


def _largest(leaf: ComparisonData) -> list[str]:
    """Return the largest absolute, relative and error/tol; empty if no finite pair differs."""
    absolute, relative, excess = leaf.worst("absolute"), leaf.worst("relative"), leaf.worst()
    if absolute is None or relative is None or excess is None:
        return []
    return [brief(absolute.absolute), brief(relative.relative), brief(excess.excess)]


def _numbers(cells: Iterable[str]) -> str:
    return "".join(f"  {cell:>{width}}" for cell, width in zip(cells, (8, 8, 9), strict=False))


def _beginning(report: ComparisonData, count: int, advise: bool) -> list[str]:
    """Return the first lines of a report, cut between fields, and its notes."""
    rows, notes = _text(report, advise).splitlines(), list(_notes(report.notes))
    fields = rows[: len(rows) - len(notes)]
    while count < len(fields) and fields[count].startswith(INDENT):
        count -= 1
    return fields[:count] + notes


def _tolerances(leaves: Sequence[ComparisonData]) -> list[str]:
    """Return rows with the tolerances, and with their dtypes if there are several."""
    dtypes: dict[str, dict[str, None]] = {}
    for leaf in leaves:
        dtypes.setdefault(_tolerance(leaf), {}).update(dict.fromkeys([leaf.actual_dtype]))
    rows: list[str] = []
    for text, names in list(dtypes.items())[:_MAX_LEAVES]:
        of_dtypes = f" ({', '.join(names)})" if len(dtypes) > 1 else ""
        rows += _entry("" if rows else "tolerance", text + of_dtypes)
    return rows


def _notes(notes: Iterable[str]) -> list[str]:
    """Return rows with each note once."""
    return [line for note in dict.fromkeys(notes) for line in _entry("note", note)]


def _ending(path: str) -> str:
    """Return a path, cut at its beginning if it is longer than a line."""
    return path if len(path) <= _PATH_WIDTH else f"...{path[3 - _PATH_WIDTH :]}"


def _headline(report: ComparisonData) -> str:
    if report.tally is None:
        return "Not close: nothing could be compared"
    if report.problems and not report.mismatches:
        return f"Not close: all values{' not masked' * bool(_masked(report))} agree, but"
    return ("Close: " if report else "Not close: ") + _mismatches(report)


def _mismatches(report: ComparisonData) -> str:
    size, mismatches, masked = report.size, report.mismatches, _masked(report)
    if mismatches:
        return f"{differing(mismatches, size)} ({percent(mismatches, size)})"
    if masked and masked == size:
        return f"all {size} pairs are masked" if size > 1 else "the pair is masked"
    agreeing = f"{size - masked} element{'s agree' if size - masked != 1 else ' agrees'}"
    return f"{agreeing}, {masked} masked" if masked else agreeing


def _masked(report: ComparisonData) -> int:
    """Return the number of pairs that are not compared because of a mask."""
    return 0 if report.tally is None else sum(int(report.tally[name]) for name in MASKED)


def differing(count: int, size: int, noun: str = "element") -> str:
    """Return a text such as "2 of 5 elements differ"."""
    return f"{count} of {size} {noun}{'s' * (size != 1)} differ{'s' * (count == 1)}"


def _entry(name: str, text: str) -> list[str]:
    """Return a label and its text in at most two lines."""
    rows = field(name, text, break_on_hyphens=False)
    return [line.replace(_GLUE, " ") for line in rows]


def _arrays(report: ComparisonData) -> list[str]:
    actual = f"{report.actual_dtype} {report.actual_shape}"
    expected = f"{report.expected_dtype} {report.expected_shape}"
    if actual == expected:
        return _entry("arrays", actual)
    return [*_entry("actual", actual), *_entry("expected", expected)]


def _tolerance(report: ComparisonData) -> str:
    rule = report.rule
    if rule.max_ulp is not None:
        return f"{rule.max_ulp} ULP"
    if rule.rtol == rule.atol == 0:
        return "exact equality"
    return f"|actual - expected| <= {float(rule.atol):g}{_unit(report)} + {rule.rtol:g}*|expected|"


def _unit(report: ComparisonData) -> str:
    """Return the unit of the absolute tolerance, or "" if the arrays have none."""
    kinds = report.actual_dtype, report.expected_dtype
    names = [kind.partition("[")[0] for kind in kinds]
    if names[0] != names[1] or names[0] not in ("timedelta64", "datetime64"):
        # The unit of a quantity is written after its dtype.
        times = ("timedelta64", "datetime64")
        others = [kind for kind, name in zip(kinds, names, strict=True) if name not in times]
        named = re.fullmatch(r"\w+\[(.+)\]", others[0]) if others else None
        return f" {named[1]}" if named else ""
    ticks = common_format(*map(np.dtype, kinds))
    unit, count = np.datetime_data(ticks) if ticks is not None else ("generic", 1)
    return "" if unit == "generic" else f" {unit}" if count == 1 else f"*{count} {unit}"


def _allowances(rule: "Criteria") -> str:
    text = f"; max_mismatches={rule.max_mismatches}" if rule.max_mismatches else ""
    if rule.max_mismatch_ratio:
        text += f"; max_mismatch_ratio={rule.max_mismatch_ratio:g}"
    return text


def _counts(report: ComparisonData) -> str:
    signs = report.sign_mismatches
    finite, infinite = report.finite_mismatches, report.infinite_mismatches
    numbers = "of finite numbers" + f" ({signs} of opposite sign)" * bool(signs)
    classes = [
        (finite, f"pair{'s' * (finite != 1)} {numbers}"),
        (infinite, f"pair{'s' * (infinite != 1)} with an infinity"),
        (report.nan_actual, "NaN only in actual"),
        (report.nan_expected, "NaN only in expected"),
        (0 if report.rule.equal_nan else report.nan_both, "NaN in both (equal_nan=False)"),
    ]
    return ", ".join(f"{count} {name}" for count, name in classes if count)


def _masked_counts(report: ComparisonData) -> str:
    """Return the numbers of pairs that are masked in both arrays or in one."""
    where = ("in both", "only in actual", "only in expected")
    counts = {} if report.tally is None else {name: int(report.tally[name]) for name in MASKED}
    text = ", ".join(f"{n} {name}" for n, name in zip(counts.values(), where, strict=True) if n)
    return f"{text}; not compared"


def _table(report: ComparisonData) -> list[str]:
    """Return a table of the first mismatches and of other pairs with the largest errors."""
    first = {x.index: _cells(x) for x in report.first_mismatches}
    largest: dict[tuple[int, ...], list[str]] = {}
    is_exact = _is_exact(report.rule)  # then error/tol is infinite everywhere
    for measure, column in list(zip(MEASURES, range(2, 6), strict=True))[is_exact:]:
        difference = report.worst(measure)
        if difference is not None:
            index = difference.index
            block = first if index in first else largest
            block.setdefault(index, _cells(difference))[column] += "*"
    title = "mismatches" if report.mismatches == len(first) else f"first {len(first)}"
    if not largest and title == "mismatches":  # all are shown, and few
        first = {index: [cell.rstrip("*") for cell in cells] for index, cells in first.items()}
    elif not first and len(largest) == 1:
        largest = {x: [cell.rstrip("*") for cell in cells] for x, cells in largest.items()}
    blocks = {title: first, "largest": largest}
    rows = [cells for block in blocks.values() for cells in block.values()]
    shown = [k for k in range(6) if any(cells[k] != "-" for cells in rows)]
    shown = [k for k in shown if k != 2 or not is_exact]
    for block in blocks.values():
        block.update({index: [cells[k] for k in shown] for index, cells in block.items()})
    # Whole columns are dropped, since a number must not be cut.
    wide, narrow = ([names[k] for k in shown] for names in (_COLUMNS, _NARROW))
    layouts = [wide, *(narrow[:count] for count in range(len(narrow), 0, -1))]
    tables = (_rows(blocks, columns) for columns in layouts)
    table = next((rows for rows in tables if max(map(len, rows), default=0) <= WIDTH), [])
    is_marked = any(cell.endswith("*") for cells in rows for cell in cells[2:])
    return [*table, *_entry("*", "largest of its column")] if is_marked else table


def _is_exact(rule: "Criteria") -> bool:
    """Return True if only equal elements pass."""
    return rule.max_ulp == 0 or (rule.max_ulp is None and rule.rtol == rule.atol == 0)


def _rows(blocks: dict[str, dict[tuple[int, ...], list[str]]], columns: list[str]) -> list[str]:
    rows: list[tuple[str, list[str]]] = []
    for title, members in blocks.items():
        if members:
            rows.append((f"  {title}", [] if rows else columns))
            rows += [
                (f"    {index_text(index)}" * bool(index), cells[: len(columns)])
                for index, cells in members.items()
            ]
    left = max((len(label) for label, _ in rows), default=0)
    # The star of a cell is written after its column.
    widths = [
        max(len(cells[k].rstrip("*")) for _, cells in rows if cells) if rows else 0
        for k in range(len(columns))
    ]
    return [(label.ljust(left) + _aligned(cells, widths)).rstrip() for label, cells in rows]


def _aligned(cells: list[str], widths: list[int]) -> str:
    text = ""
    for cell, width in zip(cells, widths, strict=False):
        value = cell.rstrip("*")
        text += f" {value:>{width}}{'*' if value != cell else ' '}"
    return text


def _cells(x: Difference) -> list[str]:
    numbers = (brief(value) for value in (x.excess, x.absolute, x.relative))
    return [*values(x.actual, x.expected), *numbers, "-" if x.ulp is None else brief(x.ulp)]


def _summary(report: ComparisonData, advise: bool) -> Iterable[str]:
    if report.finite:
        norms = f"RMSE {brief(report.rms)}"
        if not math.isnan(report.relative_norm):  # dates have none
            norms += f", relative error {brief(report.relative_norm)} (2-norm)"
        is_partial = report.finite < report.size - _masked(report)
        yield from _entry("overall", norms + ", of the finite pairs" * is_partial)
    if report.mismatches and (text := remedy(report, advise)):
        # With mismatches allowed, the options at which all pass may be more than it takes.
        allowed = report.rule.max_mismatches or report.rule.max_mismatch_ratio
        text = text.replace(" (same ", f"{_GLUE}(same{_GLUE}")
        yield from _entry("all pass" if allowed else "passes", text)
    histogram = report.ulp_histogram
    if histogram and histogram[-1][0] and report.size > 1:
        yield from _entry("ULP", _ranges(histogram))


def _ranges(histogram: Sequence[tuple[int, int, int]]) -> str:
    """Return the histogram in ULP as text, merged into at most five ranges."""
    zero = [x for x in histogram if x[0] == 0]
    rest = [x for x in histogram if x[0] > 0]
    size = math.ceil(len(rest) / 4)
    groups = [
        *([zero] if zero else []),
        *(rest[i : i + size] for i in range(0, len(rest), size or 1)),
    ]
    texts = (
        f"{_range(group[0][0], group[-1][1])}: {sum(count for _, _, count in group)}"
        for group in groups
    )
    return ", ".join(text.replace(" ", _GLUE) for text in texts)


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{brief(low)} to {brief(high)}"
