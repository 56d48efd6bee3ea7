"""Name what is in each image (paper 004, section 3.1: the key elements).

Reads ``ImageRow``, writes one ``TagsRow`` per image.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from schemas.config import TaggingConfig
from schemas.rows import Dropped, ImageRow, Tag, TagsRow, make_key
from tasks.models.prepare_ahead import BATCH, Ready, by_image, in_groups, prepare_ahead
from tasks.models.tagging import SceneTagger, Tagger
from tasks.store.stage import Stage


def tag_images(rows: Sequence[ImageRow], config: TaggingConfig) -> Iterator[TagsRow | Dropped]:
    """Yield the tags of each image, or why there are none."""
    tagger = make_tagger(config)
    ready = prepare_ahead([(row, row) for row in rows], by_image(tagger.prepare), on_gpu=False)
    yield from in_groups(ready, partial(_tagged, tagger), size=BATCH)


def make_tagger(config: TaggingConfig) -> Tagger:  # noqa: ARG001
    """Return the tagger that a profile names."""
    return SceneTagger()


def _tagged(tagger: Tagger, images: Sequence[Ready[ImageRow, Any]]) -> Iterator[TagsRow | Dropped]:
    for image, tags in zip(images, tagger.tag([image.part for image in images]), strict=True):
        yield _row(image.row, tags)


def _row(row: ImageRow, tags: Sequence[Tag]) -> TagsRow | Dropped:
    if not tags:
        return Dropped(source_key=row.key, reason="no tags", detail=row.name)
    made_of = [f"{tag.tagger} {tag.name} {tag.score} {' '.join(tag.objects)}" for tag in tags]
    return TagsRow(key=make_key("tags", row.key, *made_of), source_key=row.key, subject=row.key, tags=tuple(tags))


STAGE = Stage(
    name="tags",
    version=1,
    group="rejected",
    reads="images",
    row=ImageRow,
    writes=TagsRow,
    function=tag_images,
    config="tagging",
    only_in="pairs",
)
