"""
Single questions to a function: what does its result depend on that it should not?

Each is asked by calling the function, which may be one of NumPy, Numba, torch or jax arrays.
Differences are in *units*: of what moving each input by one rounding of its format, and rounding
the result, does to that result. It is estimated in the next wider format if the function can be
called with that, else from larger moves in its own. Where no input has a format, integers have
none, it is that of the results.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._agreement.conditions import Condition, of_function, of_matrix
from ._agreement.exactness import Exact, of_exact
from ._agreement.inputs import as_inputs
from ._agreement.layers import Layer, Layers, of_layers
from ._agreement.nest import Nest
from ._agreement.ranges import Range, of_range
from ._agreement.summation import SummationOrder, of_summation
from ._agreement.trials import Trial, Trials
from ._agreement.ways import of_batch, of_layout, of_repeats
from ._arguments import as_integer, brief, is_integer
from ._containers import several
from .tolerances import name_of

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
    f: Callable[..., Any], inputs: Any, batch: Sequence[int] = (0,), *, seed: int = 0
) -> Trials:
    """
    Tell whether f gives the same for some rows alone as for these rows among all.

    It is called with the first row, one from the middle, the last; with three; and with all in
    another order. A kernel may choose its order of summation by the size of a batch; one that mixes
    rows is wrong.

    Parameters
    ----------
    f : callable
        A function of the inputs. Results without an axis as long as the batch are not looked at.
    inputs : array_like or tuple
        Its arguments.
    batch : sequence of int, default (0,)
        Which of them have a leading axis of rows.
    seed : int, default 0
        Of the other order.

    Returns
    -------
    Trials
        True if all is equal within rounding; ``equal`` if to the last bit.

    Raises
    ------
    ValueError
        If there are no two rows, or no result has as many.

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
    own = as_inputs(inputs)
    chosen = tuple(batch) if np.iterable(batch) else (batch,)
    rows = set()
    for k in chosen:
        if not (is_integer(k) and 0 <= k < len(own)):
            msg = f"batch must hold positions of the {len(own)} inputs, got {k!r}"
            raise ValueError(msg)
        if not isinstance(own[k], np.ndarray) or not own[k].ndim:
            msg = f"inputs[{k}] must be an array of rows, got {brief(own[k])}"
            raise ValueError(msg)
        rows.add(own[k].shape[0])
    if len(rows) != 1 or min(rows) < 2:
        got = " and ".join(map(str, sorted(rows))) or "none"
        msg = f"the inputs named by batch={chosen} must have the same number of rows, at least 2; "
        raise ValueError(msg + f"got {got}")
    return of_batch(f, inputs, chosen, as_integer(seed, "seed") % 2**64)


def layout(f: Callable[..., Any], inputs: Any) -> Trials:
    """
    Tell whether f depends on how its inputs lie in memory.

    It is called with copies in C order, and compared with that: in column-major order, with gaps
    between elements, and off by one element from where vectors begin.

    Parameters
    ----------
    f : callable
        A function of the inputs.
    inputs : array_like or tuple
        Its arguments. Tensors in host memory share the memory of such copies; what is on a device,
        or of jax, is copied once more and may lose its layout at that.

    Returns
    -------
    Trials
        True if all is equal within rounding; ``equal`` if to the last bit.

    Raises
    ------
    ValueError
        If no input is an array.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> x = np.random.default_rng(0).standard_normal((8, 5))
    >>> print(probes.layout(np.exp, x))
    f of the same numbers in other layouts: equal
      column-major: equal
      every second element of a row: equal
      off by one element in memory: equal
    >>> bool(probes.layout(lambda x: x.ravel("K"), x))
    False
    """
    if not any(isinstance(x, np.ndarray) for x in as_inputs(Nest(several(inputs)).leaves)):
        msg = f"inputs must hold an array, got {brief(inputs)}"
        raise ValueError(msg)
    return of_layout(f, inputs)


def repeat(f: Callable[..., Any], inputs: Any, times: int = 3) -> Trials:
    """
    Tell whether f gives the same when it is called again.

    Parameters
    ----------
    f : callable
        A function of the inputs.
    inputs : array_like or tuple
        Its arguments.
    times : int, default 3
        How often it is called. A race that shows once in a hundred calls needs hundreds.

    Returns
    -------
    Trials
        Of each call beside the first. True if all are equal within rounding, as sums by several
        threads may be; ``equal`` if to the last bit.

    Raises
    ------
    ValueError
        If `times` is less than 2.

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
    return of_repeats(f, inputs, times)


def range(f: Callable[..., Any], inputs: Any) -> Range:
    """
    Tell whether something overflows or underflows in between although the result fits.

    Results are compared with those in the next wider format. And inputs are multiplied by powers of
    two: where f is homogeneous, f(2**k x) = 2**(m k) f(x) to the last bit unless range interferes.

    Parameters
    ----------
    f : callable
        A function of the inputs that can be called in a wider format: float64 for float32.
    inputs : array_like or tuple
        Its arguments.

    Returns
    -------
    Range
        True if nothing was lost. A loss that leaves the results finite is only found where f is
        homogeneous in one of the inputs, or in all.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> def norm(x):
    ...     return np.sqrt(np.sum(x * x))
    >>> print(probes.range(norm, np.full(2, 1e20, np.float32)))
    OVERFLOW: 1 of 1 results are not finite although they fit float32, the first at (); with
    input 0 times 2**-36 the error falls from inf to ... units of rounding
    >>> probes.range(norm, np.full(2, 1e-30, np.float32)).kind
    'UNDERFLOW'
    >>> probes.range(norm, np.full(2, 3.0, np.float32)).kind
    'FITS'
    """
    return of_range(f, inputs)


def condition(f: Any, inputs: Any = None) -> Condition:
    """
    Tell how many digits a result can have, by the condition of a function or of a matrix.

    Parameters
    ----------
    f : callable or array_like
        A function of the inputs, which are moved at random by one rounding each; or a matrix, of
        which singular values are compared.
    inputs : array_like or tuple, optional
        The function's arguments.

    Returns
    -------
    Condition
        The condition and the digits that are left; of a matrix also the gaps between its singular
        values, and its eigenvalues if it is Hermitian.

    Raises
    ------
    TypeError
        If `f` is a function and there are no inputs, or a matrix and there are.
    ValueError
        If a matrix has no elements, not two axes, or NaN or infinities; if no result of `f` is
        finite, or no input can be moved: they are integers or 0.

    Notes
    -----
    Of a function it is that of the results together, by norms: an element that cancels beside large
    ones does not show.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> print(probes.condition(np.array([[1.0, 1.0], [1.0, 1.0 + 1e-10]])))
    condition 4e+10: 5.4 digits of float64 are left
      closest two singular values: 1 of the largest
      closest two eigenvalues: 1 of the largest
    >>> x = np.array([1.0, 1.0 + 2**-20])
    >>> probes.condition(lambda x: x[1] - x[0], x).kappa > 1e6
    True
    """
    if callable(f):
        if inputs is None:
            msg = "inputs are missing: pass the arguments that f is called with"
            raise TypeError(msg)
        return of_function(f, inputs)
    if inputs is not None:
        msg = f"f must be callable where inputs are given, got {type(f).__name__}: {brief(f)}"
        raise TypeError(msg)
    return of_matrix(f)


def exact(
    f: Callable[..., Any],
    g: Callable[..., Any],
    inputs: Any,
    *,
    dtype: Any = np.float32,
    seed: int = 0,
) -> Exact:
    """
    Tell whether two ways to sum products agree at inputs from -1, 0 and 1.

    Of complex inputs both parts are such. Every sum on the way is of integers then, and exact in
    any order, as long as it is below ``1/u``: 2**24 in float32, 256 in bfloat16. What differs is no
    rounding.

    Parameters
    ----------
    f, g : callable
        Functions of the same inputs, each a sum of products: linear in each of them.
    inputs : tuple
        For each input its shape, a tuple; or an array, whose shape, dtype and library are taken,
        and not its numbers. Integers and flags are handed on. One shape may come alone.
    dtype : dtype_like, default float32
        Of the inputs that are given by their shapes.
    seed : int, default 0
        Of the numbers.

    Returns
    -------
    Exact
        True if all results are equal.

    Raises
    ------
    ValueError
        If there is neither a shape nor an array.
    TypeError
        If `dtype` is none of floating-point numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> def loops(a, b):
    ...     return np.array([[sum(row * column) for column in b.T] for row in a])
    >>> print(probes.exact(np.matmul, loops, [(8, 100), (100, 3)]))
    equal: 24 results of inputs from -1, 0, 1 (seed 0)
    >>> bool(probes.exact(np.matmul, lambda a, b: a[:, 1:] @ b[1:], [(8, 100), (100, 3)]))
    False
    """
    return of_exact(f, g, inputs, dtype, as_integer(seed, "seed"))


def summation_order(f: Callable[..., Any], n: int, *, dtype: Any = np.float32) -> SummationOrder:
    """
    Find the order in which a function adds up n elements.

    It is called with ones among which one is huge and one its opposite: what is added before these
    two meet is swallowed, what comes later is counted [1]_.

    Parameters
    ----------
    f : callable
        Of an array of n elements; it returns their sum, or a multiple of that: a mean, say.
    n : int
        How many.
    dtype : {float32, float64}, default float32
        Of the array.

    Returns
    -------
    SummationOrder
        The tree. ``str()`` tells which elements meet when, ``plot()`` draws it, and ``depth``
        bounds the error: no element goes through more roundings.

    Raises
    ------
    ValueError
        If f is no sum of its elements, or has no order: `math.fsum` for instance.
    TypeError
        If f does not return one real number.

    Notes
    -----
    It takes about n log n calls for most orders, n**2 at worst.

    References
    ----------
    .. [1] P. Xie et al., FPRev, 2024, arXiv:2411.00442.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> print(probes.summation_order(lambda x: np.cumsum(x)[-1], 8))
    order of summation of 8 elements: a running sum from the first to the last
      additions an element goes through: 7 at most, 4.38 on average
      element 0 meets 1 in a sum of 2
      element 0 meets 2 in a sum of 3
      element 0 meets 3 in a sum of 4
      element 0 meets 4 in a sum of 5
      element 0 meets 5 in a sum of 6
      element 0 meets 6 in a sum of 7
      and others in larger sums
    >>> probes.summation_order(np.sum, 1024).depth
    21
    """
    if not is_integer(n) or n < 1:
        msg = f"n must be a positive integer, got {n!r}"
        raise ValueError(msg)
    form = name_of(dtype, ("float32", "float64"))
    if form not in ("float32", "float64"):
        msg = f"dtype must be float32 or float64, got {form:.60}: others count too few ones"
        raise ValueError(msg)
    return of_summation(f, n, form)


def layers(
    fs: Sequence[tuple[str, Callable[..., Any]]],
    gs: Sequence[tuple[str, Callable[..., Any]]],
    x: Any,
) -> Layers:
    """
    Find the layer at which two implementations of a chain of functions part.

    Each layer of g is also called with what the layers of f made, so that the errors of a layer
    itself are told from those that came with its inputs.

    Parameters
    ----------
    fs, gs : sequence of (str, callable)
        The layers in their order, as many on both sides: names, and functions of what the layer
        before returned. Errors are measured in units of g's.
    x : array_like or tuple
        The input of the first; both get arrays of its library.

    Returns
    -------
    Layers
        True if the errors of each layer are rounding; ``first`` is the first whose are not.

    Raises
    ------
    ValueError
        If there are no layers, or not as many on both sides.
    TypeError
        If a layer is not a name and a callable.

    Examples
    --------
    >>> import numpy as np
    >>> from calipers import probes
    >>> good = [("scale", lambda x: 3 * x), ("center", lambda x: x - x.mean()), ("exp", np.exp)]
    >>> bad = [good[0], ("center", lambda x: x - 1.001 * x.mean()), good[2]]
    >>> probes.layers(bad, good, np.linspace(0, 1, 5)).first.name
    'center'
    """
    return of_layers(fs, gs, x)
