"""Describe each image in detail.

Reads ``ImageRow``, writes ``CaptionRow``: composed from the image's scene graph, or the caption that its source gave
(CPU, no network); or written by a served model that sees the image, where the source gave none (``ask_captions``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pairwright.schemas.config import CaptionsConfig
from pairwright.schemas.rows import CaptionRow, Dropped, Failed, ImageRow, Row
from pairwright.schemas.sentences import split_by_rules
from pairwright.tasks.captioning.ask_captions import DESCRIBE, SPLIT, ask_captions
from pairwright.tasks.captioning.compose_caption import compose_caption
from pairwright.tasks.captioning.given_captions import caption_row, given_caption
from pairwright.tasks.captioning.statements import row_random
from pairwright.tasks.captioning.validators import name_validators, refuse_text
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.store.stage import Stage


def describe_images(
    rows: Sequence[ImageRow], config: CaptionsConfig, *, answers: Answers | None = None
) -> Iterator[Row | Dropped | Failed]:
    """Yield one caption per image, or ``Dropped`` with its reason."""
    if config.is_served:
        yield from ask_captions(rows, config, answers=answers)
    else:
        yield from (_compose(row, config) for row in rows)


def _compose(row: ImageRow, config: CaptionsConfig) -> CaptionRow | Dropped:
    """Return a caption without asking; an image with neither scene graph nor given captions is dropped."""
    if row.graph is not None:
        rng = row_random("caption", config.seed, row.key)
        sentences = tuple(part.text for part in compose_caption(row.graph, rng))
        text = " ".join(sentences)
        if why := refuse_text(text, config):
            return Dropped(source_key=row.key, reason=why, detail=text)
        return caption_row(row, text, sentences, model=config.writer)
    if given := given_caption(row):
        return caption_row(row, given, split_by_rules(given), model="given")
    return Dropped(source_key=row.key, reason="no scene graph", detail=row.name)


def fit_stage(stage: Stage, config: CaptionsConfig) -> Stage:
    """Return the stage as it runs: served models see the images, and their answers are remembered."""
    if not config.is_served:
        return stage
    asked = (DESCRIBE, SPLIT) if config.split == "served" else (DESCRIBE,)
    return replace(stage, prompts=asked, without=(), remembers=True)


STAGE = Stage(
    name="captions",
    version=3,
    group="captioning",
    reads={"images": ImageRow},
    writes=CaptionRow,
    function=describe_images,
    config="captions",
    models=name_validators,
    prompts=("caption_sentences",),
    only_in=("pairs",),
    without=("image",),
    fit=fit_stage,
)
