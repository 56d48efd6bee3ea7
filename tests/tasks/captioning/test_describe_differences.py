"""Implicit-change descriptions: true by claims and by an independent reading, in the template."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import CLAIMS, Claim, all_hold, content_changes, is_no_change
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.rows import DifferenceRow
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning import describe_differences as module
from pairwright.tasks.captioning.describe_differences import (
    compose_difference,
    describe_differences,
)
from pairwright.tasks.captioning.statements import Statement
from pairwright.tasks.texts.differences import Difference, read_composed
from tests.fixtures.graphs import (
    PROPERTY,
    graph,
    image_row,
    pair_row,
    pairs,
    random_pair,
    rows_of,
    thing,
)
from tests.fixtures.reader import read_phrases


def describe(*both, rows=None, images=None, **settings):
    """Describe two scenes, or rows of pairs."""
    if both:
        rows, images = rows_of([both])
    config = DifferencesConfig(**settings)
    results = list(describe_differences(rows, config, images=images, captions={}))
    return results[0] if both else results


@pytest.fixture
def in_full(monkeypatch):
    """Name shape, colour and material of every thing."""
    monkeypatch.setattr(module, "SPARED", {})


def change(kind, name="a"):
    return (SceneChange(type=kind, object_id=name),)


UNCHANGED = (
    *("no change", "no difference", "nothing", "no object", "the scene is the same"),
    *("the scene remains the same", "the scene has not changed"),
)


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_descriptions_are_true_and_false_of_exchanged_images(both, seed) -> None:
    written, unchanged = compose_difference(both, Random(seed)), is_no_change(both)
    if written is None:
        return
    assert all_hold(written.claims, both), written.text
    assert unchanged or not all_hold(written.claims, both[::-1]), written.text
    difference = read_composed(written.text, difference_verbs())
    assert written.text.startswith("The difference between") is not unchanged
    assert isinstance(difference, Difference), written.text
    halves = difference.first_half, difference.second_half
    for half, scene in zip(halves, both, strict=True):
        assert all(phrase.true_of(scene) for phrase in read_phrases(half)), written.text
    assert any(claim.kind == "no_change" for claim in written.claims) is unchanged
    assert any(part in written.text.lower() for part in UNCHANGED) is unchanged


LOOK = {"shape", "colour", "material", "size", "facing", "pose", "text"}


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_change_of_content_is_said(both, seed) -> None:
    """Each half names each changed object that its photograph shows: its look, and for a move
    also its place."""
    written = compose_difference(both, Random(seed))
    if written is None or is_no_change(both) or both[0].world != both[1].world:
        return
    difference = read_composed(written.text, difference_verbs())
    before, after = ({each.id: each for each in scene.objects} for scene in both)
    for change in content_changes(both[0]) ^ content_changes(both[1]):
        for name in {change.object_id, *change.object_ids} - {None}:
            old, new = before.get(name), after.get(name)
            same = old and new and old.model_dump(include=LOOK) == new.model_dump(include=LOOK)
            if old and not same:
                assert phrases_of(old, difference.first_half), written.text
            if new and not same:
                assert phrases_of(new, difference.second_half), written.text
            if change.type == "move" and old and new:
                phrases = phrases_of(old, difference.first_half)
                assert any({"column", "depth"} & phrase.keys() for phrase in phrases), written.text


def phrases_of(scene_object, half):
    """Return the phrases that name an object's shape and state nothing false of it."""
    return [
        phrase.named
        for phrase in read_phrases(half)
        if "shape" in phrase.named
        and all(getattr(scene_object, name) == value for name, value in phrase.named.items())
    ]


def test_a_pair_with_a_change_that_has_no_words_is_dropped() -> None:
    """The ball was moved by little; that the cube is another colour is not the whole difference."""
    cubes = [thing("b", "cube", colour, column="right") for colour in ("green", "blue")]
    changes = (*change("move"), *change("colour", "b"))
    near, clear = (thing(column="centre", clear=clear) for clear in (False, True))
    first = graph(thing(), cubes[0])
    row = describe(first, graph(near, cubes[1], changes=changes))
    assert row.reason == "no words for the difference"
    row = describe(first, graph(clear, cubes[1], changes=changes))
    assert "in the centre" in row.second_half


BALL, CAR, SIGN = thing(), thing(shape="car", facing="left"), thing(shape="sign", text="CAFE")
LID = thing(pose="with its lid open")
METAL = "red metal ball"


def changed(scene_object, **values):
    return scene_object.model_copy(update=values)


CASES = {
    "colour": (BALL, changed(BALL, colour="blue"), METAL, "blue metal ball"),
    "size": (BALL, changed(BALL, size="large"), f"small {METAL}", f"large {METAL}"),
    "orientation": (CAR, changed(CAR, facing="back"), "facing left", "facing away"),
    "text": (SIGN, changed(SIGN, text="OPEN"), "that says 'CAFE'", "that says 'OPEN'"),
    "pose": (LID, changed(LID, pose="with its lid closed"), "lid open", "lid closed"),
    "substitution": (BALL, thing(shape="cone", material="rubber"), METAL, "red rubber cone"),
    "disappearance": (BALL, None, METAL, "metal ball"),
    "addition": (None, thing(shape="duck"), "red metal duck", "red metal duck"),
    "move": (BALL, thing(column="right"), f"{METAL} on the left", "metal ball on the right"),
    "material": (BALL, changed(BALL, material="rubber"), METAL, "red rubber ball"),
    "removal": (thing(rests_on="box"), None, f"{METAL} on a box", "metal ball"),
}


@pytest.mark.usefixtures("in_full")
@pytest.mark.parametrize("kind", CASES)
def test_the_changed_object_is_named(kind) -> None:
    before, after, first, second = CASES[kind]
    cube = thing("b", "cube", "green", column="right")
    mug = thing("c", "mug", "white", "ceramic", column="centre")
    scenes = [
        graph(*filter(None, (each, cube, mug)), changes=changes)
        for each, changes in ((before, ()), (after, change(kind)))
    ]
    row = describe(*scenes)
    assert first in row.first_half
    assert second in row.second_half
    assert "green" not in row.text
    assert "mug" not in row.text


@pytest.mark.usefixtures("in_full")
def test_a_turned_camera_is_no_change_of_the_car() -> None:
    """The viewpoint makes the car face elsewhere and hides the cube; only the ball was changed."""
    left, front = (thing("car", "car", "blue", facing=facing) for facing in ("left", "front"))
    changes = (*change("colour"), SceneChange(type="viewpoint"))
    first = graph(thing(), left, thing("cube", "cube", "green"))
    row = describe(first, graph(thing(colour="black"), front, changes=changes))
    assert "red metal ball" in row.first_half
    assert "black metal ball" in row.second_half
    assert "car" not in row.text
    assert "cube" not in row.text


def test_rows_have_their_claims() -> None:
    row = describe(graph(thing()), graph(thing(colour="blue"), changes=change("colour")))
    assert isinstance(row, DifferenceRow)
    assert row.key == row.source_key == row.subject
    assert (row.attempts, row.finish_reason) == (1, "stop")
    assert (row.model, row.no_change) == ("scene-graph", False)
    first, second = map(" ".join, zip(row.verbs, (row.first_half, row.second_half), strict=True))
    assert row.text == (
        f"The difference between the two images is that the first image {first}, "
        f"while the second image {second}."
    )
    assert row.verbs[0] != row.verbs[1]
    assert {claim.side for claim in CLAIMS.validate_json(row.claims)} == {0, 1}


def test_rows_without_scenes_have_a_reason() -> None:
    images = {"a": image_row("a", graph(thing())), "b": image_row("b")}
    rows = describe(rows=[pair_row("a", "b"), pair_row("a", "c")], images=images)
    assert [row.reason for row in rows] == ["no scene graph", "image is missing"]


def test_descriptions_depend_on_the_seed_and_not_on_their_neighbours() -> None:
    rows, images = rows_of([random_pair(n) for n in range(30)])
    forward = describe(rows=rows, images=images)
    assert describe(rows=rows[::-1], images=images) == forward[::-1]
    other = describe(rows=rows, images=images, seed=1)
    both = [pair for pair in zip(forward, other, strict=True) if isinstance(pair[0], DifferenceRow)]
    assert len(both) > 15
    assert sum(a == b for a, b in both) < 3


GOOD = (
    "The difference between the two images is that the first image shows a ball, while the "
    "second image shows a cube."
)


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (Statement("No template."), "off the template"),
        (Statement(GOOD, (Claim(side=0, kind="absent"),)), "not true of the scene graphs"),
    ],
    ids=["off the template", "not true"],
)
def test_the_last_refusal_is_the_reason(monkeypatch, statement, reason) -> None:
    monkeypatch.setattr(module, "compose_difference", lambda graphs, rng: statement)
    row = describe(graph(thing()), graph(thing()), max_attempts=2)
    assert row.reason == reason
