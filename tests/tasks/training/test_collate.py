"""Batches: what is in them, what is refused, and that they can be made in another process."""

import re
from dataclasses import replace

import pytest
from transformers import AutoProcessor

from pairwright.tasks.training.collate import Collator
from pairwright.tasks.training.freeze_rows import RefusedRowError
from pairwright.tasks.training.losses import CHOSEN, EXCHANGED, IMAGE, SWAPPED, TEXTS
from tests.fixtures.examples_to_pack import loaded, ragged


@pytest.fixture(scope="module")
def processor(qwen):
    return AutoProcessor.from_pretrained(qwen)


@pytest.fixture
def collate(processor):
    def make(items, most=4096):
        return Collator(processor, most)(items)["batch"]

    return make


def refusals(batch):
    return {each.key: (each.reason, each.detail) for each in batch.refused}


def test_a_batch_holds_prompts_and_their_answers(collate):
    batch = collate(ragged())
    assert batch.keys == ["one", "two", "three", "four"]
    assert batch.owners == [0, 1, 2, 3, 3]
    columns = [[answer.column for answer in own] for own in batch.answers]
    texts = [TEXTS, TEXTS + 1, TEXTS + 2]
    assert columns == [[CHOSEN], [CHOSEN, TEXTS], [CHOSEN, *texts[:2]], [CHOSEN, *texts], [IMAGE]]
    assert batch.answers[4][0].ids == batch.answers[3][0].ids
    assert batch.extras["image_grid_thw"].shape == (10, 3)
    types = batch.types["mm_token_type_ids"]
    assert [len(own) for own in types] == [len(prompt) for prompt in batch.prompts]


@pytest.mark.parametrize("apart", [False, True])
def test_a_pair_in_the_other_order_is_a_second_prompt(processor, apart):
    item = next(item for item in ragged() if item.example.key == "two")
    example = replace(item.example, exchanged="A ball is gone.")
    item = replace(item, example=example, rejected_images=item.images[::-1])
    batch = Collator(processor, 4096, apart=apart)([item])["batch"]
    columns = [answer.column for answers in batch.answers for answer in answers]
    assert columns == [CHOSEN, TEXTS, SWAPPED, IMAGE, EXCHANGED]
    by_column = {answer.column: answer.ids for answers in batch.answers for answer in answers}
    assert by_column[CHOSEN] == by_column[IMAGE]
    assert by_column[SWAPPED] == by_column[EXCHANGED]
    assert len(batch.prompts) == (5 if apart else 2)


def test_prompts_are_tokenised_as_by_transformers(family):
    processor = AutoProcessor.from_pretrained(family)
    item = loaded("a", "A ball.", question="What differs?")
    content = [{"type": "image", "image": image} for image in item.images]
    content.append({"type": "text", "text": "What differs?"})
    messages = [{"role": "user", "content": content}]
    if family.name == "qwen3_5":  # what its template writes before an answer belongs to the prompt
        answer = {"role": "assistant", "content": [{"type": "text", "text": ""}]}
        text = processor.apply_chat_template([*messages, answer]).removesuffix("<|im_end|>\n")
        expected = processor(text=[text], images=[list(item.images)])
    else:
        expected = processor.apply_chat_template(
            messages, tokenize=True, add_generation_prompt=True, return_dict=True
        )
    batch = Collator(processor, 4096)([item])["batch"]
    assert list(batch.prompts[0]) == expected["input_ids"][0]


@pytest.mark.parametrize(
    ("text", "token"), [("An <image> here.", "<image>"), ("A <|im_end|> ball.", "<|im_end|>")]
)
def test_control_tokens_are_refused(text, token, collate):
    batch = collate([loaded("bad", "A ball.", (text,)), loaded("good", "A ball.")])
    assert batch.keys == ["good"]
    assert refusals(batch) == {"bad": ("a control token in a text", token)}


def test_rows_that_are_too_long_are_refused_by_their_longest_answer(collate):
    items = [loaded("short", "b"), loaded("long", "b", (" ".join(["word"] * 50),))]
    whole = collate(items[1:])
    length = len(whole.prompts[0]) + len(whole.answers[0][1].ids)
    assert not collate(items, length).refused
    batch = collate(items, length - 1)
    assert batch.keys == ["short"]
    assert batch.extras["image_grid_thw"].shape == (2, 3)
    detail = f"{length} tokens, model.max_length is {length - 1}"
    assert refusals(batch) == {"long": ("too long", detail)}


def test_an_image_that_the_processor_refuses_costs_its_row_alone(collate):
    thin = loaded("thin", "b", shown=((1, 300), (56, 56)))
    batch = collate([thin, loaded("good", "b"), loaded("too", "b")])
    assert batch.keys == ["good", "too"]
    reason, detail = refusals(batch)["thin"]
    assert reason == "the processor refuses it"
    assert "aspect ratio" in detail


def test_an_error_of_the_whole_batch_is_not_the_rows(processor, collate, monkeypatch):
    call = type(processor).__call__

    def fail(self, text, **words):
        if len(text) > 1:
            raise MemoryError("no room for two")
        return call(self, text=text, **words)

    monkeypatch.setattr(type(processor), "__call__", fail)
    with pytest.raises(MemoryError, match="no room for two"):
        collate([loaded("a", "b"), loaded("b", "c")])


def test_answers_of_texts_are_those_of_rows(processor, collate):
    chosen, rejected = collate([loaded("a", "A ball.", ("No.",))]).answers[0]
    collator = Collator(processor, 4096)
    assert collator.answers(["A ball."], CHOSEN) == [chosen]
    assert collator.answers(["No.", "A ball."], TEXTS)[0] == rejected
    with pytest.raises(RefusedRowError, match=re.escape("<|im_end|>")):
        collator.answers(["No.", "<|im_end|>"], TEXTS)
