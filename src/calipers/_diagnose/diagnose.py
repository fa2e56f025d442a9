"""Rounding error or bug: diagnose and compare_to_reference."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .._compare.text import differing
from .._core.arguments import as_integer, require_callable
from .._core.containers import as_tuple
from .._core.dtypes import ROUNDOFF, SMALLEST
from .._core.protocols import NDArray
from .._core.report import brief
from .._core.types import ArrayLike, DTypeLike, Effort, PyTree, ReferenceSource
from .arrays import (
    NestedInputs,
    Result,
    as_inputs,
    infer_precision,
    infer_result_precision,
    is_perturbable,
    longest_axis,
)
from .callables import Budget, BudgetError, Implementation
from .comparison import References, Source
from .evidence import Evidence
from .isolate import run_in_process
from .noise_level import ErrorNorms, error_norms, finite_rms
from .report import Diagnosis, build_diagnosis
from .rules import decide, with_integers_as_numbers
from .verdict import Verdict, Worst

__all__ = ["Diagnosis", "Worst", "compare_to_reference", "diagnose"]

# Largest number of calls of f and g together.
_CALLS_BY_EFFORT = {"quick": 24, "full": 256}


def diagnose(
    f: Callable[..., Any],
    g: Callable[..., Any],
    inputs: PyTree,
    *,
    dtype: DTypeLike | None = None,
    reference: ReferenceSource | Callable[..., Any] | None = "auto",
    reduction: int | None = None,
    batch: tuple[int, ...] = (0,),
    budget: Effort | int = "full",
    isolate: bool = False,
    seed: int = 0,
) -> Diagnosis:
    """
    Classify the difference between two implementations: rounding error, bug, or other.

    Both are called at the inputs, in the next higher precision, and at inputs perturbed by about
    one ulp. Errors are measured relative to the change that such a perturbation causes in each
    result, so that no tolerance is needed. The cheapest checks are made first.

    Parameters
    ----------
    f, g : callable
        Functions of the inputs, for arrays of NumPy, Numba, torch or jax. They return an array, or
        several in a tuple, list or dict. A mask counts as an additional result.
    inputs : array or number, or a tuple or list of them
        Arguments of f and g. Floating-point arrays are perturbed and converted to higher precision,
        also in lists, tuples and dicts; all else is passed through.
    dtype : dtype_like or str, optional
        Working precision, if it is lower than that of the arrays: "bfloat16" for numbers stored in
        float32, or for functions that cast to it inside. By default the highest precision of the
        inputs, or of the results if no input is floating-point.
    reference : {"auto", "both", "f", "g"}, callable or None, default "auto"
        Whose call in higher precision (float64, or longdouble for float64 inputs) errors are
        measured from. "auto" calls both, and measures from f, or from g if f rounds to a lower
        precision inside; g alone is no reference, unless it is asked for with "both" or "g". "f"
        and "g" call one of them, None calls neither; or a third function, of higher precision.
    reduction : int, optional
        Number of terms of the longest sum. By default the longest axis of the inputs.
    batch : tuple of int, default (0,)
        Positions of the inputs whose first axis is a batch, whose rows may be computed separately;
        () for none.
    budget : {"full", "quick"} or int, default "full"
        Largest number of calls of f and g together: "full" is 256, "quick" is 24.
    isolate : bool, default False
        If True, call f and g in a separate process, so that a crash, or a call that does not return
        within ten minutes, gives the verdict RAISES. The process is a fork, unless there are
        threads that a fork would lose, as those of torch and jax; then f, g and inputs must be
        picklable. Lambdas and functions of scripts and notebooks are allowed.
    seed : int, default 0
        Seed of the perturbations.

    Returns
    -------
    Diagnosis
        True for EQUAL, ROUNDING, LAYOUT and AMPLIFIED: rounding explains the difference. False for
        all others; ``.ok(["REDUCED"])`` accepts REDUCED, too. ``.kind`` is one of

        - EQUAL: the results are bitwise equal;
        - ROUNDING: rounding errors at these inputs explain both errors;
        - LAYOUT: as ROUNDING, and the results are bitwise equal in a different memory layout or
          batch;
        - AMPLIFIED: as ROUNDING, but the function is ill-conditioned (condition number of 100 or
          more) or discontinuous at the inputs;
        - RANGE: an intermediate result overflows, underflows, or leaves a function's domain by
          rounding, although the result is representable; or subnormal results are flushed to 0;
        - NONDETERMINISTIC: repeated calls differ, within rounding, or rounding is stochastic;
        - REDUCED: one function computes in a lower precision, ``.format``;
        - UNSTABLE: the functions are the same, but one algorithm loses digits;
        - SUSPECT: the functions differ, but only within rounding error at these inputs, only at
          ties, or by too little to be sure without higher precision;
        - BUG: the functions differ;
        - RAISES: a function raises an exception.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.

    See Also
    --------
    compare_to_reference : Compare two arrays with a third of higher precision.
    recommend_tolerance : A tolerance, where one is needed.

    Notes
    -----
    The expected error of a result r is ``sqrt(mean_k (r(x + dx_k) - r(x))**2 + (u*r)**2)``, for
    random perturbations dx_k of about u of each number, where u is the unit roundoff of the working
    precision and r is computed in higher precision. It is the CESTAC method [1]_ with perturbed
    inputs only. Rounding errors of sums of n terms grow as sqrt(n) with high probability [2]_;
    errors of up to ``4 + sqrt(n)`` times the expected one are ROUNDING.

    The verdict is about these inputs. Integer inputs are not perturbed, unless functions use them
    as numbers, for example as positions, and would differ otherwise.

    References
    ----------
    .. [1] J. Vignes, "A stochastic arithmetic for reliable scientific computation", Mathematics and
       Computers in Simulation 35 (1993) 233-261.
    .. [2] N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis", SIAM
       Journal on Scientific Computing 41 (2019) A2815-A2835.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    >>> def mean(x):
    ...     return x.mean(axis=1)
    >>> def backwards(x):
    ...     return x[:, ::-1].cumsum(axis=1)[:, -1] / x.dtype.type(64)
    >>> calipers.diagnose(mean, backwards, x).kind
    'ROUNDING'
    >>> calipers.diagnose(mean, lambda x: x.sum(axis=1) / x.dtype.type(63), x).kind
    'BUG'
    """
    started = time.perf_counter()
    require_callable(f=f, g=g)
    nest = NestedInputs(as_tuple(inputs))
    names = [f"input {title}" for title in nest.titles]
    arrays = as_inputs(nest.leaves, names)
    form = infer_precision(arrays, dtype, names)
    wide, function = _reference_source(reference)
    length = _length(reduction, arrays)
    allowance = Budget(_calls(budget))
    implementations = (
        Implementation("f", f, nest.leaves, allowance, adapt=nest.accepting_leaves, form=form),
        Implementation("g", g, nest.leaves, allowance, adapt=nest.accepting_leaves, form=form),
    )
    rows = _batch(batch, nest)
    function = function and nest.accepting_leaves(function)
    evidence = Evidence(
        *implementations, arrays, form, wide, function, length, rows, as_integer(seed, "seed")
    )
    evidence.titles, evidence.owners = nest.titles, nest.owners
    evidence.unpacked = isinstance(inputs, (tuple, list))
    evidence.options = _nondefault_options(
        dtype=dtype if dtype is None else form,
        reference=reference,
        reduction=reduction,
        batch=tuple(batch) if np.iterable(batch) else (batch,),
        budget=budget,
        isolate=isolate,
    )
    by_results = dtype is None and not any(map(is_perturbable, arrays))
    try:
        if not isolate:
            return _judged(evidence, started, by_results)
        outcome = run_in_process(partial(_sent, evidence, started, by_results), implementations)
    finally:
        allowance.end()
    if isinstance(outcome, Diagnosis):
        return replace(outcome, inputs=evidence.inputs)
    error = Result(error=RuntimeError(outcome.reason))
    evidence.result_f, evidence.result_g = error, error
    return build_diagnosis(
        Verdict("RAISES", outcome.reason), evidence, time.perf_counter() - started
    )


@np.errstate(all="ignore")
def _judged(evidence: Evidence, started: float, by_results: bool) -> Diagnosis:
    """Apply the rules; `by_results` takes the working precision from the results."""
    try:
        if by_results:
            evidence.form = infer_result_precision(evidence.result_f, evidence.result_g)
        verdict, evidence = with_integers_as_numbers(evidence, decide(evidence))
    except BudgetError:
        spent = evidence.f.budget.limit
        evidence.evidence["budget"] = spent
        verdict = Verdict("SUSPECT", f"undecided after {spent} calls; pass a larger budget")
    return build_diagnosis(verdict, evidence, time.perf_counter() - started)


def _sent(evidence: Evidence, started: float, by_results: bool) -> Diagnosis:
    """Diagnose in a child process, without inputs in the result: not all can be pickled."""
    return replace(_judged(evidence, started, by_results), inputs=())


def _nondefault_options(**options: Any) -> dict[str, str]:
    """Return the options of diagnose that are not defaults, as code."""
    defaults = diagnose.__kwdefaults__ or {}
    named = {name: x for name, x in options.items() if x != defaults[name]}
    return {name: _code(x) for name, x in named.items()}


def _code(x: Any) -> str:
    name: str = getattr(x, "__name__", "")
    return repr(x) if not callable(x) else name if name.isidentifier() else "reference"


def _reference_source(reference: Any) -> tuple[str | None, Callable[..., Any] | None]:
    if callable(reference):
        return None, reference
    sources = ("auto", "both", "f", "g")
    if reference is not None and not (isinstance(reference, str) and reference in sources):
        msg = 'reference must be "auto", "both", "f", "g", None or a function, got '
        raise ValueError(f"{msg}{reference!r:.60}")
    return reference, None


def _length(reduction: Any, arrays: tuple[Any, ...]) -> int:
    if reduction is None:
        return longest_axis(arrays)
    length = as_integer(reduction, "reduction")
    if length < 1:
        msg = f"reduction must be at least 1, got {reduction}"
        raise ValueError(msg)
    return length


def _calls(budget: Any) -> int:
    if isinstance(budget, str) and budget in _CALLS_BY_EFFORT:
        return _CALLS_BY_EFFORT[budget]
    if not isinstance(budget, (int, np.integer)) or isinstance(budget, bool) or budget < 2:
        msg = (
            f'budget must be "quick", "full" or a number of calls of at least 2, got {budget!r:.60}'
        )
        raise ValueError(msg)
    return int(budget)


def _batch(batch: Any, nest: NestedInputs) -> tuple[int, ...]:
    """Return the positions of the leaves that have a batch axis."""
    positions = batch if np.iterable(batch) else (batch,)
    count = len(set(nest.owners))
    # (0,) is the default, also without inputs.
    for k in positions if count or tuple(positions) != (0,) else ():
        if not isinstance(k, (int, np.integer)):
            msg = f"batch must contain positions of inputs, integers from 0, got {batch!r:.60}"
            raise TypeError(msg)
        if not 0 <= k < count:
            valid = f"they are 0 to {count - 1}" if count > 1 else "the only one is 0"
            hint = valid if count else "there are none: pass batch=()"
            msg = f"batch names input {k}: {hint}"
            raise ValueError(msg)
    return tuple(nest.leaf_indices(positions))


@np.errstate(all="ignore")
def compare_to_reference(actual: ArrayLike, expected: ArrayLike, reference: ArrayLike) -> Diagnosis:
    """
    Classify the errors of two arrays relative to a reference of higher precision.

    Without the functions it is unknown how much they amplify rounding of the inputs. An amplified
    rounding error, a lower precision and a bug look alike, and are SUSPECT.

    Parameters
    ----------
    actual, expected : array_like
        Two results of one computation, of equal shape.
    reference : array_like
        The same result in higher precision, of the same shape.

    Returns
    -------
    Diagnosis
        The ``.kind`` is EQUAL, ROUNDING (both errors are a few unit roundoffs of the reference),
        RANGE (not finite where the reference is) or SUSPECT. ``.reason`` says which array is closer
        to the reference.

    Raises
    ------
    TypeError
        If an array is masked, or does not hold numbers.
    ValueError
        If the shapes differ, some arrays are complex and others real, or the precision of the
        reference is not higher.

    See Also
    --------
    diagnose : Calls the functions, and knows more.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> exact = np.linspace(1, 2, 5) / 3
    >>> rounded = exact.astype(np.float32)
    >>> calipers.compare_to_reference(rounded, np.nextafter(rounded, 0), exact).kind
    'ROUNDING'
    """
    started = time.perf_counter()
    arguments = {"actual": actual, "expected": expected, "reference": reference}
    for name, x in arguments.items():
        if isinstance(x, np.ma.MaskedArray):
            msg = f"{name} is a masked array: pass {name}.filled(...)"
            raise TypeError(msg)
    copies = as_inputs(tuple(arguments.values()), tuple(arguments))
    arrays = {name: _as_array(x, name) for name, x in zip(arguments, copies, strict=True)}
    for name, x in arrays.items():
        if x.dtype.kind not in "biufc" and x.dtype.isbuiltin != 2:
            kind = "None" if arguments[name] is None else f"dtype {x.dtype}"
            msg = f"{name} must be an array of numbers, got {kind}"
            raise TypeError(msg)
    actual, expected, reference = arrays.values()
    if len({x.dtype.kind == "c" for x in arrays.values()}) > 1:
        dtypes = ", ".join(str(x.dtype) for x in arrays.values())
        msg = f"actual, expected and reference must be all real or all complex, got {dtypes}"
        raise ValueError(msg)
    if not actual.shape == expected.shape == reference.shape:
        shapes = f"{actual.shape}, {expected.shape} and {reference.shape}"
        msg = f"actual, expected and reference must be of one shape, got {shapes}"
        raise ValueError(msg)
    form = infer_precision((actual, expected), None, ("actual", "expected"))
    allowance = Budget(2)
    first = Implementation("f", lambda: actual, (), allowance)
    second = Implementation("g", lambda: expected, (), allowance)
    if reference.dtype.kind in "fc" and np.finfo(reference.dtype).eps >= 2 * ROUNDOFF[form]:
        msg = f"reference must have higher precision than {form}, got {reference.dtype}"
        raise ValueError(msg)
    results = [first(()), second(())]
    r = Result((reference,))
    numbers = r.numbers(np.float64)
    unit = ROUNDOFF[form] * np.hypot(numbers, finite_rms(numbers))
    unit = np.maximum(unit, SMALLEST.get(form, 0.0) / 2)  # half the spacing of subnormal numbers
    unit[~np.isfinite(unit)] = np.inf
    e = Evidence(first, second, (actual, expected, reference), form)
    vars(e).update(result_f=results[0], result_g=results[1])
    vars(e)["references"] = References(Source("reference", first, r, unit, math.nan), {})
    sizes = [error_norms(e.deviation(result), unit) for result in results]
    diagnosis = build_diagnosis(_by_arrays(e, sizes, results), e, time.perf_counter() - started)
    return replace(diagnosis, calls={}, names=("actual", "expected"))


def _as_array(x: Any, name: str) -> NDArray:
    try:
        return np.asarray(x)
    except ValueError:  # several arrays of different shapes
        msg = f"{name} must be one array, got a {type(x).__name__} of several: compare them one "
        raise ValueError(msg + "by one") from None


def _by_arrays(e: Evidence, sizes: list[ErrorNorms], results: list[Result]) -> Verdict:
    far = [size.robust for size in sizes]
    unit = f"the rounding error of {e.form}"
    largest = f"{brief(max(far))} times {unit} (norm; allowed {brief(e.allowed)})"
    nearer = "both are equally close to the reference"
    if max(far) > 2 * min(far):
        names = ("actual", "expected") if far[0] < far[1] else ("expected", "actual")
        nearer = f"{names[0]} equals the reference"
        if min(far):
            times = f"{brief(max(far) / min(far))} times"
            nearer = f"{names[0]} is {times} closer to the reference than {names[1]}"
    if results[0].bits() == results[1].bits():
        error = f"{brief(far[0])} times {unit}"
        off = "" if max(far) <= e.allowed else f", but off the reference by {error}"
        broken = sizes[0].broken
        if broken:
            off = f", but {broken} of {e.difference.size} are not finite, unlike the reference"
        return Verdict("EQUAL", f"all results are equal to the last bit{off}")
    if all(result.integers.all() for result in results):
        text = differing(int(np.count_nonzero(e.difference)), e.difference.size, "integer")
        return Verdict("SUSPECT", f"{text}, and integers are not rounded; {nearer}")
    if sizes[0].broken or sizes[1].broken:
        counts = {"actual": sizes[0].broken, "expected": sizes[1].broken}
        name = max(counts, key=counts.__getitem__)
        numbers = results[name == "expected"].numbers(np.float64)
        assert e.reference is not None
        reference_is_finite = np.isfinite(e.reference.numbers(np.float64))
        lost = int(np.count_nonzero(reference_is_finite & ~np.isfinite(numbers)))
        if not lost:
            text = f"{counts[name]} of {numbers.size} results of {name} differ from the reference, "
            return Verdict("SUSPECT", text + "which is not finite there")
        what = "1 result that is" if lost == 1 else f"{lost} results that are"
        return Verdict("RANGE", f"{name} has {what} not finite, unlike the reference")
    if max(far) <= e.allowed:
        return Verdict(
            "ROUNDING", f"rounding explains both errors: they are at most {largest}; {nearer}"
        )
    return Verdict(
        "SUSPECT",
        f"rounding of the results does not explain the errors, which are up to {largest}; "
        f"{nearer}; the arrays alone cannot show whether rounding of the inputs does",
    )
