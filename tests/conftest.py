"""Tests that are left out as a kind: `make test-all` runs the slow, `make test-weekly` the rest."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark checks of the test data, and repetitions of a test with seeds after the first.

    Of a range of seeds the second is slow, and the rest is exhaustive. Seeds that were picked out,
    which differ from their places in the list, are slow.
    """
    for item in items:
        callspec = getattr(item, "callspec", None)
        seed = callspec.params.get("seed", 0) if callspec else 0
        if item.nodeid.startswith("tests/data/"):
            item.add_marker(pytest.mark.exhaustive)
        elif seed != 0:
            is_repetition = seed > 1 and seed == callspec.indices["seed"]
            item.add_marker(pytest.mark.exhaustive if is_repetition else pytest.mark.slow)
