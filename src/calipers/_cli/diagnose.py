"""``calipers diagnose``: why do two implementations differ?"""

from typing import Any

import click

from .functions import errors_in_one_line, function_of, input_options, inputs_of
from .output import echo_report, json_option, user_output


@click.command(short_help="Find why two implementations differ: rounding or a bug.")
@click.argument("f")
@click.argument("g")
@input_options
@json_option
def diagnose(f: str, g: str, *, seed: int, as_json: bool, **inputs: Any) -> int:
    """
    Find why two implementations of one function differ: rounding or a bug.

    F and G are module:function, or file.py:function. The modules are imported, so their code runs.

    The status is 0 if they are EQUAL or differ by ROUNDING, LAYOUT or AMPLIFIED rounding, and 1
    for every other verdict.
    """
    with user_output(as_json):
        implementations = function_of(f), function_of(g)
        arrays = inputs_of(seed=seed, **inputs)
        import calipers

        with errors_in_one_line(f"{f} and {g}"):
            report = calipers.diagnose(*implementations, arrays, seed=seed)
    return echo_report(report, {"f": f, "g": g}, as_json)
