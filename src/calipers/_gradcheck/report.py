"""What a check of derivatives found, and the errors that carry it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._notebook import Shown
from .._report import jsonable_fields
from .rule import FAIL, INCONCLUSIVE, NONSMOOTH, PASS
from .text import report_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CalipersWarning(UserWarning):
    """What calipers warns of."""


class GradcheckError(AssertionError, RuntimeError):
    """
    A derivative that could not be confirmed; `report` says why.

    It is a RuntimeError, too, as torch's is.
    """

    def __init__(self, report: "GradcheckReport") -> None:
        super().__init__(str(report))
        self.report = report


class WrongDerivativeError(GradcheckError):
    """The verdict is FAIL."""


class NonsmoothError(GradcheckError):
    """The verdict is NONSMOOTH."""


class InconclusiveError(GradcheckError):
    """The verdict is INCONCLUSIVE."""


ERRORS = {FAIL: WrongDerivativeError, NONSMOOTH: NonsmoothError, INCONCLUSIVE: InconclusiveError}
for _public in (CalipersWarning, GradcheckError, *ERRORS.values()):
    _public.__module__ = "calipers"  # as a traceback says


def answer(
    report: "GradcheckReport", raise_exception: bool, cause: BaseException | None = None
) -> "GradcheckReport":
    """Return a report, or raise it."""
    if raise_exception and not report:
        raise ERRORS[report.verdict](report) from cause
    return report


@dataclass(frozen=True)
class Entry:
    """
    One entry of a Jacobian that is not right.

    Attributes
    ----------
    verdict : str
    form : str
        "jac", "vjp" or "jvp"; of second derivatives what they were given as.
    output, input : int
        Positions in what f returns and takes.
    output_index, input_index : tuple of int
        The elements in them.
    output_part, input_part : str
        "real" or "imaginary" for a complex element, else "".
    analytic, numerical, error : float
        The caller's value, that of differences, and the estimated error of the latter.
    excess : float
        ``|analytic - numerical|`` in units of what was allowed.
    row, column : int
        Where in the Jacobian of all outputs by all inputs, in real numbers.
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


@dataclass(frozen=True, repr=False)
class GradcheckReport(Shown):
    """
    What a check of derivatives found; true if they are right, and ``str()`` tells what is wrong.

    Attributes
    ----------
    verdict : str
        "PASS", "FAIL", "NONSMOOTH" or "INCONCLUSIVE".
    reason : str
        One sentence.
    findings : tuple of str
        What the tests without differences found.
    failures : tuple of Entry
        Entries that are not right, the worst first, at most 100 000.
    counts : dict of str to int
        How many entries have each verdict.
    blocks : tuple of str
        What wrong blocks look like as a whole.
    fd_error : float
        The largest estimated error among the numerical values that were extrapolated.
    resolution, atol, rtol : float
        The relative error that counts as one by default, and the tolerances in force.
    vacuous : bool
        Whether there was nothing to compare.
    calls : dict of str to int
        How often f and the derivatives were called.
    seed : int
    forms : tuple of str
        Which derivatives were given.
    shape : tuple of int
        Of the Jacobian in real numbers, rows and columns.
    fast_mode : bool
    allowed : tuple of str
        Verdicts besides PASS that count as true.
    order : int
        2 for derivatives of the gradient: its inputs are those of f and then the cotangents.
    input_names, output_names : tuple of str
        Where the inputs and outputs are in the containers that f takes and returns; empty where
        these are arrays.
    hidden : int
        How many entries pass since rounding of f hides whether they are right: they are far less
        than f / x, or than others.
    """

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

    def __bool__(self) -> bool:
        """Whether the verdict is PASS, or allowed."""
        return self.verdict == PASS or self.verdict in self.allowed

    def __str__(self) -> str:
        """Tell the verdict, and what it rests on."""
        return report_text(self)

    def plot(self) -> "Figure":
        """
        Draw where in the Jacobian the entries that are not right stand, and how far they are off.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from .plots import report_figure

        return report_figure(self)

    @property
    def worst(self) -> Entry | None:
        """The entry with the largest excess."""
        return self.failures[0] if self.failures else None

    @property
    def unresolved(self) -> float:
        """The share of entries that differences could not decide, hidden ones among them."""
        total = sum(self.counts.values())
        return (self.counts[INCONCLUSIVE] + self.hidden) / total if total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return all of it in types that JSON has."""
        return jsonable_fields(self)
