"""``calipers gradcheck``: is a derivative right?"""

import warnings
from typing import Any

import click

from .._files.errors import printable_lines
from . import DIFFERENT, SAME
from .functions import errors_in_one_line, function_of, input_options, inputs_of


@click.command()
@click.argument("function")
@click.option("--jac", metavar="MODULE:NAME", help="Its derivative: jac(*inputs).")
@click.option(
    "--vjp", metavar="MODULE:NAME", help="vjp(*inputs, w), the product of w with the derivative."
)
@input_options
def gradcheck(
    function: str, *, jac: str | None, vjp: str | None, seed: int, library: str, **given: Any
) -> int:
    """
    Check a derivative against differences that know their error.

    FUNCTION is module:function, or file.py:function. Functions of torch or jax are differentiated
    by their library, with --library, and need no --jac or --vjp. The module is imported, so its
    code runs.

    The verdict is PASS (status 0), or FAIL, NONSMOOTH or INCONCLUSIVE (status 1).
    """
    if library == "numpy" and jac is None and vjp is None:
        msg = "give the derivative by --jac or --vjp, or the --library that has it"
        raise click.UsageError(msg)
    f = function_of(function)
    own_jac, own_vjp = (None if text is None else function_of(text) for text in (jac, vjp))
    inputs = inputs_of(seed=seed, library=library, **given)
    import calipers

    with errors_in_one_line(function), warnings.catch_warnings():
        # Of a report that compared nothing, which is said below.
        warnings.simplefilter("ignore", calipers.CalipersWarning)
        report = calipers.gradcheck(
            f, inputs, jac=own_jac, vjp=own_vjp, seed=seed, raise_exception=False
        )
    if report.vacuous:
        msg = f"nothing was compared: {report.reason}"
        raise click.ClickException(msg)
    click.echo(printable_lines(str(report)), nl=False)
    return SAME if report else DIFFERENT
