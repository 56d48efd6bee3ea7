"""Change a scene: OmniDiff's twelve types of change (paper 002) and two of CLEVR-Change; which a photograph has.

Reads and writes nothing. A change returns the changed draft, or ``None`` where the scene offers nothing to change so.
All randomness comes from the generator that is passed in.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pairwright.schemas.phrases import number, plural
from pairwright.schemas.scene import ChangeType, SceneChange
from pairwright.tasks.scenes.plan import (
    AREA,
    DRAWS,
    MOST,
    add_like,
    all_visible,
    draw_light,
    draw_look,
    draw_view,
    facings_clear,
    fits,
    is_distinct,
    pick,
    put_on_carrier,
    put_on_ground,
    turn_to,
)
from pairwright.tasks.scenes.state import Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import (
    CLEAR_MATERIALS,
    FACINGS,
    HEIGHTS,
    LITTLE_MATERIAL,
    METALLIC_COLOURS,
    NEAR_COLOURS,
    SHAPES,
    SIDES,
    TEXTS,
    Facing,
    colours_of,
    view_phrase,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """Scene under change: what was changed already, and what must not be touched again."""

    scene: Scene
    camera: Camera
    """The base photograph's, coarse: changes are planned as seen from there."""
    next_id: int
    """Number of the next new thing; no two photographs of a world share new numbers."""
    changes: tuple[SceneChange, ...] = ()
    touched: frozenset[str] = frozenset()

    def after(self, scene: Scene, change: SceneChange) -> "Draft":
        """Return the draft after one more change."""
        ids = {change.object_id, *change.object_ids} - {None}
        fresh = self.next_id + len(scene.things)
        changes, touched = (*self.changes, change), self.touched | {name for name in ids if name}
        return replace(self, scene=scene, changes=changes, touched=touched, next_id=fresh)

    def single(self) -> list[Thing]:
        """Return the things that are no part of a group and were not touched."""
        return [thing for thing in self.scene.things if not thing.group and thing.id not in self.touched]

    def loose(self) -> list[Thing]:
        """Return the single things on which nothing rests: they may go, grow or turn."""
        carrying = {thing.support for thing in self.scene.things}
        return [thing for thing in self.single() if thing.id not in carrying]


Rng = np.random.Generator
Change = Callable[[Rng, Draft], Draft | None]


def _shuffled(rng: Rng, things: Sequence[Thing]) -> list[Thing]:
    return [things[int(k)] for k in rng.permutation(len(things))]


def _first_fit(draft: Draft, kind: ChangeType, options: Iterable[tuple[Thing, str, str]]) -> Draft | None:
    """Return the draft with the first alteration (thing, before, after) that fits and keeps words distinct."""
    for thing, before, after in options:
        scene = draft.scene.having(thing)
        if is_distinct(thing, scene) and fits(scene, thing, draft.camera):
            return draft.after(scene, SceneChange(type=kind, object_id=thing.id, before=before, after=after))
    return None


_VIEWS = {(i, j): view_phrase(side, height) for i, side in enumerate(SIDES) for j, height in enumerate(HEIGHTS)}


def _change_viewpoint(rng: Rng, draft: Draft) -> Draft | None:
    """Move the camera one step: to the next side, or to the next height."""
    old = draft.scene.view.phrase
    here = next(steps for steps, phrase in _VIEWS.items() if phrase == old)
    near = [steps for steps in _VIEWS if abs(steps[0] - here[0]) + abs(steps[1] - here[1]) == 1]
    side, height = pick(rng, near)
    new = draw_view(rng, list(SIDES)[side], list(HEIGHTS)[height])
    change = SceneChange(type="viewpoint", before=old, after=new.phrase)
    return draft.after(replace(draft.scene, view=new), change)


def _change_illumination(rng: Rng, draft: Draft) -> Draft | None:
    """Change where the light comes from, its brightness, or its tint from warm to cool or back."""
    old = draft.scene.light
    for _ in range(DRAWS):
        new = draw_light(rng)
        tints = {old.tint, new.tint} == {"warm", "cool"}
        if new.direction != old.direction or new.dim != old.dim or tints:
            change = SceneChange(type="illumination", before=old.phrase, after=new.phrase)
            return draft.after(replace(draft.scene, light=new), change)
    return None


def _add_thing(rng: Rng, draft: Draft) -> Draft | None:
    if len(draft.scene.things) >= MOST:
        return None
    rides = rng.random() < 0.5
    shapes = [shape for shape, kind in SHAPES.items() if kind.rides or not rides]
    thing = draw_look(rng, f"object-{draft.next_id}", draft.scene, shapes=shapes)
    if thing is None:
        return None
    thing = replace(thing, size="small") if rides else thing
    scene = put_on_carrier(rng, thing, draft.scene, camera=draft.camera) if rides else None
    scene = scene or put_on_ground(rng, thing, draft.scene, camera=draft.camera)
    return draft.after(scene, SceneChange(type="addition", object_id=thing.id, after=thing.phrase)) if scene else None


def _take(rng: Rng, draft: Draft, *, kind: ChangeType, resting: bool) -> Draft | None:
    """Leave out a thing that stands on the ground, or take one off another that it rests on."""
    things = [thing for thing in draft.loose() if (thing.support is not None) == resting]
    if not things or len(draft.scene.things) <= 3:
        return None
    thing = pick(rng, things)
    change = SceneChange(type=kind, object_id=thing.id, before=thing.phrase)
    return draft.after(draft.scene.without(thing.id), change)


def _substitute_thing(rng: Rng, draft: Draft) -> Draft | None:
    return _first_fit(draft, "substitution", _substitutes(rng, draft))


def _substitutes(rng: Rng, draft: Draft) -> Iterable[tuple[Thing, str, str]]:
    for old in _shuffled(rng, draft.loose()):
        shapes = [s for s, kind in SHAPES.items() if s != old.shape and (kind.rides or old.support is None)]
        for _ in range(4):
            look = draw_look(rng, old.id, draft.scene, shapes=shapes)
            if look is None:
                continue
            size = old.size if old.size in SHAPES[look.shape].sizes else look.size
            new = replace(look, size=size, x=old.x, y=old.y, z=old.z, support=old.support)
            yield turn_to(rng, new, draft.camera), old.phrase, new.phrase


def _change_size(rng: Rng, draft: Draft) -> Draft | None:
    options = (
        (replace(thing, size=size), thing.size, size)
        for thing in _shuffled(rng, draft.loose())
        for size in SHAPES[thing.shape].sizes[:: 1 if rng.random() < 0.5 else -1]
        if size != thing.size
    )
    return _first_fit(draft, "size", options)


def _change_colour(rng: Rng, draft: Draft) -> Draft | None:
    """Paint a thing in a colour that is far from its own."""
    options = (
        (replace(thing, colour=colour), thing.colour, colour)
        for thing in _shuffled(rng, draft.single())
        for colour in rng.permutation(colours_of(thing.shape, thing.material)).tolist()
        if colour != thing.colour and frozenset((colour, thing.colour)) not in NEAR_COLOURS
    )
    return _first_fit(draft, "colour", options)


def _change_material(rng: Rng, draft: Draft) -> Draft | None:
    """Make a thing of a material that the eye tells from its own."""
    options = (
        (replace(thing, material=material), thing.material, material)
        for thing in _shuffled(rng, draft.single())
        if thing.shape not in LITTLE_MATERIAL and thing.colour in METALLIC_COLOURS
        for material in rng.permutation(SHAPES[thing.shape].materials).tolist()
        if frozenset((material, thing.material)) in CLEAR_MATERIALS
    )
    return _first_fit(draft, "material", options)


def _move_thing(rng: Rng, draft: Draft) -> Draft | None:
    """Put a thing of the ground elsewhere on it, facing as before."""
    return _first_fit(draft, "move", _moves(rng, draft))


def _moves(rng: Rng, draft: Draft) -> Iterable[tuple[Thing, str, str]]:
    camera = draft.camera
    for thing in (thing for thing in _shuffled(rng, draft.loose()) if thing.support is None):
        before = camera.position_of(thing, camera.silhouette(thing))
        for _ in range(DRAWS):
            x, y = (float(rng.uniform(*span)) for span in AREA)
            put = replace(thing, x=x, y=y)
            put = turn_to(rng, put, camera, facing=camera.facing(thing)[0]) if SHAPES[thing.shape].front else put
            after = camera.position_of(put, camera.silhouette(put)) if camera.frames(put) else before
            if after.is_clearly_not(before):
                yield put, f"{before.column} {before.depth}", f"{after.column} {after.depth}"


def _change_orientation(rng: Rng, draft: Draft) -> Draft | None:
    """Turn a thing that has a front to face another way; signs stay, for they must be read."""
    return _first_fit(draft, "orientation", _turns(rng, draft))


def _turns(rng: Rng, draft: Draft) -> Iterable[tuple[Thing, str, str]]:
    for thing in _shuffled(rng, draft.loose()):
        if SHAPES[thing.shape].front and thing.shape != "sign":
            old = draft.camera.facing(thing)[0]
            others: list[Facing] = [way for way in FACINGS if way != old]
            for k in rng.permutation(3):
                yield turn_to(rng, thing, draft.camera, facing=others[int(k)]), old, others[int(k)]


def _change_pose(rng: Rng, draft: Draft) -> Draft | None:
    options = (
        (replace(thing, pose=pose), str(thing.pose), pose)
        for thing in _shuffled(rng, draft.loose())
        for pose in SHAPES[thing.shape].poses
        if pose != thing.pose
    )
    return _first_fit(draft, "pose", options)


def _change_text(rng: Rng, draft: Draft) -> Draft | None:
    signs = [thing for thing in draft.single() if thing.text]
    options = (
        (replace(thing, text=TEXTS[int(k)]), str(thing.text), TEXTS[int(k)])
        for thing in _shuffled(rng, signs)
        for k in rng.permutation(len(TEXTS))
        if TEXTS[int(k)] != thing.text
    )
    return _first_fit(draft, "text", options)


def _change_count(rng: Rng, draft: Draft) -> Draft | None:
    group = [thing for thing in draft.scene.things if thing.group and thing.id not in draft.touched]
    if len(group) < 2:
        return None
    step = int(rng.integers(1, 3))
    if rng.random() < 0.55 and len(group) > step:
        gone = tuple(thing.id for thing in _shuffled(rng, group)[:step])
        return _counted(draft, draft.scene.without(*gone), group, ids=gone)
    scene, new = draft.scene, []
    for k in range(step):
        name = f"object-{draft.next_id + k}"
        more = add_like(rng, group[0], scene, camera=draft.camera, name=name) if len(scene.things) < MOST else None
        scene, new = (more, [*new, name]) if more else (scene, new)
    return _counted(draft, scene, group, ids=tuple(new)) if new else None


def _counted(draft: Draft, scene: Scene, group: list[Thing], *, ids: tuple[str, ...]) -> Draft:
    after = sum(thing.group == group[0].group for thing in scene.things)
    before, now = (f"{number(n)} {_many(group[0], n)}" for n in (len(group), after))
    ids = tuple(sorted(ids))
    change = SceneChange(type="counting", object_id=ids[0], object_ids=ids, before=before, after=now)
    done = draft.after(scene, change)
    return replace(done, touched=done.touched | {thing.id for thing in (*group, *scene.things) if thing.group})


def _many(thing: Thing, count: int) -> str:
    words = thing.phrase.split(" ")
    return " ".join([*words[:-1], words[-1] if count == 1 else plural(words[-1])])


CONTENT: dict[ChangeType, Change] = {
    "addition": _add_thing,
    "disappearance": partial(_take, kind="disappearance", resting=False),
    "removal": partial(_take, kind="removal", resting=True),
    "substitution": _substitute_thing,
    "size": _change_size,
    "colour": _change_colour,
    "orientation": _change_orientation,
    "pose": _change_pose,
    "text": _change_text,
    "counting": _change_count,
    "move": _move_thing,
    "material": _change_material,
}
"""Changes of the scene."""
DISTRACTING: dict[ChangeType, Change] = {"viewpoint": _change_viewpoint, "illumination": _change_illumination}
"""Changes of the photograph only."""


NUMBERS = (0.6, 0.27, 0.13)
"""Shares of photographs with one, two and three changes."""
DISTRACTED = 0.3
"""Share of photographs with changes of content that are also taken from elsewhere or in another light."""
WEIGHTS: dict[ChangeType, float] = {
    "removal": 2.5,
    "counting": 2,
    "pose": 2,
    "text": 2,
    "move": 1.5,
    "disappearance": 0.7,
}
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
    facing = [thing for thing in draft.scene.things if SHAPES[thing.shape].front]
    return all(draft.camera.facing(thing)[0] == camera.facing(thing)[0] for thing in facing)
