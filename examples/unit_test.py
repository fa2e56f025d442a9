"""The assertion of a unit test: a closed form against a simulation, and where they first differ."""

import numpy as np

import calipers


def falling(times, gravity=9.81):
    """Return the height lost after each time, the function under test."""
    return gravity * times**2 / 2


def test_falling():
    times = np.linspace(0, 10, 100_001)
    speeds = 9.81 * times
    steps = np.diff(times) * (speeds[1:] + speeds[:-1]) / 2
    simulated = np.concatenate([[0], np.cumsum(steps)])
    assert calipers.allfinite(simulated), calipers.first_nonfinite(simulated)
    # The first heights are tiny: atol=0, lest they be close to anything.
    assert calipers.allclose(falling(times), simulated, rtol=1e-9, atol=0)

    # A wrong constant is found, and so is the first time at which it shows.
    wrong = calipers.isclose(falling(times, gravity=9.80665), simulated, rtol=1e-9, atol=0)
    assert wrong[0]
    assert wrong.argmin() == 1


test_falling()
print("test_falling passed: 100001 heights agree to 9 digits")
