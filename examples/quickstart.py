"""One linear layer, computed in two orders of summation: which differences are bugs?"""

import numpy as np

import calipers

ROWS, OUTPUTS, BLOCK = 512, 256, 16


def layer_by_blocks(x, weights, bias):
    """Compute x @ weights.T + bias block by block from the other end, as another machine might."""
    starts = reversed(range(0, x.shape[1], BLOCK))
    return sum(x[:, k : k + BLOCK] @ weights[:, k : k + BLOCK].T for k in starts) + bias


def judged(result, reference, **tolerances):
    """Put a verdict, and the fraction of elements that are not close, into words."""
    verdict = "close" if calipers.allclose(result, reference, **tolerances) else "NOT close"
    apart = 1 - calipers.isclose(result, reference, **tolerances).mean()
    return f"{verdict:<9} {apart:8.2%} apart"


random = np.random.default_rng(0)
print(f"x @ W.T + b in float32, {ROWS} x {OUTPUTS} results, against NumPy's own matmul\n")
print(f"{'inputs':>6}   {'version':<22}{'default tolerance':<24}   atol fitted to float32")
for inputs in (64, 1024, 8192):
    x = random.standard_normal((ROWS, inputs), np.float32)
    weights = random.standard_normal((OUTPUTS, inputs), np.float32) / np.float32(inputs**0.5)
    bias = random.standard_normal(OUTPUTS, np.float32)
    reference = x @ weights.T + bias
    misplaced = reference.copy()
    misplaced[17] = reference[16]
    versions = {
        "another order": layer_by_blocks(x, weights, bias),
        "bug: bias forgotten": layer_by_blocks(x, weights, 0),
        "bug: one row misplaced": misplaced,
    }
    # The rounding errors of a sum add up like a random walk.
    atol = float(np.finfo(np.float32).eps) * inputs**0.5
    for name, result in versions.items():
        default, fitted = judged(result, reference), judged(result, reference, atol=atol)
        print(f"{inputs:>6}   {name:<22} {default:<24}  {fitted}")
    rows = np.flatnonzero(~calipers.allclose(misplaced, reference, atol=atol, axis=1))
    print(f"{'':>9}the misplaced row, found with axis=1: {rows.tolist()}\n")
print("The default atol, 1e-8, takes rounding near zero for a bug; eps * sqrt(inputs) does not.")
