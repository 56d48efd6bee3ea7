"""Sampled texts: what the model is asked, and which of its answers is the negative."""

from dataclasses import replace
from functools import partial

import pytest

from pairwright.prompts.difference_prompts import difference_regex
from pairwright.schemas.claims import Claim
from pairwright.schemas.config import PreferencesConfig, SampledTextsConfig
from pairwright.schemas.rows import Dropped
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.preferences.build_preferences import draw_prompt
from pairwright.tasks.rejected.check_texts import text_cosine
from pairwright.tasks.rejected.sample_texts import sample_blind, sample_texts
from tests.fixtures.asking import ask_stage
from tests.fixtures.chat_server import Reply
from tests.fixtures.coloured import colour_of, image_of, pair_of
from tests.fixtures.descriptions import description, person_said, rejected_text
from tests.fixtures.graphs import graph, thing

RED, BLUE = image_of("red"), image_of("blue")
PAIR = pair_of(RED, BLUE, human_differences=("The <|im_end|> wall was painted white.",))
PAIRS, IMAGES = {PAIR.key: PAIR}, {RED.key: RED, BLUE.key: BLUE}
CHOSEN = description("shows a red wall", "displays a blue wall", subject=PAIR.key)


def text_of(first, second):
    return description(f"shows {first}", f"displays {second}").text


WRONG = text_of("a red wall", "a green wall")
FAR = text_of("three dogs in a park", "an empty park")


def sample(answer, rows=(CHOSEN,), *, pairs=PAIRS, images=IMAGES, **config):
    config = partial(SampledTextsConfig, **{"enabled": True, "samples": 3, **config})
    return ask_stage(answer, sample_texts, rows, config, pairs=pairs, images=images)


def in_turn(*texts):
    return lambda asked: texts[asked.number % len(texts)]


def test_the_model_sees_the_images_and_the_question_only() -> None:
    _, asked = sample(in_turn(WRONG), temperature=1.3, max_tokens=77)
    template = text_of("[object description]", "[object description]")
    assert {question.text for question in asked} == {
        "<image><image>Given the first and the second images, describe the difference between "
        "the two images. "
        f"Generate the description strictly according to the template: '{template}'."
    }
    for question in asked:
        assert [colour_of(image) for image in question.images] == ["red", "blue"]
        assert (question.body["temperature"], question.body["max_tokens"]) == (1.3, 77)
        assert question.grammar == {"regex": difference_regex()}
        assert question.turns == []
    assert len({question.seed for question in asked}) == len(asked) == 3


def test_a_trained_model_is_asked_as_the_preference_asks() -> None:
    (row,), asked = sample(in_turn(WRONG), prompt="preference", seed=3)
    assert (row.text, row.maker) == (WRONG, "sampled")
    prompt = draw_prompt(PAIR, "template", PreferencesConfig(seed=3))
    assert {question.text for question in asked} == {f"<image><image>{prompt}"}
    assert [question.grammar for question in asked] == [None] * 3


def test_the_closest_sample_that_says_something_else_is_taken() -> None:
    (row,), asked = sample(in_turn(FAR, text_of("the red wall", "a wall in blue"), WRONG))
    note = "the closest of 2 samples, unchecked"
    assert row == rejected_text(
        CHOSEN, "sampled", WRONG, note=note, skipped_true=1, served=row.served
    )
    assert [served.seed for served in row.served] == [question.seed for question in asked]
    assert text_cosine(CHOSEN.text, FAR) < row.score < 1


@pytest.mark.parametrize(
    "true",
    [
        pytest.param(CHOSEN.text, id="the chosen text"),
        pytest.param(text_of("a red wall", "a wall"), id="less"),
        pytest.param(text_of("a white wall", "a painted wall"), id="what people said"),
    ],
)
def test_what_is_as_true_is_no_negative(true) -> None:
    (row,), _ = sample(in_turn(true))
    reason = "all samples are as true"
    assert row == Dropped(source_key=CHOSEN.key, reason=reason, detail="1 of 3")


CUT_OFF = "cut off (sampled_texts.max_tokens=160)"
REPEATED = text_of(", ".join(["a red wall"] * 12), "a green wall")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(Reply(WRONG, finish_reason="length"), CUT_OFF, id="cut off"),
        pytest.param(text_of("red", "a green wall"), "too short", id="too short"),
        pytest.param(REPEATED, "repeats itself", id="repeats itself"),
    ],
)
def test_what_is_off_the_template_is_no_sample(answer, why) -> None:
    (row,), _ = sample(in_turn(answer), samples=2)
    reason = "no sample is in the template"
    assert row == Dropped(source_key=CHOSEN.key, reason=reason, detail=f"{why}; {why}")
    (row,), _ = sample(in_turn(answer, WRONG), samples=2)
    assert (row.text, row.skipped_true) == (WRONG, 0)


def test_scene_graphs_decide_where_they_can() -> None:
    """True by the graph is skipped; known to be false comes before unknown."""
    ball, cube = thing(), thing("b", "cube", "blue")
    images = {
        RED.key: replace(RED, graph=graph(ball)),
        BLUE.key: replace(BLUE, graph=graph(ball, cube)),
    }
    halves = ("shows a red ball", "displays a blue cube")
    claims = [Claim(side=1, kind="count", count=2)]
    chosen = description(*halves, subject=PAIR.key, claims=claims)
    true = text_of("one red ball", "two objects")
    unknown = text_of("a red ball with dots", "a blue cube")
    false = text_of("a green box", "a sign")
    (row,), _ = sample(in_turn(true, unknown, false), (chosen,), images=images)
    assert (row.text, row.skipped_true, row.note) == (false, 1, "the closest of 2 samples")
    (row,), _ = sample(in_turn(true, unknown), (chosen,), images=images)
    assert (row.text, row.note) == (unknown, "the closest of 1 samples, unchecked")


@pytest.mark.parametrize("missing", [{"pairs": {}}, {"images": {RED.key: RED}}])
def test_without_its_images_nothing_is_asked(missing) -> None:
    (row,), asked = sample(in_turn(WRONG), **missing)
    assert (row.reason, asked) == ("image is missing", [])


def test_beside_a_person_s_text_the_model_answers_in_its_own_words() -> None:
    chosen = person_said("the wall was painted blue", subject=PAIR.key)
    near, far = "the wall was painted green", "three dogs run in a park"
    (row,), asked = sample(in_turn(far, chosen.text, near), rows=(chosen,))
    assert (row.text, row.description, row.skipped_true) == (near, chosen.key, 1)
    prompt = draw_prompt(PAIR, "given", PreferencesConfig())
    assert {question.text for question in asked} == {f"<image><image>{prompt}"}
    assert [question.grammar for question in asked] == [None] * 3


def sample_hidden(answer, conditions=("blank",), rows=(CHOSEN,), **config):
    config = partial(SampledTextsConfig, **{"blind": conditions, **config})
    return ask_stage(answer, sample_blind, rows, config, pairs=PAIRS, images=IMAGES)


def test_a_blind_model_is_asked_the_same_and_shown_nothing() -> None:
    """Blank images are as large as the pair's, and grey; the record says how they were hidden."""
    (row,), asked = sample_hidden(in_turn(WRONG))
    _, seeing = sample(in_turn(WRONG), samples=1)
    assert asked[0].text == seeing[0].text
    assert asked[0].seed != seeing[0].seed
    for shown in asked[0].images:
        pixels = decode_rgb(shown)
        assert pixels.shape == decode_rgb(RED.image).shape
        assert set(pixels.flatten().tolist()) == {127}
    note = "images blank, the closest of 1 samples, unchecked"
    assert (row.maker, row.note, row.text) == ("blind", note, WRONG)
    assert len(row.served) == len(asked) == 1


def test_each_condition_is_asked_and_the_note_names_that_of_the_text() -> None:
    conditions = ("blank", "exchanged", "blank")
    (row,), asked = sample_hidden(in_turn(FAR, WRONG), conditions)
    assert [[colour_of(image) for image in question.images] for question in asked][1] == [
        "blue",
        "red",
    ]
    assert len(asked) == 2
    assert row.note == "images exchanged, the closest of 2 samples, unchecked"


def test_a_blind_answer_that_is_true_is_no_negative() -> None:
    (row,), _ = sample_hidden(in_turn(CHOSEN.text))
    assert row.reason == "all samples are as true"
