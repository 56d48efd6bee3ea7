"""Change a scene: OmniDiff's twelve types of change (paper 002) and two of CLEVR-Change.

Reads and writes nothing. A change returns the changed draft, or ``None`` if the scene does not
allow it. All randomness comes from the generator that is passed in.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pairwright.schemas.phrases import number, plural
from pairwright.schemas.scene import ChangeType, SceneChange
from pairwright.tasks.scenes import plan, vocabulary
from pairwright.tasks.scenes.plan import AREA, DRAWS, MOST
from pairwright.tasks.scenes.state import Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Facing


@dataclass(frozen=True, slots=True)
class Draft:
    """Scene under change, with its changes so far and the things that they touched."""

    scene: Scene
    camera: Camera
    """Coarse camera of the base photograph, from which changes are planned."""
    next_id: int
    """Number of the next new thing, unique within a world."""
    changes: tuple[SceneChange, ...] = ()
    touched: frozenset[str] = frozenset()

    def after(self, scene: Scene, change: SceneChange) -> "Draft":
        """Return the draft after one more change."""
        ids = {change.object_id, *change.object_ids} - {None}
        fresh = self.next_id + len(scene.things)
        changes, touched = (*self.changes, change), self.touched | {name for name in ids if name}
        return replace(self, scene=scene, changes=changes, touched=touched, next_id=fresh)

    def single(self) -> list[Thing]:
        """Return the untouched things outside groups."""
        return [
            thing for thing in self.scene.things if not thing.group and thing.id not in self.touched
        ]

    def loose(self) -> list[Thing]:
        """Return the single things that carry nothing: they may be removed, resized or turned."""
        carrying = {thing.support for thing in self.scene.things}
        return [thing for thing in self.single() if thing.id not in carrying]


Rng = np.random.Generator
Change = Callable[[Rng, Draft], Draft | None]


Alteration = tuple[Thing, str, str]
"""Altered thing, and the values before and after."""


def _shuffled(rng: Rng, things: Sequence[Thing]) -> list[Thing]:
    return [things[int(k)] for k in rng.permutation(len(things))]


def _alter(
    rng: Rng,
    draft: Draft,
    *,
    kind: ChangeType,
    options: Callable[[Rng, Draft], Iterable[Alteration]],
) -> Draft | None:
    """Return the draft with the first alteration that fits and keeps words distinct."""
    for thing, before, after in options(rng, draft):
        scene = draft.scene.having(thing)
        if plan.is_distinct(thing, scene) and plan.fits(scene, thing, draft.camera):
            return draft.after(
                scene, SceneChange(type=kind, object_id=thing.id, before=before, after=after)
            )
    return None


_VIEWS = {
    (i, j): vocabulary.view_phrase(side, height)
    for i, side in enumerate(vocabulary.SIDES)
    for j, height in enumerate(vocabulary.HEIGHTS)
}


def _change_viewpoint(rng: Rng, draft: Draft) -> Draft | None:
    """Move the camera one step, to the next side or height."""
    old = draft.scene.view.phrase
    here = next(steps for steps, phrase in _VIEWS.items() if phrase == old)
    near = [steps for steps in _VIEWS if abs(steps[0] - here[0]) + abs(steps[1] - here[1]) == 1]
    side, height = plan.pick(rng, near)
    new = plan.draw_view(rng, list(vocabulary.SIDES)[side], list(vocabulary.HEIGHTS)[height])
    change = SceneChange(type="viewpoint", before=old, after=new.phrase)
    return draft.after(replace(draft.scene, view=new), change)


def _change_illumination(rng: Rng, draft: Draft) -> Draft | None:
    """Change the light's direction, its brightness, or its tint between warm and cool."""
    old = draft.scene.light
    for _ in range(DRAWS):
        new = plan.draw_light(rng)
        tints = {old.tint, new.tint} == {"warm", "cool"}
        if new.direction != old.direction or new.dim != old.dim or tints:
            change = SceneChange(type="illumination", before=old.phrase, after=new.phrase)
            return draft.after(replace(draft.scene, light=new), change)
    return None


def _add_thing(rng: Rng, draft: Draft) -> Draft | None:
    if len(draft.scene.things) >= MOST:
        return None
    rides = rng.random() < 0.5
    shapes = [shape for shape, kind in vocabulary.SHAPES.items() if kind.rides or not rides]
    thing = plan.draw_look(rng, f"object-{draft.next_id}", draft.scene, shapes=shapes)
    if thing is None:
        return None
    thing = replace(thing, size="small") if rides else thing
    scene = plan.put_on_carrier(rng, thing, draft.scene, camera=draft.camera) if rides else None
    scene = scene or plan.put_on_ground(rng, thing, draft.scene, camera=draft.camera)
    return (
        draft.after(scene, SceneChange(type="addition", object_id=thing.id, after=thing.phrase))
        if scene
        else None
    )


def _take(rng: Rng, draft: Draft, *, kind: ChangeType, resting: bool) -> Draft | None:
    """Remove a thing from the ground, or one from another that it rests on."""
    things = [thing for thing in draft.loose() if (thing.support is not None) == resting]
    if not things or len(draft.scene.things) <= 3:
        return None
    thing = plan.pick(rng, things)
    change = SceneChange(type=kind, object_id=thing.id, before=thing.phrase)
    return draft.after(draft.scene.without(thing.id), change)


def _substitutes(rng: Rng, draft: Draft) -> Iterable[Alteration]:
    for old in _shuffled(rng, draft.loose()):
        shapes = [
            s
            for s, kind in vocabulary.SHAPES.items()
            if s != old.shape and (kind.rides or old.support is None)
        ]
        for _ in range(4):
            look = plan.draw_look(rng, old.id, draft.scene, shapes=shapes)
            if look is None:
                continue
            size = old.size if old.size in vocabulary.SHAPES[look.shape].sizes else look.size
            new = replace(look, size=size, x=old.x, y=old.y, z=old.z, support=old.support)
            yield plan.turn_to(rng, new, draft.camera), old.phrase, new.phrase


def _values(
    rng: Rng,
    draft: Draft,
    *,
    name: str,
    things: Callable[[Draft], list[Thing]],
    values: Callable[[Rng, Thing], Any],
) -> Iterable[Alteration]:
    """Yield the other values of one attribute of some things."""
    for thing in _shuffled(rng, things(draft)):
        before = getattr(thing, name)
        for value in values(rng, thing):
            if value != before:
                yield replace(thing, **{name: value}), str(before), value


def _clear_colours(rng: Rng, thing: Thing) -> list[str]:
    colours: list[str] = rng.permutation(
        vocabulary.colours_of(thing.shape, thing.material)
    ).tolist()
    return [
        colour
        for colour in colours
        if frozenset((colour, thing.colour)) not in vocabulary.NEAR_COLOURS
    ]


def _clear_materials(rng: Rng, thing: Thing) -> list[str]:
    if thing.shape in vocabulary.LITTLE_MATERIAL or thing.colour not in vocabulary.METALLIC_COLOURS:
        return []
    materials: list[str] = rng.permutation(vocabulary.SHAPES[thing.shape].materials).tolist()
    return [
        one for one in materials if frozenset((one, thing.material)) in vocabulary.CLEAR_MATERIALS
    ]


def _moves(rng: Rng, draft: Draft) -> Iterable[Alteration]:
    """Yield other places on the ground for things that stand on it, facing as before."""
    camera = draft.camera
    for thing in (thing for thing in _shuffled(rng, draft.loose()) if thing.support is None):
        before = camera.position_of(thing, camera.silhouette(thing))
        for _ in range(DRAWS):
            x, y = (float(rng.uniform(*span)) for span in AREA)
            put = replace(thing, x=x, y=y)
            if vocabulary.SHAPES[thing.shape].front:
                put = plan.turn_to(rng, put, camera, facing=camera.facing(thing)[0])
            after = (
                camera.position_of(put, camera.silhouette(put)) if camera.frames(put) else before
            )
            if after.is_clearly_not(before):
                yield put, f"{before.column} {before.depth}", f"{after.column} {after.depth}"


def _turns(rng: Rng, draft: Draft) -> Iterable[Alteration]:
    """Yield other facings of things with a front; signs stay, as they must be readable."""
    for thing in _shuffled(rng, draft.loose()):
        if vocabulary.SHAPES[thing.shape].front and thing.shape != "sign":
            old = draft.camera.facing(thing)[0]
            others: list[Facing] = [way for way in vocabulary.FACINGS if way != old]
            for k in rng.permutation(3):
                yield (
                    plan.turn_to(rng, thing, draft.camera, facing=others[int(k)]),
                    old,
                    others[int(k)],
                )


def _change_count(rng: Rng, draft: Draft) -> Draft | None:
    """Add one or two things to a group of like things, or take some away."""
    group = [thing for thing in draft.scene.things if thing.group and thing.id not in draft.touched]
    if len(group) < 2:
        return None
    step = int(rng.integers(1, 3))
    scene, ids = draft.scene, list[str]()
    if rng.random() < 0.55 and len(group) > step:
        ids = [thing.id for thing in _shuffled(rng, group)[:step]]
        scene = scene.without(*ids)
    else:
        for name in (f"object-{draft.next_id + k}" for k in range(step)):
            full = len(scene.things) >= MOST
            more = (
                None
                if full
                else plan.put_on_ground(rng, replace(group[0], id=name), scene, camera=draft.camera)
            )
            scene, ids = (more, [*ids, name]) if more else (scene, ids)
    if not ids:
        return None
    after = sum(thing.group == group[0].group for thing in scene.things)
    *look, noun = group[0].phrase.split(" ")
    before, now = (
        " ".join([number(n), *look, noun if n == 1 else plural(noun)]) for n in (len(group), after)
    )
    names = tuple(sorted(ids))
    done = draft.after(
        scene,
        SceneChange(
            type="counting", object_id=names[0], object_ids=names, before=before, after=now
        ),
    )
    return replace(
        done, touched=done.touched | {thing.id for thing in (*group, *scene.things) if thing.group}
    )


def _altering(
    kind: ChangeType, things: Callable[[Draft], list[Thing]], values: Callable[[Rng, Thing], Any]
) -> Change:
    return partial(
        _alter, kind=kind, options=partial(_values, name=kind, things=things, values=values)
    )


CONTENT: dict[ChangeType, Change] = {
    "addition": _add_thing,
    "disappearance": partial(_take, kind="disappearance", resting=False),
    "removal": partial(_take, kind="removal", resting=True),
    "substitution": partial(_alter, kind="substitution", options=_substitutes),
    "size": _altering(
        "size",
        Draft.loose,
        lambda rng, thing: vocabulary.SHAPES[thing.shape].sizes[:: 1 if rng.random() < 0.5 else -1],
    ),
    "colour": _altering("colour", Draft.single, _clear_colours),
    "orientation": partial(_alter, kind="orientation", options=_turns),
    "pose": _altering("pose", Draft.loose, lambda _, thing: vocabulary.SHAPES[thing.shape].poses),
    "text": _altering(
        "text",
        lambda draft: [thing for thing in draft.single() if thing.text],
        lambda rng, _: [vocabulary.TEXTS[int(k)] for k in rng.permutation(len(vocabulary.TEXTS))],
    ),
    "counting": _change_count,
    "move": partial(_alter, kind="move", options=_moves),
    "material": _altering("material", Draft.single, _clear_materials),
}
DISTRACTING: dict[ChangeType, Change] = {
    "viewpoint": _change_viewpoint,
    "illumination": _change_illumination,
}
"""Changes of the photograph only."""


NUMBERS = (0.6, 0.27, 0.13)
"""Shares of photographs with one, two and three changes."""
WEIGHTS: dict[ChangeType, float] = {
    "removal": 2.5, "counting": 2, "pose": 2, "text": 2, "move": 1.5, "disappearance": 0.7
}  # fmt: skip
"""Weights of the types, larger for those that few worlds allow."""


def vary(rng: np.random.Generator, draft: Draft, *, plain: bool) -> Draft | None:
    """Return the draft with one to three changes, none of content if ``plain``; ``None`` if they fail."""
    wanted = 1 + int(rng.choice(3, p=NUMBERS))
    if plain:
        done = _apply(rng, draft, DISTRACTING, count=1 + int(rng.random() < 0.3))
    else:
        distracted = (
            wanted < 3 and rng.random() < 0.3
        )  # another view or light beside changes of content
        done = _apply(rng, draft, CONTENT, count=wanted)
        done = _apply(rng, done, DISTRACTING, count=1) if done and distracted else done
    if done is None:
        return None
    # Everything must be visible from the new view, with unchanged facings.
    camera = replace(done.camera, view=done.scene.view)
    if not (plan.facings_clear(done.scene, camera) and plan.all_visible(done.scene, camera)):
        return None
    facing = [thing for thing in done.scene.things if vocabulary.SHAPES[thing.shape].front]
    same = all(done.camera.facing(thing)[0] == camera.facing(thing)[0] for thing in facing)
    return done if same else None


def _apply(
    rng: np.random.Generator, draft: Draft, kinds: dict[ChangeType, Change], *, count: int
) -> Draft | None:
    """Return the draft with ``count`` changes of different types, tried in random order."""
    weights = np.array([WEIGHTS.get(kind, 1.0) for kind in kinds])
    order = rng.choice(len(kinds), size=len(kinds), replace=False, p=weights / weights.sum())
    for change in (list(kinds.values())[int(k)] for k in order):
        if count == 0:
            break
        changed = change(rng, draft)
        draft, count = (changed, count - 1) if changed else (draft, count)
    return draft if count == 0 else None
