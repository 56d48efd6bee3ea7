"""Implicit-change descriptions: true by claims and by an independent reading, in the template, telling sides apart."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.prompts import difference_verbs
from pairwright.schemas.claims import CLAIMS, Claim, all_hold, is_no_change
from pairwright.schemas.config import DifferencesConfig
from pairwright.schemas.rows import DifferenceRow
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning import describe_differences as module
from pairwright.tasks.captioning.compose_difference import compose_difference
from pairwright.tasks.captioning.describe_differences import describe_differences
from pairwright.tasks.captioning.statements import Statement
from pairwright.tasks.texts.differences import Difference, read_composed
from tests.fixtures.graphs import PROPERTY, graph, image_row, pair_row, pairs, random_pair, rows_of, thing
from tests.fixtures.reader import read_phrases

CONFIG = DifferencesConfig()


def describe(*both, config=CONFIG):
    rows, images = rows_of([both])
    return next(iter(describe_differences(rows, config, images=images, captions={})))


def change(kind, name="a"):
    return (SceneChange(type=kind, object_id=name),)


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_descriptions_are_true_and_in_the_template(both, seed):
    written = compose_difference(both, Random(seed))
    if written is None:
        return
    assert all_hold(written.claims, both), written.text
    read = read_composed(written.text, difference_verbs())
    assert written.text.startswith("The difference between") is not is_no_change(both)
    assert isinstance(read, Difference), written.text
    for half, scene in zip((read.first_half, read.second_half), both, strict=True):
        for phrase in read_phrases(half):
            assert phrase.true_of(scene), written.text


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_descriptions_of_changes_are_false_with_the_images_exchanged(both, seed):
    written = compose_difference(both, Random(seed))
    if written is not None and not is_no_change(both):
        assert not all_hold(written.claims, (both[1], both[0])), written.text


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_no_change_is_said_exactly_where_it_is_so(both, seed):
    written = compose_difference(both, Random(seed))
    if written is not None:
        said = any(claim.kind == "no_change" for claim in written.claims)
        assert said is is_no_change(both)
        words = ("unchanged", "no change", "nothing", "no object", "not one", "same scene")
        assert said is any(part in written.text.lower() for part in words)


CASES = [
    ("colour", thing(colour="red"), thing(colour="blue"), "red metal ball", "blue metal ball"),
    ("size", thing(size="small"), thing(size="large"), "a small red metal ball", "a large red metal ball"),
    ("orientation", thing(shape="car", facing="left"), thing(shape="car", facing="back"), "facing left", "facing away"),
    ("text", thing(shape="sign", text="CAFE"), thing(shape="sign", text="OPEN"), "reading 'CAFE'", "reading 'OPEN'"),
    ("pose", thing(pose="with its lid open"), thing(pose="with its lid closed"), "lid open", "lid closed"),
    ("substitution", thing(), thing(shape="cone", material="rubber"), "red metal ball", "red rubber cone"),
    ("disappearance", thing(), None, "a red metal ball", "red metal ball"),
    ("addition", None, thing(shape="duck"), "red metal duck", "a red metal duck"),
]


@pytest.mark.parametrize(("kind", "before", "after", "first", "second"), CASES, ids=[case[0] for case in CASES])
def test_the_changed_object_is_named(kind, before, after, first, second):
    rest = (thing("b", "cube", "green", column="right"), thing("c", "mug", "white", "ceramic", column="centre"))
    graphs = [
        graph(*(a for a in (one, *rest) if a), changes=changes)
        for one, changes in ((before, ()), (after, change(kind)))
    ]
    row = describe(*graphs)
    lowered = (row.first_half.replace(" small ", " ") if kind != "size" else row.first_half, row.second_half)
    assert first.removeprefix("a ") in lowered[0]
    assert second.removeprefix("a ") in lowered[1] or second.split(" ", 2)[-1] in lowered[1]
    assert "green" not in row.text
    assert "mug" not in row.text


def test_a_turned_camera_is_no_change_of_the_car():
    """The viewpoint makes the car face elsewhere and hides the cube; only the ball was changed."""
    first = graph(thing(), thing("car", "car", "blue", facing="left"), thing("cube", "cube", "green"))
    changes = (*change("colour"), SceneChange(type="viewpoint"))
    second = graph(thing(colour="black"), thing("car", "car", "blue", facing="front"), changes=changes)
    row = describe(first, second)
    assert "red metal ball" in row.first_half
    assert "black metal ball" in row.second_half
    assert "car" not in row.text
    assert "cube" not in row.text


def test_row_and_claims():
    row = describe(graph(thing()), graph(thing(colour="blue"), changes=change("colour")))
    assert isinstance(row, DifferenceRow)
    assert row.key == row.source_key == row.subject
    assert (row.attempts, row.finish_reason, row.model, row.no_change) == (1, "stop", "scene-graph", False)
    assert row.text == (
        f"The difference between the two images is that the first image {row.verbs[0]} {row.first_half}, "
        f"while the second image {row.verbs[1]} {row.second_half}."
    )
    assert row.verbs[0] != row.verbs[1]
    sides = {claim.side for claim in CLAIMS.validate_json(row.claims)}
    assert sides == {0, 1}


def test_descriptions_do_not_depend_on_their_neighbours():
    rows, images = rows_of([random_pair(n) for n in range(30)])
    forward = list(describe_differences(rows, CONFIG, images=images, captions={}))
    backward = list(describe_differences(rows[::-1], CONFIG, images=images, captions={}))
    assert forward == backward[::-1]
    again = list(describe_differences(rows, DifferencesConfig(seed=1), images=images, captions={}))
    assert sum(a == b for a, b in zip(forward, again, strict=True)) < 3


def test_missing_graphs_and_images_are_reasons():
    images = {"a": image_row("a", graph(thing())), "b": image_row("b")}
    found = describe_differences([pair_row("a", "b"), pair_row("a", "c")], CONFIG, images=images, captions={})
    assert [row.reason for row in found] == ["no scene graph", "image is missing"]


@pytest.fixture
def writings(monkeypatch):
    """Let the writer write given texts in turn."""

    def script(*texts):
        queue = iter(texts)
        monkeypatch.setattr(module, "compose_difference", lambda graphs, rng: next(queue))

    return script


GOOD = (
    "The difference between the two images is that the first image shows a ball, while the second image shows a cube."
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
