"""How reports look in notebooks: their text, and their picture where there is something to see."""

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import Any

# Readable on white and on black; all else has the colors of the page.
_COLORS = {True: "#2e9e5b", False: "#d9485f", None: "#8a8f98"}
_FRAME = "border-left:4px solid {};padding:2px 0 2px 12px;margin:4px 0"
_TEXT = (
    "margin:4px 0;padding:0;border:0;background:none;color:inherit;font-size:85%;overflow-x:auto"
)
# Pictures are drawn in dark on white.
_PICTURE = "max-width:100%;background:#fff;border-radius:4px"


class Shown:
    """A report, which prompts show as text and notebooks as HTML."""

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
        picture = None if verdict else _picture(self)
        if picture:
            source = f"data:image/png;base64,{b64encode(picture).decode()}"
            parts.append(f'<img style="{_PICTURE}" alt="{escape(headline)}" src="{source}">')
        return f'<div style="{_FRAME.format(_COLORS[verdict])}">{"".join(parts)}</div>'


def _picture(report: Any) -> bytes | None:
    """Draw a report, if it has a picture, there is something on it, and something to draw with."""
    if not hasattr(report, "plot"):
        return None
    file = BytesIO()
    try:
        report.plot().savefig(file, format="png", dpi=80)
    except Exception:  # a text without its picture is better than none
        return None
    return file.getvalue()
