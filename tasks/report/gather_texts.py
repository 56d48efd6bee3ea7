"""Gather what was written about a few pairs, and say of each text who wrote it, from what, and what checks found.

Reads the rows about the given pairs and their images only. Tables that a build does not have are empty: a dataset from
scene graphs has no checks, and its rows name no served model.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pairwright.schemas.arrow import R
from pairwright.schemas.rows import (
    CaptionRow,
    CheckRow,
    ComparisonRow,
    DifferenceRow,
    ImageRow,
    PairRow,
    PreferenceRow,
    QuestionRow,
    RejectedTextRow,
    Served,
)
from pairwright.tasks.report.mark_words import mark_words
from pairwright.tasks.report.measure_checks import says_something
from pairwright.tasks.report.measure_served import SEVERAL
from pairwright.tasks.report.split_sides import split_sides
from pairwright.tasks.report.tables import CHECKS, MAKERS, Tables
from pairwright.tasks.report.views import (
    Byline,
    CaptionView,
    CheckView,
    ComparisonView,
    DifferenceView,
    QuestionView,
    RejectedView,
    StatementView,
)

TOLD = {
    "difference_from_captions": "the images and their captions",
    "difference_from_images": "the images",
    "difference_from_human": "the images, their captions and what people wrote",
    "difference_from_human_only": "the images and what people wrote",
    "difference_from_edit": "the images, their captions and the edit instruction",
    "difference_from_edit_only": "the images and the edit instruction",
}
"""What a model is given for a description, by the prompt file."""
SHOWN = {
    "captions": "the captions",
    "images": "the images",
    "images and captions": "the images and their captions",
    "images and differences": "the images and what people wrote",
}


@dataclass(frozen=True)
class Texts:
    """Hold the rows about some pairs: one of a kind by what it is about, or all of them."""

    captions: Mapping[str, CaptionRow]
    """By image; everything else is by pair."""
    differences: Mapping[str, DifferenceRow]
    described: Mapping[str, Sequence[DifferenceRow]]
    """Every description that was written, where they were checked."""
    checks: Mapping[str, Sequence[CheckRow]]
    comparisons: Mapping[str, ComparisonRow]
    questions: Mapping[str, Sequence[QuestionRow]]
    rejected: Mapping[str, Sequence[RejectedTextRow]]
    preferences: Mapping[str, PreferenceRow]


def find_texts(tables: Tables, pairs: Sequence[PairRow]) -> Texts:
    """Read every text about the pairs."""
    keys = [pair.key for pair in pairs]
    images = [key for pair in pairs for key in (pair.first, pair.second)]
    shows = ("images", "rejected_images")
    return Texts(
        captions={row.subject: row for row in tables.find("captions", CaptionRow, images)},
        differences={row.subject: row for row in tables.find("differences", DifferenceRow, keys)},
        described=_grouped(tables.find("described", DifferenceRow, keys)),
        checks=_grouped(row for name in CHECKS for row in tables.find(name, CheckRow, keys)),
        comparisons={row.subject: row for row in tables.find("comparisons", ComparisonRow, keys)},
        questions=_grouped(tables.find("questions", QuestionRow, keys)),
        rejected=_grouped(row for name in MAKERS for row in tables.find(name, RejectedTextRow, keys)),
        preferences={row.subject: row for row in tables.find("preferences", PreferenceRow, keys, without=shows)},
    )


def _grouped(rows: Iterable[R]) -> Mapping[str, Sequence[R]]:
    found: dict[str, list[R]] = defaultdict(list)
    for row in rows:
        found[row.subject].append(row)
    return found


def byline(model: str, served: Sequence[Served], *, told: str = "", attempts: int = 1) -> Byline:
    """Say who wrote a text; the attempts are the row's, or the times that one prompt was asked."""
    prompts = [one.prompt for one in served]
    return Byline(
        model=model,
        prompts=tuple(dict.fromkeys(prompts)),
        told=told,
        attempts=max([attempts or 1, *(prompts.count(name) for name in prompts)]),
        tokens=sum(one.completion_tokens for one in served),
        seconds=sum(one.latency for one in served),
    )


def view_caption(image: ImageRow, texts: Texts) -> CaptionView | None:
    """Return an image's description; without one, the captions that its source brought."""
    row = texts.captions.get(image.key)
    if row is None:
        brought = " ".join(image.captions)
        return CaptionView(text=brought, sentences=(), by=Byline(model="given")) if brought else None
    sentences = row.sentences if len(row.sentences) > 1 else ()
    return CaptionView(text=row.text, sentences=sentences, by=byline(row.model, row.served))


def view_difference(pair: str, texts: Texts) -> DifferenceView | None:
    """Return the description of a pair that was taken."""
    row = texts.differences.get(pair)
    return _difference(row, texts, chosen=row) if row else None


def view_candidates(pair: str, texts: Texts) -> tuple[DifferenceView, ...]:
    """Return the descriptions that were not taken, those that failed fewest checks first."""
    chosen = texts.differences.get(pair)
    rows = [row for row in texts.described.get(pair, ()) if chosen is None or row.text != chosen.text]
    views = [_difference(row, texts, chosen=chosen) for row in rows]
    return tuple(sorted(views, key=lambda view: len(view.failed)))


def _difference(row: DifferenceRow, texts: Texts, *, chosen: DifferenceRow | None) -> DifferenceView:
    told = TOLD.get(row.served[-1].prompt, row.known or "") if row.served else ""
    # The row that was taken may have a key of its own; the one that was checked has the same words.
    keys = {row.key, *(one.key for one in texts.described.get(row.subject, ()) if one.text == row.text)}
    return DifferenceView(
        text=row.text,
        segments=mark_words(row.text, chosen.text if chosen else row.text),
        by=byline(row.model, row.served, told=told, attempts=row.attempts),
        checks=tuple(_check(check) for check in texts.checks.get(row.subject, ()) if check.description in keys),
    )


def _check(row: CheckRow) -> CheckView:
    return CheckView(
        check=row.check,
        passed=row.passed,
        score=row.score if row.passed or says_something(row.why or "") else None,
        why=row.why or "",
        answer=row.text or "",
        model=row.served[-1].model if row.served else "",
    )


def view_comparison(pair: str, texts: Texts) -> ComparisonView | None:
    """Return the commonalities and differences of a pair by axes, with their conversation."""
    row = texts.comparisons.get(pair)
    if row is None:
        return None
    axes = (*row.axes, *[""] * len(row.differences))
    return ComparisonView(
        commonalities=row.commonalities,
        differences=tuple(
            StatementView(axes=named, statement=statement, sides=split_sides(statement))
            for named, statement in zip(axes, row.differences, strict=False)
        ),
        conversation=row.conversation,
        by=byline(row.model, row.served, told=SHOWN.get(row.shown or "", row.shown or "")),
    )


def view_questions(pair: str, texts: Texts) -> tuple[QuestionView, ...]:
    """Return the questions about a pair with their answers."""
    return tuple(
        QuestionView(
            question=row.question,
            answer=row.answer,
            about=row.about,
            round=row.round + 1,
            rounds=row.rounds,
            by=byline(row.model, row.served),
        )
        for row in texts.questions.get(pair, ())
    )


def view_rejected(row: RejectedTextRow, chosen: str) -> RejectedView:
    """Return a rejected text beside the chosen one."""
    return RejectedView(
        maker=row.maker,
        note=row.note,
        score=row.score,
        segments=mark_words(row.text, chosen),
        by=_author(row),
    )


def view_unused(pair: str, texts: Texts) -> tuple[RejectedView, ...]:
    """Return the rejected texts of a pair that its preference does not hold; all of them where there is none."""
    preference, chosen = texts.preferences.get(pair), texts.differences.get(pair)
    used = {preference.rejected, *(one.text for one in preference.negatives)} if preference else set[str]()
    rows = [row for row in texts.rejected.get(pair, ()) if row.text not in used]
    return tuple(view_rejected(row, chosen.text if chosen else "") for row in rows)


def author_of(pair: str, texts: Texts, *, text: str) -> Byline | None:
    """Return which served model wrote a rejected text; none where a rule did."""
    authors = (_author(row) for row in texts.rejected.get(pair, ()) if row.text == text)
    return next((author for author in authors if author), None)


def _author(row: RejectedTextRow) -> Byline | None:
    if not row.served:
        return None
    return replace(byline(row.served[-1].model, row.served), several=row.maker in SEVERAL)
