"""Photograph worlds: draw scenes until every change is visible and nothing is hidden; expose them.

Records the scene graph of each photograph, from the scene's words and the renderer's object index.
Needs Mitsuba: import this module only to render.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import ScenesConfig
from pairwright.schemas.scene import (
    DISTRACTORS,
    ChangeType,
    SceneChange,
    SceneGraph,
    SceneObject,
)
from pairwright.tasks.images.masks import box_of, encode_mask
from pairwright.tasks.scenes.changes import Draft, vary
from pairwright.tasks.scenes.plan import MIN_VISIBLE, draw_world, plan_camera
from pairwright.tasks.scenes.render import EXPOSURES, Exposure, Survey, survey
from pairwright.tasks.scenes.state import Camera, Mask, Position, Scene, Thing
from pairwright.tasks.scenes.vocabulary import PLACES, SHAPES

ATTEMPTS = 60
LOOKS = ("id", "shape", "colour", "material", "size", "pose", "text", "support")
"""Fields of an object that its scene graph repeats."""
MIN_CHANGED = 0.0025
"""Least share of pixels that a change of content alters (123 pixels of 256 x 192)."""
Photograph = tuple[NDArray[np.uint8], SceneGraph]


def describe_photograph(
    draft: Draft,
    camera: Camera,
    seen: Survey,
    *,
    world: str,
    number: int,
) -> SceneGraph:
    """Return the scene graph of a photograph; every object must be visible in it."""
    scene = draft.scene
    objects = [_describe_object(item, scene, camera, seen.mask(item.id)) for item in scene.things]
    return SceneGraph(
        world=world,
        photograph=number,
        place=scene.place,
        light=scene.light.phrase,
        viewpoint=scene.view.phrase,
        objects=tuple(objects),
        changes=draft.changes,
    )


def _describe_object(
    item: Thing,
    scene: Scene,
    camera: Camera,
    mask: Mask,
) -> SceneObject:
    position = camera.position_of(item, mask)
    facing = None
    if SHAPES[item.shape].front:
        facing, _ = camera.facing(item)
    return SceneObject(
        **{name: getattr(item, name) for name in LOOKS},
        facing=facing,
        column=position.column,
        depth=position.depth,
        clear=position.clear,
        box=box_of(mask),
        visible=_visible_share(item, camera, mask),
        mask=encode_mask(mask),
        rests_on=scene.thing(item.support).shape if item.support else None,
    )


def _visible_share(item: Thing, camera: Camera, mask: Mask) -> float:
    alone = int(camera.silhouette(item).sum())
    share = int(mask.sum()) / max(1, alone)
    return min(1.0, round(share, 4))


@dataclass(frozen=True, slots=True)
class _Setup:
    draft: Draft
    camera: Camera
    seen: Survey
    seeds: tuple[int, ...]
    """Seed, world and attempt: the seeds of all its randomness."""


Key = tuple[ChangeType, str | None]


def photograph_world(config: ScenesConfig, index: int) -> Iterator[Photograph | None]:
    """Yield the photographs of a world, the base first; ``None`` if no attempt could draw it."""
    base = _draw_base(config, index)
    used: set[Key] = set()
    for number in range(config.photographs):
        setup = base
        if base is not None and number > 0:
            setup = _draw_variation(config, base, number, used)
        if setup is None:
            yield None
            continue
        used |= _keys_of(setup.draft)
        yield _expose(
            config,
            setup,
            world=f"world-{index:05d}",
            number=number,
        )


def _expose(
    config: ScenesConfig,
    setup: _Setup,
    *,
    world: str,
    number: int,
) -> Photograph:
    rng = np.random.default_rng((*setup.seeds, number))
    exposure = Exposure(
        setup.draft.scene,
        config.width,
        config.height,
        config.samples_per_pixel,
        seed=int(rng.integers(2**31)),
    )
    graph = describe_photograph(
        setup.draft,
        setup.camera,
        setup.seen,
        world=world,
        number=number,
    )
    settings = EXPOSURES.dump_json(exposure).decode()
    picture = exposure.expose(setup.seen.albedo)
    return picture, graph.model_copy(update={"exposure": settings})


def _keys_of(draft: Draft) -> set[Key]:
    """Return the type and object of each change of content; for counting, no object."""
    keys: set[Key] = set()
    for change in draft.changes:
        if change.type in DISTRACTORS:
            continue
        object_id = None if change.type == "counting" else change.object_id
        keys.add((change.type, object_id))
    return keys


def _draw_base(config: ScenesConfig, index: int) -> _Setup | None:
    place = PLACES[index % len(PLACES)]
    width = config.width
    height = config.height
    for attempt in range(ATTEMPTS):
        seeds = (config.seed, index, attempt)
        rng = np.random.default_rng(seeds)
        scene = draw_world(
            rng,
            place,
            width=width,
            height=height,
        )
        if scene is None:
            continue
        camera = Camera(scene.view, width, height)
        seen = survey(scene, camera)
        if _all_visible(scene, camera, seen):
            coarse = plan_camera(scene.view, width=width, height=height)
            return _Setup(Draft(scene, coarse, 1), camera, seen, seeds)
    return None


def _draw_variation(
    config: ScenesConfig,
    base: _Setup,
    number: int,
    used: set[Key],
) -> _Setup | None:
    """Return a variation unlike the earlier ones: two turns of an object share words."""
    rng = np.random.default_rng((*base.seeds, number))
    plain = rng.random() < config.no_change_share
    start = replace(base.draft, next_id=100 * number + 1)
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng((*base.seeds, number, attempt))
        draft = vary(rng, start, plain=plain)
        if draft is None or not used.isdisjoint(_keys_of(draft)):
            continue
        setup = _check_draft(base, draft)
        if setup:
            return setup
    return None


def _check_draft(base: _Setup, draft: Draft) -> _Setup | None:
    """Return the setup of a draft if all of it and of its changes is visible."""
    camera = replace(base.camera, view=draft.scene.view)
    seen = survey(draft.scene, camera)
    if not _all_visible(draft.scene, camera, seen):
        return None
    setup = _Setup(draft, camera, seen, base.seeds)
    after = seen if camera == base.camera else survey(draft.scene, base.camera)
    for change in draft.changes:
        if not _is_visible(change, base, after):
            return None
        if change.type == "move" and not _is_clear_move(change, base, setup):
            return None
    return setup


def _is_visible(change: SceneChange, base: _Setup, after: Survey) -> bool:
    """Return whether a change alters enough pixels, seen from the base's view."""
    object_ids = {object_id for object_id in (change.object_id, *change.object_ids) if object_id}
    least = MIN_CHANGED * base.camera.width * base.camera.height
    return not object_ids or base.seen.count_changed(after, object_ids) >= least


def _is_clear_move(change: SceneChange, base: _Setup, setup: _Setup) -> bool:
    object_id = str(change.object_id)
    before = _position(object_id, base)
    after = _position(object_id, setup)
    return after.is_clearly_not(before)


def _position(object_id: str, setup: _Setup) -> Position:
    item = setup.draft.scene.thing(object_id)
    return setup.camera.position_of(item, setup.seen.mask(object_id))


def _all_visible(scene: Scene, camera: Camera, seen: Survey) -> bool:
    return all(
        _visible_share(item, camera, seen.mask(item.id)) >= MIN_VISIBLE for item in scene.things
    )
