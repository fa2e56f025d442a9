"""What is said of labelled pairs of implementations: by diagnose, and by the usual criteria.

``python -m benchmarks.verdicts [seeds]`` asks of every pair in tests/data/verdict_cases; those of
HELD_OUT were added when the rules stood, and are scored apart, as transforms and other fields are.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
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
    formats = case.formats if case.kinds == {"REDUCED"} else ()
    return found.kind in case.kinds and (not formats or found.format in formats)


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


if __name__ == "__main__":
    main(range(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
