"""Photograph worlds: draw scenes until every change is visible and nothing is hidden, then expose them.

Records the scene graph of each photograph, from the scene's words and the renderer's object index.
Needs Mitsuba: import this module only to render.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import ScenesConfig
from pairwright.schemas.scene import DISTRACTORS, ChangeType, SceneGraph, SceneObject
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.scenes.changes import Draft, vary
from pairwright.tasks.scenes.plan import MIN_VISIBLE, draw_world, plan_camera
from pairwright.tasks.scenes.render import EXPOSURES, Exposure, Survey, survey
from pairwright.tasks.scenes.state import Camera, Mask, Scene, Thing
from pairwright.tasks.scenes.vocabulary import PLACES, SHAPES

ATTEMPTS = 60
LOOKS = ("id", "shape", "colour", "material", "size", "pose", "text", "support")
"""Fields of a thing that its scene graph repeats."""
MIN_CHANGED = 0.0025
"""Least share of pixels that a change of content alters (123 pixels of 256 x 192)."""


def describe(draft: Draft, camera: Camera, seen: Survey, *, world: str, number: int) -> SceneGraph:
    """Return the scene graph of a photograph; every thing must be visible in it."""
    scene, objects = draft.scene, list[SceneObject]()
    for thing in scene.things:
        mask = seen.mask(thing.id)
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        position = camera.position_of(thing, mask)
        one = SceneObject(
            **{name: getattr(thing, name) for name in LOOKS},
            facing=camera.facing(thing)[0] if SHAPES[thing.shape].front else None,
            column=position.column,
            depth=position.depth,
            clear=position.clear,
            box=(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1),
            visible=_visible_share(thing, camera, mask),
            mask=encode_mask(mask),
            rests_on=scene.thing(thing.support).shape if thing.support else None,
        )
        objects.append(one)
    return SceneGraph(
        world=world,
        photograph=number,
        place=scene.place,
        light=scene.light.phrase,
        viewpoint=scene.view.phrase,
        objects=tuple(objects),
        changes=draft.changes,
    )


def _visible_share(thing: Thing, camera: Camera, mask: Mask) -> float:
    alone = int(camera.silhouette(thing).sum())
    return min(1.0, round(int(mask.sum()) / max(1, alone), 4))


@dataclass(frozen=True, slots=True)
class _Setup:
    draft: Draft
    camera: Camera
    seen: Survey
    seeds: tuple[int, ...]
    """Seed, world and attempt: the seeds of all its randomness."""


Key = tuple[ChangeType, str | None]


def photograph_world(
    config: ScenesConfig, index: int
) -> Iterator[tuple[NDArray[np.uint8], SceneGraph] | None]:
    """Yield the photographs of a world, the base first; ``None`` for one that no attempt could draw."""
    base = _draw_base(config, index)
    made: set[Key] = set()
    for number in range(config.photographs):
        setup = base if number == 0 or base is None else _draw_variation(config, base, number, made)
        if setup is None:
            yield None
            continue
        made |= _keys_of(setup.draft)
        seed = int(np.random.default_rng((*setup.seeds, number)).integers(2**31))
        exposure = Exposure(
            setup.draft.scene, config.width, config.height, config.samples_per_pixel, seed
        )
        graph = describe(
            setup.draft, setup.camera, setup.seen, world=f"world-{index:05d}", number=number
        )
        saved = EXPOSURES.dump_json(exposure).decode()
        yield exposure.take(setup.seen.albedo), graph.model_copy(update={"exposure": saved})


def _keys_of(draft: Draft) -> set[Key]:
    """Return the type and object of each change of content; counting has one group, and no object."""
    content = (change for change in draft.changes if change.type not in DISTRACTORS)
    return {
        (change.type, None if change.type == "counting" else change.object_id) for change in content
    }


def _draw_base(config: ScenesConfig, index: int) -> _Setup | None:
    place = PLACES[index % len(PLACES)]
    for attempt in range(ATTEMPTS):
        seeds = (config.seed, index, attempt)
        scene = draw_world(
            np.random.default_rng(seeds), place, width=config.width, height=config.height
        )
        if scene is None:
            continue
        camera = Camera(scene.view, config.width, config.height)
        seen = survey(scene, camera)
        if _all_visible(scene, camera, seen):
            coarse = plan_camera(scene.view, width=config.width, height=config.height)
            return _Setup(Draft(scene, coarse, 1), camera, seen, seeds)
    return None


def _draw_variation(
    config: ScenesConfig, base: _Setup, number: int, made: set[Key]
) -> _Setup | None:
    """Return a variation unlike the earlier ones: a thing turned twice differs, but not in words."""
    plain = np.random.default_rng((*base.seeds, number)).random() < config.no_change_share
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng((*base.seeds, number, attempt))
        draft = vary(rng, replace(base.draft, next_id=100 * number + 1), plain=plain)
        setup = _check_draft(base, draft) if draft and made.isdisjoint(_keys_of(draft)) else None
        if setup:
            return setup
    return None


def _check_draft(base: _Setup, draft: Draft) -> _Setup | None:
    camera = replace(base.camera, view=draft.scene.view)
    seen = survey(draft.scene, camera)
    if not _all_visible(draft.scene, camera, seen):
        return None
    after = seen if camera == base.camera else survey(draft.scene, base.camera)
    least = MIN_CHANGED * camera.width * camera.height
    for change in draft.changes:
        things = {name for name in (change.object_id, *change.object_ids) if name}
        if things and base.seen.changed(after, things) < least:
            return None
        if change.type == "move":
            name = str(change.object_id)
            before = base.camera.position_of(base.draft.scene.thing(name), base.seen.mask(name))
            if not camera.position_of(draft.scene.thing(name), seen.mask(name)).is_clearly_not(
                before
            ):
                return None
    return _Setup(draft, camera, seen, base.seeds)


def _all_visible(scene: Scene, camera: Camera, seen: Survey) -> bool:
    return all(
        _visible_share(thing, camera, seen.mask(thing.id)) >= MIN_VISIBLE for thing in scene.things
    )
