"""Find the order in which a function sums its elements: summation_order."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.arguments import is_integer, require_callable
from .._core.report import Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Masks absorb all ones that are added to them, and cancel exactly.
_MASK = 2.0**100
# Number of partial sums that the text shows.
_GROUPS = 6


@dataclass(frozen=True, repr=False)
class SummationOrder(Report):
    """
    The order in which a function sums its elements, as a tree.

    It is returned by `summation_order`.

    Attributes
    ----------
    n : int
        The number of elements.
    nodes : tuple of tuple of int
        The terms of each partial sum. A term below n is an element, others are the partial sum
        ``nodes[term - n]``. The last node is the whole sum. More than two terms are added at once,
        without rounding in between.
    calls : int
        The number of calls of the function.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> order = probes.summation_order(lambda x: np.cumsum(x)[-1], 4)
    >>> order.name, order.depths
    ('a running sum from the first to the last', (3, 3, 2, 1))
    """

    n: int
    nodes: tuple[tuple[int, ...], ...]
    calls: int

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements in each element (1) and in each partial sum."""
        sizes = [1] * self.n
        for parts in self.nodes:
            sizes.append(sum(sizes[part] for part in parts))
        return tuple(sizes)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The number of additions that each element passes through."""
        depths = [0] * (self.n + len(self.nodes))
        for k in reversed(range(len(self.nodes))):
            for part in self.nodes[k]:
                depths[part] = depths[self.n + k] + 1
        return tuple(depths[: self.n])

    @property
    def depth(self) -> int:
        """The largest number of additions that an element passes through."""
        return max(self.depths)

    @cached_property
    def _parents(self) -> dict[int, int]:
        return {part: self.n + k for k, parts in enumerate(self.nodes) for part in parts}

    def meet(self, i: int, j: int) -> int:
        """
        Return the number of elements in the first partial sum that contains two elements.

        Parameters
        ----------
        i, j : int
            Positions of the elements.

        Returns
        -------
        int
            The number of elements.

        Raises
        ------
        IndexError
            If there is no such element.

        Examples
        --------
        >>> import numpy as np
        >>> from calipers import probes
        >>> probes.summation_order(np.sum, 1024).meet(0, 8)
        2
        """
        for k in (i, j):
            if not (is_integer(k) and 0 <= k < self.n):
                msg = f"i and j must be from 0 to {self.n - 1}, got {k}"
                raise IndexError(msg)
        above = {i}
        while i in self._parents:
            i = self._parents[i]
            above.add(i)
        while j not in above:
            j = self._parents[j]
        return self.sizes[j]

    @cached_property
    def name(self) -> str:
        """The name of the order; empty if it has none."""
        if any(len(parts) > 2 for parts in self.nodes):
            return "all at once" if len(self.nodes) == 1 else "some at once"
        if self.depth <= 1:
            return ""
        if self._runs(range(self.n)):
            return "a running sum from the first to the last"
        if self._runs(range(self.n - 1, -1, -1)):
            return "a running sum from the last to the first"
        return "in pairs" if 2**self.depth < 2 * self.n else ""

    def _runs(self, order: range) -> bool:
        sums = [order[0], *range(self.n, self.n + len(self.nodes) - 1)]
        return all(
            set(parts) == {total, element}
            for parts, total, element in zip(self.nodes, sums, order[1:], strict=True)
        )

    def __str__(self) -> str:
        """Return the depth, the name, and the first sums of the first element."""
        plural = "" if self.n == 1 else "s"
        text_rows = [
            f"order of summation of {self.n} element{plural}: {self.name}".removesuffix(": ")
        ]
        text_rows.append(
            f"  additions per element: at most {self.depth}, on average "
            f"{sum(self.depths) / self.n:.3g}"
        )
        groups: dict[int, list[int]] = {}
        for j in range(1, self.n):
            groups.setdefault(self.meet(0, j), []).append(j)
        for size in sorted(groups)[:_GROUPS]:
            elements = groups[size]
            listed = ", ".join(map(str, elements[:8])) + (", ..." if len(elements) > 8 else "")
            text_rows.append(f"  element 0 meets {listed} in a sum of {size}")
        if len(groups) > _GROUPS:
            text_rows.append("  and others in larger sums")
        return "\n".join(text_rows)

    def _contents(self) -> dict[str, Any]:
        return super()._contents() | {"name": self.name, "depth": self.depth}

    def plot(self) -> "Figure":
        """
        Plot the tree of additions.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from .plots import order_figure

        name = self.name and f"\n{self.name}"
        title = f"order of summation of {self.n} elements, depth {self.depth}{name}"
        return order_figure(self.nodes, self.sizes, title)


def find_summation_order(f: Callable[..., Any], n: int, dtype: Any) -> SummationOrder:
    """Reveal the summation tree of f with masked sums."""
    require_callable(f=f)
    masks = _Masks(f, n, np.dtype(dtype))
    nodes: list[tuple[int, ...]] = []
    _build(masks, list(range(n)), n, nodes)
    return SummationOrder(n, tuple(nodes), masks.calls)


class _Masks:
    """Sums of ones, two of them replaced by a huge number and its negative."""

    def __init__(self, f: Callable[..., Any], n: int, dtype: np.dtype[Any]) -> None:
        self.f, self.n, self.dtype, self.calls = f, n, dtype, 0
        # A mean, or a sum times a constant, is accepted as well.
        self.scale = self._call(np.ones(n, dtype)) / n
        if not 0 < abs(self.scale) < np.inf:
            sum_of_ones = self.scale * n
            msg = f"f must sum the elements of its argument, but returns {sum_of_ones} for {n} ones"
            raise ValueError(msg)

    def _call(self, x: Any) -> float:
        self.calls += 1
        with np.errstate(all="ignore"):
            y = np.asarray(self.f(x))
        if y.size != 1 or y.dtype.kind not in "biuf":
            msg = f"f must return one real number, got shape {y.shape} and dtype {y.dtype}"
            raise TypeError(msg)
        return float(y.reshape(()))

    def meet(self, i: int, j: int) -> int:
        """Return the size of the partial sum in which i meets j: only the other ones remain."""
        x = np.ones(self.n, self.dtype)
        x[i], x[j] = _MASK, -_MASK
        left = self._call(x) / self.scale
        count = round(left) if math.isfinite(left) else -1
        # A factor such as 1/n is rounded.
        if not 0 <= count <= self.n - 2 or abs(left - count) > 0.01:
            raise _no_order(f"{left:.6g} of {self.n} ones are left after elements {i} and {j}")
        return self.n - count


def _no_order(observation: str) -> ValueError:
    msg = f"f has no single order of summation: {observation}; it sums exactly, or is not a sum"
    return ValueError(msg)


def _build(
    masks: _Masks, elements: list[int], within: int, nodes: list[tuple[int, ...]]
) -> list[int]:
    """
    Build the tree of some elements and return its roots: one, unless all meet only in `within`.

    The algorithm is FPRev's for trees of any width (arXiv 2411.00442), with an element from the
    middle to start from, so that running sums in both directions take n log n calls.
    """
    pivot = elements[len(elements) // 2]
    groups: dict[int, list[int]] = {}
    for j in elements:
        if j != pivot:
            groups.setdefault(masks.meet(pivot, j), []).append(j)
    parts, have = [pivot], 1
    for size in sorted(groups):
        group = groups[size]
        have += len(group)
        subparts = _build(masks, group, size, nodes)
        if size > within or (have != size and (size != within or have != len(elements))):
            raise _no_order(f"element {pivot} meets {len(group)} others in a sum of {size}")
        parts = [*parts, *subparts]
        if have == size:
            nodes.append(tuple(parts))
            parts = [masks.n + len(nodes) - 1]
    return parts
