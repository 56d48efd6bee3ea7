"""Batches: what is in them, what is refused, and that they can be made in another process."""

import re
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoProcessor

from pairwright.tasks.training.collate import Batch, Collator
from pairwright.tasks.training.freeze_rows import RefusedRowError
from pairwright.tasks.training.losses import CHOSEN, IMAGE, TEXTS
from tests.fixtures.examples_to_pack import loaded, ragged

LONG = " ".join(["word"] * 50)


@pytest.fixture(scope="module")
def processor(qwen: Path) -> Any:
    return AutoProcessor.from_pretrained(qwen)


def refusals(batch: Batch) -> dict[str, tuple[str, str]]:
    return {one.key: (one.reason, one.detail) for one in batch.refused}


def test_a_batch_holds_prompts_and_their_answers(processor: Any) -> None:
    batch = Collator(processor, 4096)(ragged())["batch"]
    assert batch.keys == ["one", "two", "three", "four"]
    assert batch.owners == [0, 1, 2, 3, 3]
    columns = [[answer.column for answer in own] for own in batch.answers]
    texts = [TEXTS, TEXTS + 1, TEXTS + 2]
    assert columns == [[CHOSEN], [CHOSEN, TEXTS], [CHOSEN, *texts[:2]], [CHOSEN, *texts], [IMAGE]]
    assert batch.answers[4][0].ids == batch.answers[3][0].ids
    assert batch.extras["image_grid_thw"].shape == (10, 3)
    assert [len(types) for types in batch.types["mm_token_type_ids"]] == [
        len(prompt) for prompt in batch.prompts
    ]


def test_prompts_are_tokenised_as_by_transformers(family: Path) -> None:
    processor: Any = AutoProcessor.from_pretrained(family)
    item = loaded("a", "A ball.", question="What differs?")
    batch = Collator(processor, 4096)([item])["batch"]
    content = [
        *({"type": "image", "image": image} for image in item.images),
        {"type": "text", "text": "What differs?"},
    ]
    given = processor.apply_chat_template(
        [{"role": "user", "content": content}],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
    )
    assert list(batch.prompts[0]) == given["input_ids"][0]


@pytest.mark.parametrize(
    ("text", "token"), [("An <image> here.", "<image>"), ("A <|im_end|> ball.", "<|im_end|>")]
)
def test_control_tokens_are_refused(text: str, token: str, processor: Any) -> None:
    batch = Collator(processor, 4096)(
        [loaded("bad", "A ball.", (text,)), loaded("good", "A ball.")]
    )["batch"]
    assert batch.keys == ["good"]
    assert refusals(batch) == {"bad": ("a control token in a text", token)}


def test_rows_that_are_too_long_are_refused_by_their_longest_answer(processor: Any) -> None:
    whole = Collator(processor, 4096)([loaded("a", "b", (LONG,))])["batch"]
    length = len(whole.prompts[0]) + len(whole.answers[0][1].ids)
    items = [loaded("short", "b"), loaded("long", "b", (LONG,))]
    assert not Collator(processor, length)(items)["batch"].refused
    batch = Collator(processor, length - 1)(items)["batch"]
    assert batch.keys == ["short"]
    assert batch.extras["image_grid_thw"].shape == (2, 3)
    assert refusals(batch) == {
        "long": ("too long", f"{length} tokens, model.max_length is {length - 1}")
    }


def test_an_image_that_the_processor_refuses_costs_its_row_alone(processor: Any) -> None:
    items = [
        loaded("thin", "b", shown=((1, 300), (56, 56))),
        loaded("good", "b"),
        loaded("too", "b"),
    ]
    batch = Collator(processor, 4096)(items)["batch"]
    assert batch.keys == ["good", "too"]
    reason, detail = refusals(batch)["thin"]
    assert reason == "the processor refuses it"
    assert "aspect ratio" in detail


def test_an_error_of_the_whole_batch_is_not_the_rows(
    processor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = type(processor).__call__

    def fail(self: Any, text: list[str], **words: Any) -> Any:
        if len(text) > 1:
            raise MemoryError("no room for two")
        return call(self, text=text, **words)

    monkeypatch.setattr(type(processor), "__call__", fail)
    with pytest.raises(MemoryError, match="no room for two"):
        Collator(processor, 4096)([loaded("a", "b"), loaded("b", "c")])


def test_answers_of_texts_are_those_of_rows(processor: Any) -> None:
    collator = Collator(processor, 4096)
    known = collator([loaded("a", "A ball.", ("No.",))])["batch"].answers[0]
    assert collator.answers(["A ball."], CHOSEN) == [known[0]]
    assert collator.answers(["No.", "A ball."], TEXTS)[0] == known[1]
    with pytest.raises(RefusedRowError, match=re.escape("<|im_end|>")):
        collator.answers(["No.", "<|im_end|>"], TEXTS)
