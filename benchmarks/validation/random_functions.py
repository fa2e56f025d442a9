"""Random smooth functions with exact Jacobians, drawn without knowledge of any checker.

A function is a composition, of depth 1 to 4, of 25 elementary functions, of sums, products and
quotients, of 1 to 4 inputs and 1 to 4 outputs. Inputs vary on length scales of 1e-8 to 1e8, and lie
at 0, within their length scale, or up to 100 length scales from 0. Results have sizes of 1e-8 to
1e8, some of them with an offset of up to 1e6 times the signal, which some subtract again.

Function k of a seed does not depend on the others: ``draw(np.float32, seed, k)``.
"""

import hashlib
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import Claim, Problem
from .exact import FLOATING, Formula, mp

# Unary functions, by where they are defined and smooth.
ENTIRE = (
    *("sin", "cos", "exp", "tanh", "arctan", "arcsinh", "sinh", "cosh", "expm1", "erf"),
    *("sigmoid", "softplus", "square", "cube", "gaussian", "bump"),
)
POSITIVE = ("log", "sqrt", "power")  # smooth for positive numbers
NONZERO = ("reciprocal", "cbrt", "sinc", "versine")  # smooth except at 0
OTHERS = ("tan", "log1p", "hypot")
UNARY = (*ENTIRE, *POSITIVE, *NONZERO, *OTHERS)
# Expressions that are 0 at u = 0, of which digits cancel if u is small.
CANCELLING = ("(exp({u}) - 1)", "log(1 + {u})", "(sqrt(1 + {u}) - 1)", "(1 - 1/(1 + {u}))")


@dataclass(frozen=True)
class Truth:
    """
    A formula at a point.

    Attributes
    ----------
    jacobian : array of shape (m, n)
        Exact at x, rounded to float64.
    noise : array of shape (m,)
        The largest rounding error of an output at nine points within 4 ulp of x; at least half an
        ulp of the output.
    scale : array of shape (m, n)
        The length over which an entry can be measured: the largest of ``s, s/4, s/16, ...`` for
        which a central difference of the exact function with steps of a quarter of it is within 5 %
        of the entry. s is the smaller of ``|x|`` and of the length scale that was drawn. At 0 it is
        this length scale, but at most 1, or the largest input.
    """

    formula: Formula
    x: NDArray
    jacobian: NDArray
    noise: NDArray
    scale: NDArray

    def visibility(self) -> NDArray:
        """Return how far each entry stands above the noise: ``|entry| * scale / noise``."""
        return np.abs(self.jacobian) * self.scale / self.noise[:, None]


class _UndefinedError(ValueError):
    """A formula is undefined, or not smooth, near the point."""


class _Drawing:
    """A formula while it is drawn, with its values at the point."""

    def __init__(self, random: np.random.Generator, dtype: Any) -> None:
        self.random = random
        self.dtype = dtype

    def chance(self, p: float) -> bool:
        return bool(self.random.random() < p)

    def power_of_ten(self, low: float, high: float) -> float:
        return float(10 ** self.random.uniform(low, high))

    def literal(self, value: float) -> str:
        """Return a constant as text, rounded to the working precision."""
        rounded = float(self.dtype(value))
        if not np.finfo(self.dtype).tiny <= abs(rounded) < np.inf:
            raise _UndefinedError
        return repr(rounded)

    def signed(self, low: float, high: float) -> float:
        return float(self.random.uniform(low, high) * self.random.choice([-1, 1]))

    def resized(self, text: str, value: Any) -> tuple[str, Any]:
        """Multiply by a constant if the values are too small or large for most functions."""
        size = float(np.abs(value).max())
        if size > 30 or size < 0.05 or self.chance(0.2):
            if size == 0:
                return text, value
            if size > 30 or self.chance(0.7):
                factor = self.signed(0.2, 4) / size
                return f"({self.literal(factor)}*{text})", self.dtype(factor) * value
        return text, value

    def tree(self, leaves: list[tuple[str, Any]], depth: int) -> tuple[str, Any]:
        """Return an expression of a depth, and its values."""
        if depth == 0:
            return leaves[int(self.random.integers(len(leaves)))]
        if self.chance(0.3):
            left = self.tree(leaves, int(self.random.integers(depth)))
            right = self.tree(leaves, depth - 1)
            return self.binary(left, right)
        text, value = self.tree(leaves, depth - 1)
        return self.unary(text, value, is_leaf=depth == 1)

    def unary(self, text: str, value: Any, *, is_leaf: bool) -> tuple[str, Any]:
        name = str(self.random.choice(UNARY))
        text, value = self.resized(text, value)
        # An input may be as near a singularity as it is small; what is computed may not, since the
        # function would then vary over lengths that nobody knows.
        margin = 0.0 if is_leaf else 0.05
        positive, nonzero = bool(np.all(value > margin)), bool(np.all(np.abs(value) > margin))
        if (name in POSITIVE and not positive) or (name in NONZERO and not nonzero):
            safe = str(self.random.choice(["(1 + square({u}))", "hypot({u}, 0.5)", "cosh({u})"]))
            text, value = self.evaluated(safe.format(u=text), value, text)
        if name == "tan" and not np.all(np.abs(np.cos(value)) > 0.1):
            name = "arctan"
        if name == "log1p" and not np.all(value > -0.9):
            name = "arcsinh"
        if name == "power":
            exponent = self.literal(self.random.choice([-1.5, -0.5, 0.3, 1.7, 2.5]))
            return self.evaluated(f"power({text}, {exponent})", value, text)
        if name == "hypot":
            constant = self.literal(self.power_of_ten(-2, 0.5))
            return self.evaluated(f"hypot({text}, {constant})", value, text)
        return self.evaluated(f"{name}({text})", value, text)

    def binary(self, left: tuple[str, Any], right: tuple[str, Any]) -> tuple[str, Any]:
        (a, u), (b, v) = left, right
        kind = str(self.random.choice(["+", "-", "*", "/", "hypot", "logaddexp"], p=_BINARY))
        with np.errstate(all="ignore"):
            if kind in "+-":
                return f"({a} {kind} {b})", u + v if kind == "+" else u - v
            if kind == "*":
                return f"({a}*{b})", u * v
            if kind == "/":
                b, v = self.resized(b, v)
                if np.all(np.abs(v) > 0.1) and self.chance(0.7):
                    return f"({a}/{b})", u / v
                return f"({a}/(1 + square({b})))", u / (1 + v * v)
            a, u = self.resized(a, u)
            b, v = self.resized(b, v)
            if kind == "hypot" and not np.all(np.hypot(u, v) > 0.05):
                kind = "logaddexp"
            return f"{kind}({a}, {b})", FLOATING[kind](u, v)

    def evaluated(self, text: str, value: Any, argument: str) -> tuple[str, Any]:
        """Evaluate a function of an expression, whose values are known."""
        with np.errstate(all="ignore"):
            result = eval(text.replace(argument, "_u"), {**FLOATING, "_u": value})
        if not np.all(np.isfinite(result)):
            raise _UndefinedError
        return text, result

    def result(self, text: str, value: Any, amplitude: float) -> str:
        """Give an expression a size, and at times an offset or a form in which digits cancel."""
        size = float(np.abs(value).max())
        if not 1e-30 < size < 1e30:
            raise _UndefinedError
        if self.chance(0.12):
            small = self.literal(self.power_of_ten(-8, -0.5) / size)
            text = str(self.random.choice(CANCELLING)).format(u=f"{small}*{text}")
            size = float(small) * size
        amplitude /= size
        text = f"{self.literal(amplitude)}*{text}"
        choice = self.random.random()
        if choice < 0.45:
            offset = self.literal(amplitude * size * self.power_of_ten(-2, 6) * self.signed(1, 1))
            return f"({text} + {offset})" if choice < 0.35 else f"(({text} + {offset}) - {offset})"
        return text


_BINARY = [0.25, 0.15, 0.25, 0.2, 0.07, 0.08]
_POINTS = ("at zero", "near zero", "within", "beyond", "far from zero")


def _drawn(random: np.random.Generator, dtype: Any) -> tuple[Formula, NDArray, NDArray]:
    """Return a formula, a point, and the length scale of each input."""
    d = _Drawing(random, dtype)
    n = int(random.integers(1, 5))
    elementwise = d.chance(0.3)
    m = n if elementwise else int(random.integers(1, 5))
    if elementwise:
        lengths = np.full(n, d.power_of_ten(-8, 8))
    else:
        lengths = np.array([d.power_of_ten(-8, 8) for _ in range(n)])
        if d.chance(0.3):
            lengths[:] = lengths[0]
    ratios, shifts = np.empty(n), np.zeros(n)
    for j in range(n):
        where = str(random.choice(_POINTS, p=[0.05, 0.15, 0.6, 0.1, 0.1]))
        ratios[j] = d.signed(0.1, 3)
        if where == "at zero":
            ratios[j] = 0.0
        elif where == "near zero":
            ratios[j] *= d.power_of_ten(-8, 0)
        elif where == "beyond":
            ratios[j] *= d.power_of_ten(0, 1.5)
        elif where == "far from zero":
            shifts[j] = d.power_of_ten(0, 6 if dtype is np.float64 else 3)
    if elementwise:
        shifts[:] = shifts[0]
    x = ((shifts + ratios) * lengths).astype(dtype)
    factors = (1 / lengths).astype(dtype)
    leaves = []
    for j in range(1 if elementwise else n):
        name, value = ("x", x) if elementwise else (f"x[{j}]", x[j])
        if shifts[j]:
            center = dtype(shifts[j] * lengths[j])
            name, value = f"({name} - {d.literal(center)})", value - center
        leaves.append((f"({name}*{d.literal(factors[j])})", value * factors[j]))
    if not elementwise and n > 1:
        for _ in range(2):  # linear combinations of the inputs
            weights = [d.signed(0.3, 2) for _ in leaves]
            pairs = list(zip(weights, leaves, strict=True))
            total = " + ".join(f"{d.literal(w)}*{text}" for w, (text, _) in pairs)
            leaves.append((f"({total})", sum(dtype(w) * value for w, (_, value) in pairs)))
    outputs = []
    amplitude = d.power_of_ten(-8, 8)
    same_size = d.chance(0.5)
    for _ in range(1 if elementwise else m):
        text, value = d.tree(leaves, int(random.integers(1, 5)))
        outputs.append(d.result(text, value, amplitude if same_size else d.power_of_ten(-8, 8)))
    return Formula(outputs, dtype, elementwise=elementwise), x, lengths


_SMALLEST, _LARGEST = 1e-30, 1e30  # sizes of results and entries, for float32 to hold them


def measured(formula: Formula, x: NDArray, lengths: NDArray) -> Truth:
    """Measure a formula at a point; raise a ValueError if it is not smooth there."""
    exact_x = [mp.mpf(float(element)) for element in x]
    values, rows = formula.exact_jacobian(exact_x)
    jacobian = np.array([[float(entry) for entry in row] for row in rows])
    sizes = np.abs(jacobian[jacobian != 0])
    if not sizes.size or sizes.max() > _LARGEST or sizes.min() < _SMALLEST:
        raise _UndefinedError
    eps = float(np.finfo(formula.dtype).eps)
    noise = np.array([eps / 2 * abs(float(value)) for value in values])
    # Nothing about a zero tells that f varies over more than 1, or than the other inputs.
    size = np.abs(x.astype(float))
    at_zero = np.minimum(lengths, max(1.0, float(size.max())))
    scales = np.where(x == 0, at_zero, np.minimum(size, lengths))
    for k in range(-4, 5):
        near = np.where(x == 0, k * eps * lengths, x * (1 + k * eps)).astype(formula.dtype)
        result = np.asarray(formula(near))
        if result.dtype != formula.dtype or not np.all(np.isfinite(result)):
            raise _UndefinedError
        exact = formula.exact([mp.mpf(float(element)) for element in near])
        pairs = zip(result.tolist(), exact, strict=True)
        noise = np.maximum(noise, [abs(float(value - true)) for value, true in pairs])
    if noise.min() <= 0 or noise.max() > _LARGEST:
        raise _UndefinedError
    return Truth(formula, x, jacobian, noise, _lengths_of_entries(formula, exact_x, rows, scales))


def _lengths_of_entries(formula: Formula, x: list[Any], rows: list[Any], s: NDArray) -> NDArray:
    scale = np.zeros((len(rows), len(x)))
    for j in range(len(x)):
        waiting = {i for i, row in enumerate(rows) if row[j]}
        for level in range(16):
            if not waiting:
                break
            length = float(s[j]) * 4.0**-level
            step = mp.mpf(length / 4)
            try:
                plus = formula.exact([*x[:j], x[j] + step, *x[j + 1 :]])
                minus = formula.exact([*x[:j], x[j] - step, *x[j + 1 :]])
            except (ValueError, ZeroDivisionError):
                continue
            for i in sorted(waiting):
                slope = (plus[i] - minus[i]) / (2 * step)
                if abs(slope - rows[i][j]) <= abs(rows[i][j]) / 20:
                    scale[i, j] = length
                    waiting.remove(i)
    return scale


def draw(dtype: Any, seed: int, index: int) -> Truth:
    """Return random function `index` of a seed, at a random point, with its exact Jacobian."""
    random = np.random.default_rng([seed, index, np.dtype(dtype).itemsize])
    while True:
        try:
            with np.errstate(all="ignore"):
                return measured(*_drawn(random, dtype))
        except (ValueError, ZeroDivisionError, OverflowError):
            continue


# Relative mistakes of one entry: a hundred times gradcheck's default tolerance in float64, and four
# times that in float32.
MISTAKES = {"float64": 1e-4, "float32": 2e-2}
ENTRY = 1000.0  # An entry is visible if it stands this many times above the noise of its output.
CHANGE = 10.0  # A mistake is decidable if its change of the output is this many times the noise.
CLEAR = 1000.0  # A mistake is clear if its change of the output is this many times the noise.


# gradcheck's default tolerances. It compares entries that are below this share of the largest of
# their row, and of their column, with the smaller of these (docs/gradcheck_method.md).
NEGLIGIBLE = {"float64": 1e-6, "float32": 5e-3}


def _subsets(visibility: float, relative: float) -> tuple[str, ...]:
    limits = {"visible": ENTRY, "decidable": CHANGE / relative, "clear": CLEAR / relative}
    return ("all", *(name for name, limit in limits.items() if visibility >= limit))


def problem(truth: Truth, seed: int, index: int) -> Problem:
    """Return the checks of a function: its exact Jacobian, and a mistake in one entry."""
    dtype = truth.formula.dtype
    random = np.random.default_rng([seed, index, 1])
    relative = MISTAKES[dtype.name]
    visibility = truth.visibility()
    entries = np.argwhere(truth.jacobian != 0)
    weakest = min(float(visibility[i, j]) for i, j in entries)
    i, j = entries[random.integers(len(entries))]
    sizes = np.abs(truth.jacobian)
    floor = NEGLIGIBLE[dtype.name] * min(sizes[i].max(), sizes[:, j].max())
    subsets_of_mistake = _subsets(float(visibility[i, j]), relative)
    if sizes[i, j] <= floor:
        subsets_of_mistake = ("all",)
    wrong = truth.jacobian.copy()
    wrong[i, j] *= 1 + relative * random.choice([-1, 1])
    claims = [
        Claim("right", truth.jacobian.astype(dtype), _subsets(weakest, relative)),
        Claim("mistake", wrong.astype(dtype), subsets_of_mistake),
    ]
    subsets = [[_subsets(float(v), relative) for v in row] for row in visibility]
    name = f"random{8 * dtype.itemsize}:{seed}:{index}"
    return Problem(
        name, truth.formula, truth.x, truth.jacobian, claims, truth.formula.text, subsets
    )


def problems(dtype: Any, seed: int, count: int) -> Iterator[Problem]:
    """Draw `count` functions, which are stored in the folder of temporary files."""
    sources = b"".join(Path(__file__).with_name(name).read_bytes() for name in _SOURCES)
    version = hashlib.sha256(sources).hexdigest()[:12]
    name = f"calipers-validation-{version}-{np.dtype(dtype).name}-{seed}.pickle"
    path = Path(tempfile.gettempdir()) / name
    try:
        truths = pickle.loads(path.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        truths = []
    if len(truths) < count:
        truths += [draw(dtype, seed, index) for index in range(len(truths), count)]
        path.write_bytes(pickle.dumps(truths))
    for index, truth in enumerate(truths[:count]):
        yield problem(truth, seed, index)


_SOURCES = ("exact.py", "random_functions.py")
