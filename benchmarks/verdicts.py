"""Verdicts on labelled pairs of implementations: by diagnose, and by the usual criteria.

``python -m benchmarks.verdicts [seeds]`` checks pairs of tests/data/verdict_cases; those of
HELD_OUT were added when the rules stood, and are scored apart, as transforms and other fields are.

``python -m benchmarks.verdicts --groups NAME ... [--seeds N] [--json FILE]`` prints one row for
each group of pairs, and the wrong verdicts; ``--groups all`` takes all of them, and ``--only PART``
the pairs with that part in their names. ``--compare OLD NEW`` prints what differs between two files
of JSON.
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

import calipers

# What a yes or no can be right about: the same function, but for rounding; or another one.
_ROUNDING = {"EQUAL", "ROUNDING", "LAYOUT", "AMPLIFIED", "NONDETERMINISTIC"}


class Asked(NamedTuple):
    """A pair at one seed: what each side gives here and, where it can, in float64."""

    f: list[np.ndarray]
    g: list[np.ndarray]
    wide: tuple[list[np.ndarray], list[np.ndarray]] | None


def arrays(y: Any) -> list[np.ndarray]:
    """Return the arrays of a result, which may be in containers."""
    if isinstance(y, dict):
        y = [y[name] for name in sorted(y)]
    if isinstance(y, (tuple, list)):
        return [array for item in y for array in arrays(item)]
    return [np.asarray(y)]


def widened(x: Any) -> Any:
    kinds = {"float32": float, "float16": float, "complex64": complex}
    return x.astype(kinds.get(x.dtype.name, x.dtype)) if isinstance(x, np.ndarray) else x


def ask(case: Any, seed: int) -> Asked | None:
    """Call both sides; None if one raises."""
    f, g, inputs = case.make(np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        try:
            answers = arrays(f(*inputs)), arrays(g(*inputs))
        except Exception:  # what raises is not compared
            return None
        try:
            wide = tuple(map(widened, inputs))
            return Asked(*answers, (arrays(f(*wide)), arrays(g(*wide))))
        except Exception:
            return Asked(*answers, None)


def each(asked: Asked, accepts: Callable[[np.ndarray, np.ndarray], Any]) -> bool:
    pairs = zip(asked.f, asked.g, strict=False)
    with np.errstate(all="ignore"):
        return len(asked.f) == len(asked.g) and all(
            x.shape == y.shape and bool(accepts(x, y)) for x, y in pairs
        )


def close(asked: Asked) -> bool:
    return each(asked, lambda x, y: np.allclose(y, x, equal_nan=True))


_TORCH = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def torch_close(asked: Asked) -> bool:
    def accepts(x: np.ndarray, y: np.ndarray) -> bool:
        rtol, atol = _TORCH.get(x.real.dtype.name, (0, 0))
        return np.allclose(y, x, rtol, atol, equal_nan=True)

    return each(asked, accepts)


def errors(asked: Asked, norm: Callable[[np.ndarray], float]) -> tuple[float, float] | None:
    """Return norms of the errors of f and g from f in float64."""
    if asked.wide is None:
        return None
    # A truth value is 0 or 1: NumPy subtracts none.
    r, *sides = (
        np.concatenate([x.ravel() * 1 for x in side]) for side in (asked.wide[0], asked.f, asked.g)
    )
    if any(side.shape != r.shape for side in sides):
        return None
    with np.errstate(all="ignore"):
        first, second = (norm(np.abs(side - r)) for side in sides)
    return first, second


def twice(asked: Asked) -> bool:
    """Accept if g's largest error is at most twice f's, as FlashAttention's tests do."""
    found = errors(asked, lambda d: float(d.max(initial=0)))
    return found is not None and found[1] <= 2 * found[0]


def rmse(asked: Asked) -> bool:
    """Accept what is close, or a root mean square of the error at most twice f's, as dynamo."""
    found = errors(asked, lambda d: float(np.sqrt(np.mean(d**2))))
    return torch_close(asked) or (found is not None and found[1] <= 2 * found[0])


def cosine(asked: Asked) -> bool:
    def accepts(x: np.ndarray, y: np.ndarray) -> bool:
        x, y = x.ravel().astype(complex), y.ravel().astype(complex)
        size = np.linalg.norm(x) * np.linalg.norm(y)
        return bool(np.array_equal(x, y) or (size and np.vdot(x, y).real / size >= 0.99))

    return each(asked, accepts)


CRITERIA = {
    "numpy.allclose": close,
    "torch.testing.assert_close's": torch_close,
    "twice the error": twice,
    "twice the RMSE": rmse,
    "cosine >= 0.99": cosine,
}


_known: dict[tuple[str, int], calipers.Diagnosis] = {}


def diagnosed(case: Any, seed: int) -> calipers.Diagnosis:
    if (case.name, seed) not in _known:
        f, g, inputs = case.make(np.random.default_rng(seed))
        _known[case.name, seed] = calipers.diagnose(f, g, inputs, **case.options)
    return _known[case.name, seed]


def right(case: Any, found: calipers.Diagnosis) -> bool:
    return is_right(case, found.kind, found.format)


def is_right(case: Any, kind: str, name: str | None) -> bool:
    """Return True for an accepted verdict whose format, "tf32 or float16", has an accepted name."""
    formats = case.formats if kind == "REDUCED" else ()
    return kind in case.kinds and (not formats or bool({*formats} & {*(name or "").split(" or ")}))


SCORES = (
    "verdicts right",
    "bugs called BUG",
    "bugs called SUSPECT",
    "bugs accepted",
    "false alarms",
)


def scores(cases: Iterable[Any], seeds: range) -> list[str]:
    """Count right verdicts, bugs by verdict, and benign pairs that are called BUG or SUSPECT."""
    counts: Counter[str] = Counter()
    for case in cases:
        for seed in seeds:
            diagnosis = diagnosed(case, seed)
            counts["runs"] += 1
            counts["verdicts right"] += right(case, diagnosis)
            is_accused = diagnosis.kind in ("BUG", "SUSPECT")
            if case.bug:
                counts["bugs"] += 1
                counts[f"bugs called {diagnosis.kind}" if is_accused else "bugs accepted"] += 1
            elif case.benign:
                counts["benign"] += 1
                counts["false alarms"] += is_accused
    totals = counts["runs"], *3 * (counts["bugs"],), counts["benign"]
    return [f"{counts[name]} of {total}" for name, total in zip(SCORES, totals, strict=True)]


def yes_or_no(cases: Iterable[Any], seeds: range) -> list[str]:
    """Compare with criteria that accept or reject, on pairs where that can be right."""
    tally: dict[str, Counter[str]] = {name: Counter() for name in (*CRITERIA, "diagnose")}
    runs: Counter[str] = Counter()
    for case in cases:
        benign = case.kinds <= _ROUNDING
        if not (benign or case.bug):
            continue
        for seed in seeds:
            asked = ask(case, seed)
            if asked is None:
                continue
            label = "benign" if benign else "bug"
            runs[label] += 1
            answers = {name: accepts(asked) for name, accepts in CRITERIA.items()}
            answers["diagnose"] = bool(diagnosed(case, seed).ok({*_ROUNDING}))
            for name, accepted in answers.items():
                tally[name][f"{label} {accepted}"] += 1
    lines = [
        f"| criterion | benign rejected, of {runs['benign']} | bugs accepted, of {runs['bug']} |",
        "|---|---:|---:|",
    ]
    for name, counts in tally.items():
        lines.append(f"| {name} | {counts['benign False']} | {counts['bug True']} |")
    return lines


def main(seeds: range) -> None:
    # Here, since asv imports all files of the folder without the tests.
    from tests.data import verdict_cases

    started = perf_counter()
    sets = {
        "development set": verdict_cases.CASES,
        "written after the rules": verdict_cases.HELD_OUT,
        "transforms and angles, float32 alone": verdict_cases.TRANSFORMS,
        "other fields, awkward inputs": verdict_cases.FIELDS,
        "everyday ports": verdict_cases.EVERYDAY,
    }
    print("<!-- verdicts -->\n\n## Verdicts of diagnose\n")
    print(f"Labelled pairs of implementations, each at {len(seeds)} seeds.\n")
    print(f"| pairs | {' | '.join(SCORES)} |\n|---{'|---:' * len(SCORES)}|")
    for title, cases in sets.items():
        print(f"| {len(cases)} {title} | {' | '.join(scores(cases, seeds))} |", flush=True)
    for title, cases in sets.items():
        print(f"\n### Criteria that accept or reject: {title}\n")
        print("\n".join(yes_or_no(cases, seeds)), flush=True)
    print("\n### Verdicts that are wrong\n")
    for cases in sets.values():
        for case in cases:
            wrong = Counter(
                diagnosed(case, seed).kind
                for seed in seeds
                if not right(case, diagnosed(case, seed))
            )
            for kind, count in wrong.items():
                expected = " or ".join(sorted(case.kinds))
                print(f"- `{case.name}`: {kind} at {count} of {len(seeds)}, expected {expected}")
    calls = [sum(diagnosis.calls.values()) for diagnosis in _known.values()]
    print(f"\nCalls of f and g: median {median(calls):.0f}, at most {max(calls)}.")
    print(f"{perf_counter() - started:.0f} s", file=sys.stderr)


# Groups of pairs, as tests/data/verdict_cases names them.
GROUPS = {
    "development": ("CASES",),
    "held out": ("HELD_OUT",),
    "transforms": ("TRANSFORMS",),
    "fields": ("FIELDS",),
    "everyday": ("EVERYDAY",),
    "reviewed": ("REVIEWED",),
    "reports": ("REPORTED",),
    "models": ("MODELS",),
    "models with a bug": ("MODELS_WITH_BUGS",),
    "reported verdicts": ("REPORTED_VERDICTS",),
}


class Run(NamedTuple):
    """A verdict on a pair at one seed; "ERROR" if diagnose raised an exception."""

    group: str
    name: str
    seed: int
    expected: list[str]
    kind: str
    format: str | None
    is_right: bool
    is_bug: bool
    is_benign: bool
    calls: int
    seconds: float
    reason: str


def measure(group: str, seeds: int, part: str = "") -> Iterator[Run]:
    """Call diagnose on the pairs of a group whose names contain the part."""
    from tests.data import verdict_cases

    cases = [case for name in GROUPS[group] for case in getattr(verdict_cases, name)]
    for case in (case for case in cases if part in case.name):
        for seed in range(seeds):
            f, g, inputs = case.make(np.random.default_rng(seed))
            started = perf_counter()
            try:
                diagnosis = calipers.diagnose(f, g, inputs, **case.options)
            except Exception as error:  # an error of diagnose is counted as a wrong verdict
                kind, name, calls = "ERROR", None, 0
                reason = f"{type(error).__name__}: {error}"
            else:
                kind, name, reason = diagnosis.kind, diagnosis.format, diagnosis.reason
                calls = sum(diagnosis.calls.values())
            yield Run(
                group,
                case.name,
                seed,
                sorted(case.kinds),
                kind,
                name,
                is_right(case, kind, name),
                case.bug,
                case.benign,
                calls,
                perf_counter() - started,
                reason,
            )


HEAD = (
    "| group | runs | right | bugs accepted | benign called BUG | benign called SUSPECT "
    "| errors | median calls | median s | total s |\n|---|" + "---:|" * 9
)


def row(group: str, runs: list[Run]) -> str:
    """Return a line of the table of groups."""
    bugs = [run for run in runs if run.is_bug]
    benign = [run for run in runs if run.is_benign]
    accepted = sum(run.kind not in ("BUG", "SUSPECT", "RAISES", "ERROR") for run in bugs)
    false_alarms = Counter(run.kind for run in benign)
    n = sum(run.is_right for run in runs)
    cells = [
        group,
        len(runs),
        f"{n} ({n / len(runs):.1%})",
        f"{accepted} of {len(bugs)}",
        f"{false_alarms['BUG']} of {len(benign)}",
        false_alarms["SUSPECT"],
        sum(run.kind == "ERROR" for run in runs),
        f"{median(run.calls for run in runs):.0f}",
        f"{median(run.seconds for run in runs):.3f}",
        f"{sum(run.seconds for run in runs):.0f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def wrong_verdicts(runs: list[Run]) -> Iterator[str]:
    """Return a line for each pair and each wrong verdict on it."""
    totals = Counter(run.name for run in runs)
    wrong = Counter(
        (run.name, run.kind + (f" {run.format}" if run.format else ""), " or ".join(run.expected))
        for run in runs
        if not run.is_right
    )
    for (name, verdict, expected), count in wrong.items():
        yield f"- `{name}`: {verdict} at {count} of {totals[name]}, expected {expected}"


def print_groups(groups: Iterable[str], seeds: int, file: Path | None, part: str = "") -> None:
    """Print a row for each group as soon as it is measured, and then the wrong verdicts."""
    every: list[Run] = []
    print(HEAD, flush=True)
    for group in groups:
        runs = list(measure(group, seeds, part))
        if not runs:
            continue
        every += runs
        print(row(group, runs), flush=True)
        if file:
            file.write_text(json.dumps([run._asdict() for run in every], indent=0), "utf-8")
    print("\n### Verdicts that are wrong\n")
    print("\n".join(wrong_verdicts(every)))


def compare(old: Path, new: Path) -> None:
    """Print the rows of both files for the runs they have in common, and the changed verdicts."""
    first, second = (
        {(run.name, run.seed): run for run in (Run(**r) for r in json.loads(f.read_text("utf-8")))}
        for f in (old, new)
    )
    common = [key for key in first if key in second]
    print(HEAD)
    for group in dict.fromkeys(second[key].group for key in common):
        keys = [key for key in common if second[key].group == group]
        print(row(f"{group}, old", [first[key] for key in keys]))
        print(row(f"{group}, new", [second[key] for key in keys]))
    changed = Counter(
        (key[0], first[key].kind, second[key].kind, first[key].is_right, second[key].is_right)
        for key in common
        if first[key].kind != second[key].kind or first[key].is_right != second[key].is_right
    )
    print("\n### Verdicts that changed\n")
    for (name, was, now, was_right, now_right), count in sorted(
        changed.items(), key=lambda item: (item[0][3:], item[0])
    ):
        words = {True: "right", False: "wrong"}
        print(f"- `{name}`: {was} ({words[was_right]}) to {now} ({words[now_right]}), {count} runs")


def command(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Score the verdicts of diagnose.")
    parser.add_argument("count", nargs="?", type=int, default=5, help="seeds of the page")
    parser.add_argument("--groups", nargs="+", choices=("all", *GROUPS))
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each pair of the groups")
    parser.add_argument("--only", default="", metavar="PART", help="part of the pairs' names")
    parser.add_argument("--json", type=Path, help="file for all verdicts of the groups")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    options = parser.parse_args(arguments)
    if options.compare:
        compare(*options.compare)
    elif options.groups:
        warnings.simplefilter("ignore")  # torch's, of what is deprecated or slow
        groups = list(GROUPS) if "all" in options.groups else options.groups
        print_groups(groups, options.seeds, options.json, options.only)
    else:
        main(range(options.count))


if __name__ == "__main__":
    command(sys.argv[1:])
