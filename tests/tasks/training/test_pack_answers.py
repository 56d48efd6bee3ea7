"""Packed answers: the same log-probabilities and gradients as one sequence at a time, for each
family of models."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from pairwright.schemas.rows import Turn
from pairwright.tasks.training.attention import SPLIT, choose_attention
from pairwright.tasks.training.collate import AnswerTokens, Collator, Loaded
from pairwright.tasks.training.losses import CHOSEN, IMAGE, TEXTS
from pairwright.tasks.training.pack_answers import can_pack, pack_answers
from pairwright.tasks.training.score_answers import score_answers
from tests.fixtures.examples_to_pack import loaded, ragged
from tests.fixtures.families_of_models import PACKED

WIDTH = 5
EQUAL = 1e-5
"""Allowed difference, relative: of a sum of log-probabilities to that sum; of a gradient to the
model's largest."""
AROUND = {
    "smolvlm": (" ", "<end_of_utterance>"),
    "gemma3": ("", "<end_of_turn>"),
    "llava": (" ", "</s>"),
}
"""What the published templates put before and behind an answer, where it is not Qwen's."""
BETWEEN = {
    "llava_onevision": "<|im_start|>user \nWhich is brighter?<|im_end|><|im_start|>assistant\n",
    "smolvlm": "\nUser: Which is brighter?<end_of_utterance>\nAssistant:",
    "qwen3_5": "\n<|im_start|>user\nWhich is brighter?<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n",
    "gemma3": "\n<start_of_turn>user\nWhich is brighter?<end_of_turn>\n<start_of_turn>model\n",
}
"""What they put between an answer's end and the next answer, where it is not Qwen's."""
OPENINGS = {"qwen3_5": "\n</think>\n\n"}
"""What they put between prompt and answer, without loss."""
QWEN_BETWEEN = "\n<|im_start|>user\nWhich is brighter?<|im_end|>\n<|im_start|>assistant\n"


def load(folder, attention="sdpa"):
    attention = choose_attention() if attention == SPLIT else attention
    return AutoModelForImageTextToText.from_pretrained(folder, attn_implementation=attention).eval()


def batch_of(folder, items, **how):
    batch = Collator(AutoProcessor.from_pretrained(folder), 4096, **how)(items)["batch"]
    assert not batch.refused
    return batch


def score(model, batch):
    return score_answers(model, pack_answers(batch, model, width=WIDTH)).logps


def differentiate(model, logps):
    """Return the scores, and the gradients of a sum in which every answer counts differently."""
    model.zero_grad()
    (logps * torch.linspace(-1, 1, logps.numel()).view_as(logps)).sum().backward()
    grads = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    return logps.detach(), grads


class Family:
    """A family's processor, which writes and encodes whole sequences, all by transformers."""

    def __init__(self, folder):
        self.processor = AutoProcessor.from_pretrained(folder)
        self.before, self.behind = AROUND.get(folder.name, ("", "<|im_end|>"))
        self.opening = OPENINGS.get(folder.name, "")
        self.between = BETWEEN.get(folder.name, QWEN_BETWEEN)

    def answer(self, text):
        return self.before + text + self.behind

    def prompt(self, item, images):
        text = {"type": "text", "text": item.example.turns[0].text}
        messages = [{"role": "user", "content": [*[{"type": "image"}] * len(images), text]}]
        prompt = self.processor.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return prompt + self.opening

    def encode(self, text, images):
        visible = [list(images)] if images else None
        return self.processor(
            text=[text], images=visible, return_tensors="pt", add_special_tokens=False
        )

    def score(self, model, item, answer, images):
        prompt = self.prompt(item, images)
        before, whole = (
            self.encode(text, images) for text in (prompt, prompt + self.answer(answer))
        )
        start, ids = before["input_ids"].shape[1], whole["input_ids"][0]
        assert torch.equal(ids[:start], before["input_ids"][0])
        return log_probabilities(model, whole)[start - 1 :].sum()


def log_probabilities(model, encoded):
    """Return those of each token but the first."""
    ids = encoded["input_ids"][0, 1:, None]
    return model(**encoded).logits[0, :-1].log_softmax(-1).gather(1, ids)[:, 0]


def score_one_by_one(model, folder, items):
    family = Family(folder)
    logps = torch.zeros(len(items), WIDTH)
    for row, item in enumerate(items):
        rejected = {TEXTS + n: text for n, text in enumerate(item.example.rejected)}
        for column, text in {CHOSEN: item.example.chosen, **rejected}.items():
            logps[row, column] = family.score(model, item, text, item.images)
        if item.rejected_images:
            chosen = item.example.chosen
            logps[row, IMAGE] = family.score(model, item, chosen, item.rejected_images)
    return logps


def assert_equal(actual, expected):
    assert ((actual[0] - expected[0]).abs() <= EQUAL * expected[0].abs()).all()
    largest = max(float(grad.abs().max()) for grad in expected[1].values())
    torch.testing.assert_close(actual[1], expected[1], rtol=0, atol=EQUAL * largest)


@pytest.mark.parametrize("attention", [SPLIT, "sdpa", "eager"])
def test_scores_and_gradients_are_those_of_single_sequences(family, attention):
    model, items = load(family, attention), ragged()
    expected = differentiate(model, score_one_by_one(model, family, items))
    assert (expected[0] != 0).sum() == 11
    packs = can_pack(model)
    assert packs == (family.name in PACKED)
    for apart in {True, not packs}:
        batch = batch_of(family, items, apart=apart)
        assert_equal(differentiate(model, score(model, batch)), expected)


@pytest.mark.parametrize("summary", ["Both show a ball; the second one is darker.", "e"])
def test_both_answers_of_a_conversation_bear_loss_and_nothing_else(family, summary):
    """The mask is written by hand, over the whole text as transformers' processor encodes it."""
    if family.name == "llava":
        return  # its template writes no end token: see below
    model, item, own = load(family), loaded("one", summary), Family(family)
    then = (Turn(role="user", text="Which is brighter?"), Turn(role="assistant", text="A"))
    batch = batch_of(family, [Loaded(replace(item.example, then=then), item.images, ())])
    assert len(batch.prompts) == 1, "with one set of images"

    prompt = own.prompt(item, item.images)
    texts = [prompt, own.answer(summary), own.between, own.answer("A")]
    encoded = [own.encode("".join(texts[:n]), item.images) for n in range(1, 5)]
    ends = [len(one["input_ids"][0]) for one in encoded]
    mask = torch.zeros(ends[-1], dtype=torch.bool)
    mask[ends[0] : ends[1]] = mask[ends[2] :] = True

    packed = pack_answers(batch, model)
    assert packed.targets.tolist() == encoded[-1]["input_ids"][0][mask].tolist()
    scored = score_answers(model, packed)
    assert scored.tokens.tolist()[0][CHOSEN] == mask.sum()
    expected = log_probabilities(model, encoded[-1])[mask[1:]].sum()
    torch.testing.assert_close(scored.logps[0, CHOSEN], expected, rtol=EQUAL, atol=0)


def test_answers_have_prompts_of_their_own_where_the_template_ends_none(checkpoint):
    """LLaVA-1.5 ends with a token that its template does not write behind earlier answers."""
    folder = checkpoint("llava")
    model, item, own = load(folder), loaded("one", "It is darker."), Family(folder)
    then = (Turn(role="user", text="Which is brighter?"), Turn(role="assistant", text="A"))
    batch = batch_of(folder, [Loaded(replace(item.example, then=then), item.images, ())])
    prompt = own.prompt(item, item.images)
    second = f"{prompt} It is darker. USER: Which is brighter? ASSISTANT:"
    expected = 0.0
    for before, text in ((prompt, "It is darker."), (second, "A")):
        start = own.encode(before, item.images)["input_ids"].shape[1]
        whole = own.encode(before + own.answer(text), item.images)
        expected += log_probabilities(model, whole)[start - 1 :].sum()
    scored = score_answers(model, pack_answers(batch, model))
    torch.testing.assert_close(scored.logps[0, CHOSEN], expected, rtol=EQUAL, atol=0)


def test_logits_are_computed_of_answers_alone(family):
    model = load(family)
    packed = pack_answers(batch_of(family, ragged()[:1]), model, width=WIDTH)
    size = len(packed.targets)
    assert model(**packed.inputs).logits.shape == (size, model.config.get_text_config().vocab_size)
    assert packed.places.tolist() == list(range(size))


def test_prompts_that_wait_for_an_answer_change_nothing(qwen):
    items, model = ragged()[:2], load(qwen)
    without, waiting = (batch_of(qwen, items, apart=True, late=late) for late in (0, 1))
    assert [len(own) for own in waiting.answers] == [1, 0, 1, 1, 0]
    scored, expected = (differentiate(model, score(model, each)) for each in (waiting, without))
    assert_equal(scored, expected)


@pytest.mark.parametrize("attention", [SPLIT, "sdpa"])
def test_answers_of_one_token_are_no_part_of_the_sequence(attention, qwen):
    batch, model = batch_of(qwen, ragged()[:2]), load(qwen, attention)
    tokens = [[*(answer.ids[0] for answer in own), 9] for own in batch.answers]
    batch.answers = [
        tuple(AnswerTokens(TEXTS + n, (token,)) for n, token in enumerate(own)) for own in tokens
    ]
    packed = pack_answers(batch, model, width=WIDTH)
    assert packed.inputs["input_ids"].shape[1] == max(map(len, batch.prompts))
    together = score_answers(model, packed).logps
    assert (together != 0).sum() == 5
    batch.answers = [own[-1:] for own in batch.answers]
    alone = score(model, batch)
    assert torch.allclose(together[alone != 0], alone[alone != 0], rtol=EQUAL)
