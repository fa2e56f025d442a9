"""Write the tables of docs/validation.md from runs that were stored as JSON."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/validation.md"
PLACE = re.compile(r"(?<=<!-- random functions -->\n).*?(?=<!-- end of random functions -->)", re.S)
Rows = Mapping[tuple[str, str, str], Mapping[str, Any]]

FUNCTIONS = {
    ("random64", "all"): "random, float64",
    ("random64", "clear"): "... far above noise",
    ("random32", "all"): "random, float32",
    ("random32", "clear"): "... far above noise",
    ("reported", "all"): "from public reports",
    ("kinks", "all"): "next to planted kinks",
    ("tied", "all"): "max, sort, norms, eigenvalues, ...",
    ("torch_ops", "all"): "torch's operators",
}
CLAIMS = {
    ("kinks", "kink", "all"): "a slope, or the mean of both, at a kink",
    ("kinks", "near", "all"): "the right slope, within a step of a kink",
    ("kinks", "other", "all"): "the slope of its other side",
    ("tied", "kink", "all"): "a subgradient where values tie",
    ("tied", "near", "all"): "the right derivative, within a step of a tie",
    ("tied", "other", "all"): "the derivative of its other side",
    ("reported", "kink", "all"): "kinks and ties from public reports",
}


def stored(files: Iterable[Path]) -> Rows:
    """Return the rows of some runs, by group, kind and subset."""
    rows = [row for file in files for row in json.loads(file.read_text())["rows"]]
    return {(row["group"], row["kind"], row["subset"]): row for row in rows}


def tables(after: Rows, before: Rows) -> str:
    """Return four tables: right derivatives, mistakes, kinks, and errors of `differentiate`."""

    def claims(kind: str) -> dict[tuple[str, str, str], str]:
        return {(group, kind, subset): name for (group, subset), name in FUNCTIONS.items()}

    parts = (
        ("right derivatives", claims("right"), ("PASS", "INCONCLUSIVE", "FAIL", "NONSMOOTH")),
        ("mistakes", claims("mistake"), ("FAIL", "INCONCLUSIVE", "NONSMOOTH", "PASS")),
        ("claims", CLAIMS, ("NONSMOOTH", "INCONCLUSIVE", "PASS", "FAIL")),
        ("`differentiate`", claims("estimate"), ("covered", "low", "wrong", "unknown")),
    )
    lines = []
    for title, names, columns in parts:
        head = f"| {title} | number | {' | '.join(columns)} | calls of `f` per column |"
        lines += ["", head, "|---|" + "---:|" * (len(columns) + 2)]
        for key, name in names.items():
            if key in after:
                row = after[key]
                cells = [_cell(row, before.get(key), column) for column in (*columns, "calls")]
                lines.append(f"| {name} | {_number(row['checks'])} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", ""])


def _cell(row: Mapping[str, Any], before: Mapping[str, Any] | None, column: str) -> str:
    if before is None:
        return _number(row[column])
    return f"{_number(before[column])} → {_number(row[column])}"


def _number(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}".replace(",", " ")


def write(new: Iterable[Path], old: Iterable[Path]) -> None:
    """Write the tables of new runs into the page, with the numbers of old ones before theirs."""
    text = tables(stored(new), stored(old))
    PAGE.write_text(PLACE.sub(lambda _: text, PAGE.read_text()))
