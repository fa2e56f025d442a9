"""Wrong derivatives, which judge how derivatives are checked.

Each kind makes one plausible mistake in a right Jacobian, at a place drawn from a seed, or returns
None where it would change nothing. Do not edit a kind together with a rule that it judges.
"""

from collections.abc import Callable

import numpy as np

Kind = Callable[[np.ndarray, np.random.Generator], "np.ndarray | None"]


def _entry(jac: np.ndarray, random: np.random.Generator) -> "tuple[int, int] | None":
    rows, columns = np.nonzero(np.isfinite(jac) & (jac != 0))
    if not len(rows):
        return None
    k = random.integers(len(rows))
    return int(rows[k]), int(columns[k])


def _scaled_entry(factor: float) -> Kind:
    def mutate(jac: np.ndarray, random: np.random.Generator) -> "np.ndarray | None":
        place = _entry(jac, random)
        if place is None:
            return None
        wrong = jac.copy()
        wrong[place] *= factor
        return wrong

    return mutate


def _swapped_columns(jac: np.ndarray, random: np.random.Generator) -> "np.ndarray | None":
    if jac.shape[1] < 2:
        return None
    one, other = random.choice(jac.shape[1], 2, replace=False)
    wrong = jac.copy()
    wrong[:, [one, other]] = jac[:, [other, one]]
    return _unless_alike(wrong, jac)


def _transposed(jac: np.ndarray, random: np.random.Generator) -> "np.ndarray | None":
    if jac.shape[0] != jac.shape[1]:
        return None
    return _unless_alike(jac.T.copy(), jac)


def _doubled_column(jac: np.ndarray, random: np.random.Generator) -> "np.ndarray | None":
    place = _entry(jac, random)
    if place is None:
        return None
    wrong = jac.copy()
    wrong[:, place[1]] *= 2
    return wrong


def _unless_alike(wrong: np.ndarray, jac: np.ndarray) -> "np.ndarray | None":
    """Return a mutant unless it is right to a share of 1e-3 everywhere."""
    with np.errstate(invalid="ignore"):
        differs = np.abs(wrong - jac) > 1e-3 * np.maximum(np.abs(jac), np.abs(wrong))
    return wrong if differs.any() else None


# How large the error of one entry is, relative to it.
SIZES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
KINDS: dict[str, Kind] = {f"{size:.0e}": _scaled_entry(1 + size) for size in SIZES}
KINDS |= {
    "sign": _scaled_entry(-1.0),
    "dropped": _scaled_entry(0.0),
    "permuted": _swapped_columns,
    "transposed": _transposed,
    "doubled column": _doubled_column,
}
