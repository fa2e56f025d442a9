"""Functions from public reports of derivative checks that went wrong, with their derivatives.

They were written from the reports, without knowledge of the rules that judge them. Right
derivatives are closed forms, which test_reported_derivatives.py checks. Do not edit a case together
with a rule that it judges.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.validation.checks import Claim, Problem


def claims_of(jacobian: Any, factor: float, *, subset: str = "all") -> list[Claim]:
    """Return the right claim, and one in which the largest entry is off by a factor."""
    right = np.asarray(jacobian)
    wrong = right.copy()
    wrong.flat[np.argmax(np.abs(wrong))] *= factor
    return [Claim("right", right, (subset,)), Claim("mistake", wrong, (subset,), f"times {factor}")]


def problem(name: str, f: Any, x: Any, jacobian: Any, claims: Any) -> Problem:
    x = np.asarray(x)
    size = np.size(f(x))
    return Problem(f"reported:{name}", f, x, np.reshape(jacobian, (size, x.size)), claims)


def cotangents_that_are_changed() -> Iterator[Problem]:
    """Products that are right for unit vectors, and round or drop parts of other cotangents."""
    a = np.random.default_rng(1).standard_normal((5, 6))
    x = np.random.default_rng(0).standard_normal(6)

    def right(x, w):
        return (w * np.cos(a @ x)) @ a

    def rounding(x, w):
        """Round the cotangent to 8 bits, as bfloat16 has."""
        mantissa, exponent = np.frexp(w)
        return right(x, np.ldexp(np.round(mantissa * 256), exponent - 8))

    def dropping(x, w):
        return right(x, np.where(np.abs(w) < 0.6, 0, w))

    claims = [
        Claim("right" if vjp is right else "mistake", None, ("all",), f"{vjp.__name__} {fast}", {
            "vjp": vjp, "fast_mode": fast == "fast",
        })
        for vjp in (right, rounding, dropping)
        for fast in ("slow", "fast")
    ]  # fmt: skip
    jacobian = np.cos(a @ x)[:, None] * a
    yield problem("cotangent", lambda x: np.sin(a @ x), x, jacobian, claims)


def float32_tanh() -> Iterator[Problem]:
    """Smooth and in float32; results are small differences of numbers near 1."""
    a = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    s = np.float32(0.01)
    b = (np.tanh(a) - s).astype(np.float32)
    for value in (-0.06, 0.4, 3.0):
        x = np.array([value], np.float32)
        exact = 0.01 * (1 - np.tanh(a.astype(float) + 0.01 * float(x[0])) ** 2)[:, None]
        claims = claims_of(exact.astype(np.float32), 1.1)
        yield problem(f"float32 tanh {value}", lambda x: np.tanh(a + s * x) - b, x, exact, claims)


def transit_light_curves() -> Iterator[Problem]:
    """Box-shaped dips of a star's brightness; 1 is added and subtracted again."""
    for seed, epoch in [(0, 0.0), (0, 2457957.97), (1, 2457957.97), (2, 0.0), (3, 57957.97)]:
        t = np.sort(np.random.default_rng(seed).uniform(0, 30, 400))
        k, s = np.round(t / 3.5), 0.015

        def u(p, t=t, k=k, epoch=epoch):
            return t + epoch - p[0] - p[1] * k

        def dip(p, u=u, s=s):
            return -50 * (np.tanh((u(p) + 0.06) / s) - np.tanh((u(p) - 0.06) / s))

        def residual(p, dip=dip):
            return (1 + 1e-4 * dip(p) - 1) / 1e-4

        p = np.array([epoch + 1e-3, 3.5])
        slope = np.cosh((u(p) + 0.06) / s) ** -2 - np.cosh((u(p) - 0.06) / s) ** -2
        exact = 50 / s * slope[:, None] * np.stack([np.ones_like(k), k], axis=1)
        for name, f in (("dip", dip), ("residual", residual)):
            yield problem(f"transit {name} {seed} {epoch}", f, p, exact, claims_of(exact, 1.01))


def cancelling_formulas() -> Iterator[Problem]:
    """Formulas whose digits cancel where their argument is small."""
    for name, f, slope, at, wrong in [
        ("(1-cos t)/t^2", lambda t: (1 - np.cos(t)) / t**2, -1e-5 / 12, 1e-5, 1.0),
        ("(1-cos t)/t", lambda t: (1 - np.cos(t)) / t, 0.5, 1e-7, 1.0),
        ("(t-sin t)/t^3", lambda t: (t - np.sin(t)) / t**3, -1e-5 / 60, 1e-5, 1.0),
        ("(exp(t)-1)/t", lambda t: (np.exp(t) - 1) / t, 0.5 + 1e-7 / 3, 1e-7, 1.0),
    ]:
        exact = np.array([[slope]])
        claims = [
            Claim("right", exact),
            Claim("mistake", np.array([[wrong]]), label=f"{wrong} for {slope:.3g}"),
        ]
        yield problem(name, f, np.array([at]), exact, claims)


def rounding_functions() -> Iterator[Problem]:
    """Return staircases, with steps longer than the distance to a jump for large x."""
    for x in ([12.3], [1000.3, 2000.6], [-7.49, 100.51]):
        exact = np.zeros((len(x), len(x)))
        claims = [Claim("right", exact), Claim("mistake", np.eye(len(x)), label="straight through")]
        yield problem(f"round {x[0]}", np.round, np.array(x), exact, claims)


def complex_steps_of_functions_that_are_not_analytic() -> Iterator[Problem]:
    x = np.array([1.5, -0.7, 2.2])
    options = {"method": "cs"}

    def product(x):
        return x * np.abs(x)

    def norm(x):
        return np.array([x.conj() @ x])

    half = np.diag(np.abs(x))
    for name, f, exact, wrong in (
        ("x |x|", product, 2 * half, half),
        ("conj(x) x", norm, 2 * x[None, :], np.zeros((1, 3))),
    ):
        claims = [
            Claim("right", exact, ("all",), "cs", options),
            Claim("mistake", wrong, ("all",), "cs", options),
            *claims_of(exact, 1.0001),
        ]
        yield problem(f"complex step {name}", f, x, exact, claims)


def fast_mode_in_float32() -> Iterator[Problem]:
    """Return a convolution of 10 000 numbers, whose Jacobian is never formed."""
    k = np.array([1, -2, 3], np.float32)
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)

    def vjp(x, w):
        correlated = np.correlate(np.pad(w, 1), k, "valid")
        return correlated * (1 - np.tanh(x) ** 2)

    claims = [
        Claim(kind, None, ("all",), f"times {factor}", {
            "vjp": lambda x, w, factor=factor: np.float32(factor) * vjp(x, w), "fast_mode": True,
        })
        for kind, factor in (("right", 1.0), ("mistake", 2.0), ("mistake", 1.1))
    ]  # fmt: skip
    yield Problem(
        "reported:fast float32", lambda x: np.convolve(np.tanh(x), k, "same"), x, None, claims
    )


def gradients_with_kinks() -> Iterator[Problem]:
    """Return gradients of max(x, 0)**2, x |x| and a Huber loss, where their slopes differ."""
    for name, f, at, claimed in [
        ("max(x, 0)^2", lambda x: 2 * np.maximum(x, 0), 0.0, (0.0, 1.0, 2.0)),
        ("x |x|", lambda x: 2 * np.abs(x), 0.0, (-2.0, 0.0, 2.0)),
        ("Huber", lambda x: np.clip(x, -1, 1), 1.0, (0.0, 0.5, 1.0)),
    ]:
        claims = [Claim("kink", np.array([[c]]), label=str(c)) for c in claimed]
        yield Problem(f"reported:gradient of {name}", f, np.array([at]), None, claims)


def models_in_float32() -> Iterator[Problem]:
    """Return a transit at a date of five digits, computed in float64, and in float32."""
    t = 57957 + np.arange(50) * 0.04

    def bump(p):
        return np.exp(-(((t - p[0]) / 0.12) ** 2))

    def model(p):
        return p[1] * (1 + 0.1 * bump(p))

    def rounded(p):
        return model(p).astype(np.float32).astype(float)

    p = np.array([57957.97, 1.0])
    slope = p[1] * 0.1 * bump(p) * 2 * (t - p[0]) / 0.12**2
    exact = np.stack([slope, 1 + 0.1 * bump(p)], axis=1)
    yield problem("model in float64", model, p, exact, claims_of(exact, 1.001))
    yield problem("model in float32", rounded, p, exact, claims_of(exact, 2.0))


def smooth_functions_that_resemble_kinks(count: int) -> Iterator[Problem]:
    """sqrt(x^2 + s^2), softplus and a smooth maximum, at random scales."""
    random = np.random.default_rng(12)
    for index in range(count):
        s, x = 10 ** random.uniform(-9, 3), random.uniform(-3, 3, 1)
        for name, f, exact in [
            ("sqrt", lambda x, s=s: np.sqrt(x * x + s * s), x * s / np.hypot(x * s, s)),
            ("pseudo-Huber", lambda x, s=s: s * s * (np.sqrt(1 + (x / s) ** 2) - 1),
             x * s / np.sqrt(1 + x * x)),
            ("softplus", lambda x, s=s: s * np.logaddexp(0, x / s), 1 / (1 + np.exp(-x))),
            ("smooth maximum", lambda x, s=s: s * np.logaddexp(2 * x / s, -x / s),
             -1 + 3 / (1 + np.exp(-3 * x))),
        ]:  # fmt: skip
            claims = claims_of(exact[None], 1.0001)
            yield problem(f"{name} {index}", f, x * s, exact, claims)
    x, e = np.array([1.5e-6]), 1e-6
    exact = x / np.hypot(x, e)
    claims = claims_of(exact[None], 1.0001)
    yield problem("Charbonnier", lambda x: np.sqrt(x * x + e * e), x, exact, claims)


ROUNDED_INSIDE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "(3 + s sin x) - 3": (lambda x, s: (3 + s * np.sin(x)) - 3, lambda x, s: s * np.cos(x)),
    "exp(s sin x) - 1": (
        lambda x, s: np.exp(s * np.sin(x)) - 1,
        lambda x, s: s * np.cos(x) * np.exp(s * np.sin(x)),
    ),
    "log(1 + s x)": (lambda x, s: np.log(1 + s * x), lambda x, s: s / (1 + s * x)),
    "sqrt(1 + s x) - 1": (
        lambda x, s: np.sqrt(1 + s * x) - 1,
        lambda x, s: s / 2 / np.sqrt(1 + s * x),
    ),
    "1 / (1 + s x) - 1": (lambda x, s: 1 / (1 + s * x) - 1, lambda x, s: -s / (1 + s * x) ** 2),
}


def results_that_are_rounded_inside(count: int) -> Iterator[Problem]:
    """Return float32 functions as in the tests of jax, which round x away: results are small."""
    random = np.random.default_rng(0)
    for name, (f, slope) in ROUNDED_INSIDE.items():
        for index in range(count):
            s = np.float32(10 ** random.uniform(-7, -1))
            x = random.uniform(0.1, 3, 1).astype(np.float32)
            exact = slope(x.astype(float), float(s))[None]
            claims = [Claim("right", exact.astype(np.float32))]
            if s > 1e-2:
                claims.append(Claim("mistake", 2 * exact.astype(np.float32), label="times 2"))
            yield problem(f"{name} {index}", lambda x, f=f, s=s: f(x, s), x, exact, claims)


def torch_functions() -> Iterator[Problem]:
    """Functions of torch: their automatic derivatives are the claims."""
    if find_spec("torch") is None:
        return
    import torch

    def tensor(*numbers):
        return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)

    class StraightThrough(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Square(torch.autograd.Function):
        """Reads the memory of the cotangent, as a kernel does, as if it were contiguous."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * torch.as_strided(g, g.shape, (g.shape[1], 1))

    matrix = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 4))).requires_grad_()
    weights = torch.arange(12.0, dtype=torch.float64).reshape(4, 3)
    for kind, name, f, x in [
        ("right", "torch round", torch.round, tensor(1000.3, 2000.6)),
        ("mistake", "torch straight through", StraightThrough.apply, tensor(1000.3, 2000.6)),
        ("right", "torch minimum of a square", lambda x: ((x - 1) ** 2).sum(), tensor(1.0, 1.0)),
        ("mistake", "torch strides", lambda x: Square.apply(x).t() * weights, matrix),
        ("kink", "torch median", torch.median, tensor(1.0, 1.0, 1.0)),
        ("kink", "torch sort", lambda x: torch.sort(x).values, tensor(1.0, 1.0, 1.0)),
        ("kink", "torch quantile", lambda x: x.quantile(0.5), tensor(1.0, 1.0, 1.0)),
    ]:
        yield Problem(f"reported:{name}", f, x, None, [Claim(kind, None)])


def reported(count: int) -> Iterator[Problem]:
    """Return all cases, with `count` random scales of each family that has some."""
    yield from cotangents_that_are_changed()
    yield from float32_tanh()
    yield from transit_light_curves()
    yield from cancelling_formulas()
    yield from rounding_functions()
    yield from complex_steps_of_functions_that_are_not_analytic()
    yield from fast_mode_in_float32()
    yield from gradients_with_kinks()
    yield from models_in_float32()
    yield from smooth_functions_that_resemble_kinks(count)
    yield from results_that_are_rounded_inside(count)
    yield from torch_functions()
