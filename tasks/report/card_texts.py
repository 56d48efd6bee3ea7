"""Gather the texts about a few pairs, with their writers, inputs and checks."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from pairwright.schemas.arrow import R
from pairwright.schemas.rows import (
    MAKERS,
    CaptionRow,
    CheckRow,
    ComparisonRow,
    DifferenceRow,
    ImageRow,
    PairRow,
    PreferenceRow,
    QuestionRow,
    RejectedTextRow,
)
from pairwright.tasks.report.query_tables import CHECKS, Tables

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
SHOWN_IMAGES = ("images", "rejected_images")  # columns of preferences that cards read elsewhere
MOST_WORDS = 4000  # most words of two texts to compare: matching takes quadratic time
NOUN = "(?:image|picture|photo(?:graph)?)"
FIRST = re.compile(rf"\b(?:{NOUN} (?:1|one)|first (?:{NOUN}|one)|former)\b", re.IGNORECASE)
SECOND = re.compile(rf"\b(?:{NOUN} (?:2|two)|second (?:{NOUN}|one)|latter)\b", re.IGNORECASE)
WRITTEN = re.compile(
    r"The difference between the two images is that the first image .*?(, while )the second image "
)
"""Beginning of a description by the template; its halves may name the other image, too."""
CUT = re.compile(
    r"(?:[,;]\s+(?:(?:whereas|while|but|and)\s+)?|\.\s+(?=[A-Z])|\s+(?:whereas|while)\s+)",
    re.IGNORECASE,
)


class Segment(NamedTuple):
    """Run of text that the other text shares, or lacks (``differs``)."""

    text: str
    differs: bool


class Texts:
    """Rows about some pairs by subject; captions by image."""

    def __init__(self, tables: Tables, pairs: Sequence[PairRow]) -> None:
        keys = [pair.key for pair in pairs]
        images = [key for pair in pairs for key in (pair.first, pair.second)]
        preferences = tables.find("preferences", PreferenceRow, keys, without=SHOWN_IMAGES)
        self.captions = {row.subject: row for row in tables.find("captions", CaptionRow, images)}
        self.differences = {
            row.subject: row for row in tables.find("differences", DifferenceRow, keys)
        }
        self.described = _grouped(
            tables.find("described", DifferenceRow, keys)
        )  # all, where they were checked
        self._checks = _grouped(row for name in CHECKS for row in tables.find(name, CheckRow, keys))
        self.comparisons = {
            row.subject: row for row in tables.find("comparisons", ComparisonRow, keys)
        }
        self.questions = _grouped(tables.find("questions", QuestionRow, keys))
        self.rejected = _grouped(
            row for name in MAKERS for row in tables.find(name, RejectedTextRow, keys)
        )
        self.preferences = {row.subject: row for row in preferences}

    def caption(self, image: ImageRow) -> CaptionRow | None:
        """Return an image's caption, or else its source's captions joined."""
        given, key = " ".join(image.captions), image.key
        if key in self.captions or not given:
            return self.captions.get(key)
        return CaptionRow(
            key=key, source_key=key, subject=key, text=given, sentences=(), model="given"
        )

    def checks(self, pair: str) -> Mapping[str, Sequence[CheckRow]]:
        """Return the checks of a pair's descriptions, by text: the chosen row has a key of its own."""
        words = {row.key: row.text for row in self.described.get(pair, ())}
        found: dict[str, list[CheckRow]] = defaultdict(list)
        for check in self._checks.get(pair, ()):
            found[words.get(check.description, "")].append(check)
        return found

    def candidates(self, pair: str) -> list[DifferenceRow]:
        """Return the descriptions that were not chosen, those with fewest failed checks first."""
        chosen, checks = self.differences.get(pair), self.checks(pair)
        rows = [
            row for row in self.described.get(pair, ()) if chosen is None or row.text != chosen.text
        ]
        return sorted(
            rows, key=lambda row: sum(not check.passed for check in checks.get(row.text, ()))
        )


def _grouped(rows: Iterable[R]) -> Mapping[str, Sequence[R]]:
    found: dict[str, list[R]] = defaultdict(list)
    for row in rows:
        found[row.subject].append(row)
    return found


def mark_words(text: str, other: str) -> list[Segment]:
    """Return the text as segments that equal or differ from another text's words.

    Words are compared exactly; punctuation counts as words, white space does not. Two texts about
    two images each are compared half by half.
    """
    cut, other_cut = _find_cut(text), _find_cut(other)
    if not (cut and other_cut):
        return _mark(text, other)
    halves = (text[: cut[0]], other[: other_cut[0]]), (text[cut[0] :], other[other_cut[0] :])
    segments = [segment for half, beside in halves for segment in _mark(half, beside)]
    runs = groupby(segments, key=lambda segment: segment.differs)
    return [Segment("".join(one.text for one in run), differs=differs) for differs, run in runs]


def _mark(text: str, other: str) -> list[Segment]:
    found = [(match.start(), match.end()) for match in TOKEN.finditer(text)]
    words, others = [text[start:end] for start, end in found], TOKEN.findall(other)
    if not others or len(words) + len(others) > MOST_WORDS:
        return [Segment(text, differs=False)] if text else []
    segments, place = list[Segment](), 0
    for what, start, stop, _, _ in SequenceMatcher(
        None, words, others, autojunk=False
    ).get_opcodes():
        if what in ("replace", "delete"):
            begin, end = found[start][0], found[stop - 1][1]
            segments += [
                Segment(text[place:begin], differs=False),
                Segment(text[begin:end], differs=True),
            ]
            place = end
    segments.append(Segment(text[place:], differs=False))
    return [segment for segment in segments if segment.text]


def split_sides(statement: str) -> tuple[str, str] | None:
    """Return the parts of a statement about the first and the second image; ``None``: it has no such parts.

    It is cut once, between the part that names only the first image and the one that names only the
    second.
    """
    cut = _find_cut(statement)
    return (statement[: cut[0]].strip(), statement[cut[1] :].strip()) if cut else None


def _find_cut(text: str) -> tuple[int, int] | None:
    if written := WRITTEN.match(text):
        return written.span(1)
    found = None
    for cut in CUT.finditer(text):
        before, after = text[: cut.start()], text[cut.end() :]
        if (
            FIRST.search(before)
            and SECOND.search(after)
            and not SECOND.search(before)
            and not FIRST.search(after)
        ):
            found = cut.span()  # the last: "In Image 1, ..." has a comma, too
    return found
