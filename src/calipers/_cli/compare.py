"""``calipers compare``: files and folders of arrays."""

import os
import posixpath
import sys
from typing import TYPE_CHECKING

import click

from .._files import described, one_line
from .output import echo_json, echo_text, json_option
from .status import DIFFERENT, SAME, TROUBLE

if TYPE_CHECKING:
    from .._files.compare import FileOptions
    from .._files.folders import FilesOutcome, Pair

_PATH = click.Path(exists=True)
# Bytes below which a bar would only flash.
_LONG = 64 << 20


def _names(
    ctx: click.Context, option: click.Parameter, patterns: tuple[str, ...]
) -> tuple[str, ...]:
    """Return patterns as names are written: ./a and a/ are a."""
    if "" in patterns:
        msg = "a pattern is empty: write a name, or * for all names"
        raise click.BadParameter(msg)
    return tuple(map(posixpath.normpath, patterns))


@click.command()
@click.argument("actual", type=_PATH)
@click.argument("expected", type=_PATH)
@click.option("--rtol", type=float, help="Relative tolerance, with --atol.  [default: by dtype]")
@click.option("--atol", type=float, help="Absolute tolerance, with --rtol.  [default: by dtype]")
@click.option("--equal-nan", is_flag=True, help="Treat NaN as equal to NaN.")
@click.option(
    "--ignore",
    metavar="PATTERN",
    multiple=True,
    callback=_names,
    help="Leave out a name and all below it, at any depth: pr matches ocean/x.nc/pr. "
    "* is any text, also /. Repeatable.",
)
@click.option("--fail-fast", is_flag=True, help="Stop after the first array that differs.")
@click.option("--follow-links", is_flag=True, help="Follow links out of a folder or a file.")
@click.option(
    "--memory-limit",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    metavar="MIB",
    help="Compare larger arrays part by part, in this much memory.",
)
@json_option
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Draw the worst array that differs, as .png, .pdf, .svg or another of matplotlib's "
    "formats.",
)
@click.option("-q", "--quiet", is_flag=True, help="Write only errors.")
def compare(
    actual: str,
    expected: str,
    *,
    rtol: float | None,
    atol: float | None,
    equal_nan: bool,
    ignore: tuple[str, ...],
    fail_fast: bool,
    follow_links: bool,
    memory_limit: int,
    as_json: bool,
    plot: str | None,
    quiet: bool,
) -> int:
    """
    Compare two files of arrays, or two folders of them.

    \b
    Formats   .npy .npz .safetensors .h5 .hdf5 .nc .zarr .pt .pth .csv .parquet
    Names     of groups and containers are joined by /, after those of folders
              and files: run/model.pt/encoder/weight
    Status    0 the same, 1 different, 2 an error, or something was not compared

    Elements are close if |actual - expected| <= atol + rtol*|expected|. Names on one side only,
    other shapes, other dtypes and other units of netCDF variables are differences. Nothing in a
    file is executed: files that need pickle are refused.
    """
    # Numba reads .numba_config.yaml in the working directory, and unpickles files in the cache
    # folder that it names. Files are compared without user code, which may need such settings.
    os.environ.setdefault("NUMBA_CACHE_DIR", "")
    from .._compare.tolerances import CheckedOptions
    from .._files.compare import FileOptions
    from .._files.folders import pairs_of
    from .output import as_dict, as_text, not_compared

    if (rtol is None) != (atol is None):
        one, other = ("--rtol", "--atol") if atol is None else ("--atol", "--rtol")
        msg = f"{one} needs {other}: pass both, or neither for the default tolerances"
        raise click.UsageError(msg)
    try:
        CheckedOptions(rtol=rtol, atol=atol)
    except ValueError as error:  # once, and not of each pair of files
        msg = f"--{error}"
        raise click.UsageError(msg) from None
    if plot is not None:
        _require_plots(plot)
    options = FileOptions(
        rtol,
        atol,
        equal_nan,
        ignore,
        fail_fast,
        follow_links,
        memory_limit << 20,
        plot is not None,
    )
    pairs, outcome = pairs_of(actual, expected, options)
    _compare(pairs, outcome, options)
    _draw(outcome, plot)
    outcome.notes += _idle(outcome, ignore)
    if outcome.results.left_out:
        outcome.troubles.append(not_compared(list(outcome.results.left_out)))
    elif not outcome.results.leaves and not outcome.troubles:
        nothing = f"nothing was compared: {actual} and {expected} have no arrays"
        outcome.troubles.append(one_line(nothing))
    status = _status(outcome)
    if as_json:
        result = {"actual": actual, "expected": expected, "status": status}
        result |= as_dict(outcome, passed=status == SAME)
        echo_json(result)
    elif not quiet:
        echo_text(as_text(actual, expected, outcome), status)
    for trouble in outcome.troubles:
        click.echo(f"calipers: {trouble}", err=True)
    return status


def _compare(pairs: "list[Pair]", outcome: "FilesOutcome", options: "FileOptions") -> None:
    """Compare all pairs, with a progress bar on a terminal if the files are large."""
    from .._core.jit import compilations
    from .._files.folders import compare_pairs

    total = sum(pair.size for pair in pairs)
    if total < _LONG or not sys.stderr.isatty():
        compare_pairs(pairs, outcome, options, lambda _: None)
        return
    compilations.clears_line = True
    with click.progressbar(length=total, file=sys.stderr, show_eta=True) as bar:
        compare_pairs(pairs, outcome, options, bar.update)


def _status(outcome: "FilesOutcome") -> int:
    if outcome.troubles:
        return TROUBLE
    return DIFFERENT if outcome.results.differs else SAME


def _idle(outcome: "FilesOutcome", patterns: tuple[str, ...]) -> list[str]:
    """Return a note for each pattern that matched no name."""
    from .._files.compare import is_ignored

    if outcome.troubles:
        return []
    matched = outcome.results.ignored
    stopped = outcome.results.stopped
    verb = "matched no name before --fail-fast stopped" if stopped else "matches no name"
    return [
        one_line(f"--ignore {pattern} {verb}")
        for pattern in patterns
        if not any(is_ignored(name, (pattern,)) for name in matched)
    ]


def _require_plots(path: str) -> None:
    """Raise, before files are read, if a plot cannot be drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        msg = "--plot needs matplotlib: pip install matplotlib"
        raise click.UsageError(msg) from None
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        msg = f"--plot {path}: there is no folder {folder}"
        raise click.UsageError(msg)
    suffixes = Figure().canvas.get_supported_filetypes()
    suffix = os.path.splitext(path)[1].lower()
    if suffix.removeprefix(".") not in suffixes:
        msg = f"--plot {path}: the name must end in one of .{', .'.join(suffixes)}"
        raise click.UsageError(msg)


def _draw(outcome: "FilesOutcome", path: str | None) -> None:
    drawn = outcome.results.drawn
    if path is None:
        return
    if drawn is None or drawn.tally is None:
        what = "that differs " if outcome.results.differs else ""
        outcome.notes.append(f"{path} was not drawn: no array {what}could be compared")
        return
    try:
        drawn.plot().savefig(path)
    except Exception as error:  # the report is worth having without its picture
        reason = described(error).removeprefix(f"{path}: ")
        outcome.troubles.append(one_line(f"{path} was not drawn: {reason}"))
