"""Compare two functions at inputs for which sums of products are exact in any order."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._compare.tolerances import name_of
from .._core.arguments import require_callable
from .._core.containers import as_tuple
from .._core.protocols import NDArray
from .._core.report import Report
from .._diagnose.arrays import (
    HIGHER_PRECISION,
    Result,
    as_inputs,
    describe_mismatch,
    is_perturbable,
    one_line_error,
)
from .._diagnose.noise_level import difference
from .trials import unlimited_implementation


@dataclass(frozen=True, repr=False)
class Exact(Report):
    """
    Whether two functions agree where there is no rounding; it is true if they do.

    It is returned by `exact`.

    Attributes
    ----------
    size : int
        The number of results.
    differing : int
        The number of results that are not equal.
    differing_rounded : int
        The number of results that are not equal after rounding to integers.
    largest : float
        The largest difference.
    first : int or None
        The position of the first difference, in C order of all results.
    problem : str or None
        Why nothing could be compared: an exception, or different shapes.
    seed : int
        Seed of the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> found = probes.exact(np.matmul, np.matmul, [(2, 3), (3, 2)])
    >>> bool(found), found.size, found.differing
    (True, 4, 0)
    """

    size: int
    differing: int
    differing_rounded: int
    largest: float
    first: int | None
    problem: str | None
    seed: int

    def __bool__(self) -> bool:
        """Return True if all results are equal."""
        return self.problem is None and self.differing == 0

    def __str__(self) -> str:
        """Return the result in one line."""
        if self.problem is not None:
            return f"not equal: {self.problem} (seed {self.seed})"
        if self:
            return f"equal: all {self.size} results for inputs of -1, 0 and 1 (seed {self.seed})"
        text = (
            f"not equal: {self.differing} of {self.size} results differ for inputs of -1, 0 and "
            f"1, by at most {self.largest:.3g}, first at {self.first} (seed {self.seed})"
        )
        if not self.differing_rounded:
            text += "; equal after rounding to integers: f or g is not a plain sum of products"
        return text

    def _contents(self) -> dict[str, Any]:
        return super()._contents() | {"passed": bool(self)}


def compare_exact(
    f: Callable[..., Any], g: Callable[..., Any], inputs: Any, dtype: Any, seed: int
) -> Exact:
    """Call both functions with random arrays of -1, 0 and 1, and compare the results."""
    require_callable(f=f, g=g)
    kind = _floating(dtype)
    random = np.random.default_rng(seed % 2**64)

    def numbers(shape: tuple[int, ...], kind: np.dtype[Any]) -> NDArray:
        values: NDArray = random.integers(-1, 2, shape).astype(kind)
        if kind.kind == "c":  # imaginary parts show a missing conjugate
            values.imag = random.integers(-1, 2, shape)
        return values

    # A tuple of integers is one shape, not several arguments.
    likes = (inputs,) if _is_shape(inputs) else as_tuple(inputs)
    arguments, arrays = [], []
    for item, x in zip(likes, as_inputs(likes), strict=True):
        if _is_shape(item):
            arguments.append(np.empty(item, kind))
            arrays.append(numbers(item, kind))
        else:
            arguments.append(item)
            arrays.append(numbers(x.shape, x.dtype) if is_perturbable(x) else x)
    if not any(is_perturbable(x) for x in arrays):
        msg = "inputs must contain a shape, or an array of floating-point numbers"
        raise ValueError(msg)
    results = [
        unlimited_implementation(name, call, arguments)(arrays)
        for name, call in (("f", f), ("g", g))
    ]
    raised = next(((name, y.error) for name, y in zip("fg", results, strict=True) if y.error), None)
    problem = describe_mismatch(*results)
    if raised is not None:
        problem = f"{raised[0]} raises {one_line_error(raised[1])}"
    if problem is not None:
        return Exact(0, 0, 0, math.nan, None, problem, seed)
    d = difference(*results)
    wrong = d != 0  # True also if only one is NaN
    with np.errstate(all="ignore"):
        rounded = difference(*(Result(tuple(map(np.rint, result.arrays))) for result in results))
    return Exact(
        *(d.size, int(wrong.sum()), int((rounded != 0).sum())),
        float(np.max(np.nan_to_num(np.abs(d), nan=math.inf), initial=0.0)),
        int(np.argmax(wrong)) if wrong.any() else None,
        None,
        seed,
    )


def _floating(dtype: Any) -> np.dtype[Any]:
    name = name_of(dtype, HIGHER_PRECISION)
    if name == "bfloat16":
        with suppress(ImportError):
            import ml_dtypes  # noqa: F401  # which registers the dtype in NumPy
    with suppress(TypeError):
        kind = np.dtype(name)
        if is_perturbable(np.empty(0, kind)):
            return kind
    msg = f"dtype must be a floating-point dtype, got {dtype!r:.60}"
    raise TypeError(msg)


def _is_shape(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) > 0 and all(type(d) is int and d >= 0 for d in x)
