"""Make the parts of images that aligned pairs are compared by.

Reads ``AlignmentRow``, writes ``ImageRow``: what both images of a pair show, the second one warped
onto the first. Later stages find these beside the source's images. All parts of one image are in
its group, so that they go to one split.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from pairwright.schemas.config import AlignmentConfig
from pairwright.schemas.rows import ONE_IMAGE, AlignmentRow, Dropped, ImageRow
from pairwright.tasks.images.decode import RGB, RefusedImageError, decode_rgb
from pairwright.tasks.models.pair_parts import cut_image, warp_second
from pairwright.tasks.store.stage import Stage, Uses

WHOLE = "both images are compared as they are"


def cut_images(
    rows: Sequence[AlignmentRow], config: AlignmentConfig, *, images: Mapping[str, ImageRow]
) -> Iterator[ImageRow | Dropped]:
    """Yield the parts of each pair's images; ``images``: whole ones, by their keys."""
    for row in rows:
        if not row.shown or row.shown == (row.first, row.second):
            yield Dropped(source_key=row.key, reason=row.why or WHOLE)
            continue
        try:
            yield from _cut_pair(row, (images[row.first], images[row.second]), config)
        except RefusedImageError as refused:
            yield Dropped(source_key=row.key, reason=refused.reason, detail=refused.detail)


def _cut_pair(
    row: AlignmentRow, images: tuple[ImageRow, ImageRow], config: AlignmentConfig
) -> Iterator[ImageRow]:
    """Yield the images of one pair that are not shown whole."""
    first, second = images
    first_key, second_key = row.shown
    if first_key != first.key:
        yield _cut(row, first, decode_rgb(first.image), first_key, config)
    if second_key != second.key:
        pixels = decode_rgb(second.image)
        if row.transform:
            pixels, _ = warp_second(pixels, row.transform, first.width, first.height)
        yield _cut(row, second, pixels, second_key, config)


def _cut(
    row: AlignmentRow, image: ImageRow, pixels: RGB, key: str, config: AlignmentConfig
) -> ImageRow:
    """Return a part of an image; texts about the whole image are not those of a tile."""
    x0, y0, x1, y1 = row.window
    shown = np.ascontiguousarray(pixels[y0:y1, x0:x1])
    part = cut_image(image, shown, row.window, key=key)
    captions = image.captions
    if config.tiles.size and max(image.width, image.height) > config.tiles.size:
        captions = ()
    group = image.group or f"{ONE_IMAGE}{image.key}"
    return replace(part, source_key=row.key, group=group, captions=captions)


STAGE = Stage(
    name="aligned_images",
    group="mining",
    reads={"alignments": AlignmentRow},
    writes=ImageRow,
    function=cut_images,
    config=lambda profile: profile.aligning,
    enabled=attrgetter("enabled"),
    uses=(Uses(table="images", row=ImageRow, on="about"),),
    extends="images",
    rows_per_shard=100,
)
