"""Comparisons: true on six axes, in the published layout; retrieval only where it is clear."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.prompts import load_prompt
from pairwright.schemas.claims import all_hold, is_no_change
from pairwright.schemas.config import ComparisonsConfig
from pairwright.schemas.rows import CaptionRow, Dropped
from pairwright.schemas.scene import SceneChange
from pairwright.tasks.captioning.compare_pairs import (
    compare_pairs,
    nearly_match,
    sides_of_own_words,
)
from pairwright.tasks.captioning.compose_comparison import compose_comparison
from pairwright.tasks.texts.comparisons import AXES, Comparison, read_comparison
from tests.fixtures.graphs import (
    LIGHTS,
    PROPERTY,
    graph,
    image_row,
    pair_row,
    pairs,
    rows_of,
    thing,
)
from tests.fixtures.reader import read_phrases
from tests.fixtures.rows import row_of

BALL, CUBE = thing("a"), thing("b", "cube", "green", column="right")
GONE = (SceneChange(type="disappearance", object_id="b"),)


def compare(*both, texts=("first", "second"), **settings):
    rows, images = rows_of([both])
    keys = zip((rows[0].first, rows[0].second), texts, strict=True)
    captions = {key: row_of(CaptionRow, source=key, text=text) for key, text in keys}
    config = ComparisonsConfig(**settings)
    (row,) = compare_pairs(rows, config, images=images, captions=captions)
    return row


def difference(row, axis):
    return dict(zip(row.axes, row.differences, strict=True)).get(axis, "")


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_comparison_is_true_and_readable(both, seed):
    written = compose_comparison(both, Random(seed))
    if written is None:
        return
    assert all_hold(written.claims, both), written.text
    comparison = read_comparison(written.text)
    assert isinstance(comparison, Comparison), written.text
    for text in comparison.commonalities:
        assert all(phrase.true_of(scene) for scene in both for phrase in read_phrases(text)), text
    light = "Light and viewpoint: "
    items = [item for item in comparison.differences if not item.text.startswith(light)]
    assert all(len(item.axes) == 1 for item in items), written.text
    places = [AXES.index(item.axes[0]) for item in items]
    assert places == sorted(places)


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_sentences_about_one_image_are_true_of_it(both, seed):
    """Read "In Image 1, …" and "Image 1 shows …, while Image 2 …" clause by clause."""
    written = compose_comparison(both, Random(seed))
    if written is None or is_no_change(both):
        return
    for sentence in re.split(r"(?<=\.)\s", written.text.split("Differences:")[1]):
        numbers = re.findall(r"Image (\d)", sentence)
        if len(set(numbers)) == 1 and not sentence.startswith("Only"):
            for phrase in read_phrases(sentence):
                assert phrase.true_of(both[int(numbers[0]) - 1]), sentence
        elif match := re.match(r"Image 1 shows (.+), while Image 2 shows (.+)\.", sentence):
            for scene, part in zip(both, match.groups(), strict=True):
                assert all(phrase.true_of(scene) for phrase in read_phrases(part)), sentence


def test_layout_and_first_turn():
    row = compare(graph(BALL, CUBE), graph(BALL, changes=GONE))
    layout = r"Commonalities:( |\n1\. ).+\n\nDifferences:\n1\. Object types: "
    assert re.match(layout, row.text, re.DOTALL)
    turns = [(turn.role, turn.text) for turn in row.conversation[:2]]
    assert turns == [("user", load_prompt("compare_images").render()), ("assistant", row.text)]
    assert row.axes == ("object types", "locations", "relative positions")
    assert len(row.differences) == 3
    assert "green metal cube" in row.differences[0]
    assert row.key == row.source_key == row.subject


CAR = {"name": "a", "shape": "car", "colour": "red", "facing": "left"}


@pytest.mark.parametrize(
    ("kind", "after", "axis"),
    [
        ("colour", {"colour": "blue"}, "attributes"),
        ("orientation", {"facing": "right"}, "actions"),
        ("substitution", {"shape": "duck"}, "object types"),
        ("material", {"material": "rubber"}, "attributes"),
        ("move", {"column": "centre"}, "locations"),
    ],
)
def test_axes_follow_the_change(kind, after, axis):
    changes = (SceneChange(type=kind, object_id="a"),)
    second = graph(thing(**CAR | after), CUBE, changes=changes)
    row = compare(graph(thing(**CAR), CUBE), second)
    assert axis in row.axes
    assert "counts" not in row.axes


def test_no_change_says_so():
    changes = (SceneChange(type="illumination"),)
    row = compare(graph(BALL, CUBE), graph(BALL, CUBE, light=LIGHTS[1], changes=changes))
    assert row.axes == (*AXES[:5], "")
    assert "same scene" in row.text or "scene is the same" in row.text
    assert LIGHTS[1] in row.differences[-1]
    assert LIGHTS[1] not in " ".join(row.commonalities)


def test_a_summary_of_one_world_says_all_or_is_dropped():
    before = [thing("x", "ball"), thing("y", "cone"), thing("z", "mug")]
    after = [each.model_copy(update={"colour": "blue"}) for each in before]
    changes = tuple(SceneChange(type="colour", object_id=each.id) for each in before)
    attributes = difference(compare(graph(*before), graph(*after, changes=changes)), "attributes")
    for shape in ("ball", "cone", "mug"):
        assert f"red metal {shape}" in attributes
        assert f"blue metal {shape}" in attributes
    near = thing("w", "duck", column="centre", clear=False)
    moved = graph(*after, near, changes=(*changes, SceneChange(type="move", object_id="w")))
    row = compare(graph(*before, thing("w", "duck")), moved)
    assert row.reason == "no words for the difference"


def test_a_reversed_relation_is_a_difference():
    mug, before = thing("c", "mug", column="centre"), thing("d", "car", facing="left")
    after = thing("d", "car", facing="right")
    changes = (SceneChange(type="orientation", object_id="d"), SceneChange(type="viewpoint"))
    moved = CUBE.model_copy(update={"box": (20, 50, 50, 80), "column": "left"})
    first = graph(CUBE, mug, before)
    turned = compare(first, graph(moved, mug, after, changes=changes))
    text = difference(turned, "relative positions")
    for part in ("green metal cube", "red metal mug", "Image 1", "Image 2"):
        assert part in text
    assert "to the left" in text
    assert "to the right" in text
    assert "red metal car" not in text
    still = compare(first, graph(CUBE, mug, after, changes=changes))
    assert difference(still, "relative positions") == ""


def test_retrieval_question_and_answer():
    texts = ("a red metal ball and a green metal cube", "a red metal ball and a blue glass mug")
    scenes = graph(BALL, CUBE), graph(BALL, thing("c", "mug", "blue", "glass"), world="v")
    answers = []
    for seed in range(30):
        question, answer = compare(*scenes, texts=texts, seed=seed).conversation[2:]
        assert (question.role, answer.role) == ("user", "assistant")
        caption = texts["AB".index(answer.text)]
        assert question.text == load_prompt("retrieve_image").render(caption=caption)
        answers.append(answer.text)
    assert 5 < answers.count("A") < 25


@pytest.mark.parametrize(
    ("texts", "answers"),
    [
        pytest.param(("a red metal ball alone", "a red metal ball"), set(), id="both true"),
        pytest.param(("a ball and a green metal cube", "a red metal ball"), {"A"}, id="one true"),
        pytest.param(("a place with two objects", "one object only"), {"A", "B"}, id="numbers"),
        pytest.param(("", "one object"), set(), id="no caption"),
    ],
)
def test_only_captions_that_are_false_of_the_other_are_asked(texts, answers):
    second = graph(BALL, changes=GONE)
    rows = [compare(graph(BALL, CUBE), second, texts=texts, seed=seed) for seed in range(20)]
    assert {turn.text for row in rows for turn in row.conversation[3:]} == answers


def test_missing_graphs_are_a_reason():
    images = {"a": image_row("a", graph(BALL)), "b": image_row("b")}
    pair = pair_row("a", "b")
    (row,) = compare_pairs([pair], ComparisonsConfig(), images=images, captions={})
    assert row == Dropped(source_key=pair.key, reason="no scene graph", detail="b")


@pytest.mark.parametrize(
    ("captions", "most", "match"),
    [
        (("A red ball.", "a red  ball"), 1.0, True),
        (("A red ball.", "A ball red."), 1.0, False),
        (("A red ball on a table.", "A blue ball on a table."), 0.9, False),
        (("A red ball on a table.", "A blue ball on a table."), 0.7, True),
        (("", "A ball."), 1.0, True),
        (("…", "A ball."), 1.0, True),
    ],
)
def test_captions_that_nearly_match(captions, most, match):
    assert nearly_match(captions, most) is match
    assert nearly_match(captions[::-1], most) is match


@pytest.mark.parametrize(
    ("first", "second", "sides"),
    [
        ("A cat sits on a mat.", "A dog sits on a mat.", [0, 1]),
        ("A cat sits on a mat.", "A cat sits on a red mat.", [1]),
        ("Two cats.", "A cat.", [0]),
        ("A cat is on the mat.", "Cats are on mats.", []),
        ("A mat without a cat.", "A mat and a cat.", [0]),
        ("The picture shows a cat.", "A cat.", [0]),
    ],
)
def test_a_caption_is_asked_about_if_it_has_words_of_its_own(first, second, sides):
    assert sides_of_own_words((first, second)) == sides
