"""Turn examples into a batch: decode images, apply the chat template, call the processor once.

Runs in loading processes; needs transformers and PyTorch. Prompts and answers stay separate token
lists for ``pack_answers``, since ADPO's answers are known only at the step.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple, Self

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
from pairwright.tasks.training.image_size import ImageGrid
from pairwright.tasks.training.losses import CHOSEN, EXCHANGED, IMAGE, SWAPPED, TEXTS

if TYPE_CHECKING:
    from torch import Tensor

TOO_LONG = "too long"
MAX_ASPECT = 200  # long side of an image per short side: the limit of processors with a grid
# Per-token outputs of processors; answers are of type 0.
PER_TOKEN = ("mm_token_type_ids", "token_type_ids")


@dataclass(frozen=True, slots=True)
class AnswerTokens:
    """Text that follows a prompt, as tokens."""

    column: int  # ``CHOSEN``, ``IMAGE``, or ``TEXTS`` and up
    ids: tuple[int, ...]  # end token included
    # positions without loss: turns between the answers of a conversation
    silent: frozenset[int] = frozenset()

    @property
    def loss_tokens(self) -> tuple[int, ...]:
        """Return the tokens that carry loss; the first one always does."""
        tokens = enumerate(self.ids)
        return tuple(token for position, token in tokens if position not in self.silent)


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
    # (P) tokens, image tokens included
    prompts: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    # (P) answers to each prompt
    answers: list[tuple[AnswerTokens, ...]] = field(default_factory=list[tuple[AnswerTokens, ...]])
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
    # grid of the model's processor; ``None``: it has none
    grid: ImageGrid | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row_index: int) -> Loaded | Refused:
        row = self.rows.read(row_index)
        try:
            example = make_example(row, self.needs)
            return load_example(example, self.max_pixels, pairs=self.needs.pairs, grid=self.grid)
        except RefusedRowError as error:
            return error.to_refused(row.key)


def load_example(
    example: Example,
    max_pixels: int,
    *,
    pairs: bool = False,
    grid: ImageGrid | None = None,
) -> Loaded:
    """Decode an example's images, each scaled down to ``max_pixels``, or into the grid.

    ``pairs``: both images of a pair to the same size. ``RefusedRowError``: an image cannot be
    decoded, or is not one of a pair.
    """
    if pairs and len(example.images) % PAIR:
        raise RefusedRowError(UNPAIRED, f"{len(example.images)} images")
    try:
        images = tuple(_load(image, max_pixels, grid) for image in example.images)
        rejected = tuple(_load(image, max_pixels, grid) for image in example.rejected_images)
    except PairwrightError as error:
        raise RefusedRowError("an image cannot be decoded", str(error)) from error
    if pairs:
        images = match_sizes(images)
    return Loaded(example, images, rejected)


def match_sizes(images: Sequence[Image.Image]) -> tuple[Image.Image, ...]:
    """Return images with each pair in one size, so that both have the same grid.

    It is the geometric means of their widths and heights.
    """
    resized: list[Image.Image] = []
    for first, second in zip(images[::2], images[1::2], strict=True):
        size = isqrt(first.width * second.width), isqrt(first.height * second.height)
        resized += [_resize(first, size), _resize(second, size)]
    return tuple(resized)


def _load(data: bytes, max_pixels: int, grid: ImageGrid | None) -> Image.Image:
    """Return an image, one above ``max_pixels`` at the size that the model's processor chooses."""
    image = Image.fromarray(np.asarray(decode_rgb(data)))
    short, long = sorted(image.size)
    # Processors refuse narrow images, which they then name themselves.
    if grid and short * long > grid.max_pixels and long < MAX_ASPECT * short:
        return _resize(image, grid.fit(*image.size))
    return _shrink(image, max_pixels)


def _shrink(image: Image.Image, max_pixels: int) -> Image.Image:
    scale = min(1.0, (max_pixels / (image.width * image.height)) ** 0.5)
    width = max(1, int(image.width * scale))
    height = max(1, int(image.height * scale))
    return _resize(image, (width, height))


def _resize(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    if image.size == size:
        return image
    return image.resize(size, Image.Resampling.BICUBIC)


class _Prompt(NamedTuple):
    text: str  # rendered
    images: tuple[Image.Image, ...]
    answers: tuple[AnswerTokens, ...]


class _RowPrompts(NamedTuple):
    key: str
    prompts: list[_Prompt]


_Texts = Mapping[str, tuple[int, ...]]  # texts and their tokens


@dataclass(frozen=True)
class Collator:
    """Collate function; picklable if the processor is."""

    processor: Any  # from ``AutoProcessor``
    longest: int  # maximum tokens of a prompt and its longest answer
    apart: bool = False  # whether each answer has a prompt of its own: for models without packing
    # number of answers added at the step (ADPO); with ``apart`` each has a prompt reserved
    late: int = 0

    def __post_init__(self) -> None:
        self.chat.require_answers()  # fails here, not in a loading process

    @cached_property
    def chat(self) -> ChatFormat:
        """Return the model's chat format."""
        return ChatFormat(self.processor)

    def __call__(self, items: Iterable[Loaded | Refused]) -> dict[str, Batch]:
        """Return the batch of some examples.

        Those that cannot be encoded or are too long are refused.
        """
        items = list(items)
        refused = [item for item in items if isinstance(item, Refused)]
        loaded = [item for item in items if isinstance(item, Loaded)]
        texts = chain.from_iterable(_texts(item.example) for item in loaded)
        tokens = self.chat.tokenise_answers(texts)
        rows: list[_RowPrompts] = []
        for item in loaded:
            key = item.example.key
            try:
                rows.append(_RowPrompts(key, self._make_prompts(item, tokens)))
            except RefusedRowError as error:
                refused.append(error.to_refused(key))
        batch, rows = self._encode_good(rows, refused)
        fitting = self._refuse_long(batch, rows, refused)
        if len(fitting) < len(rows):
            batch = self._encode(fitting)
        batch.refused = refused
        return {"batch": batch}

    def _refuse_long(
        self,
        batch: Batch,
        rows: Sequence[_RowPrompts],
        refused: list[Refused],
    ) -> list[_RowPrompts]:
        """Return the rows that are not too long; add the others to ``refused``."""
        fitting: list[_RowPrompts] = []
        for index, row in enumerate(rows):
            length = self._length(batch, index)
            if length > self.longest:
                detail = f"{length} tokens, model.max_length is {self.longest}"
                refused.append(
                    Refused(
                        key=row.key,
                        reason=TOO_LONG,
                        detail=detail,
                    )
                )
            else:
                fitting.append(row)
        return fitting

    def answers(self, texts: Sequence[str], column: int) -> list[AnswerTokens]:
        """Return texts as answers; ``RefusedRowError`` for a control token."""
        tokens = self.chat.tokenise_answers(texts)
        return [self._answer(text, column, tokens) for text in texts]

    def _make_prompts(self, item: Loaded, tokens: _Texts) -> list[_Prompt]:
        example = item.example
        for text in _texts(example):
            self.chat.refuse_control_tokens(text, tokens[text])
        messages = make_messages(example.conversation, len(item.images))
        chosen = self._conversation(example, messages, tokens)
        if chosen is None:
            return self._prompts_by_answer(item, messages, tokens)
        answers = [chosen]
        for column, text in enumerate(example.rejected, TEXTS):
            answers.append(self._answer(text, column, tokens))
        other_answers = [AnswerTokens(IMAGE, chosen.ids)]
        if example.exchanged:
            answers.append(self._answer(example.exchanged, SWAPPED, tokens))
            other_answers.append(self._answer(example.exchanged, EXCHANGED, tokens))
        question = self.chat.render_prompt(messages[: len(example.turns)])
        groups = self._group(answers)
        if self.apart:
            groups += [()] * self.late
        prompts = [_Prompt(question, item.images, group) for group in groups]
        if item.rejected_images:
            other_groups = self._group(other_answers)
            prompts += [_Prompt(question, item.rejected_images, group) for group in other_groups]
        return prompts

    def _group(self, answers: Sequence[AnswerTokens]) -> list[tuple[AnswerTokens, ...]]:
        """Return the answers of each prompt."""
        return [(answer,) for answer in answers] if self.apart else [tuple(answers)]

    def _conversation(
        self,
        example: Example,
        messages: Sequence[dict[str, Any]],
        tokens: _Texts,
    ) -> AnswerTokens | None:
        """Return all answers of a conversation as one, the turns between them silent.

        ``None``: the template rewrites earlier answers.
        """
        answer = self._answer(example.chosen, CHOSEN, tokens)
        for number, turn in enumerate(example.then[1::2]):
            between = self.chat.between(messages, len(example.turns) + 2 * number)
            if between is None:
                return None
            start = len(answer.ids)
            silent = range(start, start + len(between))
            next_answer = self._answer(turn.text, CHOSEN, tokens)
            ids = (*answer.ids, *between, *next_answer.ids)
            answer = AnswerTokens(CHOSEN, ids, answer.silent.union(silent))
        return answer

    def _prompts_by_answer(
        self,
        item: Loaded,
        messages: Sequence[dict[str, Any]],
        tokens: _Texts,
    ) -> list[_Prompt]:
        """Return a prompt for each answer of a conversation; their log-probabilities add up."""
        example = item.example
        prompts: list[_Prompt] = []
        for index in range(len(example.turns), len(example.conversation), 2):
            question = self.chat.render_prompt(messages[:index])
            answer = self._answer(example.conversation[index].text, CHOSEN, tokens)
            prompts.append(_Prompt(question, item.images, (answer,)))
        return prompts

    def _answer(
        self,
        text: str,
        column: int,
        tokens: _Texts,
    ) -> AnswerTokens:
        if PLACE in text:
            raise RefusedRowError("a control token in a text", PLACE)
        self.chat.refuse_control_tokens(text, tokens[text])
        return AnswerTokens(column, (*tokens[text], *self.chat.frame.end))

    def _encode_good(
        self, rows: list[_RowPrompts], refused: list[Refused]
    ) -> tuple[Batch, list[_RowPrompts]]:
        """Encode the rows together; on an error one by one, to refuse those that cause it."""
        try:
            return self._encode(rows), rows
        except Exception as error:  # processors raise errors of many kinds
            if len(rows) == 1:
                detail = (str(error) or type(error).__name__)[:200]
                reason = "the processor refuses it"
                refused.append(
                    Refused(
                        key=rows[0].key,
                        reason=reason,
                        detail=detail,
                    )
                )
                return self._encode([]), []
            good: list[_RowPrompts] = []
            for row in rows:
                _, encoded = self._encode_good([row], refused)
                good += encoded
            if len(good) == len(rows):  # nothing is wrong with any of them
                raise
        return self._encode(good), good

    def _encode(self, rows: Sequence[_RowPrompts]) -> Batch:
        batch = Batch(keys=[row.key for row in rows])
        prompts: list[_Prompt] = []
        for index, row in enumerate(rows):
            prompts += row.prompts
            batch.owners += [index] * len(row.prompts)
        if not prompts:
            return batch
        texts = [prompt.text for prompt in prompts]
        images = [list(prompt.images) for prompt in prompts]
        outputs = self.processor(
            text=texts,
            images=images if any(images) else None,
            padding=True,
            return_tensors="pt",
            **encoding_options(self.processor, texts[0]),
        )
        mask = outputs.pop("attention_mask").bool()
        batch.answers = [prompt.answers for prompt in prompts]
        batch.prompts = _ragged(outputs.pop("input_ids"), mask)
        for name in PER_TOKEN:
            if name in outputs:
                batch.types[name] = _ragged(outputs.pop(name), mask)
        batch.extras = dict(outputs)
        return batch

    def _length(self, batch: Batch, example: int) -> int:
        """Return the tokens of an example's longest prompt and longest answer."""
        longest_prompt = 0
        longest_answer = 0
        for prompt_index, owner in enumerate(batch.owners):
            if owner != example:
                continue
            longest_prompt = max(longest_prompt, len(batch.prompts[prompt_index]))
            for answer in batch.answers[prompt_index]:
                longest_answer = max(longest_answer, len(answer.ids))
        return longest_prompt + longest_answer


def _texts(example: Example) -> Iterable[str]:
    for turn in example.conversation:
        yield from turn.text.split(PLACE)
    yield from example.rejected
    if example.exchanged:
        yield example.exchanged


def _ragged(tokens: "Tensor", mask: "Tensor") -> list[tuple[int, ...]]:
    rows = zip(tokens, mask, strict=True)
    return [tuple(row[is_real].tolist()) for row, is_real in rows]


Collate = Callable[[Iterable[Loaded | Refused]], dict[str, Batch]]
