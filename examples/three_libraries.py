"""One softmax by numpy, torch and jax: their arrays are compared where they lie, uncopied."""

import sys

import numpy as np

import calipers

try:
    import jax
    import torch
except ImportError as error:
    sys.exit(f"This example compares three libraries, and one is missing: {error}.")

x = np.random.default_rng(0).standard_normal((100, 1000), dtype=np.float32)
powers = np.exp(x - x.max(axis=1, keepdims=True))
by_numpy = powers / powers.sum(axis=1, keepdims=True)
by_torch = torch.softmax(torch.from_numpy(x), dim=1)
by_jax = jax.nn.softmax(x, axis=1)

assert calipers.allclose(by_torch, by_numpy)
assert calipers.allclose(by_jax, by_numpy)
assert calipers.allclose(by_torch, by_jax)
assert not calipers.allclose(by_torch, by_jax * 1.001)

# A mask comes back in the library of the arrays.
assert isinstance(calipers.isclose(by_torch, by_numpy), torch.Tensor)
assert isinstance(calipers.isclose(by_jax, by_numpy), jax.Array)
print(f"numpy, torch and jax agree in all {x.size} elements of a softmax")
