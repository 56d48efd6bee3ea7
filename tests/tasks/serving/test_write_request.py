"""What a server is asked, to the last field; and what makes two questions the same."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from pairwright.schemas.rows import Turn
from pairwright.schemas.writing import ChatConfig
from pairwright.tasks.serving.chat import Grammar, Question
from pairwright.tasks.serving.write_request import body_of, key_of
from tests.fixtures.asking import question
from tests.fixtures.pictures import picture

RED, BLUE = picture(1, size=(40, 40)), picture(2, size=(40, 40))
CONFIG = ChatConfig(endpoint=("http://127.0.0.1:1/v1",), model="tiny", temperature=0.4, top_p=0.8)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def parts_of(asked: Question) -> list[Any]:
    """Return the texts and the images' bytes of the last message."""
    content = body_of(asked, CONFIG)["messages"][-1]["content"]
    return [
        part["text"]
        if part["type"] == "text"
        else base64.b64decode(part["image_url"]["url"].partition(",")[2])
        for part in content
    ]


def test_a_question_in_words() -> None:
    body = body_of(question("Why?", max_tokens=9, seed=5), CONFIG)
    how = {"max_tokens": 9, "temperature": 0.4, "top_p": 0.8, "seed": 5}
    assert body == {"model": "tiny", "messages": [{"role": "user", "content": "Why?"}], **how}
    assert body_of(question("Why?", temperature=0.0), CONFIG)["temperature"] == 0.0


def test_earlier_turns_come_first() -> None:
    before = (Turn(role="user", text="A?"), Turn(role="assistant", text="B."))
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
)
def test_images_stand_where_the_text_says(text: str, parts: list[Any]) -> None:
    assert parts_of(question(text, images=(RED, BLUE))) == parts


@pytest.mark.parametrize(("text", "count"), [("<image>", 0), ("<image>", 2), ("<image><image>", 1)])
def test_another_number_of_places_is_a_mistake_of_the_program(text: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"{text.count('<image>')} .*{count} images"):
        body_of(question(text, images=(RED,) * count), CONFIG)


BOTH = Grammar(regex="a+", schema=SCHEMA)
HELD = {"name": "answer", "schema": SCHEMA, "strict": True}


@pytest.mark.parametrize(
    ("structured", "grammar", "sent"),
    [
        ("vllm", Grammar(schema=SCHEMA), {"structured_outputs": {"json": SCHEMA}}),
        ("vllm", BOTH, {"structured_outputs": {"regex": "a+"}}),
        ("vllm", None, {}),
        ("json", Grammar(regex="a+"), {}),
        ("json", BOTH, {"response_format": {"type": "json_schema", "json_schema": HELD}}),
        ("none", BOTH, {}),
        ("auto", BOTH, {}),
    ],
)
def test_a_grammar_is_sent_in_the_form_that_the_server_knows(
    structured: str, grammar: Grammar | None, sent: dict[str, Any]
) -> None:
    asked = question("Why?", grammar=grammar)
    config = CONFIG.model_copy(update={"structured_output": structured})
    untouched = (
        {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0} if structured == "vllm" else {}
    )
    assert body_of(asked, config) == body_of(question("Why?"), CONFIG) | untouched | sent


SAME = question(
    "Why?", images=(RED,), before=(Turn(role="user", text="A?"),), grammar=Grammar(regex="a")
)


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"prompt": "other"},
            {"text": "Why"},
            {"images": (BLUE,)},
            {"seed": 2},
            {"max_tokens": 511},
        ),
        *({"before": ()}, {"before": (Turn(role="assistant", text="A?"),)}, {"temperature": 0.5}),
    ],
)
def test_another_question_has_another_key(changes: dict[str, Any]) -> None:
    assert key_of(replace(SAME, **changes), CONFIG) != key_of(SAME, CONFIG)


def test_a_grammar_counts_as_it_is_sent() -> None:
    held = CONFIG.model_copy(update={"structured_output": "vllm"})
    assert key_of(SAME, held) != key_of(SAME, CONFIG)
    assert key_of(SAME, held) != key_of(replace(SAME, grammar=Grammar(regex="b")), held)
    assert key_of(SAME, CONFIG) == key_of(replace(SAME, grammar=None), CONFIG)


def test_where_and_how_fast_it_is_asked_changes_no_key() -> None:
    changes = {
        "endpoint": ("http://elsewhere/v1",),
        "key": "OTHER",
        "max_concurrency": 3,
        "timeout_seconds": 7.0,
    }
    assert key_of(SAME, CONFIG.model_copy(update=changes)) == key_of(SAME, CONFIG)
    assert key_of(replace(SAME, temperature=0.4), CONFIG) == key_of(SAME, CONFIG)
