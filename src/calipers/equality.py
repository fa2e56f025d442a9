"""Arrays that are compared with ``==``: approx."""

from dataclasses import replace
from typing import Any, ClassVar, Unpack

from ._arguments import is_weak
from ._options import checked_options
from ._refusals import refused
from ._types import CompareOptions
from .comparison import agree, compare
from .reports import Comparison, NestedComparison

__all__ = ["Approx", "approx"]
__tracebackhide__ = True  # pytest shows an error at the line that called calipers

_WIDTH = 40
_PYTEST = {"rel": "rtol", "abs": "atol", "nan_ok": "equal_nan"}  # what pytest.approx calls them


def shortened(x: Any) -> str:
    """Write any object in a part of a line."""
    try:
        text = " ".join(repr(x).split())
    except Exception:  # a test is about to fail for another reason
        text = object.__repr__(x)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _has_elements(x: Any) -> bool:
    """Return True if x has elements; False also if only a full comparison shows that."""
    if isinstance(x, list | tuple):
        return any(map(_has_elements, x))
    shape = getattr(x, "shape", None)
    return is_weak(x) or (isinstance(shape, tuple) and 0 not in shape)


class Approx:
    """
    What `approx` returns: equal, by ``==``, to all that agrees with what is expected.

    Attributes
    ----------
    expected : array_like, or list, tuple, dict or dataclass of them
        The reference.
    """

    # So that arrays leave `==` to this class, and do not ask element by element: NumPy's, and
    # pandas' (a DataFrame's own priority is 4000).
    __array_ufunc__: ClassVar[None] = None
    __pandas_priority__: ClassVar[int] = 5000
    __hash__: ClassVar[None]  # type: ignore[assignment]  # Python sets it beside __eq__

    def __init__(self, expected: Any, options: CompareOptions) -> None:
        self.expected: Any = expected
        self._options = options

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuse: an approx is no array, in a container either."""
        msg = (
            "approx(...) is no array: write actual == approx(expected), and no approx within it; "
            "where actual answers == itself, as xarray's do, write approx(expected) == actual; "
            "where it is sparse, write actual.toarray() == approx(expected)"
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
            refused(actual, self.expected, **self._options)
        return agreed

    def __bool__(self) -> bool:
        """Refuse: an approx that nothing is compared to is a test that cannot fail."""
        msg = "approx(...) alone is neither true nor false: write actual == approx(expected)"
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Write the reference, shortened."""
        return f"approx({shortened(self.expected)})"

    def compare(self, actual: Any) -> Comparison | NestedComparison:
        """
        Return the report of a comparison with what is expected.

        Parameters
        ----------
        actual : array_like, or list, tuple, dict or dataclass of them
            What is judged.

        Returns
        -------
        Comparison or NestedComparison

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


def approx(expected: Any, **options: Unpack[CompareOptions]) -> Approx:
    """
    Make what ``==`` compares to within tolerances, for assertions: ``assert actual == approx(b)``.

    In pytest a failing assertion shows the report of `compare`.

    Parameters
    ----------
    expected : array_like, or list, tuple, dict or dataclass of them
        The reference. A Python number stands for an array full of it, but not for an empty one.
    **options
        Those of `compare`: tolerances are by default those of the dtypes. Other than there, dtypes
        may differ unless ``check_dtype=True``, as ``==`` does not ask for them.

    Returns
    -------
    Approx

    Raises
    ------
    TypeError
        If an option is none of those of `compare`, or of the wrong kind.
    ValueError
        If an option has a wrong value, as for `compare`.
    TypeError, ValueError
        As `compare`, for arrays that cannot be compared, by ``==``.

    See Also
    --------
    assert_close : Raises the report, in pytest or elsewhere.

    Notes
    -----
    Masked arrays of NumPy, the objects of xarray and polars, and pint's quantities answer ``==``
    themselves: write ``approx(expected) == masked``. SciPy's sparse arrays have to be dense:
    ``actual.toarray() == approx(expected)``.

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
            known = ", ".join(CompareOptions.__annotations__)
            advice = f": take {_PYTEST[name]}=" if name in _PYTEST else ""
            msg = f"approx() got an unexpected keyword argument {name!r}{advice}; it takes {known}"
            raise TypeError(msg)
    defaults: CompareOptions = {"check_dtype": False}
    if is_weak(expected):
        defaults["check_shape"] = False
    defaults.update(options)
    checked_options(**{"rtol": None, "atol": None, **defaults})
    return Approx(expected, defaults)
