"""``calipers warmup``: compile kernels now, so that later calls need not."""

import click

from .status import SAME


@click.command(short_help="Compile the common kernels into the cache.")
def warmup() -> int:
    """
    Compile the common kernels, and keep them in the cache, as calipers.warmup() does.

    Each line names the functions that a kernel is for, the dtype, and the seconds that it took to
    compile. Kernels that are in the cache are not compiled again.
    """
    from .._jit import cache_folder, compilations, no_cache
    from .._kernels.closeness import first_apart
    from .._warmup import warmup_steps
    from ..config import cache_description

    if cache_folder(first_apart) is None:
        msg = f"there is no cache to fill: {no_cache()}"
        raise click.ClickException(msg)
    compilations.announced = True  # the lines say it
    seconds = compilations.seconds
    for functions, dtype in warmup_steps():
        step, seconds = compilations.seconds - seconds, compilations.seconds
        click.echo(f"{functions:22} {dtype:8} {f'{step:.1f} s' if step else 'cached'}")
    click.echo(f"compiled   {compilations.kernels} kernels in {seconds:.1f} s")
    click.echo(f"cache      {cache_description()}")
    return SAME
