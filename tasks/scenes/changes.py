"""Change a scene: OmniDiff's twelve types of change (paper 002) and two of CLEVR-Change.

Reads and writes nothing. A change returns the changed draft, or ``None`` if the scene does not
allow it. All randomness comes from the generator that is passed in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from pairwright.schemas.phrases import plural, spell_number
from pairwright.schemas.scene import ChangeType, SceneChange
from pairwright.tasks.scenes import plan, vocabulary
from pairwright.tasks.scenes.pictures import Rng
from pairwright.tasks.scenes.plan import DRAWS, MOST
from pairwright.tasks.scenes.state import Camera, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Facing


@dataclass(frozen=True, slots=True)
class Draft:
    """Scene under change, with its changes so far and the objects that they touched."""

    scene: Scene
    camera: Camera
    """Coarse camera of the base photograph, from which changes are planned."""
    next_id: int
    """Number of the next new object, unique within a world."""
    changes: tuple[SceneChange, ...] = ()
    touched: frozenset[str] = frozenset()

    def after(self, scene: Scene, change: SceneChange) -> "Draft":
        """Return the draft after one more change."""
        ids = {object_id for object_id in (change.object_id, *change.object_ids) if object_id}
        return replace(
            self,
            scene=scene,
            changes=(*self.changes, change),
            touched=self.touched | ids,
            next_id=self.next_id + len(scene.things),
        )

    def single(self) -> list[Thing]:
        """Return the untouched objects outside groups."""
        return [
            item for item in self.scene.things if not item.group and item.id not in self.touched
        ]

    def loose(self) -> list[Thing]:
        """Return the single objects that carry nothing: they may be removed, resized or turned."""
        carrying = {item.support for item in self.scene.things}
        return [item for item in self.single() if item.id not in carrying]


Change = Callable[[Rng, Draft], Draft | None]
Values = Callable[[Rng, Thing], Any]
Select = Callable[[Draft], list[Thing]]


Alteration = tuple[Thing, str, str]
"""Altered object, and the values before and after."""


def _shuffled(rng: Rng, items: Sequence[Thing]) -> list[Thing]:
    return [items[int(index)] for index in rng.permutation(len(items))]


def _alter(
    rng: Rng,
    draft: Draft,
    *,
    kind: ChangeType,
    options: Callable[[Rng, Draft], Iterable[Alteration]],
) -> Draft | None:
    """Return the draft with the first alteration that fits and keeps words distinct."""
    for item, before, after in options(rng, draft):
        scene = draft.scene.having(item)
        if plan.is_distinct(item, scene) and plan.fits(scene, item, draft.camera):
            change = SceneChange(
                type=kind,
                object_id=item.id,
                before=before,
                after=after,
            )
            return draft.after(scene, change)
    return None


def _change_viewpoint(rng: Rng, draft: Draft) -> Draft | None:
    """Move the camera one step, to the next side or height."""
    old = draft.scene.view.phrase
    side, height = plan.pick(rng, _next_views(old))
    new = plan.draw_view(rng, side, height)
    change = SceneChange(
        type="viewpoint",
        before=old,
        after=new.phrase,
    )
    return draft.after(replace(draft.scene, view=new), change)


def _next_views(phrase: str) -> list[tuple[str, str]]:
    """Return the sides and heights one step from the viewpoint of a phrase."""
    sides = list(vocabulary.SIDES)
    heights = list(vocabulary.HEIGHTS)
    views = [(side, height) for side in sides for height in heights]
    old_side, old_height = next(view for view in views if vocabulary.view_phrase(*view) == phrase)
    near: list[tuple[str, str]] = []
    for side, height in views:
        across = abs(sides.index(side) - sides.index(old_side))
        up = abs(heights.index(height) - heights.index(old_height))
        if across + up == 1:
            near.append((side, height))
    return near


def _change_illumination(rng: Rng, draft: Draft) -> Draft | None:
    """Change the light's direction, its brightness, or its tint between warm and cool."""
    old = draft.scene.light
    for _ in range(DRAWS):
        new = plan.draw_light(rng)
        opposite_tints = {old.tint, new.tint} == {"warm", "cool"}
        if new.direction != old.direction or new.dim != old.dim or opposite_tints:
            change = SceneChange(
                type="illumination",
                before=old.phrase,
                after=new.phrase,
            )
            return draft.after(replace(draft.scene, light=new), change)
    return None


def _add_object(rng: Rng, draft: Draft) -> Draft | None:
    if len(draft.scene.things) >= MOST:
        return None
    rides = rng.random() < 0.5
    shapes = [shape for shape, kind in vocabulary.SHAPES.items() if kind.rides or not rides]
    item = plan.draw_look(
        rng,
        f"object-{draft.next_id}",
        draft.scene,
        shapes=shapes,
    )
    if item is None:
        return None
    scene = None
    if rides:
        item = replace(item, size="small")
        scene = plan.put_on_carrier(
            rng,
            item,
            draft.scene,
            camera=draft.camera,
        )
    if scene is None:
        scene = plan.put_on_ground(
            rng,
            item,
            draft.scene,
            camera=draft.camera,
        )
    if scene is None:
        return None
    change = SceneChange(
        type="addition",
        object_id=item.id,
        after=item.phrase,
    )
    return draft.after(scene, change)


def _take(
    rng: Rng,
    draft: Draft,
    *,
    kind: ChangeType,
    resting: bool,
) -> Draft | None:
    """Remove an object from the ground, or one from another that it rests on."""
    items = [item for item in draft.loose() if (item.support is not None) == resting]
    if not items or len(draft.scene.things) <= 3:
        return None
    item = plan.pick(rng, items)
    change = SceneChange(
        type=kind,
        object_id=item.id,
        before=item.phrase,
    )
    return draft.after(draft.scene.without(item.id), change)


def _substitutes(rng: Rng, draft: Draft) -> Iterable[Alteration]:
    """Yield objects of other shapes in the position of an old one."""
    for old in _shuffled(rng, draft.loose()):
        shapes = [
            shape
            for shape, kind in vocabulary.SHAPES.items()
            if shape != old.shape and (kind.rides or old.support is None)
        ]
        for _ in range(4):
            look = plan.draw_look(
                rng,
                old.id,
                draft.scene,
                shapes=shapes,
            )
            if look is None:
                continue
            sizes = vocabulary.SHAPES[look.shape].sizes
            new = replace(
                look,
                size=old.size if old.size in sizes else look.size,
                x=old.x,
                y=old.y,
                z=old.z,
                support=old.support,
            )
            yield plan.turn_to(rng, new, draft.camera), old.phrase, new.phrase


def _attribute_values(
    rng: Rng,
    draft: Draft,
    *,
    name: str,
    select: Select,
    values: Values,
) -> Iterable[Alteration]:
    """Yield the other values of one attribute of some objects."""
    for item in _shuffled(rng, select(draft)):
        before = getattr(item, name)
        for value in values(rng, item):
            if value != before:
                yield replace(item, **{name: value}), str(before), value


def drawn_sizes(rng: Rng, item: Thing) -> Sequence[str]:
    """Return the sizes of a shape, from either end."""
    sizes = vocabulary.SHAPES[item.shape].sizes
    return sizes if rng.random() < 0.5 else sizes[::-1]


def clear_colours(rng: Rng, item: Thing) -> list[str]:
    """Return the colours, shuffled, that nobody takes for the object's own."""
    options = vocabulary.colours_of(item.shape, item.material)
    colours: list[str] = rng.permutation(options).tolist()
    return [
        colour
        for colour in colours
        if frozenset((colour, item.colour)) not in vocabulary.NEAR_COLOURS
    ]


def clear_materials(rng: Rng, item: Thing) -> list[str]:
    """Return the materials, shuffled, that look unlike the object's own."""
    if item.shape in vocabulary.LITTLE_MATERIAL or item.colour not in vocabulary.METALLIC_COLOURS:
        return []
    options = vocabulary.SHAPES[item.shape].materials
    materials: list[str] = rng.permutation(options).tolist()
    return [
        material
        for material in materials
        if frozenset((material, item.material)) in vocabulary.CLEAR_MATERIALS
    ]


def poses(rng: Rng, item: Thing) -> Sequence[str]:
    """Return the poses of a shape."""
    del rng  # the first other pose is taken
    return vocabulary.SHAPES[item.shape].poses


def _signs(draft: Draft) -> list[Thing]:
    return [item for item in draft.single() if item.text]


def texts(rng: Rng, item: Thing) -> list[str]:
    """Return the texts of signs, shuffled."""
    del item  # every sign may have every text
    return [vocabulary.TEXTS[int(index)] for index in rng.permutation(len(vocabulary.TEXTS))]


def _moves(rng: Rng, draft: Draft) -> Iterable[Alteration]:
    """Yield other positions on the ground for objects that stand on it, facing as before."""
    camera = draft.camera
    for item in _shuffled(rng, draft.loose()):
        if item.support is not None:
            continue
        before = camera.position_of(item, camera.silhouette(item))
        for _ in range(DRAWS):
            moved = _move(rng, item, camera)
            if not camera.frames(moved):
                continue
            after = camera.position_of(moved, camera.silhouette(moved))
            if after.is_clearly_not(before):
                old = f"{before.column} {before.depth}"
                yield moved, old, f"{after.column} {after.depth}"


def _move(rng: Rng, item: Thing, camera: Camera) -> Thing:
    x, y = plan.draw_position(rng)
    moved = replace(item, x=x, y=y)
    if not vocabulary.SHAPES[item.shape].front:
        return moved
    facing, _ = camera.facing(item)
    return plan.turn_to(
        rng,
        moved,
        camera,
        facing=facing,
    )


def _turns(rng: Rng, draft: Draft) -> Iterable[Alteration]:
    """Yield other facings of objects with a front; signs stay, as they must be readable."""
    for item in _shuffled(rng, draft.loose()):
        if not vocabulary.SHAPES[item.shape].front or item.shape == "sign":
            continue
        old, _ = draft.camera.facing(item)
        others: list[Facing] = [facing for facing in vocabulary.FACINGS if facing != old]
        for index in rng.permutation(3):
            facing = others[int(index)]
            yield (
                plan.turn_to(
                    rng,
                    item,
                    draft.camera,
                    facing=facing,
                ),
                old,
                facing,
            )


def _change_count(rng: Rng, draft: Draft) -> Draft | None:
    """Add one or two objects to a group of like objects, or take some away."""
    group = [item for item in draft.scene.things if item.group and item.id not in draft.touched]
    if len(group) < 2:
        return None
    step = int(rng.integers(1, 3))
    if rng.random() < 0.55 and len(group) > step:
        ids = [item.id for item in _shuffled(rng, group)[:step]]
        scene = draft.scene.without(*ids)
    else:
        scene, ids = _extend_group(rng, draft, group[0], step)
    if not ids:
        return None
    count = sum(item.group == group[0].group for item in scene.things)
    names = tuple(sorted(ids))
    change = SceneChange(
        type="counting",
        object_id=names[0],
        object_ids=names,
        before=_count_phrase(group[0], len(group)),
        after=_count_phrase(group[0], count),
    )
    changed = draft.after(scene, change)
    grouped = {item.id for item in (*group, *scene.things) if item.group}
    return replace(changed, touched=changed.touched | grouped)


def _extend_group(
    rng: Rng,
    draft: Draft,
    first: Thing,
    step: int,
) -> tuple[Scene, list[str]]:
    """Return the scene with up to ``step`` more objects like the first, and their ids."""
    scene = draft.scene
    ids: list[str] = []
    for offset in range(step):
        if len(scene.things) >= MOST:
            continue
        item = replace(first, id=f"object-{draft.next_id + offset}")
        extended = plan.put_on_ground(
            rng,
            item,
            scene,
            camera=draft.camera,
        )
        if extended:
            scene = extended
            ids.append(item.id)
    return scene, ids


def _count_phrase(item: Thing, count: int) -> str:
    *look, noun = item.phrase.split(" ")
    return " ".join([spell_number(count), *look, noun if count == 1 else plural(noun)])


def _altering(kind: ChangeType, select: Select, values: Values) -> Change:
    """Return a change of the attribute that has the name of the change's type."""
    options = partial(
        _attribute_values,
        name=kind,
        select=select,
        values=values,
    )
    return partial(_alter, kind=kind, options=options)


CONTENT: dict[ChangeType, Change] = {
    "addition": _add_object,
    "disappearance": partial(_take, kind="disappearance", resting=False),
    "removal": partial(_take, kind="removal", resting=True),
    "substitution": partial(_alter, kind="substitution", options=_substitutes),
    "size": _altering("size", Draft.loose, drawn_sizes),
    "colour": _altering("colour", Draft.single, clear_colours),
    "orientation": partial(_alter, kind="orientation", options=_turns),
    "pose": _altering("pose", Draft.loose, poses),
    "text": _altering("text", _signs, texts),
    "counting": _change_count,
    "move": partial(_alter, kind="move", options=_moves),
    "material": _altering("material", Draft.single, clear_materials),
}
DISTRACTING: dict[ChangeType, Change] = {
    "viewpoint": _change_viewpoint,
    "illumination": _change_illumination,
}
"""Changes of the photograph only."""


NUMBERS = (0.6, 0.27, 0.13)
"""Shares of photographs with one, two and three changes."""
WEIGHTS: dict[ChangeType, float] = {
    "removal": 2.5,
    "counting": 2,
    "pose": 2,
    "text": 2,
    "move": 1.5,
    "disappearance": 0.7,
}
"""Weights of the types, larger for those that few worlds allow."""


def vary(rng: Rng, draft: Draft, *, plain: bool) -> Draft | None:
    """Return the draft with one to three changes, none of content if ``plain``; or ``None``."""
    count = 1 + int(rng.choice(3, p=NUMBERS))
    if plain:
        varied = _apply(
            rng,
            draft,
            DISTRACTING,
            count=1 + int(rng.random() < 0.3),
        )
    else:
        # Another view or light is added to changes of content.
        distracted = count < 3 and rng.random() < 0.3
        varied = _apply(
            rng,
            draft,
            CONTENT,
            count=count,
        )
        if varied and distracted:
            varied = _apply(
                rng,
                varied,
                DISTRACTING,
                count=1,
            )
    if varied is None or not _shows_all(varied):
        return None
    return varied


def _shows_all(draft: Draft) -> bool:
    """Return whether all is visible from the draft's view, with the facings of the base's view."""
    scene = draft.scene
    camera = replace(draft.camera, view=scene.view)
    if not plan.facings_clear(scene, camera) or not plan.all_visible(scene, camera):
        return False
    for item in scene.things:
        if not vocabulary.SHAPES[item.shape].front:
            continue
        old, _ = draft.camera.facing(item)
        new, _ = camera.facing(item)
        if old != new:
            return False
    return True


def _apply(
    rng: Rng,
    draft: Draft,
    kinds: Mapping[ChangeType, Change],
    *,
    count: int,
) -> Draft | None:
    """Return the draft with ``count`` changes of different types, tried in random order."""
    weights = np.array([WEIGHTS.get(kind, 1.0) for kind in kinds])
    order = rng.choice(
        len(kinds),
        size=len(kinds),
        replace=False,
        p=weights / weights.sum(),
    )
    changes = list(kinds.values())
    for index in order:
        if count == 0:
            break
        changed = changes[int(index)](rng, draft)
        if changed:
            draft = changed
            count -= 1
    return draft if count == 0 else None
