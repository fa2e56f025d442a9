"""Arrays that are compared with ``==``: approx."""

from typing import Any

from ._arrays import is_weak
from .comparison import compare
from .tolerances import Tolerance

__all__ = ["Approx", "approx"]

_WIDTH = 40


def shortened(x: Any) -> str:
    """Write any object in a part of a line."""
    text = " ".join(repr(x).split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


class Approx:
    """
    What `approx` returns: equal, by ``==``, to all that agrees with what is expected.

    Attributes
    ----------
    expected : array_like, or list, tuple, dict or dataclass of them
        The reference.
    """

    # So that NumPy's arrays leave `==` to this class, and do not ask element by element.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]  # what is nearly equal has no hash

    def __init__(self, expected: Any, options: dict[str, Any]) -> None:
        self.expected = expected
        self._options = options

    def __eq__(self, actual: object) -> bool:
        """Tell whether `actual` agrees with what is expected."""
        return bool(self.compare(actual))

    def __bool__(self) -> bool:
        """Refuse: an approx that nothing is compared to is a test that cannot fail."""
        msg = "approx(...) alone is neither true nor false: write actual == approx(expected)"
        raise TypeError(msg)

    def __repr__(self) -> str:
        """Write the reference, shortened."""
        return f"approx({shortened(self.expected)})"

    def compare(self, actual: Any) -> Any:
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
        check_shape = self._options["check_shape"] and not is_weak(self.expected)
        return compare(actual, self.expected, **{**self._options, "check_shape": check_shape})


def approx(
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    tolerance: Tolerance | tuple[float, float] | None = None,
    max_ulp: int | None = None,
    equal_nan: bool = False,
    check_dtype: bool = False,
    check_shape: bool = True,
    max_mismatches: int = 0,
    max_mismatch_ratio: float = 0.0,
) -> Approx:
    """
    Make what ``==`` compares to within tolerances, for assertions: ``assert actual == approx(b)``.

    In pytest a failing assertion shows the report of `compare`.

    Parameters
    ----------
    expected : array_like, or list, tuple, dict or dataclass of them
        The reference. A Python number stands for an array full of it.
    rtol, atol, tolerance, max_ulp, equal_nan, check_shape, max_mismatches, max_mismatch_ratio
        As for `compare`; the tolerances are by default those of the dtypes.
    check_dtype : bool, default False
        Whether dtypes have to be equal; ``==`` does not ask for that, unlike `assert_close`.

    Returns
    -------
    Approx

    Raises
    ------
    TypeError, ValueError
        As `compare`, when it is compared.

    See Also
    --------
    assert_close : Raises the report, in pytest or elsewhere.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import approx
    >>> np.array([0.1 + 0.2, 1.0]) == approx([0.3, 1.0])
    True
    >>> {"loss": 0.25, "weights": np.ones(3)} == approx({"loss": 0.25, "weights": [1, 1, 1.1]})
    False
    """
    options = {
        "rtol": rtol,
        "atol": atol,
        "tolerance": tolerance,
        "max_ulp": max_ulp,
        "equal_nan": equal_nan,
        "check_dtype": check_dtype,
        "check_shape": check_shape,
        "max_mismatches": max_mismatches,
        "max_mismatch_ratio": max_mismatch_ratio,
    }
    return Approx(expected, options)
