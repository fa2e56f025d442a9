"""Pairs of implementations whose differences are understood, which judge verdicts on others.

A label follows from how the two are written, from the kinds below, and not from any tool's answer;
../test_verdict_cases.py checks what each label claims. Do not edit a case together with a rule that
it judges.

EQUAL             the same bits for these inputs.
ROUNDING          the same function of real numbers, each side as exact as its inputs are.
LAYOUT            ROUNDING, and the bits agree for the same numbers in another memory layout or
                  batch. Accepted beside ROUNDING wherever a side's order of summation depends on
                  these, and asked for where another layout is known to give equal bits.
AMPLIFIED         the same function, but it magnifies a last-place change of its inputs a hundred
                  times or more, or jumps there.
RANGE             the same function, but a value in between overflows or underflows although the
                  result fits: an unlimited exponent would mend it.
NONDETERMINISTIC  a side does not repeat itself.
REDUCED           a side computes in a narrower format than the inputs have.
UNSTABLE          the same function, but a side loses far more than its inputs' last places, by its
                  algorithm.
SUSPECT           within rounding here, yet another function: float64 shows it.
BUG               another function. Where rounding hides the error, SUSPECT is accepted beside it.
RAISES            one side raises an exception for these inputs.
"""

from importlib.util import find_spec

from . import (
    amplified,
    awkward,
    blind,
    bugs,
    equations,
    everyday,
    exact,
    formats,
    held_out,
    linear,
    low_precision_models,
    networks,
    partly,
    ports,
    ranges,
    reductions,
    repeats,
    reported_data,
    reported_formats,
    reported_networks,
    reported_numerics,
    reported_torch,
    reported_verdicts,
    reviewed,
    signals,
    small_bugs,
    solvers,
    statistics,
    transforms,
    unstable,
)
from .case import KINDS, Case

__all__ = [
    "CASES",
    "EVERYDAY",
    "FIELDS",
    "HELD_OUT",
    "KINDS",
    "MODELS",
    "MODELS_WITH_BUGS",
    "REPORTED",
    "REPORTED_VERDICTS",
    "REVIEWED",
    "TRANSFORMS",
    "Case",
]

_THEMES = (
    linear,
    reductions,
    networks,
    solvers,
    amplified,
    unstable,
    ranges,
    formats,
    repeats,
    exact,
    bugs,
    small_bugs,
)

# Without torch or jax the list is shorter.
CASES: tuple[Case, ...] = tuple(
    case for theme in _THEMES for case in theme.CASES if all(map(find_spec, case.needs))
)

# Labelled when the rules were there, without them: never to be tuned on.
HELD_OUT: tuple[Case, ...] = tuple(
    case for case in held_out.CASES if all(map(find_spec, case.needs))
)

# Labelled by reviewers, where the rules of the day were wrong.
REVIEWED: tuple[Case, ...] = tuple(
    case
    for case in (*reviewed.CASES, *blind.CASES, *ports.CASES)
    if all(map(find_spec, case.needs))
)

# Labelled when the rules stood, since users met wrong verdicts on such.
TRANSFORMS: tuple[Case, ...] = tuple(
    case for case in transforms.CASES if all(map(find_spec, case.needs))
)

# Labelled when the rules stood, of fields that the others leave out.
FIELDS: tuple[Case, ...] = tuple(
    case
    for theme in (equations, statistics, signals, awkward, partly)
    for case in theme.CASES
    if all(map(find_spec, case.needs))
)

# Labelled when the rules stood: ports of layers, steps of training, tables, signals and formulas.
EVERYDAY: tuple[Case, ...] = tuple(
    case for case in everyday.CASES if all(map(find_spec, case.needs))
)

# After public reports, labelled before the rules that they judge were written.
REPORTED: tuple[Case, ...] = tuple(
    case
    for theme in (
        reported_networks,
        reported_numerics,
        reported_data,
        reported_formats,
        reported_torch,
    )
    for case in theme.CASES
    if all(map(find_spec, case.needs))
)

# Whole models in a format of few bits: right ones, and with a bug in one layer.
MODELS: tuple[Case, ...] = tuple(
    case for case in low_precision_models.CASES if all(map(find_spec, case.needs))
)
MODELS_WITH_BUGS: tuple[Case, ...] = tuple(
    case for case in low_precision_models.BUGS if all(map(find_spec, case.needs))
)

# Calls of diagnose whose verdict was reported as wrong.
REPORTED_VERDICTS: tuple[Case, ...] = tuple(
    case for case in reported_verdicts.CASES if all(map(find_spec, case.needs))
)
