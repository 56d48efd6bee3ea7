"""Gather the texts about a few pairs, with their writers, inputs and checks."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from pairwright.schemas.arrow import R
from pairwright.schemas.checks import CHECK_TABLES
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
from pairwright.tasks.report.query_tables import Tables

TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
PREFERENCE_IMAGES = (
    "images",
    "rejected_images",
)  # columns of preferences that cards read elsewhere
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
        images: list[str] = []
        for pair in pairs:
            images += (pair.first, pair.second)
        preferences = tables.find_rows(
            "preferences", PreferenceRow, keys, without=PREFERENCE_IMAGES
        )
        self.preferences = _by_subject(preferences)
        self.captions = _by_subject(tables.find_rows("captions", CaptionRow, images))
        self.differences = _by_subject(tables.find_rows("differences", DifferenceRow, keys))
        self.comparisons = _by_subject(tables.find_rows("comparisons", ComparisonRow, keys))
        self.questions = _group_by_subject(tables.find_rows("questions", QuestionRow, keys))
        # All descriptions, where they were checked.
        self.described = _group_by_subject(tables.find_rows("described", DifferenceRow, keys))
        checks: list[CheckRow] = []
        for name in CHECK_TABLES:
            checks += tables.find_rows(name, CheckRow, keys)
        self._checks = _group_by_subject(checks)
        rejected: list[RejectedTextRow] = []
        for name in MAKERS:
            rejected += tables.find_rows(name, RejectedTextRow, keys)
        self._rejected = _group_by_subject(rejected)

    def caption(self, image: ImageRow) -> CaptionRow | None:
        """Return an image's caption, or else its source's captions joined."""
        key = image.key
        text = " ".join(image.captions)
        if key in self.captions or not text:
            return self.captions.get(key)
        return CaptionRow(
            key=key,
            source_key=key,
            subject=key,
            text=text,
            sentences=(),
            model="given",
        )

    def authors(self, pair: str) -> Mapping[str, RejectedTextRow]:
        """Return the rejected texts of served models by their words."""
        return {row.text: row for row in self._rejected.get(pair, ()) if row.served}

    def checks_by_text(self, pair: str) -> Mapping[str, Sequence[CheckRow]]:
        """Return the checks of a pair's descriptions.

        They are by text, since the chosen description has another key than the checked one.
        """
        texts = {row.key: row.text for row in self.described.get(pair, ())}
        checks: dict[str, list[CheckRow]] = defaultdict(list)
        for check in self._checks.get(pair, ()):
            checks[texts.get(check.description, "")].append(check)
        return checks

    def candidates(self, pair: str) -> list[DifferenceRow]:
        """Return the descriptions that were not chosen, those with fewest failed checks first."""
        chosen = self.differences.get(pair)
        checks = self.checks_by_text(pair)

        def count_failed(row: DifferenceRow) -> int:
            return sum(not check.passed for check in checks.get(row.text, ()))

        rows = self.described.get(pair, ())
        others = [row for row in rows if chosen is None or row.text != chosen.text]
        return sorted(others, key=count_failed)


def _by_subject(rows: Iterable[R]) -> dict[str, R]:
    return {row.subject: row for row in rows}


def _group_by_subject(rows: Iterable[R]) -> Mapping[str, Sequence[R]]:
    groups: dict[str, list[R]] = defaultdict(list)
    for row in rows:
        groups[row.subject].append(row)
    return groups


def mark_words(text: str, other: str) -> list[Segment]:
    """Return the text as segments that equal or differ from another text's words.

    Words are compared exactly; punctuation counts as words, white space does not. Two texts about
    two images each are compared half by half.
    """
    cut = _find_cut(text)
    other_cut = _find_cut(other)
    if not (cut and other_cut):
        return _mark(text, other)
    segments = [
        *_mark(text[: cut[0]], other[: other_cut[0]]),
        *_mark(text[cut[0] :], other[other_cut[0] :]),
    ]
    joined: list[Segment] = []
    for differs, run in groupby(segments, key=lambda segment: segment.differs):
        run_text = "".join(segment.text for segment in run)
        joined.append(Segment(run_text, differs=differs))
    return joined


def _mark(text: str, other: str) -> list[Segment]:
    spans = [match.span() for match in TOKEN.finditer(text)]
    words = [text[start:end] for start, end in spans]
    other_words = TOKEN.findall(other)
    if not other_words or len(words) + len(other_words) > MOST_WORDS:
        return [Segment(text, differs=False)] if text else []
    segments: list[Segment] = []
    position = 0
    for first, stop in _find_replaced(words, other_words):
        start = spans[first][0]
        end = spans[stop - 1][1]
        segments.append(Segment(text[position:start], differs=False))
        segments.append(Segment(text[start:end], differs=True))
        position = end
    segments.append(Segment(text[position:], differs=False))
    return [segment for segment in segments if segment.text]


def _find_replaced(words: Sequence[str], others: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of words that other words replace or lack."""
    matcher = SequenceMatcher(None, words, others, autojunk=False)
    for operation, first, stop, _, _ in matcher.get_opcodes():
        if operation in ("replace", "delete"):
            yield first, stop


def split_sides(statement: str) -> tuple[str, str] | None:
    """Return the parts of a statement about the first and the second image.

    It is cut once, between the part that names only the first image and the one that names only the
    second; ``None``: it has no such parts.
    """
    cut = _find_cut(statement)
    if cut is None:
        return None
    start, end = cut
    return statement[:start].strip(), statement[end:].strip()


def _find_cut(text: str) -> tuple[int, int] | None:
    template = WRITTEN.match(text)
    if template:
        return template.span(1)
    last = None  # not the first: "In Image 1, ..." has a comma, too
    for cut in CUT.finditer(text):
        before = text[: cut.start()]
        after = text[cut.end() :]
        in_order = FIRST.search(before) and SECOND.search(after)
        if in_order and not SECOND.search(before) and not FIRST.search(after):
            last = cut.span()
    return last
