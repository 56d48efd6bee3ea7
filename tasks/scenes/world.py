"""Photograph worlds: draw, look, and draw again until every change shows and nothing is hidden; then expose.

Writes down the truth about each photograph, from the scene's words and the renderer's object index. Needs Mitsuba:
import this module only to render.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import ScenesConfig
from pairwright.schemas.scene import DISTRACTORS, ChangeType, SceneGraph, SceneObject
from pairwright.tasks.scenes.changes import Draft, vary
from pairwright.tasks.scenes.photograph import EXPOSURES, Exposure
from pairwright.tasks.scenes.plan import MIN_VISIBLE, draw_world, plan_camera
from pairwright.tasks.scenes.render import Survey, survey
from pairwright.tasks.scenes.state import Camera, Mask, Scene, Thing
from pairwright.tasks.scenes.vocabulary import PLACES, SHAPES
from pairwright.tasks.store.masks import encode_mask

ATTEMPTS = 60
MIN_CHANGED = 0.0025
"""Least share of the photograph's pixels that a change of content alters (123 pixels of 256 x 192)."""


def describe(draft: Draft, camera: Camera, seen: Survey, *, world: str, number: int) -> SceneGraph:
    """Return the scene graph of a photograph; every thing must be visible in it."""
    scene = draft.scene
    return SceneGraph(
        world=world,
        photograph=number,
        place=scene.place,
        light=scene.light.phrase,
        viewpoint=scene.view.phrase,
        objects=tuple(_describe_thing(thing, scene, camera, seen.mask(thing.id)) for thing in scene.things),
        changes=draft.changes,
    )


def _visible_share(thing: Thing, camera: Camera, mask: Mask) -> float:
    """Return the visible pixels over the pixels of the silhouette of the thing alone."""
    alone = int(camera.silhouette(thing).sum())
    return min(1.0, round(int(mask.sum()) / max(1, alone), 4))


def _describe_thing(thing: Thing, scene: Scene, camera: Camera, mask: Mask) -> SceneObject:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
    position = camera.position_of(thing, mask)
    return SceneObject(
        id=thing.id,
        shape=thing.shape,
        colour=thing.colour,
        material=thing.material,
        size=thing.size,
        facing=camera.facing(thing)[0] if SHAPES[thing.shape].front else None,
        pose=thing.pose,
        text=thing.text,
        column=position.column,
        depth=position.depth,
        clear=position.clear,
        box=box,
        visible=_visible_share(thing, camera, mask),
        mask=encode_mask(mask),
        support=thing.support,
        rests_on=scene.thing(thing.support).shape if thing.support else None,
    )


@dataclass(frozen=True, slots=True)
class _Setup:
    draft: Draft
    camera: Camera
    seen: Survey
    seeds: tuple[int, ...]
    """Where all randomness of this world starts: seed, world, attempt."""


Photograph = tuple[NDArray[np.uint8], SceneGraph]
"""Picture, and the truth about it."""


def photograph_world(config: ScenesConfig, index: int) -> Iterator[Photograph | None]:
    """Yield the photographs of a world, the base first; ``None`` for one that no draw could make."""
    base = _set_up_base(config, index)
    made: set[Key] = set()
    for number in range(config.photographs):
        setup = base if number == 0 or base is None else _set_up_variation(config, base, number, made)
        made |= _keys_of(setup.draft) if setup else set()
        yield _take(config, setup, number) if setup else None


Key = tuple[ChangeType, str | None]


def _keys_of(draft: Draft) -> set[Key]:
    """Return the type and the object of each change of content; there is one group that may be counted."""
    content = (change for change in draft.changes if change.type not in DISTRACTORS)
    return {(change.type, None if change.type == "counting" else change.object_id) for change in content}


def _set_up_base(config: ScenesConfig, index: int) -> _Setup | None:
    place = PLACES[index % len(PLACES)]
    for attempt in range(ATTEMPTS):
        seeds = (config.seed, index, attempt)
        scene = draw_world(np.random.default_rng(seeds), place, width=config.width, height=config.height)
        if scene is None:
            continue
        camera = Camera(scene.view, config.width, config.height)
        seen = survey(scene, camera)
        if _all_seen(scene, camera, seen):
            coarse = plan_camera(scene.view, width=config.width, height=config.height)
            return _Setup(Draft(scene, coarse, 1), camera, seen, seeds)
    return None


def _set_up_variation(config: ScenesConfig, base: _Setup, number: int, made: set[Key]) -> _Setup | None:
    """Return a variation that no earlier one resembles: one thing turned twice differs, but not in words."""
    plain = np.random.default_rng((*base.seeds, number)).random() < config.no_change_share
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng((*base.seeds, number, attempt))
        draft = vary(rng, replace(base.draft, next_id=100 * number + 1), plain=plain)
        setup = _look(base, draft) if draft and made.isdisjoint(_keys_of(draft)) else None
        if setup:
            return setup
    return None


def _look(base: _Setup, draft: Draft) -> _Setup | None:
    camera = replace(base.camera, view=draft.scene.view)
    seen = survey(draft.scene, camera)
    if not _all_seen(draft.scene, camera, seen):
        return None
    after = seen if camera == base.camera else survey(draft.scene, base.camera)
    least = MIN_CHANGED * camera.width * camera.height
    for change in draft.changes:
        things = {name for name in (change.object_id, *change.object_ids) if name}
        if things and base.seen.changed(after, things) < least:
            return None
        if change.type == "move" and not _moved(str(change.object_id), base, draft.scene, camera, seen):
            return None
    return _Setup(draft, camera, seen, base.seeds)


def _moved(name: str, base: _Setup, scene: Scene, camera: Camera, seen: Survey) -> bool:
    before = base.camera.position_of(base.draft.scene.thing(name), base.seen.mask(name))
    return camera.position_of(scene.thing(name), seen.mask(name)).is_clearly_not(before)


def _all_seen(scene: Scene, camera: Camera, seen: Survey) -> bool:
    return all(_visible_share(thing, camera, seen.mask(thing.id)) >= MIN_VISIBLE for thing in scene.things)


def _take(config: ScenesConfig, setup: _Setup, number: int) -> Photograph:
    seed = int(np.random.default_rng((*setup.seeds, number)).integers(2**31))
    exposure = Exposure(setup.draft.scene, config.width, config.height, config.samples_per_pixel, seed)
    world = f"world-{setup.seeds[1]:05d}"
    graph = describe(setup.draft, setup.camera, setup.seen, world=world, number=number)
    saved = EXPOSURES.dump_json(exposure).decode()
    return exposure.take(setup.seen.albedo), graph.model_copy(update={"exposure": saved})
