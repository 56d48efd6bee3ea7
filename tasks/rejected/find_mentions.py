"""Find what the preferred texts mention of each image: their nouns (the second tagger; after paper 004, section 3.1).

Reads ``DifferenceRow`` with its pair, and ``PreferenceRow`` as a source gave it; writes one ``MentionRow`` per image of
which the text names something. Needs spaCy.

The first half of a description is about the first image, the second half about the second. What a half denies
("without a dog") is not mentioned: it is not there to be removed. A text that finds no change mentions nothing. A
preference of a source is about its image as a whole (all of this is ours).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.rows import DifferenceRow, Dropped, MentionRow, PairRow, PreferenceRow, make_key
from pairwright.tasks.models.nouns import find_nouns_of, name_model, pin_model
from pairwright.tasks.store.stage import Stage, Uses
from pairwright.tasks.texts.words import affirmed

MAX_CHARACTERS = 20_000
"""Of a text; hundreds of times what people write, and far below what spaCy refuses."""
NO_CHANGE, NO_PAIR = "a description of no change", "no pair of the description"
NO_PAIRS: Mapping[str, PairRow] = MappingProxyType({})
NO_NOUNS, TOO_LONG = "no nouns in the preferred text", "preferred text too long"


@dataclass(frozen=True, slots=True)
class Said:
    """Be what one text says of images."""

    source: str
    """Key of its row."""
    halves: tuple[tuple[str, str], ...]
    """Each image with the words about it."""
    whole: str
    """The beginning of all that it says, denials too."""


def find_mentions(
    rows: Sequence[DifferenceRow | PreferenceRow], config: NounsConfig, *, pairs: Mapping[str, PairRow] = NO_PAIRS
) -> Iterator[MentionRow | Dropped]:
    """Yield the nouns of each half of a description, about its image, and of each preferred text about its images.

    Raises:
        ModelError: the spaCy pipeline is missing, or cannot tag.
    """
    yield from _mentions([_said(row, pairs) for row in rows], config)


def _said(row: DifferenceRow | PreferenceRow, pairs: Mapping[str, PairRow]) -> Said | Dropped:
    if isinstance(row, DifferenceRow):
        return _halves(row, pairs)
    return _checked(row.key, [(key, row.chosen) for key in row.image_keys])


def _halves(row: DifferenceRow, pairs: Mapping[str, PairRow]) -> Said | Dropped:
    pair = pairs.get(row.subject)
    if pair is None or row.no_change:
        return Dropped(source_key=row.key, reason=NO_CHANGE if pair else NO_PAIR)
    said = _checked(row.key, [(pair.first, row.first_half), (pair.second, row.second_half)])
    if isinstance(said, Dropped):
        return said
    return replace(said, halves=tuple((image, affirmed(text)) for image, text in said.halves))


def _checked(source: str, halves: Sequence[tuple[str, str]]) -> Said | Dropped:
    length = max((len(text) for _, text in halves), default=0)
    if length > MAX_CHARACTERS:
        return Dropped(source_key=source, reason=TOO_LONG, detail=f"{length:,} characters")
    each = tuple(dict.fromkeys(halves))
    return Said(source, each, "; ".join(text[:80] for _, text in each))


def _mentions(said: Sequence[Said | Dropped], config: NounsConfig) -> Iterator[MentionRow | Dropped]:
    """Yield one row per image of which a text has nouns; all texts are tagged in one go."""
    (model,) = name_model(config)
    texts = (text for one in said if isinstance(one, Said) for _, text in one.halves)
    found = find_nouns_of(texts, config)
    for one in said:
        if isinstance(one, Dropped):
            yield one
            continue
        rows = [_row(one.source, image, next(found), model) for image, _ in one.halves]
        if not any(row.nouns for row in rows):
            yield Dropped(source_key=one.source, reason=NO_NOUNS, detail=one.whole)
        yield from (row for row in rows if row.nouns)


def _row(source: str, image: str, lemmas: Sequence[str], model: str) -> MentionRow:
    nouns = tuple(dict.fromkeys(lemmas))
    key = make_key("mentions", source, image, model, *nouns)
    return MentionRow(key=key, source_key=source, subject=image, nouns=nouns, model=model)


def name_pipeline(config: NounsConfig) -> tuple[str, ...]:
    """Return what identifies the pipeline, for the table's fingerprint; a build has filled the revision in."""
    return (config.revision or config.model,)


STAGE = Stage(
    name="mentions",
    version=1,
    group="rejected",
    reads={"differences": DifferenceRow, "given_preferences": PreferenceRow},
    writes=MentionRow,
    function=find_mentions,
    without=("images", "rejected_images"),
    config="nouns",
    uses=(Uses(table="pairs", row=PairRow),),
    models=name_pipeline,
    pin=pin_model,
    rows_per_shard=2000,
)
