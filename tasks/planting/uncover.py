"""Take planted things out of a photograph again: what they cover is in its scene graph (ours)."""

from collections.abc import Collection

from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.decode import RGB, decode_rgb
from pairwright.tasks.images.masks import decode_mask


def uncover(pixels: RGB, graph: SceneGraph, object_ids: Collection[str]) -> RGB:
    """Return the photograph ``(h, w, 3)`` without some of its planted things.

    Only pixels that a thing or its shadow touches are altered.
    """
    touched = {item.id: item.touched for item in graph.objects}
    uncovered = pixels.copy()
    for covered in graph.covered:
        mask = touched[covered.object_id]
        if covered.object_id not in object_ids or mask is None:
            continue
        x0, y0, x1, y1 = covered.window
        inside = decode_mask(mask)[y0:y1, x0:x1]
        uncovered[y0:y1, x0:x1][inside] = decode_rgb(covered.png)[inside]
    return uncovered
