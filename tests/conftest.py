"""Tests that are slow as a kind: `make test` leaves them to `make test-all`."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark checks of the test data, and repetitions of a test with seeds after the first."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if item.nodeid.startswith("tests/data/") or parameters.get("seed", 0) != 0:
            item.add_marker(pytest.mark.slow)
