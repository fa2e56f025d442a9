"""Check that vjp and jvp are linear, in all digits, magnitudes and memory layouts."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from .._core.dtypes import SPACINGS
from .._core.protocols import NDArray
from .analytic import AnalyticDerivative
from .basis_vectors import Rows, UnitVectors
from .columns import Sizes
from .entry_rules import Rule
from .flatten import largest_by_segment
from .invariants import (
    LARGE,
    SMALL,
    LateResults,
    largest_difference,
    max_abs,
    natural_size,
    rounding_error,
    scales,
)
from .perturb import Move, perturbation_error

_FEW_BITS = np.array([-1.75, -1.5, -1.25, -1.0, 1.0, 1.25, 1.5, 1.75])  # exact in all formats
_MIDPOINT_OFFSET = 2.0**-11  # distance from the midpoint of two numbers, in their spacings
_UNCHANGED_EPS = 64.0  # times eps: changes of results that count as unchanged


def linearity(
    d: AnalyticDerivative,
    random: np.random.Generator,
    tolerance: float,
    rule: Rule,
    sizes: Sizes | None,
    unit_rows: Rows | None,
    eps: float,
    formats: Sequence[str],
    late: LateResults,
) -> Iterator[str]:
    """
    Check that vjp or jvp maps zero to zero and is linear, within the tolerance of its entries.

    `late` are results of d. `sizes`, if known, are those of the entries, and `unit_rows`, if
    available, the results for unit vectors. `eps` is the unit spacing of the format that f computes
    in, and `formats` are those of lower precision that directions must not be rounded to.
    """
    assert d.first is not None
    v, of_small = d.first
    zero, contiguity_error = late.zero, late.contiguity_error
    what = "cotangent" if d.form == "vjp" else "tangent"
    if np.any(np.abs(zero) > tolerance) and np.any(
        np.abs(zero)
        > tolerance + perturbation_error(d, lambda g, _: g.applied(np.zeros_like(v)), random)
    ):
        cause = "grad_output" if d.form == "vjp" else "the tangent"
        yield (
            f"{d.name} returns {max_abs(zero):.3g} instead of zeros for a zero {what}: a "
            f"term is not multiplied by {cause}"
        )
        return
    # No element of v is 0: infinite entries show in d(v), too, and are judged one by one.
    if np.any(np.isnan(zero) & np.isfinite(of_small)):
        yield f"{d.name} returns NaN for a zero {what}, but finite values for a nonzero one"
        return
    w = random.choice(_FEW_BITS, len(v)) * scales(len(v))[::-1]
    of_v, of_w = d.applied(v), d.applied(w)
    if sizes is None:
        size, errors = np.full(zero.shape, max_abs(of_v) + max_abs(of_w)), np.zeros(zero.shape)
    else:
        size, errors = sizes.of_results(d.form)
    natural = natural_size(d)
    lengths = 16 * np.abs(v) + np.abs(w)
    terms = np.fmax(largest_by_segment(size, d.result_segments), natural) * np.sum(lengths)
    allowed = 32 * tolerance * max(max_abs(v), max_abs(w)) + rounding_error(d, terms)
    if eps > d.subject.eps:
        allowed = allowed + eps * terms
    allowed = allowed + rule.rtol * size * np.sqrt(np.sum(lengths**2))
    allowed = allowed + (rule.atol + largest_by_segment(errors, d.result_segments)) * np.sum(
        lengths
    )

    def is_off(value: NDArray, expected: NDArray, residual: partial[NDArray], noise: float) -> bool:
        difference = np.abs(value - expected)
        difference[np.isnan(value) & np.isfinite(expected)] = np.inf
        within = allowed + noise
        return bool(np.any(difference > within)) and bool(
            np.any(difference > within + perturbation_error(d, residual, random))
        )

    with np.errstate(invalid="ignore", over="ignore"):
        for text, (value, expected) in _in_both_ways(d, v, w, of_v, of_w, unit_rows).items():
            noise = tolerance / SMALL if text == _OF_SMALL else 0.0
            if is_off(value, expected, partial(_not_linear, text, v, w), noise):
                rest = " from the sum over unit vectors" if text == "v" else ""
                off = f"{d.name}({text}) is off by {largest_difference(value, expected):.3g}{rest}"
                yield f"{d.name} is not linear in its {what}: {off}"
                return
        if contiguity_error is not None:
            yield (
                f"{d.name} raises for a {what} that is not contiguous in memory "
                f"({contiguity_error!r})"
            )
            return
        if late.strided:
            value = d.applied(v, contiguous=False)
            if is_off(value, of_v, partial(_by_layout, v), 0.0):
                yield (
                    f"{d.name} reads the memory of its {what} as if it were contiguous: "
                    f"its results differ by {largest_difference(value, of_v):.3g} for the "
                    "same numbers with different strides; call .contiguous() on it first"
                )
                return
        noise_of_w = 4 * eps * np.fmax(size, natural) * np.linalg.norm(w)
        yield from _rounding_of_direction(d, w, of_w, noise_of_w, formats, random)


_OF_SMALL = "v/65536"


def _in_both_ways(
    d: AnalyticDerivative,
    v: NDArray,
    w: NDArray,
    of_v: NDArray,
    of_w: NDArray,
    unit_rows: Rows | None,
) -> dict[str, tuple[NDArray, NDArray]]:
    """Return the results of d for combinations of v and w, and those that linearity implies."""
    both = {
        "2v + w": (d.applied(2 * v + w), 2 * of_v + of_w),
        "-16v": (d.applied(LARGE * v), LARGE * of_v),
        _OF_SMALL: (d.applied(SMALL * v) / SMALL, of_v),
    }
    if unit_rows is not None:
        both["v"] = of_v, unit_rows.combined(v)
    return both


def _not_linear(text: str, v: NDArray, w: NDArray, d: AnalyticDerivative, turn: Move) -> NDArray:
    """Return the residual of one of the tested identities at a perturbed point."""
    v, w = turn(v), turn(w)
    of_v = d.applied(v)
    if text == "v":
        # Two calls for vectors of length 1 are rounded alike. All formats hold these lengths.
        (change,) = turn(np.ones(1)) - 1
        length = 1 + float(np.round(4 * change / np.sqrt(d.subject.eps))) / 8
        return np.asarray(of_v - UnitVectors(d, length).all().combined(v / length))
    value, expected = _in_both_ways(d, v, w, of_v, d.applied(w), None)[text]
    return np.asarray(value - expected)


def _by_layout(v: NDArray, d: AnalyticDerivative, turn: Move) -> NDArray:
    """Return the change of the result for v with the strides of v."""
    return np.asarray(d.applied(turn(v), contiguous=False) - d.applied(turn(v)))


def _rounding_of_direction(
    d: AnalyticDerivative,
    w: NDArray,
    of_w: NDArray,
    noise: NDArray,
    formats: Sequence[str],
    random: np.random.Generator,
) -> Iterator[str]:
    """
    Check that d does not round a direction to one of some formats, which all hold the numbers of w.

    A change of the results must exceed `noise`. Results whose terms cancel are rounding and may be
    equal by chance, but not for several directions of the same signs and magnitudes.
    """
    what = "cotangent" if d.form == "vjp" else "tangent"
    units = np.copysign(np.exp2(np.frexp(w)[1] - 1.0), w)
    for taken in d.direction_segments if formats else ():
        shift = np.zeros(len(w))
        shift[taken.start : taken.stop] = units[taken.start : taken.stop]
        results = {0.0: of_w}
        for output in d.result_segments:
            block = slice(output.start, output.stop)
            perturb = partial(_perturbed, d, shift=shift, block=block, noise=noise)
            name = _rounding_format(partial(perturb, w, results), formats)
            if name and all(
                _rounding_format(partial(perturb, u, {0.0: d.applied(u)}), (name,))
                for u in _numbers_of(name, units, random)
            ):
                yield (
                    f"{d.name} rounds its {what} to {name}: its results do not change with "
                    f"digits beyond {name}; compute in full precision"
                )
                return


def _numbers_of(name: str, units: NDArray, random: np.random.Generator) -> Iterator[NDArray]:
    """Draw arrays of numbers that a format represents, each 1 to 2 times its unit."""
    spacing = SPACINGS[name]
    for _ in range(8):
        yield units * (1 + spacing * random.integers(0, round(1 / spacing), len(units)))


def _perturbed(
    d: AnalyticDerivative,
    w: NDArray,
    results: dict[float, NDArray],
    share: float,
    *,
    shift: NDArray,
    block: slice,
    noise: NDArray,
) -> NDArray | None:
    """
    Return results for w plus a share of a shift, or None if only rounding may change them.

    `results` caches those of all blocks, by share.
    """
    if share not in results:
        results[share] = d.applied(w + share * shift)
    values, there = results[share][block], results[0.0][block]
    if share and np.array_equal(values, there):
        if 1.0 not in results:
            results[1.0] = d.applied(w + shift)
        change = np.abs(results[1.0][block] - there)
        if not np.any(share * change > noise[block]):
            return None
    return values


def _rounding_format(values_at: Callable[[float], NDArray | None], names: Sequence[str]) -> str:
    """
    Return the first of some formats that a function rounds its argument to, or "".

    Its argument is exact in all of them. Elements are shifted by shares of their power of two: the
    results are constant up to the midpoint of two numbers of the format, and change beyond it.
    """
    there = values_at(0.0)
    for name in names:
        inside = values_at((0.5 - _MIDPOINT_OFFSET) * SPACINGS[name])
        if there is None or inside is None or not np.array_equal(there, inside):
            return ""
        beyond = values_at((0.5 + _MIDPOINT_OFFSET) * SPACINGS[name])
        if beyond is not None and _differ(there, beyond):
            return name
    return ""


def _differ(one: NDArray, other: NDArray) -> bool:
    """Return True if results differ by more than rounding."""
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= _UNCHANGED_EPS * np.finfo(one.dtype).eps * np.abs(one)
    return not np.all(near | (one == other) | (np.isnan(one) & np.isnan(other)))
