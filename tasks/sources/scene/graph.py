"""Write down the truth about a photograph: its scene graph, from the scene's words and the renderer's object index.

Reads and writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from pairwright.schemas.scene import SceneGraph, SceneObject
from pairwright.tasks.sources.scene.camera import FAR, NEAR, Camera, Mask
from pairwright.tasks.sources.scene.changes import Draft
from pairwright.tasks.sources.scene.state import Thing
from pairwright.tasks.sources.scene.vocabulary import SHAPES
from pairwright.tasks.store.masks import encode_mask

if TYPE_CHECKING:
    from pairwright.tasks.sources.scene.photograph import Survey


def describe(draft: Draft, camera: Camera, seen: Survey, *, world: str, number: int) -> SceneGraph:
    """Return the scene graph of a photograph; every thing must be visible in it."""
    scene = draft.scene
    return SceneGraph(
        world=world,
        photograph=number,
        place=scene.place,
        light=scene.light.phrase,
        viewpoint=scene.view.phrase,
        objects=tuple(_describe_thing(thing, camera, seen.mask(thing.id)) for thing in scene.things),
        changes=draft.changes,
    )


def visible_share(thing: Thing, camera: Camera, mask: Mask) -> float:
    """Return the visible pixels over the pixels of the silhouette of the thing alone."""
    alone = int(camera.silhouette(thing).sum())
    return min(1.0, round(int(mask.sum()) / max(1, alone), 4))


def _describe_thing(thing: Thing, camera: Camera, mask: Mask) -> SceneObject:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
    return SceneObject(
        id=thing.id,
        shape=thing.shape,
        colour=thing.colour,
        material=thing.material,
        size=thing.size,
        facing=camera.facing(thing)[0] if SHAPES[thing.shape].front else None,
        pose=thing.pose,
        text=thing.text,
        column=_column(box, camera.width),
        depth=_depth(camera.distance(thing)),
        box=box,
        visible=visible_share(thing, camera, mask),
        mask=encode_mask(mask),
    )


def _column(box: tuple[int, int, int, int], width: int) -> Literal["left", "centre", "right"]:
    centre = (box[0] + box[2]) / 2
    return "left" if centre < width / 3 else "right" if centre > 2 * width / 3 else "centre"


def _depth(distance: float) -> Literal["front", "middle", "back"]:
    third = (FAR - NEAR) / 3
    return "front" if distance < NEAR + third else "back" if distance > FAR - third else "middle"
