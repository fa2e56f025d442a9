"""Labelled pairs of functions as parameters of tests."""

import pytest


def decided_right(cases, known_wrong):
    """Return a parameter for each case whose verdict is right."""
    return [pytest.param(case, id=case.name) for case in cases if case.name not in known_wrong]


def decided_wrong(cases, known_wrong):
    """Return a parameter for each case whose verdict is wrong today, by some seed at least."""
    return [
        pytest.param(
            case,
            id=case.name,
            marks=[pytest.mark.slow, pytest.mark.xfail(reason=known_wrong[case.name], strict=True)],
        )
        for case in cases
        if case.name in known_wrong
    ]
