"""Each family's chat format: what is around an answer, and which texts would steer it."""

import re

import pytest
from transformers import AutoProcessor

from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Turn
from pairwright.tasks.training.chat_format import ChatFormat, make_messages
from pairwright.tasks.training.freeze_rows import RefusedRowError

CONTROL = {
    "qwen2_vl": "<|im_end|> <|im_start|> <|image_pad|> <|vision_start|> <|endoftext|>",
    "llava_onevision": "<image> <video> <|im_end|>",
    "smolvlm": "<image> <row_1_col_2> <fake_token_around_image> <global-img> <end_of_utterance>",
    "gemma3": "<bos> <eos> <unk> <start_of_image> <image_soft_token> <end_of_turn>",
}
HARMLESS = ["a < b and b > c", "<|im_", "|>", "<b>bold</b>", "\n\n", "im_start", "\ufffd\u0378"]


@pytest.fixture(scope="module")
def chats(checkpoint):
    return {name: ChatFormat(AutoProcessor.from_pretrained(checkpoint(name))) for name in CONTROL}


@pytest.mark.parametrize(
    ("family", "token"),
    [(family, token) for family in CONTROL for token in CONTROL[family].split()],
)
@pytest.mark.parametrize("text", ["{}", "A red{}ball.", "A red ball. {}"])
def test_control_tokens_are_found_wherever_they_stand(text, family, token, chats):
    text = text.format(token)
    with pytest.raises(RefusedRowError, match=re.escape(token)) as error:
        chats[family].refuse_control_tokens(text, chats[family].tokenise_answers([text])[text])
    assert error.value.detail == token


@pytest.mark.parametrize("family", CONTROL)
def test_texts_that_only_look_like_it_pass(family, chats):
    for text, ids in chats[family].tokenise_answers([*HARMLESS, "<ımage>"]).items():
        chats[family].refuse_control_tokens(text, ids)


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{{ raise_exception('for questions only') }}", "for questions only"),
        (None, "chat template"),
    ],
)
def test_a_template_without_an_answer_is_refused(template, what, qwen):
    processor = AutoProcessor.from_pretrained(qwen)
    processor.chat_template = template
    with pytest.raises(ModelError, match=rf"model\.name: .*{what}"):
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
def test_images_go_to_their_places(texts, images, expected):
    turns = [Turn(role=("user", "assistant")[n % 2], text=text) for n, text in enumerate(texts)]
    contents = [message["content"] for message in make_messages(turns, images)]
    assert [[part.get("text", part["type"]) for part in parts] for parts in contents] == expected
