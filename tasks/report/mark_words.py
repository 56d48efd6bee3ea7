"""Mark the words in which two texts differ.

Reads and writes nothing. Words are compared as they are written; punctuation counts as words, white space does not.
"""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
MOST_WORDS = 4000
"""Longer texts are not compared: matching takes the square of their length."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Be a run of text that the other text has too, or has not (``differs``)."""

    text: str
    differs: bool


def mark_words(text: str, other: str) -> tuple[Segment, ...]:
    """Return the text cut into segments; joined, they are the text."""
    found = [(match.start(), match.end()) for match in TOKEN.finditer(text)]
    words = [text[start:end] for start, end in found]
    others = TOKEN.findall(other)
    if not others or len(words) + len(others) > MOST_WORDS:
        return (Segment(text, differs=False),) if text else ()
    spans: list[tuple[int, int]] = []
    for what, start, stop, _, _ in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        if what in ("replace", "delete"):
            spans.append((found[start][0], found[stop - 1][1]))
    return tuple(_cut(text, spans))


def _cut(text: str, spans: list[tuple[int, int]]) -> list[Segment]:
    segments: list[Segment] = []
    place = 0
    for start, end in spans:
        segments += [Segment(text[place:start], differs=False), Segment(text[start:end], differs=True)]
        place = end
    segments.append(Segment(text[place:], differs=False))
    return [segment for segment in segments if segment.text]
