"""Warnings at the line that they are about: the caller's, however deep inside it is noticed."""

import sys
import warnings


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called calipers."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "calipers":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
