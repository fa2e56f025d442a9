"""Products of a Jacobian with random weights, which show what is wrong without all its rows."""

from typing import NamedTuple

import numpy as np

from .._kernels.marks import TOLD_APART
from .._protocols import NDArray
from .analytic import Pulled
from .rule import Rule

_COUNT = 4  # of products, with weights of rows, and with those of columns
_STEPS = 2**11  # in which weights are drawn: float32 has them all
_FEW = 64  # rows that are asked for one by one
_SPARSE = 1 / 4  # of a row: where more is not 0, some entries are too small for products


def _weights(count: int, size: int, random: np.random.Generator) -> NDArray:
    """Draw weights: 1 to 2 of either sign."""
    drawn = random.integers(-_STEPS, _STEPS, (count, size), dtype=np.int16) / _STEPS
    return np.asarray(drawn + np.copysign(1.0, drawn))


class Products(NamedTuple):
    """
    What vjp gives for weights of the rows; and weights of the columns, for slopes.

    A wrong entry counts once to twice. Two in a column that are as large as the tolerance make up
    for each other in one product by a chance of one in ten, as a tenth of that is told apart, and
    hardly in all of them: so Freivalds tested products of matrices (MFCS 1979).
    """

    pulled: Pulled
    of_rows: NDArray
    images: NDArray
    of_columns: NDArray
    lines: dict[int, NDArray]  # some rows themselves

    @classmethod
    def of(cls, pulled: Pulled, random: np.random.Generator) -> "Products | None":
        """Ask a derivative, unless rows show that it is no sparse matrix."""
        sizes = pulled.shape
        lines = {row: pulled.line(row) for row in (0, sizes[0] // 2)}
        if any(np.count_nonzero(line) > _SPARSE * line.size for line in lines.values()):
            return None
        rows, columns = (_weights(_COUNT, size, random) for size in sizes)
        images = np.array([pulled.d.applied(w) for w in rows], float)
        return cls(pulled, rows, images, columns, lines)

    def confirm(
        self, sizes: NDArray, least: float, sums: NDArray, taken: NDArray, rule: Rule
    ) -> bool:
        """
        Tell whether rows are right that are smaller than `least`, which products were to be sure.

        And those that were asked for by themselves. `sums` are those of the slopes in `taken`
        columns, with their weights.
        """
        nothing = sizes == 0
        if nothing.any():
            images = (self.pulled.d.product(w * nothing)[taken] for w in self.of_rows)
            if any(np.any(image != 0) for image in images):
                return False
        rows = np.union1d(np.flatnonzero(~nothing & (sizes < least)), [*self.lines])
        apart = np.abs(self._of(rows, self.of_columns * taken) - sums[:, rows])
        share = min(rule.share, TOLD_APART)
        return bool(np.all(apart <= share * (rule.atol + rule.rtol * sizes[rows])))

    def _of(self, rows: NDArray, weights: NDArray) -> NDArray:
        """Return the products of some rows with weights of columns."""
        if len(rows) > _FEW:
            every = self.pulled.ask_all()
            return np.array([every.times(w)[rows] for w in weights])
        lines = (self.lines[k] if k in self.lines else self.pulled.line(k) for k in rows.tolist())
        return np.array([weights @ line for line in lines]).T
