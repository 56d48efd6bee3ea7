"""Describe each image in detail.

Reads ``ImageRow``, writes ``CaptionRow``: composed from the image's scene graph, or the caption that its source gave.
CPU, no network.
"""

import re
from collections.abc import Iterator, Sequence

from schemas.config import CaptionsConfig
from schemas.rows import CaptionRow, Dropped, ImageRow
from tasks.captioning.compose_caption import compose_caption
from tasks.captioning.statements import row_random
from tasks.store.stage import Stage

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'“])")


def describe_images(rows: Sequence[ImageRow], config: CaptionsConfig) -> Iterator[CaptionRow | Dropped]:
    """Yield one caption per image; an image with neither scene graph nor given captions is dropped."""
    for row in rows:
        if row.graph is not None:
            rng = row_random("caption", config.seed, row.key)
            yield _caption(row, [part.text for part in compose_caption(row.graph, rng)], model=config.writer)
        elif given := max((" ".join(text.split()) for text in row.captions), key=len, default=""):
            yield _caption(row, SENTENCE_END.split(given), model="given")
        else:
            yield Dropped(source_key=row.key, reason="no scene graph", detail=row.name)


def _caption(row: ImageRow, sentences: Sequence[str], *, model: str) -> CaptionRow:
    return CaptionRow(
        key=row.key,
        source_key=row.key,
        subject=row.key,
        text=" ".join(sentences),
        sentences=tuple(sentences),
        model=model,
    )


STAGE = Stage(
    name="captions",
    version=2,
    group="captioning",
    reads="images",
    row=ImageRow,
    writes=CaptionRow,
    function=describe_images,
    config="captions",
    prompts=("caption_sentences",),
    only_in="pairs",
    without=("image",),
)
