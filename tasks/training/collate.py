"""Turn examples into a batch: decode images, apply the chat template, call the model's processor once.

Runs in loading processes; needs transformers and PyTorch. Prompts and answers stay separate token
lists for ``pack_answers``, since ADPO's answers are known only at the step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from PIL import Image

from pairwright.schemas.errors import PairwrightError
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.training.chat_format import ChatFormat, encoding_options, make_messages
from pairwright.tasks.training.freeze_rows import (
    PAIR,
    PLACE,
    UNPAIRED,
    Example,
    FrozenRows,
    Needs,
    Refused,
    RefusedRowError,
    make_example,
)
from pairwright.tasks.training.losses import CHOSEN, IMAGE, TEXTS

if TYPE_CHECKING:
    from torch import Tensor

TOO_LONG = "too long"
PER_TOKEN = (
    "mm_token_type_ids",
    "token_type_ids",
)  # per-token outputs of processors; answers are of type 0


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """Text that follows a prompt, as tokens."""

    column: int  # ``CHOSEN``, ``IMAGE``, or ``TEXTS`` and up
    ids: tuple[int, ...]  # end token included
    silent: frozenset[int] = (
        frozenset()
    )  # positions without loss: turns between the answers of a conversation

    @property
    def targets(self) -> tuple[int, ...]:
        """Return the tokens that carry loss; the first one always does."""
        return tuple(token for place, token in enumerate(self.ids) if place not in self.silent)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Example with its images decoded."""

    example: Example
    images: tuple[Image.Image, ...]
    rejected_images: tuple[Image.Image, ...]


@dataclass(slots=True)
class Batch:
    """B examples as P prompts: an example with rejected images has two."""

    keys: list[str]  # (B) row keys
    owners: list[int] = field(default_factory=list[int])  # (P) index into ``keys``
    prompts: list[tuple[int, ...]] = field(
        default_factory=list[tuple[int, ...]]
    )  # (P) tokens, image tokens included
    answers: list[tuple[AnswerTokens, ...]] = field(
        default_factory=list[tuple[AnswerTokens, ...]]
    )  # (P) answers to each prompt
    types: dict[str, list[tuple[int, ...]]] = field(
        default_factory=dict[str, list[tuple[int, ...]]]
    )
    """(P) per-token outputs of the processor."""
    extras: "dict[str, Tensor]" = field(default_factory=dict[str, Any])
    """The processor's other tensors (pixels, grids, sizes) for all prompts."""
    refused: list[Refused] = field(default_factory=list[Refused])  # refused rows of the batch

    def pin_memory(self) -> Self:
        """Pin the tensors for asynchronous copies to the GPU."""
        self.extras = {name: tensor.pin_memory() for name, tensor in self.extras.items()}
        return self


@dataclass(frozen=True)
class ExampleRows:
    """Map-style PyTorch dataset of examples; a refused row gives its reason."""

    rows: FrozenRows
    needs: Needs
    max_pixels: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Loaded | Refused:
        row = self.rows.read(place)
        try:
            return load_example(
                make_example(row, self.needs), self.max_pixels, pairs=self.needs.pairs
            )
        except RefusedRowError as error:
            return error.about(row.key)


def load_example(example: Example, max_pixels: int, *, pairs: bool = False) -> Loaded:
    """Decode an example's images, each scaled down to ``max_pixels``; ``pairs``: both of a pair to the same size.

    ``RefusedRowError``: an image cannot be decoded, or is not one of a pair.
    """
    if pairs and len(example.images) % PAIR:
        raise RefusedRowError(UNPAIRED, f"{len(example.images)} images")
    try:
        shown = tuple(_shrink(decode_rgb(image), max_pixels) for image in example.images)
        rejected = tuple(
            _shrink(decode_rgb(image), max_pixels) for image in example.rejected_images
        )
    except PairwrightError as error:
        raise RefusedRowError("an image cannot be decoded", str(error)) from error
    return Loaded(example, match_sizes(shown) if pairs else shown, rejected)


def match_sizes(images: Sequence[Image.Image]) -> tuple[Image.Image, ...]:
    """Return images with each pair in one size, for one grid: the geometric means of their widths and heights."""
    found: list[Image.Image] = []
    for one, other in zip(images[::2], images[1::2], strict=True):
        size = isqrt(one.width * other.width), isqrt(one.height * other.height)
        found += [_resize(image, size) for image in (one, other)]
    return tuple(found)


def _shrink(pixels: Any, most: int) -> Image.Image:
    image = Image.fromarray(np.asarray(pixels))
    scale = min(1.0, (most / (image.width * image.height)) ** 0.5)
    return _resize(image, (max(1, int(image.width * scale)), max(1, int(image.height * scale))))


def _resize(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)


_Prompt = tuple[
    str, tuple[Image.Image, ...], tuple[AnswerTokens, ...]
]  # rendered text, images, answers
_RowPrompts = tuple[str, list[_Prompt]]  # a row's key and its prompts
_Texts = Mapping[str, tuple[int, ...]]  # texts and their tokens


@dataclass(frozen=True)
class Collator:
    """Collate function; picklable if the processor is."""

    processor: Any  # from ``AutoProcessor``
    longest: int  # maximum tokens of a prompt and its longest answer
    apart: bool = False  # whether each answer has a prompt of its own: for models without packing
    late: int = (
        0  # number of answers added at the step (ADPO); with ``apart`` each has a prompt reserved
    )

    def __post_init__(self) -> None:
        _ = self.chat.frame  # fails here, not in a loading process

    @cached_property
    def chat(self) -> ChatFormat:
        """Return the model's chat format."""
        return ChatFormat(self.processor)

    def __call__(self, items: Iterable[Loaded | Refused]) -> dict[str, Batch]:
        """Return the batch of some examples; those that cannot be encoded or are too long are refused."""
        items, kept = list(items), list[_RowPrompts]()
        refused = [item for item in items if isinstance(item, Refused)]
        loaded = [item for item in items if isinstance(item, Loaded)]
        tokens = self.chat.tokenise(text for item in loaded for text in _texts(item.example))
        for item in loaded:
            try:
                kept.append((item.example.key, self._make_prompts(item, tokens)))
            except RefusedRowError as error:
                refused.append(error.about(item.example.key))
        batch, kept = self._encode_good(kept, refused)
        if long := {
            n: length for n in range(len(kept)) if (length := self._length(batch, n)) > self.longest
        }:
            for n, length in long.items():
                detail = f"{length} tokens, model.max_length is {self.longest}"
                refused.append(Refused(key=kept[n][0], reason=TOO_LONG, detail=detail))
            batch = self._encode([one for n, one in enumerate(kept) if n not in long])
        batch.refused = refused
        return {"batch": batch}

    def answers(self, texts: Sequence[str], column: int) -> list[AnswerTokens]:
        """Return texts as answers; ``RefusedRowError`` for a control token."""
        tokens = self.chat.tokenise(texts)
        return [self._answer(text, column, tokens) for text in texts]

    def _make_prompts(self, item: Loaded, tokens: _Texts) -> list[_Prompt]:
        example = item.example
        for text in _texts(example):
            self.chat.check(text, tokens[text])
        messages = make_messages(example.conversation, len(item.images))
        answers = [self._conversation(example, messages, tokens)]
        answers += [
            self._answer(text, TEXTS + n, tokens) for n, text in enumerate(example.rejected)
        ]
        prompt = self.chat.render(messages[: len(example.turns)], add_generation_prompt=True)
        groups = (
            [(answer,) for answer in answers] + [()] * self.late if self.apart else [tuple(answers)]
        )
        prompts: list[_Prompt] = [(prompt, item.images, group) for group in groups]
        if item.rejected_images:
            prompts.append((prompt, item.rejected_images, (AnswerTokens(IMAGE, answers[0].ids),)))
        return prompts

    def _conversation(
        self, example: Example, messages: Sequence[dict[str, Any]], tokens: _Texts
    ) -> AnswerTokens:
        """Return all answers of a conversation as one, the turns between them silent."""
        found = self._answer(example.chosen, CHOSEN, tokens)
        for place, turn in enumerate(example.then[1::2]):
            between = self.chat.between(messages, len(example.turns) + 2 * place)
            start = len(found.ids)
            ids = (*found.ids, *between, *self._answer(turn.text, CHOSEN, tokens).ids)
            found = AnswerTokens(CHOSEN, ids, found.silent | {*range(start, start + len(between))})
        return found

    def _answer(self, text: str, column: int, tokens: _Texts) -> AnswerTokens:
        if PLACE in text:
            raise RefusedRowError("a control token in a text", PLACE)
        self.chat.check(text, tokens[text])
        return AnswerTokens(column, (*tokens[text], *self.chat.frame.end))

    def _encode_good(
        self, kept: list[_RowPrompts], refused: list[Refused]
    ) -> tuple[Batch, list[_RowPrompts]]:
        """Encode the examples together; on an error one by one, to find those that the processor refuses."""
        try:
            return self._encode(kept), kept
        except Exception as error:  # processors raise errors of many kinds
            if len(kept) == 1:
                detail = (str(error) or type(error).__name__)[:200]
                refused.append(
                    Refused(key=kept[0][0], reason="the processor refuses it", detail=detail)
                )
                return self._encode([]), []
            good = [one for each in kept for one in self._encode_good([each], refused)[1]]
            if len(good) == len(kept):  # nothing is wrong with any of them
                raise
        return self._encode(good), good

    def _encode(self, kept: Sequence[_RowPrompts]) -> Batch:
        batch = Batch(keys=[key for key, _ in kept])
        prompts = [(n, ask) for n, (_, own) in enumerate(kept) for ask in own]
        if not prompts:
            return batch
        texts, images = (
            [text for _, (text, _, _) in prompts],
            [list(images) for _, (_, images, _) in prompts],
        )
        given = self.processor(
            text=texts,
            images=images if any(images) else None,
            padding=True,
            return_tensors="pt",
            **encoding_options(self.processor, texts[0]),
        )
        real = given.pop("attention_mask").bool()
        batch.owners = [n for n, _ in prompts]
        batch.answers = [answers for _, (_, _, answers) in prompts]
        batch.prompts = _ragged(given.pop("input_ids"), real)
        batch.types = {name: _ragged(given.pop(name), real) for name in PER_TOKEN if name in given}
        batch.extras = dict(given)
        return batch

    def _length(self, batch: Batch, example: int) -> int:
        own = [n for n, owner in enumerate(batch.owners) if owner == example]
        longest = max(len(answer.ids) for n in own for answer in batch.answers[n])
        return max(len(batch.prompts[n]) for n in own) + longest


def _texts(example: Example) -> Iterable[str]:
    yield from (piece for turn in example.conversation for piece in turn.text.split(PLACE))
    yield from example.rejected


def _ragged(tokens: "Tensor", real: "Tensor") -> list[tuple[int, ...]]:
    return [tuple(row[mask].tolist()) for row, mask in zip(tokens, real, strict=True)]


Collate = Callable[[Iterable[Loaded | Refused]], dict[str, Batch]]
