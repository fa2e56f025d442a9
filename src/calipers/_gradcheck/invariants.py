"""Consistency checks of f and its derivatives that take no step, at the cost of a few calls."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .._compare.elementwise import equal_arrays
from .._core.arrays import is_sparse
from .._core.protocols import NDArray
from .analytic import AnalyticDerivative
from .calls import ADD, WRITE, private
from .entry_rules import all_agree, least_normal
from .flatten import WrongFormError, as_outputs, largest_by_segment, norm, real_vector
from .function_at_point import FunctionAtPoint
from .jacobian_storage import entries_of_both
from .perturb import perturbation_error

# Rounding in sums of n terms grows as sqrt(n); this bounds the constant of derivatives, in eps.
ROUNDING = 256.0
SCALE = 8  # a power of two: linear functions scale results by it without rounding
_SAMPLE = slice(0, 64)  # rows of a Jacobian that are copied and compared with a second call


def determinism(subject: FunctionAtPoint, tolerance: float) -> Iterator[str]:
    """
    Check that a second call of f returns the same results, up to rounding.

    Some routines round differently from call to call, by memory alignment or threads.
    """
    if subject.adapted.likes is not None:
        # The first call wrote into arrays of NaN.
        arguments, named = tuple(subject.arguments()), private(subject.kwargs)
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
        again = subject.reals_of(subject.call())
    worst = largest_difference(again, subject.base)
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
    if touched:
        yield f"{name} changes its arguments: {', '.join(touched)}; make it work on a copy"


def reentrance(
    d: AnalyticDerivative, random: np.random.Generator, tolerance: float
) -> Iterator[str]:
    """Check that two calls of a derivative with the same arguments agree."""
    if d.form == "jac":
        one = d.matrix() if d.last_matrix is None else d.last_matrix
        before = one[_SAMPLE].copy() if isinstance(one, np.ndarray) else None
        two = d.matrix()
        d.last_matrix = one  # so that the other is freed
        if is_sparse(one) != is_sparse(two):
            one, two = np.zeros(1), np.full(1, np.inf)  # sparse once, dense once
        elif before is not None and not equal_arrays(before, one[_SAMPLE], equal_nan=True):
            one, two = before, one[_SAMPLE]  # the second call has overwritten the first result
        else:
            one, two = entries_of_both(one, two)
    else:
        v = direction(d, random) / SCALE  # at most 1, as the tolerance is absolute
        one, two = d.applied(v), d.applied(v)
        d.first_product = v, one
    worst = largest_difference(one, two)
    if worst > tolerance:
        yield (
            f"{d.name} is not reentrant: two calls with the same arguments differ by {worst:.3g} "
            f"(nondet_tol={tolerance:g})"
        )


def independence_of_last_call(
    d: AnalyticDerivative, random: np.random.Generator, tolerance: float
) -> Iterator[str]:
    """Check that a derivative does not depend on where f was called last."""
    v = direction(d, random) / SCALE

    def answer() -> Any:
        result = d.matrix() if d.form == "jac" else d.applied(v)
        return result[_SAMPLE].copy() if isinstance(result, np.ndarray) else result

    before = answer()
    d.subject.call()
    after, again = answer(), answer()
    worst = largest_difference(*entries_of_both(before, after))
    if worst > tolerance and largest_difference(*entries_of_both(after, again)) <= tolerance:
        yield (
            f"{d.name} depends on the last call of f, by {worst:.3g}: compute what it "
            "needs from its arguments"
        )


def output_arrays(
    d: AnalyticDerivative, random: np.random.Generator, tolerance: float
) -> Iterator[str]:
    """Check that a derivative overwrites its output arrays, or adds to them, as declared."""
    likes, adds = d.call.likes, d.call.adds
    if likes is None:
        return
    last: tuple[Any, ...] = ()
    if d.form != "jac":
        v = direction(d, random) / 8
        v[::2] = 0  # a derivative that skips zeros may not write there
        last = (d.shaped(v),)
    arguments = (*d.subject.arguments(), *last)
    held = [_numbers_like(like, random) for like in likes]
    one, two = [a.copy() for a in held], [np.zeros_like(like) for like in likes]
    d.calls += 2
    named = private(d.subject.kwargs)
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
) -> tuple[bool, str | None]:
    """
    Check that <w, Jv> = <J'w, v> for random v and w and two forms of J, up to a share of the terms.

    Return whether that holds, and a message if rounding of x does not explain the difference.
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
        return True, None
    allowed += perturbation_error(pushes, lambda d, turn: turn(w) @ d.times(turn(v)), random)
    allowed += perturbation_error(
        pulls, lambda d, turn: d.transposed_times(turn(w)) @ turn(v), random
    )
    if abs(left - right) <= allowed:
        return False, None
    return False, (
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
    return drawn(size, random, d.subject.eps) * scales(size, random)


def scales(size: int, random: np.random.Generator) -> NDArray:
    """Return powers of two that span three decades, 1 among them, in random order."""
    (shuffled,) = random.spawn(1)
    return np.asarray(shuffled.permutation(0.5 ** np.linspace(0, 10, size).astype(int)))


def drawn(size: int, random: np.random.Generator, eps: float) -> NDArray:
    """Draw numbers of magnitude 1 to 8 that use almost all digits of a format of spacing eps."""
    signed = random.integers(-55, 55, size)
    (last,) = random.spawn(1)
    steps = 2 ** (round(-np.log2(eps)) - 5)  # from 1 to 2; few such numbers have an exact sum
    sizes = np.where(signed < 0, 8 - signed, signed + 9) / 8
    sizes += last.integers(0, steps // 8, size) / steps
    return np.asarray(np.copysign(sizes, signed))


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
    if equal_arrays(one, other, equal_nan=True):
        return 0.0
    with np.errstate(invalid="ignore"):
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        difference = np.where(same, 0.0, np.abs(one - other))
    return max_abs(np.where(np.isnan(difference), np.inf, difference))
