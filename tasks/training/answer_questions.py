"""Generate answers with a local model, to a benchmark's questions and to held-out rows.

Decoding is greedy and batched. Answers to questions are cached by question, images and checkpoint;
answers to held-out rows go into ``samples/`` of the run and, with ``output.write_answers``, into
``answers/``.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.utils.data import Subset
from transformers import GenerationConfig

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
from pairwright.tasks.training.image_size import ImageGrid, bound_pixels, grid_of
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
VERSION = 3  # raise when questions are asked in another way
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
    model: Any,
    processor: Any,
    items: Sequence[Loaded],
    *,
    most_tokens: int = MOST_TOKENS,
) -> list[Generated]:
    """Return a model's greedy answer to the prompt of each row, decoded in one batch."""
    if not items:
        return []
    chat = ChatFormat(processor)
    inputs = _encode_prompts(model, chat, items)
    with torch.no_grad():
        sequences = model.generate(
            **inputs, max_new_tokens=most_tokens, do_sample=False, use_cache=True
        )
    prompt_length = inputs["input_ids"].shape[1]
    answers = sequences[:, prompt_length:]
    end = model.generation_config.eos_token_id
    end_tokens = set[int](end if isinstance(end, list) else [end])
    generated: list[Generated] = []
    for tokens in answers.tolist():
        is_cut = len(tokens) == most_tokens and not end_tokens.intersection(tokens)
        generated.append(Generated(chat.read_answer(tokens), is_cut))
    return generated


def _encode_prompts(
    model: Any,
    chat: ChatFormat,
    items: Sequence[Loaded],
) -> Any:
    """Return the inputs of ``generate``: prompts padded at the left, on the model's device."""
    prompts: list[str] = []
    for item in items:
        messages = make_messages(item.example.turns, len(item.images))
        prompts.append(chat.render_prompt(messages))
    images = [list(item.images) for item in items]
    inputs = chat.processor(
        text=prompts,
        images=images if any(images) else None,
        padding=True,
        padding_side="left",
        return_tensors="pt",
        **encoding_options(chat.processor, prompts[0]),
    )
    return inputs.to(next(model.parameters()).device)


# ---- questions


@dataclass(frozen=True)
class LocalModel:
    """Checkpoint on this machine, loaded at its first use.

    In bfloat16 on a GPU, in float32 on a CPU.
    """

    found: Found
    max_pixels: int  # larger images are scaled down
    # whether ``max_pixels`` replaces the processor's own bound, also by a larger one
    is_told: bool = False

    @cached_property
    def identity(self) -> str:
        """Return the hash of its files and of the settings that change answers."""
        return make_key(
            "local model", VERSION, self.found.identity, str(self.precision), self.max_pixels
        )

    @cached_property
    def chat(self) -> ChatFormat:
        """Return its chat format, which holds its processor."""
        processor = load_processor(self.found.folder)
        bound_pixels(processor, self.max_pixels, may_raise=self.is_told)
        return ChatFormat(processor)

    @cached_property
    def grid(self) -> ImageGrid | None:
        """Return the grid of its processor; ``None``: it has none."""
        return grid_of(self.chat.processor)

    @cached_property
    def greedy_model(self) -> Any:
        """Return the model, set to greedy decoding whatever its generation config says."""
        model = load_model(self.found.folder, ModelConfig(), dtype=self.precision)
        model = model.to(choose_device()).eval()
        pad_token_id = model.generation_config.pad_token_id
        if pad_token_id is None:
            pad_token_id = self.chat.processor.tokenizer.pad_token_id
        model.generation_config = GenerationConfig(
            bos_token_id=model.generation_config.bos_token_id,
            eos_token_id=model.generation_config.eos_token_id,
            pad_token_id=pad_token_id,
        )
        return model

    @cached_property
    def takes_pairs(self) -> bool:
        """Return whether it compares images in pairs (differential perception)."""
        return find_module(self.found.folder) is not None

    @cached_property
    def precision(self) -> torch.dtype:
        """Return the dtype of its computation."""
        return choose_precision(TrainConfig(objective="sft"))


class _Pending(NamedTuple):
    """Unanswered question."""

    key: str  # in the cache
    name: str
    question: Question


def answer_questions(
    questions: Iterable[tuple[str, Question]],
    answers: Answers,
    *,
    local: LocalModel,
    batch: int,
) -> Iterator[Reply]:
    """Yield a reply to each named question, from ``answers`` or generated and added to it."""
    batches = AdaptiveBatches(fixed=batch)
    remaining = iter(questions)
    while chunk := list(islice(remaining, AT_ONCE)):
        pending: list[_Pending] = []
        for name, question in chunk:
            key = _cache_key(question, local)
            cached = answers.get(key)
            if cached is None:
                pending.append(_Pending(key, name, question))
            else:
                yield _make_reply(name, cached)
        pending.sort(key=_effort)
        for _, group in groupby(pending, key=_max_tokens):
            work = partial(_answer_batch, local=local, answers=answers)
            yield from chain.from_iterable(batches.run_batches(work, list(group)))


def _make_reply(name: str, cached: bytes) -> Reply:
    text = cached.removeprefix(CUT).decode()
    return Reply(name=name, text=text, cut=cached.startswith(CUT))


def _cache_key(question: Question, local: LocalModel) -> str:
    images = [blake2b(image, digest_size=16).digest() for image in question.images]
    return make_key(
        "local answer",
        local.identity,
        question.text,
        question.max_tokens,
        len(images),
        *images,
    )


def _effort(pending: _Pending) -> tuple[int, int, int]:
    """Return a sort key by which similarly expensive questions share a batch."""
    question = pending.question
    return question.max_tokens, len(question.images), len(question.text)


def _max_tokens(pending: _Pending) -> int:
    return pending.question.max_tokens


def _answer_batch(
    pending: Sequence[_Pending], *, local: LocalModel, answers: Answers
) -> list[Reply]:
    """Answer questions with the same limit of tokens."""
    loaded: list[tuple[_Pending, Loaded]] = []
    replies: list[Reply] = []
    for item in pending:
        try:
            loaded.append((item, _load_question(item.question, local)))
        except RefusedRowError as error:
            state = "no image" if error.reason == UNDECODED else "refused"
            replies.append(
                Reply(
                    name=item.name,
                    state=state,
                    detail=str(error),
                )
            )
    max_tokens = _max_tokens(pending[0])
    generated = _generate([example for _, example in loaded], local, max_tokens)
    for (item, _), answer in zip(loaded, generated, strict=True):
        if isinstance(answer, Exception):
            detail = (str(answer) or type(answer).__name__)[:200]
            replies.append(
                Reply(
                    name=item.name,
                    state="refused",
                    detail=detail,
                )
            )
        else:
            answers.store_value(item.key, CUT * answer.cut + answer.text.encode())
            replies.append(
                Reply(
                    name=item.name,
                    text=answer.text,
                    cut=answer.cut,
                )
            )
    return replies


def _load_question(question: Question, local: LocalModel) -> Loaded:
    """Return a question with its images decoded; ``RefusedRowError`` for an unusable one."""
    for text, tokens in local.chat.tokenise_answers(question.text.split(PLACE)).items():
        local.chat.refuse_control_tokens(text, tokens)
    turns = (Turn(role="user", text=question.text),)
    example = Example(
        key="",
        turns=turns,
        images=question.images,
        chosen="",
    )
    return load_example(example, local.max_pixels, pairs=local.takes_pairs, grid=local.grid)


def _generate(
    items: Sequence[Loaded], local: LocalModel, most: int
) -> Sequence[Generated | Exception]:
    """Return the answers; for images that the processor refuses, its error instead."""
    if not items:
        return []
    model = (
        local.greedy_model
    )  # outside the try: a model that cannot be loaded must not refuse questions
    try:
        with computing(choose_device(), local.precision):
            return generate_answers(model, local.chat.processor, items, most_tokens=most)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if len(items) == 1:  # processors raise errors of many kinds
            return [error]
    results: list[Generated | Exception] = []
    for item in items:
        results += _generate([item], local, most)
    return results


# ---- held-out rows


def sample_answers(trainer: "PreferenceTrainer", run: Path) -> None:
    """Write the model's answers to held-out rows."""
    writes_all = trainer.setup.config.output.write_answers
    samples = answer_held_out(trainer, most=None if writes_all else COUNT)
    write_samples(run, samples[:COUNT])
    if writes_all:
        rows = [(sample.key, sample.answer, sample.reference) for sample in samples]
        write_answers(Run(run).answers, rows)


def measure_unreadable(trainer: "PreferenceTrainer") -> dict[str, float]:
    """Return the share of unreadable held-out answers.

    Unreadable: empty, cut off, or not in the chosen one's template.
    """
    samples = answer_held_out(trainer, most=COUNT)
    if not samples:
        return {}
    examples = cast("Any", trainer.eval_dataset)
    if isinstance(examples, Subset):
        examples = cast("Any", examples.dataset)
    verbs = examples.rows.verbs
    count = sum(_is_unreadable(sample, verbs) for sample in samples)
    return {UNREADABLE: count / len(samples)}


def _is_unreadable(sample: Sample, verbs: tuple[str, ...]) -> bool:
    reference = read_difference(sample.reference, verbs)
    answer = read_difference(sample.answer, verbs)
    if sample.cut or not sample.answer:
        return True
    return isinstance(reference, Difference) and not isinstance(answer, Difference)


def answer_held_out(trainer: "PreferenceTrainer", *, most: int | None) -> list[Sample]:
    """Return the model's answers to the first ``most`` held-out rows, or to all.

    None where FSDP shards its weights. Rows that training would refuse, such as those with too long
    a prompt, are left out. ``KeyboardInterrupt``: the training is to stop.
    """
    held_out = cast("Any", trainer.eval_dataset)
    config = trainer.setup.config
    count = 0 if trainer.is_fsdp_enabled else len(held_out)
    lengths = _measure_references(trainer, range(count)[:most])
    longest = max(lengths.values(), default=0)
    max_tokens = max(MOST_TOKENS, min(ROOM * longest, LONGEST))
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    model.eval()

    def answer_rows(rows: Sequence[int]) -> list[Sample]:
        if trainer.stopping and count_ranks() == 1:
            raise KeyboardInterrupt
        items = [held_out[row] for row in rows]
        with computing(trainer.args.device, choose_precision(config)):
            answers = generate_answers(
                model, trainer.processing_class, items, most_tokens=max_tokens
            )
        return list(map(_make_sample, items, answers))

    batches = AdaptiveBatches(fixed=config.optimiser.per_device_train_batch_size)
    usable = [row for row, length in lengths.items() if length]
    return list(chain.from_iterable(batches.run_batches(answer_rows, usable)))


def _measure_references(trainer: "PreferenceTrainer", rows: Iterable[int]) -> dict[int, int]:
    """Return the tokens of each held-out row's longest reference; 0 for a refused row."""
    held_out = cast("Any", trainer.eval_dataset)
    collate = trainer.answer_collator
    lengths: dict[int, int] = {}
    for row in rows:
        item = held_out[row]
        lengths[row] = 0
        if isinstance(item, Loaded):
            answers = chain.from_iterable(collate([item])["batch"].answers)
            lengths[row] = max((len(answer.ids) for answer in answers), default=0)
    return lengths


def _make_sample(item: Loaded, answer: Generated) -> Sample:
    example = item.example
    return Sample(
        key=example.key,
        prompt="\n".join(turn.text for turn in example.turns),
        images=example.images,
        reference=example.chosen,
        answer=answer.text,
        rejected=next(iter(example.rejected), ""),
        cut=answer.cut,
    )
