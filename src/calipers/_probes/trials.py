"""Compare calls that would be equal without rounding: batch, layout and repeat."""

import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from .._compare.text import differing
from .._core.arguments import require_callable
from .._core.containers import as_tuple
from .._core.libraries import library_of
from .._core.protocols import NDArray
from .._core.report import Report, brief, wrapped
from .._diagnose.arrays import (
    NestedInputs,
    Result,
    as_inputs,
    infer_precision,
    infer_result_precision,
    is_perturbable,
    join_or_none,
    longest_axis,
    misaligned,
    one_line_error,
    raw_bytes,
)
from .._diagnose.callables import Budget, Implementation
from .._diagnose.evidence import Evidence
from .._diagnose.noise_level import (
    as_multiple,
    difference,
    worst_error_norms,
)
from .._diagnose.thresholds import THRESHOLDS

_MAX_ROWS = 20  # rows of text, after which trials are not listed
_WIDTH = 88  # characters of a line of text
# Trials with equal results that are listed in one line; of more, the first and last.
_NAMED = 5


@dataclass(frozen=True, repr=False)
class Trial(Report):
    """
    The difference of two results that would be equal without rounding; it is true if they agree.

    The ``.trials`` of a `Trials` are such differences.

    Attributes
    ----------
    name : str
        What was changed, such as the memory layout.
    size : int
        The number of elements.
    differing : int
        The number of elements that are not bitwise equal.
    units : float
        The root mean square of the differences, each divided by its expected rounding error; or the
        ratio of their norms, if that is smaller. Of several results, the largest.
    largest : float
        The largest difference, divided by its expected rounding error.
    allowed : float
        The largest `units` that rounding explains: ``4 + sqrt(n)``, where n is the longest axis of
        the inputs.
    problem : str or None
        Why nothing could be compared: an exception, or a different shape or dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> trial = probes.repeat(np.cumsum, np.ones(5)).trials[0]
    >>> bool(trial), trial.size, trial.differing
    (True, 5, 0)
    """

    name: str
    size: int
    differing: int
    units: float
    largest: float
    allowed: float
    problem: str | None = None

    def __bool__(self) -> bool:
        """Return True if the results are equal within rounding."""
        return (
            self.problem is None
            and self.units <= self.allowed
            and self.largest <= THRESHOLDS.single * self.allowed
        )

    @property
    def equal(self) -> bool:
        """True if the results are bitwise equal."""
        return self.problem is None and self.differing == 0

    def __str__(self) -> str:
        """Return the difference in one line."""
        if self.problem is not None:
            return f"{self.name}: {self.problem}"
        if self.equal:
            return f"{self.name}: equal"
        return f"{self.name}: {describe_difference(self)}" + ("" if self else ": above the limit")

    def _contents(self) -> dict[str, Any]:
        return super()._contents() | {"passed": bool(self), "equal": self.equal}


@dataclass(frozen=True, repr=False)
class Trials(Report):
    """
    Differences between several calls of a function; it is true if all agree within rounding.

    It is returned by `batch`, `layout` and `repeat`.

    Attributes
    ----------
    question : str
        What was compared.
    trials : tuple of Trial
        The difference for each call.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> found = probes.layout(np.exp, np.ones((8, 5)))
    >>> bool(found), found.equal, [trial.name for trial in found.trials][0]
    (True, True, 'column-major')
    """

    question: str
    trials: tuple[Trial, ...]

    def __bool__(self) -> bool:
        """Return True if all results are equal within rounding."""
        return all(self.trials)

    @property
    def equal(self) -> bool:
        """True if all results are bitwise equal."""
        return all(trial.equal for trial in self.trials)

    @property
    def units(self) -> float:
        """The largest of the units of the trials."""
        return max((trial.units for trial in self.trials), default=0.0)

    def __str__(self) -> str:
        """Return a line for the verdict, and one for each trial."""
        verdict = "equal" if self.equal else "equal within rounding" if self else "not equal"
        if self.trials and not self.equal:
            verdict += f" (allowed {as_multiple(self.trials[0].allowed)})"
        text_rows: list[str] = []
        for text in _listed(self.trials):
            text_rows += wrapped(text, "  ", "    ", most=2, width=_WIDTH)
        if len(text_rows) > _MAX_ROWS:
            text_rows[_MAX_ROWS:] = ["  and more: see .trials"]
        return "\n".join([f"{self.question}: {verdict}", *text_rows])

    def _contents(self) -> dict[str, Any]:
        return {
            "question": self.question,
            "passed": bool(self),
            "equal": self.equal,
            "trials": [trial.to_dict() for trial in self.trials],
        }


def _listed(trials: tuple[Trial, ...]) -> list[str]:
    """Return a text for each trial; adjacent trials with equal results share one."""
    texts: list[str] = []
    for equal, group in groupby(trials, lambda trial: trial.equal):
        some = list(group)
        names = [trial.name for trial in some]
        if not equal:
            texts += map(str, some)
        elif len(names) > _NAMED:
            texts.append(f"{names[0]} to {names[-1]}: equal")
        else:
            texts.append(f"{'; '.join(names)}: equal")
    return texts


def describe_difference(compared: Trial, limit: float | None = None) -> str:
    """Describe the number and size of the differences."""
    text = differing(compared.differing, compared.size)
    if math.isinf(compared.largest):
        return f"{text}, by more than rounding can explain"
    return (
        f"{text} by {as_multiple(compared.units, limit)}, the largest by "
        f"{brief(compared.largest)} times"
    )


def unlimited_implementation(name: str, f: Callable[..., Any], likes: Any) -> Implementation:
    """Return an implementation without a limit of calls."""
    require_callable(**{name: f})
    return Implementation(name, f, as_tuple(likes), Budget(sys.maxsize))


class ProbedFunction:
    """
    A function, its inputs, and the noise level of its results.

    `inputs` are all arrays, including those in containers; see `NestedInputs`.
    """

    def __init__(self, f: Callable[..., Any], inputs: Any, seed: int = 0) -> None:
        require_callable(f=f)
        self.nest = nest = NestedInputs(as_tuple(inputs))
        self.inputs = as_inputs(nest.leaves, nest.names)
        self.implementation = unlimited_implementation("f", nest.accepting_leaves(f), nest.leaves)
        form = infer_precision(self.inputs, None, nest.names)
        length = longest_axis(self.inputs)
        pair = self.implementation, self.implementation
        self.evidence = Evidence(*pair, self.inputs, form, source="f", length=length, seed=seed)
        self.result = self.evidence.result_f
        if self.result.error is not None:
            raise self.result.error
        if not any(map(is_perturbable, self.inputs)):
            self.evidence.form = infer_result_precision(self.result)

    def compare(self, name: str, result: Result) -> Trial:
        """Compare a result with that at the unchanged inputs."""
        return trial(
            name, result, self.result, lambda: self.evidence.steady_scale, self.evidence.allowed
        )

    def compare_rows(self, name: str, result: Result, rows: Any, n: int) -> Trial:
        """Compare a result with rows of that for all n; arrays without such an axis are ignored."""
        chosen = [k for k, x in enumerate(self.result.arrays) if x.shape[:1] == (n,)]
        expected = self.result.select(chosen)
        expected = replace(expected, arrays=tuple(x[rows] for x in expected.arrays))
        if result.error is None and len(result.arrays) == len(self.result.arrays):
            result = result.select(chosen)

        def unit() -> NDArray:
            units = self.result.split(self.evidence.steady_scale)
            return np.concatenate([units[k].reshape(n, -1)[rows].reshape(-1) for k in chosen])

        return trial(name, result, expected, unit, self.evidence.allowed)


def trial(
    name: str, result: Result, expected: Result, unit: Callable[[], NDArray], allowed: float
) -> Trial:
    """Compare two results; `unit` is called only if they are not bitwise equal."""
    count = sum(x.size for x in expected.arrays)
    problem = _problem(result, expected)
    if problem is not None:
        return Trial(name, count, count, math.inf, math.inf, allowed, problem)
    pairs = zip(result.arrays, expected.arrays, strict=True)
    differing = sum(_differing(a, b) for a, b in pairs)
    if not differing:
        return Trial(name, count, 0, 0.0, 0.0, allowed)
    errors, unit_of = difference(result, expected), unit()
    size = worst_error_norms(expected, errors, unit_of)
    units, largest = (math.inf, math.inf) if size.broken else (size.robust, size.peak)
    if (expected.integers & (unit_of < 0.5) & (errors != 0)).any():
        largest = math.inf  # rounding does not change such integers
    return Trial(name, count, differing, units, largest, allowed)


def _problem(result: Result, expected: Result) -> str | None:
    """Return the reason why two results cannot be compared, or None."""
    if result.error is not None:
        return f"f raises {one_line_error(result.error)}"
    if result.names != expected.names:
        actual_names, other = (
            ", ".join(dict.fromkeys(filter(None, x.names))) for x in (result, expected)
        )
        if actual_names == other:
            counts = (join_or_none(tuple(Counter(x.names).values())) for x in (result, expected))
            return "number of results {} instead of {}".format(*counts)
        return f"results are named {actual_names or 'nothing'} instead of {other or 'nothing'}"
    for name, a, b in (
        ("shape", result.shapes, expected.shapes),
        ("dtype", result.dtypes, expected.dtypes),
    ):
        if a != b:
            return f"{name} {join_or_none(a)} instead of {join_or_none(b)}"
    return None


def _differing(a: NDArray, b: NDArray) -> int:
    """Count the elements that are not bitwise equal."""
    return int(np.any(raw_bytes(a) != raw_bytes(b), axis=1).sum())


def compare_batch(f: Callable[..., Any], inputs: Any, batch: tuple[int, ...], seed: int) -> Trials:
    """Compare f of one row, some rows, and permuted rows with f of all rows."""
    probed = ProbedFunction(f, inputs, seed)
    batched = probed.nest.leaf_indices(batch)
    n = probed.inputs[batched[0]].shape[0]
    if not any(x.shape[:1] == (n,) for x in probed.result.arrays):
        msg = f"f must return a row for each of the {n} rows of inputs[{batch[0]}], got shapes "
        raise ValueError(msg + join_or_none(probed.result.shapes))
    order = np.random.default_rng(seed).permutation(n)
    if (order == np.arange(n)).all():
        order = order[::-1]
    parts = {f"row {i}": np.array([i]) for i in sorted({0, n // 2, n - 1})}
    if n > 3:
        parts["rows 0, 1, 2"] = np.arange(3)
    parts["rows in a different order"] = order
    trials = []
    for name, rows in parts.items():
        some = [x[rows] if k in batched else x for k, x in enumerate(probed.inputs)]
        trials.append(probed.compare_rows(name, probed.implementation(some), rows, n))
    return Trials("f of some rows compared with f of all rows", tuple(trials))


def compare_layouts(f: Callable[..., Any], inputs: Any) -> Trials:
    """Compare f of the same numbers in different memory layouts."""
    probed = ProbedFunction(f, inputs)
    contiguous = [x.copy(order="C") if isinstance(x, np.ndarray) else x for x in probed.inputs]
    probed.result = probed.implementation(contiguous)
    sent = probed.implementation.convert
    assert sent is not None

    def shared(x: Any, like: Any) -> Any:
        # Converted arrays share memory on the CPU, since a copy would have a different layout.
        converted = sent(x, like)
        library = library_of(converted)
        return (
            converted
            if library is None or library.device(converted) != "cpu"
            else library.from_numpy(x)
        )

    direct = unlimited_implementation("f", probed.implementation.call, probed.nest.leaves)
    # The arguments are copies already, and a further copy would align them.
    direct.convert, direct.copies = shared, False
    ways: dict[str, Callable[[NDArray], NDArray]] = {
        "column-major": lambda x: x.copy(order="F"),
        "every second element of a longer row": strided,
        "shifted by one element in memory": misaligned,
    }
    trials = []
    for name, way in ways.items():
        arrays = [way(x) if isinstance(x, np.ndarray) else x for x in contiguous]
        trials.append(probed.compare(name, direct(arrays)))
    return Trials("f with other memory layouts", tuple(trials))


def compare_repeats(f: Callable[..., Any], inputs: Any, times: int) -> Trials:
    """Compare repeated calls of f."""
    probed = ProbedFunction(f, inputs)
    # All before any other call: f may count its calls.
    results = [probed.implementation(probed.inputs) for _ in range(times - 1)]
    trials = [probed.compare(f"call {k}", result) for k, result in enumerate(results, start=2)]
    return Trials(f"{times} calls of f", tuple(trials))


def strided(x: NDArray) -> NDArray:
    """Copy an array to every second element of a larger one."""
    if not x.ndim:
        return x.copy()
    gaps = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2]
    gaps[...] = x
    return gaps
