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
    Negative,
    PairRow,
    PreferenceRow,
    QuestionRow,
    RejectedTextRow,
)
from pairwright.tasks.report.measure_writing import SEVERAL
from pairwright.tasks.report.tables import CHECKS, Tables

TOLD = {
    "difference_from_captions": "the images and their captions",
    "difference_from_images": "the images",
    "difference_from_human": "the images, their captions and what people wrote",
    "difference_from_human_only": "the images and what people wrote",
    "difference_from_edit": "the images, their captions and the edit instruction",
    "difference_from_edit_only": "the images and the edit instruction",
}
"""Input of a model for a description, by prompt file."""
SHOWN = {
    "captions": "the captions",
    "images": "the images",
    "images and captions": "the images and their captions",
    "images and differences": "the images and what people wrote",
}
TOKEN = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
SHOWN_IMAGES = ("images", "rejected_images")
"""Columns of preferences that cards read elsewhere."""
MOST_WORDS = 4000
"""Most words of two texts to compare: matching takes quadratic time."""
FIRST = re.compile(
    r"\b(?:(?:image|picture|photo(?:graph)?) (?:1|one)|first (?:image|picture|photo(?:graph)?|one)|former)\b",
    re.IGNORECASE,
)
SECOND = re.compile(
    r"\b(?:(?:image|picture|photo(?:graph)?) (?:2|two)|second (?:image|picture|photo(?:graph)?|one)|latter)\b",
    re.IGNORECASE,
)
WRITTEN = re.compile(r"The difference between the two images is that the first image .*?(, while )the second image ")
"""Beginning of a description by the template; its halves may name the other image, too."""
CUT = re.compile(r"(?:[,;]\s+(?:(?:whereas|while|but|and)\s+)?|\.\s+(?=[A-Z])|\s+(?:whereas|while)\s+)", re.IGNORECASE)


class Segment(NamedTuple):
    """Run of text that the other text shares, or lacks (``differs``)."""

    text: str
    differs: bool


class Byline(NamedTuple):
    """Writing of a text by served models."""

    prompts: Sequence[str]
    """Prompt files in the order of the requests."""
    told: str
    """Input of the model; empty: unknown."""
    attempts: int
    several: bool
    """Whether the attempts are samples to choose from."""
    tokens: int
    seconds: float


class DifferenceView(NamedTuple):
    """Description of the difference, or an alternative marked where it differs from the chosen one."""

    row: DifferenceRow
    segments: Sequence[Segment]
    checks: Sequence[CheckRow]

    @property
    def failed(self) -> list[CheckRow]:
        """Return the failed checks."""
        return [check for check in self.checks if not check.passed]


class RejectedView(NamedTuple):
    """Rejected text beside the chosen one."""

    maker: str
    note: str
    score: float | None
    segments: Sequence[Segment]
    row: RejectedTextRow | None
    """Row with the served model that wrote it; ``None``: a rule did."""


class Texts:
    """Rows about some pairs by subject; captions by image."""

    def __init__(self, tables: Tables, pairs: Sequence[PairRow]) -> None:
        keys = [pair.key for pair in pairs]
        images = [key for pair in pairs for key in (pair.first, pair.second)]
        preferences = tables.find("preferences", PreferenceRow, keys, without=SHOWN_IMAGES)
        self.captions = {row.subject: row for row in tables.find("captions", CaptionRow, images)}
        self.differences = {row.subject: row for row in tables.find("differences", DifferenceRow, keys)}
        self.described = _grouped(tables.find("described", DifferenceRow, keys))  # all, where they were checked
        self.checks = _grouped(row for name in CHECKS for row in tables.find(name, CheckRow, keys))
        self.comparisons = {row.subject: row for row in tables.find("comparisons", ComparisonRow, keys)}
        self.questions = _grouped(tables.find("questions", QuestionRow, keys))
        self.rejected = _grouped(row for name in MAKERS for row in tables.find(name, RejectedTextRow, keys))
        self.preferences = {row.subject: row for row in preferences}


def _grouped(rows: Iterable[R]) -> Mapping[str, Sequence[R]]:
    found: dict[str, list[R]] = defaultdict(list)
    for row in rows:
        found[row.subject].append(row)
    return found


def byline(row: CaptionRow | DifferenceRow | ComparisonRow | QuestionRow | RejectedTextRow) -> Byline | None:
    """Return the byline of a text; ``None`` if no served model wrote it.

    The attempts are the row's, or the largest number of requests with one prompt.
    """
    if not row.served:
        return None
    prompts = [one.prompt for one in row.served]
    told, attempts = "", 1
    if isinstance(row, DifferenceRow):
        told, attempts = TOLD.get(prompts[-1], row.known), row.attempts
    elif isinstance(row, ComparisonRow):
        told = SHOWN.get(row.shown, row.shown)
    return Byline(
        prompts=list(dict.fromkeys(prompts)),
        told=told,
        attempts=max(attempts, *(prompts.count(name) for name in prompts)),
        several=isinstance(row, RejectedTextRow) and row.maker in SEVERAL,
        tokens=sum(one.completion_tokens for one in row.served),
        seconds=sum(one.latency for one in row.served),
    )


def find_caption(image: ImageRow, texts: Texts) -> CaptionRow | None:
    """Return an image's caption, or else those that its source brought."""
    brought = " ".join(image.captions)
    if image.key in texts.captions or not brought:
        return texts.captions.get(image.key)
    return CaptionRow(key=image.key, source_key=image.key, subject=image.key, text=brought, sentences=(), model="given")


def view_difference(row: DifferenceRow, texts: Texts, *, chosen: DifferenceRow | None) -> DifferenceView:
    """Return a description of a pair, marked against the chosen one."""
    # The chosen row has a key of its own; the checked one has the same words.
    keys = {row.key, *(one.key for one in texts.described.get(row.subject, ()) if one.text == row.text)}
    return DifferenceView(
        row=row,
        segments=mark_words(row.text, chosen.text if chosen else row.text),
        checks=[check for check in texts.checks.get(row.subject, ()) if check.description in keys],
    )


def view_candidates(pair: str, texts: Texts) -> list[DifferenceView]:
    """Return the descriptions that were not chosen, those with fewest failed checks first."""
    chosen = texts.differences.get(pair)
    rows = [row for row in texts.described.get(pair, ()) if chosen is None or row.text != chosen.text]
    views = [view_difference(row, texts, chosen=chosen) for row in rows]
    return sorted(views, key=lambda view: len(view.failed))


def view_rejected(
    text: Negative | RejectedTextRow, chosen: str, row: RejectedTextRow | None, *, scored: bool = True
) -> RejectedView:
    """Return a rejected text, marked against the chosen one."""
    segments = mark_words(text.text, chosen)
    score = text.score if scored else None
    return RejectedView(maker=text.maker, note=text.note, score=score, segments=segments, row=row)


def view_unused(pair: str, texts: Texts) -> list[RejectedView]:
    """Return the rejected texts of a pair that its preference does not use, in any kind; all without a preference."""
    preference, chosen = texts.preferences.get(pair), texts.differences.get(pair)
    used = set[str]()
    if preference:
        used = {preference.rejected, preference.rejected_maker}
        used |= {word for one in preference.negatives for word in (one.text, one.maker)}
    rows = [row for row in texts.rejected.get(pair, ()) if not {row.text, row.maker} & used]
    return [view_rejected(row, chosen.text if chosen else "", row if row.served else None) for row in rows]


def find_author(pair: str, texts: Texts, *, text: str) -> RejectedTextRow | None:
    """Return the row of a rejected text by a served model; ``None``: a rule wrote it."""
    return next((row for row in texts.rejected.get(pair, ()) if row.text == text and row.served), None)


def mark_words(text: str, other: str) -> list[Segment]:
    """Return the text as segments that equal or differ from another text's words.

    Words are compared exactly; punctuation counts as words, white space does not. Two texts about two images each are
    compared half by half.
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
    for what, start, stop, _, _ in SequenceMatcher(None, words, others, autojunk=False).get_opcodes():
        if what in ("replace", "delete"):
            begin, end = found[start][0], found[stop - 1][1]
            segments += [Segment(text[place:begin], differs=False), Segment(text[begin:end], differs=True)]
            place = end
    segments.append(Segment(text[place:], differs=False))
    return [segment for segment in segments if segment.text]


def split_sides(statement: str) -> tuple[str, str] | None:
    """Return the parts of a statement about the first and the second image; ``None``: it has no such parts.

    It is cut once, between the part that names only the first image and the one that names only the second.
    """
    cut = _find_cut(statement)
    return (statement[: cut[0]].strip(), statement[cut[1] :].strip()) if cut else None


def _find_cut(text: str) -> tuple[int, int] | None:
    if written := WRITTEN.match(text):
        return written.span(1)
    found = None
    for cut in CUT.finditer(text):
        before, after = text[: cut.start()], text[cut.end() :]
        if FIRST.search(before) and SECOND.search(after) and not SECOND.search(before) and not FIRST.search(after):
            found = cut.span()  # the last: "In Image 1, ..." has a comma, too
    return found
