"""Prepare what NAMC learns from: both images of a row as a crop, its description in words that can be masked.

Reads a run's frozen rows; writes the crops into one file of the run (24 kB per row), anew at each start, which is
mapped and not held. Texts stay in memory, about 4 kB per row. Rows that cannot be learnt from get a reason.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch.nn.functional import pad

from prompts import difference_verbs
from schemas.differences import Difference, read_difference
from schemas.rows import make_key
from tasks.models.namc.namc import Described
from tasks.models.namc.noise import NO_WORD
from tasks.models.namc.words import ClipWords, DecoderWords, Words, Written
from tasks.store.files import naming
from tasks.store.images import RefusedImageError
from tasks.training.freeze_rows import FrozenRows, Refused
from tasks.training.namc.pictures import SIDE, crop, to_codes, to_patches, to_pixels

if TYPE_CHECKING:
    from torch import Tensor

Progress = Callable[[int, int], None]
PAIR = 2


@dataclass(frozen=True, slots=True)
class Text:
    """Be what a row says."""

    key: str
    chosen: str
    parts: Difference | None
    """Its halves; ``None``: it is no implicit-change description."""


@dataclass(frozen=True, slots=True)
class Material:
    """Hold what can be learnt from, row by row: texts, and ``(rows, 2, 64, 64, 3)`` crops."""

    texts: Sequence[Text]
    crops: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.texts)

    def some(self, rows: Sequence[int]) -> "Tensor":
        """Return the crops of these rows, ``(B, 2, 64, 64, 3)`` bytes."""
        return torch.from_numpy(np.stack([self.crops[row] for row in rows]))


def prepare_material(
    rows: FrozenRows, file: Path, *, halves: bool, limit: int = 0, seed: int = 0
) -> tuple[Material, list[Refused]]:
    """Return what the rows of a split give, and which of them give nothing.

    Args:
        rows: the frozen rows.
        file: where the crops are kept.
        halves: whether a text must be an implicit-change description, whose words can be masked.
        limit: take so many rows, drawn by ``seed``; 0: all.
        seed: of the draw.

    Raises:
        StoreError: a row cannot be read, or the disk refuses.
    """
    order = np.random.default_rng(seed).permutation(len(rows))[: limit or None]
    refused: list[Refused] = []
    texts: list[Text] = []
    with naming(str(file), "written"):
        growing = file.with_suffix(".part")
        crops = open_memmap(growing, mode="w+", dtype=np.uint8, shape=(max(len(order), 1), PAIR, SIDE, SIDE, 3))
        for place in sorted(order.tolist()):
            row = rows.read(place)
            found = _read(row.key, row.chosen, row.images, halves=halves)
            if isinstance(found, Refused):
                refused.append(found)
                continue
            text, crops[len(texts)] = found
            texts.append(text)
        crops.flush()
        growing.replace(file)
    return Material(texts, np.load(file, mmap_mode="r")), refused


def _read(key: str, chosen: str, images: Sequence[bytes], *, halves: bool) -> tuple[Text, NDArray[np.uint8]] | Refused:
    """Return a row's text and its crops ``(2, 64, 64, 3)``, or why it has none."""
    if len(images) != PAIR:
        return Refused(key=key, reason="not about two images", detail=f"{len(images)} images")
    parts = read_difference(chosen, difference_verbs())
    if halves and not isinstance(parts, Difference):
        return Refused(key=key, reason="no implicit-change description", detail=parts.reason)
    try:
        crops = np.stack([crop(data) for data in images])
    except RefusedImageError as error:
        return Refused(key=key, reason="an image cannot be decoded", detail=str(error))
    return Text(key, chosen, parts if isinstance(parts, Difference) else None), crops


@dataclass(frozen=True)
class Sentence:
    """Be a text as both tokenizers have it."""

    halves: tuple[Words, Words]
    """Empty where words cannot be masked."""
    written: Written
    identity: tuple[str, str]
    """Equal where halves are the same text."""


class Batches:
    """Make batches of material."""

    def __init__(self, material: Material, *, clip: ClipWords, words: DecoderWords, length: int) -> None:
        self._material, self._pad = material, words.pad
        self._sentences = [_sentence(text, clip, words, length) for text in material.texts]

    def make(self, rows: Sequence[int]) -> tuple[Described, "Tensor"]:
        """Return a batch, and ``(B, 2)`` numbers that are equal where halves are the same text."""
        sentences = [self._sentences[row] for row in rows]
        crops = self._material.some(rows)
        longest = max(len(one.written.tokens) for one in sentences)
        numbers: dict[str, int] = {}
        identity = [[numbers.setdefault(text, len(numbers)) for text in one.identity] for one in sentences]
        batch = Described(
            pixels=to_pixels(crops),
            features=to_patches(crops),
            codes=to_codes(crops),
            tokens=_both(half.tokens for one in sentences for half in one.halves),
            words=_both(half.numbers for one in sentences for half in one.halves),
            written=_filled([one.written.tokens for one in sentences], longest, self._pad),
            numbers=_filled([one.written.numbers for one in sentences], longest, NO_WORD),
        )
        return batch, torch.tensor(identity)

    def seeds(self, rows: Sequence[int], epoch: int) -> list[int]:
        """Return what masks are drawn by: of all first images, then of all second ones; each row has its own."""
        keys = [self._material.texts[row].key for row in rows]
        return [int(make_key("mask", key, str(side), str(epoch))[:16], 16) for side in range(PAIR) for key in keys]


def _sentence(text: Text, clip: ClipWords, words: DecoderWords, length: int) -> Sentence:
    if text.parts is None:
        empty = clip.split("")
        return Sentence((empty, empty), words.write_text(text.chosen, length=length), ("", ""))
    own = (text.parts.first_half, text.parts.second_half)
    halves = (clip.split(own[0]), clip.split(own[1]))
    written = words.write(halves, text.parts.verbs, length=length)
    return Sentence(halves, written, (own[0].lower(), own[1].lower()))


def _both(rows: Iterator[NDArray[np.int64]]) -> "Tensor":
    return torch.from_numpy(np.stack(list(rows))).unflatten(0, (-1, PAIR))


def _filled(rows: Sequence[NDArray[np.int64]], length: int, value: int) -> "Tensor":
    return torch.stack([pad(torch.from_numpy(row), (0, length - len(row)), value=value) for row in rows])
