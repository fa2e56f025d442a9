"""Write the table of thresholds into its page: ``python -m docs.thresholds``."""

import re
from pathlib import Path

from calipers._derivatives.thresholds import THRESHOLDS

PAGE = Path(__file__).parent / "gradcheck_method.md"
PLACE = re.compile(r"(?<=<!-- thresholds -->\n).*?(?=<!-- end of thresholds -->)", re.S)
ATTRIBUTES = r"^    (\w+(?:, \w+)*) : \w+\n((?: {8}.+\n)+)"


def table() -> str:
    """Return the names, values and descriptions of all thresholds as a table of Markdown."""
    rows = []
    for names, text in re.findall(ATTRIBUTES, type(THRESHOLDS).__doc__ or "", re.M):
        values = ", ".join(f"{getattr(THRESHOLDS, name):.4g}" for name in names.split(", "))
        description = " ".join(text.split()).replace("|x|", "`abs(x)`")
        rows.append(f"| `{names}` | {values} | {description} |")
    head = "| name | value | unit, meaning and source |", "|---|---:|---|"
    return "\n".join(["", *head, *rows, "", ""])


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: table(), PAGE.read_text()))
