"""Generate answers with a local model: to a benchmark's questions, and to held-out rows of a training.

Decoding is greedy and batched. Answers to questions are cached by question, images and checkpoint;
answers to held-out rows go into ``samples/`` of the run and, with ``output.write_answers``, into
``answers/``.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from transformers import GenerationConfig

from pairwright.prompts import difference_verbs
from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import Turn, make_key
from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches, is_out_of_memory
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.training.chat_format import ChatFormat, encoding_options, make_messages
from pairwright.tasks.training.collate import Loaded, load_example
from pairwright.tasks.training.find_model import Found, find_module
from pairwright.tasks.training.freeze_rows import PLACE, Example, RefusedRowError
from pairwright.tasks.training.load_model import (
    choose_precision,
    computing,
    load_model,
    load_processor,
)
from pairwright.tasks.training.ranks import count_ranks
from pairwright.tasks.training.report.write_run_page import Sample, write_answers, write_samples
from pairwright.tasks.training.runs import UNREADABLE, Run

if TYPE_CHECKING:
    from pairwright.tasks.training.preference_trainer import PreferenceTrainer

log = logging.getLogger(__name__)
VERSION = 1  # raise when questions are asked in another way
MOST_TOKENS = 160  # per answer; descriptions of differences have 20 to 80
UNDECODED = "an image cannot be decoded"  # the reason that ``load_example`` gives
CUT = b"\0"  # prefix of a cached answer that was cut off
AT_ONCE = 256  # questions whose images are in memory together
COUNT = 8  # samples of a finished run
ROOM = 2  # maximum length of an answer, as a multiple of the longest reference
LONGEST = 2_048  # maximum tokens of any answer; cutting is logged


class Generated(NamedTuple):
    """Generated answer; ``cut``: it reached the token limit before its end token."""

    text: str
    cut: bool


def generate_answers(
    model: Any, processor: Any, items: Sequence[Loaded], *, most_tokens: int = MOST_TOKENS
) -> list[Generated]:
    """Return a model's greedy answer to the prompt of each row, decoded in one batch."""
    if not items:
        return []
    asked = [make_messages(item.example.turns, len(item.images)) for item in items]
    prompts = [
        processor.apply_chat_template(one, tokenize=False, add_generation_prompt=True)
        for one in asked
    ]
    images = [list(item.images) for item in items]
    given = processor(
        text=prompts,
        images=images if any(images) else None,
        padding=True,
        padding_side="left",
        return_tensors="pt",
        **encoding_options(processor, prompts[0]),
    ).to(next(model.parameters()).device)
    end = model.generation_config.eos_token_id
    ends = set[int](end if isinstance(end, list) else [end])
    with torch.no_grad():
        made = model.generate(**given, max_new_tokens=most_tokens, do_sample=False, use_cache=True)
    answers = made[:, given["input_ids"].shape[1] :]
    texts = processor.batch_decode(answers, skip_special_tokens=True)
    cut = [len(own) == most_tokens and not ends.intersection(own) for own in answers.tolist()]
    return [Generated(text.strip(), short) for text, short in zip(texts, cut, strict=True)]


# ---- questions


@dataclass(frozen=True)
class LocalModel:
    """Checkpoint on this machine, loaded at its first use: in bfloat16 on a GPU, in float32 on a CPU."""

    found: Found
    max_pixels: int  # larger images are scaled down

    @cached_property
    def identity(self) -> str:
        """Return the hash of its files and of the settings that change answers."""
        return make_key(
            "local model", VERSION, self.found.identity, str(self.precision), self.max_pixels
        )

    @cached_property
    def chat(self) -> ChatFormat:
        """Return its chat format, which holds its processor."""
        return ChatFormat(load_processor(self.found.folder))

    @cached_property
    def model(self) -> Any:
        """Return the model, set to greedy decoding whatever its generation config says."""
        model = (
            load_model(self.found.folder, ModelConfig(), dtype=self.precision)
            .to(choose_device())
            .eval()
        )
        own = model.generation_config
        ends = {
            name: getattr(own, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
        }
        if ends["pad_token_id"] is None:
            ends["pad_token_id"] = self.chat.processor.tokenizer.pad_token_id
        model.generation_config = GenerationConfig(**ends)
        return model

    @cached_property
    def pairs(self) -> bool:
        """Return whether it compares images in pairs (differential perception)."""
        return find_module(self.found.folder) is not None

    @cached_property
    def precision(self) -> torch.dtype:
        """Return the dtype of its computation."""
        return choose_precision(TrainConfig(objective="sft"))


Owed = tuple[str, str, Question]  # unanswered question: cache key, name, question


def answer_questions(
    questions: Iterable[tuple[str, Question]], answers: Answers, *, local: LocalModel, batch: int
) -> Iterator[Reply]:
    """Yield a reply to each named question, from ``answers`` or generated and added to it."""
    batches = AdaptiveBatches(fixed=batch)
    source = iter(questions)
    while some := list(islice(source, AT_ONCE)):
        owed: list[Owed] = []
        for name, question in some:
            images = [blake2b(image, digest_size=16).digest() for image in question.images]
            key = make_key(
                "local answer",
                local.identity,
                question.text,
                question.max_tokens,
                len(images),
                *images,
            )
            kept = answers.get(key)
            if kept is None:
                owed.append((key, name, question))
            else:
                yield Reply(
                    name=name, text=kept.removeprefix(CUT).decode(), cut=kept.startswith(CUT)
                )
        owed.sort(key=lambda one: (one[2].max_tokens, len(one[2].images), len(one[2].text)))
        for most, group in groupby(owed, key=lambda one: one[2].max_tokens):
            work = partial(_answer_batch, local=local, answers=answers, most=most)
            for replies in batches.pieces(work, list(group)):
                yield from replies


def _answer_batch(
    owed: Sequence[Owed], *, local: LocalModel, answers: Answers, most: int
) -> list[Reply]:
    loaded, replies = list[tuple[str, str, Loaded]](), list[Reply]()
    for key, name, question in owed:
        try:
            for text, ids in local.chat.tokenise(question.text.split(PLACE)).items():
                local.chat.check(text, ids)
            turns = (Turn(role="user", text=question.text),)
            example = Example(key="", turns=turns, images=question.images, chosen="")
            loaded.append((key, name, load_example(example, local.max_pixels, pairs=local.pairs)))
        except RefusedRowError as error:
            state = "no image" if error.reason == UNDECODED else "refused"
            replies.append(Reply(name=name, state=state, detail=str(error)))
    for (key, name, _), said in zip(
        loaded, _generate([item for *_, item in loaded], local, most), strict=True
    ):
        if isinstance(said, Exception):
            replies.append(
                Reply(name=name, state="refused", detail=(str(said) or type(said).__name__)[:200])
            )
        else:
            answers.put(key, CUT * said.cut + said.text.encode())
            replies.append(Reply(name=name, text=said.text, cut=said.cut))
    return replies


def _generate(
    items: Sequence[Loaded], local: LocalModel, most: int
) -> Sequence[Generated | Exception]:
    """Return the answers; for images that the processor refuses, its error instead."""
    if not items:
        return []
    model = local.model  # outside the try: a model that cannot be loaded must not refuse questions
    try:
        with computing(choose_device(), local.precision):
            return generate_answers(model, local.chat.processor, items, most_tokens=most)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if len(items) == 1:  # processors raise errors of many kinds
            return [error]
    return [one for item in items for one in _generate([item], local, most)]


# ---- held-out rows


def sample_answers(trainer: "PreferenceTrainer", run: Path) -> None:
    """Write the model's answers to held-out rows."""
    every = trainer.setup.config.output.write_answers
    samples = answer_held_out(trainer, most=None if every else COUNT)
    write_samples(run, samples[:COUNT])
    if every:
        write_answers(Run(run).answers, [(one.key, one.answer, one.reference) for one in samples])


def measure_unreadable(trainer: "PreferenceTrainer") -> dict[str, float]:
    """Return the share of unreadable held-out answers: empty, cut off, or not in the chosen one's template."""

    def is_unreadable(sample: Sample) -> bool:
        texts = (
            read_difference(text, difference_verbs()) for text in (sample.reference, sample.answer)
        )
        is_difference, stays_one = (isinstance(text, Difference) for text in texts)
        return sample.cut or not sample.answer or (is_difference and not stays_one)

    samples = answer_held_out(trainer, most=COUNT)
    return {UNREADABLE: sum(map(is_unreadable, samples)) / len(samples)} if samples else {}


def answer_held_out(trainer: "PreferenceTrainer", *, most: int | None) -> list[Sample]:
    """Return the model's answers to the first held-out rows, or to all; none where FSDP shards its weights.

    Rows that training would refuse, such as those with too long a prompt, are left out.
    ``KeyboardInterrupt``: the training is to stop.
    """
    held_out, config = cast("Any", trainer.eval_dataset), trainer.setup.config
    collate = cast("Any", trainer.data_collator)
    lengths: dict[int, int] = {}
    for place in range(0 if trainer.is_fsdp_enabled else len(held_out))[:most]:
        item = held_out[place]
        answers = collate([item])["batch"].answers if isinstance(item, Loaded) else []
        lengths[place] = max((len(answer.ids) for own in answers for answer in own), default=0)
    tokens = max(MOST_TOKENS, min(ROOM * max(lengths.values(), default=0), LONGEST))
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    model.eval()

    def answer(some: Sequence[int]) -> list[Sample]:
        if trainer.stopping and count_ranks() == 1:
            raise KeyboardInterrupt
        items = [held_out[place] for place in some]
        with computing(trainer.args.device, choose_precision(config)):
            found = generate_answers(model, trainer.processing_class, items, most_tokens=tokens)
        return [
            Sample(
                key=item.example.key,
                prompt="\n".join(turn.text for turn in item.example.turns),
                images=item.example.images,
                reference=item.example.chosen,
                answer=said.text,
                rejected=next(iter(item.example.rejected), ""),
                cut=said.cut,
            )
            for item, said in zip(items, found, strict=True)
        ]

    batches = AdaptiveBatches(fixed=config.optimiser.per_device_train_batch_size)
    asked = [place for place, length in lengths.items() if length]
    return [one for some in batches.pieces(answer, asked) for one in some]
