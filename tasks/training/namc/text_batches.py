"""Training batches of NAMC: both images of a row, and its description as words that can be masked.

Reads a run's frozen rows and, at the paper's size, its copies of the tables ``grids`` and ``codes``
(``feature_tables``). Memory: 4 kB of text per row; at the small size also 12 kB per image.
Pre-training at the paper's size reads 0.8 MB per row and epoch, and decodes both images for CLIP.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pairwright.tasks.images.decode import RefusedImageError, decode_rgb
from pairwright.tasks.models.namc import NO_WORD, Described
from pairwright.tasks.models.namc_places import SMALL_SIDE, crop_small, split_patches, to_codes
from pairwright.tasks.models.namc_words import ClipWords, DecoderWords, TokenisedText
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.training.freeze_rows import PAIR, FrozenRows, Refused
from pairwright.tasks.training.namc.feature_tables import Copies

NO_HALVES, NOT_SEEN = "no implicit-change description", "an image could not be encoded"


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a row; ``parts``: the halves of an implicit-change description, else ``None``."""

    position: int  # among the frozen rows of its split
    key: str
    chosen: str
    images: tuple[str, ...]  # keys of both
    parts: Difference | None

    @property
    def maskable_parts(self) -> tuple[str, str]:
        """Return the texts in which words can be masked; empty without a template."""
        if self.parts is None:
            return "", ""
        return self.parts.first_half, self.parts.second_half


def collect_texts(
    rows: FrozenRows, *, halves: bool, limit: int = 0, seed: int = 0
) -> tuple[list[Text], list[Refused]]:
    """Return the texts of a split's rows, and the rows refused.

    ``halves``: each text must be an implicit-change description, with words to mask; ``limit``:
    number of rows, drawn by ``seed``; 0: all.
    """
    permutation = np.random.default_rng(seed).permutation(len(rows))
    drawn = set(permutation[: limit or None].tolist())
    texts = list[Text]()
    refused = list[Refused]()
    verbs = rows.verbs
    for position, row in enumerate(rows.read_texts()):
        if position not in drawn:
            continue
        chosen = row.description or row.chosen
        parts = read_difference(chosen, verbs)
        if len(row.image_keys) != PAIR:
            refused.append(Refused(key=row.key, reason="not about two images"))
        elif isinstance(parts, Difference):
            texts.append(Text(position, row.key, chosen, row.image_keys, parts))
        elif halves:
            refused.append(Refused(key=row.key, reason=NO_HALVES, detail=parts.reason))
        else:
            texts.append(Text(position, row.key, chosen, row.image_keys, None))
    return texts, refused


def read_small(rows: FrozenRows, texts: Iterable[Text]) -> Copies:
    """Return the small size's inputs of rows' images, each decoded once; patch values as bytes."""
    crops = dict[str, NDArray[np.uint8]]()
    tried = set[str]()
    for text in texts:
        if tried >= set(text.images):
            continue
        tried |= set(text.images)
        for key, data in zip(text.images, rows.read(text.position).images, strict=True):
            with suppress(RefusedImageError):
                crops[key] = crop_small(decode_rgb(data))
    blank = np.zeros((SMALL_SIDE, SMALL_SIDE, 3), np.uint8)
    patches = split_patches(np.stack(list(crops.values()) or [blank]))
    return Copies(
        images={key: position for position, key in enumerate(crops)},
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
        self.texts = texts
        self._copies = copies
        self._pad = words.pad
        self._show = show
        self._spelled = list[tuple[str, str]]()  # equal for equal halves
        self._halves = list[tuple[TokenisedText, TokenisedText]]()
        self._written = list[TokenisedText]()
        for text in texts:
            first, second = text.maskable_parts
            halves = (clip.split_words(first), clip.split_words(second))
            if text.parts:
                written = words.compose(halves, text.parts.verbs, length=length)
            else:
                written = words.write_text(text.chosen, length=length)
            self._spelled.append((first.lower(), second.lower()))
            self._halves.append(halves)
            self._written.append(written)

    def __len__(self) -> int:
        return len(self.texts)

    def features(self, rows: Sequence[int]) -> Tensor:
        """Return ``(B, 2, places, features)``: the CNN's in float16, or patches (small size)."""
        features = self._look_up(self._copies.grids, rows)
        return features / 127.5 - 1 if features.dtype is torch.uint8 else features

    def make_batch(self, rows: Sequence[int]) -> Described:
        """Return a batch of these rows."""
        features = self.features(rows)
        pixels = codes = torch.empty(len(rows), PAIR, 0, dtype=torch.long)
        if self._show:
            pixels = self._show([self.texts[row] for row in rows], features)
            if self._copies.codes is not None:
                codes = self._look_up(self._copies.codes, rows).long()
        halves = [half for row in rows for half in self._halves[row]]
        written = [self._written[row] for row in rows]
        return Described(
            features=features,
            pixels=pixels,
            codes=codes,
            tokens=_stack_pairs(half.tokens for half in halves),
            words=_stack_pairs(half.numbers for half in halves),
            texts=torch.tensor(self._number_texts(rows)),
            written=_pad_rows([text.tokens for text in written], self._pad),
            numbers=_pad_rows([text.numbers for text in written], NO_WORD),
        )

    def _number_texts(self, rows: Sequence[int]) -> list[list[int]]:
        """Return the numbers of each row's halves, equal for equal ones."""
        numbers: dict[str, int] = {}
        numbered = list[list[int]]()
        for row in rows:
            halves = self._spelled[row]
            numbered.append([numbers.setdefault(half, len(numbers)) for half in halves])
        return numbered

    def _look_up(self, values: NDArray[Any], rows: Sequence[int]) -> Tensor:
        keys = [key for row in rows for key in self.texts[row].images]
        return _stack_pairs(values[self._copies.images[key]] for key in keys)

    def ahead(self, orders: Iterable[Sequence[int]]) -> Iterator[Described]:
        """Yield the batches, the next one made while the caller computes."""
        with ThreadPoolExecutor(1) as thread:
            upcoming: Future[Described] | None = None
            for rows in orders:
                current = upcoming
                upcoming = thread.submit(self.make_batch, rows)
                if current:
                    yield current.result()
            if upcoming:
                yield upcoming.result()


def _stack_pairs(rows: Iterable[NDArray[np.int64]]) -> Tensor:
    return torch.from_numpy(np.stack(list(rows))).unflatten(0, (-1, PAIR))


def _pad_rows(rows: Sequence[NDArray[np.int64]], value: int) -> Tensor:
    return pad_sequence(
        [torch.from_numpy(row) for row in rows], batch_first=True, padding_value=value
    )
