"""``calipers diagnose``: why do two implementations differ?"""

from typing import Any

import click

from .._files.errors import printable_lines
from . import DIFFERENT, SAME
from .functions import errors_in_one_line, function_of, input_options, inputs_of


@click.command(short_help="Tell why two implementations differ: rounding, or a bug.")
@click.argument("f")
@click.argument("g")
@input_options
def diagnose(f: str, g: str, *, seed: int, **given: Any) -> int:
    """
    Tell why two implementations of one function differ: rounding, or a bug.

    F and G are module:function, or file.py:function. The modules are imported, so their code runs.

    Status 0 if they are EQUAL or differ by ROUNDING, LAYOUT or AMPLIFIED rounding, 1 if by what
    else.
    """
    sides = function_of(f), function_of(g)
    inputs = inputs_of(seed=seed, **given)
    import calipers

    with errors_in_one_line(f"{f} and {g}"):
        report = calipers.diagnose(*sides, inputs, seed=seed)
    click.echo(printable_lines(str(report)), nl=False)
    return SAME if report else DIFFERENT
