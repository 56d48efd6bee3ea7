"""Captions from a served model: what it is shown and asked, what is taken of its answers, and what
is kept."""

import json
from dataclasses import replace
from functools import partial

import pytest

from pairwright.prompts import load
from pairwright.schemas.config import CaptionsConfig
from pairwright.tasks.captioning.describe_images import describe_images
from tests.fixtures.asking import ask_stage
from tests.fixtures.chat_server import IMAGE, Reply, Status
from tests.fixtures.coloured import colour_of, image_of

RED, BLUE = image_of("red"), image_of("blue")
DESCRIBE = load("describe_image").render()


def words_for(colour):
    return (
        f"The wall is painted {colour} from top to bottom. Nothing else than this {colour} "
        f"paint can be seen on it."
    )


def facts_of(colour):
    return [
        f"The wall is painted {colour} from top to bottom.",
        f"Nothing else than {colour} paint can be seen on the wall.",
    ]


def painter(asked):
    """Describe what is seen; split what is read."""
    if IMAGE in asked.text:
        [image] = asked.images
        return words_for(colour_of(image))
    colour = next(one for one in ("red", "blue", "green") if one in asked.text)
    return json.dumps({"sentences": facts_of(colour)})


def describe(answer, rows, **values):
    return ask_stage(
        answer, describe_images, rows, partial(CaptionsConfig, writer="served", **values)
    )


def test_each_image_is_described_as_it_is_seen():
    found, _ = describe(painter, [RED, BLUE])
    assert [row.text for row in found] == [words_for("red"), words_for("blue")]
    assert (
        [row.source_key for row in found] == [row.subject for row in found] == [RED.key, BLUE.key]
    )
    assert found[0].sentences == tuple(
        f"{part}." for part in words_for("red").removesuffix(".").split(". ")
    )
    assert {row.model for row in found} == {"tiny"}
    for row in found:
        [served] = row.served
        assert (served.prompt, served.model, served.revision, served.finish_reason) == (
            "describe_image",
            "tiny",
            "r1",
            "stop",
        )
    _, [asked] = describe(painter, [RED], max_tokens=321)
    assert asked.text == f"<image>{DESCRIBE}"
    assert asked.body["max_tokens"] == 321
    assert asked.grammar is None
    assert asked.turns == []


def test_a_refused_description_is_asked_for_again_with_another_seed():
    [row], requests = describe(
        lambda asked: ("", words_for("red")[:-9], painter(asked))[min(asked.number, 2)], [RED]
    )
    assert row.text == words_for("red")
    seeds = [asked.seed for asked in requests]
    assert len(set(seeds)) == 3
    assert [served.seed for served in row.served] == seeds
    assert len({asked.text for asked in requests}) == 1


def test_a_caption_that_the_source_gave_is_kept_without_asking():
    given = replace(RED, captions=("A wall.", "It is a wall of Mr. Red.\nA sign says it."))
    [row], requests = describe(painter, [given])
    assert (row.text, row.model, row.served) == (
        "It is a wall of Mr. Red. A sign says it.",
        "given",
        (),
    )
    assert row.sentences == ("It is a wall of Mr. Red.", "A sign says it.")
    assert row.key == RED.key
    assert requests == []


def test_sentences_are_split_by_the_model():
    [row], requests = describe(painter, [RED], split="served", max_tokens=100)
    assert row.text == words_for("red")
    assert row.sentences == tuple(facts_of("red"))
    assert [served.prompt for served in row.served] == ["describe_image", "split_sentences"]
    asked = requests[1]
    assert IMAGE not in asked.text
    assert f"Here is a description of an image: {words_for('red')}\n" in asked.text
    assert asked.grammar["json"]["properties"]["sentences"]["items"] == {"type": "string"}
    assert asked.body["temperature"] == 0.2
    assert asked.body["max_tokens"] == 200
    assert asked.seed != requests[0].seed


@pytest.mark.parametrize(
    "answer",
    [
        "The wall is red.",
        json.dumps({"sentences": ["A green bicycle stands there.", *facts_of("red")]}),
        json.dumps({"sentences": facts_of("red")[:1]}),
        Reply(json.dumps({"sentences": facts_of("red")}), finish_reason="length"),
        Status(400, "the prompt is too long"),
    ],
    ids=["prose", "added", "lost", "length", "refused"],
)
def test_where_the_models_split_will_not_do_the_rules_split(answer):
    [row], requests = describe(
        lambda asked: painter(asked) if IMAGE in asked.text else answer, [RED], split="served"
    )
    assert row.sentences == tuple(
        f"{part}." for part in words_for("red").removesuffix(".").split(". ")
    )
    assert [served.prompt for served in row.served] == ["describe_image"]
    assert len(requests) == 2
