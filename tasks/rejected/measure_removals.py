"""Cut removals out of images, and measure edges along the rim of the filled hole: halos (ours).

Reads a ``RemovalRow`` and its image, writes nothing; needs OpenCV. Pixels are grouped by their
distance from the mask into rings one pixel wide, and by the nearest point of the mask into arcs of
about ``ARC`` pixels. An arc's step at a distance is the difference between the mean colours of the
next ``SIDE`` rings on both sides, divided by the arc's strongest step farther out, or ``VISIBLE``.
The rim's strength is the largest median of these ratios over the arcs: an edge of the photograph
crosses it in a few arcs, a halo follows it. A blurred filling without an edge is not detected.

What the limit refuses on photographs is measured by ``tests/bench/bench_removals.py``.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import RemovalRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import RGB, put_patch
from pairwright.tasks.images.masks import Corners, Runs, cut_mask, read_runs
from pairwright.tasks.models.prepare_ahead import DecodedImage

Bits = NDArray[np.bool_]
Floats = NDArray[np.float64]
ARC = 8  # length of an arc, in pixels of the mask's outline
SIDE = 2  # rings to compare on each side of an edge
PAST = 5  # pixels beyond the hole that may show the rest of an element, if its mask was too tight
AROUND = 30  # measured pixels beyond the hole
APART = 3  # rings between the rim and its surroundings, so that they do not share an edge
VISIBLE = 4.0  # just visible step in levels of 255; weaker surroundings count as this
FEWEST = 3  # least measured arcs of a rim, and at least half of all, to measure an edge
LEAST = 4  # least pixels of an arc on each side of an edge, to measure a step


def measure_distance(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the distance of each pixel of ``(h, w)`` from the mask: 0 in it, far if it is empty.

    Squared distances are integers: rounding them removes OpenCV's varying last digits, up to a
    thousand pixels.
    """
    import cv2

    background = (~mask).astype(np.uint8)
    transform = cv2.distanceTransform(background, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    distance = np.asarray(transform, np.float32)
    with np.errstate(over="ignore"):
        np.square(distance, out=distance)
    np.rint(distance, out=distance)
    return np.sqrt(distance, out=distance)


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class RemovalCrop:
    """Removal and its surroundings, cut out of the image."""

    corner: tuple[int, int]  # column and row of its corner in the image
    before: RGB
    after: RGB
    mask: Bits  # the element, before the mask was dilated
    distance: NDArray[np.float32]  # distance of each pixel from the mask, in pixels; 0 inside


def cut_removal(row: RemovalRow, image: DecodedImage) -> RemovalCrop:
    """Return the changed part of an image, with the surroundings that ``measure_rim`` needs.

    Raises:
        RefusedImageError: the patch does not decode.
        ValueError: the patch does not fit its window, the window the image, or the mask has another
            size.
    """
    runs = read_runs(Mask.model_validate_json(row.mask))
    _check_size(row, runs, image.pixels)
    crop = row.window
    if runs.area:
        crop = _enclose(row.window, runs, reach=row.dilate + margin(row.feather))
    x0, y0, x1, y1 = crop
    before = image.pixels[y0:y1, x0:x1]
    mask = cut_mask(runs, crop)
    left, top, right, bottom = row.window
    window = (left - x0, top - y0, right - x0, bottom - y0)
    return RemovalCrop(
        corner=(x0, y0),
        before=before,
        after=put_patch(before, row.patch, window),
        mask=mask,
        distance=measure_distance(mask),
    )


def _check_size(row: RemovalRow, runs: Runs, pixels: RGB) -> None:
    """Raise ValueError unless the mask has the image's size, and the window lies in the image."""
    height, width = pixels.shape[:2]
    size = f"{width} x {height}"
    if (runs.height, runs.width) != (height, width):
        raise ValueError(f"a mask of {runs.width} x {runs.height} pixels, an image of {size}")
    left, top, right, bottom = row.window
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"the window {row.window} is not in an image of {size} pixels")


def _enclose(patch: Corners, mask: Runs, *, reach: int) -> Corners:
    """Return the smallest window with the patch and the surroundings of the mask's box."""
    left, top, right, bottom = mask.box
    x0 = max(min(left - reach, patch[0]), 0)
    y0 = max(min(top - reach, patch[1]), 0)
    x1 = min(max(right + reach, patch[2]), mask.width)
    y1 = min(max(bottom + reach, patch[3]), mask.height)
    return x0, y0, x1, y1


def measure_rim(
    pixels: NDArray[np.uint8],
    mask: Bits,
    *,
    dilate: int,
    feather: int,
) -> float:
    """Return the strength of the rim's edge; above 1 it is stronger than all its surroundings.

    ``pixels``, ``(h, w, 3)``: the filled image, or what of it lies within ``margin`` of the mask,
    ``(h, w)``, which was dilated, and whose filling fades over ``feather`` pixels. 0 where too few
    arcs can be measured.
    """
    if not mask.any() or mask.all():
        return 0.0
    first = dilate - SIDE - 1
    last = dilate + margin(feather)
    colours, counts = profile_arcs(
        pixels,
        mask,
        first=first,
        last=last,
    )
    steps, measured = _steps(colours, counts)
    end = SIDE + 1 + feather + 1 + PAST + 1
    surroundings = _strongest_beyond(steps, measured, start=end + APART - 1)
    ratios = steps[:, :end] / np.maximum(surroundings[:, None], VISIBLE)
    return round(_largest_median(ratios, measured[:, :end]), 4)


def _largest_median(ratios: Floats, measured: Bits) -> float:
    """Return the largest median over the arcs, of the distances with enough measured arcs."""
    least_arcs = max(FEWEST, len(measured) / 2)
    distances = np.flatnonzero(measured.sum(axis=0) >= least_arcs)
    medians = (float(np.median(ratios[measured[:, distance], distance])) for distance in distances)
    return max(medians, default=0.0)


def _strongest_beyond(steps: Floats, measured: Bits, *, start: int) -> Floats:
    """Return each arc's strongest step from ``start`` on; the median of the others if none."""
    beyond = np.where(measured[:, start:], steps[:, start:], -1.0)
    strongest = beyond.max(axis=1, initial=-1.0)
    has_step = strongest >= 0
    strongest[~has_step] = np.median(strongest[has_step]) if has_step.any() else 0.0
    return strongest


def margin(feather: int) -> int:
    """Return the measured pixels around the dilated mask."""
    return feather + 1 + AROUND


def profile_arcs(
    pixels: NDArray[np.uint8],
    mask: Bits,
    *,
    first: int,
    last: int,
) -> tuple[Floats, Floats]:
    """Return sums of colours ``(arcs, rings, 3)`` and counts ``(arcs, rings)`` by distance.

    The distances are ``first`` to ``last``, the last exclusive.
    """
    rings = last - first
    distance, arc = measure_arcs(mask, inside=first < 1)
    ring = np.rint(distance).astype(np.int32) - first
    used = (ring >= 0) & (ring < rings)
    arcs, number = np.unique(arc[used], return_inverse=True)
    cell = number * rings + ring[used]
    cells = len(arcs) * rings
    counts = np.bincount(cell, minlength=cells).astype(np.float64)
    colours = _sum_colours(cell, pixels[used], cells)
    return colours.reshape(len(arcs), rings, 3), counts.reshape(len(arcs), rings)


def _sum_colours(cell: NDArray[np.int64], colours: NDArray[np.uint8], cells: int) -> Floats:
    """Return the sums of colours ``(n, 3)`` per cell."""
    sums = [np.bincount(cell, weights=channel, minlength=cells) for channel in colours.T]
    return np.stack(sums, axis=1).astype(np.float64)


def measure_arcs(mask: Bits, *, inside: bool) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return each pixel's distance from the mask, and its arc; ``inside``: also depths, <= 0."""
    height, width = mask.shape
    tile_row = np.arange(height)[:, None] // ARC
    tile_column = np.arange(width) // ARC
    tiles = tile_row * (width // ARC + 1) + tile_column
    distance, arc = _nearest(mask, tiles)
    if inside:
        depth, arc = _nearest(~mask, arc)
        distance = np.where(mask, 1 - depth, distance)
    return distance, arc


def _nearest(mask: Bits, names: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return each pixel's distance from the mask, and the name of the nearest pixel of the mask."""
    import cv2

    background = (~mask).astype(np.uint8)
    distance, labels = cv2.distanceTransformWithLabels(
        background,
        cv2.DIST_L2,
        cv2.DIST_MASK_5,
        labelType=cv2.DIST_LABEL_PIXEL,
    )
    label = np.asarray(labels, np.int32)
    name_of = np.zeros(int(label.max()) + 1, np.int64)
    name_of[label[mask]] = names[mask]
    return np.asarray(distance, np.float32), name_of[label]


def _steps(colours: Floats, counts: Floats) -> tuple[Floats, Bits]:
    """Return each arc's steps between two rings, ``(arcs, distances)``, and which are measured."""
    colours = np.cumsum(np.pad(colours, ((0, 0), (1, 0), (0, 0))), axis=1)
    counts = np.cumsum(np.pad(counts, ((0, 0), (1, 0))), axis=1)
    colours = colours[:, SIDE:] - colours[:, :-SIDE]
    counts = counts[:, SIDE:] - counts[:, :-SIDE]
    means = colours / np.maximum(counts, 1)[:, :, None]
    differences = means[:, SIDE:] - means[:, :-SIDE]
    steps = np.sqrt(np.mean(differences**2, axis=2))
    pixels = np.minimum(counts[:, SIDE:], counts[:, :-SIDE])
    return steps, pixels >= LEAST
