"""Comparison with tolerances by ``==``, for assertions: approx."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Unpack

from .._core.arguments import is_weak
from .._core.types import CompareOptions, PyTree
from . import notify_mismatch
from .compare import agree, compare
from .reports import Comparison, NestedComparison
from .tolerances import CheckedOptions

__all__ = ["Approx", "approx"]
__tracebackhide__ = True  # pytest shows an error at the line that called calipers

# Characters to which the repr of an object is cut, so that a line holds two.
_MAX_TEXT_LENGTH = 40
# The absolute tolerance that pytest.approx uses if only rel= is passed.
_PYTEST_ATOL = 1e-12


def shortened(x: Any) -> str:
    """Return the repr of an object in one line, cut to at most 40 characters."""
    try:
        text = " ".join(repr(x).split())
    except Exception:  # a test is about to fail for another reason
        text = object.__repr__(x)
    return text if len(text) <= _MAX_TEXT_LENGTH else f"{text[: _MAX_TEXT_LENGTH - 3]}..."


def _advice_for_pytest_names(options: dict[str, Any]) -> str:
    """Return advice that translates keywords of pytest.approx; empty if there are none."""
    names = [name for name in ("rel", "abs", "nan_ok") if name in options]
    if not names:
        return ""
    passed = ", ".join(f"{name}={shortened(options[name])}" for name in names)
    here = []
    if "rel" in options or "abs" in options:
        rtol = options.get("rel", options.get("rtol", 0))
        here += [f"rtol={shortened(rtol)}", f"atol={shortened(options.get('abs', _PYTEST_ATOL))}"]
    if "nan_ok" in options:
        here.append(f"equal_nan={shortened(options['nan_ok'])}")
    return f": {passed} is {', '.join(here)} here"


def _has_elements(x: Any) -> bool:
    """Return True if x has elements; False also if only a full comparison shows that."""
    if isinstance(x, list | tuple):
        return any(map(_has_elements, x))
    shape = getattr(x, "shape", None)
    return is_weak(x) or (isinstance(shape, tuple) and 0 not in shape)


class Approx:
    """
    Expected values that compare equal, by ``==``, to all values within a tolerance.

    It is returned by `approx`. ``actual == approx`` is the bool of ``approx.compare(actual)``.

    Attributes
    ----------
    expected : array_like, or list, tuple, dict or dataclass of them
        The reference.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import approx
    >>> expected = approx([0.3, 1.0], rtol=1e-6, atol=0)
    >>> np.array([0.1 + 0.2, 1.0]) == expected
    True
    >>> expected
    approx([0.3, 1.0])
    """

    # With these, arrays of NumPy and pandas leave `==` to this class instead of comparing each
    # element. The priority of a DataFrame is 4000.
    __array_ufunc__: ClassVar[None] = None
    __pandas_priority__: ClassVar[int] = 5000
    __hash__: ClassVar[None]  # type: ignore[assignment]  # __eq__ sets it

    def __init__(self, expected: PyTree, options: CompareOptions) -> None:
        self.expected: Any = expected
        self._options = options

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Raise a TypeError: an approx cannot be converted to an array, also not in a container."""
        msg = (
            "approx(...) is not an array: write actual == approx(expected), no approx inside it; "
            "if actual defines == itself, as in xarray, write approx(expected) == actual; "
            "if it is sparse, write actual.toarray() == approx(expected)"
        )
        raise TypeError(msg)

    def __eq__(self, actual: object) -> bool:
        """Return True if `actual` agrees with the reference."""
        if isinstance(actual, Approx):
            self.__array__()
        if is_weak(self.expected) and not _has_elements(actual):
            agreed = bool(self.compare(actual))
        else:
            agreed = agree(actual, self.expected, **self._options)
        if not agreed:
            notify_mismatch(actual, self.expected, **self._options)
        return agreed

    def __bool__(self) -> bool:
        """Raise a TypeError: an approx that is compared with nothing is a test that cannot fail."""
        msg = "approx(...) has no truth value: write actual == approx(expected)"
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Return the reference, shortened."""
        return f"approx({shortened(self.expected)})"

    def compare(self, actual: PyTree) -> Comparison | NestedComparison:
        """
        Return the report of a comparison with the expected values.

        Parameters
        ----------
        actual : array_like, or list, tuple, dict or dataclass of them
            The values to check.

        Returns
        -------
        Comparison or NestedComparison
            The report of `compare`.

        Raises
        ------
        TypeError, ValueError
            As for `compare`.

        Examples
        --------
        >>> import calipers
        >>> calipers.approx([1.0, 2.0]).compare([1.0, 2.5]).mismatches
        1
        """
        report: Comparison | NestedComparison = compare(actual, self.expected, **self._options)
        if report and isinstance(report, Comparison) and is_weak(self.expected) and not report.size:
            problem = f"actual is empty, so no element of it equals {shortened(self.expected)}"
            return replace(report, problems=(problem,))
        return report


def approx(expected: PyTree, **options: Unpack[CompareOptions]) -> Approx:
    """
    Return an object that is equal, by ``==``, to arrays within a tolerance of the expected ones.

    It is meant for assertions, ``assert actual == approx(expected)``. In pytest, an assertion that
    fails shows the report of `compare`.

    Parameters
    ----------
    expected : array_like, or list, tuple, dict or dataclass of them
        The reference. A Python number is equal to a non-empty array of any shape whose elements are
        all close to it.
    **options
        The keywords of `compare`, with the same defaults except that ``check_dtype`` is False.

    Returns
    -------
    Approx
        The object to compare with.

    Raises
    ------
    TypeError
        If a keyword is not one of `compare`, or has the wrong type. The comparison ``==`` raises it
        if arrays cannot be compared.
    ValueError
        If a keyword has an invalid value. The comparison ``==`` raises it for shapes that `compare`
        refuses.

    See Also
    --------
    assert_close : Raises the report, in pytest or elsewhere.

    Notes
    -----
    NumPy's masked arrays, xarray's and polars' objects and pint's quantities implement ``==``
    themselves: write ``approx(expected) == actual``. SciPy's sparse arrays have to be converted:
    ``actual.toarray() == approx(expected)``.

    ``pytest.approx(x)`` has the tolerances ``approx(x, rtol=1e-6, atol=1e-12)``.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import approx
    >>> np.array([0.1 + 0.2, 1.0]) == approx([0.3, 1.0])
    True
    >>> {"loss": 0.25, "weights": np.ones(3)} == approx({"loss": 0.25, "weights": [1, 1, 1.1]})
    False
    """
    for name in options:
        if name not in CompareOptions.__annotations__:
            keywords = ", ".join(CompareOptions.__annotations__)
            advice = _advice_for_pytest_names(dict(options))
            msg = (
                f"approx() got an unexpected keyword argument {name!r}{advice}; it takes {keywords}"
            )
            raise TypeError(msg)
    defaults: CompareOptions = {"check_dtype": False}
    if is_weak(expected):
        defaults["check_shape"] = False
    defaults.update(options)
    if options:
        CheckedOptions(**defaults)
    return Approx(expected, defaults)
