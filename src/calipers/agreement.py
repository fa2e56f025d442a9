"""Why do two implementations differ, rounding or bug? diagnose, and what arrays alone tell."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ._agreement.answers import Answer
from ._agreement.as_numbers import with_integers_as_numbers
from ._agreement.diagnosis import Diagnosis, Worst, diagnosis_of
from ._agreement.inputs import as_inputs, is_movable, longest_axis
from ._agreement.inquiry import Inquiry
from ._agreement.isolation import in_a_process
from ._agreement.nest import Nest
from ._agreement.rules import decide
from ._agreement.sides import Budget, BudgetError, Side
from ._agreement.units import ROUNDOFF, SMALLEST, Size, rms_of, size_of
from ._agreement.verdicts import EQUAL, RAISES, RANGE, ROUNDING, SUSPECT, Verdict
from ._agreement.working_format import format_of, format_of_results
from ._arguments import as_integer, require_callable
from ._containers import several
from ._protocols import NDArray
from ._report import differing
from ._types import Effort, Widens

__all__ = ["Diagnosis", "Worst", "compare_to_reference", "diagnose"]

_CALLS = {"quick": 24, "full": 256}


def diagnose(
    f: Callable[..., Any],
    g: Callable[..., Any],
    inputs: Any,
    *,
    dtype: Any = None,
    float64: Widens | Callable[..., Any] | None = "auto",
    reduction: int | None = None,
    batch: tuple[int, ...] = (0,),
    budget: Effort | int = "full",
    isolate: bool = False,
    seed: int = 0,
) -> Diagnosis:
    """
    Tell why two implementations of one function differ: rounding, or what else.

    Both are called at the inputs, in the next wider format, and at inputs that are moved by last
    places; the cheapest question that decides is the last. Errors count in units of what a last
    place of the inputs does to each result, so that no tolerance has to be chosen.

    Parameters
    ----------
    f, g : callable
        Functions of the inputs: of NumPy, Numba, torch or jax. They return an array, or several:
        those in a dict are told apart by their keys, and a mask counts as one more.
    inputs : array or number, or a tuple or list of them
        Where they are compared. Floating-point arrays are moved and widened, those in lists, tuples
        and dicts among the inputs, too; all else is handed on.
    dtype : dtype_like, optional
        The working format, if the arrays hold its numbers in a wider one: "bfloat16" in float32. By
        default the widest of the input arrays, or of the results where no input has one.
    float64 : {"auto", "f", "g"}, callable or None
        Which side computes in float64 when it is given that (float64 inputs: in longdouble): both,
        one, or neither; or another function that does.
    reduction : int, optional
        How many terms the longest sum has; by default the longest axis of the inputs.
    batch : tuple of int, default (0,)
        The inputs whose first axis is a batch, of which rows can be computed alone; () for none.
    budget : {"full", "quick"} or int
        How many calls of both sides are allowed: 256, 24, or so many.
    isolate : bool, default False
        Call f and g in another process, so that a crash, or a call that does not return within ten
        minutes, is a result: RAISES. The process is a fork, or a fresh one where threads run that a
        fork would lose, as those of torch and jax; f, g and inputs must then be picklable, and may
        be lambdas and functions of a script or notebook.
    seed : int, default 0
        Of the moves.

    Returns
    -------
    Diagnosis
        Its ``.kind`` is one of

        - EQUAL: the same to the last bit;
        - ROUNDING: both are as near to the truth as last places of the inputs allow;
        - LAYOUT: as ROUNDING, and in another memory layout or batch they are equal;
        - AMPLIFIED: as ROUNDING, but the function magnifies last places a hundred times or more, or
          jumps;
        - RANGE: something in between overflows or underflows, or is rounded out of a function's
          domain, although the result fits; or subnormal results are flushed to 0;
        - NONDETERMINISTIC: a side does not repeat itself, within rounding, or rounds its inputs or
          results at random;
        - REDUCED: a side computes in a narrower format, ``.format``;
        - UNSTABLE: one function, but an algorithm that loses digits;
        - SUSPECT: another function, but within rounding here, at ties alone, or by too little to
          be sure where nothing wider can be asked;
        - BUG: another function;
        - RAISES: a side raises.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what it should be.

    See Also
    --------
    compare_to_reference : What arrays alone can tell.
    recommend_tolerance : A tolerance, where one has to be chosen.

    Notes
    -----
    The unit is ``sqrt(mean_k (r(x + dx_k) - r(x))**2 + (u*r)**2)`` for random changes dx_k of about
    u of each number, u being the format's unit roundoff and r the result in the wider format
    (after Vignes, Math. Comput. Simul. 35 (1993), on inputs alone). Errors of sums of n terms grow
    as sqrt(n) with high probability (Higham and Mary, SIAM J. Sci. Comput. 41 (2019)); allowed are
    ``4 + sqrt(n)`` units. It judges the inputs that it is given.

    Integers have no last places; but where functions take them as numbers, as positions, those of
    the working format count before two functions are told from each other.

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
    nest = Nest(several(inputs))
    names = [f"input {title}" for title in nest.titles]
    arrays = as_inputs(nest.leaves, names)
    form = format_of(arrays, dtype, names)
    wide, reference = _widening(float64)
    length = _length(reduction, arrays)
    allowance = Budget(_calls(budget))
    sides = (
        Side("f", nest.called(f), nest.leaves, allowance),
        Side("g", nest.called(g), nest.leaves, allowance),
    )
    rows = _batch(batch, nest)
    reference = reference and nest.called(reference)
    inquiry = Inquiry(*sides, arrays, form, wide, reference, length, rows, as_integer(seed, "seed"))
    inquiry.titles, inquiry.owners = nest.titles, nest.owners
    inquiry.options = _given(
        dtype=dtype if dtype is None else form,
        float64=float64,
        reduction=reduction,
        batch=tuple(batch) if np.iterable(batch) else (batch,),
        budget=budget,
        isolate=isolate,
    )
    by_results = dtype is None and not any(map(is_movable, arrays))
    try:
        if not isolate:
            return _judged(inquiry, started, by_results)
        found = in_a_process(partial(_sent, inquiry, started, by_results), sides)
    finally:
        allowance.end()
    if isinstance(found, Diagnosis):
        return replace(found, inputs=inquiry.inputs)
    error = Answer(error=RuntimeError(found.reason))
    inquiry.of_f, inquiry.of_g = error, error
    return diagnosis_of(Verdict(RAISES, found.reason), inquiry, time.perf_counter() - started)


@np.errstate(all="ignore")
def _judged(inquiry: Inquiry, started: float, by_results: bool) -> Diagnosis:
    """Reach a verdict; where no input has a format, the working one is that of the results."""
    try:
        if by_results:
            inquiry.form = format_of_results(inquiry.of_f, inquiry.of_g)
        verdict, inquiry = with_integers_as_numbers(inquiry, decide(inquiry))
    except BudgetError:
        spent = inquiry.f.budget.most
        verdict = Verdict(SUSPECT, f"undecided after {spent} calls: a larger budget= may tell")
    return diagnosis_of(verdict, inquiry, time.perf_counter() - started)


def _sent(inquiry: Inquiry, started: float, by_results: bool) -> Diagnosis:
    """Judge for another process, which has the inputs: not all of them may be sent back to it."""
    return replace(_judged(inquiry, started, by_results), inputs=())


def _given(**options: Any) -> dict[str, str]:
    """Return, as code, what of diagnose's options is not its default."""
    defaults = diagnose.__kwdefaults__ or {}
    named = {name: x for name, x in options.items() if x != defaults[name]}
    return {name: _code(x) for name, x in named.items()}


def _code(x: Any) -> str:
    name: str = getattr(x, "__name__", "")
    return repr(x) if not callable(x) else name if name.isidentifier() else "reference"


def _widening(float64: Any) -> tuple[str | None, Callable[..., Any] | None]:
    if callable(float64):
        return None, float64
    ways = {"auto": "fg", "f": "f", "g": "g", None: None}
    if not isinstance(float64, (str, type(None))) or float64 not in ways:
        msg = f'float64 must be "auto", "f", "g", None or a function, got {float64!r:.60}'
        raise ValueError(msg)
    return ways[float64], None


def _length(reduction: Any, arrays: tuple[Any, ...]) -> int:
    if reduction is None:
        return longest_axis(arrays)
    length = as_integer(reduction, "reduction")
    if length < 1:
        msg = f"reduction must be at least 1, got {reduction}"
        raise ValueError(msg)
    return length


def _calls(budget: Any) -> int:
    if isinstance(budget, str) and budget in _CALLS:
        return _CALLS[budget]
    if not isinstance(budget, (int, np.integer)) or isinstance(budget, bool) or budget < 2:
        msg = f'budget must be "quick", "full" or a number of calls from 2 on, got {budget!r:.60}'
        raise ValueError(msg)
    return int(budget)


def _batch(batch: Any, nest: Nest) -> tuple[int, ...]:
    """Return which leaves have a batch: inputs that are arrays themselves."""
    places = batch if np.iterable(batch) else (batch,)
    count = len(set(nest.owners))
    for k in places if count or tuple(places) != (0,) else ():  # without inputs, 0 is a default
        if not isinstance(k, (int, np.integer)):
            msg = f"batch must hold places of inputs, integers from 0, got {batch!r:.60}"
            raise TypeError(msg)
        if not 0 <= k < count:
            known = f"they are 0 to {count - 1}" if count > 1 else "the only one is 0"
            told = known if count else "there are none: give batch=()"
            msg = f"batch names input {k}: {told}"
            raise ValueError(msg)
    return tuple(nest.places(places))


@np.errstate(all="ignore")
def compare_to_reference(actual: Any, expected: Any, reference: Any) -> Diagnosis:
    """
    Tell what arrays alone can tell: how far two results are from one that is more exact.

    Without the functions it stays unknown what the inputs' last places do, so that an amplified
    rounding error, a narrower format and a bug look alike: they are SUSPECT here.

    Parameters
    ----------
    actual, expected : array_like
        Two results of one computation, of a shape.
    reference : array_like
        The same in a wider format.

    Returns
    -------
    Diagnosis
        EQUAL, ROUNDING (each within a few roundings of the reference's size), RANGE (not finite
        where the reference is) or SUSPECT; its reason says which of the two is nearer.

    Raises
    ------
    ValueError
        If the shapes differ, or the reference is of no wider format.

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
    given = {"actual": actual, "expected": expected, "reference": reference}
    for name, x in given.items():
        if isinstance(x, np.ma.MaskedArray):
            msg = f"{name} is a masked array: pass {name}.filled(...)"
            raise TypeError(msg)
    own = as_inputs(tuple(given.values()), tuple(given))
    arrays = {name: _as_array(x, name) for name, x in zip(given, own, strict=True)}
    for name, x in arrays.items():
        if x.dtype.kind not in "biufc" and x.dtype.isbuiltin != 2:
            kind = "None" if given[name] is None else f"dtype {x.dtype}"
            msg = f"{name} must be an array of numbers, got {kind}"
            raise TypeError(msg)
    actual, expected, reference = arrays.values()
    if len({x.dtype.kind == "c" for x in arrays.values()}) > 1:
        told = ", ".join(str(x.dtype) for x in arrays.values())
        msg = f"actual, expected and reference must be all real or all complex, got {told}"
        raise ValueError(msg)
    if not actual.shape == expected.shape == reference.shape:
        shapes = f"{actual.shape}, {expected.shape} and {reference.shape}"
        msg = f"actual, expected and reference must be of one shape, got {shapes}"
        raise ValueError(msg)
    form = format_of((actual, expected), None, ("actual", "expected"))
    allowance = Budget(2)
    first = Side("f", lambda: actual, (), allowance)
    second = Side("g", lambda: expected, (), allowance)
    if reference.dtype.kind in "fc" and np.finfo(reference.dtype).eps >= 2 * ROUNDOFF[form]:
        msg = f"reference must be of a wider format than {form}, got {reference.dtype}"
        raise ValueError(msg)
    answers = [first(()), second(())]
    r = Answer((reference,))
    numbers = r.numbers(np.float64)
    unit = ROUNDOFF[form] * np.hypot(numbers, rms_of(numbers))
    unit = np.maximum(unit, SMALLEST.get(form, 0.0) / 2)  # of subnormal numbers
    unit[~np.isfinite(unit)] = np.inf
    q = Inquiry(first, second, (actual, expected, reference), form)
    q.given(answers[0], answers[1], r, unit)
    sizes = [size_of(q.off(answer), unit) for answer in answers]
    found = diagnosis_of(_by_arrays(q, sizes, answers), q, time.perf_counter() - started)
    return replace(found, calls={}, names=("actual", "expected"))


def _as_array(x: Any, name: str) -> NDArray:
    try:
        return np.asarray(x)
    except ValueError:  # several arrays of other shapes
        msg = f"{name} must be an array of numbers, got a {type(x).__name__} of several: compare "
        raise ValueError(msg + "them one by one") from None


def _by_arrays(q: Inquiry, sizes: list[Size], answers: list[Answer]) -> Verdict:
    far = [size.least for size in sizes]
    nearer = "both are as near to the reference"
    if max(far) > 2 * min(far):
        names = ("actual", "expected") if far[0] < far[1] else ("expected", "actual")
        nearer = f"{names[0]} equals the reference"
        if min(far):
            times = f"{max(far) / min(far):.3g} times"
            nearer = f"{names[0]} is {times} nearer to the reference than {names[1]}"
    if answers[0].bits() == answers[1].bits():
        off = "" if max(far) <= q.allowed else f", but {far[0]:.3g} roundings off the reference"
        if sizes[0].broken:
            off = f", but {sizes[0].broken} of {q.apart.size} not finite, unlike the reference"
        return Verdict(EQUAL, f"all results are equal to the last bit{off}")
    if all(answer.integers.all() for answer in answers):
        told = differing(int(np.count_nonzero(q.apart)), q.apart.size, "integer")
        return Verdict(SUSPECT, f"{told}, which nothing rounds; {nearer}")
    if sizes[0].broken or sizes[1].broken:
        counts = {"actual": sizes[0].broken, "expected": sizes[1].broken}
        name = max(counts, key=counts.__getitem__)
        numbers = answers[name == "expected"].numbers(np.float64)
        assert q.standard is not None
        known = np.isfinite(q.standard[1].numbers(np.float64))
        lost = int(np.count_nonzero(known & ~np.isfinite(numbers)))
        if not lost:
            told = f"{counts[name]} of {numbers.size} results of {name} are not the reference's, "
            return Verdict(SUSPECT, told + "which is not finite there")
        what = "1 result that is" if lost == 1 else f"{lost} results that are"
        return Verdict(RANGE, f"{name} has {what} not finite, unlike the reference")
    if max(far) <= q.allowed:
        return Verdict(ROUNDING, f"errors are {max(far):.2g} roundings at most; {nearer}")
    return Verdict(
        SUSPECT,
        f"errors are up to {max(far):.3g} roundings; {nearer}; arrays alone do not tell whether "
        f"the inputs' last places do that: give the functions to diagnose",
    )
