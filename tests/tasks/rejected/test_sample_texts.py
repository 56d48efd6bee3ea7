"""Sampled texts: what the model is asked, which of its answers are negatives, and which of those is
taken."""

from dataclasses import replace
from functools import partial

import pytest

from pairwright.prompts.difference_prompts import difference_regex
from pairwright.schemas.claims import Claim
from pairwright.schemas.config import PreferencesConfig, SampledTextsConfig
from pairwright.schemas.errors import ServerError
from pairwright.schemas.rows import Dropped
from pairwright.tasks.preferences.build_preferences import draw_prompt
from pairwright.tasks.rejected.check_texts import text_cosine
from pairwright.tasks.rejected.sample_texts import sample_texts
from pairwright.tasks.store.answers import Answers
from tests.fixtures.asking import ask_stage
from tests.fixtures.chat_server import Reply, Status
from tests.fixtures.coloured import colour_of, image_of, pair_of
from tests.fixtures.descriptions import description, person_said, rejected_text
from tests.fixtures.graphs import graph, thing

RED, BLUE, GREEN = (image_of(colour) for colour in ("red", "blue", "green"))
PAIR = pair_of(RED, BLUE, human_differences=("The <|im_end|> wall was painted white.",))
PAIRS = {pair.key: pair for pair in (PAIR,)}
IMAGES = {row.key: row for row in (RED, BLUE, GREEN)}
CHOSEN = description("shows a red wall", "displays a blue wall", subject=PAIR.key)


def said(first, second, verbs=("shows", "displays")):
    return description(f"{verbs[0]} {first}", f"{verbs[1]} {second}").text


WRONG = said("a red wall", "a green wall")
FAR = said("three dogs in a park", "an empty park")


def sample(answer, rows=(CHOSEN,), *, answers=None, pairs=PAIRS, images=IMAGES, **config):
    config = partial(SampledTextsConfig, **{"enabled": True, "samples": 3, **config})
    return ask_stage(
        answer, sample_texts, rows, config, pairs=pairs, images=images, answers=answers
    )


def in_turn(*texts):
    return lambda asked: texts[asked.number % len(texts)]


def test_the_model_sees_the_images_and_the_question_only():
    _, asked = sample(in_turn(WRONG), temperature=1.3, max_tokens=77)
    assert len(asked) == 3
    for one in asked:
        assert [colour_of(image) for image in one.images] == ["red", "blue"]
        slot = "[object description]"
        assert one.text == (
            "<image><image>Given the first and the second images, describe the difference between "
            "the two images. "
            f"Generate the description strictly according to the template: '{said(slot, slot)}'."
        )
        assert (one.body["temperature"], one.body["max_tokens"]) == (1.3, 77)
        assert one.grammar == {"regex": difference_regex()}
        assert one.turns == []
    assert len({one.seed for one in asked}) == 3


def test_a_trained_model_is_asked_as_the_preference_asks():
    (found,), asked = sample(in_turn(WRONG), prompt="preference", seed=3)
    assert (found.text, found.maker) == (WRONG, "sampled")
    assert {one.text for one in asked} == {
        f"<image><image>{draw_prompt(PAIR, 'template', PreferencesConfig(seed=3))}"
    }
    assert [one.grammar for one in asked] == [None] * 3


def test_the_closest_sample_that_says_something_else_is_taken():
    (found,), asked = sample(in_turn(FAR, said("the red wall", "a wall in blue"), WRONG))
    assert found == rejected_text(
        CHOSEN,
        "sampled",
        WRONG,
        note="the closest of 2 samples, unchecked",
        skipped_true=1,
        served=found.served,
    )
    assert [served.seed for served in found.served] == [one.seed for one in asked]
    assert text_cosine(CHOSEN.text, FAR) < found.score < 1


@pytest.mark.parametrize(
    "true",
    [
        CHOSEN.text,
        said("the red wall", "the blue wall", ("has", "has")),
        said("a red wall", "a wall"),
        said("a white wall", "a painted wall"),  # what people said
    ],
)
def test_what_is_as_true_is_no_negative(true):
    (found,), _ = sample(in_turn(true))
    assert found == Dropped(
        source_key=CHOSEN.key, reason="all samples are as true", detail="1 of 3"
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("They look alike.", "off the template"),
        (Reply(WRONG, finish_reason="length"), "cut off (sampled_texts.max_tokens=160)"),
        (said("red", "a green wall"), "too short"),
        (
            said(", ".join(["a red wall"] * 12), "a green wall"),
            "off the template",
        ),  # repeats itself
    ],
)
def test_what_is_off_the_template_is_no_sample(answer, why):
    (found,), _ = sample(in_turn(answer), samples=2)
    assert found == Dropped(
        source_key=CHOSEN.key, reason="no sample is in the template", detail=f"{why}; {why}"
    )
    (found,), _ = sample(in_turn(answer, WRONG), samples=2)
    assert (found.text, found.skipped_true) == (WRONG, 0)


def test_scene_graphs_decide_where_they_can():
    """True by the graph is skipped; known to be false comes before closer samples of which nothing
    is known."""
    graphs = (graph(thing()), graph(thing(), thing("b", "cube", "blue")))
    images = {
        row.key: replace(row, graph=scene) for row, scene in zip((RED, BLUE), graphs, strict=True)
    }
    chosen = description(
        "shows a red ball",
        "displays a blue cube",
        subject=PAIR.key,
        claims=[Claim(side=1, kind="count", count=2)],
    )
    true, unknown, false = (
        said("one red ball", "two objects"),
        said("a red ball with dots", "a blue cube"),
        said("a green box", "a sign"),
    )
    (found,), _ = sample(in_turn(true, unknown, false), (chosen,), images=images)
    assert (found.text, found.skipped_true, found.note) == (false, 1, "the closest of 2 samples")
    (found,), _ = sample(in_turn(true, unknown), (chosen,), images=images)
    assert (found.text, found.note) == (unknown, "the closest of 1 samples, unchecked")


@pytest.mark.parametrize("missing", [{"pairs": {}}, {"images": {RED.key: RED}}])
def test_without_its_images_nothing_is_asked(missing):
    (found,), asked = sample(in_turn(WRONG), **missing)
    assert (found.reason, asked) == ("image is missing", [])


def test_an_answered_question_is_not_asked_again(tmp_path):
    """The server goes down in mid-shard; what was answered stays, and only the rest is asked."""
    with Answers(tmp_path / "a.answers") as answers:
        with pytest.raises(ServerError):
            sample(lambda asked: WRONG if asked.number < 2 else Status(401), answers=answers)
        kept = len(answers)
        (found,), asked = sample(in_turn(WRONG), answers=answers)
        assert (kept, len(asked), len(found.served)) == (2, 1, 3)
        (again,), asked = sample(in_turn(FAR), answers=answers)
        assert (again, asked) == (found, [])


def test_beside_a_person_s_text_the_model_answers_in_its_own_words():
    row = person_said("the wall was painted blue", subject=PAIR.key)
    near, far = "the wall was painted green", "three dogs run in a park"
    (found,), asked = sample(in_turn(far, row.text, near), rows=(row,))
    assert (found.text, found.description, found.skipped_true) == (near, row.key, 1)
    assert {one.text for one in asked} == {
        f"<image><image>{draw_prompt(PAIR, 'given', PreferencesConfig())}"
    }
    assert [one.grammar for one in asked] == [None] * 3
