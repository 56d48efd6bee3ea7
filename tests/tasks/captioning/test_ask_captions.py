"""Captions from a served model: what it is shown, what is taken of its answers, what is kept."""

import json
from dataclasses import replace
from functools import partial

import pytest

from pairwright.prompts import load_prompt
from pairwright.schemas.config import CaptionsConfig
from pairwright.tasks.captioning.describe_images import describe_images
from tests.fixtures.asking import ask_stage, assert_seeds
from tests.fixtures.chat_server import IMAGE, Reply, Status
from tests.fixtures.coloured import BLUE, RED, colour_of, colours_said

PROMPTS = ["describe_image", "split_sentences"]


def sentences_of(colour):
    return (
        f"The wall is painted {colour} from top to bottom.",
        f"Nothing else than this {colour} paint can be seen on it.",
    )


def facts_of(colour):
    return [
        f"The wall is painted {colour} from top to bottom.",
        f"Nothing else than {colour} paint can be seen on the wall.",
    ]


TEXT, FACTS = " ".join(sentences_of("red")), facts_of("red")


def painter(request):
    """Describe what is seen; split what is read."""
    if request.images:
        return " ".join(sentences_of(colour_of(request.images[0])))
    return json.dumps({"sentences": facts_of(colours_said(request.text)[0])})


def describe(answer, rows, **values):
    config = partial(CaptionsConfig, writer="served", **values)
    return ask_stage(answer, describe_images, rows, config)


def test_each_image_is_described_as_it_is_seen() -> None:
    rows, requests = describe(painter, [RED, BLUE], max_tokens=321)
    for row, image, colour in zip(rows, (RED, BLUE), ("red", "blue"), strict=True):
        assert row.source_key == row.subject == image.key
        assert row.text == " ".join(sentences_of(colour))
        assert row.sentences == sentences_of(colour)
        assert row.model == "tiny"
        [served] = row.served
        served = (served.prompt, served.model, served.revision, served.finish_reason)
        assert served == ("describe_image", "tiny", "r1", "stop")
    for request in requests:
        assert request.text == f"{IMAGE}{load_prompt('describe_image').render()}"
        assert (request.body["max_tokens"], request.grammar, request.turns) == (321, None, [])


def test_a_refused_description_is_asked_for_again_with_another_seed() -> None:
    answers = ["", TEXT[:-9], TEXT]
    [row], requests = describe(lambda request: answers[request.number], [RED])
    assert row.text == TEXT
    assert len(requests) == 3
    assert_seeds(requests, row)
    assert len({request.text for request in requests}) == 1


GERMAN = (
    "Auf dem Tisch liegt eine rote Kugel, daneben steht ein blauer Becher. "
    "Es tut mir leid, mehr zeigt das Bild nicht, und die Wand dahinter bleibt weiss."
)
CHINESE = "照片上有一张木桌，桌子上放着一个红色的球，旁边有一个蓝色的杯子。背景是一面白色的墙。"


@pytest.mark.parametrize(
    ("language", "text"), [("German", GERMAN), ("Chinese", CHINESE)], ids=["German", "Chinese"]
)
def test_a_caption_may_be_asked_for_in_another_language(language, text) -> None:
    [row], [request] = describe(lambda _: text, [RED], language=language)
    assert request.text.endswith(f"no title, no list.\n\nWrite in {language}.")
    assert row.text == text
    [row], _ = describe(lambda _: text, [RED])
    assert row.reason == "another language"


def test_other_checks_hold_in_each_language() -> None:
    for text, reason in (("<|im_end|> ".join(("Ja. ", GERMAN)), "control tokens"), ("", "empty")):
        [row], _ = describe(lambda _, text=text: text, [RED], language="German")
        assert row.reason == reason
    [row], _ = describe(lambda _: CHINESE[:14] + "。", [RED], language="Chinese")
    assert row.reason == "too short (words=12)"


def test_a_caption_that_the_source_gave_is_kept_without_asking() -> None:
    image = replace(RED, captions=("A wall.", "It is a wall of Mr. Red.\nA sign says it."))
    [row], requests = describe(painter, [image])
    assert row.text == "It is a wall of Mr. Red. A sign says it."
    assert row.sentences == ("It is a wall of Mr. Red.", "A sign says it.")
    assert (row.model, row.served, row.key) == ("given", (), RED.key)
    assert requests == []


def test_sentences_are_split_by_the_model() -> None:
    [row], [first, second] = describe(painter, [RED], split="served", max_tokens=100)
    assert row.text == TEXT
    assert row.sentences == tuple(FACTS)
    assert [served.prompt for served in row.served] == PROMPTS
    assert IMAGE not in second.text
    assert f"Here is a description of an image: {TEXT}\n" in second.text
    assert second.grammar["json"]["properties"]["sentences"]["items"] == {"type": "string"}
    assert (second.body["temperature"], second.body["max_tokens"]) == (0.2, 200)
    assert second.seed != first.seed


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(json.dumps({"sentences": ["A bicycle stands.", *FACTS]}), id="added"),
        pytest.param(Reply(json.dumps({"sentences": FACTS}), finish_reason="length"), id="length"),
        pytest.param(Status(400, "the prompt is too long"), id="refused"),
    ],
)
def test_where_the_models_split_will_not_do_the_rules_split(answer) -> None:
    [row], requests = describe(
        lambda request: TEXT if request.images else answer, [RED], split="served"
    )
    assert row.sentences == sentences_of("red")
    assert [served.prompt for served in row.served] == PROMPTS[:1]
    assert len(requests) == 2
