"""What a checker of derivatives says of functions whose derivatives are known.

This uses `calipers.differentiate` and `calipers.gradcheck` only, as a user would.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import calipers

VERDICTS = ("PASS", "FAIL", "INCONCLUSIVE", "NONSMOOTH", "ERROR")
# Statuses of `differentiate` that vouch for value and error.
VOUCHING = ("CONVERGED", "NOISY")
# An error estimate is too small if the value is off by more than this many times it.
TOO_SMALL = 100.0
# Values are rounded to the dtype of the result; this many eps of the value are no error.
ROUNDED = 4.0


class Claim(NamedTuple):
    """
    A Jacobian that is claimed for a function.

    `kind` is "right", "mistake", "kink" where none exists, or "near" for right ones near a kink.
    `options` are passed to gradcheck; without a Jacobian f is a function of torch tensors.
    """

    kind: str
    jacobian: Any
    subsets: tuple[str, ...] = ("all",)
    label: str = ""
    options: dict[str, Any] = {}  # noqa: RUF012  # never modified


@dataclass(frozen=True)
class Problem:
    """A function at a point, the exact Jacobian if there is one, and claims."""

    name: str
    f: Callable[..., Any]
    x: Any
    jacobian: NDArray | None
    claims: Sequence[Claim]
    text: str = ""
    subsets: Sequence[Sequence[tuple[str, ...]]] | None = None  # of each entry


class Check(NamedTuple):
    """What gradcheck said of a claim."""

    name: str
    kind: str
    label: str
    subsets: tuple[str, ...]
    verdict: str
    calls: float  # of f, per input element
    seconds: float
    reason: str


class Estimates(NamedTuple):
    """What `differentiate` said of a function, entry by entry."""

    name: str
    subsets: list[tuple[str, ...]]
    value: list[float]
    exact: list[float]
    error: list[float]
    status: list[str]
    calls: float  # of f, per element of x
    seconds: float

    columns: int

    def outcomes(self, eps: float) -> list[str]:
        """Return how each estimate compares with the exact value."""
        largest = np.abs(np.reshape(self.exact, (-1, self.columns))).max(axis=0)
        sizes = np.tile(largest, len(self.exact) // self.columns).tolist()
        return [
            outcome(value, exact, error, status, eps, size)
            for value, exact, error, status, size in zip(
                self.value, self.exact, self.error, self.status, sizes, strict=True
            )
        ]


def outcome(
    value: float, exact: float, error: float, status: str, eps: float, size: float = 0.0
) -> str:
    """
    Return the class of an estimate.

    "unknown": no finite error, or a status that does not vouch for it. Otherwise "covered" if the
    error bounds the distance from the exact value, "low" if it is up to a hundred times too small,
    and "wrong" if it is smaller yet; but "tiny" if the distance is below the rounding of the
    largest entry of the column, `size`.
    """
    if status not in VOUCHING or not np.isfinite(error) or not np.isfinite(value):
        return "unknown"
    off = max(abs(value - exact) - ROUNDED * eps * abs(exact), 0.0)
    if off <= error:
        return "covered"
    if off <= TOO_SMALL * error:
        return "low"
    return "tiny" if off <= eps * size else "wrong"


def check(problem: Problem, claim: Claim) -> Check:
    """Return the verdict of gradcheck on a claim."""
    options: dict[str, Any] = {"raise_exception": False, **claim.options}
    if claim.jacobian is not None:
        shape = np.shape(problem.f(problem.x)) + np.shape(problem.x)
        jacobian = np.reshape(claim.jacobian, shape)
        options["jac"] = lambda *inputs: jacobian
    start = perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            report = calipers.gradcheck(problem.f, problem.x, **options)
        except Exception as error:
            verdict, calls, reason = "ERROR", 0.0, f"{type(error).__name__}: {error}"
        else:
            verdict, reason = report.verdict, report.reason
            calls = report.calls.get("f", 0) / max(size_of(problem.x), 1)
    seconds = perf_counter() - start
    name, subsets = problem.name, claim.subsets
    return Check(name, claim.kind, claim.label, subsets, verdict, calls, seconds, reason)


def size_of(x: Any) -> int:
    """Return the number of elements of an input, or of all in a tuple."""
    if isinstance(x, (tuple, list)):
        return sum(size_of(item) for item in x)
    return x.numel() if hasattr(x, "numel") else np.size(x)


def estimate(problem: Problem) -> Estimates | Check:
    """Return the numerical derivatives; a check of verdict ERROR if an exception is raised."""
    start = perf_counter()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            derivative = calipers.differentiate(problem.f, problem.x)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            seconds = perf_counter() - start
            return Check(problem.name, "estimate", "", ("all",), "ERROR", 0.0, seconds, reason)
    seconds = perf_counter() - start
    exact = np.asarray(problem.jacobian, float).reshape(-1, problem.x.size)
    value = np.asarray(derivative.value, float).reshape(exact.shape)
    error = np.asarray(derivative.error, float).reshape(exact.shape)
    status = np.broadcast_to(np.ravel(derivative.status), exact.shape)
    subsets = problem.subsets or [[("all",)] * exact.shape[1]] * exact.shape[0]
    return Estimates(
        problem.name,
        [names for row in subsets for names in row],
        value.ravel().tolist(),
        exact.ravel().tolist(),
        error.ravel().tolist(),
        status.ravel().tolist(),
        derivative.nfev / max(problem.x.size, 1),
        seconds,
        exact.shape[1],
    )


@dataclass
class Results:
    """All that was said of the problems of a group."""

    checks: list[Check] = field(default_factory=list)
    estimates: list[tuple[Estimates, float]] = field(default_factory=list)  # with eps

    def add(self, problem: Problem) -> None:
        """Run every check of a problem."""
        self.checks += [check(problem, claim) for claim in problem.claims]
        if problem.jacobian is None:
            return
        result = estimate(problem)
        if isinstance(result, Check):
            self.checks.append(result)
            return
        eps = float(np.finfo(np.asarray(problem.x).dtype).eps)
        self.estimates.append((result, eps))
