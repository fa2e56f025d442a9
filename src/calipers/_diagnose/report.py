"""The result of diagnose and compare_to_reference."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._compare.compare import compare
from .._compare.patterns import region
from .._compare.tolerances import Tolerance, recommend_tolerance
from .._core.dtypes import ROUNDOFF
from .._core.environment import fingerprint
from .._core.protocols import NDArray
from .._core.report import Report, name_in_code
from .arrays import comparable
from .callables import BudgetError, Implementation
from .evidence import Evidence
from .noise_level import ErrorNorms, finite_rms
from .parameters import is_module
from .text import again, details, headline, inputs_text, text_of
from .verdict import ALLOWED, KINDS, DiagnosisData, Verdict, Worst

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _measured(e: Evidence) -> dict[str, Any]:
    """Return the errors, as far as the remaining calls allow."""
    try:
        evidence: dict[str, Any] = {"apart": _numbers(e.error_difference)}
        evidence["apart"]["absolute_largest"] = float(np.abs(e.difference).max(initial=0))
        if e.compiled_parameters:
            evidence["compiled_parameters"] = e.compiled_parameters
        if e.reference is None:
            evidence["scale"] = finite_rms(e.result_f.numbers(np.float64))
            if e.source == "auto" and "references" in vars(e):
                evidence["higher_precision"] = [*e.wide_results]
            return evidence
        evidence |= {name: _numbers(size) for name, size in e.errors.items()}
        evidence["kappa"] = e.condition
        evidence["scale"] = finite_rms(e.reference.numbers(np.float64))
        evidence["measured_from"] = e.reference_name
        if e.reference_name in e.implementations:
            evidence["higher_precision"] = [*e.wide_results]
            evidence["rounds_inside"] = e.rounds_inside
        if e.wide is not None:
            evidence["wide"] = _numbers(e.wide.norms)
            if e.error_difference.absolute:
                evidence["drop"] = e.wide.norms.absolute / e.error_difference.absolute
        return evidence
    except BudgetError:
        return {}


def _numbers(size: ErrorNorms) -> dict[str, float | int]:
    """Return the norms of errors: infinite if an error is not finite."""
    names = ("rms", "largest", "peak", "normwise", "absolute")
    norms = {name: math.inf if size.broken else getattr(size, name) for name in names}
    return norms | {"broken": size.broken}


class Diagnosis(DiagnosisData, Report):
    """
    Why two implementations differ; true for EQUAL, ROUNDING, LAYOUT and AMPLIFIED.

    It is returned by `diagnose` and `compare_to_reference`. ``print(diagnosis)`` shows the report.

    Attributes
    ----------
    kind : str
        The verdict: EQUAL, ROUNDING, LAYOUT, AMPLIFIED, RANGE, NONDETERMINISTIC, REDUCED, UNSTABLE,
        SUSPECT, BUG or RAISES; see `diagnose`.
    reason : str
        One sentence, with numbers.
    format : str or None
        For REDUCED, the lower precision.
    arguments : tuple of int or None
        For REDUCED, the arguments that are rounded; None if an intermediate result is.
    evidence : dict
        Everything that was measured, as far as it was needed for the verdict: errors of f, g and
        their difference ("f", "g", "apart", "wide"), the condition number ("kappa") and others.
    dtype : str
        The working precision.
    allowed : float
        The largest error, in units of the expected rounding error, that rounding explains:
        ``4 + sqrt(length)``.
    length : int
        The number of terms of the longest sum.
    shapes : tuple of tuple of int
        The shapes of the results.
    worst : tuple of Worst
        The elements with the largest differences.
    where : str or None
        The rows, columns or regions in which differences exceed the tolerance; None if there are
        none.
    calls : dict of str to int
        The number of calls of each function; empty for `compare_to_reference`.
    seconds : float
        The elapsed time in seconds.
    environment : dict
        Versions, threads and settings that affect rounding.
    seed : int
        Seed of the perturbations.
    names : tuple of str
        Names of the functions or arrays.
    options : dict of str to str
        Arguments of `diagnose` that were not its defaults, as code.
    unpacked : bool
        True if the inputs are a tuple or list of arguments: ``f(*inputs)``.
    inputs : tuple
        The arguments of the functions; containers are flattened.
    answers : tuple
        The results of f and g, for `plot`; empty if one raised or the shapes differ.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> found = calipers.diagnose(np.exp, np.expm1, np.linspace(0, 1, 5))
    >>> found.kind, bool(found)
    ('BUG', False)
    """

    def __bool__(self) -> bool:
        """Return True if rounding explains the difference."""
        return self.ok()

    def __str__(self) -> str:
        """Return the text of the report."""
        return text_of(self)

    def _headline_and_rest(self) -> tuple[str, str]:
        return headline(self), details(self)

    @property
    def reproducer(self) -> str:
        """The call that repeats this diagnosis, as code, and a hash of the inputs."""
        return f"{again(self)}\n# inputs: {inputs_text(self)}"

    def ok(self, allow: Iterable[str] = ALLOWED) -> bool:
        """
        Return True if the verdict is EQUAL or one of the allowed kinds.

        Parameters
        ----------
        allow : iterable of str, default ("ROUNDING", "LAYOUT", "AMPLIFIED")
            The kinds to accept.

        Returns
        -------
        bool
            Whether the kind is accepted.

        Raises
        ------
        ValueError
            If a kind does not exist.

        Examples
        --------
        >>> import calipers
        >>> import numpy as np
        >>> found = calipers.diagnose(np.exp, np.exp, np.ones(3))
        >>> found.ok(allow=["ROUNDING"])
        True
        """
        kinds = [allow] if isinstance(allow, str) or not np.iterable(allow) else [*allow]
        unknown = [str(kind) for kind in kinds if not (isinstance(kind, str) and kind in KINDS)]
        if unknown:
            msg = f"allow must contain only {', '.join(KINDS)}, got {', '.join(sorted(unknown))}"
            raise ValueError(msg)
        return self.kind == "EQUAL" or self.kind in kinds

    def recommend_tolerance(self) -> Tolerance:
        """
        Return tolerances for comparisons of this pair of functions at inputs like these.

        They are those of `calipers.recommend_tolerance` for the precision and the length of sums,
        scaled by the size of the results and the condition number.

        Returns
        -------
        Tolerance
            The tolerances.

        Raises
        ------
        ValueError
            If the difference is not due to rounding: a tolerance would hide an error.

        Examples
        --------
        >>> import calipers
        >>> import numpy as np
        >>> found = calipers.diagnose(np.exp, np.exp, np.ones(3, np.float32))
        >>> found.recommend_tolerance().rtol < 1e-6
        True
        """
        if self.kind in ("BUG", "SUSPECT", "RANGE") or not self.shapes:
            msg = (
                f"the verdict is {self.kind}: a tolerance for it would accept wrong results as well"
            )
            raise ValueError(msg)
        scale = self.evidence.get("scale", 1.0) * max(1.0, self.evidence.get("kappa", 1.0))
        form = self.format if self.format in ROUNDOFF else self.dtype
        tolerance = recommend_tolerance(form, self.length)
        # The measured difference may exceed the rule of thumb. It is the only measure if results
        # are 0 or infinite.
        needed = 2 * self.evidence["apart"]["absolute_largest"] if "apart" in self.evidence else 0.0
        ruled = tolerance.atol * scale
        return Tolerance(tolerance.rtol, max(ruled, needed) if math.isfinite(ruled) else needed)

    def _contents(self) -> dict[str, Any]:
        contents = {"ok": self.ok(), "reproducer": self.reproducer} | super()._contents()
        return {name: x for name, x in contents.items() if name not in ("answers", "inputs")}

    def plot(self) -> "Figure":
        """
        Plot the errors of both functions, their difference, and its change with the inputs.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from .text import diagnosis_figure

        return diagnosis_figure(self)


def build_diagnosis(verdict: Verdict, e: Evidence, seconds: float) -> Diagnosis:
    are_comparable = comparable(e.result_f, e.result_g)
    worst: tuple[Worst, ...] = ()
    where = None
    evidence = dict(e.evidence)
    if are_comparable and verdict.kind != "EQUAL":
        measured = _measured(e)
        evidence |= measured
        if measured:
            with np.errstate(all="ignore"):
                units = np.where(e.difference == 0, 0.0, np.abs(e.difference) / e.scale)
            worst = _farthest(e, units)
            # Single results may exceed the limit, although the norm does not.
            if verdict.kind not in ("ROUNDING", "LAYOUT") and not e.is_rounding(e.error_difference):
                where = _where(e, units)
    elif are_comparable:
        evidence["scale"] = finite_rms(e.result_f.numbers(np.float64))
    kinds = {name: [*y.dtypes] for name, y in e.results.items()}
    if are_comparable and kinds["f"] != kinds["g"]:
        evidence["dtypes"] = kinds
    if _have_one_structure(e.f, e.g):
        evidence["same_modules"] = True
    libraries = {name: x.array_library for name, x in e.implementations.items()}
    if {*libraries.values()} != {"NumPy"}:
        evidence["arrays"] = libraries
    calls = {name: x.calls for name, x in e.implementations.items()}
    return Diagnosis(
        verdict.kind,
        verdict.reason,
        verdict.format,
        verdict.arguments and tuple(dict.fromkeys(e.owners[k] for k in verdict.arguments)),
        evidence,
        e.form,
        e.allowed,
        e.length,
        e.result_f.shapes if are_comparable else (),
        worst,
        where,
        calls,
        seconds,
        fingerprint(),
        e.seed,
        names_in_code(e.f.call, e.g.call),
        e.options,
        e.unpacked,
        e.inputs,
        (e.result_f, e.result_g) if are_comparable else (),
    )


def names_in_code(f: Any, g: Any) -> tuple[str, str]:
    """Return the names of both functions in code; "f" and "g" if they have the same one."""
    names = name_in_code(f, "f", ("g",)), name_in_code(g, "g", ("f",))
    return ("f", "g") if names[0] == names[1] else names


def _have_one_structure(f: Implementation, g: Implementation) -> bool:
    """Return True for torch modules of the same layers, which `probes.layers` compares."""
    modules: list[Any] = [f.call, g.call]
    if not (all(map(is_module, modules)) and f.array_library == "torch"):
        return False
    names = [[name for name, _ in module.named_modules()] for module in modules]
    return names[0] == names[1] and len(names[0]) > 1


def _farthest(e: Evidence, units: NDArray) -> tuple[Worst, ...]:
    far = np.nan_to_num(units, nan=np.inf)
    first = max(0, far.size - 5)
    worst = np.argpartition(far, first)[first:] if first else np.arange(far.size)
    order = worst[np.lexsort((worst, -far[worst]))]
    f, g = e.result_f.numbers(np.float64), e.result_g.numbers(np.float64)
    reference = None if e.reference is None else e.reference.numbers(np.float64)
    entries = []
    for k in order.tolist():
        if units[k] == 0:
            break
        output, index = e.result_f.locate(k)
        r = None if reference is None else float(reference[k])
        entries.append(Worst(output, index, float(f[k]), float(g[k]), r, float(units[k])))
    return tuple(entries)


def _where(e: Evidence, units: NDArray) -> str | None:
    """Describe the region in which differences exceed the limit; None if there is none."""
    if len(e.result_f.arrays) != 1 or e.result_f.arrays[0].dtype.kind == "c":
        return None
    bad = (~(units <= e.allowed)).reshape(e.result_f.shapes[0])
    if not bad.any():
        return None
    if bad.all():
        some = "the only result is" if bad.size == 1 else f"all {bad.size} results are"
        return f"{some} above the limit"
    tally = compare(bad, np.zeros_like(bad)).tally
    assert tally is not None
    count = int(np.count_nonzero(bad))
    location = region(tally, with_share=False)
    verb = "is" if count == 1 else "are"
    return f"{count} of {bad.size} results {verb} above the limit: {location}"
