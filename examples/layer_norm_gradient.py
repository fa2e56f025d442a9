"""A compiled layer norm with a backward written by hand: checked, then broken in four ways."""

import numba
import numpy as np

import calipers


@numba.njit
def layer_norm(x, gain):
    """Normalise each row to mean 0 and variance 1, and scale it."""
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        mean = x[i].mean()
        scale = 1 / np.sqrt(((x[i] - mean) ** 2).mean() + 1e-5)
        out[i] = (x[i] - mean) * scale * gain
    return out


@numba.njit
def backward(x, gain, w):
    """Return the gradients by x and by gain."""
    by_x, by_gain = np.empty_like(x), np.zeros_like(gain)
    for i in range(x.shape[0]):
        mean = x[i].mean()
        scale = 1 / np.sqrt(((x[i] - mean) ** 2).mean() + 1e-5)
        normal = (x[i] - mean) * scale
        g = w[i] * gain
        by_x[i] = scale * (g - g.mean() - normal * (g * normal).mean())
        by_gain += w[i] * normal
    return by_x, by_gain


@numba.njit
def without_the_variance(x, gain, w):
    by_x, by_gain = np.empty_like(x), np.zeros_like(gain)
    for i in range(x.shape[0]):
        mean = x[i].mean()
        scale = 1 / np.sqrt(((x[i] - mean) ** 2).mean() + 1e-5)
        g = w[i] * gain
        by_x[i] = scale * (g - g.mean())  # the scale depends on x, too
        by_gain += w[i] * (x[i] - mean) * scale
    return by_x, by_gain


def twice_the_gain(x, gain, w):
    by_x, by_gain = backward(x, gain, w)
    return by_x, 2 * by_gain


def swapped_rows(x, gain, w):
    by_x, by_gain = backward(x, gain, w)
    return by_x[::-1].copy(), by_gain


total = np.zeros(5)


def added_once_more(x, gain, w):
    by_x, by_gain = backward(x, gain, w)
    np.add(total, by_gain, out=total)  # it accumulates into memory that nobody clears
    return by_x, total


random = np.random.default_rng(0)
x, gain = random.standard_normal((3, 5)), random.uniform(0.5, 1.5, 5)

print("the backward that is right:")
print(calipers.gradcheck(layer_norm, (x, gain), vjp=backward))
for wrong in (without_the_variance, twice_the_gain, swapped_rows, added_once_more):
    print(f"\n{wrong.__name__}:")
    print(calipers.gradcheck(layer_norm, (x, gain), vjp=wrong, raise_exception=False))
