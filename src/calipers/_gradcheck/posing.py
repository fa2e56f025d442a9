"""What the caller gave for a check, looked at and copied."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .._arrays import as_array, given_array
from .._containers import several
from .._protocols import NDArray
from ..interop.containers import Leaves
from .calls import of_numpy
from .flatten import NOWHERE, has_differences, has_fractions, labels_of, parts_of
from .point import Labels, Subject, names_of


def is_differentiable(value: Any) -> bool:
    """Tell whether an input is of floating-point numbers."""
    if isinstance(value, (bool, int, str, bytes)) or value is None or callable(value):
        return False
    try:
        return as_array(value).dtype.kind in "fc"
    except (TypeError, ValueError, RuntimeError):
        return False


def argnums_of(argnums: Any, count: int) -> list[int]:
    """Return the inputs that the caller named, one or several, of so many."""
    chosen: list[Any] = list(argnums) if np.iterable(argnums) else [argnums]
    for k in chosen:
        if chosen.count(k) > 1:
            msg = f"argnums names input {k} more than once"
            raise ValueError(msg)
        if not isinstance(k, (int, np.integer)) or not 0 <= k < count:
            msg = f"argnums names input {k!r}, but there are {count} inputs, counted from 0"
            raise ValueError(msg)
    return chosen


def _kind(x: Any) -> str:
    name = type(x).__name__
    return f"{name} of dtype {x.dtype}" if hasattr(x, "dtype") else name


def no_batches(position: int) -> None:
    """Return no function of a batch: what is not known to be one is called point by point."""


def pose(
    f: Any,
    inputs: Any,
    args: Any,
    kwargs: Any,
    argnums: Any,
    nondifferentiable_outputs: Any,
    batched: Callable[[int], Callable[..., Any] | None] = no_batches,
    leaves: Leaves | None = None,
    held: tuple[int, ...] = (),
    of_library: bool = False,
    terms: float = 0.0,
    places: Mapping[int, tuple[NDArray, ...]] = NOWHERE,
    labels: Labels | None = None,
) -> Subject:
    """
    Validate and copy the arguments of a check.

    `batched` may give f of a batch of an input. Unless f is of a library's own arrays, it gets
    NumPy's in their place. `places` are those of the values that stand for sparse inputs, and
    `labels` what reports call inputs and outputs, unless that is in[0] and out[0].
    """
    given = [*several(inputs), *args]
    if argnums is None:
        count = len(given) - len(args)
        chosen = [k for k in range(count) if is_differentiable(given[k])]
        held = tuple(k for k in range(count) if k not in chosen)
    else:
        chosen = argnums_of(argnums, len(given))
    if not chosen:
        kinds = ", ".join(dict.fromkeys(map(_kind, given))) or "nothing"
        integers = any(getattr(getattr(x, "dtype", None), "kind", "b") in "iu" for x in given)
        advice = ": pass integers as floats" if integers else ""
        if all(isinstance(x, int) for x in given) and given:
            advice = ": pass the numbers of one input as an array of floats"
        msg = (
            "gradcheck needs a floating-point input, an array or arrays in lists, tuples, "
            f"dicts or dataclasses, got {kinds}: nothing can be differentiated{advice}"
        )
        raise ValueError(msg)
    names = names_of(given, leaves)
    values: list[Any] = []
    laid_out: dict[int, NDArray] = {}
    scalars = set()
    for k, value in enumerate(given):
        copied: Any = value
        if k in chosen or isinstance(value, np.ndarray):
            array = np.asarray(given_array(value, f"input {names[k]}"))
            if array.ndim == 0 and not isinstance(value, np.ndarray):
                scalars.add(k)
            # As differences will hand it over, so that f sees one layout.
            native = array.dtype.newbyteorder("=") if k in chosen else array.dtype
            copied = array.astype(native, order="C" if k in chosen else "K", copy=True)
            if k in chosen and array.ndim > 1 and not array.flags.c_contiguous and not of_library:
                laid_out[k] = array.astype(native, order="K", copy=True)
        if k in chosen and not has_differences(copied.dtype):
            kind = copied.dtype
            able = has_fractions(kind)
            advice = "pass it in float32 or 64" if able else "omit it from argnums"
            told = f"input {names[k]} has dtype {kind}, which is not differentiated numerically"
            msg = f"{told}: {advice}"
            raise TypeError(msg)
        values.append(copied)
    called = labels_of("in", names) if labels is None else labels[0]
    active = parts_of([values[k] for k in chosen], chosen, names, called, places)
    named = dict(kwargs or {})
    if not of_library:
        values, named = of_numpy(values), of_numpy(named)
    return Subject(
        f,
        values,
        named,
        frozenset(scalars),
        active,
        frozenset(nondifferentiable_outputs),
        batched,
        leaves,
        held,
        terms,
        laid_out,
        None if labels is None else labels[1],
    )
