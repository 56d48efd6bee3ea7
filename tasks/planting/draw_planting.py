"""Draw what is planted into a photograph: things, and one to three changes of them (ours).

Reads and writes nothing. All randomness comes from the generator that is passed in. A change and
its opposite are equally likely, so that no photograph shows by itself that it is the changed one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pairwright.schemas.scene import ChangeType, SceneChange
from pairwright.tasks.planting.cut_things import CutThing
from pairwright.tasks.planting.find_spots import Spot
from pairwright.tasks.scenes import changes, plan, vocabulary
from pairwright.tasks.scenes.pictures import Rng
from pairwright.tasks.scenes.state import COLUMNS, Column, Scene, Thing
from pairwright.tasks.scenes.vocabulary import Light, View

FEWEST = 2
MOST = 4
"""Things of a photograph."""
ATTEMPTS = 20  # changes that are tried for one change
PLACE = "a photograph"
SHAPES = [shape for shape in vocabulary.SHAPES if shape != "sign"]
CUT_SHARE = 0.5  # share of things of other photographs, where there are some
SIGN_SHARE = 0.25  # share of things that are signs
COLUMN_GAP = 0.06
"""A column is clear this far from the next, as a share of the width."""


@dataclass(frozen=True, slots=True)
class Planting:
    """Things in a photograph, with their spots, and the changes that led to them."""

    things: tuple[Thing, ...]
    spots: Mapping[str, Spot]
    """Spot of each thing by its id."""
    free: tuple[Spot, ...]
    """Spots without a thing."""
    width: int
    """Of the photograph, in pixels."""
    next_id: int
    cut_things: tuple[CutThing, ...] = ()
    """Things of other photographs that may be planted."""
    changes: tuple[SceneChange, ...] = ()
    touched: frozenset[str] = frozenset()
    """Ids of the things that were changed: none is changed twice."""

    def untouched(self) -> list[Thing]:
        """Return the things that were not changed."""
        return [item for item in self.things if item.id not in self.touched]

    def after(
        self,
        change: SceneChange,
        *,
        things: Sequence[Thing] | None = None,
        spots: Mapping[str, Spot] | None = None,
        free: Sequence[Spot] | None = None,
    ) -> "Planting":
        """Return the planting after one more change."""
        return replace(
            self,
            things=self.things if things is None else tuple(things),
            spots=self.spots if spots is None else spots,
            free=self.free if free is None else tuple(free),
            changes=(*self.changes, change),
            touched=self.touched | {str(change.object_id)},
            next_id=self.next_id + 1,
        )

    def column_of(self, spot: Spot) -> tuple[Column, bool]:
        """Return the column of a spot, and whether it is clear."""
        return column_of(spot.x / self.width)


def column_of(share: float) -> tuple[Column, bool]:
    """Return the third of a photograph at a share of its width, and whether it is clear."""
    index = min(int(3 * share), 2)
    is_clear = min(abs(share - 1 / 3), abs(share - 2 / 3)) >= COLUMN_GAP
    return COLUMNS[index], is_clear


def draw_planting(
    rng: Rng, spots: Sequence[Spot], width: int, cut_things: Sequence[CutThing] = ()
) -> Planting | None:
    """Return two to four things at spots; ``None``: too few spots, one must stay free."""
    if len(spots) <= FEWEST:
        return None
    count = int(rng.integers(FEWEST, min(MOST, len(spots) - 1) + 1))
    planting = Planting((), {}, tuple(spots), width, next_id=1, cut_things=tuple(cut_things))
    for _ in range(count):
        planting = _put_new(rng, planting) or planting
    if len(planting.things) < FEWEST:
        return None
    return planting


def change_planting(rng: Rng, planting: Planting) -> Planting | None:
    """Return the planting after one to three changes of different things; ``None``: none fits."""
    count = 1 + int(rng.choice(3, p=changes.NUMBERS))
    count = min(count, len(planting.things))
    kinds = list(CHANGES)
    changed = planting
    for _ in range(ATTEMPTS):
        if len(changed.changes) == count:
            break
        kind = kinds[int(rng.integers(len(kinds)))]
        changed = CHANGES[kind](rng, changed) or changed
    return changed if changed.changes else None


def _scene_of(planting: Planting) -> Scene:
    """Return the things as a scene, which tells whether looks are distinct."""
    return Scene(PLACE, 0, View(0.0, 0.0, ""), Light("above", "white"), planting.things)


def _draw_thing(rng: Rng, name: str, planting: Planting, shapes: Sequence[str]) -> Thing | None:
    """Return a thing that faces the viewer or to a side, and looks like no other one."""
    for _ in range(ATTEMPTS):
        item = plan.draw_look(rng, name, _scene_of(planting), shapes=list(shapes))
        if item is None:
            return None
        if shows_colour(item):
            return turn(rng, item)
    return None


def shows_colour(item: Thing) -> bool:
    """Return whether a thing's colour is seen.

    Not that of an open book, which lies on it, or of a black one, whose cover mirrors the sky.
    """
    if item.shape != "book":
        return True
    return item.pose != "lying open" and item.colour != "black"


def turn(rng: Rng, item: Thing) -> Thing:
    """Return a thing that is turned by chance; a sign can be read, a front is seen."""
    if item.shape == "sign":
        return replace(item, yaw=float(rng.uniform(-0.15, 0.15)))
    if not vocabulary.SHAPES[item.shape].front:
        return replace(item, yaw=float(rng.uniform(-np.pi, np.pi)))
    quarter = int(rng.integers(-1, 2))
    return replace(item, yaw=quarter * np.pi / 2 + float(rng.uniform(-0.25, 0.25)))


def _put_new(rng: Rng, planting: Planting) -> Planting | None:
    """Return the planting with a new thing at a free spot, without a change."""
    if not planting.free:
        return None
    item = _draw_new(rng, planting)
    if item is None:
        return None
    spot, *free = planting.free
    return replace(
        planting,
        things=(*planting.things, item),
        spots={**planting.spots, item.id: spot},
        free=tuple(free),
        next_id=planting.next_id + 1,
    )


def _draw_new(rng: Rng, planting: Planting) -> Thing | None:
    name = f"planted-{planting.next_id}"
    if planting.cut_things and rng.random() < CUT_SHARE:
        return _draw_cut(rng, name, planting)
    shapes = ["sign"] if rng.random() < SIGN_SHARE else SHAPES
    return _draw_thing(rng, name, planting, shapes)


def _draw_cut(rng: Rng, name: str, planting: Planting) -> Thing | None:
    """Return a thing of another photograph whose noun no other thing has."""
    nouns = {item.shape for item in planting.things}
    choices = [item for item in planting.cut_things if item.shape not in nouns]
    if not choices:
        return None
    return replace(plan.pick(rng, choices), id=name)


def _add(rng: Rng, planting: Planting) -> Planting | None:
    if len(planting.things) >= MOST:
        return None
    grown = _put_new(rng, planting)
    if grown is None:
        return None
    item = grown.things[-1]
    change = SceneChange(type="addition", object_id=item.id, after=item.phrase)
    return replace(
        grown,
        changes=(*planting.changes, change),
        touched=planting.touched | {item.id},
    )


def _take(rng: Rng, planting: Planting) -> Planting | None:
    items = planting.untouched()
    if not items or len(planting.things) <= FEWEST:
        return None
    item = plan.pick(rng, items)
    things = [other for other in planting.things if other.id != item.id]
    spots = {name: spot for name, spot in planting.spots.items() if name != item.id}
    change = SceneChange(type="disappearance", object_id=item.id, before=item.phrase)
    # The spot is free again, but not used: a thing there would look like an exchange.
    return planting.after(change, things=things, spots=spots)


def _move(rng: Rng, planting: Planting) -> Planting | None:
    """Move a thing to a free spot in another column; both columns must be clear."""
    items = planting.untouched()
    if not items:
        return None
    item = plan.pick(rng, items)
    old_spot = planting.spots[item.id]
    before, was_clear = planting.column_of(old_spot)
    for spot in planting.free:
        after, is_clear = planting.column_of(spot)
        if not was_clear or not is_clear or after == before:
            continue
        free = [other for other in planting.free if other != spot]
        change = SceneChange(type="move", object_id=item.id, before=before, after=after)
        return planting.after(change, spots={**planting.spots, item.id: spot}, free=free)
    return None


def _substitute(rng: Rng, planting: Planting) -> Planting | None:
    items = planting.untouched()
    if not items:
        return None
    old = plan.pick(rng, items)
    shapes = [shape for shape in SHAPES if shape != old.shape]
    new = _draw_thing(rng, old.id, planting, shapes)
    if new is None:
        return None
    return _exchange(planting, "substitution", new, old.phrase, new.phrase)


def _alter(name: ChangeType, values: Callable[[Rng, Thing], Sequence[Any]]) -> "Change":
    """Return a change of the attribute that has the name of the change's type."""

    def alter(rng: Rng, planting: Planting) -> Planting | None:
        items = [item for item in planting.untouched() if _has(item, name)]
        if not items:
            return None
        old = plan.pick(rng, items)
        before = getattr(old, name)
        for value in values(rng, old):
            if value == before:
                continue
            new = replace(old, **{name: value})
            changed = _exchange(planting, name, new, str(before), str(value))
            if changed is not None:
                return changed
        return None

    return alter


def _has(item: Thing, name: str) -> bool:
    """Return whether an attribute of a thing is known; of one that was cut out, none is."""
    return bool(getattr(item, name)) and not isinstance(item, CutThing)


def _exchange(
    planting: Planting, kind: ChangeType, new: Thing, before: str, after: str
) -> Planting | None:
    """Return the planting with a thing replaced by one of the same id, if it is distinct."""
    if not plan.is_distinct(new, _scene_of(planting)) or not shows_colour(new):
        return None
    things = [new if item.id == new.id else item for item in planting.things]
    change = SceneChange(type=kind, object_id=new.id, before=before, after=after)
    return planting.after(change, things=things)


Change = Callable[[Rng, Planting], Planting | None]
CHANGES: Mapping[ChangeType, Change] = {
    "addition": _add,
    "disappearance": _take,
    "substitution": _substitute,
    "move": _move,
    "colour": _alter("colour", changes.clear_colours),
    "material": _alter("material", changes.clear_materials),
    "size": _alter("size", changes.drawn_sizes),
    "pose": _alter("pose", changes.poses),
    "text": _alter("text", changes.texts),
}
"""Changes of planted things, equally likely."""
