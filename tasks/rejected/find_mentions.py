"""Find the nouns of the preferred texts about each image (the second tagger; after paper 004, section 3.1).

Reads ``DifferenceRow`` with its pair, and ``PreferenceRow`` as a source gave it; writes one
``MentionRow`` per image with nouns. Needs spaCy. Each half of a description is about its image; a
denied thing ("without a dog") is left out, as it is not there to be removed (ours).
"""

from collections.abc import Iterator, Sequence

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
from pairwright.tasks.models.nouns import find_nouns_of, name_model, pin_model
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.words import affirmed

MAX_CHARACTERS = 20_000  # of a text: far more than people write, and far below spaCy's limit
Parts = list[
    tuple[str, str, str]
]  # images of one text, each with the words about it and their affirmed part


def find_mentions(
    rows: Sequence[DifferenceRow | PreferenceRow], config: NounsConfig, *, pairs: Pairs = NO_ROWS
) -> Iterator[MentionRow | Dropped]:
    """Yield the nouns of each half of a description, about its image, and of each preferred text about its images."""
    (model,) = name_model(config)
    said = [_split_text(row, pairs) for row in rows]
    found = find_nouns_of(
        (text for one in said if isinstance(one, list) for *_, text in one), config
    )
    for row, one in zip(rows, said, strict=True):
        if isinstance(one, Dropped):
            yield one
            continue
        named = [(image, tuple(dict.fromkeys(next(found)))) for image, *_ in one]
        for image, nouns in named:
            if nouns:
                key = make_key("mentions", row.key, image, model, *nouns)
                yield MentionRow(
                    key=key, source_key=row.key, subject=image, nouns=nouns, model=model
                )
        if not any(nouns for _, nouns in named):
            whole = "; ".join(text[:80] for _, text, _ in one)
            yield Dropped(source_key=row.key, reason="no nouns in the preferred text", detail=whole)


def _split_text(row: DifferenceRow | PreferenceRow, pairs: Pairs) -> Parts | Dropped:
    if isinstance(row, PreferenceRow):
        halves = [(key, row.chosen) for key in row.image_keys]
    else:
        pair = pairs.get(row.subject)
        if pair is None or row.no_change:
            why = "a description of no change" if pair else "no pair of the description"
            return Dropped(source_key=row.key, reason=why)
        halves = [(pair.first, row.first_half), (pair.second, row.second_half)]
    length = max((len(text) for _, text in halves), default=0)
    if length > MAX_CHARACTERS:
        return Dropped(
            source_key=row.key, reason="preferred text too long", detail=f"{length:,} characters"
        )
    read = affirmed if isinstance(row, DifferenceRow) else str
    return [(image, text, read(text)) for image, text in halves]


def _name_pipeline(config: NounsConfig) -> tuple[str, ...]:
    return (config.revision or config.model,)  # a build has filled the revision in


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
