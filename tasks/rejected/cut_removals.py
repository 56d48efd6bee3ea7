"""Cut a removal with its surroundings out of the original and the altered image, for the checks that look at pixels.

Reads a ``RemovalRow`` and its image, writes nothing; needs OpenCV. Of a photograph of 12 million pixels only what lies
around the removed element is copied.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import RemovalRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.rejected.measure_distance import measure_distance
from pairwright.tasks.rejected.measure_rim import margin
from pairwright.tasks.store.images import RGB, put_patch
from pairwright.tasks.store.patches import cut_mask
from pairwright.tasks.store.runs import Corners, Runs, read_runs

Bits = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Be a removal and what is around it."""

    corner: tuple[int, int]
    """Column and row of the image at which it starts."""
    before: RGB
    after: RGB
    mask: Bits
    """The element, before the mask was dilated."""
    distance: NDArray[np.float32]
    """Of each pixel from the mask, in pixels; 0 in it."""
    kept: Bits
    """Other objects of a rendered scene, which are no part of the hole, with the pixels at their edges."""

    def put_into(self, pixels: RGB) -> RGB:
        """Return a copy of the whole image, altered."""
        made, (x0, y0) = pixels.copy(), self.corner
        made[y0 : y0 + self.after.shape[0], x0 : x0 + self.after.shape[1]] = self.after
        return made


def cut_removal(row: RemovalRow, seen: Seen) -> Around:
    """Return what changes in an image, with as much around it as the measure of the rim looks at.

    Raises:
        RefusedImageError: the patch does not decode.
        ValueError: it does not fit its window, that not the image, or the mask is of another size.
    """
    height, width = seen.pixels.shape[:2]
    runs = read_runs(Mask.model_validate_json(row.mask))
    if (runs.height, runs.width) != (height, width):
        raise ValueError(f"a mask of {runs.width} x {runs.height} pixels, an image of {width} x {height}")
    x0, y0, x1, y1 = place = _place(row, runs)
    before, mask = seen.pixels[y0:y1, x0:x1], cut_mask(runs, place)
    left, top, right, bottom = row.window
    return Around(
        corner=(x0, y0),
        before=before,
        after=put_patch(before, row.patch, (left - x0, top - y0, right - x0, bottom - y0)),
        mask=mask,
        distance=measure_distance(mask),
        kept=_kept(row, seen, place),
    )


def _place(row: RemovalRow, mask: Runs) -> Corners:
    """Return the smallest window with the patch and the surroundings of the mask."""
    left, top, right, bottom = row.window
    if not (0 <= left < right <= mask.width and 0 <= top < bottom <= mask.height):
        raise ValueError(f"the window {row.window} is not in an image of {mask.width} x {mask.height} pixels")
    if not mask.area:
        return row.window
    (x0, y0, x1, y1), reach = mask.box, row.dilate + margin(row.feather)
    return (
        max(min(x0 - reach, left), 0),
        max(min(y0 - reach, top), 0),
        min(max(x1 + reach, right), mask.width),
        min(max(y1 + reach, bottom), mask.height),
    )


def _kept(row: RemovalRow, seen: Seen, place: Corners) -> Bits:
    import cv2

    kept = np.zeros((place[3] - place[1], place[2] - place[0]), bool)
    for thing in seen.graph.objects if seen.graph and row.object_ids else ():
        if thing.id not in row.object_ids:
            kept |= cut_mask(read_runs(thing.mask), place)
    return cv2.dilate(kept.astype(np.uint8), np.ones((5, 5), np.uint8)).astype(bool)
