"""Write the table of thresholds into its page: ``python -m docs.thresholds``."""

import re
from dataclasses import asdict
from pathlib import Path

from calipers._derivatives.thresholds import THRESHOLDS

PAGE = Path(__file__).parent / "gradcheck_method.md"
PLACE = re.compile(r"(?<=<!-- thresholds -->\n).*?(?=<!-- end of thresholds -->)", re.S)
ATTRIBUTE = r"^    (\w+) : \w+\n((?: {8}.+\n)+)"


def table() -> str:
    """Return the names, values and descriptions of all thresholds as a table of Markdown."""
    values = asdict(THRESHOLDS)
    texts = dict(re.findall(ATTRIBUTE, type(THRESHOLDS).__doc__ or "", re.M))
    rows = [f"| `{name}` | {value:.4g} | {_line(texts[name])} |" for name, value in values.items()]
    head = "| name | value | unit, meaning and source |", "|---|---:|---|"
    return "\n".join(["", *head, *rows, "", ""])


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|x|", "`abs(x)`")


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: table(), PAGE.read_text()))
