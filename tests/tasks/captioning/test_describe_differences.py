"""Implicit-change descriptions: true by claims and by an independent reading, in the template,
telling sides apart."""

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

CONFIG = DifferencesConfig()


def describe(*both, config=CONFIG):
    rows, images = rows_of([both])
    return next(iter(describe_differences(rows, config, images=images, captions={})))


@pytest.fixture
def in_full(monkeypatch):
    """Name shape, colour and material of every thing."""
    monkeypatch.setattr(module, "SPARED", ())


def change(kind, name="a"):
    return (SceneChange(type=kind, object_id=name),)


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_descriptions_are_true_and_false_of_exchanged_images(both, seed):
    written, unchanged = compose_difference(both, Random(seed)), is_no_change(both)
    if written is None:
        return
    assert all_hold(written.claims, both), written.text
    assert unchanged or not all_hold(written.claims, (both[1], both[0])), written.text
    read = read_composed(written.text, difference_verbs())
    assert written.text.startswith("The difference between") is not unchanged
    assert isinstance(read, Difference), written.text
    for half, scene in zip((read.first_half, read.second_half), both, strict=True):
        for phrase in read_phrases(half):
            assert phrase.true_of(scene), written.text
    assert any(claim.kind == "no_change" for claim in written.claims) is unchanged
    words = ("unchanged", "no change", "nothing", "no object", "not one", "same scene")
    assert any(part in written.text.lower() for part in words) is unchanged


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_change_of_content_is_said(both, seed):
    """Each half names each changed thing that its photograph shows: its look, and for a move also
    its place."""
    written = compose_difference(both, Random(seed))
    if written is None or is_no_change(both) or both[0].world != both[1].world:
        return
    read = read_composed(written.text, difference_verbs())
    seen = [{one.id: one for one in scene.objects} for scene in both]
    for change in content_changes(both[0]) ^ content_changes(both[1]):
        for name in {change.object_id, *change.object_ids} - {None}:
            one, other = (shown.get(name) for shown in seen)
            for half, here, there in (
                (read.first_half, one, other),
                (read.second_half, other, one),
            ):
                if here is not None and (there is None or attributes(here) != attributes(there)):
                    assert any(fits(phrase, here) for phrase in read_phrases(half)), written.text
            if change.type == "move" and one and other:
                named = [
                    phrase.named for phrase in read_phrases(read.first_half) if fits(phrase, one)
                ]
                assert any({"column", "depth"} & words.keys() for words in named), written.text


def attributes(one):
    return one.model_dump(include={"shape", "colour", "material", "size", "facing", "pose", "text"})


def fits(phrase, one):
    """Return whether the phrase names the thing's shape and states nothing false of it."""
    return "shape" in phrase.named and all(
        getattr(one, name) == value for name, value in phrase.named.items()
    )


def test_a_pair_with_a_change_that_has_no_words_is_dropped():
    """The ball was moved by little; that the cube is another colour is not the whole difference."""
    first, near = thing(), thing(column="centre", clear=False)
    cubes = thing("b", "cube", "green", column="right"), thing("b", "cube", "blue", column="right")
    changes = (*change("move"), *change("colour", "b"))
    row = describe(graph(first, cubes[0]), graph(near, cubes[1], changes=changes))
    assert row.reason == "no words for the difference"
    clear = near.model_copy(update={"clear": True})
    assert (
        "in the centre"
        in describe(graph(first, cubes[0]), graph(clear, cubes[1], changes=changes)).second_half
    )


CASES = [
    ("colour", thing(colour="red"), thing(colour="blue"), "red metal ball", "blue metal ball"),
    (
        "size",
        thing(size="small"),
        thing(size="large"),
        "a small red metal ball",
        "a large red metal ball",
    ),
    (
        "orientation",
        thing(shape="car", facing="left"),
        thing(shape="car", facing="back"),
        "facing left",
        "facing away",
    ),
    (
        "text",
        thing(shape="sign", text="CAFE"),
        thing(shape="sign", text="OPEN"),
        "reading 'CAFE'",
        "reading 'OPEN'",
    ),
    (
        "pose",
        thing(pose="with its lid open"),
        thing(pose="with its lid closed"),
        "lid open",
        "lid closed",
    ),
    (
        "substitution",
        thing(),
        thing(shape="cone", material="rubber"),
        "red metal ball",
        "red rubber cone",
    ),
    ("disappearance", thing(), None, "a red metal ball", "red metal ball"),
    ("addition", None, thing(shape="duck"), "red metal duck", "a red metal duck"),
    (
        "move",
        thing(),
        thing(column="right"),
        "red metal ball on the left",
        "red metal ball on the right",
    ),
    ("material", thing(), thing(material="rubber"), "red metal ball", "red rubber ball"),
    ("removal", thing(rests_on="box"), None, "red metal ball on top of a box", "red metal ball"),
]


@pytest.mark.usefixtures("in_full")
@pytest.mark.parametrize(
    ("kind", "before", "after", "first", "second"), CASES, ids=[case[0] for case in CASES]
)
def test_the_changed_object_is_named(kind, before, after, first, second):
    rest = (
        thing("b", "cube", "green", column="right"),
        thing("c", "mug", "white", "ceramic", column="centre"),
    )
    graphs = [
        graph(*(a for a in (one, *rest) if a), changes=changes)
        for one, changes in ((before, ()), (after, change(kind)))
    ]
    row = describe(*graphs)
    lowered = (
        row.first_half.replace(" small ", " ") if kind != "size" else row.first_half,
        row.second_half,
    )
    assert first.removeprefix("a ") in lowered[0]
    assert second.removeprefix("a ") in lowered[1] or second.split(" ", 2)[-1] in lowered[1]
    assert "green" not in row.text
    assert "mug" not in row.text


@pytest.mark.usefixtures("in_full")
def test_a_turned_camera_is_no_change_of_the_car():
    """The viewpoint makes the car face elsewhere and hides the cube; only the ball was changed."""
    first = graph(
        thing(), thing("car", "car", "blue", facing="left"), thing("cube", "cube", "green")
    )
    changes = (*change("colour"), SceneChange(type="viewpoint"))
    second = graph(
        thing(colour="black"), thing("car", "car", "blue", facing="front"), changes=changes
    )
    row = describe(first, second)
    assert "red metal ball" in row.first_half
    assert "black metal ball" in row.second_half
    assert "car" not in row.text
    assert "cube" not in row.text


def test_rows_have_their_claims_or_a_reason():
    row = describe(graph(thing()), graph(thing(colour="blue"), changes=change("colour")))
    assert isinstance(row, DifferenceRow)
    assert row.key == row.source_key == row.subject
    assert (row.attempts, row.finish_reason, row.model, row.no_change) == (
        1,
        "stop",
        "scene-graph",
        False,
    )
    assert row.text == (
        f"The difference between the two images is that the first image {row.verbs[0]} "
        f"{row.first_half}, "
        f"while the second image {row.verbs[1]} {row.second_half}."
    )
    assert row.verbs[0] != row.verbs[1]
    sides = {claim.side for claim in CLAIMS.validate_json(row.claims)}
    assert sides == {0, 1}
    images = {"a": image_row("a", graph(thing())), "b": image_row("b")}
    found = describe_differences(
        [pair_row("a", "b"), pair_row("a", "c")], CONFIG, images=images, captions={}
    )
    assert [row.reason for row in found] == ["no scene graph", "image is missing"]


def test_descriptions_do_not_depend_on_their_neighbours():
    rows, images = rows_of([random_pair(n) for n in range(30)])
    forward = list(describe_differences(rows, CONFIG, images=images, captions={}))
    backward = list(describe_differences(rows[::-1], CONFIG, images=images, captions={}))
    assert forward == backward[::-1]
    again = list(describe_differences(rows, DifferencesConfig(seed=1), images=images, captions={}))
    rows = [both for both in zip(forward, again, strict=True) if isinstance(both[0], DifferenceRow)]
    assert len(rows) > 15
    assert sum(a == b for a, b in rows) < 3


@pytest.fixture
def writings(monkeypatch):
    """Let the writer write given texts in turn."""

    def script(*texts):
        queue = iter(texts)
        monkeypatch.setattr(module, "compose_difference", lambda graphs, rng: next(queue))

    return script


GOOD = (
    "The difference between the two images is that the first image shows a ball, while the "
    "second image shows a cube."
)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (Statement("No template."), "off the template"),
        (Statement(GOOD, (Claim(side=0, kind="absent"),)), "not true of the scene graphs"),
    ],
)
def test_the_last_refusal_is_the_reason(writings, last, reason):
    writings(last, last)
    row = describe(graph(thing()), graph(thing()), config=DifferencesConfig(max_attempts=2))
    assert row.reason == reason
