"""Make one mask per tag of each image: the union of the masks of its boxes (paper 004, Eq. 6).

Reads ``BoxesRow`` and the images, writes one ``MasksRow`` per image, about the tags that have a
box. Several boxes per tag are ours. Boxes are clipped to the image; a box that covers the image
makes no mask (ours: its tag names the whole scene, of which SAM returns the largest object). Only
one image's masks are in memory at a time: a byte per pixel and tag.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.rows import Box, BoxesRow, Dropped, ImageRow, Images, MasksRow, make_key
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.models.devices import count_gpus, count_processes
from pairwright.tasks.models.prepare_ahead import BATCH, Ready, by_image, in_groups
from pairwright.tasks.models.scene_models import TagMask
from pairwright.tasks.perception.segmenters import SEGMENTERS
from pairwright.tasks.store.stage import Stage, Uses

NO_PIXELS = "no pixels"
COVERING = "its boxes cover the image"
OUTSIDE = "its boxes hold nothing of the image"
AHEAD = 4 * BATCH  # prepared images that may wait for a device, 3 MB each
Clipped = tuple[Box, float]  # box clipped to the image, and its share of the image's area


def segment_boxes(
    rows: Sequence[BoxesRow], config: SegmentationConfig, *, images: Images
) -> Iterator[MasksRow | Dropped]:
    """Yield the masks of each image's tags."""
    segmenter = SEGMENTERS.make(config.segmenter, config)
    items = [(_drop_unboxed(row), images[row.subject]) for row in rows]

    def segment(ready: Sequence[Ready[BoxesRow, Any]]) -> Iterator[MasksRow]:
        clipped = [list(_clip(item.row)) for item in ready]
        prepared = [item.part for item in ready]
        tags = [item.row.tags for item in ready]
        boxes = [_segmented_boxes(row_boxes, config) for row_boxes in clipped]
        segmented = segmenter.segment(prepared, tags, boxes)
        for item, masks, row_boxes in zip(ready, segmented, clipped, strict=True):
            yield _masks_row(item.row, masks, row_boxes, config)

    on_gpu = _has_weights(config) and count_gpus() > 0
    prepare = by_image(segmenter.prepare)
    yield from in_groups(
        items,
        prepare,
        segment,
        on_gpu=on_gpu,
        size=BATCH,
        ahead=AHEAD,
    )


def _drop_unboxed(row: BoxesRow) -> BoxesRow:
    """Return the row without the tags that have no box."""
    boxed = sorted({box.tag for box in row.boxes})
    new_index = {old: new for new, old in enumerate(boxed)}
    boxes = tuple(replace(box, tag=new_index[box.tag]) for box in row.boxes)
    return replace(row, tags=tuple(row.tags[index] for index in boxed), boxes=boxes)


def _clip(row: BoxesRow) -> Iterator[Clipped]:
    """Yield the boxes clipped to the image, with their shares of its area."""
    for box in row.boxes:
        x0 = min(max(box.x0, 0.0), float(row.width))
        x1 = min(max(box.x1, 0.0), float(row.width))
        y0 = min(max(box.y0, 0.0), float(row.height))
        y1 = min(max(box.y1, 0.0), float(row.height))
        area = max(x1 - x0, 0.0) * max(y1 - y0, 0.0)
        yield (
            replace(
                box,
                x0=x0,
                y0=y0,
                x1=x1,
                y1=y1,
            ),
            area / (row.width * row.height),
        )


def _segmented_boxes(boxes: Sequence[Clipped], config: SegmentationConfig) -> list[Box]:
    return [box for box, share in boxes if 0 < share < config.max_box_area]


def _explain_empty(shares: Sequence[float], config: SegmentationConfig) -> str:
    """Return why a tag with boxes of these shares of the image has no mask."""
    if any(0 < share < config.max_box_area for share in shares):
        return NO_PIXELS
    return COVERING if any(share >= config.max_box_area for share in shares) else OUTSIDE


def _masks_row(
    row: BoxesRow,
    masks: Sequence[TagMask],
    boxes: Sequence[Clipped],
    config: SegmentationConfig,
) -> MasksRow:
    reasons: list[str] = []
    for tag_index, mask in enumerate(masks):
        shares = [share for box, share in boxes if box.tag == tag_index]
        reasons.append("" if mask.mask.any() else _explain_empty(shares, config))
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
        whys=tuple(reasons),
        mask_scores=tuple(float(mask.score) for mask in masks),
    )


def _name_models(config: SegmentationConfig) -> tuple[str, ...]:
    segmenter = SEGMENTERS.make(config.segmenter, config)
    return (f"{config.segmenter} {segmenter.version}",)


def _pin_models(config: SegmentationConfig) -> SegmentationConfig:
    return SEGMENTERS.pin(config.segmenter, config, download=config.download)


def _has_weights(config: SegmentationConfig) -> bool:
    return SEGMENTERS.has_weights(config.segmenter)


STAGE = Stage(
    name="masks",
    group="rejected",
    reads={"boxes": BoxesRow},
    writes=MasksRow,
    function=segment_boxes,
    config=lambda profile: profile.segmentation,
    uses=(Uses(table="images", row=ImageRow),),
    models=_name_models,
    pin=_pin_models,
    processes=partial(count_processes, _has_weights),
)
