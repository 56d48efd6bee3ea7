from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.scene import ChangeType
from pairwright.tasks.scenes import plan
from pairwright.tasks.scenes.changes import CONTENT, DISTRACTING, Draft
from pairwright.tasks.scenes.plan import (
    draw_world,
    plan_camera,
    rests_on,
    stands_free,
    visible_shares,
)
from pairwright.tasks.scenes.vocabulary import NEAR_COLOURS, PLACES, SHAPES

WORLDS = 24


@pytest.fixture(scope="module")
def drafts():
    found = []
    for k in range(WORLDS):
        scene = draw_world(np.random.default_rng((1, k)), PLACES[k % 6], width=256, height=192)
        if scene is not None:
            found.append(Draft(scene, plan_camera(scene.view, width=256, height=192), 101))
    assert len(found) > WORLDS * 0.7
    return found


def altered(before, after):
    """Names of the things that were added, taken or altered."""
    old, new = ({thing.id: thing for thing in scene.things} for scene in (before, after))
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def outcomes(drafts, kind, *, seed=0):
    """Every world's draft before, and after, a change of one type, with what was altered."""
    for k, draft in enumerate(drafts, seed):
        done = {**CONTENT, **DISTRACTING}[kind](np.random.default_rng(k), draft)
        if done is not None:
            (change,) = done.changes
            assert change.type == kind
            yield draft, done, change


def test_worlds_stand_and_can_be_seen(drafts):
    for draft in drafts:
        scene = draft.scene
        assert plan.LEAST <= len(scene.things) <= plan.MOST
        assert len({thing.id for thing in scene.things}) == len(scene.things)
        assert min(visible_shares(scene, draft.camera).values()) >= plan.PLANNED_VISIBLE
        for thing in scene.things:
            assert stands_free(thing, scene)
            carrier = thing.support and scene.thing(thing.support)
            assert thing.z == pytest.approx(carrier.height if carrier else 0)
            assert not carrier or rests_on(thing, carrier)


def test_words_tell_things_apart_outside_of_groups(drafts):
    for draft in drafts:
        words = Counter(thing.phrase for thing in draft.scene.things if not thing.group)
        words.update({thing.phrase for thing in draft.scene.things if thing.group})
        assert max(words.values()) == 1


@pytest.mark.parametrize("kind", CONTENT)
def test_a_change_alters_what_it_names_in_the_way_that_it_says(drafts, kind: ChangeType):
    found = list(
        outcomes(drafts[::2] if kind == "move" else drafts, kind)
    )  # moves take long to draw
    assert len(found) >= 5
    for draft, done, change in found:
        assert altered(draft.scene, done.scene) == {change.object_id, *change.object_ids}
        old, new = (
            next((thing for thing in scene.things if thing.id == change.object_id), None)
            for scene in (draft.scene, done.scene)
        )
        assert not new or stands_free(new, done.scene)
        if kind in ("size", "colour", "pose", "text", "material"):
            assert replace(old, **{kind: change.after}) == new
            assert getattr(old, kind) == change.before != change.after
            assert frozenset((change.before, change.after)) not in NEAR_COLOURS
            assert not new.group
            if kind == "material":
                assert "metal" in (change.before, change.after)
                assert "ceramic" not in (change.before, change.after)
                assert new.colour not in ("white", "black")
                assert new.shape not in ("chair", "sign")
        elif kind == "orientation":
            assert replace(old, yaw=new.yaw) == new
            assert [draft.camera.facing(thing)[0] for thing in (old, new)] == [
                change.before,
                change.after,
            ]
        elif kind in ("disappearance", "removal"):
            assert (new, change.before, old.support is not None) == (
                None,
                old.phrase,
                kind == "removal",
            )
            assert all(thing.support != old.id for thing in done.scene.things)
        elif kind == "addition":
            assert (old, change.after) == (None, new.phrase)
        elif kind == "move":
            assert replace(old, x=new.x, y=new.y, yaw=new.yaw) == new
            assert (old.z, old.support) == (0, None)
            camera = draft.camera
            assert not SHAPES[old.shape].front or camera.facing(old)[0] == camera.facing(new)[0]
            places = [camera.position_of(thing, camera.silhouette(thing)) for thing in (old, new)]
            assert [f"{place.column} {place.depth}" for place in places] == [
                change.before,
                change.after,
            ]
            assert change.before != change.after
            assert all(place.clear for place in places)
        elif kind == "substitution":
            assert old.shape != new.shape
            assert (old.x, old.y, old.z, old.support) == (new.x, new.y, new.z, new.support)
            assert (change.before, change.after) == (old.phrase, new.phrase)


def test_counts_change_by_one_or_two(drafts):
    words = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
    for draft, done, change in outcomes(drafts, "counting"):
        counts = [
            sum(thing.group == "group-1" for thing in scene.things)
            for scene in (draft.scene, done.scene)
        ]
        assert [words[text.split(" ")[0]] for text in (change.before, change.after)] == counts
        assert abs(counts[0] - counts[1]) in (1, 2)
        assert counts[1] >= 1
        assert (
            len(
                {
                    thing.phrase
                    for scene in (draft.scene, done.scene)
                    for thing in scene.things
                    if thing.group
                }
            )
            == 1
        )
