"""Find the nouns of the preferred texts about each image (the second tagger).

Reads ``DifferenceRow`` with its pair, and ``PreferenceRow`` as a source gave it; writes one
``MentionRow`` per image with nouns (after paper 004, section 3.1). Needs spaCy. Each half of a
description is about its image; a denied object ("without a dog") is left out, as it is not there
to be removed (ours).
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.rows import (
    NO_ROWS,
    DifferenceRow,
    Dropped,
    MentionRow,
    PairRow,
    Pairs,
    PreferenceRow,
    make_key,
)
from pairwright.tasks.models.nouns import find_nouns_of, identify_finder, name_model, pin_model
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.words import affirmed

MAX_CHARACTERS = 20_000  # of a text: far more than people write, and far below spaCy's limit


class ImageText(NamedTuple):
    """Preferred text about one image."""

    image_key: str
    text: str
    affirmed: str  # without what it denies


def find_mentions(
    rows: Sequence[DifferenceRow | PreferenceRow], config: NounsConfig, *, pairs: Pairs = NO_ROWS
) -> Iterator[MentionRow | Dropped]:
    """Yield the nouns of each half about its image, and of each preferred text about its images."""
    (model,) = name_model(config)
    split = [_split_text(row, pairs) for row in rows]
    texts = chain.from_iterable(parts for parts in split if not isinstance(parts, Dropped))
    all_nouns = find_nouns_of((text.affirmed for text in texts), config)
    for row, parts in zip(rows, split, strict=True):
        if isinstance(parts, Dropped):
            yield parts
            continue
        nouns = [tuple(dict.fromkeys(next(all_nouns))) for _ in parts]
        yield from _mention_rows(row.key, parts, nouns, model)


def _mention_rows(
    row_key: str,
    parts: Sequence[ImageText],
    nouns: Sequence[tuple[str, ...]],
    model: str,
) -> Iterator[MentionRow | Dropped]:
    """Yield a row per image with nouns, or ``Dropped`` if none has any."""
    for part, part_nouns in zip(parts, nouns, strict=True):
        if part_nouns:
            yield MentionRow(
                key=make_key("mentions", row_key, part.image_key, model, *part_nouns),
                source_key=row_key,
                subject=part.image_key,
                nouns=part_nouns,
                model=model,
            )
    if not any(nouns):
        detail = "; ".join(part.text[:80] for part in parts)
        reason = "no nouns in the preferred text"
        yield Dropped(
            source_key=row_key,
            reason=reason,
            detail=detail,
        )


def _split_text(row: DifferenceRow | PreferenceRow, pairs: Pairs) -> list[ImageText] | Dropped:
    """Return the texts about each image."""
    if isinstance(row, PreferenceRow):
        halves = [(image_key, row.chosen) for image_key in row.image_keys]
    else:
        pair = pairs.get(row.subject)
        if pair is None:
            return Dropped(source_key=row.key, reason="no pair of the description")
        if row.no_change:
            return Dropped(source_key=row.key, reason="a description of no change")
        halves = [(pair.first, row.first_half), (pair.second, row.second_half)]
    length = max((len(text) for _, text in halves), default=0)
    if length > MAX_CHARACTERS:
        detail = f"{length:,} characters"
        return Dropped(
            source_key=row.key,
            reason="preferred text too long",
            detail=detail,
        )
    affirm = affirmed if isinstance(row, DifferenceRow) else str
    return [ImageText(image_key, text, affirm(text)) for image_key, text in halves]


def _name_pipeline(config: NounsConfig) -> tuple[str, ...]:
    return (identify_finder(config),)


STAGE = Stage(
    name="mentions",
    group="rejected",
    reads={"differences": DifferenceRow, "given_preferences": PreferenceRow},
    writes=MentionRow,
    function=find_mentions,
    without=("images", "rejected_images"),
    config=lambda profile: profile.nouns,
    uses=(Uses(table="pairs", row=PairRow),),
    models=_name_pipeline,
    pin=pin_model,
    rows_per_shard=2000,
)
