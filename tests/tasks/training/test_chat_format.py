"""Each family's chat format: what is around an answer, and which texts would steer it."""

import re
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoProcessor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Turn
from pairwright.tasks.training.chat_format import ChatFormat, make_messages
from pairwright.tasks.training.freeze_rows import RefusedRowError

CONTROL = {
    "qwen2_vl": (
        "<|im_end|>",
        "<|im_start|>",
        "<|image_pad|>",
        "<|vision_start|>",
        "<|endoftext|>",
    ),
    "llava_onevision": ("<image>", "<video>", "<|im_end|>"),
    "smolvlm": (
        "<image>",
        "<row_1_col_2>",
        "<fake_token_around_image>",
        "<global-img>",
        "<end_of_utterance>",
    ),
    "gemma3": (
        "<bos>",
        "<eos>",
        "<unk>",
        "<start_of_image>",
        "<image_soft_token>",
        "<end_of_turn>",
    ),
}


@pytest.fixture(scope="module")
def processors(checkpoint: Any) -> dict[str, Any]:
    return {name: AutoProcessor.from_pretrained(checkpoint(name)) for name in CONTROL}


@pytest.mark.parametrize(
    ("family", "token"), [(family, token) for family in CONTROL for token in CONTROL[family]]
)
def test_control_tokens_are_found_wherever_they_stand(
    family: str, token: str, processors: dict[str, Any]
) -> None:
    chat = ChatFormat(processors[family])
    for text in (token, f"A red{token}ball.", f"A red ball. {token}"):
        with pytest.raises(RefusedRowError, match=re.escape(token)) as caught:
            chat.check(text, chat.tokenise([text])[text])
        assert caught.value.detail == token


@pytest.mark.parametrize("family", CONTROL)
def test_texts_that_only_look_like_it_pass(family: str, processors: dict[str, Any]) -> None:
    texts = [
        "a < b and b > c",
        "<|im_",
        "|>",
        "<b>bold</b>",
        "\n\n",
        "im_start",
        "\ufffd\u0378",
        "<ımage>",
    ]
    chat = ChatFormat(processors[family])
    for text, ids in chat.tokenise(texts).items():
        chat.check(text, ids)


def test_a_template_without_an_answer_is_refused(qwen: Path) -> None:
    processor: Any = AutoProcessor.from_pretrained(qwen)
    processor.chat_template = "{{ raise_exception('for questions only') }}"
    with pytest.raises(ModelError, match=r"model\.name: .*for questions only"):
        _ = ChatFormat(processor).frame
    processor.chat_template = None
    with pytest.raises(ModelError, match=r"model\.name: .*chat template"):
        _ = ChatFormat(processor).frame


@pytest.mark.parametrize(
    ("texts", "images", "expected"),
    [
        (["Look."], 2, [["image", "image", "Look."]]),
        (["A <image> B\n<image>\nWhat?"], 2, [["A ", "image", " B", "image", "What?"]]),
        (["<image><image>"], 2, [["image", "image"]]),
        (["Look.", "Yes.", "And <image>?"], 1, [["Look."], ["Yes."], ["And ", "image", "?"]]),
        (["Look.", "Yes.", "What?"], 1, [["image", "Look."], ["Yes."], ["What?"]]),
        (["Look."], 0, [["Look."]]),
    ],
)
def test_images_go_to_their_places(
    texts: list[str], images: int, expected: list[list[str]]
) -> None:
    turns = [
        Turn(role=("user", "assistant")[number % 2], text=text) for number, text in enumerate(texts)
    ]
    messages = make_messages(turns, images)
    assert [
        [part.get("text", part["type"]) for part in message["content"]] for message in messages
    ] == expected
