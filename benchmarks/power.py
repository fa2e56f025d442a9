"""What checkers of derivatives find: mutants that fail, and right derivatives that do not pass."""

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import calipers

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from derivative_cases import CASES, Case
from derivative_mutants import KINDS

Check = Callable[[Case, np.ndarray, np.ndarray], str]


def ours(case: Case, x: np.ndarray, jac: np.ndarray) -> str:
    report = calipers.gradcheck(case.f, x, jac=lambda x: jac, raise_exception=False)
    return report.verdict


def points(cases: list[Case]) -> Iterator[tuple[Case, np.ndarray, np.ndarray]]:
    for case in cases:
        for x in case.points:
            if x.dtype.kind == "f":
                yield case, x, np.asarray(case.jac(x), float).reshape(-1, x.size)


def _jacobian(case: Case, x: np.ndarray, jac: np.ndarray) -> np.ndarray:
    return jac.reshape(np.shape(case.f(x)) + x.shape)


def verdicts(check: Check, cases: list[Case], seeds: int = 3) -> dict[str, Counter[str]]:
    """Count the verdicts on right Jacobians, and on each kind of mutant."""
    counts: dict[str, Counter[str]] = {"right": Counter()}
    for number, (case, x, jac) in enumerate(points(cases)):
        counts["right"][check(case, x, _jacobian(case, x, jac))] += 1
        for kind, mutate in KINDS.items():
            for seed in range(seeds):
                wrong = mutate(jac, np.random.default_rng([number, seed]))
                if wrong is not None:
                    told = check(case, x, _jacobian(case, x, wrong))
                    counts.setdefault(kind, Counter())[told] += 1
    return counts


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for title, kinds in (("smooth", ["smooth"]), ("hostile", None)):
        cases = [c for c in CASES if (kinds is None and c.kind != "smooth") or c.kind == "smooth"]
        if kinds is None:
            cases = [c for c in CASES if c.kind != "smooth"]
        print(title, len(cases), "functions")
        for kind, count in verdicts(ours, cases).items():
            total = sum(count.values())
            print(
                f"  {kind:<16} {total:5} ",
                {k: f"{100 * v / total:.2f} %" for k, v in count.items()},
            )
