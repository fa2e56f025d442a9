"""Differences that rounding explains, and what may hide in them."""

import math
from contextlib import suppress

import numpy as np

from ..._core.dtypes import ROUNDOFF
from ..._core.protocols import NDArray
from ..callables import BudgetError, Result, comparable
from ..evidence import Evidence
from ..inputs import layouts, slices, to_higher_precision
from ..noise_level import condition_number, difference, error_norms, finite_rms
from ..verdict import (
    AMPLIFIED,
    BUG,
    COARSEST,
    CONSTANT_AMPLIFICATION,
    ILL_CONDITIONED,
    INSENSITIVE,
    LARGE_DIFFERENCE,
    LAYOUT,
    REDRAW,
    ROUNDING,
    STEADY,
    SUSPECT,
    SYSTEMATIC,
    Verdict,
    as_multiple,
)
from .grids import few_digits_left, no_rounding
from .no_reference import grows_in_float32, stays_in_steps
from .nondeterminism import does_not_repeat

_GROWTH_LIMIT = 2.0**5  # times that a difference grows by, if moves make it
_N_FAR_PERTURBATIONS = 4  # perturbed inputs, of the coarsest format's precision
_DRAWN_ANEW = 0.5  # cosine similarity below which differences are unrelated
_CONSTANTS = 4.0  # units that a result may be off by because of rounded constants


def within_rounding(e: Evidence) -> Verdict | None:
    """Both sides as near to the truth as the inputs are: rounding, however it comes about."""
    if not _near(e):
        return None
    hidden = _hidden(e)
    if hidden is not None:
        return hidden
    without = e.reference is None
    kappa = condition_number(e.scale, e.result_f, e.roundoff) if without else e.noise_level.kappa
    size = _worst(e)
    if kappa > ILL_CONDITIONED:
        alone = _amplified_in_one(e)
        if alone is not None:
            return alone
        return no_rounding(e) or Verdict(
            AMPLIFIED,
            f"the function is ill-conditioned or discontinuous here (condition number "
            f"{kappa:.3g}); {_compared(e, size)}",
        )
    mixed, agree = _slices_and_layouts(e)
    if mixed is not None:
        return mixed
    said = _compared(e, size)
    if not e.difference.any():
        f, g = (", ".join(dict.fromkeys(y.dtypes)) for y in (e.result_f, e.result_g))
        bits = f"f returns {f} and g {g}" if f != g else "the signs of 0 or NaN differ"
        said = f"all numbers are equal, but {bits}; {said}"
        if size > e.allowed:
            said += ": both lose the same digits"
    elif without:
        said += "; without a reference in higher precision a smaller bug would not be seen"
    if agree is not None:
        return Verdict(LAYOUT, f"{said}; {agree}, f and g are equal to the last bit")
    return Verdict(ROUNDING, said)


def _compared(e: Evidence, size: float) -> str:
    text = as_multiple(size, e.allowed)
    if e.reference is None:
        return f"f and g differ by {text}"
    return f"the errors of f and g are at most {text}"


def _near(e: Evidence) -> bool:
    """Return True if rounding explains all differences: those from the reference, if there is one.

    Where no number differs there is nothing to explain, however far both sides are off: results of
    another dtype, or with another sign of 0, say.
    """
    if not e.difference.any():
        return True
    sizes = (e.eta_difference,) if e.reference is None else (e.eta_f, e.eta_g)
    if all(map(e.is_rounding, sizes)):
        return True
    # What is flushed hides another function as rounding does.
    return bool(e.flushed.any()) and e.differ_wide and e.is_rounding_except(e.flushed)


def _amplified_in_one(e: Evidence) -> Verdict | None:
    """Recognise different functions: one amplifies perturbations, the other is insensitive."""
    if len(e.wide_results) < 2:
        return None
    assert e.reference is not None
    source = e.reference[0].name
    other = next(name for name in e.wide_results if name != source)
    here = e.wide_results[other]
    with suppress(BudgetError):
        there = e.implementations[other](e.perturb(e.roundoff, e.seed, wide=True))
        if not comparable(there, here):
            return None
        change = np.abs(difference(there, here))
        # One call classifies nearly all implementations; a single tie may be unchanged by chance.
        if (
            condition_number(change, here, e.roundoff) < INSENSITIVE
            and e.noise_level_of(other).kappa < INSENSITIVE
        ):
            return Verdict(
                SUSPECT,
                f"{source} has condition number {e.noise_level.kappa:.3g} or is discontinuous "
                f"here, and {other} does not change with its inputs: they compute different "
                "functions",
            )
    return None


def _worst(e: Evidence) -> float:
    if e.reference is None:
        return e.eta_difference.robust
    return max(e.eta_f.robust, e.eta_g.robust)


def _hidden(e: Evidence) -> Verdict | None:
    """Another function, whose difference the working format's rounding covers."""
    wide = e.wide
    if wide is not None:
        if not wide.differ:
            return None
        far, nondeterministic = wide.norms, does_not_repeat(wide.nondeterministic)
        if nondeterministic is not None:
            return nondeterministic
        flushed = int(np.count_nonzero(e.flushed))
        flush_note = f" except {flushed} subnormal results flushed to 0" if flushed else ""
        text = f"within rounding here{flush_note}, but in higher precision "
        if far.broken:
            text += (
                f"{far.broken} of {wide.difference.size} results are finite in only one of f and g"
            )
        else:
            text += (
                f"f and g differ by {as_multiple(far.robust)} of that precision (rounding alone "
            )
            text += f"explains {wide.working_norms.robust:.3g})"
        if wide.agree_unmoved:
            text += ", but only after a 1-ulp perturbation of the inputs: they agree for such "
            text += "inputs only (symmetric, of sum 1, ...), or a result is cached"
            return Verdict(SUSPECT, text)
        growth = wide.perturbation_growth
        if growth > _GROWTH_LIMIT:
            text += f", and by {growth:.0f} times as much after perturbations {REDRAW:.0f} times "
            text += "as large: they agree for inputs of sum 1, orthogonal inputs, or the like; if "
            return Verdict(SUSPECT, f"{text}all inputs are such, normalise them in f and g")
        off = far.robust * wide.fine
        form = "float64" if off <= REDRAW * ROUNDOFF["float64"] else e.form
        constants = ""
        if off <= _CONSTANTS * e.roundoff:
            constants = f", or use constants of {form}"
        elif e.form == "float64" and off <= e.allowed * e.roundoff:
            constants = ", or use constants of float64, whose rounding errors add up"
        return Verdict(SUSPECT, f"{text}: they compute different functions{constants}")
    tested = ~_zeros_by_constants(e)

    def difference_at(delta: float, seed: int) -> NDArray | None:
        there = e.perturbed_difference(delta, seed)
        return None if there is None else np.where(tested, there, 0.0)

    distance = np.where(tested, e.difference, 0.0)
    similarity = e.mean_similarity(distance, difference_at) if e.can_perturb else None
    size_of_rest = e.norms(distance, e.scale)
    size = size_of_rest.rms
    if similarity is not None and size * math.sqrt(similarity) > SYSTEMATIC:
        if _lost_of_small_ones(e, similarity) or _lost_by_the_reference(e):
            return None
        lost = few_digits_left(e) or grows_in_float32(e) or stays_in_steps(e)
        if lost is not None:
            return lost
        stays = f"the difference is nearly the same (cosine {similarity:.2g}) after perturbations "
        stays += "of the inputs by a few ulps"
        # Larger results hide the error of small ones.
        if size * e.roundoff > LARGE_DIFFERENCE and similarity > STEADY:
            least = size_of_rest.robust
            below = ": below the limit, but " if least <= e.allowed else ", and "
            text = f"f and g differ by {as_multiple(least, e.allowed)}{below}"
            return Verdict(BUG, f"{text}{stays}, as rounding would not be")
        stays += ": f and g compute different functions, or use differently rounded constants"
        return Verdict(SUSPECT, f"within rounding here, but {stays}")
    return None


def _zeros_by_constants(e: Evidence) -> NDArray:
    """
    Tell which results are 0 on one side, and on the other what rounded constants make of a 0.

    The sine of a whole turn is not 0 if it is computed: a weight that is a function of an angle t
    is off by u*t, however small it is itself, and results by as much of the inputs. The bound that
    holds for transforms, too, takes weights as off by an absolute amount, and is one of the norm of
    the results (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., theorem 24.2).
    """
    f, g = (y.numbers(np.float64) for y in (e.result_f, e.result_g))
    r = e.reference[1].numbers(np.float64) if e.reference is not None else f
    # If the reference is 0 too, constants of the other function are rounded in its format, such as
    # 2 pi; else those of the reference. Formats below float32 compute in float32.
    rounding = math.tau * min(e.roundoff, ROUNDOFF["float32"])
    constants = min(rounding, CONSTANT_AMPLIFICATION * ROUNDOFF["float64"])
    typical = e.result_f.repeat_each(np.array([finite_rms(part) for part in e.result_f.split(r)]))
    allowance = (
        e.allowed * np.minimum(e.typical_size, typical) * np.where(r == 0, rounding, constants)
    )
    zeros: NDArray = (
        ((f == 0) | (g == 0)) & (np.abs(e.difference) <= allowance) & ~e.result_f.integers
    )
    return zeros


def _lost_of_small_ones(e: Evidence, alike: float) -> bool:
    """
    Return True if small results lose digits, which larger ones hide in norms.

    Small perturbations do not redraw such errors: 1 - tanh(x) is constant over a large part of x.
    """
    if e.eta_difference.normwise * math.sqrt(alike) > SYSTEMATIC:
        return False
    cosines = [
        e.similarity(2.0**-COARSEST, e.seed + 860 + k) or 0.0 for k in range(_N_FAR_PERTURBATIONS)
    ]
    alike_far = e.evidence["likeness_far"] = float(np.mean(cosines))
    return alike_far < _DRAWN_ANEW


def _lost_by_the_reference(e: Evidence) -> bool:
    """
    Return True if the reference implementation itself is inaccurate in the working precision.

    The errors of the other one, from the higher-precision reference, are redrawn by perturbations.
    """
    if e.reference is None or e.reference[0].name not in e.implementations:
        return False
    implementation = e.reference[0]
    name = "g" if implementation is e.f else "f"

    def off_at(delta: float, seed: int) -> NDArray | None:
        x = e.perturb(delta, seed, wide=False)
        y, r = e.implementations[name](x), implementation(to_higher_precision(x))
        return difference(y, r) if comparable(y, r, e.result_f) else None

    size = e.errors[name].rms
    if size <= SYSTEMATIC:
        return True
    similarity = e.mean_similarity(e.deviation(e.results[name]), off_at)
    return similarity is None or size * math.sqrt(similarity) <= SYSTEMATIC


def _slices_and_layouts(e: Evidence) -> tuple[Verdict | None, str | None]:
    """Look for a side whose rows mix, and for a layout in which the sides agree."""
    agree = None
    for name, part, inputs in slices(e.inputs, e.batch):
        f, g = e.f(inputs), e.g(inputs)
        if f.error is not None or g.error is not None:
            continue
        of_f, of_g = _rows(e.result_f, f, part), _rows(e.result_g, g, part)
        if of_f is None or of_g is None:  # results without rows: of less there is less to add up
            continue
        mixes = [_mixes(e, of_f, f, part), _mixes(e, of_g, g, part)]
        if mixes[0] != mixes[1]:
            who = "f" if mixes[0] else "g"
            text = f"{who} returns other values for a row in {name} than in the whole batch: "
            if _mixes_here(e, who, part):
                return Verdict(BUG, f"{text}its rows depend on each other"), None
            text = f"within rounding here, but {text}it is right only for a batch of this length"
            return Verdict(SUSPECT, text), None
        if all(mixes):  # what mixes is no batch: less of it is another question
            break
        # Rows may be equal among all.
        alike = f.bits() == g.bits()
        if agree is None and alike and not _by_chance(difference(of_f, of_g), f):
            agree = f"in {name}"
    # Which layout it is only gives rounding another name.
    with suppress(BudgetError):
        for name, inputs in layouts(e.inputs) if agree is None else ():
            f, g = e.f(inputs), e.g(inputs)
            same = f.error is None and g.error is None and f.bits() == g.bits()
            if same and not _by_chance(e.difference, f):
                return None, name
    return None, agree


def _by_chance(unequal: NDArray, part: Result) -> bool:
    """Return True if so few results may be equal by chance, given the fraction that differs."""
    differing = np.count_nonzero(unequal) / max(1, unequal.size)
    count = sum(x.size for x in part.arrays)
    return bool((1 - differing) ** count > 0.01)


def _rows(whole: Result, alone: Result, part: slice) -> Result | None:
    """Return rows of what all gave; None if they are not comparable to what these gave alone."""
    pairs = list(zip(whole.arrays, alone.arrays, strict=False))
    if not all(a.ndim and a[part].shape == b.shape for a, b in pairs):
        return None
    return Result(tuple(a[part] for a, _ in pairs))


def _mixes_here(e: Evidence, who: str, part: slice) -> bool:
    """Return True if rows change when all other rows are replaced by the first one."""
    inputs = list(e.inputs)
    for k in e.batch:
        alike = np.repeat(e.inputs[k][part][:1], len(e.inputs[k]), axis=0)
        alike[part] = e.inputs[k][part]
        inputs[k] = alike
    result, whole = e.implementations[who](inputs), e.results[who]
    if not comparable(result, whole):
        return True
    among, there = (Result(tuple(x[part] for x in y.arrays)) for y in (whole, result))
    return _mixes(e, among, there, part)


def _mixes(e: Evidence, among: Result, alone: Result, part: slice) -> bool:
    """Return True if a part of a batch has different results when computed alone."""
    pairs = zip(among.arrays, alone.arrays, strict=False)
    scale = e.scale
    if e.reference is not None:  # a result that has lost its digits may have lost others alone
        scale = np.maximum.reduce(
            [scale, *(np.abs(e.deviation(y)) for y in (e.result_f, e.result_g))]
        )
    for whole, (a, b), units in zip(
        e.result_f.arrays, pairs, e.result_f.split(scale), strict=False
    ):
        if not whole.size:
            continue
        unit = units.reshape(whole.shape[0], -1)[part].reshape(-1)
        d = difference(Result((a,)), Result((b,)))
        size = error_norms(d, np.ascontiguousarray(unit))
        if size.broken or size.robust > 2 * e.allowed:
            return True
    return False
