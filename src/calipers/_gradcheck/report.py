"""The report of a gradient check, and the errors that carry it."""

from typing import TYPE_CHECKING

from .._core.report import Report
from .entry_rules import FAIL, INCONCLUSIVE, NONSMOOTH, PASS
from .report_data import GradcheckData
from .text import headline, report_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__tracebackhide__ = True  # pytest shows an error at the line that called calipers


class CalipersWarning(UserWarning):
    """
    A warning of calipers.

    Examples
    --------
    >>> import warnings
    >>> import calipers
    >>> import numpy as np
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     report = calipers.gradcheck(np.sin, np.zeros(0), vjp=lambda x, w: w)
    >>> caught[0].category.__name__
    'CalipersWarning'
    """


class GradcheckError(AssertionError, RuntimeError):
    """
    A derivative is wrong, or could not be confirmed.

    It is raised by `gradcheck` and `gradgradcheck`, as one of its subclasses
    `WrongDerivativeError`, `NonsmoothError` and `InconclusiveError`. It is an AssertionError and,
    as in torch, a RuntimeError.

    Attributes
    ----------
    report : GradcheckReport
        The report; it is also the text of the error.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> try:
    ...     calipers.gradcheck(np.sin, np.array([0.5]), vjp=lambda x, w: w * np.sin(x))
    ... except calipers.GradcheckError as error:
    ...     print(error.report.verdict)
    FAIL
    """

    def __init__(self, report: "GradcheckReport") -> None:
        super().__init__(str(report))
        self.report = report


class WrongDerivativeError(GradcheckError):
    """
    A derivative is wrong: the verdict is FAIL.

    Attributes
    ----------
    report : GradcheckReport
        The report; it is also the text of the error.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> try:
    ...     calipers.gradcheck(np.sin, np.array([0.5]), vjp=lambda x, w: w * np.sin(x))
    ... except calipers.WrongDerivativeError as error:
    ...     print(error.report.worst.input_index)
    (0,)
    """


class NonsmoothError(GradcheckError):
    """
    The function is not differentiable at the point: the verdict is NONSMOOTH.

    Attributes
    ----------
    report : GradcheckReport
        The report; it is also the text of the error.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> try:
    ...     calipers.gradcheck(np.abs, np.array([0.0]), vjp=lambda x, w: 0.5 * w)
    ... except calipers.NonsmoothError as error:
    ...     print(error.report.verdict)
    NONSMOOTH
    """


class InconclusiveError(GradcheckError):
    """
    Rounding or noise of the function hides its derivative: the verdict is INCONCLUSIVE.

    Attributes
    ----------
    report : GradcheckReport
        The report; it is also the text of the error.

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> def noisy(x):
    ...     return x + 1e-3 * np.sin(1e9 * x)
    >>> try:
    ...     calipers.gradcheck(noisy, np.array([0.5]), vjp=lambda x, w: w)
    ... except calipers.InconclusiveError as error:
    ...     print(error.report.verdict)
    INCONCLUSIVE
    """


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


class GradcheckReport(GradcheckData, Report):
    """
    The report of a gradient check; it is true if the derivatives are right.

    It is returned by `gradcheck` and `gradgradcheck`. ``print(report)`` lists the errors.

    Attributes
    ----------
    verdict : {"PASS", "FAIL", "NONSMOOTH", "INCONCLUSIVE"}
        The verdict on all entries.
    reason : str
        One sentence.
    findings : tuple of str
        Errors that need no differences, such as a gradient of a wrong shape.
    failures : tuple of Entry
        Entries that are wrong or could not be confirmed, the worst first; at most 100 000.
    counts : dict of str to int
        The number of entries with each verdict.
    blocks : tuple of str
        Patterns of the wrong entries of a block, such as a wrong sign or factor.
    fd_error : float
        The largest error estimate of the numerical values that were extrapolated.
    resolution : float
        The relative error that counts as wrong by default.
    atol, rtol : float
        The tolerances that were used.
    vacuous : bool
        True if there was nothing to compare.
    calls : dict of str to int
        The number of calls of f and of each derivative.
    seed : int
        Seed of random directions.
    forms : tuple of str
        The derivatives that were checked.
    shape : tuple of int
        The shape of the Jacobian as real numbers.
    fast_mode : bool
        True if products with random directions were compared.
    allowed : tuple of str
        Verdicts other than PASS that count as success.
    order : int
        1 for first derivatives. 2 for derivatives of the gradient, whose inputs are those of f
        followed by the cotangents.
    input_names, output_names : tuple of str
        Paths of inputs and outputs in containers; empty without containers.
    hidden : int
        The number of entries that pass because they are too small to be checked: they are below
        the rounding error of f.
    again : str
        The call that repeats the check, as code: functions by their names, inputs by the names of
        f's parameters, or x, w and b, and the options that are not the default.
    next : str
        The next step as code, or "" where there is none.
    outputs, inputs : tuple of (str, int)
        The name of each differentiable output and input, and its number of rows or columns in the
        Jacobian.
    library : str
        "torch" or "jax" if it computed the derivatives, else "".

    Examples
    --------
    >>> import calipers
    >>> import numpy as np
    >>> x = np.array([0.5, 1.0])
    >>> report = calipers.gradcheck(np.sin, x, jac=lambda x: np.diag(np.cos(x)))
    >>> report.verdict, report.counts["PASS"], report.calls["jac"] > 0
    ('PASS', 4, True)
    """

    def __bool__(self) -> bool:
        """Return True if the verdict is PASS or allowed."""
        return self.verdict == PASS or self.verdict in self.allowed

    def __str__(self) -> str:
        """Return the text of the report."""
        return report_text(self)

    def _headline_and_rest(self) -> tuple[str, str]:
        text = str(self)
        return headline(self), text[text.index("\n  checked") + 1 :]

    def plot(self) -> "Figure":
        """
        Plot the failing entries in the Jacobian, and the slopes by which the worst was judged.

        The slopes are those of f at all steps, with their errors; the analytic value is a line,
        and its tolerance a band. Slopes that shorter steps contradict are hollow.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        from .text import report_figure

        return report_figure(self)
