"""Formulas in multiple precision, with derivatives by forward mode.

A formula is a Python expression of ``x`` and of the functions of a namespace. `FLOATING` evaluates
it in the precision of x, `EXACT` in mpmath's, where `Dual` numbers carry the partial derivatives.
Constants are literals. Those of a float32 formula are float32 numbers, so that both namespaces
evaluate the same function.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
from scipy import special

# Formulas cancel up to 30 digits of a result at most; float64 needs 16 of what is left.
DIGITS = 60
mp = mpmath.MPContext()
mp.dps = DIGITS

Namespace = dict[str, Callable[..., Any]]


class Dual:
    """A number with its partial derivatives with respect to the inputs."""

    __slots__ = ("partials", "value")

    def __init__(self, value: Any, partials: Sequence[Any]) -> None:
        self.value = value
        self.partials = partials

    def through(self, value: Any, slope: Any) -> "Dual":
        """Return a function of this number, from its value and derivative there."""
        return Dual(value, [slope * d if d else d for d in self.partials])

    def __neg__(self) -> "Dual":
        return Dual(-self.value, [-d for d in self.partials])

    def __add__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            sums = [a + b for a, b in zip(self.partials, other.partials, strict=True)]
            return Dual(self.value + other.value, sums)
        return Dual(self.value + other, self.partials)

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Dual":
        return self + -other

    def __rsub__(self, other: Any) -> "Dual":
        return -self + other

    def __mul__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            a, b = self.value, other.value
            pairs = zip(self.partials, other.partials, strict=True)
            return Dual(a * b, [(b * d if d else d) + (a * e if e else e) for d, e in pairs])
        return self.through(self.value * other, mp.convert(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            return self * (1 / other)
        return self.through(self.value / other, 1 / mp.convert(other))

    def __rtruediv__(self, other: Any) -> "Dual":
        inverse = 1 / self.value
        return self.through(other * inverse, -other * inverse * inverse)


def _lifted(function: Callable[[Any], Any], derivative: Callable[[Any, Any], Any]) -> Any:
    """Return a function of numbers and of dual numbers; `derivative` takes x and f(x)."""

    def lifted(u: Any) -> Any:
        x = u.value if isinstance(u, Dual) else mp.convert(u)
        value = function(x)
        if not mp.isfinite(value) or isinstance(value, mp.mpc):
            raise ValueError("the formula is not defined here")
        return u.through(value, derivative(x, value)) if isinstance(u, Dual) else value

    return lifted


def _cbrt(x: Any) -> Any:
    return mp.sign(x) * mp.cbrt(abs(x))


def _composed(names: Namespace) -> Namespace:
    """Add functions that are written by others, as programs write them."""
    sin, cos, exp = names["sin"], names["cos"], names["exp"]

    def sigmoid(u: Any) -> Any:
        return 1 / (1 + exp(-u))

    more: Namespace = {
        "sigmoid": sigmoid,
        "square": lambda u: u * u,
        "cube": lambda u: u * u * u,
        "reciprocal": lambda u: 1 / u,
        "gaussian": lambda u: exp(-(u * u)),
        "sinc": lambda u: sin(u) / u,
        "bump": lambda u: sigmoid(u + 0.5) - sigmoid(u - 0.5),
        "versine": lambda u: (1 - cos(u)) / (u * u),
    }
    return {**names, **more}


def _exact_names() -> Namespace:
    exp = _lifted(mp.exp, lambda x, y: y)
    log = _lifted(mp.log, lambda x, y: 1 / x)
    log1p = _lifted(mp.log1p, lambda x, y: 1 / (1 + x))
    sqrt = _lifted(mp.sqrt, lambda x, y: 1 / (2 * y))
    names: Namespace = {
        "sin": _lifted(mp.sin, lambda x, y: mp.cos(x)),
        "cos": _lifted(mp.cos, lambda x, y: -mp.sin(x)),
        "tan": _lifted(mp.tan, lambda x, y: 1 + y * y),
        "exp": exp,
        "log": log,
        "sqrt": sqrt,
        "cbrt": _lifted(_cbrt, lambda x, y: 1 / (3 * y * y)),
        "tanh": _lifted(mp.tanh, lambda x, y: 1 - y * y),
        "arctan": _lifted(mp.atan, lambda x, y: 1 / (1 + x * x)),
        "arcsinh": _lifted(mp.asinh, lambda x, y: 1 / mp.sqrt(1 + x * x)),
        "sinh": _lifted(mp.sinh, lambda x, y: mp.cosh(x)),
        "cosh": _lifted(mp.cosh, lambda x, y: mp.sinh(x)),
        "expm1": _lifted(mp.expm1, lambda x, y: 1 + y),
        "log1p": log1p,
        "erf": _lifted(mp.erf, lambda x, y: 2 / mp.sqrt(mp.pi) * mp.exp(-x * x)),
        "softplus": lambda u: log1p(exp(u)),
        "power": lambda u, p: exp(p * log(u)),
        "hypot": lambda u, v: sqrt(u * u + v * v),
        "logaddexp": lambda u, v: u + log1p(exp(v - u)),
    }
    return _composed(names)


def _floating_names() -> Namespace:
    same = ("sin", "cos", "tan", "exp", "log", "sqrt", "cbrt", "tanh", "arctan", "arcsinh", "sinh")
    names: Namespace = {
        name: getattr(np, name)
        for name in (*same, "cosh", "expm1", "log1p", "power", "hypot", "logaddexp")
    }
    names |= {"erf": special.erf, "softplus": lambda u: np.logaddexp(0.0, u)}
    return _composed(names)


EXACT = _exact_names()
FLOATING = _floating_names()


class Formula:
    """
    A function of an array, as text.

    Parameters
    ----------
    outputs : sequence of str
        An expression of ``x[0]``, ``x[1]``, ... for each output. With `elementwise` a single one,
        of ``x``.
    dtype : dtype
        float32 or float64. x and all that is computed has it.
    elementwise : bool
        If True, output i is a function of element i.
    """

    def __init__(self, outputs: Sequence[str], dtype: Any, *, elementwise: bool) -> None:
        self.outputs = list(outputs)
        self.dtype = np.dtype(dtype)
        self.elementwise = elementwise
        whole = outputs[0] if elementwise else f"stack([{', '.join(outputs)}])"
        self.text = whole
        code = compile(f"lambda x: {whole}", "<formula>", "eval")
        self._floating = eval(code, {**FLOATING, "stack": np.stack})
        self._exact = eval(
            compile(f"lambda x: [{', '.join(outputs)}]", "<formula>", "eval"), {**EXACT}
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text alone."""
        return _formula, (self.outputs, self.dtype, self.elementwise)

    def __call__(self, x: Any) -> Any:
        """Evaluate in the precision of x."""
        with np.errstate(all="ignore"):
            return self._floating(x)

    def exact(self, x: Sequence[Any]) -> list[Any]:
        """Evaluate in multiple precision, at numbers of mpmath."""
        if self.elementwise:
            return [self._exact(element)[0] for element in x]
        return self._exact(x)

    def exact_jacobian(self, x: Sequence[Any]) -> tuple[list[Any], list[list[Any]]]:
        """Return the outputs and the rows of the Jacobian, in multiple precision."""
        zero, one = mp.mpf(0), mp.mpf(1)
        n = len(x)
        if self.elementwise:
            results = [self._exact(Dual(element, [one]))[0] for element in x]
            rows = [[zero] * n for _ in x]
            for k, result in enumerate(results):
                rows[k][k] = result.partials[0]
            return [result.value for result in results], rows
        unit = [[one if k == j else zero for k in range(n)] for j in range(n)]
        duals = [Dual(element, row) for element, row in zip(x, unit, strict=True)]
        results = self._exact(duals)
        return [y.value for y in results], [list(y.partials) for y in results]


def _formula(outputs: Sequence[str], dtype: Any, elementwise: bool) -> Formula:
    return Formula(outputs, dtype, elementwise=elementwise)
