"""Packed answers: the same log-probabilities and gradients as one sequence at a time, for each
family of models."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.rows import Turn
from pairwright.tasks.training.attention import SPLIT, choose_attention
from pairwright.tasks.training.collate import AnswerTokens, Batch, Collator, Loaded
from pairwright.tasks.training.losses import CHOSEN, IMAGE, TEXTS
from pairwright.tasks.training.pack_answers import can_pack, pack_answers
from pairwright.tasks.training.score_answers import score_answers
from tests.fixtures.examples_to_pack import loaded, ragged

WIDTH = 5
EQUAL = 1e-5
"""Allowed difference, relative: of a sum of log-probabilities to that sum; of a gradient to the
model's largest."""
AROUND = {"smolvlm": (" ", "<end_of_utterance>"), "gemma3": ("", "<end_of_turn>")}
"""What the published templates put before and behind an answer, where it is not Qwen's."""
TENSORS: Any = {"return_tensors": "pt", "add_special_tokens": False}
Scores = tuple[torch.Tensor, dict[str, torch.Tensor]]


def load(folder: Path, attention: Any = "sdpa") -> Any:
    attention = choose_attention() if attention == SPLIT else attention
    return AutoModelForImageTextToText.from_pretrained(folder, attn_implementation=attention).eval()


def batch_of(folder: Path, items: Sequence[Loaded], *, apart: bool = False) -> Batch:
    batch = Collator(AutoProcessor.from_pretrained(folder), 4096, apart=apart)(items)["batch"]
    assert not batch.refused
    return batch


def differentiate(model: Any, logps: torch.Tensor) -> Scores:
    """Return the scores, and the gradients of a sum in which every answer counts differently."""
    model.zero_grad()
    (logps * torch.linspace(-1, 1, logps.numel()).view_as(logps)).sum().backward()
    return logps.detach(), {
        name: given.grad for name, given in model.named_parameters() if given.grad is not None
    }


def by_ours(model: Any, batch: Batch) -> Scores:
    return differentiate(model, score_answers(model, pack_answers(batch, model, width=WIDTH)).logps)


def by_themselves(model: Any, folder: Path, items: Sequence[Loaded]) -> Scores:
    """Score one sequence at a time, all by transformers: processor, positions, masks."""
    processor = AutoProcessor.from_pretrained(folder)
    logps = torch.zeros(len(items), WIDTH)
    for row, item in enumerate(items):
        answers = {CHOSEN: item.example.chosen} | {
            TEXTS + n: text for n, text in enumerate(item.example.rejected)
        }
        for column, answer in answers.items():
            logps[row, column] = score_one(
                model, processor, (folder.name, item, answer), item.images
            )
        if item.rejected_images:
            logps[row, IMAGE] = score_one(
                model, processor, (folder.name, item, item.example.chosen), item.rejected_images
            )
    return differentiate(model, logps)


def score_one(
    model: Any, processor: Any, asked: tuple[str, Loaded, str], images: Sequence[Any]
) -> torch.Tensor:
    family, item, answer = asked
    text = {"type": "text", "text": item.example.turns[0].text}
    messages = [{"role": "user", "content": [*[{"type": "image"}] * len(images), text]}]
    prompt = processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    before, behind = AROUND.get(family, ("", "<|im_end|>"))
    given = [
        processor(text=[each], images=[list(images)] if images else None, **TENSORS)
        for each in (prompt, prompt + before + answer + behind)
    ]
    start, whole = given[0]["input_ids"].shape[1], given[1]["input_ids"][0]
    assert torch.equal(whole[:start], given[0]["input_ids"][0])
    logits = model(**given[1]).logits[0]
    return logits[:-1].log_softmax(-1).gather(1, whole[1:, None])[start - 1 :].sum()


def assert_equal(found: Scores, expected: Scores) -> None:
    assert ((found[0] - expected[0]).abs() <= EQUAL * expected[0].abs()).all()
    largest = max(float(grad.abs().max()) for grad in expected[1].values())
    assert found[1].keys() == expected[1].keys()
    for name, grad in expected[1].items():
        assert float((found[1][name] - grad).abs().max()) <= EQUAL * largest, name


@pytest.mark.parametrize("attention", [SPLIT, "sdpa", "eager"])
def test_scores_and_gradients_are_those_of_single_sequences(family: Path, attention: str) -> None:
    model, items = load(family, attention), ragged()
    expected = by_themselves(model, family, items)
    assert (expected[0] != 0).sum() == 11
    assert can_pack(model) == (family.name != "gemma3")
    if can_pack(model):
        assert_equal(by_ours(model, batch_of(family, items)), expected)
    assert_equal(by_ours(model, batch_of(family, items, apart=True)), expected)


SUMMARY, CHOICE = "Both show a ball; the second one is darker.", "A"
BETWEEN = {
    "llava_onevision": "<|im_start|>user \nWhich is brighter?<|im_end|><|im_start|>assistant\n",
    "smolvlm": "\nUser: Which is brighter?<end_of_utterance>\nAssistant:",
    "gemma3": "\n<start_of_turn>user\nWhich is brighter?<end_of_turn>\n<start_of_turn>model\n",
}
"""What the published templates put between an answer's end and the next answer, where it is not
Qwen's."""


@pytest.mark.parametrize("summary", [SUMMARY, "e"])
def test_both_answers_of_a_conversation_bear_loss_and_nothing_else(
    family: Path, summary: str
) -> None:
    """The mask is written by hand, over the whole text as transformers' processor encodes it."""
    model, item = load(family), loaded("one", summary)
    said = (Turn(role="user", text="Which is brighter?"), Turn(role="assistant", text=CHOICE))
    batch = batch_of(family, [Loaded(replace(item.example, then=said), item.images, ())])
    assert len(batch.prompts) == 1, "with one set of images"

    processor = AutoProcessor.from_pretrained(family)
    asked = [*[{"type": "image"}] * 2, {"type": "text", "text": item.example.turns[0].text}]
    prompt = processor.apply_chat_template(
        [{"role": "user", "content": asked}], add_generation_prompt=True
    )
    before, behind = AROUND.get(family.name, ("", "<|im_end|>"))
    between = BETWEEN.get(
        family.name, "\n<|im_start|>user\nWhich is brighter?<|im_end|>\n<|im_start|>assistant\n"
    )
    texts = [prompt, before + summary + behind, between, before + CHOICE + behind]
    given = [
        processor(text=["".join(texts[:n])], images=[list(item.images)], **TENSORS)
        for n in range(1, 5)
    ]
    ends = [len(one["input_ids"][0]) for one in given]
    mask = torch.zeros(ends[-1], dtype=torch.bool)
    mask[ends[0] : ends[1]] = mask[ends[2] :] = True

    packed, whole = pack_answers(batch, model), given[-1]["input_ids"][0]
    assert packed.targets.tolist() == whole[mask].tolist()
    logps = (
        model(**given[-1]).logits[0, :-1].log_softmax(-1).gather(1, whole[1:, None])[:, 0][mask[1:]]
    )
    ours = score_answers(model, packed)
    assert ours.tokens.tolist()[0][CHOSEN] == mask.sum()
    torch.testing.assert_close(ours.logps[0, CHOSEN], logps.sum(), rtol=EQUAL, atol=0)


def test_logits_are_computed_of_answers_alone(family: Path) -> None:
    model, items = load(family), ragged()[:1]
    packed = pack_answers(batch_of(family, items), model, width=WIDTH)
    size = len(packed.targets)
    assert model(**packed.inputs).logits.shape == (size, model.config.get_text_config().vocab_size)
    assert packed.places.tolist() == list(range(size))


def test_prompts_that_wait_for_an_answer_change_nothing(qwen: Path) -> None:
    processor, items, model = AutoProcessor.from_pretrained(qwen), ragged()[:2], load(qwen)
    without = Collator(processor, 4096, apart=True)(items)["batch"]
    waiting = Collator(processor, 4096, apart=True, late=1)(items)["batch"]
    assert [len(own) for own in waiting.answers] == [1, 0, 1, 1, 0]
    assert_equal(by_ours(model, waiting), by_ours(model, without))


@pytest.mark.parametrize("attention", [SPLIT, "sdpa"])
def test_answers_of_one_token_are_no_part_of_the_sequence(attention: str, qwen: Path) -> None:
    batch = batch_of(qwen, ragged()[:2])
    tokens = [tuple(answer.ids[0] for answer in own) for own in batch.answers]
    batch.answers = [
        tuple(AnswerTokens(TEXTS + n, (token,)) for n, token in enumerate((*own, 9)))
        for own in tokens
    ]
    model = load(qwen, attention)
    packed = pack_answers(batch, model, width=WIDTH)
    assert packed.inputs["input_ids"].shape[1] == max(map(len, batch.prompts))
    scores = score_answers(model, packed).logps
    assert (scores != 0).sum() == 5
    batch.answers = [own[-1:] for own in batch.answers]
    alone = score_answers(model, pack_answers(batch, model, width=WIDTH)).logps
    assert torch.allclose(scores[alone != 0], alone[alone != 0], rtol=EQUAL)
