"""How reports write values, distances and tolerances."""

import math
import re
from decimal import ROUND_UP, Context, Decimal
from typing import Any

from .._arguments import as_float

_VALUE = 20
_POWER = re.compile(r"(?<=\d)[eE][+-]?\d+\Z")
# Significant digits of a tolerance that is to be copied; it is rounded up, so that it passes.
_UPWARDS = Context(prec=3, rounding=ROUND_UP)


def rounded_up(x: float, least_power: int = -2) -> str:
    """Write the next number of three digits that is not less than x; small ones with a power."""
    number = _UPWARDS.create_decimal(repr(x)).normalize()
    if math.isinf(float(number)):
        return repr(x)
    power = number.adjusted()
    if least_power <= power < 6:
        return f"{number:f}"
    return f"{number.scaleb(-power).normalize():f}e{power}"


def values(a: Any, b: Any) -> tuple[str, str]:
    """Write two values: numbers with 6 digits, of other objects the parts that differ."""
    if isinstance(a, float | complex) and isinstance(b, float | complex):
        return f"{a:.6g}", f"{b:.6g}"
    write = [repr if isinstance(x, str) else str for x in (a, b)]
    words = write == [repr, repr]
    a, b = text_of(a), text_of(b)
    skipped = _left_out(a, b, words)
    mark = "..." if skipped else ""
    return _short(mark + write[0](a[skipped:])), _short(mark + write[1](b[skipped:]))


def _left_out(a: str, b: str, words: bool) -> int:
    """Return how much of the beginning of two texts goes, for their difference to be seen."""
    pairs = enumerate(zip(a, b, strict=False))
    same = next((k for k, (x, y) in pairs if x != y), min(len(a), len(b)))
    beyond = max(len(a), len(b)) - (_VALUE - 2 if words else _VALUE)  # words are quoted
    has_no_text = a.startswith("<") and not words  # of its own, but a type
    if beyond <= 0 or same <= 9 or has_no_text:
        return 0
    return same - 6 if words else min(same - 6, beyond + 3)  # numbers are read from both ends


def text_of(x: Any) -> str:
    try:
        return str(x)
    except Exception:  # of an integer of more digits than Python writes, say
        return object.__repr__(x)


def _short(text: str) -> str:
    if not text.isprintable():  # what would move the cursor
        text = repr(text)[1:-1]
    if len(text) <= _VALUE:
        return text
    # Without its power of ten a number would be another one.
    power = _POWER.search(text)
    end = f"...{power[0]}" if power else "..."
    return text[: _VALUE - len(end)] + end


def brief(x: float) -> str:
    """Write a number in few characters; an integer in full if that is short."""
    if isinstance(x, int) and x < 10**6:
        return str(x)
    if isinstance(x, int) and math.isinf(as_float(x)):
        digits, _, power = f"{Decimal(x):.2e}".partition("e+")
        return f"{float(digits):g}e{power}"
    if math.isnan(x):
        return "-"
    return f"{float(x):.3g}".replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")
