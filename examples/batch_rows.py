"""A batch of results checked row by row: axis= tells which samples are wrong, not only that."""

import numpy as np

import calipers

random = np.random.default_rng(0)
signals = random.standard_normal((1000, 3, 256))  # samples, channels, times
restored = np.fft.irfft(np.fft.rfft(signals))
restored[42, 1, 7] += 1e-3
restored[99, 2] = np.nan

good = calipers.allclose(restored, signals, axis=(1, 2))
assert good.shape == (1000,)
assert np.flatnonzero(~good).tolist() == [42, 99]

# A stricter tolerance for some samples than for others, by broadcasting.
atol = np.where(np.arange(1000) < 50, 1e-2, 1e-8).reshape(1000, 1, 1)
lenient = calipers.allclose(restored, signals, atol=atol, axis=(1, 2))
assert np.flatnonzero(~lenient).tolist() == [99]
print(f"{good.sum()} of {good.size} samples are close; wrong: {np.flatnonzero(~good).tolist()}")
