from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from pairwright.schemas.scene import SceneChange
from pairwright.tasks.scenes import plan
from pairwright.tasks.scenes.changes import CONTENT, DISTRACTING, Draft
from pairwright.tasks.scenes.plan import (
    draw_world,
    plan_camera,
    rests_on,
    stands_free,
    visible_shares,
)
from pairwright.tasks.scenes.state import Thing
from pairwright.tasks.scenes.vocabulary import NEAR_COLOURS, PLACES, SHAPES

WORLDS = 24
COUNTS = ("none", "one", "two", "three", "four", "five", "six")


@dataclass
class Outcome:
    """A draft before and after one change, and the named thing in both."""

    before: Draft
    after: Draft
    change: SceneChange
    old: Thing | None
    new: Thing | None

    def is_all_that_differs(self, **fields):
        return replace(self.old, **fields) == self.new


@pytest.fixture(scope="module")
def drafts():
    scenes = [
        draw_world(np.random.default_rng((1, k)), PLACES[k % 6], width=256, height=192)
        for k in range(WORLDS)
    ]
    drafts = [
        Draft(scene, plan_camera(scene.view, width=256, height=192), 101)
        for scene in scenes
        if scene is not None
    ]
    assert len(drafts) > WORLDS * 0.7
    return drafts


def things_of(draft):
    return {thing.id: thing for thing in draft.scene.things}


@pytest.fixture(scope="module")
def outcomes(drafts):
    """Return a function: what becomes of the worlds by changes of a type, where one is possible."""

    @cache
    def outcomes(kind):
        worlds = drafts[::2] if kind == "move" else drafts  # moves take long to draw
        results = []
        for seed, before in enumerate(worlds):
            after = {**CONTENT, **DISTRACTING}[kind](np.random.default_rng(seed), before)
            if after is not None:
                (change,) = after.changes
                old, new = (things_of(draft).get(change.object_id) for draft in (before, after))
                results.append(Outcome(before, after, change, old, new))
        assert len(results) >= 5
        return results

    return outcomes


def test_worlds_stand_and_can_be_seen(drafts) -> None:
    for draft in drafts:
        scene = draft.scene
        assert plan.LEAST <= len(scene.things) <= plan.MOST
        assert len(things_of(draft)) == len(scene.things)
        assert min(visible_shares(scene, draft.camera).values()) >= plan.PLANNED_VISIBLE
        assert all(stands_free(thing, scene) for thing in scene.things)
        carried = [thing for thing in scene.things if thing.support]
        assert all(rests_on(thing, scene.thing(thing.support)) for thing in carried)
        assert all(thing.z == pytest.approx(scene.thing(thing.support).height) for thing in carried)
        assert all(thing.z == 0 for thing in scene.things if not thing.support)


def test_words_tell_things_apart_outside_of_groups(drafts) -> None:
    for draft in drafts:
        words = Counter(thing.phrase for thing in draft.scene.things if not thing.group)
        words.update({thing.phrase for thing in draft.scene.things if thing.group})
        assert max(words.values()) == 1


@pytest.mark.parametrize("kind", CONTENT)
def test_a_change_alters_what_it_names_and_nothing_else(outcomes, kind) -> None:
    for one in outcomes(kind):
        old, new = things_of(one.before), things_of(one.after)
        altered = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        assert altered == {one.change.object_id, *one.change.object_ids}
        assert one.change.type == kind
        assert not one.new or stands_free(one.new, one.after.scene)


@pytest.mark.parametrize("kind", ["size", "colour", "pose", "text", "material"])
def test_an_attribute_changes_clearly(outcomes, kind) -> None:
    for one in outcomes(kind):
        change = one.change
        assert one.is_all_that_differs(**{kind: change.after})
        assert getattr(one.old, kind) == change.before != change.after
        assert frozenset((change.before, change.after)) not in NEAR_COLOURS
        assert not one.new.group


def test_a_material_changes_from_or_to_metal(outcomes) -> None:
    for one in outcomes("material"):
        materials = (one.change.before, one.change.after)
        assert "metal" in materials
        assert "ceramic" not in materials
        assert one.new.colour not in ("white", "black")
        assert one.new.shape not in ("chair", "sign")


def test_a_thing_is_turned_to_another_side(outcomes) -> None:
    for one in outcomes("orientation"):
        assert one.is_all_that_differs(yaw=one.new.yaw)
        facings = [one.before.camera.facing(thing)[0] for thing in (one.old, one.new)]
        assert facings == [one.change.before, one.change.after]


@pytest.mark.parametrize(("kind", "rests"), [("disappearance", False), ("removal", True)])
def test_a_thing_that_carries_nothing_goes(outcomes, kind, rests) -> None:
    for one in outcomes(kind):
        assert one.new is None
        assert one.change.before == one.old.phrase
        assert (one.old.support is not None) == rests
        assert all(thing.support != one.old.id for thing in one.after.scene.things)


def test_a_thing_on_the_ground_moves_to_another_clear_place(outcomes) -> None:
    for one in outcomes("move"):
        old, new, camera = one.old, one.new, one.before.camera
        assert one.is_all_that_differs(x=new.x, y=new.y, yaw=new.yaw)
        assert (old.z, old.support) == (0, None)
        assert not SHAPES[old.shape].front or camera.facing(old)[0] == camera.facing(new)[0]
        places = [camera.position_of(thing, camera.silhouette(thing)) for thing in (old, new)]
        words = [f"{place.column} {place.depth}" for place in places]
        assert words == [one.change.before, one.change.after]
        assert one.change.before != one.change.after
        assert all(place.clear for place in places)


def test_a_thing_comes_or_another_stands_in_its_place(outcomes) -> None:
    for one in outcomes("addition"):
        assert (one.old, one.change.after) == (None, one.new.phrase)
    for one in outcomes("substitution"):
        old, new = one.old, one.new
        assert old.shape != new.shape
        assert (old.x, old.y, old.z, old.support) == (new.x, new.y, new.z, new.support)
        assert (one.change.before, one.change.after) == (old.phrase, new.phrase)


def test_counts_change_by_one_or_two(outcomes) -> None:
    for one in outcomes("counting"):
        groups = [
            [thing for thing in draft.scene.things if thing.group == "group-1"]
            for draft in (one.before, one.after)
        ]
        before, after = map(len, groups)
        words = [text.split(" ")[0] for text in (one.change.before, one.change.after)]
        assert words == [COUNTS[before], COUNTS[after]]
        assert abs(before - after) in (1, 2)
        assert after >= 1
        grouped = (thing for draft in (one.before, one.after) for thing in draft.scene.things)
        assert len({thing.phrase for thing in grouped if thing.group}) == 1
