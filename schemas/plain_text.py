"""Normalise texts for comparison."""

import unicodedata


def plain_text(text: str) -> str:
    """Return a text in lower case, words only, for comparison; unchanged if nothing is left."""
    spaced = unicodedata.normalize("NFKC", text).casefold().translate(_SPACES)
    return " ".join(spaced.split()) or text


class _Spaces(dict[int, int]):
    """Map code points: punctuation, spaces and controls become a space; others stay."""

    def __missing__(self, point: int) -> int:
        self[point] = ord(" ") if unicodedata.category(chr(point))[0] in "PZC" else point
        return self[point]


_SPACES = _Spaces()
