"""What several files check by gradcheck, and how they ask it."""

import numpy as np

import calipers

THREE = np.array([0.5, 1.0, 2.0])
LONG = np.linspace(0.1, 3, 200)
MATRIX = np.array([[1.0, 2.0, 0.5], [0.25, 3.0, -1.0], [4.0, 1.0, 2.0]])


def checked(f, x, **options):
    return calipers.gradcheck(f, x, raise_exception=False, **options)


def sine_vjp(x, w):
    return w * np.cos(x)
