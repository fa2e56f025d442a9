"""Tests that are slow as a kind: `make test` leaves them to `make test-all`."""

from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark checks of the test data, and repetitions of a test with seeds after the first."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if DATA in item.path.parents or parameters.get("seed", 0) != 0:
            item.add_marker(pytest.mark.slow)
