"""Remove one element at a time from images, for preferences that reject an image (paper 004, section 3.1).

Reads ``ElementRow`` and the images, writes one ``RemovalRow`` per element that can be removed. Its mask is dilated, the
hole filled from the place around it, and the filling faded in over the feather; every other pixel stays as it was, and
so do the visible pixels of the other objects of a rendered scene. Shadows stay: the masks do not hold them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from schemas.config import RemovalsConfig
from schemas.rows import Dropped, ElementRow, ImageRow, RemovalRow, make_key
from schemas.scene import Mask
from tasks.models.inpainting import Inpainter, OpenCVInpainter
from tasks.models.prepare_ahead import Seen, prepare_ahead
from tasks.store.images import encode_png
from tasks.store.masks import decode_mask
from tasks.store.stage import Stage, Uses

NOT_CHOSEN = "its mask was refused"
Pixels = NDArray[np.bool_]


def remove_elements(
    rows: Sequence[ElementRow], config: RemovalsConfig, *, images: Mapping[str, ImageRow]
) -> Iterator[RemovalRow | Dropped]:
    """Yield what changes in the image without each element, or why it is not removed."""
    for row in rows:
        if row.why:
            yield Dropped(source_key=row.key, reason=NOT_CHOSEN, detail=f"{row.tag}: {row.why}")
    items = [(row, images[row.subject]) for row in rows if not row.why]
    work = partial(_removal, config, make_inpainter(config))
    for result in prepare_ahead(items, work, on_gpu=False):
        yield result if isinstance(result, Dropped) else result.part


def make_inpainter(config: RemovalsConfig) -> Inpainter:
    """Return the inpainter that a profile names."""
    return OpenCVInpainter("telea" if config.inpainter == "telea" else "navier-stokes")


def _removal(config: RemovalsConfig, inpainter: Inpainter, row: ElementRow, seen: Seen) -> RemovalRow:
    pixels, mask = seen.pixels, decode_mask(Mask.model_validate_json(row.mask))
    others = _others(row, seen)
    weight = feathered(mask, config) * ~others
    hole = weight > 0
    filled = inpainter.fill(pixels, hole | _rims(others))
    blended = np.rint(pixels + weight[:, :, None] * (filled.astype(np.float32) - pixels)).astype(np.uint8)
    lines, columns = np.flatnonzero(hole.any(axis=1)), np.flatnonzero(hole.any(axis=0))
    window = (int(columns[0]), int(lines[0]), int(columns[-1]) + 1, int(lines[-1]) + 1)
    return RemovalRow(
        key=make_key("removal", row.key),
        source_key=row.key,
        subject=row.key,
        image_key=row.subject,
        tag=row.tag,
        object_ids=row.object_ids,
        box=row.box,
        mask=row.mask,
        window=window,
        patch=encode_png(np.ascontiguousarray(blended[window[1] : window[3], window[0] : window[2]])),
        area_share=row.area_share,
        dilate=config.dilate,
        feather=config.feather,
        inpainter=config.inpainter,
        changed_outside=int((blended != pixels).any(axis=2)[~hole].sum()),
    )


def _others(row: ElementRow, seen: Seen) -> Pixels:
    """Return the visible pixels of the objects that stay, where the image's graph knows them."""
    things = seen.graph.objects if seen.graph and row.object_ids else ()
    masks = [decode_mask(thing.mask) for thing in things if thing.id not in row.object_ids]
    return np.logical_or.reduce([np.zeros(seen.pixels.shape[:2], dtype=bool), *masks])


def _rims(others: Pixels) -> Pixels:
    """Return the other objects with the pixels at their edges, which mix colours.

    They are filled too, and then kept: the hole takes its colours from the place behind, not from its neighbours, and
    not from what is removed, whose own edges lie under the dilation and the feather.
    """
    import cv2

    return cv2.dilate(others.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)


def feathered(mask: Pixels, config: RemovalsConfig) -> NDArray[np.float32]:
    """Return 1 in the dilated mask, falling to 0 over the feather around it."""
    import cv2

    distance = cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    return np.clip((config.dilate + config.feather + 1 - distance) / (config.feather + 1), 0, 1).astype(np.float32)


STAGE = Stage(
    name="removals",
    version=2,
    group="rejected",
    reads="elements",
    row=ElementRow,
    writes=RemovalRow,
    function=remove_elements,
    config="removals",
    uses=(Uses(table="images", row=ImageRow),),
)
