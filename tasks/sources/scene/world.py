"""Photograph worlds: draw, look, and draw again until every change shows and nothing is hidden; then expose.

Reads and writes nothing. Needs Mitsuba (imports ``photograph``): import this module only to render.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from schemas.config import ScenesConfig
from schemas.scene import SceneGraph
from tasks.sources.scene.arrange import MIN_VISIBLE
from tasks.sources.scene.build import build_scene, use_variant
from tasks.sources.scene.camera import Camera
from tasks.sources.scene.changes import Draft
from tasks.sources.scene.graph import describe, visible_share
from tasks.sources.scene.photograph import Survey, develop, expose, survey
from tasks.sources.scene.plan import draw_world, plan_camera
from tasks.sources.scene.state import Scene
from tasks.sources.scene.vary import vary

ATTEMPTS = 60
MIN_CHANGED = 0.002
"""Least share of the photograph's pixels that a change of content alters (98 pixels of 256 x 192)."""


@dataclass(frozen=True, slots=True)
class Base:
    """Be a world's base photograph: what the others are compared with."""

    scene: Scene
    camera: Camera
    seen: Survey
    seeds: tuple[int, ...]
    """Where all randomness of this world starts."""


@dataclass(frozen=True, slots=True)
class Photograph:
    """Be a photograph and the truth about it."""

    picture: NDArray[np.uint8]
    graph: SceneGraph


def world_name(index: int) -> str:
    """Return the name of a world."""
    return f"world-{index:05d}"


def photograph_world(config: ScenesConfig, index: int, *, variant: str) -> Iterator[Photograph | None]:
    """Yield the photographs of a world, the base first; ``None`` for one that no draw could make."""
    use_variant(variant)
    base = _find_base(config, index)
    for k in range(config.photographs):
        draft = base and (Draft(base.scene, base.camera, 1) if k == 0 else _find_draft(config, base, k))
        yield _take(config, base, draft, number=k, index=index) if base and draft else None


def _find_base(config: ScenesConfig, index: int) -> Base | None:
    for attempt in range(ATTEMPTS):
        seeds = (config.seed, index, attempt)
        scene = draw_world(np.random.default_rng(seeds), width=config.width, height=config.height)
        if scene is None:
            continue
        camera = Camera(scene.view, config.width, config.height)
        seen = survey(build_scene(scene), camera, seed=index)
        if _all_seen(scene, camera, seen):
            return Base(scene, camera, seen, seeds)
    return None


def _find_draft(config: ScenesConfig, base: Base, number: int) -> Draft | None:
    plain = np.random.default_rng((*base.seeds, number)).random() < config.no_change_share
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng((*base.seeds, number, attempt))
        coarse = plan_camera(base.scene.view, width=config.width, height=config.height)
        draft = vary(rng, Draft(base.scene, coarse, 100 * number + 1), plain=plain)
        if draft is not None and _shows(base, draft, index=base.seeds[1]):
            return draft
    return None


def _shows(base: Base, draft: Draft, *, index: int) -> bool:
    """Say whether all things can be seen, and every change of content alters enough pixels seen from the base's view."""
    built = build_scene(draft.scene)
    camera = replace(base.camera, view=draft.scene.view)
    if not _all_seen(draft.scene, camera, survey(built, camera, seed=index)):
        return False
    after = survey(built, base.camera, seed=index)
    least = MIN_CHANGED * base.camera.width * base.camera.height
    return all(
        base.seen.changed(after, {change.object_id, *change.object_ids} - {None}) >= least
        for change in draft.changes
        if change.object_id
    )


def _all_seen(scene: Scene, camera: Camera, seen: Survey) -> bool:
    return all(visible_share(thing, camera, seen.mask(thing.id)) >= MIN_VISIBLE for thing in scene.things)


def _take(config: ScenesConfig, base: Base, draft: Draft, *, number: int, index: int) -> Photograph:
    camera = replace(base.camera, view=draft.scene.view)
    built = build_scene(draft.scene)
    seen = survey(built, camera, seed=index)
    seed = int(np.random.default_rng((*base.seeds, number)).integers(2**31))
    picture = develop(expose(built, camera, samples=config.samples, seed=seed), seen.guide, samples=config.samples)
    return Photograph(picture, describe(draft, camera, seen, world=world_name(index), number=number))
