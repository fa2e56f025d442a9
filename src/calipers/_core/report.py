"""The base class of reports: to_dict, HTML and plots, and the formatting of their text."""

import inspect
import math
import re
import sys
import textwrap
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from html import escape
from io import BytesIO
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from .arguments import as_float

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MODULES = {"numpy": "np", "torch": "torch", "jax.numpy": "jnp"}


def name_in_code(function: Any, otherwise: str, taken: Collection[str]) -> str:
    """Return the expression of a function in code, or `otherwise` if it has no usable name."""
    name = getattr(function, "__name__", "")
    for module, alias in MODULES.items():
        if name and getattr(sys.modules.get(module), name, None) is function:
            return f"{alias}.{name}"
    owner = getattr(function, "__self__", None)
    if inspect.isclass(owner):
        name = f"{owner.__name__}.{name}"
    elif owner is not None and not inspect.ismodule(owner):
        return otherwise  # a method of an object whose name is unknown
    is_name = all(part.isidentifier() and not iskeyword(part) for part in name.split("."))
    return name if is_name and name not in (*taken, "inputs") else otherwise


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
    """Show a text in the middle of empty axes."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)


# The width of a report in columns.
WIDTH = 80
# The width of a line of code in columns; a comment that does not fit moves to the next line.
CODE_WIDTH = 88
# The indent of the text of a field; in the first line it holds the label.
INDENT = " " * 14
# The separator of code and its comment.
COMMENT = "  # "


def labelled(label: str, text: object = "") -> str:
    """Return a line with a label in front of its text."""
    return f"  {label:<12}{text}"


def field(
    label: str, text: str, most: int | None = 2, width: int = WIDTH, **options: bool
) -> list[str]:
    """Return a label and its text, wrapped after the label into at most `most` lines."""
    return wrapped(text, labelled(label), INDENT, most, width, **options)


def wrapped(
    text: str,
    first: str = "",
    rest: str = "",
    most: int | None = None,
    width: int = WIDTH,
    **options: bool,
) -> list[str]:
    """Wrap a text with indents of its first and other lines; beyond `most` lines it is cut."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        max_lines=most,
        placeholder=" ...",
        **options,
    )


def wrapped_code(label: str, code: str) -> list[str]:
    """Return code after its label, wrapped so that the lines can be pasted together."""
    code, mark, comment = code.partition(COMMENT)
    text = f"{label}: {code}"
    rows = wrapped(text, rest="  ", width=CODE_WIDTH, break_long_words=False)
    if mark and len(rows[-1] + mark + comment) <= CODE_WIDTH:
        rows[-1] += mark + comment
    elif mark:
        rows.append(mark + comment)
    return rows


def index_text(index: Iterable[object]) -> str:
    """Return an index in NumPy's notation, such as ``[2, 1]``."""
    return f"[{', '.join(map(str, index))}]"


def calls_text(calls: Mapping[str, int]) -> str:
    """Return the number of calls of each function, such as ``f 12, vjp 3``."""
    return ", ".join(f"{name} {count}" for name, count in calls.items())


# The width of a value in a table, in characters.
_VALUE_WIDTH = 20
_POWER = re.compile(r"(?<=\d)[eE][+-]?\d+\Z")
# Suggested tolerances have three significant digits, rounded up so that they pass.
_UPWARDS = Context(prec=3, rounding=ROUND_UP)


def rounded_up(x: float, least_power: int = -2) -> str:
    """Format x with three significant digits, rounded up; with an exponent if it is small."""
    number = _UPWARDS.create_decimal(repr(x)).normalize()
    if math.isinf(float(number)):
        return repr(x)
    power = number.adjusted()
    if least_power <= power < 6:
        return f"{number:f}"
    return f"{number.scaleb(-power).normalize():f}e{power}"


def values(a: Any, b: Any) -> tuple[str, str]:
    """Format two values: floats with 6 digits, other objects cut to the parts that differ."""
    if isinstance(a, float | complex) and isinstance(b, float | complex):
        return f"{a:.6g}", f"{b:.6g}"
    write = [repr if isinstance(x, str) else str for x in (a, b)]
    words = write == [repr, repr]
    a, b = text_of(a), text_of(b)
    skipped = _skipped_length(a, b, words)
    mark = "..." if skipped else ""
    return _short(mark + write[0](a[skipped:])), _short(mark + write[1](b[skipped:]))


def _skipped_length(a: str, b: str, words: bool) -> int:
    """Return the length of the common beginning that is cut, so that the difference shows."""
    pairs = enumerate(zip(a, b, strict=False))
    same = next((k for k, (x, y) in pairs if x != y), min(len(a), len(b)))
    beyond = max(len(a), len(b)) - (_VALUE_WIDTH - 2 if words else _VALUE_WIDTH)  # words are quoted
    has_no_text = a.startswith("<") and not words  # the default repr
    if beyond <= 0 or same <= 9 or has_no_text:
        return 0
    return same - 6 if words else min(same - 6, beyond + 3)  # numbers are read from both ends


def text_of(x: Any) -> str:
    try:
        return str(x)
    except Exception:  # such as an integer with more digits than Python converts
        return object.__repr__(x)


def _short(text: str) -> str:
    if not text.isprintable():  # control characters
        text = repr(text)[1:-1]
    if len(text) <= _VALUE_WIDTH:
        return text
    # The exponent of a number must not be cut.
    power = _POWER.search(text)
    end = f"...{power[0]}" if power else "..."
    return text[: _VALUE_WIDTH - len(end)] + end


def brief(x: float) -> str:
    """Format a number with three significant digits; small integers in full."""
    if isinstance(x, int) and x < 10**6:
        return str(x)
    if isinstance(x, int) and math.isinf(as_float(x)):
        digits, _, power = f"{Decimal(x):.2e}".partition("e+")
        return f"{float(digits):g}e{power}"
    if math.isnan(x):
        return "-"
    return f"{float(x):.3g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


# Colors that are readable on white and on black, for true, false and neutral results.
_COLORS = {True: "#2e9e5b", False: "#d9485f", None: "#8a8f98"}
_FRAME = "border-left:4px solid {};padding:2px 0 2px 12px;margin:4px 0"
_TEXT = (
    "margin:4px 0;padding:0;border:0;background:none;color:inherit;font-size:85%;overflow-x:auto"
)
# Plots are drawn in dark on white.
_PLOT = "max-width:100%;background:#fff;border-radius:4px"


class Printable:
    """A result that prompts show as text, and notebooks as HTML with its plot."""

    def __repr__(self) -> str:
        return str(self)

    def _headline_and_rest(self) -> tuple[str, str]:
        """Return the verdict as one line, however long, and the text that follows it."""
        headline, _, rest = str(self).partition("\n")
        return headline, rest

    def _repr_html_(self) -> str:
        verdict = bool(self) if hasattr(type(self), "__bool__") else None
        headline, rest = self._headline_and_rest()
        parts = [f"<b>{escape(headline)}</b>"]
        if rest:
            parts.append(f'<pre style="{_TEXT}">{escape(rest)}</pre>')
        plot = None if verdict else _plotted(self)
        if plot:
            source = f"data:image/png;base64,{b64encode(plot).decode()}"
            parts.append(f'<img style="{_PLOT}" alt="{escape(headline)}" src="{source}">')
        return f'<div style="{_FRAME.format(_COLORS[verdict])}">{"".join(parts)}</div>'


class Report(Printable):
    """A dataclass that prompts show as text, notebooks as HTML, and `to_dict` as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """
        Return the result as built-in types, which can be written as JSON.

        NaN, infinities and complex numbers become strings.

        Examples
        --------
        >>> import calipers
        >>> calipers.compare([1.0], [1.0]).to_dict()["mismatches"]
        0
        """
        return {name: jsonable(value) for name, value in self._contents().items()}

    def _contents(self) -> dict[str, Any]:
        """Return the entries of `to_dict` before they are converted to built-in types."""
        return field_values(self)


def field_values(x: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name."""
    return {f.name: getattr(x, f.name) for f in fields(x)}


def jsonable(x: Any) -> Any:
    """Convert a value to types that JSON has; dataclasses become dicts of their fields."""
    if is_dataclass(x) and not isinstance(x, type):
        return jsonable(field_values(x))
    if isinstance(x, Mapping):
        return {str(key): jsonable(value) for key, value in x.items()}
    if isinstance(x, list | tuple):
        return [jsonable(value) for value in x]
    if x is None or isinstance(x, bool | str) or (isinstance(x, float) and math.isfinite(x)):
        return x
    if isinstance(x, Fraction):
        return float(x)
    text = text_of(x)
    # JSON cannot hold an integer with more digits than Python writes.
    return x if isinstance(x, int) and not text.startswith("<") else text


def _plotted(result: Any) -> bytes | None:
    """Return the plot of a result as PNG; None if it has no plot, or matplotlib is missing."""
    if not hasattr(result, "plot"):
        return None
    file = BytesIO()
    try:
        result.plot().savefig(file, format="png", dpi=80)
    except Exception:  # show the text without the plot
        return None
    return file.getvalue()
