"""Comparisons: true statements on the six axes, the published layout and turns, retrieval only
where it is clear."""

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairwright.prompts import load
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

CONFIG = ComparisonsConfig()
BALL, CUBE = thing("a"), thing("b", "cube", "green", column="right")


def compare(*both, config=CONFIG, texts=("first", "second")):
    rows, images = rows_of([both])
    return next(
        iter(compare_pairs(rows, config, images=images, captions=captions(rows[0], *texts)))
    )


def captions(row, *texts):
    both = zip((row.first, row.second), texts, strict=True)
    return {key: row_of(CaptionRow, source=key, text=text) for key, text in both}


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_every_comparison_is_true_and_readable(both, seed):
    written = compose_comparison(both, Random(seed))
    if written is None:
        return
    assert all_hold(written.claims, both), written.text
    read = read_comparison(written.text)
    assert isinstance(read, Comparison), written.text
    for text in read.commonalities:
        assert all(phrase.true_of(scene) for scene in both for phrase in read_phrases(text)), text
    named = [
        item.axes for item in read.differences if not item.text.startswith("Light and viewpoint: ")
    ]
    assert all(len(axes) == 1 for axes in named), written.text
    assert sorted(named, key=lambda axes: AXES.index(axes[0])) == named


@PROPERTY
@given(pairs, st.integers(0, 999))
def test_sentences_about_one_image_are_true_of_it(both, seed):
    """Read "In Image 1, …" and "Image 1 shows …, while Image 2 …" clause by clause against that
    image's graph."""
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
    row = compare(
        graph(BALL, CUBE), graph(BALL, changes=(SceneChange(type="disappearance", object_id="b"),))
    )
    assert re.match(
        r"Commonalities:( |\n1\. ).+\n\nDifferences:\n1\. Object types: ", row.text, re.DOTALL
    )
    assert [turn.role for turn in row.conversation[:2]] == ["user", "assistant"]
    assert row.conversation[0].text == load("compare_images").render()
    assert row.conversation[1].text == row.text
    assert row.axes == ("object types", "counts", "locations", "relative positions")
    assert len(row.differences) == 4
    assert "green metal cube" in row.differences[0]
    assert row.key == row.source_key == row.subject


@pytest.mark.parametrize(
    ("kind", "after", "axis"),
    [
        ("colour", thing("a", "car", "blue", facing="left"), "attributes"),
        ("orientation", thing("a", "car", "red", facing="right"), "actions"),
        ("substitution", thing("a", "duck", "red", facing="left"), "object types"),
        ("material", thing("a", "car", "red", "rubber", facing="left"), "attributes"),
        ("move", thing("a", "car", "red", facing="left", column="centre"), "locations"),
    ],
)
def test_axes_follow_the_change(kind, after, axis):
    first = graph(thing("a", "car", "red", facing="left"), CUBE)
    row = compare(first, graph(after, CUBE, changes=(SceneChange(type=kind, object_id="a"),)))
    assert axis in row.axes
    assert "counts" not in row.axes


def test_no_change_says_so():
    row = compare(
        graph(BALL, CUBE),
        graph(BALL, CUBE, light=LIGHTS[1], changes=(SceneChange(type="illumination"),)),
    )
    assert row.axes == (*AXES[:5], "")
    assert "same scene" in row.text or "scene is the same" in row.text
    assert LIGHTS[1] in row.differences[-1]
    assert LIGHTS[1] not in " ".join(row.commonalities)


def test_a_summary_of_one_world_says_all_or_is_dropped():
    shapes = ("ball", "cone", "mug")
    before = [thing(name, shape) for name, shape in zip("xyz", shapes, strict=True)]
    after = [one.model_copy(update={"colour": "blue"}) for one in before]
    changes = tuple(SceneChange(type="colour", object_id=one.id) for one in before)
    row = compare(graph(*before), graph(*after, changes=changes))
    words = dict(zip(row.axes, row.differences, strict=True))["attributes"]
    assert all(f"red metal {shape}" in words and f"blue metal {shape}" in words for shape in shapes)
    near = thing("w", "duck", column="centre", clear=False)
    moved = graph(*after, near, changes=(*changes, SceneChange(type="move", object_id="w")))
    assert (
        compare(graph(*before, thing("w", "duck")), moved).reason == "no words for the difference"
    )


def position(row):
    return dict(zip(row.axes, row.differences, strict=True)).get("relative positions", "")


def test_a_reversed_relation_is_a_difference():
    mug, before = thing("c", "mug", column="centre"), thing("d", "car", facing="left")
    after = thing("d", "car", facing="right")
    changes = (SceneChange(type="orientation", object_id="d"), SceneChange(type="viewpoint"))
    second = graph(
        CUBE.model_copy(update={"box": (20, 50, 50, 80), "column": "left"}),
        mug,
        after,
        changes=changes,
    )
    words = position(compare(graph(CUBE, mug, before), second))
    assert {"green metal cube", "red metal mug", "Image 1"} == {
        part
        for part in ("green metal cube", "red metal mug", "red metal car", "Image 1")
        if part in words
    }
    assert "to the left" in words
    assert "to the right" in words
    assert "Image 2" in words
    still = graph(CUBE, mug, after, changes=changes)
    assert position(compare(graph(CUBE, mug, before), still)) == ""


def test_retrieval_question_and_answer():
    texts = ("a red metal ball and a green metal cube", "a red metal ball and a blue glass mug")
    scenes = graph(BALL, CUBE), graph(BALL, thing("c", "mug", "blue", "glass"), world="v")
    found = [
        compare(*scenes, texts=texts, config=ComparisonsConfig(seed=seed)) for seed in range(30)
    ]
    for row in found:
        question, answer = row.conversation[2:]
        assert (question.role, answer.role) == ("user", "assistant")
        assert question.text == load("retrieve_image").render(
            caption=texts["AB".index(answer.text)]
        )
    assert 5 < sum(row.conversation[3].text == "A" for row in found) < 25


@pytest.mark.parametrize(
    ("texts", "asked"),
    [
        (("a red metal ball alone", "a red metal ball"), set()),
        (("a ball and a green metal cube", "a red metal ball"), {"A"}),
        (("a place with two objects", "one object only"), {"A", "B"}),
        (("", "one object"), set()),
    ],
    ids=["both true", "first false of the second", "numbers", "no caption"],
)
def test_only_captions_that_are_false_of_the_other_are_asked(texts, asked):
    second = graph(BALL, changes=(SceneChange(type="disappearance", object_id="b"),))
    rows = [
        compare(graph(BALL, CUBE), second, texts=texts, config=ComparisonsConfig(seed=n))
        for n in range(20)
    ]
    assert {turn.text for row in rows for turn in row.conversation[3:]} == asked


def test_missing_graphs_are_a_reason():
    images = {"a": image_row("a", graph(BALL)), "b": image_row("b")}
    (found,) = compare_pairs([pair_row("a", "b")], CONFIG, images=images, captions={})
    assert found == Dropped(source_key=found.source_key, reason="no scene graph", detail="b")


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
    ("captions", "sides"),
    [
        (("A cat sits on a mat.", "A dog sits on a mat."), [0, 1]),
        (("A cat sits on a mat.", "A cat sits on a red mat."), [1]),
        (("Two cats.", "A cat."), [0]),
        (("A cat is on the mat.", "Cats are on mats."), []),
        (("A mat without a cat.", "A mat and a cat."), [0]),
        (("The picture shows a cat.", "A cat."), [0]),
    ],
)
def test_a_caption_is_asked_about_if_it_has_words_of_its_own(captions, sides):
    assert sides_of_own_words(captions) == sides
