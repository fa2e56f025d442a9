"""What a diagnosis holds, and how it is made of an inquiry."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arrangement import region
from .._notebook import Shown
from .._report import jsonable
from .._tally import Tally
from ..comparison import compare
from ..tolerances import Tolerance, recommend_tolerance
from .answers import comparable
from .environment import fingerprint
from .inquiry import Inquiry
from .measured import measured
from .report import details, headline, text_of
from .units import ROUNDOFF, rms_of
from .verdicts import BUG, EQUAL, KINDS, LAYOUT, RANGE, ROUNDING, SUSPECT, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALLOWED = ("ROUNDING", "LAYOUT", "AMPLIFIED")


@dataclass(frozen=True)
class Worst:
    """
    One of the results that are farthest apart.

    Attributes
    ----------
    output : int
        Which of the functions' results.
    index : tuple of int
        Where in it.
    f, g : float
        The two values; of a complex one the part that is farther apart.
    reference : float or None
        What it is in the wider format.
    units : float
        ``|f - g|`` in units of rounding.
    """

    output: int
    index: tuple[int, ...]
    f: float
    g: float
    reference: float | None
    units: float


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """
    Why two implementations differ; true if rounding explains it, and ``str()`` is the report.

    Attributes
    ----------
    kind : str
        EQUAL, ROUNDING, LAYOUT, AMPLIFIED, RANGE, NONDETERMINISTIC, REDUCED, UNSTABLE, SUSPECT, BUG
        or RAISES; see `diagnose`.
    reason : str
        One sentence, with numbers.
    format : str or None
        Of REDUCED, the narrower format.
    arguments : tuple of int or None
        Of REDUCED, the arguments that are narrowed; None where it is something in between.
    evidence : dict
        Every number that was measured: errors of both sides and of their difference ("f", "g",
        "apart", "wide"), "kappa", "spread", "likeness" and so on, as far as they were needed; and
        the "dtypes" of both sides' results, if they are not the same, and the libraries whose
        "arrays" both are called with, if those are not NumPy's.
    dtype : str
        The working format.
    allowed : float
        How many units of rounding an error may take: ``4 + sqrt(n)``.
    length : int
        n, the length of the reductions.
    shapes : tuple of tuple of int
        Of the results.
    worst : tuple of Worst
        The results that are farthest apart.
    where : str or None
        In which rows, columns or parts results are farther apart than is allowed; None if they are
        within rounding as a whole.
    calls : dict
        How often each side was called; empty for arrays alone.
    seconds : float
        What all took.
    environment : dict
        Versions, threads and settings that decide how numbers are rounded.
    seed : int
        Of all random moves.
    names : tuple of str
        Of f and g, as code would call them, or of the arrays.
    options : dict of str
        The arguments of `diagnose` that were not its defaults, as code.
    inputs : tuple
        The arrays, and what else, that both sides were called with; containers are taken apart.
    answers : tuple
        What f and g returned for them, as `plot` draws it; empty where one of them raised, or where
        their results have other shapes.
    """

    kind: str
    reason: str
    format: str | None
    arguments: tuple[int, ...] | None
    evidence: dict[str, Any] = field(hash=False)
    dtype: str
    allowed: float
    length: int
    shapes: tuple[tuple[int, ...], ...]
    worst: tuple[Worst, ...]
    where: str | None
    calls: dict[str, int] = field(hash=False)
    seconds: float
    environment: dict[str, Any] = field(hash=False)
    seed: int
    names: tuple[str, str]
    options: dict[str, str] = field(default_factory=dict, hash=False)
    inputs: tuple[Any, ...] = field(default=(), repr=False, compare=False)
    answers: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    def __bool__(self) -> bool:
        """Tell whether rounding explains the difference, however it comes about."""
        return self.ok()

    def __str__(self) -> str:
        """Write the report."""
        return text_of(self)

    def _headline_and_rest(self) -> tuple[str, str]:
        return headline(self), details(self)

    @property
    def reproducer(self) -> str:
        """Code that asks the same again, and by what the inputs are known."""
        digest = hashlib.sha256()
        kinds = []
        for x in self.inputs:
            if isinstance(x, np.ndarray):
                if not x.dtype.hasobject:  # references differ from process to process
                    digest.update(np.ascontiguousarray(x).tobytes())
                kinds.append(f"{x.dtype} {x.shape}")
            else:
                kinds.append(type(x).__name__)
        f, g = self.names
        options = [f"{name}={code}" for name, code in self.options.items()]
        call = f"diagnose({', '.join([f, g, 'inputs', *options, f'seed={self.seed}'])})"
        if not self.calls:
            call = f"compare_to_reference({f}, {g}, reference)"
        return f"calipers.{call}\n# inputs: {', '.join(kinds)}; sha256 {digest.hexdigest()[:16]}"

    def ok(self, allow: Iterable[str] = _ALLOWED) -> bool:
        """
        Tell whether the kind is one of some; EQUAL always is.

        Parameters
        ----------
        allow : iterable of str
            Kinds to accept.

        Raises
        ------
        ValueError
            If one is not a kind.
        """
        kinds = [allow] if isinstance(allow, str) or not np.iterable(allow) else [*allow]
        unknown = [str(kind) for kind in kinds if not (isinstance(kind, str) and kind in KINDS)]
        if unknown:
            msg = f"allow must be some of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}"
            raise ValueError(msg)
        return self.kind == EQUAL or self.kind in kinds

    def recommend_tolerance(self) -> Tolerance:
        """
        Return the tolerances that this pair needs on inputs like these.

        They are those of `calipers.recommend_tolerance` for the format and the reductions' length,
        with the results' size for scale, times what the function magnifies last places by.

        Raises
        ------
        ValueError
            If the difference is no rounding: a tolerance that accepts it would hide an error.
        """
        if self.kind in (BUG, SUSPECT, RANGE) or not self.shapes:
            msg = f"the verdict is {self.kind}: no tolerance tells that from right results"
            raise ValueError(msg)
        scale = self.evidence.get("scale", 1.0) * max(1.0, self.evidence.get("kappa", 1.0))
        form = self.format if self.format in ROUNDOFF else self.dtype
        tolerance = recommend_tolerance(form, self.length)
        # What is measured here may be more than the rule of thumb allows; all there is to go by
        # where results are 0 or infinite.
        needed = 2 * self.evidence["apart"]["absolute_largest"] if "apart" in self.evidence else 0.0
        ruled = tolerance.atol * scale
        return Tolerance(tolerance.rtol, max(ruled, needed) if math.isfinite(ruled) else needed)

    def to_dict(self) -> dict[str, Any]:
        """Return all findings as built-in types, which JSON can write."""
        names = [n for n in self.__dataclass_fields__ if n not in ("answers", "inputs")]
        fields = {"ok": self.ok(), "reproducer": self.reproducer}
        return fields | {name: jsonable(getattr(self, name)) for name in names}

    def plot(self) -> "Figure":
        """
        Draw errors in units, differences by size, and how alike they stay when inputs are moved.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from .plots import diagnosis_figure

        return diagnosis_figure(self)


def diagnosis_of(verdict: Verdict, q: Inquiry, seconds: float) -> Diagnosis:
    are_comparable = comparable(q.of_f, q.of_g)
    worst: tuple[Worst, ...] = ()
    where = None
    evidence = dict(q.evidence)
    if are_comparable and verdict.kind != EQUAL:
        measurement = measured(q)
        evidence.update(measurement.evidence)
        if measurement.units is not None:
            worst = _farthest(q, measurement.units, measurement.reference)
            # By norm: single ones may be beyond.
            if verdict.kind not in (ROUNDING, LAYOUT) and not q.is_rounding(q.eta_apart):
                where = _where(q, measurement.units)
    elif are_comparable:
        numbers = q.of_f.numbers(np.float64)
        evidence["scale"] = rms_of(numbers)
    kinds = {name: [*y.dtypes] for name, y in q.answers.items()}
    if are_comparable and kinds["f"] != kinds["g"]:
        evidence["dtypes"] = kinds
    libraries = {name: side.arrays_of for name, side in q.sides.items()}
    if {*libraries.values()} != {"NumPy"}:
        evidence["arrays"] = libraries
    calls = {name: side.calls for name, side in q.sides.items()}
    return Diagnosis(
        verdict.kind,
        verdict.reason,
        verdict.format,
        verdict.arguments and tuple(dict.fromkeys(q.owners[k] for k in verdict.arguments)),
        evidence,
        q.form,
        q.allowed,
        q.length,
        q.of_f.shapes if are_comparable else (),
        worst,
        where,
        calls,
        seconds,
        fingerprint(),
        q.seed,
        _names(q.f.call, q.g.call),
        q.options,
        q.inputs,
        (q.of_f, q.of_g) if are_comparable else (),
    )


def _farthest(q: Inquiry, units: Any, reference: Any) -> tuple[Worst, ...]:
    far = np.nan_to_num(units, nan=np.inf)
    first = max(0, far.size - 5)
    worst = np.argpartition(far, first)[first:] if first else np.arange(far.size)
    order = worst[np.lexsort((worst, -far[worst]))]
    f, g = q.of_f.numbers(np.float64), q.of_g.numbers(np.float64)
    entries = []
    for k in order.tolist():
        if units[k] == 0:
            break
        output, index = q.of_f.place(k)
        r = None if reference is None else float(reference[k])
        entries.append(Worst(output, index, float(f[k]), float(g[k]), r, float(units[k])))
    return tuple(entries)


def _where(q: Inquiry, units: Any) -> str | None:
    """Describe where results are farther apart than rounding may take, if there are such."""
    if len(q.of_f.arrays) != 1 or q.of_f.arrays[0].dtype.kind == "c":
        return None
    bad = (~(units <= q.allowed)).reshape(q.of_f.shapes[0])
    if not bad.any():
        return None
    tally: Tally = compare(bad, np.zeros_like(bad)).tally
    count = int(np.count_nonzero(bad))
    return f"{region(tally)}: {count} of {bad.size} beyond what rounding may take"


def _names(f: Any, g: Any) -> tuple[str, str]:
    """Return what both are called in code; f and g, where one has no name of its own."""
    both = getattr(f, "__name__", ""), getattr(g, "__name__", "")
    names = both[0] if both[0].isidentifier() else "f", both[1] if both[1].isidentifier() else "g"
    return ("f", "g") if names[0] == names[1] else names
