"""Functions of values that tie: order statistics, and eigenvalues and singular values that repeat.

Where more than one value attains a maximum or a median, or an eigenvalue repeats, the derivative
does not exist, although formulas return one. It does exist where the tie does not matter, and near
ties.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from .checks import Claim, Problem


def _selection(n: int, *chosen: int) -> Any:
    """Return rows of a Jacobian that select inputs."""
    return np.eye(n)[list(chosen)]


def order_statistics(seed: int, count: int) -> Iterator[Problem]:
    """Return order statistics of 2 to 6 equal numbers, of sizes 1e-6 to 1e6."""
    for index in range(count):
        random = np.random.default_rng([seed, index, 20])
        n = int(random.integers(2, 7))
        x = np.full(n, random.choice([-1, 1]) * 10 ** random.uniform(-6, 6))
        first, mean = _selection(n, 0), np.full((1, n), 1 / n)
        odd = 2 * (n // 2) + 1
        center, total = np.full(odd, x[0]), np.full((1, odd), 1 / odd)
        for name, f, point, jacobians in [
            ("max", lambda x: x.max()[None], x, (first, mean)),
            ("min", lambda x: x.min()[None], x, (first, mean)),
            ("sort", np.sort, x, (np.eye(n),)),
            ("cumulative maximum", np.maximum.accumulate, x, (np.eye(n), np.eye(n)[[0] * n])),
            ("quantile", lambda x: np.quantile(x, 0.3)[None], x, (first, mean)),
            ("median", lambda x: np.median(x)[None], center, (_selection(odd, 0), total)),
            ("range", lambda x: np.ptp(x)[None], x, (0 * first,)),
        ]:
            if name in ("median", "quantile") and len(point) < 3:
                continue  # the median of two numbers is their mean
            labels = ("selection", "mean")
            pairs = zip(labels, jacobians, strict=False)
            claims = [Claim("kink", jacobian, label=label) for label, jacobian in pairs]
            yield Problem(f"tied:{name} {seed}:{index}", f, point, None, claims)


def ties_that_do_not_matter(seed: int, count: int) -> Iterator[Problem]:
    """Return smooth functions of equal numbers, and order statistics that others decide."""
    for index in range(count):
        random = np.random.default_rng([seed, index, 21])
        n = int(random.integers(2, 7))
        value = random.choice([-1, 1]) * 10 ** random.uniform(-6, 6)
        x = np.full(n, value)
        apart = np.append(x, value + abs(value))
        low = np.concatenate([x, [value - abs(value), value + abs(value)]])
        for name, f, point, jacobian in [
            ("mean", lambda x: x.mean()[None], x, np.full((1, n), 1 / n)),
            ("max of others", lambda x: x.max()[None], apart, _selection(n + 1, n)),
            ("min of others", lambda x: x.min()[None], low, _selection(n + 2, n)),
            ("sum of sorted", lambda x: np.sort(x).sum()[None], x, np.ones((1, n))),
            ("variance", lambda x, v=value: x.var()[None] / v, x, np.zeros((1, n))),
        ]:
            wrong = jacobian.copy()
            wrong[0, 0] += 0.01
            claims = [Claim("right", jacobian), Claim("mistake", wrong, label="by 1 %")]
            yield Problem(f"tied:{name} {seed}:{index}", f, point, jacobian, claims)


def _orthogonal(random: np.random.Generator, n: int) -> Any:
    return np.linalg.qr(random.standard_normal((n, n)))[0]


def _eigenvalues(x: Any) -> Any:
    return np.linalg.eigvalsh((x + x.T) / 2)


def _singular_values(x: Any) -> Any:
    return np.linalg.svd(x, compute_uv=False)


def spectra(seed: int, count: int) -> Iterator[Problem]:
    """Return eigenvalues and singular values: apart, nearly equal, and equal."""
    for index in range(count):
        random = np.random.default_rng([seed, index, 22])
        n = int(random.integers(2, 5))
        gap = 10 ** random.uniform(-12, 0)
        values = np.arange(n, 0, -1.0) + 1  # descending, as singular values are
        values[1] = values[0] - gap
        scale = 10 ** random.uniform(-3, 3)
        q, p = _orthogonal(random, n), _orthogonal(random, n)
        symmetric, general = scale * (q * values) @ q.T, scale * (q * values) @ p.T
        symmetric = (symmetric + symmetric.T) / 2
        lambdas, vectors = np.linalg.eigh(symmetric)
        u, sigma, vt = np.linalg.svd(general)
        by_eigen = np.einsum("ik,jk->kij", vectors, vectors)
        by_svd = np.einsum("ik,kj->kij", u, vt)
        for name, f, x, jacobian, found in [
            ("eigenvalues", _eigenvalues, symmetric, by_eigen, lambdas),
            ("singular values", _singular_values, general, by_svd, sigma),
        ]:
            # Eigenvectors are known to rounding divided by the gap.
            known = gap > 1e-3 and len(found) == n
            kind = "right" if known else "near"
            wrong = jacobian.copy()
            wrong[0] *= 1.01
            claims = [Claim(kind, jacobian), Claim("other", wrong, label="by 1 %")]
            exact = jacobian.reshape(n, n * n) if known else None
            yield Problem(f"tied:{name} {gap:.0e} {seed}:{index}", f, x, exact, claims)
        equal = 2 * scale * np.eye(n)
        selected = np.einsum("ik,jk->kij", np.eye(n), np.eye(n))
        yield Problem(
            f"tied:equal eigenvalues {seed}:{index}", _eigenvalues, equal, None,
            [Claim("kink", selected)],
        )  # fmt: skip
        rotated = 2 * scale * q
        yield Problem(
            f"tied:equal singular values {seed}:{index}", _singular_values, rotated, None,
            [Claim("kink", np.einsum("ik,jk->kij", q, np.eye(n)))],
        )  # fmt: skip
        claims = [Claim("right", q[None]), Claim("mistake", 1.01 * q[None], label="by 1 %")]
        yield Problem(
            f"tied:nuclear norm {seed}:{index}", lambda x: _singular_values(x).sum()[None],
            rotated, q.reshape(1, -1), claims,
        )  # fmt: skip


def torch_functions() -> Iterator[Problem]:
    """Return functions of torch, whose automatic derivatives are the claims."""
    if find_spec("torch") is None:
        return
    import torch

    def ones(*shape: int) -> Any:
        return torch.ones(*shape, dtype=torch.float64, requires_grad=True)

    def double(n: int) -> Any:
        return (2 * torch.eye(n, dtype=torch.float64)).requires_grad_()

    linalg = torch.linalg
    for n in (2, 3, 4):
        cases = [
            ("kink", "max", torch.max, ones(n)),
            ("kink", "amax", torch.amax, ones(n)),
            ("kink", "sort", lambda x: torch.sort(x).values, ones(n)),
            ("kink", "topk", lambda x: torch.topk(x, 1).values, ones(n)),
            ("kink", "cummax", lambda x: torch.cummax(x, 0).values, ones(n)),
            (
                "kink",
                "max_pool",
                lambda x, n=n: torch.nn.functional.max_pool1d(x[None], n),
                ones(n),
            ),
            ("kink", "eigvalsh", linalg.eigvalsh, double(n)),
            ("kink", "eigenvectors", lambda x: linalg.eigh(x).eigenvectors.abs(), double(n)),
            ("kink", "svdvals", linalg.svdvals, double(n)),
            ("kink", "svd", lambda x: linalg.svd(x)[0].abs(), double(n)),
            ("kink", "spectral norm", lambda x: linalg.matrix_norm(x, 2), double(n)),
            ("right", "nuclear norm", lambda x: linalg.matrix_norm(x, "nuc"), double(n)),
            ("right", "sum of eigenvalues", lambda x: linalg.eigvalsh(x).sum(), double(n)),
            ("right", "determinant", linalg.det, double(n)),
            ("right", "logsumexp", lambda x: torch.logsumexp(x, 0), ones(n)),
        ]
        if n > 2:
            cases += [
                ("kink", "median", torch.median, ones(n)),
                ("kink", "quantile", lambda x: x.quantile(0.5), ones(n)),
            ]
        for kind, name, f, x in cases:
            yield Problem(f"tied:torch {name} {n}", f, x, None, [Claim(kind, None)])


def tied(seed: int, count: int) -> Iterator[Problem]:
    """Return all families, each with `count` draws."""
    yield from order_statistics(seed, count)
    yield from ties_that_do_not_matter(seed, count)
    yield from spectra(seed, count)
    yield from torch_functions()
