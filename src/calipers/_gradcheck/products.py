"""Products of a Jacobian with random weights, which show what is wrong without all its rows."""

from typing import NamedTuple

import numpy as np

from .._protocols import NDArray
from .derivative import GivenDerivative
from .rule import Rule

COUNT = 4
_STEPS = 2**11  # in which weights are drawn: float32 has them all
_FEW = 64  # rows that are asked for by themselves


def drawn(size: int, random: np.random.Generator) -> NDArray:
    """Draw weights: 1 to 2 of either sign."""
    signs = random.choice([-1.0, 1.0], (COUNT, size))
    return np.asarray(signs * random.integers(_STEPS, 2 * _STEPS, (COUNT, size)) / _STEPS)


class Products(NamedTuple):
    """
    What vjp gives for weights of the rows; and weights of the columns, for slopes.

    A wrong entry counts once to twice. Several in a column make up for each other in one product by
    a chance of one in twenty at most, if they are ten times what is told apart there, and hardly in
    all of them: so Freivalds tested products of matrices (MFCS 1979).
    """

    d: GivenDerivative
    of_rows: NDArray
    images: NDArray
    of_columns: NDArray

    @classmethod
    def of(cls, d: GivenDerivative, random: np.random.Generator) -> "Products":
        """Ask a derivative."""
        rows, columns = (drawn(n, random) for n in (d.subject.rows, d.subject.columns))
        return cls(d, rows, np.array([d.applied(w) for w in rows], float), columns)

    def confirm(
        self, sizes: NDArray, least: float, sums: NDArray, taken: NDArray, rule: Rule
    ) -> bool:
        """
        Tell whether rows are right that are smaller than `least`, which products were to be sure.

        `sums` are those of the slopes in `taken` columns, with their weights.
        """
        nothing = sizes == 0
        if nothing.any():
            images = (self.d.product(w * nothing)[taken] for w in self.of_rows)
            if any(np.any(image != 0) for image in images):
                return False
        small = np.flatnonzero(~nothing & (sizes < least))
        if len(small) > _FEW:
            return False
        weights, unit = self.of_columns[:, taken], np.zeros(len(sizes))
        for row in small:
            unit[row] = 1
            apart = np.abs(weights @ self.d.product(unit)[taken] - sums[:, row])
            unit[row] = 0
            if not np.all(apart <= rule.share * (rule.atol + rule.rtol * sizes[row])):
                return False
        return True
