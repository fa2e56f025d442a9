"""``calipers gradcheck``: is a derivative right?"""

import warnings
from typing import Any

import click

from .functions import errors_in_one_line, function_of, input_options, inputs_of
from .output import echo_report, json_option, user_output


@click.command(short_help="Check a derivative against finite differences.")
@click.argument("function")
@click.option("--jac", metavar="MODULE:NAME", help="The Jacobian, called as jac(*inputs).")
@click.option(
    "--vjp", metavar="MODULE:NAME", help="w times the Jacobian, called as vjp(*inputs, w)."
)
@input_options
@json_option
def gradcheck(
    function: str,
    *,
    jac: str | None,
    vjp: str | None,
    seed: int,
    library: str,
    as_json: bool,
    **inputs: Any,
) -> int:
    """
    Check a derivative against finite differences with error estimates.

    FUNCTION is module:function, or file.py:function. Functions of torch or jax are differentiated
    by their library, with --library, and need no --jac or --vjp. The module is imported, so its
    code runs.

    The status is 0 for the verdict PASS, and 1 for FAIL, NONSMOOTH and INCONCLUSIVE.
    """
    if library == "numpy" and jac is None and vjp is None:
        msg = "pass the derivative by --jac or --vjp, or --library torch or jax"
        raise click.UsageError(msg)
    with user_output(as_json):
        f = function_of(function)
        jac_f, vjp_f = (None if text is None else function_of(text) for text in (jac, vjp))
        arrays = inputs_of(seed=seed, library=library, **inputs)
        import calipers

        with errors_in_one_line(function), warnings.catch_warnings():
            # Of a report that compared nothing, which is an error below.
            warnings.simplefilter("ignore", calipers.CalipersWarning)
            report = calipers.gradcheck(
                f, arrays, jac=jac_f, vjp=vjp_f, seed=seed, raise_exception=False
            )
    if report.vacuous:
        msg = f"nothing was compared: {report.reason}"
        raise click.ClickException(msg)
    return echo_report(report, {"function": function, "jac": jac, "vjp": vjp}, as_json)
