"""Let a checkpoint on this machine answer questions, in batches, greedily and without penalties.

Reads a folder as ``find_model`` finds it, adapters merged in. Answers are kept under a key of the question, its images
and the checkpoint's files, so that what was answered before is not asked again. Needs PyTorch and transformers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from itertools import groupby, islice
from typing import Any, NamedTuple

import torch
from transformers import GenerationConfig

from pairwright.schemas.replies import Reply
from pairwright.schemas.rows import Turn, make_key
from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.models.batches import Batches, is_out_of_memory
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.serving.chat import Question
from pairwright.tasks.store.answers import Answers
from pairwright.tasks.training.answer_rows import Said, say_answers
from pairwright.tasks.training.chat import Chat
from pairwright.tasks.training.collate import Loaded, load_example
from pairwright.tasks.training.examples import PLACE, Example, RefusedRowError
from pairwright.tasks.training.find_model import Found, find_module
from pairwright.tasks.training.load_model import choose_precision, load_model, load_processor
from pairwright.tasks.training.tune_model import computing

VERSION = 1
"""Raised when the same question is asked in another way."""
UNDECODED = "an image cannot be decoded"
"""What ``load_example`` says of one."""
CUT = b"\0"
"""Before an answer that is kept: it was cut."""
AT_ONCE = 256
"""Questions whose images are in memory together."""


@dataclass(frozen=True)
class LocalModel:
    """Be a checkpoint on this machine, loaded when it is first asked: on a GPU in bfloat16, on a CPU in float32."""

    found: Found
    max_pixels: int
    """Larger images are scaled down to so many pixels."""

    @cached_property
    def identity(self) -> str:
        """Return the hash of its files and of what else decides an answer."""
        return make_key("local model", VERSION, self.found.revision, str(self.precision), self.max_pixels)

    @cached_property
    def processor(self) -> Any:
        """Return its processor."""
        return load_processor(self.found.folder)

    @cached_property
    def chat(self) -> Chat:
        """Return its chat format."""
        return Chat(self.processor)

    @cached_property
    def model(self) -> Any:
        """Return its model, which takes the likeliest token each time, whatever its own settings say."""
        config = ModelConfig(attn_implementation="sdpa")
        model = load_model(self.found.folder, config, dtype=self.precision).to(choose_device()).eval()
        own = model.generation_config
        ends = {name: getattr(own, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        if ends["pad_token_id"] is None:
            ends["pad_token_id"] = self.processor.tokenizer.pad_token_id
        model.generation_config = GenerationConfig(**ends)
        return model

    @cached_property
    def pairs(self) -> bool:
        """Say whether it compares images in twos (differential perception)."""
        return find_module(self.found.folder) is not None

    @cached_property
    def precision(self) -> torch.dtype:
        """Return what it computes in."""
        return choose_precision(TrainConfig(objective="sft"))


class Owed(NamedTuple):
    """Be a question without an answer, under the key that its answer will have."""

    key: str
    name: str
    question: Question


def answer_questions(
    questions: Iterable[tuple[str, Question]], answers: Answers, *, local: LocalModel, batch: int
) -> Iterator[Reply]:
    """Yield a reply to each question.

    Args:
        questions: by name; read a few hundred at a time.
        answers: what was said before; new answers are put there as they come.
        local: who answers.
        batch: questions at once; halved where the memory does not suffice.

    Raises:
        ModelError: the checkpoint cannot be loaded, or a single question does not fit in the memory.
    """
    batches = Batches(fixed=batch)
    source = iter(questions)
    while some := list(islice(source, AT_ONCE)):
        owed: list[Owed] = []
        for name, question in some:
            key = _key(question, local)
            kept = answers.get(key)
            if kept is None:
                owed.append(Owed(key, name, question))
            else:
                cut = kept.startswith(CUT)
                yield Reply(name=name, text=kept.removeprefix(CUT).decode(), cut=cut)
        owed.sort(key=lambda one: (one.question.max_tokens, len(one.question.images), len(one.question.text)))
        for most, group in groupby(owed, key=lambda one: one.question.max_tokens):
            work = partial(_answer, local=local, answers=answers, most=most)
            for replies in batches.pieces(work, list(group)):
                yield from replies


def _key(question: Question, local: LocalModel) -> str:
    images = [blake2b(image, digest_size=16).digest() for image in question.images]
    return make_key("local answer", local.identity, question.text, question.max_tokens, len(images), *images)


def _answer(owed: Sequence[Owed], *, local: LocalModel, answers: Answers, most: int) -> list[Reply]:
    loaded: list[tuple[Owed, Loaded]] = []
    replies: list[Reply] = []
    for one in owed:
        try:
            loaded.append((one, _load(one.question, local)))
        except RefusedRowError as error:
            state = "no image" if error.reason == UNDECODED else "refused"
            replies.append(Reply(name=one.name, state=state, detail=str(error)))
    for (one, _), said in zip(loaded, _generate([item for _, item in loaded], local, most), strict=True):
        if isinstance(said, Exception):
            detail = (str(said) or type(said).__name__)[:200]
            replies.append(Reply(name=one.name, state="refused", detail=detail))
        else:
            answers.put(one.key, CUT * said.cut + said.text.encode())
            replies.append(Reply(name=one.name, text=said.text, cut=said.cut))
    return replies


def _load(question: Question, local: LocalModel) -> Loaded:
    """Decode a question's images.

    Raises:
        RefusedRowError: one cannot be decoded, or a control token is in the text, which others wrote.
    """
    pieces = question.text.split(PLACE)
    for tokens in local.chat.tokenise(pieces).values():
        tokens.checked()
    turns = (Turn(role="user", text=question.text),)
    example = Example(key="", turns=turns, images=question.images, chosen="")
    return load_example(example, local.max_pixels, pairs=local.pairs)


def _generate(items: Sequence[Loaded], local: LocalModel, most: int) -> Sequence[Said | Exception]:
    """Return the answers; where a processor refuses some of the images, what it says of those."""
    if not items:
        return []
    model = local.model  # outside of what follows: one that cannot be loaded refuses no question
    try:
        with computing(choose_device(), local.precision):
            return say_answers(model, local.processor, items, most_tokens=most)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        if len(items) == 1:  # processors raise errors of many kinds
            return [error]
    return [one for item in items for one in _generate([item], local, most)]
