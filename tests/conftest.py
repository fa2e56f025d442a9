"""Tests that are left out as a kind: `make test-all` runs the slow, `make test-weekly` the rest."""

import pytest

from calipers._core import jit

# Tests are of the kernels. What serves calls that compilation would take longer than has its own.
jit.WORK_TO_COMPILE = 0


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark checks of the test data, and repetitions of a test with seeds after the first.

    Of a range of seeds the second is slow, and the others are exhaustive. Seeds of a list were
    picked out: they are slow.
    """
    for item in items:
        seed = item.callspec.params.get("seed", 0) if hasattr(item, "callspec") else 0
        if item.nodeid.startswith("tests/data/"):
            item.add_marker(pytest.mark.exhaustive)
        elif seed != 0:
            parametrized = {mark.args[0]: mark.args[1] for mark in item.iter_markers("parametrize")}
            is_repetition = seed > 1 and isinstance(parametrized.get("seed"), range)
            item.add_marker(pytest.mark.exhaustive if is_repetition else pytest.mark.slow)
