"""Consistency checks of f and its derivatives that take no step, at the cost of a few calls."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from .._core.arrays import is_sparse
from .._core.dtypes import least_normal
from .._core.protocols import NDArray
from .analytic import AnalyticDerivative
from .basis_vectors import Rows
from .calls import ADD, WRITE
from .entry_rules import all_agree
from .flatten import WrongFormError, as_outputs, largest_by_segment, norm, real_vector
from .function_at_point import FunctionAtPoint
from .jacobian_storage import entries_of_both
from .perturb import perturbation_error

# Rounding in sums of n terms grows as sqrt(n); this bounds the constant of derivatives, in eps.
ROUNDING = 256.0
# Factors of a direction that expose clipping and thresholds. Results of a linear function are
# scaled by such powers of two without rounding.
LARGE, SMALL = -16.0, 2.0**-16
_UNIT = 1 / 8  # makes a direction at most 1, where a tolerance is absolute
_SAMPLE = slice(0, 64)  # rows of a Jacobian that are copied and compared with a second call
# Directions of at most 4096 numbers are drawn once, as this takes longer than a call of f, and
# those of 64 sizes are retained.
_CACHED_SIZE, _MAX_CACHED = 4096, 64
_CACHE: dict[int, tuple[NDArray, NDArray]] = {}
_EXCLUDED = 0.25  # share of the effect of a rounding below which results do not show it


def determinism(subject: FunctionAtPoint, tolerance: float) -> Iterator[str]:
    """
    Check that a second call of f returns the same results, up to rounding.

    Some routines round differently from call to call, by memory alignment or threads.
    """
    if subject.adapted.likes is not None:
        # The first call wrote into arrays of NaN.
        arguments, named = tuple(subject.arguments()), subject.named()
        subject.calls += 1
        over_zeros = replace(subject.adapted, fill_value=0.0)
        again = subject.reals_of(over_zeros(*arguments, **named))
        unwritten = np.isnan(subject.base) & ~np.isnan(again)
        if unwritten.any():
            yield (
                f"f does not overwrite its output arrays (out_like=): {unwritten.sum()} of "
                f"{again.size} results depend on their previous values"
            )
            return
    else:
        again = subject.adapted.reals_of(subject.call())
    worst = largest_difference(again, subject.base)
    if worst == 0:
        return
    sizes = largest_by_segment(_finite(subject.sizes), subject.active_outputs)
    rounding = ROUNDING * subject.eps * sizes
    if worst > tolerance and not all_agree(again, subject.base, tolerance + rounding):
        yield (
            f"f is not deterministic: two calls with the same inputs differ by {worst:.3g} "
            f"(nondet_tol={tolerance:g})"
        )


def memory_order(subject: FunctionAtPoint) -> str | None:
    """Check that f returns the same for inputs in their memory order as for copies in C order."""
    if not subject.laid_out:
        return None
    values = subject.reals_of(subject.call_as_laid_out())
    # Matrix products round differently for another memory order.
    allowed = subject.eps**0.5 * np.abs(subject.base[np.isfinite(subject.base)]).max(initial=0.0)
    if all_agree(values, subject.base, allowed):
        return None
    named = ", ".join(subject.names[k] for k in subject.laid_out)
    return (
        f"f depends on the memory order of input {named}: it is checked with copies in C "
        "order, for which its results differ; pass numpy.ascontiguousarray of that input"
    )


def mutation(name: str, touched: list[str]) -> Iterator[str]:
    """Report the arguments that a function has changed."""
    yield f"{name} changes its arguments: {', '.join(touched)}; make it work on a copy"


def first_result(d: AnalyticDerivative, random: np.random.Generator) -> tuple[Any, Any]:
    """
    Return what `statelessness` compares with a result of d after f was called at other points.

    That is a direction and its product, or a Jacobian and a copy of its first rows.
    """
    if d.form != "jac":
        v = direction(d, random)
        return v, d.applied(SMALL * v)
    matrix = d.matrix() if d.last_matrix is None else d.last_matrix
    return matrix, matrix[_SAMPLE].copy() if isinstance(matrix, np.ndarray) else None


def change_of_jacobian(d: AnalyticDerivative, first: tuple[Any, Any]) -> float:
    """Return the largest difference between a Jacobian of `first_result` and a new one."""
    one, before = first
    two = d.matrix()
    d.last_matrix = one  # so that the other is freed
    if is_sparse(one) != is_sparse(two):
        return np.inf
    if before is not None:  # the new call may have overwritten the first result
        overwritten = largest_difference(before, one[_SAMPLE])
        if overwritten > 0:
            return overwritten
    return largest_difference(*entries_of_both(one, two))


def statelessness(
    d: AnalyticDerivative, random: np.random.Generator, tolerance: float
) -> Iterator[str]:
    """Check that d depends on its arguments alone, not on earlier calls of d or of f."""
    v = _UNIT * direction(d, random)

    def answer() -> Any:
        result = d.matrix() if d.form == "jac" else d.applied(v)
        return result[_SAMPLE].copy() if isinstance(result, np.ndarray) else result

    before = answer()
    d.subject.call()
    after, again = answer(), answer()
    repeated = largest_difference(*entries_of_both(after, again))
    difference = largest_difference(*entries_of_both(before, after))
    if difference > tolerance >= repeated:
        yield (
            f"{d.name} depends on the last call of f, by {difference:.3g}: compute what it "
            "needs from its arguments"
        )
    elif max(repeated, d.change) > tolerance:
        yield (
            f"{d.name} is not reentrant: two calls with the same arguments differ by "
            f"{max(repeated, d.change):.3g} (nondet_tol={tolerance:g})"
        )


def output_arrays(
    d: AnalyticDerivative, random: np.random.Generator, tolerance: float
) -> Iterator[str]:
    """Check that a derivative overwrites its output arrays, or adds to them, as declared."""
    likes, adds = d.call.likes, d.call.adds
    assert likes is not None
    last: tuple[Any, ...] = ()
    if d.form != "jac":
        v = _UNIT * direction(d, random)
        v[::2] = 0  # a derivative that skips zeros may not write there
        last = (d.shaped(v),)
    arguments = (*d.subject.arguments(), *last)
    held = [_numbers_like(like, random) for like in likes]
    one, two = [a.copy() for a in held], [np.zeros_like(like) for like in likes]
    d.calls += 2
    named = d.subject.named()
    d.call.inner(*arguments, *one, **named)
    d.call.inner(*arguments, *two, **named)
    for before, after, alone in zip(held, one, two, strict=True):
        expected = before + alone if adds else alone
        allowed = tolerance + (rounding_error(d, np.abs(before) + np.abs(alone)) if adds else 0)
        if not all_agree(after, expected, allowed):
            how, way = ("add to", ADD) if adds else ("overwrite", WRITE)
            yield f"{d.name} does not {how} its output arrays (inplace={way!r})"
            return


def primal(
    source: str, value: Any, subject: FunctionAtPoint, allowed: Callable[[NDArray], NDArray]
) -> Iterator[str]:
    """Check that the primal value returned with a derivative equals f(x)."""
    if subject.structure is not None:
        _, value = subject.structure.flattened(value)
    try:
        arrays, _ = as_outputs(value)
    except TypeError:
        yield f"{source} returns {type(value).__name__} as the value of f"
        return
    outputs = [p.example for p in subject.active_outputs]
    if len(arrays) == len(subject.outputs) != len(outputs):
        arrays = tuple(arrays[p.position] for p in subject.active_outputs)
    shapes, expected = [a.shape for a in arrays], [o.shape for o in outputs]
    if shapes != expected:
        yield f"{source} returns values of shapes {shapes}, but f returns {expected}"
        return
    kinds, expected_kinds = ([a.dtype.kind == "c" for a in group] for group in (arrays, outputs))
    if kinds != expected_kinds:
        yield f"{source} returns complex values where f returns real ones, or vice versa"
        return
    numbers = real_vector(arrays).astype(float, copy=False)
    base = subject.base.astype(float, copy=False)
    if not all_agree(numbers, base, allowed(base)):
        worst = largest_difference(numbers, base)
        yield f"the primal value that {source} returns differs from f(x) by {worst:.3g}"


def none_directions(d: AnalyticDerivative, share: float) -> Iterator[str]:
    """Check that a cotangent or tangent of None counts as zeros, for all arguments and for each."""
    parts, what = d.direction_segments, "cotangent" if d.form == "vjp" else "tangent"
    patterns: list[list[Any]] = [[None] * len(parts)]
    if len(parts) > 1:
        for k in range(len(parts)):
            ones = [np.ones_like(p.example) for p in parts]
            patterns.append([None if i == k else x for i, x in enumerate(ones)])
    for k, pattern in enumerate(patterns):
        try:
            result = d.answer(tuple(pattern) if d.several else pattern[0]).copy()
        except WrongFormError:
            raise
        except Exception as error:
            msg = f"{d.name} raises for a {what} of None, which stands for zeros"
            raise WrongFormError(msg) from error
        if k == 0 and not result.any():
            continue
        expected = np.zeros_like(result)
        if k > 0:
            pairs = zip(parts, pattern, strict=True)
            expected = d.answer(
                tuple(np.zeros_like(p.example) if x is None else x for p, x in pairs)
            )
        if not all_agree(result, expected, share * max_abs(_finite(expected))):
            yield (f"{d.name} returns different results for a {what} of None and a {what} of zeros")
            return


def adjoint(
    one: AnalyticDerivative, other: AnalyticDerivative, random: np.random.Generator, share: float
) -> Iterator[str]:
    """
    Check that <w, Jv> = <J'w, v> for random v and w and two forms of J, up to a share of the terms.
    """
    pushes, pulls = (one, other) if one.form != "vjp" else (other, one)
    if pulls.form == "jvp":
        pushes, pulls = pulls, pushes
    subject = pushes.subject
    v = drawn(subject.columns, random, subject.eps)
    w = drawn(subject.rows, random, subject.eps)
    forward, backward = pushes.times(v).copy(), pulls.transposed_times(w).copy()
    with np.errstate(invalid="ignore", over="ignore"):
        left, right = w @ forward, backward @ v
        terms = np.abs(w) @ np.abs(forward) + np.abs(backward) @ np.abs(v)
    allowed = rounding_error(pushes, terms) * np.sqrt(len(v) + len(w)) + share * terms
    allowed = allowed + cancelled(pushes, w, v)
    if abs(left - right) <= allowed or (np.isnan(left) and np.isnan(right)):
        return
    allowed += perturbation_error(pushes, lambda d, turn: turn(w) @ d.times(turn(v)), random)
    allowed += perturbation_error(
        pulls, lambda d, turn: d.transposed_times(turn(w)) @ turn(v), random
    )
    if abs(left - right) <= allowed:
        return
    yield (
        f"{pushes.name} and {pulls.name} are not derivatives of one function: <w, Jv> = "
        f"{left:.6g} and <J'w, v> = {right:.6g} differ by {abs(left - right):.2g}"
    )


def batches(d: AnalyticDerivative, random: np.random.Generator) -> Iterator[str]:
    """Check that a call with a batch of two directions agrees with two single calls."""
    directions = np.stack([direction(d, random), direction(d, random)])
    try:
        result = d.batch_products(directions)
    except WrongFormError:
        raise
    except Exception as error:
        if d.of_library:  # by vmap of torch or jax, which says what it cannot do
            msg = f"{d.name} raises for a batch of directions along a leading axis"
            raise WrongFormError(msg) from error
        error.add_note(f"raised by {d.name} with a batch of two directions along a leading axis")
        raise
    for v, row in zip(directions, result, strict=True):
        alone = d.applied(v)
        if not all_agree(row, alone, rounding_error(d, np.abs(alone) + max_abs(_finite(alone)))):
            yield f"{d.name} of a batch differs from {d.name} of each of its rows"
            return


class LateResults(NamedTuple):
    """Results of a derivative after f was called at other points."""

    zero: NDArray  # for a zero direction
    large: NDArray  # for a large multiple of the first direction
    strided: bool  # whether that direction is not contiguous in memory
    contiguity_error: Exception | None  # that it raised because of this


def late_results(d: AnalyticDerivative) -> LateResults:
    """Call d with a zero and a large direction, and note if its first result has changed."""
    assert d.first is not None
    v, of_small = d.first
    zero = d.applied(np.zeros_like(v))
    # Autograd hands over cotangents with any strides.
    strided, contiguity_error = d.of_library and d.form == "vjp", None
    try:
        large = d.applied(LARGE * v, contiguous=not strided)
    except Exception as error:  # any error of a backward that needs contiguous ones
        if not strided:
            raise
        contiguity_error, large = error, d.applied(LARGE * v)
    with np.errstate(invalid="ignore", over="ignore"):
        if largest_difference(large, LARGE / SMALL * of_small) > 0:
            d.change = largest_difference(d.applied(SMALL * v), of_small)
    return LateResults(zero, large, strided, contiguity_error)


def is_linear(
    d: AnalyticDerivative, late: LateResults, rows: Rows, rtol: float, spacing: float
) -> bool:
    """
    Return True if results are sums over unit vectors, also in digits beyond a format.

    `rows` are the results for unit vectors, and `spacing` is that of the format at 1, or infinite.
    If a part of the direction were rounded to it, some results would show that: it is ruled out
    where they are far nearer to the sums than that.
    """
    if late.contiguity_error is not None or late.zero.any():
        return False
    assert d.first is not None
    v, of_small = d.first
    expected = rows.combined(v)
    allowed = rtol / np.sqrt(len(v)) * np.abs(expected)
    with np.errstate(invalid="ignore", over="ignore"):
        large, small = np.abs(late.large / LARGE - expected), np.abs(of_small / SMALL - expected)
        if not ((large <= allowed).all() and (small <= allowed).all()):
            return False
    if spacing == np.inf:
        return True
    units = spacing * np.exp2(np.frexp(v)[1] - 1.0)
    rounded = np.rint(v / units) * units - v
    for part in d.direction_segments:
        alone = np.zeros_like(v)
        alone[part.start : part.stop] = rounded[part.start : part.stop]
        effect = rows.combined(alone)
        for out in d.result_segments:
            there = slice(out.start, out.stop)
            least = _EXCLUDED * norm(effect[there])
            if least > 0 and not (norm(large[there]) <= least and norm(small[there]) <= least):
                return False
    return True


def natural_size(d: AnalyticDerivative) -> NDArray:
    """Return the magnitude of the terms of a derivative, in case they cancel."""
    results, units = _finite(d.subject.rounded), d.subject.units
    return max_abs(results) / units if d.form == "vjp" else results / units.min()


def cancelled(d: AnalyticDerivative, w: NDArray, v: NDArray) -> float:
    """Return the rounding error of <w, Jv> if all terms of J cancel."""
    results, units = _finite(d.subject.rounded[: len(w)]), d.subject.units[: len(v)]
    return float(rounding_error(d, norm(w * results) * norm(v / units)))


def _finite(values: NDArray) -> NDArray:
    return np.where(np.isfinite(values), values, 0.0)


def direction(d: AnalyticDerivative, random: np.random.Generator) -> NDArray:
    """Draw a cotangent or a tangent whose magnitudes span some decades."""
    size = d.subject.rows if d.form == "vjp" else d.subject.columns
    return drawn(size, random, d.subject.eps) * scales(size)


def scales(size: int) -> NDArray:
    """Return powers of two that span three decades, 1 among them, in a random order."""
    return _digits_and_magnitudes(size)[1]


def drawn(size: int, random: np.random.Generator, eps: float) -> NDArray:
    """Draw numbers of magnitude 1 to 8 that use almost all digits of a format of spacing eps."""
    signed = random.integers(-55, 55, size)
    steps = round(1 / (32 * eps))  # from 1 to 2; few such numbers have an exact sum
    sizes = (np.abs(signed + 0.5) + 8.5) / 8
    sizes += np.floor(_digits_and_magnitudes(size)[0] * steps) / steps
    return np.asarray(np.copysign(sizes, signed))


def _digits_and_magnitudes(size: int) -> tuple[NDArray, NDArray]:
    """Return the last digits of random numbers, below 1/8, and their magnitudes."""
    if size in _CACHE:
        return _CACHE[size]
    random = np.random.default_rng(size)
    powers = 0.5 ** np.linspace(0, 10, size).astype(int)
    digits, magnitudes = random.random(size) / 8, random.permutation(powers)
    digits.flags.writeable = magnitudes.flags.writeable = False  # they are shared by later calls
    if size <= _CACHED_SIZE and len(_CACHE) < _MAX_CACHED:
        _CACHE[size] = digits, magnitudes
    return digits, magnitudes


def _numbers_like(like: NDArray, random: np.random.Generator) -> NDArray:
    drawn = np.asarray(random.integers(9, 64, like.shape) / 8)
    return np.asarray(drawn * (1 + 1j) if like.dtype.kind == "c" else drawn, like.dtype)


def rounding_error(d: AnalyticDerivative, terms: Any) -> Any:
    """Return a bound on the rounding error of sums of terms of some magnitude."""
    eps = d.subject.eps
    # The spacing of subnormal numbers is larger than eps times their size.
    return ROUNDING * eps * (terms + least_normal(eps))


def max_abs(values: NDArray) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def largest_difference(one: NDArray, other: NDArray) -> float:
    """Return the largest difference; infinite where one alone is NaN or infinite."""
    same = one == other
    if same.all():
        return 0.0
    same |= np.isnan(one) & np.isnan(other)
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(one - other))
    return max_abs(np.where(np.isnan(difference), np.inf, difference))
