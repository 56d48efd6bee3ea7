"""List where the two images of a pair differ: given masks, and masks of known changes.

A given change mask (``PairRow.change_mask``) is of the second image; its connected parts are
regions of the label ``change``. Of photographs of one rendered world, each object that differs is a
region in each image that shows it, labelled with its shape. Reads and writes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pairwright.schemas.claims import content_changes
from pairwright.schemas.rows import PairRow
from pairwright.schemas.scene import Mask, SceneGraph
from pairwright.tasks.images.masks import Corners, box_of, decode_mask, encode_mask, read_runs

CHANGE = "change"
"""Label of a place that changed, of which nothing else is known."""
MAX_PARTS = 256
"""Maximum parts of a given mask; one of more is a single region."""
Graphs = tuple[SceneGraph | None, SceneGraph | None]


@dataclass(frozen=True, slots=True)
class Region:
    """Place in one image of a pair that differs from the other image."""

    side: int
    """0: the first image, 1: the second."""
    label: str
    box: Corners
    """Pixels x0, y0, x1, y1, the last two exclusive."""
    mask: Mask


def list_regions(pair: PairRow, graphs: Graphs) -> tuple[Region, ...] | None:
    """Return where a pair's images differ; ``None``: it is not known."""
    if pair.change_mask:
        return tuple(_split_mask(Mask.model_validate_json(pair.change_mask)))
    world = same_world(graphs)
    if world is None:
        return None
    changed = changed_objects(world)
    regions: list[Region] = []
    for side, graph in enumerate(world):
        for item in graph.objects:
            if item.id in changed:
                box = read_runs(item.mask).box
                regions.append(Region(side, item.shape, box, item.mask))
    return tuple(regions)


def _split_mask(mask: Mask) -> Sequence[Region]:
    """Return the connected parts of a mask of the second image."""
    import cv2

    pixels = decode_mask(mask)
    if not pixels.any():
        return ()
    count, labels = cv2.connectedComponents(pixels.astype(np.uint8))
    if count - 1 > MAX_PARTS:
        return (Region(1, CHANGE, box_of(pixels), mask),)
    regions: list[Region] = []
    for label in range(1, count):
        part = labels == label
        regions.append(Region(1, CHANGE, box_of(part), encode_mask(part)))
    return regions


def same_world(graphs: Graphs) -> tuple[SceneGraph, SceneGraph] | None:
    """Return both graphs if they are of one world."""
    first, second = graphs
    if first and second and first.world == second.world:
        return first, second
    return None


def changed_objects(graphs: tuple[SceneGraph, SceneGraph]) -> set[str | None]:
    """Return the ids of the objects that differ between two photographs of one world."""
    changed: set[str | None] = set()
    for change in content_changes(graphs[0]) ^ content_changes(graphs[1]):
        changed.update((change.object_id, *change.object_ids))
    return changed
