"""The text of a report: within 80 columns, and about 25 lines."""

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arguments import as_float
from ._arrangement import percent, region
from ._tally import MASKED, MEASURES
from .interop.times import common_format

if TYPE_CHECKING:
    from ._tally import Rule
    from .reports import Comparison, Difference, NestedComparison

_WIDTH = 80
_LEAVES = 8
_NAME, _PATH = 36, 66
_VALUE = 20
_POWER = re.compile(r"(?<=\d)[eE][+-]?\d+\Z")
_OPTION = re.compile(r"\bcheck_\w+=False")
_COLUMNS = ("actual", "expected", "/allowed", "absolute", "relative", "ULP")
_NARROW = ("actual", "expected", "/allowed", "abs", "rel", "ULP")


def comparison_text(report: "Comparison") -> str:
    """Write a report: the verdict, the arrays, and where and how far they differ."""
    lines = [_headline(report)]
    for problem in report.problems:
        lines += textwrap.wrap(problem, _WIDTH, initial_indent="  ", subsequent_indent="    ")
    lines += _described(report)
    looks = report.arrangement
    similar = _entry("looks like", f"actual is {looks}") if looks else []
    if report.tally is None:
        return "\n".join(lines + similar)
    lines += _entry("allowed", _allowed(report))
    if report.mismatches:
        lines += _entry("counts", _counts(report))
        lines += _entry("where", region(report.tally))
    if _masked(report):
        lines += _entry("masked", _masked_counts(report))
    lines += similar
    lines += _table(report)
    lines += _summary(report)
    lines += _notes(report.notes)
    return "\n".join(line[:_WIDTH].rstrip() for line in lines)


def headline_and_rest(report: "Comparison") -> tuple[str, str]:
    """Return the verdict with all that it names in one line, and the text that follows it."""
    headline, _, rest = comparison_text(report).partition("\n")
    if report.problems and not report.mismatches:
        headline += f"{':' if report.tally is None else ''} {'; '.join(report.problems)}"
    return headline, rest


def nested_text(
    report: "NestedComparison",
    names: tuple[str, str] = ("leaf", "leaves"),
    rest: str = "see .failing",
) -> str:
    """Write a line for each failing leaf, and the report of the worst."""
    failing = report.failing
    allowed = _allowances(report.leaves[0].rule) if report.leaves else ""
    if not failing:
        agree = f"{names[0]} agrees" if len(report.leaves) == 1 else f"{names[1]} agree"
        masked = sum(map(_masked, report.leaves))
        if masked:
            agree += f" ({masked} masked pair{'s' * (masked != 1)} not compared)"
        notes = _notes(note for leaf in report.leaves for note in leaf.notes)
        headline = f"Close: {len(report.leaves)} {agree}{allowed}"
        return "\n".join([headline, *_tolerances(report), *notes])
    of_all = f"{len(report.leaves)} {names[len(report.leaves) != 1]}"
    differ = "differs" if len(failing) == 1 else "differ"
    lines = [f"Not close: {len(failing)} of {of_all} {differ}{allowed}"]
    shown = failing[:_LEAVES]
    width = max((len(leaf.path) for leaf in shown if len(leaf.path) <= _NAME), default=0)
    for leaf in shown:
        text = leaf.problems[0] if leaf.problems else _mismatches(leaf)
        name = leaf.path
        if len(name) > _NAME:
            lines.append(f"  {_ending(name)}")
            name = ""
        lines += _wrapped(text, f"  {name:{width}}  " if leaf.path else "  ", "", 1)
    if len(failing) > _LEAVES:
        lines.append(f"  and {len(failing) - _LEAVES} more: {rest}")
    worst = report.worst
    if worst is not None:
        heading = f"The worst, {_ending(worst.path)}:"
        lines += ["", heading, *comparison_text(worst).splitlines()[:18]]
    return "\n".join(lines)


def _tolerances(report: "NestedComparison") -> list[str]:
    """Write the tolerances that were applied, with their dtypes where there are several."""
    dtypes: dict[str, dict[str, None]] = {}
    for leaf in report.leaves:
        dtypes.setdefault(_tolerance(leaf), {}).update(dict.fromkeys([leaf.actual_dtype]))
    lines: list[str] = []
    for text, names in list(dtypes.items())[:_LEAVES]:
        of_dtypes = f" ({', '.join(names)})" if len(dtypes) > 1 else ""
        lines += _entry("" if lines else "allowed", text + of_dtypes)
    return lines


def _notes(notes: Iterable[str]) -> list[str]:
    """Write each note once."""
    return [line for note in dict.fromkeys(notes) for line in _entry("note", note)]


def _ending(path: str) -> str:
    """Cut the beginning of a path that no line has room for."""
    return path if len(path) <= _PATH else f"...{path[3 - _PATH :]}"


def _headline(report: "Comparison") -> str:
    if report.tally is None:
        return "Not close: nothing could be compared"
    if report.problems and not report.mismatches:
        return f"Not close: all values{' not masked' * bool(_masked(report))} agree, but"
    return ("Close: " if report else "Not close: ") + _mismatches(report)


def _mismatches(report: "Comparison") -> str:
    size, mismatches, masked = report.size, report.mismatches, _masked(report)
    if mismatches:
        return f"{differing(mismatches, size)} ({percent(mismatches, size)})"
    if masked and masked == size:
        return f"all {size} pairs are masked" if size > 1 else "the pair is masked"
    agreeing = f"{size - masked} element{'s agree' if size - masked != 1 else ' agrees'}"
    return f"{agreeing}, {masked} masked" if masked else agreeing


def _masked(report: "Comparison") -> int:
    """Return the number of pairs that are not compared, as one of the two is masked."""
    return 0 if report.tally is None else sum(int(report.tally[name]) for name in MASKED)


def differing(count: int, size: int, noun: str = "element") -> str:
    """Say how many of some differ."""
    return f"{count} of {size} {noun}{'s' * (size != 1)} differ{'s' * (count == 1)}"


def _entry(name: str, text: str) -> list[str]:
    """Write a name and what there is to it, in two lines at most."""
    return _wrapped(text, f"  {name:<11}", " " * 13, 2)


def _wrapped(text: str, first: str, rest: str, count: int) -> list[str]:
    """Write a text after the beginnings of its lines; what they have no room for is left out."""
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        max_lines=count,
        placeholder=" ...",
    )


def _described(report: "Comparison") -> list[str]:
    own = f"{report.actual_dtype} {report.actual_shape}"
    reference = f"{report.expected_dtype} {report.expected_shape}"
    if own == reference:
        return _entry("arrays", own)
    return [*_entry("actual", own), *_entry("expected", reference)]


def _allowed(report: "Comparison") -> str:
    return _tolerance(report) + _allowances(report.rule)


def _tolerance(report: "Comparison") -> str:
    rule = report.rule
    if rule.max_ulp is not None:
        return f"{rule.max_ulp} ULP"
    if rule.rtol == rule.atol == 0:
        return "equality only"
    return f"|actual - expected| <= {float(rule.atol):g}{_unit(report)} + {rule.rtol:g}*|expected|"


def _unit(report: "Comparison") -> str:
    """Write the unit of an absolute tolerance, if the arrays have one."""
    kinds = report.actual_dtype, report.expected_dtype
    names = [kind.partition("[")[0] for kind in kinds]
    if names[0] != names[1] or names[0] not in ("timedelta64", "datetime64"):
        # Arrays with a unit are compared in one, which stands behind their dtypes.
        times = ("timedelta64", "datetime64")
        others = [kind for kind, name in zip(kinds, names, strict=True) if name not in times]
        named = re.fullmatch(r"\w+\[(.+)\]", others[0]) if others else None
        return f" {named[1]}" if named else ""
    ticks = common_format(*map(np.dtype, kinds))
    unit, count = np.datetime_data(ticks) if ticks is not None else ("generic", 1)
    return "" if unit == "generic" else f" {unit}" if count == 1 else f"*{count} {unit}"


def _allowances(rule: "Rule") -> str:
    text = f"; max_mismatches={rule.max_mismatches}" if rule.max_mismatches else ""
    if rule.max_mismatch_ratio:
        text += f"; max_mismatch_ratio={rule.max_mismatch_ratio:g}"
    return text


def _counts(report: "Comparison") -> str:
    classes = [
        (report.finite_mismatches, "finite"),
        (report.sign_mismatches, "of them of opposite sign"),
        (report.infinite_mismatches, "infinite"),
        (report.nan_actual, "NaN only in actual"),
        (report.nan_expected, "NaN only in expected"),
        (0 if report.rule.equal_nan else report.nan_both, "NaN in both (equal_nan=False)"),
    ]
    return ", ".join(f"{count} {name}" for count, name in classes if count)


def _masked_counts(report: "Comparison") -> str:
    """Write how many pairs are not compared, by the side that is masked."""
    sides = ("in both", "only in actual", "only in expected")
    counts = {} if report.tally is None else {name: int(report.tally[name]) for name in MASKED}
    text = ", ".join(f"{n} {side}" for n, side in zip(counts.values(), sides, strict=True) if n)
    return f"{text}; not compared"


def _table(report: "Comparison") -> list[str]:
    """Write the first mismatches, and the pairs that are farthest apart by each measure."""
    first = report.first_mismatches
    title = "first mismatches" if report.mismatches > len(first) else "mismatches"
    blocks = {title: {x.index: _cells(x) for x in first}, "largest (*)": {}}
    for measure, column in zip(MEASURES, range(2, 6), strict=True):
        difference = report.worst(measure)
        if difference is not None:
            cells = blocks["largest (*)"].setdefault(difference.index, _cells(difference))
            cells[column] += "*"
    # A number that is cut is another number: columns give way as a whole.
    layouts = [_COLUMNS, *(_NARROW[:count] for count in range(len(_NARROW), 0, -1))]
    tables = (_rows(blocks, columns) for columns in layouts)
    return next((rows for rows in tables if max(map(len, rows), default=0) <= _WIDTH), [])


def _rows(
    blocks: dict[str, dict[tuple[int, ...], list[str]]], columns: tuple[str, ...]
) -> list[str]:
    rows: list[tuple[str, list[str]]] = []
    for title, members in blocks.items():
        if members:
            rows.append((f"  {title}", [] if rows else list(columns)))
            rows += [
                (f"    {_index(index)}", cells[: len(columns)]) for index, cells in members.items()
            ]
    left = max((len(label) for label, _ in rows), default=0)
    # A star stands beside its column.
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


def _index(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]"


def _cells(x: "Difference") -> list[str]:
    numbers = (_brief(value) for value in (x.excess, x.absolute, x.relative))
    return [*_values(x.actual, x.expected), *numbers, "-" if x.ulp is None else _brief(x.ulp)]


def _values(a: Any, b: Any) -> tuple[str, str]:
    """Write two values with as many digits as tell them apart."""
    if isinstance(a, float | complex) and isinstance(b, float | complex):
        for digits in range(6, 18):
            texts = f"{a:.{digits}g}", f"{b:.{digits}g}"
            if texts[0] != texts[1]:
                return texts
        return f"{a:.6g}", f"{b:.6g}"
    write = [repr if isinstance(x, str) else str for x in (a, b)]
    words = write == [repr, repr]
    a, b = _text(a), _text(b)
    skipped = _left_out(a, b, words)
    mark = "..." if skipped else ""
    return _short(mark + write[0](a[skipped:])), _short(mark + write[1](b[skipped:]))


def _left_out(a: str, b: str, words: bool) -> int:
    """Return how much of the beginning of two texts goes, for their difference to be seen."""
    pairs = enumerate(zip(a, b, strict=False))
    same = next((k for k, (x, y) in pairs if x != y), min(len(a), len(b)))
    beyond = max(len(a), len(b)) - (_VALUE - 2 if words else _VALUE)  # words are quoted
    has_no_text = a.startswith("<") and not words  # of its own, but a type
    if beyond <= 0 or same <= 9 or has_no_text:
        return 0
    return same - 6 if words else min(same - 6, beyond + 3)  # numbers are read from both ends


def _text(x: Any) -> str:
    try:
        return str(x)
    except Exception:  # of an integer of more digits than Python writes, say
        return object.__repr__(x)


def _short(text: str) -> str:
    if not text.isprintable():  # what would move the cursor
        text = repr(text)[1:-1]
    if len(text) <= _VALUE:
        return text
    # Without its power of ten a number would be another one.
    power = _POWER.search(text)
    end = f"...{power[0]}" if power else "..."
    return text[: _VALUE - len(end)] + end


def _brief(x: float) -> str:
    """Write a number in few characters; an integer in full if that is short."""
    if isinstance(x, int) and x < 10**6:
        return str(x)
    if isinstance(x, int) and math.isinf(as_float(x)):
        digits, _, power = f"{Decimal(x):.2e}".partition("e+")
        return f"{float(digits):g}e{power}"
    if math.isnan(x):
        return "-"
    return f"{float(x):.3g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def _summary(report: "Comparison") -> Iterable[str]:
    if report.finite:
        norms = f"RMS {_brief(report.rms)}, relative norm {_brief(report.relative_norm)}"
        yield from _entry("overall", norms)
    if report.mismatches and (text := _remedy(report)):
        # With mismatches allowed, the options at which all pass may be more than it takes.
        allowed = report.rule.max_mismatches or report.rule.max_mismatch_ratio
        yield from _entry("all pass" if allowed else "passes", f"with {text}")
    histogram = report.ulp_histogram
    if histogram and histogram[-1][0]:
        yield from _entry("ULP", _spread(histogram))


def _remedy(report: "Comparison") -> str:
    """Write the options at which all elements pass; nothing if they are not known."""
    options = [option for problem in report.problems for option in _OPTION.findall(problem)]
    if len(options) < len(report.problems):
        return ""
    finite = report.finite_mismatches
    nan_both = 0 if report.rule.equal_nan else report.nan_both
    if nan_both:
        options.insert(0, "equal_nan=True")
    passing, failing = "", ""
    if report.mismatches > finite + nan_both:
        failing = f"no tolerance: {_reason(report)}"
    elif finite:
        passing, failing = _passing_tolerances(report)
        if not (passing or failing or options or is_boolean(report)):
            return ""  # of dtypes without a kernel no tolerances are computed
    if passing or not (failing or finite):
        return ", and ".join(filter(None, [passing, " and ".join(options)]))
    if report.rule.max_mismatches or report.rule.max_mismatch_ratio:
        return failing
    allowing = " and ".join([f"max_mismatches={report.mismatches}", *options[bool(nan_both) :]])
    return f"{allowing}; with {failing}" if failing else allowing


def is_boolean(report: "Comparison") -> bool:
    """Return True if both arrays are of booleans."""
    return report.actual_dtype == report.expected_dtype == "bool"


def _reason(report: "Comparison") -> str:
    """Say why no tolerance lets all elements pass."""
    if report.tally is not None and report.tally["without_distance"]:
        return f"{'some' if report.finite else 'the'} elements have no distance"
    return "NaN or infinities differ"


def _passing_tolerances(report: "Comparison") -> tuple[str, str]:
    """Write the tolerances at which the finite mismatches pass, or that there are none."""
    if is_boolean(report):
        return "", ""  # they are equal or not
    worst = report.worst("ulp")
    if report.rule.max_ulp is not None and worst is not None and worst.ulp is not None:
        # Of 64 bits, a step count may be beyond all that max_ulp takes.
        return (f"max_ulp={worst.ulp}", "") if worst.ulp < 2**63 else ("", "no max_ulp below 2**63")
    if report.tally is None or math.isnan(report.tally["passing_rtol"]):
        return "", ""  # they were not computed
    values = {name: float(report.tally[f"passing_{name}"]) for name in ("rtol", "atol")}
    passing = [f"{name}={x!r}" for name, x in values.items() if x and math.isfinite(x)]
    return " or ".join(passing), "" if passing else "no rtol alone, nor an atol alone"


def _spread(histogram: Sequence[tuple[int, int, int]]) -> str:
    """Write how many pairs are how far apart, from few ULP to many, in at most five ranges."""
    zero = [x for x in histogram if x[0] == 0]
    rest = [x for x in histogram if x[0] > 0]
    size = math.ceil(len(rest) / 4)
    groups = [
        *([zero] if zero else []),
        *(rest[i : i + size] for i in range(0, len(rest), size or 1)),
    ]
    return ", ".join(
        f"{_range(group[0][0], group[-1][1])}: {sum(count for _, _, count in group)}"
        for group in groups
    )


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{_brief(low)} to {_brief(high)}"


def jsonable(x: Any) -> Any:
    """Turn a finding into what JSON can hold."""
    if is_dataclass(x) and not isinstance(x, type):
        return jsonable_fields(x)
    if isinstance(x, Mapping):
        return {str(key): jsonable(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [jsonable(value) for value in x]
    if x is None or isinstance(x, bool | str) or (isinstance(x, float) and math.isfinite(x)):
        return x
    if isinstance(x, Fraction):
        return float(x)
    text = _text(x)
    # An integer that Python does not write, JSON cannot hold.
    return x if isinstance(x, int) and not text.startswith("<") else text


def jsonable_fields(x: Any) -> dict[str, Any]:
    """Turn the fields of a dataclass into what JSON can hold."""
    return {f.name: jsonable(getattr(x, f.name)) for f in fields(x)}
