"""What checkers of derivatives find: mutants that fail, and right derivatives that pass.

The functions and the mutants are those of the tests, which were written before the rule.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

import calipers
from tests.data.derivative_cases import CASES, Case
from tests.data.derivative_mutants import KINDS
from tests.data.sparse_derivative_cases import SPARSE_CASES

Check = Callable[[Case, np.ndarray, np.ndarray], str]
Own = Callable[[Case, np.ndarray, np.ndarray], calipers.GradcheckReport]


def by_jac(case: Case, x: np.ndarray, jac: np.ndarray) -> calipers.GradcheckReport:
    return calipers.gradcheck(case.f, x, jac=lambda x: jac, raise_exception=False)


def by_vjp(case: Case, x: np.ndarray, jac: np.ndarray) -> calipers.GradcheckReport:
    return calipers.gradcheck(case.f, x, vjp=lambda x, w: w @ jac, raise_exception=False)


def torch_slow(case: Case, x: np.ndarray, jac: np.ndarray) -> str:
    import torch

    matrix = torch.from_numpy(jac.reshape(-1, x.size))

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return torch.from_numpy(np.atleast_1d(np.array(case.f(x.detach().numpy()))))

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return (grad.reshape(-1) @ matrix).reshape(x.shape)

    given = torch.tensor(x, requires_grad=True)
    told = torch.autograd.gradcheck(Function.apply, (given,), raise_exception=False)
    return "PASS" if told else "FAIL"


def jax_check(case: Case, x: np.ndarray, jac: np.ndarray) -> str:
    from jax.test_util import check_jvp

    matrix = jac.reshape(-1, x.size)

    def along(primals: Any, tangents: Any) -> Any:
        return f(primals[0]), matrix @ np.asarray(tangents[0]).reshape(-1)

    def f(x: Any) -> Any:
        return np.atleast_1d(np.asarray(case.f(np.asarray(x)))).reshape(-1)

    try:
        check_jvp(f, along, (x,))
    except AssertionError:
        return "FAIL"
    return "PASS"


def scipy_check_grad(case: Case, x: np.ndarray, jac: np.ndarray) -> str:
    """Call a norm of the error above 1e-6 of the gradient's a failure: SciPy gives no verdict."""
    from scipy.optimize import check_grad

    worst = 0.0
    for i, row in enumerate(jac.reshape(-1, x.size)):

        def one(x: np.ndarray, i: int = i) -> float:
            return float(np.asarray(case.f(x)).reshape(-1)[i])

        error = check_grad(one, lambda x, row=row: row, x)
        worst = max(worst, error / max(float(np.linalg.norm(row)), 1e-300))
    return "PASS" if worst <= 1e-6 else "FAIL"


PEERS: dict[str, Check] = {
    "torch, slow mode": torch_slow,
    "jax check_jvp": jax_check,
    "scipy check_grad": scipy_check_grad,
}
# SciPy would call a function of 200 numbers and results 40 000 times for each derivative.
QUICK = {name: check for name, check in PEERS.items() if not name.startswith("scipy")}


def points(cases: list[Case], more: int = 0) -> Iterator[tuple[Case, np.ndarray, np.ndarray]]:
    """Give the points of real functions and their Jacobians, and some more near each."""
    random = np.random.default_rng(1)
    for case in cases:
        for x in case.points:
            if x.dtype.kind != "f":
                continue
            for k in range(1 + more):
                near = x * (1 + 0.05 * random.uniform(-1, 1, x.shape)) if k else x
                jac = np.asarray(case.jac(near), float)
                yield case, near, jac.reshape(np.shape(case.f(near)) + near.shape)


def verdicts(check: Check, cases: list[Case], seeds: int = 3) -> dict[str, Counter[str]]:
    """Count the verdicts on right Jacobians, and on each kind of mutant."""
    counts: dict[str, Counter[str]] = {"right": Counter()}
    for number, (case, x, jac) in enumerate(points(cases)):
        counts["right"][check(case, x, jac)] += 1
        for kind, mutate in KINDS.items():
            for seed in range(seeds):
                random = np.random.default_rng([number, seed])
                wrong = mutate(jac.reshape(-1, x.size), random)
                if wrong is not None:
                    told = check(case, x, wrong.reshape(jac.shape))
                    counts.setdefault(kind, Counter())[told] += 1
    return counts


def false_alarms(own: Own, cases: list[Case], more: int) -> tuple[int, int, Counter[str]]:
    """Return how many right entries were checked, how many were called wrong, and the verdicts."""
    entries = wrong = 0
    told: Counter[str] = Counter()
    for case, x, jac in points(cases, more):
        report = own(case, x, jac)
        entries += jac.size
        wrong += report.counts["FAIL"]
        told[report.verdict] += 1
    return entries, wrong, told


LABELS = {
    "right": "no mistake",
    **{f"{10.0**-k:.0e}": f"one entry off by 1e-{k}" for k in range(2, 8)},
    "sign": "one entry of opposite sign",
    "dropped": "one entry missing",
    "permuted": "two columns swapped",
    "transposed": "transposed",
    "doubled column": "a column doubled",
}


def table(own: Own, peers: dict[str, Check], cases: list[Case]) -> list[str]:
    """Return Markdown: the share of each kind that fails, in percent."""
    counts = {"calipers": verdicts(lambda *arguments: own(*arguments).verdict, cases)}
    for name, check in peers.items():
        with suppress(ImportError):
            counts[name] = verdicts(check, cases)
    lines = [f"| derivative | {' | '.join(counts)} |", "|---" + "|---:" * len(counts) + "|"]
    for kind in ("right", *KINDS):
        shares = [100 * c[kind]["FAIL"] / c[kind].total() for c in counts.values()]
        cells = [f"{share:.1f} %" for share in shares]
        lines.append(f"| {LABELS[kind]} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the shares that are called wrong, and how often right derivatives are."""
    warnings.simplefilter("ignore")
    smooth = [c for c in CASES if c.kind == "smooth"]
    hostile = [c for c in CASES if c.kind != "smooth"]
    groups = (
        ("smooth functions", by_jac, PEERS, smooth),
        ("difficult functions", by_jac, PEERS, hostile),
        ("compiled functions with sparse Jacobians, by vjp", by_vjp, QUICK, SPARSE_CASES),
    )
    print("<!-- mistakes -->\n\n## Mistakes in derivatives\n")
    print("The share of derivatives that each check calls wrong.")
    for title, own, peers, cases in groups:
        print(f"\n### {len(cases)} {title}\n")
        print("\n".join(table(own, peers, cases)), flush=True)
    print("\n### Right derivatives\n\n| | entries | called wrong | verdicts |\n|---|---:|---:|---|")
    for title, own, _, cases in groups:
        entries, wrong, counts = false_alarms(own, cases, 25)
        shown = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
        print(f"| {title} | {entries} | {wrong} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
