"""fast_mode: products with random directions, and the way from a product to the wrong entry."""

import numpy as np

from .._differences.directions import along
from .._differences.plan import Options
from .._differences.problem import reals
from .._protocols import NDArray
from .derivative import Derivative
from .numerical import Looks

_MARGIN = 4.0
_ROUNDING = 64.0
_BISECTIONS = 64


class Probe:
    """Products of the Jacobian by one input with a direction, both numerical and analytic."""

    def __init__(
        self, looks: Looks, derivative: Derivative, options: Options, seed: np.random.Generator
    ) -> None:
        self._looks, self._derivative, self._options = looks, derivative, options
        self._random = seed
        self._matrix = derivative.matrix() if derivative.name == "jac" else None
        rows = looks.subject.rows
        self.weights = seed.standard_normal(rows)

    def suspect(self) -> int | None:
        """
        Return a column in which the derivative is likely wrong, or None.

        A random direction meets an error in any entry. What a direction shows is then halved until
        one column is left; that is no verdict yet.
        """
        count = self._looks.problem.coordinates
        direction = self._random.standard_normal(count) * self._lengths()
        chosen = np.ones(count, bool)
        if self._excess(direction) <= 1:
            return None
        for _ in range(_BISECTIONS):
            where = np.flatnonzero(chosen)
            if len(where) == 1:
                return int(where[0])
            halves = [where[: len(where) // 2], where[len(where) // 2 :]]
            excess = []
            for half in halves:
                part = np.zeros(count)
                part[half] = direction[half]
                excess.append(self._excess(part))
            chosen[:] = False
            chosen[halves[int(excess[1] > excess[0])]] = True
        return int(np.flatnonzero(chosen)[0])

    def _lengths(self) -> NDArray:
        x = np.abs(reals(self._looks.problem.x).astype(float))
        return np.where(x == 0, 1.0, np.minimum(x, 1e300))

    def _excess(self, direction: NDArray) -> float:
        """Return how far the two products are apart, in units of what they may be."""
        looks = self._looks
        problem = looks.problem
        shaped = np.ascontiguousarray(direction, dtype=problem.x.real.dtype)
        v = shaped.view(problem.x.dtype).reshape(problem.x.shape)
        value, error = along(problem, v, self._options)
        looks.calls += 14
        exact = shaped.astype(float)
        own, terms = self._analytic(exact)
        eps = looks.subject.eps
        if own.shape == ():  # the cotangent is contracted, too
            value, error = (
                np.asarray(self.weights @ value),
                np.sqrt(np.sum((self.weights * error) ** 2)),
            )
        allowed = _MARGIN * error + _ROUNDING * eps * terms
        with np.errstate(all="ignore"):
            ratio = np.abs(own - value) / allowed
        # Nothing is known where the numerical side is undecided.
        ratio = np.where(np.isfinite(error), ratio, 0.0)
        return float(np.max(np.where(np.isnan(ratio), np.inf, ratio), initial=0.0))

    def _analytic(self, direction: NDArray) -> tuple[NDArray, NDArray]:
        """Return J v, or w J v, and how large the terms in it are."""
        subject, part = self._looks.subject, self._looks.part
        own = slice(part.start, part.stop)
        if self._derivative.name == "vjp":
            gradient = self._gradient()[own]
            terms = np.sqrt(np.sum((gradient * direction) ** 2))
            return np.asarray(gradient @ direction), np.asarray(terms * 16)
        whole = np.zeros(subject.columns)
        whole[own] = direction
        if self._matrix is not None:
            block = self._matrix[:, own]
            return block @ direction, np.sqrt((block**2) @ (direction**2))
        product = self._derivative.push(whole)
        return product, np.abs(product) + np.abs(product).max(initial=0.0)

    def _gradient(self) -> NDArray:
        if not hasattr(self, "_pulled"):
            self._pulled = self._derivative.pull(self.weights).copy()
        return self._pulled


def column_of(derivative: Derivative, column: int, numerical: NDArray) -> tuple[NDArray, NDArray]:
    """
    Return rows and the entries that the derivative has there in a column.

    From vjp, which gives no column, it is the one row that a bisection leads to, by products of the
    numerical column.
    """
    subject = derivative.subject
    if derivative.name != "vjp":
        unit = np.zeros(subject.columns)
        unit[column] = 1
        if derivative.name == "jac":
            return np.arange(subject.rows), derivative.matrix()[:, column]
        return np.arange(subject.rows), derivative.push(unit)
    where = np.arange(subject.rows)
    known = np.where(np.isfinite(numerical), numerical, 0.0)
    random = np.random.default_rng(0)
    w = random.standard_normal(subject.rows)
    while len(where) > 1:
        apart = []
        halves = [where[: len(where) // 2], where[len(where) // 2 :]]
        for half in halves:
            part = np.zeros(subject.rows)
            part[half] = w[half]
            apart.append(abs(derivative.pull(part)[column] - part @ known))
        where = halves[int(not apart[0] >= apart[1])]
    unit = np.zeros(subject.rows)
    unit[where] = 1
    return where, derivative.pull(unit)[[column]]
