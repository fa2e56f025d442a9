"""The format that f computes in, where its values tell: float32 inside a function of doubles."""

from dataclasses import replace
from typing import Any

import numpy as np

from .._kernels.pieces import in_few_bits
from .._protocols import NDArray
from .._reals import reals
from .problem import Problem
from .steps import Steps

_MOVED = 2.0**-6  # of a number of x, or of the caller's length: well within a ladder's steps
_LEFT = 2.0**-20  # of x, or 1: what is less may be left of such numbers, in few bits
_NARROW = np.float16, np.float32


def in_its_format(problem: Problem, steps: Steps) -> Steps:
    """
    Return steps that know which format f computes in.

    Of doubles one in 2**29 is a number of float32, so that even one result is no chance. But what f
    only copies are numbers of x, and those in few bits may be exact, or what is left of others:
    where all are such, f is asked once more, at numbers that float32 does not hold; and farther
    away if that tells nothing. A narrower format than float16 is not told from such.
    """
    base = problem.base
    if problem.x.real.dtype.char + base.dtype.char != "dd":
        return steps
    if not (base.size and problem.x.size and _are_numbers_of(np.float32, base)):
        return steps
    # What is left of natural numbers is a multiple of their spacing, and small where few bits are.
    least = 0.0
    for far in _moves(problem, steps):
        steps = replace(steps, calls=steps.calls + 1)
        values = _values_beside(problem, steps, far)
        if values is None:
            return steps
        both = np.concatenate([base, values])
        kind = next((kind for kind in _NARROW if _are_numbers_of(kind, both)), None)
        if kind is None:
            return steps
        if _are_evident(both[np.abs(both) >= least]):
            return replace(steps, eps=float(np.finfo(kind).eps), narrow=np.dtype(kind).name)
        least = _LEFT * max(1.0, float(np.abs(reals(problem.x)).max()))
    return steps


def _moves(problem: Problem, steps: Steps) -> list[NDArray]:
    """Return how far the numbers of x are moved, one time after the other."""
    numbers = reals(problem.x)
    if steps.lengths.size:  # as far as the caller, or the kind of x, lets it
        near = np.repeat(steps.lengths, problem.stride if steps.lengths.size > 1 else 1)
        return [_MOVED * near]
    signs, sizes = np.where(numbers < 0, -1.0, 1.0), np.abs(numbers)
    near = _MOVED * signs * np.where(sizes == 0, 1.0, sizes)
    # A small number may be lost beside 1, and f saturated by a large one.
    return [near, np.where(sizes < 1, _MOVED * signs, -0.5 * numbers)]


def _values_beside(problem: Problem, steps: Steps, far: NDArray) -> NDArray | None:
    shares = np.random.default_rng(0).uniform(0.5, 1.0, far.size)
    with np.errstate(all="ignore"):
        moved = reals(problem.x) + shares * far
        if steps.lows.size:
            moved = np.clip(moved, steps.lows, steps.highs)
        try:
            return problem.at(moved)
        except Exception:  # the differences will tell what f refuses
            return None


def _are_numbers_of(kind: Any, values: NDArray) -> bool:
    with np.errstate(over="ignore"):
        narrow = values.astype(kind)
    return bool(np.all((narrow == values) | ~np.isfinite(values)))


def _are_evident(values: NDArray) -> bool:
    """Tell whether one of them has more bits than numbers that are exact mostly have."""
    with np.errstate(over="ignore", invalid="ignore"):  # where a split is too large
        few = in_few_bits(values[np.isfinite(values)].astype(float))
    return not few.all()
