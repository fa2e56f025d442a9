"""The format that f computes in, where its values tell: float32 inside a function of doubles."""

from dataclasses import replace

import numpy as np

from .._protocols import NDArray
from .._reals import reals
from .problem import Problem
from .steps import Steps

_MOVED = 2.0**-6  # of a number of x, or of the caller's length: well within a ladder's steps
_EVIDENT = 2.0**-12  # of their size: what numbers in few bits are multiples of


def in_its_format(problem: Problem, steps: Steps) -> Steps:
    """
    Return steps that know which format f computes in.

    Of doubles one in 2**29 is a number of float32, so that even one result is no chance. But what f
    only copies are numbers of x, and those in few bits may be exact, or what is left of others:
    where all are such, f is asked once more, at numbers that float32 does not hold; and farther
    away if that tells nothing.
    """
    base = problem.base
    if problem.x.real.dtype.char + base.dtype.char != "dd" or problem.imaginary:
        return steps
    if not (base.size and problem.x.size and _are_float32(base)):
        return steps
    lengths = [steps.lengths]
    if not steps.lengths.size:
        sizes = np.abs(reals(problem.x))
        lengths = [np.where(sizes == 0, 1.0, sizes), np.maximum(sizes, 1.0)]
    for length in lengths:
        steps = replace(steps, calls=steps.calls + 1)
        values = _values_beside(problem, steps, _MOVED * length)
        if values is None or not _are_float32(values):
            return steps
        if _are_evident(values) or _are_evident(base):
            return replace(steps, eps=float(np.finfo(np.float32).eps), narrow=True)
    return steps


def _values_beside(problem: Problem, steps: Steps, far: NDArray) -> NDArray | None:
    numbers = reals(problem.x)
    shares = np.random.default_rng(0).uniform(0.5, 1.0, numbers.size)
    far = shares * np.repeat(far, problem.stride if far.size > 1 else 1)
    with np.errstate(all="ignore"):
        moved = numbers + np.where(numbers < 0, -far, far)
        if steps.lows.size:
            moved = np.clip(moved, steps.lows, steps.highs)
        try:
            return problem.at(moved)
        except Exception:  # the differences will tell what f refuses
            return None


def _are_float32(values: NDArray) -> bool:
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    return bool(np.all((narrow == values) | ~np.isfinite(values)))


def _are_evident(values: NDArray) -> bool:
    """Tell whether one of them has more bits than numbers that are exact mostly have."""
    bits, _ = np.frexp(values[np.isfinite(values)])
    return bool(np.any(np.fmod(bits, _EVIDENT) != 0))
