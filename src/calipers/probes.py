"""
Checks of one property of a function: batches, layout, repeatability, range, condition and others.

Each calls the function, which may take arrays of NumPy, Numba, torch or jax. Differences are
measured in units of the expected rounding error: the change of the result when each input is
perturbed by about one ulp and the result is rounded. It is computed in the next higher precision if
the function accepts that, else from larger perturbations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._compare.tolerances import name_of
from ._core.arguments import as_integer, brief, is_integer
from ._core.containers import as_tuple
from ._core.types import ArrayLike, DTypeLike, PyTree
from ._diagnose.arrays import NestedInputs, as_inputs
from ._probes.conditioning import Condition, function_condition, matrix_condition
from ._probes.exactness import Exact, compare_exact
from ._probes.layers import Layer, Layers, compare_layers
from ._probes.ranges import Range, find_range_loss
from ._probes.summation import SummationOrder, find_summation_order
from ._probes.trials import Trial, Trials, compare_batch, compare_layouts, compare_repeats

__all__ = [
    "Condition",
    "Exact",
    "Layer",
    "Layers",
    "Range",
    "SummationOrder",
    "Trial",
    "Trials",
    "batch",
    "condition",
    "exact",
    "layers",
    "layout",
    "range",
    "repeat",
    "summation_order",
]


def __dir__() -> list[str]:
    return __all__


def batch(
    f: Callable[..., Any], inputs: PyTree, batch: Sequence[int] = (0,), *, seed: int = 0
) -> Trials:
    """
    Check that f returns the same for some rows of a batch as for all rows together.

    It is called with the first, a middle and the last row alone, with these three, and with all
    rows in a different order. The order of summation may depend on the size of a batch; mixing of
    rows is a bug.

    Parameters
    ----------
    f : callable
        A function of the inputs. Results without an axis of the length of the batch are ignored.
    inputs : array_like or tuple
        Arguments of f.
    batch : sequence of int, default (0,)
        Positions of the inputs whose first axis is the batch.
    seed : int, default 0
        Seed of the order of rows.

    Returns
    -------
    Trials
        True if all results are equal within rounding; ``.equal`` if they are bitwise equal.

    Raises
    ------
    ValueError
        If there are fewer than two rows, or no result has as many rows.
    TypeError
        If f is not callable.
    Exception
        Whatever f raises at the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> x = np.random.default_rng(0).standard_normal((8, 5))
    >>> bool(probes.batch(lambda x: x - x.mean(1, keepdims=True), x))
    True
    >>> bool(probes.batch(lambda x: x - x.mean(0), x))
    False
    """
    arrays = as_inputs(inputs)
    chosen = tuple(batch) if np.iterable(batch) else (batch,)
    rows = set()
    for k in chosen:
        if not (is_integer(k) and 0 <= k < len(arrays)):
            msg = f"batch must hold positions of the {len(arrays)} inputs, got {k!r}"
            raise ValueError(msg)
        if not isinstance(arrays[k], np.ndarray) or not arrays[k].ndim:
            msg = f"inputs[{k}] must be an array of rows, got {brief(arrays[k])}"
            raise ValueError(msg)
        rows.add(arrays[k].shape[0])
    if len(rows) != 1 or min(rows) < 2:
        got = " and ".join(map(str, sorted(rows))) or "none"
        msg = f"the inputs named by batch={chosen} must have the same number of rows, at least 2; "
        raise ValueError(msg + f"got {got}")
    return compare_batch(f, inputs, chosen, as_integer(seed, "seed") % 2**64)


def layout(f: Callable[..., Any], inputs: PyTree) -> Trials:
    """
    Check that f does not depend on the memory layout of its inputs.

    Its result for inputs in C order is compared with those in column-major order, with gaps between
    elements, and shifted by one element from an aligned address.

    Parameters
    ----------
    f : callable
        A function of the inputs.
    inputs : array_like or tuple
        Arguments of f. Arrays on a device and those of jax are copied once more, and may lose their
        layout.

    Returns
    -------
    Trials
        True if all results are equal within rounding; ``.equal`` if they are bitwise equal.

    Raises
    ------
    ValueError
        If no input is an array.
    TypeError
        If f is not callable.
    Exception
        Whatever f raises at the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> x = np.random.default_rng(0).standard_normal((8, 5))
    >>> probes.layout(np.exp, x).equal
    True
    >>> bool(probes.layout(lambda x: x.ravel("K"), x))
    False
    """
    if not any(isinstance(x, np.ndarray) for x in as_inputs(NestedInputs(as_tuple(inputs)).leaves)):
        msg = f"inputs must hold an array, got {brief(inputs)}"
        raise ValueError(msg)
    return compare_layouts(f, inputs)


def repeat(f: Callable[..., Any], inputs: PyTree, times: int = 3) -> Trials:
    """
    Check that f returns the same result when it is called again.

    Parameters
    ----------
    f : callable
        A function of the inputs.
    inputs : array_like or tuple
        Arguments of f.
    times : int, default 3
        Number of calls. A race condition that shows once in a hundred calls needs hundreds.

    Returns
    -------
    Trials
        A comparison of each call with the first. True if all results are equal within rounding, as
        sums by several threads may be; ``.equal`` if they are bitwise equal.

    Raises
    ------
    ValueError
        If `times` is less than 2.
    TypeError
        If f is not callable.
    Exception
        Whatever f raises at the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> x, noise = np.ones(5), np.random.default_rng(0)
    >>> probes.repeat(np.cumsum, x).equal
    True
    >>> bool(probes.repeat(lambda x: x * (noise.random(5) < 0.5), x))
    False
    """
    if not is_integer(times) or times < 2:
        msg = f"times must be an integer of at least 2, got {times!r}"
        raise ValueError(msg)
    return compare_repeats(f, inputs, times)


def range(f: Callable[..., Any], inputs: PyTree) -> Range:
    """
    Detect overflow and underflow of intermediate results when the final result is representable.

    Results are compared with those in the next higher precision. In addition, inputs are multiplied
    by powers of two: for homogeneous f, ``f(2**k * x)`` equals ``2**(m*k) * f(x)`` exactly, unless
    a number leaves the range.

    Parameters
    ----------
    f : callable
        A function of the inputs that accepts higher precision: float64 for float32 inputs.
    inputs : array_like or tuple
        Arguments of f.

    Returns
    -------
    Range
        True if nothing was lost. A loss that leaves the results finite is only detected if f is
        homogeneous in one of the inputs, or in all together.

    Raises
    ------
    TypeError
        If f is not callable.
    Exception
        Whatever f raises at the inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> probes.range(norm, np.full(2, 1e20, np.float32)).kind
    'OVERFLOW'
    >>> probes.range(norm, np.full(2, 1e-30, np.float32)).kind
    'UNDERFLOW'
    >>> probes.range(norm, np.full(2, 3.0, np.float32)).kind
    'FITS'
    """
    return find_range_loss(f, inputs)


def condition(f: Callable[..., Any] | ArrayLike, inputs: PyTree | None = None) -> Condition:
    """
    Compute the condition number of a function or a matrix, and the digits that it leaves.

    Parameters
    ----------
    f : callable or array_like
        A function of the inputs, which are perturbed at random by one ulp each; or a matrix, whose
        singular values are computed.
    inputs : array_like or tuple, optional
        Arguments of the function; omitted for a matrix.

    Returns
    -------
    Condition
        The condition number and the number of decimal digits that remain. For a matrix, also the
        gaps between its singular values, and between its eigenvalues if it is Hermitian.

    Raises
    ------
    TypeError
        If `f` is a function and `inputs` is missing, or a matrix and `inputs` is passed.
    ValueError
        If a matrix has no elements, is not 2-D, or holds NaN or infinities; if no result of `f` is
        finite, or all inputs are integers or 0.
    Exception
        Whatever f raises at the inputs.

    Notes
    -----
    The condition number of a function is that of all results together, by norms. It does not show
    cancellation in a small result next to large ones.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> x = np.array([1.0, 1.0 + 2**-20])
    >>> probes.condition(lambda x: x[1] - x[0], x).kappa > 1e6
    True
    >>> f"{probes.condition(np.array([[1.0, 1.0], [1.0, 1.0 + 1e-10]])).digits:.1f}"
    '5.4'
    """
    if callable(f):
        if inputs is None:
            msg = "inputs are missing: pass the arguments that f is called with"
            raise TypeError(msg)
        return function_condition(f, inputs)
    if inputs is not None:
        msg = f"f must be callable if inputs are passed, got {type(f).__name__}: {brief(f)}"
        raise TypeError(msg)
    return matrix_condition(f)


def exact(
    f: Callable[..., Any],
    g: Callable[..., Any],
    inputs: PyTree,
    *,
    dtype: DTypeLike = np.float32,
    seed: int = 0,
) -> Exact:
    """
    Check that two functions that sum products agree exactly at inputs from -1, 0 and 1.

    All partial sums are then integers, and exact in any order as long as they are below ``1/u``:
    2**24 in float32, 256 in bfloat16. A difference is not due to rounding. For complex inputs, both
    parts are from -1, 0 and 1.

    Parameters
    ----------
    f, g : callable
        Functions of the same inputs, linear in each of them.
    inputs : tuple
        For each input its shape, a tuple, or an array of its shape, dtype and library. Integers and
        flags are passed through. A single shape may be passed alone.
    dtype : dtype_like, default numpy.float32
        Dtype of the inputs that are passed as shapes.
    seed : int, default 0
        Seed of the inputs.

    Returns
    -------
    Exact
        True if all results are equal.

    Raises
    ------
    ValueError
        If there is neither a shape nor an array.
    TypeError
        If f or g is not callable, or `dtype` is not a floating-point dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> def loops(a, b):
    ...     return np.array([[sum(row * column) for column in b.T] for row in a])
    >>> bool(probes.exact(np.matmul, loops, [(8, 100), (100, 3)]))
    True
    >>> bool(probes.exact(np.matmul, lambda a, b: a[:, 1:] @ b[1:], [(8, 100), (100, 3)]))
    False
    """
    return compare_exact(f, g, inputs, dtype, as_integer(seed, "seed"))


def summation_order(
    f: Callable[..., Any], n: int, *, dtype: DTypeLike = np.float32
) -> SummationOrder:
    """
    Find the order in which a function sums n elements.

    The function is called with ones, except for one huge number and its opposite. Ones that are
    added before these two cancel are lost, and those that are added later are counted [1]_.

    Parameters
    ----------
    f : callable
        A function of an array of n elements that returns their sum or a multiple of it, such as the
        mean.
    n : int
        Number of elements.
    dtype : {float32, float64}, default numpy.float32
        Dtype of the array.

    Returns
    -------
    SummationOrder
        The tree of additions. ``print(order)`` and ``order.plot()`` show it; ``order.depth`` is the
        largest number of roundings of an element.

    Raises
    ------
    ValueError
        If f is not a sum of its elements, or has no order, such as `math.fsum`.
    TypeError
        If f is not callable, or does not return one real number.
    Exception
        Whatever f raises.

    Notes
    -----
    It takes about ``n*log(n)`` calls for most orders, and ``n**2`` at worst.

    References
    ----------
    .. [1] P. Xie et al., FPRev, 2024, arXiv:2411.00442.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> probes.summation_order(lambda x: np.cumsum(x)[-1], 8).depth
    7
    >>> probes.summation_order(np.sum, 1024).depth
    21
    """
    if not is_integer(n) or n < 1:
        msg = f"n must be a positive integer, got {n!r}"
        raise ValueError(msg)
    form = name_of(dtype, ("float32", "float64"))
    if form not in ("float32", "float64"):
        msg = f"dtype must be float32 or float64, got {form:.60}: other dtypes count too few ones"
        raise ValueError(msg)
    return find_summation_order(f, n, form)


def layers(
    fs: Sequence[tuple[str, Callable[..., Any]]] | Callable[..., Any],
    gs: Sequence[tuple[str, Callable[..., Any]]] | Callable[..., Any],
    x: PyTree,
) -> Layers:
    """
    Find the first layer at which two models, or chains of functions, differ without explanation.

    Each layer of g is also called with the results of the layers of f, which separates the error of
    a layer from the errors of its inputs.

    Parameters
    ----------
    fs, gs : sequence of (str, callable), or torch modules
        The layers in their order, as pairs of a name and a function. A layer is called with the
        result of the one before; if that is a tuple, with its items as arguments. Both must have
        the same number of layers. Errors are measured in units of the expected rounding error of g.
        Of two torch modules with the same structure, every submodule is a layer, and `diagnose`
        judges it: a lower precision explains a difference as well.
    x : array_like or tuple
        The input of the first layer, or a tuple of its arguments.

    Returns
    -------
    Layers
        True if the errors of all layers are rounding errors; ``.first`` is the first layer whose
        error is not.

    Raises
    ------
    ValueError
        If there are no layers, or their numbers differ.
    TypeError
        If a layer is not a pair of a name and a callable.
    Exception
        Whatever a layer raises.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> good = [("scale", lambda x: 3 * x), ("center", lambda x: x - x.mean()), ("exp", np.exp)]
    >>> bad = [good[0], ("center", lambda x: x - 1.001 * x.mean()), good[2]]
    >>> probes.layers(bad, good, np.linspace(0, 1, 5)).first.name
    'center'
    """
    return compare_layers(fs, gs, x)
