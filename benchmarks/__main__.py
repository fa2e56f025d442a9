"""
Measure calipers, compare with the targets in targets.toml, and exit with 1 below one.

``python -m benchmarks`` prints the results; with ``--markdown``, as benchmarks/results.md has them.
"""

import argparse
import os
import platform
import sys
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import calipers

from .measurements import GROUPS, Group

TARGETS = Path(__file__).with_name("targets.toml")


def machine() -> str:
    """Name the processor, the cores, their load, and the versions."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [s for s in cpuinfo.read_text().splitlines() if s.startswith("model name")]
        model = names[0].partition(": ")[2] if names else model
    versions = [f"Python {platform.python_version()}"]
    for package in ("calipers", "numpy", "numba", "scipy", "torch"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"no {package}")
    day = datetime.now(UTC).date()
    cores = f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f} at the start)"
    return f"{day}; {model}, {cores}, {calipers.get_num_threads()} threads; {', '.join(versions)}."


def main(
    arguments: Sequence[str] | None = None,
    groups: Mapping[str, Group] = GROUPS,
    targets: Mapping[str, float] | None = None,
) -> int:
    """Print the measurements as they are made; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    markdown = parser.parse_args(arguments).markdown
    if targets is None:
        targets = tomllib.loads(TARGETS.read_text("utf-8"))
    print("## Speed\n\n<!-- speed -->\n" if markdown else "", machine(), sep="", flush=True)
    below = []
    for title, group in groups.items():
        print(f"\n### {title}\n\n| | result | |\n|---|---:|---|" if markdown else f"\n{title}")
        for measured in group():
            line = "| {} | {} | {} |" if markdown else "  {:<58} {:>36}  {}"
            print(line.format(measured.name, measured.shown, measured.remark).rstrip(), flush=True)
            target = targets.get(measured.key)
            if target is not None and not measured.reaches(target):
                below.append(f"{measured.name}: {measured.shown}, target {target:g}")
    print("\n".join(["", *below]) if below else "", file=sys.stderr)
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
