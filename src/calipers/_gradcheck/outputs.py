"""What a function returns: one array or several, and which numbers of them are wanted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._arrays import given_array
from .._protocols import NDArray
from .parts import real_rows, real_vector


def as_outputs(y: Any, names: Sequence[str] = ()) -> tuple[tuple[NDArray, ...], bool]:
    """Return what f returned as arrays, and whether they were several; names are for errors."""
    # A tuple is several outputs; so is a list, unless it is of numbers.
    numbers = isinstance(y, list) and y and all(np.ndim(item) == 0 for item in y)
    several = isinstance(y, (tuple, list)) and not numbers
    outputs = y if several else (y,)
    held = zip(names or map(str, range(len(outputs))), outputs, strict=True)
    return tuple(_numbers(o, f"output {name} of f", several) for name, o in held), several


def _numbers(x: Any, name: str, several: bool) -> NDArray:
    if x is None:
        advice = "omit it" if several else "return it, or pass out_like= if f stores it"
        msg = f"{name} must be an array of numbers, got None: {advice}"
        raise TypeError(msg)
    try:
        array = x if type(x) is np.ndarray else np.asarray(given_array(x, name))
    except (RuntimeError, ValueError) as error:  # as torch's, of a list of tensors
        if np.ma.is_masked(x):
            raise
        raise TypeError(_no_numbers(name, type(x).__name__)) from error
    if array.dtype.kind not in "biufc" and array.dtype.isbuiltin != 2:
        kind = str(array.dtype) if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(_no_numbers(name, kind))
    return array


def _no_numbers(name: str, kind: str) -> str:
    return f"{name} must be an array of numbers, got {kind}: return an array or a tuple of arrays"


@dataclass(frozen=True)
class RealOutputs:
    """A function of which the real numbers of some outputs are wanted."""

    inner: Callable[..., Any]
    kinds: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]  # of all outputs
    kept: tuple[int, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> NDArray:
        """Return them, in new memory: NaN where no matrix is to be had, as for a root of -1."""
        try:
            y = self.inner(*args, **kwargs)
        except Exception as error:
            if not type(error).__name__.endswith("LinAlgError"):  # NumPy's, SciPy's, or torch's
                raise
            kinds = (self.kinds[k] for k in self.kept)
            numbers = real_vector([np.zeros(shape, kind) for shape, kind in kinds])
            return np.full_like(numbers, np.nan)
        return self.of(y).copy()

    def of(self, y: Any) -> NDArray:
        """Return the real numbers of what the function returned."""
        arrays, _ = as_outputs(y)
        for k, what in enumerate(("shape", "dtype")):
            first, now = [kind[k] for kind in self.kinds], [getattr(a, what) for a in arrays]
            if first != now:
                then, since = (", ".join(map(str, found)) for found in (first, now))
                msg = (
                    f"f returned outputs of {what} {then} and then {since}: "
                    f"their {what} must not depend on the values of the inputs"
                )
                raise ValueError(msg)
        return real_vector([arrays[k] for k in self.kept])


@dataclass(frozen=True)
class RealBatches:
    """A function of batches of one argument, of which the real numbers of outputs are wanted."""

    inner: Callable[..., Any]
    position: int
    alone: RealOutputs

    def together(self, *args: Any, **kwargs: Any) -> NDArray:
        """Return them, a row for each point."""
        arrays, _ = as_outputs(self.inner(*args, **kwargs))
        return real_rows([arrays[k] for k in self.alone.kept])

    def __call__(self, *args: Any, **kwargs: Any) -> NDArray:
        """Return them; where a batch fails, of one point after the other."""
        try:
            return self.together(*args, **kwargs)
        except Exception:  # of so many points, or of one that says so again
            points, after = args[self.position], args[self.position + 1 :]
            each = (self.alone(*args[: self.position], x, *after, **kwargs) for x in points)
            return np.stack(list(each))


@dataclass(frozen=True)
class ComplexOutputs:
    """A function of complex numbers of which some outputs are wanted."""

    inner: Callable[..., Any]
    kept: tuple[int, ...]
    lenient: bool  # whether real outputs may mean that f depends on other inputs

    def __call__(self, *args: Any, **kwargs: Any) -> NDArray:
        """Return them, one after the other, as complex numbers if one of them is."""
        arrays, _ = as_outputs(self.inner(*args, **kwargs))
        kept = np.concatenate([arrays[k].reshape(-1) for k in self.kept])
        return kept.astype(np.result_type(kept, np.complex64)) if self.lenient else kept
