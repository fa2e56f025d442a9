"""
Set the targets of `make bench`: ``python -m benchmarks.targets RUN...`` writes targets.toml.

Each RUN is a file with the tables of one quiet run, ``python -m benchmarks --markdown``. A target
is the best value of the runs times 0.8, or divided by 0.8 where less is better. A regression falls
below it; the noise of a quiet machine does not.
"""

import re
import sys
from pathlib import Path

from .__main__ import TARGETS
from .measurements import Measurement, is_speed

SLACK = 0.8  # share of the best speed that still counts as the same speed
ROW = re.compile(r"^\| (.+?) \| ([\d.e+-]+) (.+?) \|", re.M)


def results(tables: str) -> dict[str, Measurement]:
    """Read the rows of a run's tables, by their keys."""
    rows = (Measurement(name, float(value), unit) for name, value, unit in ROW.findall(tables))
    return {row.key: row for row in rows}


def targets(runs: list[dict[str, Measurement]]) -> dict[str, float]:
    """Return the target of each measurement that all runs have."""
    common = [key for key in runs[0] if all(key in run for run in runs)]
    values = {key: [run[key].value for run in runs] for key in common}
    return {
        key: SLACK * max(values[key]) if is_speed(runs[0][key].unit) else min(values[key]) / SLACK
        for key in common
    }


def main(paths: list[str]) -> None:
    runs = [results(Path(path).read_text("utf-8")) for path in paths]
    lines = [
        f"# Targets of `make bench`: {SLACK} times the best of {len(paths)} quiet runs. Written by",
        "# `python -m benchmarks.targets`.",
        *(f'"{key}" = {value:.3g}' for key, value in targets(runs).items()),
    ]
    TARGETS.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
