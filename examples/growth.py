"""A forum's question: why does x @ W.T + b differ from F.linear, and more so the larger it is?"""

import sys

import numpy as np

import calipers

try:
    import torch
except ImportError:
    torch = None

ROWS, SIZES = 32, [2**k for k in range(12)]  # 1 to 2048
random = np.random.default_rng(0)


def layer(n):
    """Return rows of n numbers, n x n weights and a bias."""
    shapes = (ROWS, n), (n, n), (n,)
    arrays = tuple(random.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return tuple(map(torch.from_numpy, arrays)) if torch else arrays


def by_hand(x, w, b):
    return x @ w.T + b


def loop(x, w, b):
    """Start from the bias, and add one product after the other."""
    x, w, b = map(np.asarray, (x, w, b))
    total = np.tile(b, (len(x), 1))
    for k in range(x.shape[1]):
        total += x[:, k, None] * w[:, k]
    return total


def wrong(x, w, b):
    return by_hand(x, w, 1.001 * b)


others = {"a loop": loop}
if torch:
    others = {"F.linear": torch.nn.functional.linear} | others
for name, other in others.items():
    found = calipers.growth(by_hand, other, layer, SIZES)
    print(f"f is x @ W.T + b, g is {name}:")
    print(found)
    print()
    if "--plot" in sys.argv:
        found.plot().savefig(f"growth_{other.__name__}.png", dpi=120)

first, last = SIZES.index(256), SIZES.index(2048)
of_library, of_loop = (errors[last] / errors[first] for errors in (found.error_f, found.error_g))
print(f"""\
The last column is what the forum drew, and it climbs: for the loop as n to the power \
{found.slopes["totals"]:.1f}.
Most of that is counting. There are {ROWS} n results, each a sum of n products and so of size
sqrt(n): with errors of one rounding each, their sum grows as n to the power 1.5 all the same.

Per element, in roundings of the result, from n = 256 to 2048 the error of the loop grows
{of_loop:.1f} times: that of a running sum of random numbers grows as sqrt(n), 2.8 times. The error
of x @ W.T + b grows {of_library:.1f} times, since it adds in blocks. Both are far below what no sum
exceeds. Where they differ, they have added the same numbers in other orders.""")

x, w, b = layer(SIZES[-1])
y, z = np.asarray(by_hand(x, w, b)), np.asarray(loop(x, w, b))
far = ~calipers.isclose(y, z)
if far.any():
    print(f"""
allclose fails at n = {SIZES[-1]} on {far.sum()} of {y.size} elements, none larger than \
{np.abs(y[far]).max():.2g} where {np.std(y):.2g} is usual.
Their terms have cancelled, and the errors of the terms have not.""")

found = calipers.growth(by_hand, wrong, layer, SIZES[4:])
least = min(found.apart)
print(f"\nA bias that is off by 0.1 % is {least:.0f} roundings or more at all sizes from 16 on.")
