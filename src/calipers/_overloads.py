"""Numba extension entry point."""


def register() -> None:
    """Make allclose and isclose known to Numba."""
