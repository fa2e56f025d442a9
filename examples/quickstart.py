"""A linear layer: do two results agree, is its gradient right, why do two versions differ?"""

import numpy as np

import calipers

random = np.random.default_rng(0)
x = random.standard_normal((64, 1024), np.float32)
weights = random.standard_normal((32, 1024), np.float32) / 32


def layer(x, weights):
    return x @ weights.T


def layer_by_blocks(x, weights):
    """Sum in another order, as another library or another processor might."""
    return sum(x[:, k : k + 16] @ weights[:, k : k + 16].T for k in range(0, x.shape[1], 16))


def wrong_gradient(x, weights, w):
    """Return the vector-Jacobian product, with the second gradient twice too large."""
    return w @ weights, 2 * w.T @ x


print("1. Do two arrays agree? One row is misplaced:\n")
expected = layer(x, weights)
actual = expected.copy()
actual[17] = expected[16]
print(calipers.compare(actual, expected))

print("\n2. Is a derivative right? One gradient is twice too large:\n")
inputs = random.standard_normal((3, 4)), random.standard_normal((2, 4))
print(calipers.gradcheck(layer, inputs, vjp=wrong_gradient, raise_exception=False))

print("\n3. Why do two implementations differ? One sums in another order:\n")
print("numpy.allclose:", np.allclose(layer_by_blocks(x, weights), expected))
print(calipers.diagnose(layer, layer_by_blocks, (x, weights)))
