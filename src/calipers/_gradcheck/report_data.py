"""Fields of a gradient check's report, from which its text and plot are made."""

from dataclasses import dataclass, field

from .entry_rules import INCONCLUSIVE


@dataclass(frozen=True)
class Scale:
    """
    The slope of f by steps of about one length.

    Attributes
    ----------
    step : float
        The longest step.
    slope, error : float
        The mean of both one-sided slopes, and its error.
    gap, gap_error : float
        Half the difference of the one-sided slopes, right minus left, and its error.
    contradicted : bool
        True if a shorter scale excludes the slope.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> report = calipers.gradcheck(
    ...     np.abs, np.zeros(1), vjp=lambda x, w: 2 * w, raise_exception=False
    ... )
    >>> row = report.worst.scales.rows[0]
    >>> row.step, row.slope - row.gap, row.slope + row.gap
    (0.5, -1.0, 1.0)
    """

    step: float
    slope: float
    error: float
    gap: float
    gap_error: float
    contradicted: bool


@dataclass(frozen=True)
class ScaleTable:
    """
    The slopes of f along one element of x at all scales, by which an entry was judged.

    Attributes
    ----------
    rows : tuple of Scale
        The scales at which f is finite, the longest first. Errors without a bound are infinite.
    best : int
        The row of the numerical value.
    near_kink : int
        The row in which a kink near x shows, as one-sided slopes that differ; -1 without one.
    analytic, tolerance : float
        The analytic value of the entry, and its tolerance.
    gap : float
        Half the difference of the one-sided slopes of f at x; 0 without a kink at x.
    noise : float
        The standard deviation of the noise of f.
    noisy : bool
        True if that is more than rounding of f.
    broken : bool
        True if f is not continuous at x.
    endless : bool
        True if slopes grow without bound as steps get shorter.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> report = calipers.gradcheck(
    ...     np.sin, np.ones(2), vjp=lambda x, w: w * np.sin(x), raise_exception=False
    ... )
    >>> table = report.worst.scales
    >>> bool(abs(table.rows[table.best].slope - np.cos(1)) < 1e-12)
    True
    """

    rows: tuple[Scale, ...]
    best: int
    near_kink: int
    analytic: float
    tolerance: float
    gap: float = 0.0
    noise: float = 0.0
    noisy: bool = False
    broken: bool = False
    endless: bool = False


@dataclass(frozen=True)
class Entry:
    """
    One entry of the Jacobian that is wrong or could not be confirmed.

    The ``.failures`` of a `GradcheckReport` are such entries.

    Attributes
    ----------
    verdict : str
        "FAIL", "NONSMOOTH" or "INCONCLUSIVE".
    form : str
        The derivative that has the entry: "jac", "vjp" or "jvp"; for second derivatives its
        keyword.
    output, input : int
        Positions of the output and the input.
    output_index, input_index : tuple of int
        Indices of the element in the output and in the input.
    output_part, input_part : str
        "real" or "imaginary" for complex elements, else "".
    analytic : float
        The value of the derivative that is checked.
    numerical : float
        The value of finite differences.
    error : float
        The estimated error of `numerical`.
    excess : float
        ``|analytic - numerical|`` divided by the tolerance.
    row, column : int
        Position in the Jacobian of all outputs with respect to all inputs, as real numbers.
    name : str
        The entry in NumPy's notation, ``d out[0][2, 1] / d in[0][2, 3]``; for second derivatives
        ``d grad[0][1] / d in[0][2]``, with w in place of in for a cotangent.
    scales : ScaleTable or None
        The slopes by which it was judged. Only a few of the worst entries have them, and none with
        ``fast_mode`` or steps of one length.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> report = calipers.gradcheck(
    ...     np.sin, np.zeros(2), vjp=lambda x, w: w * [1, 2], raise_exception=False
    ... )
    >>> entry = report.worst
    >>> entry.name, entry.input_index, entry.analytic
    ('d out[0][1] / d in[0][1]', (1,), 2.0)
    """

    verdict: str
    form: str
    output: int
    output_index: tuple[int, ...]
    output_part: str
    input: int
    input_index: tuple[int, ...]
    input_part: str
    analytic: float
    numerical: float
    error: float
    excess: float
    row: int
    column: int
    name: str
    scales: ScaleTable | None = None


@dataclass(frozen=True, repr=False)
class GradcheckData:
    """The fields of a `GradcheckReport`, which documents them, and properties derived from them."""

    verdict: str
    reason: str
    findings: tuple[str, ...]
    failures: tuple[Entry, ...]
    counts: dict[str, int] = field(hash=False)
    blocks: tuple[str, ...]
    fd_error: float
    resolution: float
    atol: float
    rtol: float
    vacuous: bool
    calls: dict[str, int] = field(hash=False)
    seed: int
    forms: tuple[str, ...]
    shape: tuple[int, int]
    fast_mode: bool
    allowed: tuple[str, ...]
    order: int = 1
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    hidden: int = 0
    again: str = ""
    next: str = ""
    outputs: tuple[tuple[str, int], ...] = ()
    inputs: tuple[tuple[str, int], ...] = ()
    library: str = ""

    @property
    def worst(self) -> Entry | None:
        """The failing entry with the largest error relative to its tolerance, or None."""
        return self.failures[0] if self.failures else None

    @property
    def unresolved(self) -> float:
        """The fraction of entries that differences could not decide, including ``hidden`` ones."""
        total = sum(self.counts.values())
        return (self.counts[INCONCLUSIVE] + self.hidden) / total if total else 0.0
