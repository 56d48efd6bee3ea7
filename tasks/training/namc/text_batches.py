"""Training batches of NAMC: both images of a row, and its description as words that can be masked.

Reads a run's frozen rows and, at the paper's size, its copies of the tables ``grids`` and ``codes``
(``tables.py``). Memory: 4 kB of text per row; at the small size also 12 kB per image. Pre-training
at the paper's size reads 0.8 MB per row and epoch, and decodes both images for CLIP.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairwright.prompts import difference_verbs
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb
from pairwright.tasks.models.namc import NO_WORD, Described
from pairwright.tasks.models.namc_places import SMALL_SIDE, crop_small, split_patches, to_codes
from pairwright.tasks.models.namc_words import ClipWords, DecoderWords
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.training.freeze_rows import PAIR, FrozenRows, Refused
from pairwright.tasks.training.namc.feature_tables import Copies

NO_HALVES, NOT_SEEN = "no implicit-change description", "an image could not be encoded"


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a row; ``parts``: its halves, ``None`` unless it is an implicit-change description."""

    place: int  # position among the frozen rows of its split
    key: str
    chosen: str
    images: tuple[str, ...]  # keys of both
    parts: Difference | None


def read_texts(
    rows: FrozenRows, *, halves: bool, limit: int = 0, seed: int = 0
) -> tuple[list[Text], list[Refused]]:
    """Return the texts of a split's rows, and the rows refused.

    ``halves``: each text must be an implicit-change description, with words to mask; ``limit``:
    number of rows, drawn by ``seed``; 0: all.
    """
    drawn = set(np.random.default_rng(seed).permutation(len(rows))[: limit or None].tolist())
    texts, refused = list[Text](), list[Refused]()
    for place, row in (
        (place, row) for place, row in enumerate(rows.read_texts()) if place in drawn
    ):
        text = row.description or row.chosen
        parts = read_difference(text, difference_verbs())
        if len(row.image_keys) != PAIR:
            refused.append(Refused(key=row.key, reason="not about two images"))
        elif isinstance(parts, Difference) or not halves:
            texts.append(
                Text(
                    place,
                    row.key,
                    text,
                    row.image_keys,
                    parts if isinstance(parts, Difference) else None,
                )
            )
        else:
            refused.append(Refused(key=row.key, reason=NO_HALVES, detail=parts.reason))
    return texts, refused


def read_small(rows: FrozenRows, texts: Iterable[Text]) -> Copies:
    """Return the small size's inputs of rows' images, each decoded once; patch values as bytes."""
    crops, tried, blank = (
        dict[str, NDArray[np.uint8]](),
        set[str](),
        np.zeros((SMALL_SIDE, SMALL_SIDE, 3), np.uint8),
    )
    for text in (text for text in texts if not tried >= set(text.images)):
        tried |= set(text.images)
        for key, data in zip(text.images, rows.read(text.place).images, strict=True):
            with suppress(RefusedImageError):
                crops[key] = crop_small(decode_rgb(data))
    patches = split_patches(np.stack(list(crops.values()) or [blank]))
    return Copies(
        images={key: place for place, key in enumerate(crops)},
        grids=patches,
        codes=to_codes(patches),
    )


class TextBatches:
    """Batches of texts and image features.

    ``clip`` splits texts into maskable words, ``words`` is the decoder's vocabulary, ``length`` the
    maximum tokens of a description. ``show`` returns CLIP's pixels, ``(B, 2, 3, h, w)``, of texts
    with these features; ``None``: nothing is masked.
    """

    def __init__(
        self,
        texts: Sequence[Text],
        copies: Copies,
        *,
        clip: ClipWords,
        words: DecoderWords,
        length: int,
        show: Callable[[Sequence[Text], Tensor], Tensor] | None = None,
    ) -> None:
        self.texts, self._copies, self._pad, self._show = texts, copies, words.pad, show
        self._spelled = [
            tuple(half.lower() for half in _halves(text)) for text in texts
        ]  # equal for equal halves
        self._halves = [
            (clip.split(first), clip.split(second)) for first, second in map(_halves, texts)
        ]
        self._written = [
            words.write(halves, text.parts.verbs, length=length)
            if text.parts
            else words.write_text(text.chosen, length=length)
            for text, halves in zip(texts, self._halves, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.texts)

    def features(self, rows: Sequence[int]) -> Tensor:
        """Return ``(B, 2, places, features)``: the CNN's in float16, or at the small size the patches."""
        found = self._look_up(self._copies.grids, rows)
        return found / 127.5 - 1 if found.dtype is torch.uint8 else found

    def make(self, rows: Sequence[int]) -> Described:
        """Return a batch of these rows."""
        numbers: dict[str, int] = {}
        texts = [
            [numbers.setdefault(text, len(numbers)) for text in self._spelled[row]] for row in rows
        ]
        features, halves = self.features(rows), [half for row in rows for half in self._halves[row]]
        pixels = codes = torch.empty(len(rows), PAIR, 0, dtype=torch.long)
        if self._show:
            pixels = self._show([self.texts[row] for row in rows], features)
            codes = (
                codes
                if self._copies.codes is None
                else self._look_up(self._copies.codes, rows).long()
            )
        return Described(
            features=features,
            pixels=pixels,
            codes=codes,
            tokens=_stack_pairs(half.tokens for half in halves),
            words=_stack_pairs(half.numbers for half in halves),
            texts=torch.tensor(texts),
            written=_pad_rows([self._written[row].tokens for row in rows], self._pad),
            numbers=_pad_rows([self._written[row].numbers for row in rows], NO_WORD),
        )

    def _look_up(self, values: NDArray[Any], rows: Sequence[int]) -> Tensor:
        return _stack_pairs(
            values[self._copies.images[key]] for row in rows for key in self.texts[row].images
        )

    def ahead(self, orders: Iterable[Sequence[int]]) -> Iterator[Described]:
        """Yield the batches, the next one made while the caller computes."""
        with ThreadPoolExecutor(1) as thread:
            made = None
            for rows in orders:
                before, made = made, thread.submit(self.make, rows)
                if before:
                    yield before.result()
            if made:
                yield made.result()


def _halves(text: Text) -> tuple[str, str]:
    """Return the texts in which words can be masked; empty without a template."""
    return (text.parts.first_half, text.parts.second_half) if text.parts else ("", "")


def _stack_pairs(rows: Iterable[NDArray[np.int64]]) -> Tensor:
    return torch.from_numpy(np.stack(list(rows))).unflatten(0, (-1, PAIR))


def _pad_rows(rows: Sequence[NDArray[np.int64]], value: int) -> Tensor:
    return pad_sequence(
        [torch.from_numpy(row) for row in rows], batch_first=True, padding_value=value
    )
