"""The base of results that are read: text at prompts, HTML in notebooks, and JSON."""

import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from html import escape
from io import BytesIO
from typing import Any

from .numbers import text_of

# Readable on white and on black; all else has the colors of the page.
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
    except Exception:  # a text without its plot is better than none
        return None
    return file.getvalue()
