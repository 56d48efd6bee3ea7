"""Vary a world: draw which changes a photograph has, and check the plan of the result.

Reads and writes nothing. All randomness comes from the generator that is passed in.
"""

from dataclasses import replace

import numpy as np

from pairwright.schemas.scene import ChangeType
from pairwright.tasks.sources.scene.arrange import all_visible, facings_clear
from pairwright.tasks.sources.scene.camera import Camera
from pairwright.tasks.sources.scene.changes import CONTENT, DISTRACTING, Change, Draft
from pairwright.tasks.sources.scene.state import Scene
from pairwright.tasks.sources.scene.vocabulary import SHAPES

NUMBERS = (0.6, 0.27, 0.13)
"""Shares of photographs with one, two and three changes."""
DISTRACTED = 0.3
"""Share of photographs with changes of content that are also taken from elsewhere or in another light."""
WEIGHTS: dict[ChangeType, float] = {"addition": 0.6, "substitution": 0.6, "removal": 2, "counting": 1.5, "pose": 1.5}
"""How much more often than others a type is asked for: more where few worlds offer it."""


def vary(rng: np.random.Generator, draft: Draft, *, plain: bool) -> Draft | None:
    """Return the draft with one to three changes, none of content where it is to be plain; ``None`` if they fail."""
    wanted = 1 + int(rng.choice(3, p=NUMBERS))
    done: Draft | None = draft
    if plain:
        done = _apply(rng, draft, DISTRACTING, count=1 + int(rng.random() < 0.3))
    else:
        distracted = wanted < 3 and rng.random() < DISTRACTED
        done = _apply(rng, draft, CONTENT, count=wanted)
        done = _apply(rng, done, DISTRACTING, count=1) if done and distracted else done
    return done if done and _holds(done) else None


def _apply(rng: np.random.Generator, draft: Draft, kinds: dict[ChangeType, Change], *, count: int) -> Draft | None:
    """Return the draft with this many changes of different types, tried in a random order."""
    weights = np.array([WEIGHTS.get(kind, 1.0) for kind in kinds])
    order = rng.choice(len(kinds), size=len(kinds), replace=False, p=weights / weights.sum())
    for change in (list(kinds.values())[int(k)] for k in order):
        if count == 0:
            break
        changed = change(rng, draft)
        draft, count = (changed, count - 1) if changed else (draft, count)
    return draft if count == 0 else None


def _holds(draft: Draft) -> bool:
    """Say whether all is visible from the new view, and faces the same way as from the old one."""
    camera = replace(draft.camera, view=draft.scene.view)
    if not (facings_clear(draft.scene, camera) and all_visible(draft.scene, camera)):
        return False
    return all(_same_facing(draft.scene, name, draft.camera, camera) for name in (t.id for t in draft.scene.things))


def _same_facing(scene: Scene, name: str, old: Camera, new: Camera) -> bool:
    thing = scene.thing(name)
    return not SHAPES[thing.shape].front or old.facing(thing)[0] == new.facing(thing)[0]
