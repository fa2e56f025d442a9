"""Comparison of texts with numbers in them, as reports are."""

import math
import re

# A number that is not part of a word, such as float32 or x0.
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
# Numbers below this are errors of rounding, or estimates of them: processors share only their size.
ROUNDING, ROUNDING_FACTOR = 1e-6, 20
# The seconds at the end of a line, and the versions of libraries that may follow.
ENVIRONMENT = re.compile(r"\S+ s(; numpy.*(\n {14}.*)?)?$", re.MULTILINE)


def without_environment(text):
    """Return a text without the seconds that something took, and the versions that ran."""
    return ENVIRONMENT.sub("... s", text)


def same(text, other, factor=1.5, largest_count=math.inf):
    """Return True if texts are equal, except for what depends on the processor.

    Numbers may differ by a factor, errors of rounding by a larger one, and integers up to
    `largest_count` not at all. White space may differ next to numbers of different width.
    """
    text, other = without_environment(text), without_environment(other)
    numbers, others = NUMBER.findall(text), NUMBER.findall(other)
    words, other_words = NUMBER.sub("#", text), NUMBER.sub("#", other)
    if [len(x) for x in numbers] != [len(x) for x in others]:
        words, other_words = words.split(), other_words.split()
    return words == other_words and all(
        same_number(*pair, factor, largest_count) for pair in zip(numbers, others, strict=True)
    )


def same_number(text, other, factor, largest_count):
    """Return True if two numbers are equal or, unless both are counts, within a factor."""
    if text == other:
        return True
    if all(x.isdigit() and int(x) <= largest_count for x in (text, other)):
        return False
    a, b = float(text), float(other)
    if max(abs(a), abs(b)) < ROUNDING:
        factor = max(factor, ROUNDING_FACTOR)
    return a * b > 0 and 1 / factor <= a / b <= factor
