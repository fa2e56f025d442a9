"""
The rules by which a verdict is found, in the order in which they are applied.

The first two judge results that cannot be compared number by number. All others may be applied to
any results that can: what an earlier rule excludes is defined where a later one measures it.
"""

from collections.abc import Callable

from .beyond import (
    another_function,
    digits_lost_alike,
    heedless_of_strides,
    hidden_by_larger_results,
    jumps,
    loses_digits,
    steady_difference,
    unstable,
)
from .extremes import better_when_rescaled, flushed, nothing_left, overflow
from .grids import few_digits_left, on_a_grid
from .identical import (
    exact_integers,
    integers_at_ties,
    one_raises,
    other_shapes,
    same_bits,
)
from .inquiry import Inquiry
from .narrower import narrowed_inputs, noise_in_between
from .quantised import quantised_inputs
from .repeats import beside_unsteady, restless_when_moved
from .verdicts import Verdict
from .within import within_rounding
from .without_wider import (
    grows_in_float32,
    outside_by_rounding,
    overflow_alone,
    stays_in_steps,
)

Rule = Callable[[Inquiry], Verdict | None]


def decide(q: Inquiry) -> Verdict:
    """Apply the rules until one decides."""
    for rule in RULES:
        verdict = rule(q)
        if verdict is not None:
            return beside_unsteady(q, verdict)
    raise AssertionError  # the last rule always decides


RULES: tuple[Rule, ...] = (
    one_raises,
    other_shapes,
    same_bits,
    exact_integers,
    restless_when_moved,
    hidden_by_larger_results,
    overflow,
    flushed,
    within_rounding,
    integers_at_ties,
    nothing_left,
    steady_difference,
    heedless_of_strides,
    jumps,
    unstable,
    on_a_grid,
    few_digits_left,
    narrowed_inputs,
    better_when_rescaled,
    digits_lost_alike,
    noise_in_between,
    loses_digits,
    quantised_inputs,
    grows_in_float32,
    outside_by_rounding,
    overflow_alone,
    stays_in_steps,
    another_function,
)
