"""Jacobi iteration on a heated plate; allclose is the stopping test, and allocates no array."""

import numpy as np

import calipers

size = 64
plate, previous = np.zeros((2, size, size))
plate[0] = previous[0] = 100.0  # one hot edge

steps = 0
while steps < 20_000:
    steps += 1
    plate, previous = previous, plate
    plate[1:-1, 1:-1] = previous[:-2, 1:-1] + previous[2:, 1:-1]
    plate[1:-1, 1:-1] += previous[1:-1, :-2] + previous[1:-1, 2:]
    plate[1:-1, 1:-1] /= 4
    # Far from the end, the first few elements settle the question.
    if calipers.allclose(plate, previous, rtol=0, atol=1e-6):
        break

# Four plates, each with another hot edge, add up to one that is hot all over.
everywhere = plate + plate[::-1] + plate.T + plate.T[:, ::-1]
assert calipers.allclose(everywhere[1:-1, 1:-1], 100, rtol=1e-3)
print(f"settled after {steps} steps; {everywhere[size // 2, size // 2] / 4:.2f} in the middle")
