"""Normalise texts for comparison, and write values as single lines."""

import json
import unicodedata

LINE_ENDS = ("\u0085", "\u2028", "\u2029")
"""Characters beside the line feed that end a line for some readers."""


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


def to_json_line(record: object) -> str:
    """Return a value as JSON on one line, for all readers.

    U+2028, U+2029 and NEL end a line for Python's ``splitlines`` and for JavaScript: they are
    escaped.
    """
    line = json.dumps(record, ensure_ascii=False)
    for character in LINE_ENDS:
        line = line.replace(character, f"\\u{ord(character):04x}")
    return line
