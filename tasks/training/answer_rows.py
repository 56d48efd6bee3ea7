"""Let a model answer the prompts of rows: greedy decoding, in one batch. Needs transformers and PyTorch."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pairwright.tasks.training.chat import how_to_encode, make_messages
from pairwright.tasks.training.collate import Loaded

MOST_TOKENS = 160
"""Of an answer; descriptions of differences have 20 to 80."""


class Said(NamedTuple):
    """Be an answer, and whether it was cut: the model had not come to an end."""

    text: str
    cut: bool


def answer_rows(model: Any, processor: Any, items: Sequence[Loaded], *, most_tokens: int = MOST_TOKENS) -> list[str]:
    """Return the texts of ``say_answers``."""
    return [said.text for said in say_answers(model, processor, items, most_tokens=most_tokens)]


def say_answers(model: Any, processor: Any, items: Sequence[Loaded], *, most_tokens: int = MOST_TOKENS) -> list[Said]:
    """Return a model's answer to the prompt of each row, about its images.

    Args:
        model: unwrapped, in evaluation mode.
        processor: the model's.
        items: rows with their images decoded.
        most_tokens: where an answer is cut.
    """
    if not items:
        return []
    prompts = [
        processor.apply_chat_template(
            make_messages(item.example.turns, len(item.images)), tokenize=False, add_generation_prompt=True
        )
        for item in items
    ]
    images = [list(item.images) for item in items]
    given = processor(
        text=prompts,
        images=images if any(images) else None,
        padding=True,
        padding_side="left",
        return_tensors="pt",
        **how_to_encode(processor, prompts[0]),
    ).to(next(model.parameters()).device)
    end = model.generation_config.eos_token_id
    ends = set[int](end if isinstance(end, list) else [end])
    with torch.no_grad():
        made = model.generate(**given, max_new_tokens=most_tokens, do_sample=False, use_cache=True)
    answers = made[:, given["input_ids"].shape[1] :]
    texts = processor.batch_decode(answers, skip_special_tokens=True)
    cut = [len(own) == most_tokens and not ends.intersection(own) for own in answers.tolist()]
    return [Said(text.strip(), short) for text, short in zip(texts, cut, strict=True)]
