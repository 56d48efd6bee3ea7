"""Find the nouns of images' captions, for pairing (paper 003, section 3.1).

Reads ``ImageRow`` with its source's captions, writes one ``NounsRow`` per image: the distinct
lemmas of all its captions, before any stop list or limit, so that those can change without tagging
again. Needs spaCy.

The paper states neither its tagger nor whether it counts words or distinct lemmas: both are ours,
as is including proper nouns (as in Img-Diff) and joining all captions of one image.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from pairwright.schemas.config import NounsConfig
from pairwright.schemas.rows import Dropped, ImageRow, NounsRow, make_key
from pairwright.tasks.models.nouns import find_nouns_of, name_model, pin_model
from pairwright.tasks.store.stage import Stage

MAX_CHARACTERS = 20_000
"""Maximum characters of all captions of one image; hundreds of times what people write."""


def find_nouns(rows: Sequence[ImageRow], config: NounsConfig) -> Iterator[NounsRow | Dropped]:
    """Yield the nouns of each image, or the reason why it has none."""
    model = name_model(config)[0]
    lengths = [sum(map(len, row.captions)) for row in rows]
    nouns_of_captions = find_nouns_of(_captions(rows, lengths), config)
    for row, length in zip(rows, lengths, strict=True):
        if not length:
            yield Dropped(source_key=row.key, reason="no captions", detail=row.name)
            continue
        if length > MAX_CHARACTERS:
            detail = f"{row.name}: {length:,} characters"
            yield Dropped(
                source_key=row.key,
                reason="captions too long",
                detail=detail,
            )
            continue
        captions = islice(nouns_of_captions, len(row.captions))
        nouns = tuple(sorted(set().union(*captions)))
        if nouns:
            key = make_key("nouns", row.key, model, *nouns)
            yield NounsRow(
                key=key,
                source_key=row.key,
                subject=row.key,
                nouns=nouns,
                model=model,
            )
        else:
            detail = f"{row.name}: {row.captions[0]:.80}"
            yield Dropped(
                source_key=row.key,
                reason="no nouns in captions",
                detail=detail,
            )


def _captions(rows: Sequence[ImageRow], lengths: Sequence[int]) -> Iterator[str]:
    """Yield the captions that are tagged."""
    for row, length in zip(rows, lengths, strict=True):
        if 0 < length <= MAX_CHARACTERS:
            yield from row.captions


STAGE = Stage(
    name="nouns",
    group="mining",
    reads={"images": ImageRow},
    writes=NounsRow,
    function=find_nouns,
    config=lambda profile: profile.nouns,
    models=name_model,
    pin=pin_model,
    by_source=True,  # an image's key does not hash its captions
    without=("image", "graph"),
    rows_per_shard=2000,
)
