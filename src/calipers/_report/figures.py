"""What all plots share: the check for matplotlib, axes of integers, and text in place of data."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(**options: Any) -> "Figure":
    """Return an empty figure; raise ImportError with the command that installs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        msg = "plot() needs matplotlib: pip install matplotlib"
        raise ImportError(msg) from None
    return Figure(**options)


def use_integer_ticks(axis: Any) -> None:
    """Put the ticks of an axis at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))


def show_text(axes: Any, text: str) -> None:
    """Write a text in the middle of axes that have nothing to plot."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
