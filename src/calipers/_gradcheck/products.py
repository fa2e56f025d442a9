"""Products of a Jacobian with random weights, which show what is wrong without all its rows."""

from typing import NamedTuple

import numpy as np

from .._protocols import NDArray
from .derivative import GivenDerivative
from .rule import Rule

_COUNTS = 4, 2  # of products with weights of rows, and with those of columns, for a few rows
_STEPS = 2**11  # in which weights are drawn: float32 has them all
_FEW = 64  # rows that are asked for by themselves


def _drawn(count: int, size: int, random: np.random.Generator) -> NDArray:
    """Draw weights: 1 to 2 of either sign."""
    drawn = random.integers(-_STEPS, _STEPS, (count, size))
    return np.asarray(np.where(drawn < 0, drawn - (_STEPS - 1), drawn + _STEPS) / _STEPS)


class Products(NamedTuple):
    """
    What vjp gives for weights of the rows; and weights of the columns, for slopes.

    A wrong entry counts once to twice. Two in a column that are as large as the tolerance make up
    for each other in one product by a chance of one in ten, as a tenth of that is told apart, and
    hardly in all of them: so Freivalds tested products of matrices (MFCS 1979).
    """

    d: GivenDerivative
    of_rows: NDArray
    images: NDArray
    of_columns: NDArray

    @classmethod
    def of(cls, d: GivenDerivative, random: np.random.Generator) -> "Products":
        """Ask a derivative."""
        sizes = d.subject.rows, d.subject.columns
        rows, columns = (_drawn(*given, random) for given in zip(_COUNTS, sizes, strict=True))
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
