"""One function asked the same in several ways: in parts, in other layouts, again."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .._libraries import library_of
from .._protocols import NDArray
from .answers import listed
from .layouts import misaligned
from .trials import Subject, Trials, side_of


def of_batch(f: Callable[..., Any], inputs: Any, batch: tuple[int, ...], seed: int) -> Trials:
    """Ask for rows, some rows and rows in a different order."""
    subject = Subject(f, inputs, seed)
    batched = subject.nest.places(batch)
    n = subject.inputs[batched[0]].shape[0]
    if not any(x.shape[:1] == (n,) for x in subject.plain.arrays):
        msg = f"f must return a row for each of the {n} rows of inputs[{batch[0]}], got shapes "
        raise ValueError(msg + listed(subject.plain.shapes))
    order = np.random.default_rng(seed).permutation(n)
    if (order == np.arange(n)).all():
        order = order[::-1]
    parts = {f"row {i}": np.array([i]) for i in sorted({0, n // 2, n - 1})}
    if n > 3:
        parts["rows 0, 1, 2"] = np.arange(3)
    parts["rows in a different order"] = order
    trials = []
    for name, rows in parts.items():
        some = [x[rows] if k in batched else x for k, x in enumerate(subject.inputs)]
        trials.append(subject.part(name, subject.side(some), rows, n))
    return Trials("f of some rows compared with f of all rows", tuple(trials))


def of_layout(f: Callable[..., Any], inputs: Any) -> Trials:
    """Ask with the same numbers elsewhere in memory."""
    subject = Subject(f, inputs)
    given = [x.copy(order="C") if isinstance(x, np.ndarray) else x for x in subject.inputs]
    subject.plain = subject.side(given)
    sent = subject.side.sent
    assert sent is not None

    def shared(x: Any, like: Any) -> Any:
        # A copy of a library's own would have a layout of its own.
        own = sent(x, like)
        library = library_of(own)
        return own if library is None or library.device(own) != "cpu" else library.from_numpy(x)

    direct = side_of("f", subject.side.call, subject.nest.leaves)
    # What it is given are copies already, and to copy one again would align it.
    direct.sent, direct.copies = shared, False
    ways: dict[str, Callable[[NDArray], NDArray]] = {
        "column-major": lambda x: x.copy(order="F"),
        "every second element of a longer row": strided,
        "shifted by one element in memory": misaligned,
    }
    trials = []
    for name, way in ways.items():
        arrays = [way(x) if isinstance(x, np.ndarray) else x for x in given]
        trials.append(subject.trial(name, direct(arrays)))
    return Trials("f with other memory layouts", tuple(trials))


def of_repeats(f: Callable[..., Any], inputs: Any, times: int) -> Trials:
    """Ask again."""
    subject = Subject(f, inputs)
    # All before any other call: f may count its calls.
    answers = [subject.side(subject.inputs) for _ in range(times - 1)]
    trials = [subject.trial(f"call {k}", answer) for k, answer in enumerate(answers, start=2)]
    return Trials(f"{times} calls of f", tuple(trials))


def strided(x: NDArray) -> NDArray:
    """Copy an array to every second element of a larger one."""
    if not x.ndim:
        return x.copy()
    gaps = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)[..., ::2]
    gaps[...] = x
    return gaps
