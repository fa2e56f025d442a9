"""Words of this project that readers of NumPy's and torch's documentation would have to guess."""

import re

WORDS = (
    *("another one", "beside", "climbs?", "hand(?:s|ed)? on", "in the place of", "ladders?"),
    *("last places?", "mend(?:s|ed)?", "not to be had", "of which", "of whom", "rungs?"),
    *("so many", "stands? still", "tells? whether", "there is such", "told", "vouch(?:es|ed)?"),
)


def pattern(*more: str) -> re.Pattern[str]:
    """Return a pattern of these words, and of more that one kind of text avoids."""
    return re.compile(rf"\b(?:{'|'.join(WORDS + more)})\b", re.I)
