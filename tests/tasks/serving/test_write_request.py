"""What a server is asked, to the last field; and what makes two questions the same."""

import base64
from dataclasses import replace

import pytest

from pairwright.schemas.rows import Turn
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving.chat import Grammar
from pairwright.tasks.serving.write_request import body_of, key_of
from tests.fixtures.asking import question
from tests.fixtures.pictures import picture

RED, BLUE = picture(1, size=(40, 40)), picture(2, size=(40, 40))
CONFIG = ChatConfig(endpoint=("http://127.0.0.1:1/v1",), model="tiny", temperature=0.4, top_p=0.8)
USER = Turn(role="user", text="A?")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def config_with(**changes):
    return CONFIG.model_copy(update=changes)


def read_part(part):
    if part["type"] == "text":
        return part["text"]
    return base64.b64decode(part["image_url"]["url"].partition(",")[2])


def test_a_question_in_words_after_earlier_turns() -> None:
    body = body_of(question("Why?", max_tokens=9, seed=5), CONFIG)
    how = {"max_tokens": 9, "temperature": 0.4, "top_p": 0.8, "seed": 5}
    assert body == {"model": "tiny", "messages": [{"role": "user", "content": "Why?"}], **how}
    assert body_of(question("Why?", temperature=0.0), CONFIG)["temperature"] == 0.0
    before = (USER, Turn(role="assistant", text="B."))
    assert body_of(question("C?", before=before), CONFIG)["messages"] == [
        {"role": "user", "content": "A?"},
        {"role": "assistant", "content": "B."},
        {"role": "user", "content": "C?"},
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Describe.", [RED, BLUE, "Describe."]),
        ("First: <image> second: <image>!", ["First: ", RED, " second: ", BLUE, "!"]),
        ("<image><image>", [RED, BLUE]),
        ("", [RED, BLUE]),
    ],
    ids=["in front", "where the text says", "no words", "no text"],
)
def test_places_of_images(text, parts) -> None:
    body = body_of(question(text, images=(RED, BLUE)), CONFIG)
    assert [read_part(part) for part in body["messages"][-1]["content"]] == parts


@pytest.mark.parametrize(("text", "count"), [("<image>", 0), ("<image>", 2), ("<image><image>", 1)])
def test_another_number_of_places_is_a_mistake_of_the_program(text, count) -> None:
    with pytest.raises(ValueError, match=f"{text.count('<image>')} .*{count} images"):
        body_of(question(text, images=(RED,) * count), CONFIG)


BOTH = Grammar(regex="a+", schema=SCHEMA)
STRICT = {"name": "answer", "schema": SCHEMA, "strict": True}
PLAIN_SAMPLING = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


@pytest.mark.parametrize(
    ("structured", "grammar", "sent"),
    [
        ("vllm", Grammar(schema=SCHEMA), PLAIN_SAMPLING | {"structured_outputs": {"json": SCHEMA}}),
        ("vllm", BOTH, PLAIN_SAMPLING | {"structured_outputs": {"regex": "a+"}}),
        ("vllm", None, PLAIN_SAMPLING),
        ("json", Grammar(regex="a+"), {}),
        ("json", BOTH, {"response_format": {"type": "json_schema", "json_schema": STRICT}}),
        ("none", BOTH, {}),
        ("auto", BOTH, {}),
    ],
)
def test_a_grammar_is_sent_in_the_form_that_the_server_knows(structured, grammar, sent) -> None:
    body = body_of(question("Why?", grammar=grammar), config_with(structured_output=structured))
    assert body == body_of(question("Why?"), CONFIG) | sent


SAME = question("Why?", images=(RED,), before=(USER,), grammar=Grammar(regex="a"))


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": "other"},
        {"images": (BLUE,)},
        {"seed": 2},
        {"max_tokens": 511},
        {"before": ()},
        {"before": (Turn(role="assistant", text="A?"),)},
        {"temperature": 0.5},
    ],
    ids=str,
)
def test_another_question_has_another_key(change) -> None:
    assert key_of(replace(SAME, **change), CONFIG) != key_of(SAME, CONFIG)


def test_a_grammar_counts_as_it_is_sent() -> None:
    vllm = config_with(structured_output="vllm")
    assert key_of(SAME, vllm) != key_of(SAME, CONFIG)
    assert key_of(SAME, vllm) != key_of(replace(SAME, grammar=Grammar(regex="b")), vllm)
    assert key_of(SAME, CONFIG) == key_of(replace(SAME, grammar=None), CONFIG)


def test_where_and_how_fast_it_is_asked_changes_no_key() -> None:
    elsewhere = config_with(endpoint=("http://elsewhere/v1",), key="OTHER", timeout_seconds=7.0)
    assert key_of(SAME, elsewhere) == key_of(SAME, CONFIG)
    assert key_of(SAME, config_with(max_concurrency=3)) == key_of(SAME, CONFIG)
    assert key_of(replace(SAME, temperature=0.4), CONFIG) == key_of(SAME, CONFIG)
