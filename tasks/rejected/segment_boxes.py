"""Make one mask per tag of each image: the union of the masks of its boxes (paper 004, Eq. 6; several boxes are ours).

Reads ``BoxesRow`` and the images, writes one ``MasksRow`` per image, about the tags that have a
box. Boxes are clipped to the image; a box that covers the image makes no mask (ours: its tag names
the whole scene, of which SAM returns the largest thing). Only one image's masks are in memory at a
time: a byte per pixel and tag.
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
from pairwright.tasks.models.sam import Sam, pin_sam
from pairwright.tasks.models.scene_models import SceneSegmenter, TagMask
from pairwright.tasks.store.stage import Stage, Uses

NO_PIXELS = "no pixels"
COVERING = "its boxes cover the image"
OUTSIDE = "its boxes hold nothing of the image"
AHEAD = 4 * BATCH  # prepared images that may wait for a device, 3 MB each


def segment_boxes(
    rows: Sequence[BoxesRow], config: SegmentationConfig, *, images: Images
) -> Iterator[MasksRow | Dropped]:
    """Yield the masks of each image's tags."""
    segmenter = make_segmenter(config)
    items = [(_drop_unboxed(row), images[row.subject]) for row in rows]

    def segment(ready: Sequence[Ready[BoxesRow, Any]]) -> Iterator[MasksRow]:
        clipped = [list(_clip(one.row)) for one in ready]
        boxes = [
            [box for box, share in some if 0 < share < config.max_box_area] for some in clipped
        ]
        found = segmenter.segment(
            [one.part for one in ready], [one.row.tags for one in ready], boxes
        )
        for one, masks, some in zip(ready, found, clipped, strict=True):
            shares = [
                [share for box, share in some if box.tag == place] for place in range(len(masks))
            ]
            whys = [
                "" if mask.mask.any() else _say_why(own, config)
                for mask, own in zip(masks, shares, strict=True)
            ]
            yield _row(one.row, masks, whys)

    on_gpu = _has_weights(config) and count_gpus() > 0
    yield from in_groups(
        items, by_image(segmenter.prepare), segment, on_gpu=on_gpu, size=BATCH, ahead=AHEAD
    )


def make_segmenter(config: SegmentationConfig) -> Sam | SceneSegmenter:
    """Return the segmenter that a profile names."""
    return Sam(config=config) if _has_weights(config) else SceneSegmenter()


def _drop_unboxed(row: BoxesRow) -> BoxesRow:
    places = sorted({box.tag for box in row.boxes})
    number = {place: new for new, place in enumerate(places)}
    boxes = tuple(replace(box, tag=number[box.tag]) for box in row.boxes)
    return replace(row, tags=tuple(row.tags[place] for place in places), boxes=boxes)


def _clip(row: BoxesRow) -> Iterator[tuple[Box, float]]:
    """Yield the boxes clipped to the image, with their shares of its area."""
    for box in row.boxes:
        x0, x1 = (min(max(x, 0.0), float(row.width)) for x in (box.x0, box.x1))
        y0, y1 = (min(max(y, 0.0), float(row.height)) for y in (box.y0, box.y1))
        share = max(x1 - x0, 0.0) * max(y1 - y0, 0.0) / (row.width * row.height)
        yield replace(box, x0=x0, y0=y0, x1=x1, y1=y1), share


def _say_why(shares: Sequence[float], config: SegmentationConfig) -> str:
    """Return why a tag with boxes of these shares of the image has no mask."""
    if any(0 < share < config.max_box_area for share in shares):
        return NO_PIXELS
    return COVERING if any(share >= config.max_box_area for share in shares) else OUTSIDE


def _row(row: BoxesRow, masks: Sequence[TagMask], whys: Sequence[str]) -> MasksRow:
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
        whys=tuple(whys),
        mask_scores=tuple(float(mask.score) for mask in masks),
    )


def _name_models(config: SegmentationConfig) -> tuple[str, ...]:
    return (f"{config.segmenter} {make_segmenter(config).version}",)


def _has_weights(config: SegmentationConfig) -> bool:
    return config.segmenter == "sam"


STAGE = Stage(
    name="masks",
    group="rejected",
    reads={"boxes": BoxesRow},
    writes=MasksRow,
    function=segment_boxes,
    config=lambda profile: profile.segmentation,
    uses=(Uses(table="images", row=ImageRow),),
    models=_name_models,
    pin=pin_sam,
    processes=partial(count_processes, _has_weights),
)
