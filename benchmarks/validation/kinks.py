"""Functions with kinks at the point or near it, and smooth ones that resemble them.

With ``v = (x - c) / L`` a kink lies at ``x == c`` exactly. L is 1e-8 to 1e8. Claims at a kink are
the slopes of both sides and their mean; near it, at 1e-9 to 1e-2 of x or of L, the right derivative
and the slope of the other side.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .checks import Claim, Problem


class Kinked(NamedTuple):
    """A function of v with a kink at 0, and its derivatives on the left and on the right."""

    name: str
    f: Callable[[Any], Any]
    left: Callable[[Any], Any]
    right: Callable[[Any], Any]


def _constant(slope: float) -> Callable[[Any], Any]:
    return lambda v: slope + 0 * v


def kinked(random: np.random.Generator) -> Kinked:
    """Draw a function with a kink."""
    k = float(random.choice([-1, 1]) * random.uniform(1.2, 3))
    weak = float(10 ** random.uniform(-3, 0))
    t = float(random.uniform(-2, 2))
    large, small = max(1.0, k), min(1.0, k)
    families = [
        Kinked("abs", np.abs, _constant(-1), _constant(1)),
        Kinked("relu", lambda v: np.maximum(v, 0), _constant(0), _constant(1)),
        Kinked("leaky relu", lambda v: np.where(v > 0, v, v / 64), _constant(1 / 64), _constant(1)),
        Kinked("piecewise", lambda v: np.where(v < 0, v, k * v), _constant(1), _constant(k)),
        Kinked("clip", lambda v: np.clip(v, -10, 0), _constant(1), _constant(0)),
        Kinked(
            "elu", lambda v: np.where(v > 0, v, k * np.expm1(np.minimum(v, 0))),
            lambda v: k * np.exp(v), _constant(1),
        ),
        Kinked(
            "maximum", lambda v: np.maximum(np.tanh(v), k * v),
            lambda v: 1 - np.tanh(v) ** 2 if small == 1 else k + 0 * v,
            lambda v: 1 - np.tanh(v) ** 2 if large == 1 else k + 0 * v,
        ),
        Kinked(
            "sin + abs", lambda v: np.sin(v + t) + weak * np.abs(v),
            lambda v: np.cos(v + t) - weak, lambda v: np.cos(v + t) + weak,
        ),
        Kinked(
            "exp + relu", lambda v: np.exp(v + t) + weak * np.maximum(v, 0),
            lambda v: np.exp(v + t), lambda v: np.exp(v + t) + weak,
        ),
        Kinked(
            "tanh(abs)", lambda v: np.tanh(np.abs(v)),
            lambda v: np.tanh(v) ** 2 - 1, lambda v: 1 - np.tanh(v) ** 2,
        ),
    ]  # fmt: skip
    return families[int(random.integers(len(families)))]


def _centered(random: np.random.Generator, dtype: Any) -> tuple[float, NDArray]:
    """Return a length scale and a center."""
    length = float(10 ** random.uniform(-8, 8))
    ratio = 0.0 if random.random() < 0.2 else random.choice([-1, 1]) * random.uniform(0.1, 3)
    return float(dtype(length)), np.array([ratio * length], dtype)


def _scaled(random: np.random.Generator, dtype: Any) -> tuple[Any, Any]:
    """Return the amplitude of a function and an offset that is added to it."""
    amplitude = dtype(10 ** random.uniform(-3, 3))
    has_offset = random.random() < 0.3
    return amplitude, dtype(amplitude * 10 ** random.uniform(-1, 2) if has_offset else 0)


def _function(g: Any, center: Any, length: float, amplitude: Any, offset: Any) -> Any:
    """Return ``amplitude * g(v) + offset``, which computes in the precision of x."""

    def f(x: Any) -> Any:
        v = (x - center) / x.dtype.type(length)
        return (amplitude * g(v) + offset).astype(x.dtype)

    return f


def _subsets(f: Any, x: NDArray, jump: float, length: float) -> tuple[str, ...]:
    """Return "clear" if a difference of slopes stands 1000 times above the rounding of f."""
    scale = min(abs(float(x[0])) or length, length)
    noise = float(np.finfo(x.dtype).eps) * float(np.abs(f(x)).max())
    return ("all", "clear") if abs(jump) * scale >= 1000 * noise else ("all",)


def at_kinks(dtype: Any, seed: int, count: int) -> Iterator[Problem]:
    """Return functions at their kinks."""
    for index in range(count):
        random = np.random.default_rng([seed, index, 10])
        shape = kinked(random)
        length, x = _centered(random, dtype)
        amplitude, offset = _scaled(random, dtype)
        f = _function(shape.f, x.copy(), length, amplitude, offset)
        left, right = float(shape.left(0.0)), float(shape.right(0.0))
        unit = float(amplitude) / length
        subsets = _subsets(f, x, (right - left) * unit, length)
        claims = [
            Claim("kink", np.array([[slope * unit]], dtype), subsets, label)
            for label, slope in (("left", left), ("right", right), ("mean", (left + right) / 2))
        ]
        name = f"kinks:{np.dtype(dtype).name} at {seed}:{index}"
        text = f"{shape.name}, left {left * unit:.6g}, right {right * unit:.6g}"
        yield Problem(name, f, x, None, claims, text)


def near_kinks(dtype: Any, seed: int, count: int) -> Iterator[Problem]:
    """Return functions at points near their kinks."""
    lowest = -9 if dtype is np.float64 else -5
    for index in range(count):
        random = np.random.default_rng([seed, index, 11])
        shape = kinked(random)
        length, center = _centered(random, dtype)
        amplitude, offset = _scaled(random, dtype)
        if center[0] == 0:
            offset = dtype(0)  # whose rounding would hide the values at small x
        size = max(abs(float(center[0])), length)
        distance = 10 ** random.uniform(lowest, -2) * size * random.choice([-1, 1])
        x = (center + dtype(distance)).astype(dtype)
        v = float((x - center)[0]) / length
        if v == 0:
            continue
        f = _function(shape.f, center, length, amplitude, offset)
        here, other = (shape.right, shape.left) if v > 0 else (shape.left, shape.right)
        unit = float(amplitude) / length
        exact = np.array([[float(here(v)) * unit]])
        wrong = np.array([[float(other(v)) * unit]], dtype)
        subsets = _subsets(f, x, float(exact[0, 0] - wrong[0, 0]), length)
        claims = [
            Claim("near", exact.astype(dtype), subsets),
            Claim("other", wrong, subsets, "the slope of the other side"),
        ]
        name = f"kinks:{np.dtype(dtype).name} near {seed}:{index}"
        yield Problem(name, f, x, exact, claims, f"{shape.name}, kink at x - {distance:.3g}")


def smooth(random: np.random.Generator) -> tuple[str, Callable[[Any], Any], Callable[[Any], Any]]:
    """Draw a smooth function of w that looks like a kink from afar, and its derivative."""

    def sigmoid(w: Any) -> Any:
        return 1 / (1 + np.exp(-w))

    return [
        ("hypot", lambda w: np.sqrt(w * w + 1), lambda w: w / np.sqrt(w * w + 1)),
        ("softplus", lambda w: np.logaddexp(0, w), sigmoid),
        ("pseudo-Huber", lambda w: np.sqrt(1 + w * w) - 1, lambda w: w / np.sqrt(1 + w * w)),
        ("smooth maximum", lambda w: np.logaddexp(2 * w, -w), lambda w: -1 + 3 * sigmoid(3 * w)),
        ("w tanh(w)", lambda w: w * np.tanh(w), lambda w: np.tanh(w) + w / np.cosh(w) ** 2),
        ("log cosh", lambda w: np.log(np.cosh(w)), np.tanh),
    ][int(random.integers(6))]


MISTAKE = {"float64": 1e-3, "float32": 5e-2}


def resembling_kinks(dtype: Any, seed: int, count: int) -> Iterator[Problem]:
    """Return smooth functions within a short length of where they bend, which may be far from 0."""
    name = np.dtype(dtype).name
    for index in range(count):
        random = np.random.default_rng([seed, index, 12])
        kind, g, slope = smooth(random)
        length = float(dtype(10 ** random.uniform(-8, 8)))
        far = 5 if dtype is np.float64 else 2
        shift = 10 ** random.uniform(0, far) if random.random() < 0.5 else 0.0
        center = np.array([shift * length], dtype)
        x = (center + length * random.uniform(-3, 3)).astype(dtype)
        amplitude, offset = _scaled(random, dtype)
        f = _function(g, center, length, amplitude, offset)
        w = float((x - center)[0]) / length
        exact = np.array([[float(slope(w)) * float(amplitude) / length]])
        wrong = exact * (1 + MISTAKE[name])
        # Near a zero of the derivative a relative mistake is hidden by the rounding of f.
        claims = [Claim("right", exact.astype(dtype))]
        if abs(float(slope(w))) > 0.05:
            claims.append(Claim("mistake", wrong.astype(dtype), label=f"by {MISTAKE[name]}"))
        yield Problem(f"kinks:{name} smooth {seed}:{index}", f, x, exact, claims, kind)


def kinks(seed: int, count: int) -> Iterator[Problem]:
    """Return `count` functions of each sort, a quarter of them in float32."""
    for dtype, number in ((np.float64, count - count // 4), (np.float32, count // 4)):
        for family in (at_kinks, near_kinks, resembling_kinks):
            yield from family(dtype, seed, number)
