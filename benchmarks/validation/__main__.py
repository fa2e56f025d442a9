"""Tables of what `gradcheck` and `differentiate` say of functions whose derivatives are known.

``python -m benchmarks.validation [--count N] [--seed S] [--group NAME] [--json FILE]`` prints them,
with what reproduces the first errors: ``--only NAME`` repeats a problem and prints its reports.
``--compare OLD NEW`` prints the checks that differ between two files of JSON, and
``--page NEW ... --before OLD ...`` writes the tables of docs/validation.md from such files.

The groups are `random64` and `random32` (random smooth functions), `kinks`, `reported` (cases from
public reports), `tied` (values that tie) and `torch_ops` (torch's database of ops).

Subsets of the random functions
-------------------------------
`noise` is the rounding error of an output, measured against multiple precision, and `scale` the
length over which the exact function is straight enough to be differenced. An entry stands
``v = |entry| * scale / noise`` times above the noise.

- all: every function.
- visible: v >= 1000. A difference over the scale then has two to three correct digits. A mistake of
  1e-4 may change the output by only a tenth of the noise, and no checker that calls f can see it.
- decidable: the mistake alone, 1e-4 or 2e-2 times the entry, changes the output by ten times the
  noise, so that differences over a tenth of the scale still see it.
- clear: the mistake alone stands 1000 times above the noise.

A right Jacobian is in a subset if all its nonzero entries are; a wrong one if the wrong entry is,
and is not negligible: more than the default tolerance times the largest entry of its row or column.

Right claims should PASS, mistakes FAIL, and claims at a kink be NONSMOOTH. Right derivatives near a
kink may PASS or be NONSMOOTH; claims of the slope of its other side must not PASS.

An estimate is *wrong* if its status is CONVERGED or NOISY and its error is less than a hundredth of
the distance from the exact value; *low* if it is up to a hundred times too small; *tiny* if it is
wrong by less than the rounding of the largest entry of its column; and *unknown* if its status is
another one, or its error is not finite.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import calipers

from .checks import VERDICTS, Problem, Results
from .kinks import kinks
from .page import write
from .random_functions import problems as random_problems
from .tied import tied


def random64(seed: int, count: int) -> Iterable[Problem]:
    return random_problems(np.float64, seed, (count + 1) // 2)


def random32(seed: int, count: int) -> Iterable[Problem]:
    return random_problems(np.float32, seed, count // 2)


def reported(seed: int, count: int) -> Iterable[Problem]:
    from tests.data.reported_derivatives import reported as cases

    return cases(200)


def torch_ops(seed: int, count: int) -> Iterable[Problem]:
    from .torch_ops import torch_ops

    return torch_ops(samples=1, every=1)


GROUPS = {
    "random64": random64,
    "random32": random32,
    "kinks": lambda seed, count: kinks(seed, min(count, 400)),
    "reported": reported,
    "tied": lambda seed, count: tied(seed, min(count, 25)),
    "torch_ops": torch_ops,
}
# What counts as an error, and what as a weakness, by the kind of the claim.
ERRORS = {
    "right": ("FAIL", "NONSMOOTH", "ERROR"),
    "near": ("FAIL", "ERROR"),
    "other": ("PASS", "ERROR"),
    "mistake": ("PASS", "NONSMOOTH", "ERROR"),
    "kink": ("PASS", "FAIL", "ERROR"),
    "estimate": ("ERROR",),
}
WEAK = {"right": ("INCONCLUSIVE",), "mistake": ("INCONCLUSIVE",), "kink": ("INCONCLUSIVE",)}
OUTCOMES = ("covered", "low", "wrong", "tiny", "unknown")
SUBSETS = ("all", "visible", "decidable", "clear")


def spread(values: Iterable[float]) -> str:
    """Return the median, the 90th percentile and the maximum."""
    numbers = np.array(list(values))
    if not numbers.size:
        return "-"
    return "/".join(f"{v:.0f}" for v in (*np.quantile(numbers, [0.5, 0.9]), numbers.max()))


def tables(group: str, results: Results) -> Iterator[dict[str, Any]]:
    """Return the rows of a group, one for each kind of claim and subset."""
    for kind in dict.fromkeys(check.kind for check in results.checks):
        for subset in SUBSETS:
            chosen = [c for c in results.checks if c.kind == kind and subset in c.subsets]
            if not chosen:
                continue
            verdicts = Counter(c.verdict for c in chosen)
            row: dict[str, Any] = {"group": group, "kind": kind, "subset": subset}
            row |= {"checks": len(chosen), **{verdict: verdicts[verdict] for verdict in VERDICTS}}
            row |= {"calls": spread(c.calls for c in chosen)}
            yield {**row, "seconds": round(sum(c.seconds for c in chosen), 1)}
    if not results.estimates:
        return
    for subset in SUBSETS:
        counts: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        for estimates, eps in results.estimates:
            outcomes = estimates.outcomes(eps)
            for names, outcome, status in zip(
                estimates.subsets, outcomes, estimates.status, strict=True
            ):
                if subset in names:
                    counts[outcome] += 1
                    statuses[status] += 1
        if counts:
            row = {"group": group, "kind": "estimate", "subset": subset, "checks": counts.total()}
            row |= {name: counts[name] for name in OUTCOMES}
            row |= {
                "statuses": dict(statuses),
                "calls": spread(e.calls for e, _ in results.estimates),
            }
            yield {**row, "seconds": round(sum(e.seconds for e, _ in results.estimates), 1)}


def shown(rows: list[dict[str, Any]]) -> str:
    """Return the tables as text: one of checks, one of estimates."""
    lines = [
        _HEAD.format("group", "kind", "subset", "checks", *VERDICTS, "calls/column", "seconds")
    ]
    for row in rows:
        if "covered" not in row:
            counts = [row[verdict] or "." for verdict in VERDICTS]
            names = row["group"], row["kind"], row["subset"], row["checks"]
            lines.append(_HEAD.format(*names, *counts, row["calls"], row["seconds"]))
    lines += ["", _ENTRIES.format("differentiate", "subset", "entries", *OUTCOMES, "statuses")]
    for row in rows:
        if "covered" in row:
            counts = [row[name] or "." for name in OUTCOMES]
            statuses = ", ".join(f"{n} {name}" for name, n in sorted(row["statuses"].items()))
            text = f"{statuses}; calls/column {row['calls']}; {row['seconds']} s"
            lines.append(_ENTRIES.format(row["group"], row["subset"], row["checks"], *counts, text))
    return "\n".join(lines)


_HEAD = "{:10} {:8} {:9} {:>7}" + " {:>7}" * 2 + " {:>12} {:>9} {:>5} {:>13} {:>7}"
_ENTRIES = "{:13} {:9} {:>7} {:>8} {:>6} {:>6} {:>6} {:>8}  {}"


def offenders(results: Results) -> dict[str, list[str]]:
    """Return descriptions of the checks that are errors, and of weak ones that are clear."""
    found: dict[str, list[str]] = {}
    for c in results.checks:
        error = c.verdict in ERRORS[c.kind]
        plain = "clear" in c.subsets or "decidable" in c.subsets or not c.name.startswith("random")
        if error or (plain and c.verdict in WEAK.get(c.kind, ())):
            title = f"{c.kind} {c.verdict}" + ("" if error else " although decidable")
            if error and plain and c.name.startswith("random"):
                title += ", decidable"
            found.setdefault(title, []).append(f"{c.name} {c.label} {c.reason[:160]}")
    for estimates, eps in results.estimates:
        outcomes = estimates.outcomes(eps)
        for k, outcome in enumerate(outcomes):
            if outcome == "wrong":
                value, exact = estimates.value[k], estimates.exact[k]
                text = f"{value:.9g} ± {estimates.error[k]:.2g} {estimates.status[k]}"
                text = f"{text}, exact {exact:.9g}"
                found.setdefault("estimate wrong", []).append(f"{estimates.name} entry {k}: {text}")
    return found


def record(results: Results) -> dict[str, Any]:
    """Return what two runs are compared by."""
    checks = [
        [c.name, c.kind, c.label, c.verdict, round(c.calls, 1), c.subsets] for c in results.checks
    ]
    estimates = [[e.name, e.outcomes(eps), round(e.calls, 1)] for e, eps in results.estimates]
    return {"checks": checks, "estimates": estimates}


def compare(old: Path, new: Path) -> None:
    """Print how the verdicts of two runs differ."""
    before, after = (json.loads(path.read_text()) for path in (old, new))
    for group in before["groups"].keys() & after["groups"].keys():
        counts: dict[tuple[str, ...], list[str]] = {}
        verdicts = {tuple(c[:3]): c[3] for c in before["groups"][group]["checks"]}
        for name, kind, label, verdict, *_ in after["groups"][group]["checks"]:
            previous = verdicts.get((name, kind, label))
            if previous not in (None, verdict):
                counts.setdefault((kind, previous, verdict), []).append(f"{name} {label}".strip())
        outcomes = {e[0]: e[1] for e in before["groups"][group]["estimates"]}
        for name, entries, *_ in after["groups"][group]["estimates"]:
            for k, (a, b) in enumerate(zip(outcomes.get(name, entries), entries, strict=True)):
                if a != b:
                    counts.setdefault(("estimate", a, b), []).append(f"{name} entry {k}")
        for (kind, a, b), names in sorted(counts.items(), key=lambda item: -len(item[1])):
            print(f"{group:10} {kind:8} {a:>12} -> {b:12} {len(names):6}  {'; '.join(names[:3])}")


def repeat(name: str, seed: int, count: int) -> None:
    """Print the reports on one problem."""
    group, *rest = name.split(":")
    if group.startswith("random"):
        from .random_functions import draw, problem

        seed, index = map(int, rest)
        dtype = np.float64 if group == "random64" else np.float32
        chosen = [problem(draw(dtype, seed, index), seed, index)]
    else:
        chosen = [p for p in GROUPS[group](seed, count) if p.name == name]
    for p in chosen:
        print(p.name, p.text, repr(p.x), sep="\n")
        for claim in p.claims:
            results = Results()
            results.add(Problem(p.name, p.f, p.x, None, [claim], p.text))
            print(claim, results.checks[0], sep="\n")
        if p.jacobian is not None:
            print(repr(p.jacobian), calipers.differentiate(p.f, p.x), sep="\n")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.validation", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=10_000, help="random functions in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--group", action="append", choices=GROUPS, help="may be repeated")
    parser.add_argument("--json", type=Path, help="file that is written")
    parser.add_argument("--show", type=int, default=5, help="errors of each kind that are listed")
    parser.add_argument("--only", help="name of a problem, such as random64:0:17")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    parser.add_argument("--page", nargs="+", type=Path, metavar="NEW")
    parser.add_argument("--before", nargs="+", type=Path, metavar="OLD", default=[])
    options = parser.parse_args(arguments)
    if options.page:
        return write(options.page, options.before)
    if options.compare:
        return compare(*options.compare)
    if options.only:
        return repeat(options.only, options.seed, options.count)
    calipers.gradcheck(np.sin, np.ones(2), jac=lambda x: np.diag(np.cos(x)))
    calipers.differentiate(np.abs, np.zeros(1))  # compiles the kernels before the clock runs
    rows: list[dict[str, Any]] = []
    groups: dict[str, Any] = {}
    found: dict[str, dict[str, list[str]]] = {}
    for name in options.group or GROUPS:
        results = Results()
        for problem in GROUPS[name](options.seed, options.count):
            results.add(problem)
        rows += tables(name, results)
        groups[name] = record(results)
        found[name] = offenders(results)
    print(shown(rows))
    for name, kinds in found.items():
        for title, lines in kinds.items():
            print(f"\n{name}: {title}: {len(lines)}")
            print("\n".join(f"  {line}" for line in lines[: options.show]))
    if options.json:
        text = json.dumps({"rows": rows, "offenders": found, "groups": groups})
        options.json.write_text(text)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
