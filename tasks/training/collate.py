"""Turn examples into a batch: images decoded, chat template applied, one call of the model's own processor.

Runs in the loading processes; needs transformers and PyTorch. Prompts and answers stay apart, as lists of tokens:
``pack_answers`` puts them together, also with answers that are only known at the step (ADPO's).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from PIL import Image

from schemas.errors import PairwrightError
from schemas.rows import Turn
from tasks.store.images import decode_rgb
from tasks.training.examples import PLACE, Example, Needs, RefusedRowError, make_example
from tasks.training.freeze_rows import FrozenRows, Refused
from tasks.training.losses.scored import CHOSEN, IMAGE, TEXTS

if TYPE_CHECKING:
    from torch import Tensor, device

PER_TOKEN = ("mm_token_type_ids", "token_type_ids")
"""What processors give per token of the prompt; answers are of type 0."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Be one text that follows a prompt."""

    column: int
    """``CHOSEN``, ``IMAGE``, or ``TEXTS`` and on."""
    ids: tuple[int, ...]
    """Its tokens, the end mark included."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Be an example with its images decoded."""

    example: Example
    images: tuple[Image.Image, ...]
    rejected_images: tuple[Image.Image, ...]


@dataclass(slots=True)
class Batch:
    """Hold B examples as P prompts: an example whose rejected images are shown has two."""

    keys: list[str]
    """(B) the rows' keys."""
    owners: list[int] = field(default_factory=list[int])
    """(P) the place of each prompt's example in ``keys``."""
    prompts: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    """(P) tokens, those that stand for images included."""
    answers: list[tuple[Answer, ...]] = field(default_factory=list[tuple[Answer, ...]])
    """(P) what follows each."""
    types: dict[str, list[tuple[int, ...]]] = field(default_factory=dict[str, list[tuple[int, ...]]])
    """What the processor gives per token, (P) each."""
    extras: "dict[str, Tensor]" = field(default_factory=dict[str, Any])
    """The processor's other tensors: pixels, grids, sizes, for all prompts at once."""
    refused: list[Refused] = field(default_factory=list[Refused])
    """Rows that should have been here."""

    def to(self, device: "device | str", **how: Any) -> Self:
        """Move the tensors."""
        self.extras = {name: tensor.to(device, **how) for name, tensor in self.extras.items()}
        return self

    def pin_memory(self) -> Self:
        """Pin the tensors, so that they are copied to a GPU beside its work."""
        self.extras = {name: tensor.pin_memory() for name, tensor in self.extras.items()}
        return self


@dataclass(frozen=True)
class ExampleRows:
    """Be a map-style dataset for PyTorch: examples by their place, or why there is none."""

    rows: FrozenRows
    needs: Needs
    most_pixels: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Loaded | Refused:
        row = self.rows.read(place)
        try:
            return load_example(make_example(row, self.needs), self.most_pixels)
        except RefusedRowError as error:
            return Refused(key=row.key, reason=error.reason, detail=error.detail)


def load_example(example: Example, most_pixels: int) -> Loaded:
    """Decode an example's images, scaled down to at most so many pixels.

    Raises:
        RefusedRowError: one cannot be decoded.
    """
    try:
        shown = tuple(_fit(decode_rgb(image), most_pixels) for image in example.images)
        rejected = tuple(_fit(decode_rgb(image), most_pixels) for image in example.rejected_images)
    except PairwrightError as error:
        raise RefusedRowError("an image cannot be decoded", str(error)) from error
    return Loaded(example, shown, rejected)


def _fit(pixels: Any, most: int) -> Image.Image:
    image = Image.fromarray(np.asarray(pixels))
    scale = (most / (image.width * image.height)) ** 0.5
    if scale >= 1:
        return image
    return image.resize((max(1, int(image.width * scale)), max(1, int(image.height * scale))), Image.Resampling.BICUBIC)


def make_messages(turns: Sequence[Turn], images: int) -> list[dict[str, Any]]:
    """Return a prompt as chat templates take it, with a place for each image."""
    marked = any(PLACE in turn.text for turn in turns)
    first = next((n for n, turn in enumerate(turns) if turn.role == "user"), 0)
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        text = PLACE * images + turn.text if number == first and not marked else turn.text
        pieces = text.split(PLACE)
        content: list[dict[str, str]] = []
        for place, piece in enumerate(pieces):
            content += [{"type": "image"}] if place else []
            content += [{"type": "text", "text": piece.strip("\n")}] if piece.strip() else []
        messages.append({"role": turn.role, "content": content})
    return messages


@dataclass(frozen=True)
class Collator:
    """Make batches; picklable as long as the processor is."""

    processor: Any
    """What ``AutoProcessor`` gave."""
    longest: int
    """Tokens of a prompt and its longest answer, at the most."""
    apart: bool = False
    """Whether each answer has a prompt of its own: for models that cannot be packed."""
    room: int = 0
    """Tokens that answers which come later (ADPO's) may need."""

    def __call__(self, items: Iterable[Loaded | Refused]) -> dict[str, Batch]:
        """Return the batch of some examples; those that are too long are refused."""
        items = list(items)
        refused = [item for item in items if isinstance(item, Refused)]
        kept: list[tuple[Loaded, list[_Ask]]] = []
        for item in items:
            if isinstance(item, Loaded):
                try:
                    kept.append((item, list(self._asks(item))))
                except RefusedRowError as error:
                    refused.append(Refused(key=item.example.key, reason=error.reason, detail=error.detail))
        batch = self._encode(kept)
        if long := [n for n in range(len(kept)) if self._length(batch, n) > self.longest]:
            for n in long:
                detail = f"{self._length(batch, n)} tokens, model.longest is {self.longest}"
                refused.append(Refused(key=kept[n][0].example.key, reason="too long", detail=detail))
            batch = self._encode([one for n, one in enumerate(kept) if n not in long])
        batch.refused = refused
        return {"batch": batch}

    def answer(self, text: str, column: int) -> Answer:
        """Return a text as an answer.

        Raises:
            RefusedRowError: it holds one of the model's control tokens.
        """
        self._check(text)
        tokens = self.processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Answer(column, (*tokens, *self._end))

    def _asks(self, item: Loaded) -> "Iterable[_Ask]":
        example = item.example
        for turn in example.turns:
            self._check(turn.text)
        answers = [self.answer(example.chosen, CHOSEN)]
        answers += [self.answer(text, TEXTS + n) for n, text in enumerate(example.rejected)]
        prompt = self.processor.apply_chat_template(
            make_messages(example.turns, len(item.images)), tokenize=False, add_generation_prompt=True
        )
        groups = [(answer,) for answer in answers] if self.apart else [tuple(answers)]
        for group in groups:
            yield _Ask(prompt, item.images, group)
        if item.rejected_images:
            yield _Ask(prompt, item.rejected_images, (Answer(IMAGE, answers[0].ids),))

    def _encode(self, kept: "Sequence[tuple[Loaded, list[_Ask]]]") -> Batch:
        batch = Batch(keys=[item.example.key for item, _ in kept])
        asks = [(n, ask) for n, (_, own) in enumerate(kept) for ask in own]
        if not asks:
            return batch
        images = [list(ask.images) for _, ask in asks]
        given = self.processor(
            text=[ask.text for _, ask in asks],
            images=images if any(images) else None,
            padding=True,
            return_tensors="pt",
        )
        real = given.pop("attention_mask").bool()
        batch.owners = [n for n, _ in asks]
        batch.answers = [ask.answers for _, ask in asks]
        batch.prompts = _ragged(given.pop("input_ids"), real)
        batch.types = {name: _ragged(given.pop(name), real) for name in PER_TOKEN if name in given}
        batch.extras = dict(given)
        return batch

    def _length(self, batch: Batch, example: int) -> int:
        own = [n for n, owner in enumerate(batch.owners) if owner == example]
        room = max(self.room, *(len(answer.ids) for n in own for answer in batch.answers[n]))
        return max(len(batch.prompts[n]) for n in own) + room

    def _check(self, text: str) -> None:
        if found := next((token for token in self._control if token in text), None):
            raise RefusedRowError("a control token in a text", found)

    @cached_property
    def _control(self) -> frozenset[str]:
        tokenizer = self.processor.tokenizer
        added = {str(token) for token in tokenizer.get_added_vocab()}
        return frozenset(added | set(tokenizer.all_special_tokens)) - {PLACE, ""}

    @cached_property
    def _end(self) -> tuple[int, ...]:
        """Return the tokens that end an answer: what the chat template puts behind one, to its first control token."""
        tokenizer, word = self.processor.tokenizer, "answer"
        asked: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "question"}]}]
        said = {"role": "assistant", "content": [{"type": "text", "text": word}]}
        text = self.processor.apply_chat_template([*asked, said], tokenize=False)
        behind = tokenizer(text.rpartition(word)[2], add_special_tokens=False)["input_ids"]
        control = set(tokenizer.get_added_vocab().values()) | set(tokenizer.all_special_ids)
        ends = [n for n, token in enumerate(behind) if token in control]
        return tuple(behind[: ends[0] + 1]) if ends else (tokenizer.eos_token_id,)


@dataclass(frozen=True, slots=True)
class _Ask:
    text: str
    images: tuple[Image.Image, ...]
    answers: tuple[Answer, ...]


def _ragged(tokens: "Tensor", real: "Tensor") -> list[tuple[int, ...]]:
    return [tuple(row[mask].tolist()) for row, mask in zip(tokens, real, strict=True)]


Collate = Callable[[Iterable[Loaded | Refused]], dict[str, Batch]]
