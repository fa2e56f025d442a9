"""Linear layers and matrix products, in several orders of summation and by several libraries."""

import numba
import numpy as np

from .case import SINGLE, WHOLE, Cases, in_float32, layer, linear, normal, through_torch

CASES = case = Cases()


@case("ROUNDING LAYOUT")
def linear_einsum(rng):
    return linear, lambda x, w, b: np.einsum("ij,kj->ik", x, w) + b, layer(rng)


@case("ROUNDING LAYOUT", "The bias is what the sum starts from, not what is added last.")
def linear_bias_first(rng):
    def g(x, w, b):
        y = np.broadcast_to(b, (len(x), len(b)))
        for k in range(0, x.shape[1], 32):
            y = y + x[:, k : k + 32] @ w[:, k : k + 32].T
        return y

    return linear, g, layer(rng)


@case("ROUNDING LAYOUT")
def linear_split_k(rng):
    def g(x, w, b):
        parts = np.split(np.arange(x.shape[1]), 8)
        return sum(x[:, k] @ w[:, k].T for k in parts) + b

    return linear, g, layer(rng)


@case("LAYOUT EQUAL", "A batch of one takes the same path on both sides; one of 32 may not.")
def linear_row_by_row(rng):
    return linear, lambda x, w, b: np.stack([w @ row + b for row in x]), layer(rng)


@case("ROUNDING LAYOUT")
def linear_in_float64(rng):
    x, w, b = (a.astype(float) for a in layer(rng))

    def g(x, w, b):
        y = b
        for k in range(0, x.shape[1], 2):
            y = y + np.outer(x[:, k], w[:, k]) + np.outer(x[:, k + 1], w[:, k + 1])
        return y

    return linear, g, (x, w, b)


@case("ROUNDING", "g sums in float64 and hands float64 back: a better answer of another type.")
def linear_wide_result(rng):
    def g(x, w, b):
        return linear(x.astype(np.float64), w, b)

    return linear, g, layer(rng)


@numba.njit
def loops(x, w, b):
    y = np.empty((x.shape[0], w.shape[0]), x.dtype)
    for i in range(x.shape[0]):
        for j in range(w.shape[0]):
            total = b[j]
            for k in range(x.shape[1]):
                total += x[i, k] * w[j, k]
            y[i, j] = total
    return y


@case("ROUNDING LAYOUT")
def linear_numba_loops(rng):
    return linear, loops, layer(rng)


@case("ROUNDING LAYOUT EQUAL", needs=("torch",))
def linear_torch_forms(rng):
    import torch

    tensors = tuple(map(torch.from_numpy, layer(rng, inner=512)))
    return torch.nn.functional.linear, lambda x, w, b: x @ w.T + b, tensors


@case("ROUNDING LAYOUT EQUAL", needs=("torch",))
def linear_numpy_against_torch(rng):
    import torch

    return linear, through_torch(torch.nn.functional.linear), layer(rng, inner=512)


@case("ROUNDING LAYOUT", "g refuses float64, and need not be asked.", options=SINGLE)
def linear_for_float32_alone(rng):
    def g(x, w, b):
        if x.dtype != np.float32:
            raise TypeError("a kernel for float32 alone")
        return np.einsum("ij,kj->ik", x, w) + b

    return linear, g, layer(rng)


@case("ROUNDING LAYOUT", "The first side has no float64.", options={"reference": "g"})
def linear_first_for_float32_alone(rng):
    def f(x, w, b):
        return np.einsum("ij,kj->ik", x, w) + b

    return in_float32(f), linear, layer(rng)


@case("ROUNDING LAYOUT", "Neither side has float64, a third has.", options={"reference": linear})
def linear_with_reference(rng):
    def g(x, w, b):
        return np.einsum("ij,kj->ik", x, w) + b

    return in_float32(linear), in_float32(g), layer(rng)


@case("ROUNDING LAYOUT EQUAL", "jax takes float64 for float32.", options=SINGLE, needs=("jax",))
def linear_jax(rng):
    import jax.numpy as jnp

    return linear, lambda x, w, b: jnp.asarray(x) @ jnp.asarray(w).T + b, layer(rng)


def strassen(a, b, smallest=16):
    n = len(a) // 2
    if n < smallest:
        return a @ b
    a11, a12, a21, a22 = a[:n, :n], a[:n, n:], a[n:, :n], a[n:, n:]
    b11, b12, b21, b22 = b[:n, :n], b[:n, n:], b[n:, :n], b[n:, n:]
    m1 = strassen(a11 + a22, b11 + b22)
    m2 = strassen(a21 + a22, b11)
    m3 = strassen(a11, b12 - b22)
    m4 = strassen(a22, b21 - b11)
    m5 = strassen(a11 + a12, b22)
    m6 = strassen(a21 - a11, b11 + b12)
    m7 = strassen(a12 - a22, b21 + b22)
    return np.block([[m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]])


@case("ROUNDING", "Weaker than a product by rows, but small against the norms.", options=WHOLE)
def matmul_strassen(rng):
    return np.matmul, strassen, (normal(rng, 64, 64), normal(rng, 64, 64))


# Processors whose libraries sum in the order of NumPy's loops give equal bits.
@case("EQUAL ROUNDING LAYOUT", options={"batch": (0, 1)})
def matmul_batched(rng):
    inputs = normal(rng, 8, 24, 64), normal(rng, 8, 64, 16)
    return np.matmul, lambda a, b: np.einsum("bij,bjk->bik", a, b), inputs


@case("ROUNDING LAYOUT", options={"reduction": 48 * 48})
def quadratic_form(rng):
    def g(x, a):
        return np.einsum("ij,jk,ik->i", x, a, x)

    return lambda x, a: ((x @ a) * x).sum(axis=1), g, (normal(rng, 32, 48), normal(rng, 48, 48))


@case("ROUNDING", "Gauss: three real products instead of four.", options=WHOLE)
def matmul_complex_three_products(rng):
    def g(a, b):
        k1 = (a.real + a.imag) @ b.real
        k2 = a.real @ (b.imag - b.real)
        k3 = a.imag @ (b.real + b.imag)
        return (k1 - k3) + 1j * (k1 + k2)

    a, b = (normal(rng, 32, 32) + 1j * normal(rng, 32, 32) for _ in range(2))
    return np.matmul, g, (a, b)
