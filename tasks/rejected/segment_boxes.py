"""Make one mask per tag of each image: the union of the masks of its boxes (paper 004, Eq. 6; several boxes are ours).

Reads ``BoxesRow`` and the images, writes one ``MasksRow`` per image.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from schemas.config import SegmentationConfig
from schemas.rows import BoxesRow, Dropped, ImageRow, MasksRow, make_key
from tasks.models.prepare_ahead import BATCH, Ready, by_image, in_groups, prepare_ahead
from tasks.models.segmentation import SceneSegmenter, Segmenter, TagMask
from tasks.store.masks import encode_mask
from tasks.store.stage import Stage, Uses

NO_PIXELS = "no pixels"


def segment_boxes(
    rows: Sequence[BoxesRow], config: SegmentationConfig, *, images: Mapping[str, ImageRow]
) -> Iterator[MasksRow | Dropped]:
    """Yield the masks of each image's tags."""
    segmenter = make_segmenter(config)
    items = [(row, images[row.subject]) for row in rows]
    ready = prepare_ahead(items, by_image(segmenter.prepare), on_gpu=False)
    yield from in_groups(ready, partial(_segmented, segmenter), size=BATCH)


def make_segmenter(config: SegmentationConfig) -> Segmenter:  # noqa: ARG001
    """Return the segmenter that a profile names."""
    return SceneSegmenter()


def _segmented(segmenter: Segmenter, ready: Sequence[Ready[BoxesRow, Any]]) -> Iterator[MasksRow]:
    parts, tags, boxes = zip(*((one.part, one.row.tags, one.row.boxes) for one in ready), strict=True)
    for one, masks in zip(ready, segmenter.segment(parts, tags, boxes), strict=True):
        yield _row(one.row, masks)


def _row(row: BoxesRow, masks: Sequence[TagMask]) -> MasksRow:
    encoded = tuple(encode_mask(mask.mask).model_dump_json() for mask in masks)
    return MasksRow(
        key=make_key("masks", row.key, *encoded),
        source_key=row.key,
        subject=row.subject,
        width=row.width,
        height=row.height,
        tags=row.tags,
        boxes=row.boxes,
        masks=encoded,
        whys=tuple("" if mask.mask.any() else NO_PIXELS for mask in masks),
        mask_scores=tuple(float(mask.score) for mask in masks),
    )


STAGE = Stage(
    name="masks",
    version=1,
    group="rejected",
    reads="boxes",
    row=BoxesRow,
    writes=MasksRow,
    function=segment_boxes,
    config="segmentation",
    uses=(Uses(table="images", row=ImageRow),),
)
