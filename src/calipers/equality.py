"""Arrays that are compared with ``==``: approx."""

from typing import Any, ClassVar, Unpack

from ._arguments import is_weak
from ._refusals import refused
from ._types import CompareOptions
from .comparison import agree, compare
from .reports import Comparison, NestedComparison

__all__ = ["Approx", "approx"]

_WIDTH = 40
_PYTEST = {"rel": "rtol", "abs": "atol", "nan_ok": "equal_nan"}  # what pytest.approx calls them


def shortened(x: Any) -> str:
    """Write any object in a part of a line."""
    try:
        text = " ".join(repr(x).split())
    except Exception:  # a test is about to fail for another reason
        text = object.__repr__(x)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


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
            "where actual answers == itself, as xarray's do, write approx(expected) == actual"
        )
        raise TypeError(msg)

    def __eq__(self, actual: object) -> bool:
        """Tell whether `actual` agrees with what is expected."""
        if isinstance(actual, Approx):
            self.__array__()
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
        found: Comparison | NestedComparison = compare(actual, self.expected, **self._options)
        return found


def approx(expected: Any, **options: Unpack[CompareOptions]) -> Approx:
    """
    Make what ``==`` compares to within tolerances, for assertions: ``assert actual == approx(b)``.

    In pytest a failing assertion shows the report of `compare`.

    Parameters
    ----------
    expected : array_like, or list, tuple, dict or dataclass of them
        The reference. A Python number stands for an array full of it.
    **options
        Those of `compare`: tolerances are by default those of the dtypes. Other than there, dtypes
        may differ unless ``check_dtype=True``, as ``==`` does not ask for them.

    Returns
    -------
    Approx

    Raises
    ------
    TypeError
        If an option is none of those of `compare`.
    TypeError, ValueError
        As `compare`, when it is compared.

    See Also
    --------
    assert_close : Raises the report, in pytest or elsewhere.

    Notes
    -----
    Masked arrays of NumPy, SciPy's sparse arrays and xarray's objects answer ``==`` themselves:
    write ``approx(expected) == masked``.

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
    given: CompareOptions = {"check_dtype": False}
    given.update(options)
    if is_weak(expected):
        given["check_shape"] = False
    return Approx(expected, given)
