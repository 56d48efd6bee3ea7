"""Prepare what NAMC learns from: both images of a row, its description in words that can be masked.

Reads a run's frozen rows; for the small NAMC, writes the images' crops into one file of the run (24 kB per row), anew
at each start, which is mapped and not held. At the paper's size they are prepared already (``placed``). Texts stay in
memory, about 4 kB per row. Rows that cannot be learnt from get a reason.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import pad

from pairwright.prompts import difference_verbs
from pairwright.schemas.rows import make_key
from pairwright.tasks.models.namc.namc import Described
from pairwright.tasks.models.namc.noise import NO_WORD
from pairwright.tasks.models.namc.words import ClipWords, DecoderWords, Words, Written
from pairwright.tasks.store.files import naming
from pairwright.tasks.store.images import RefusedImageError
from pairwright.tasks.store.vectors import map_new
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.training.examples import PAIR
from pairwright.tasks.training.freeze_rows import FrozenRows, Refused
from pairwright.tasks.training.namc.pictures import SIDE, crop, to_codes, to_patches, to_pixels

if TYPE_CHECKING:
    from torch import Tensor

Order = tuple[int, float, Sequence[int]]
"""A step: its number, from 0, how many epochs are done, and its rows."""
NO_HALVES = "no implicit-change description"


@dataclass(frozen=True, slots=True)
class Text:
    """Be what a row says."""

    key: str
    chosen: str
    parts: Difference | None
    """Its halves; ``None``: it is no implicit-change description."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Be both images of rows as a NAMC is shown them; the fields are those of ``Described``."""

    pixels: "Tensor"
    features: "Tensor"
    codes: "Tensor"


class Pictures(Protocol):
    """Show both images of rows."""

    def features(self, rows: Sequence[int]) -> "Tensor":
        """Return ``(B, 2, places, features)``."""
        ...

    def see(self, rows: Sequence[int]) -> Seen:
        """Return all that is known of them."""
        ...


@dataclass(frozen=True, slots=True)
class Crops:
    """Be the small NAMC's pictures: ``(rows, 2, 64, 64, 3)`` bytes."""

    values: NDArray[np.uint8]

    def features(self, rows: Sequence[int]) -> "Tensor":
        """Return the values of their patches."""
        return to_patches(self._some(rows))

    def see(self, rows: Sequence[int]) -> Seen:
        """Return their pixels, and the colours of their patches, too."""
        crops = self._some(rows)
        return Seen(to_pixels(crops), to_patches(crops), to_codes(crops))

    def _some(self, rows: Sequence[int]) -> "Tensor":
        return torch.from_numpy(np.stack([self.values[row] for row in rows]))


@dataclass(frozen=True, slots=True)
class Material:
    """Hold what can be learnt from, row by row."""

    texts: Sequence[Text]
    pictures: Pictures

    def __len__(self) -> int:
        return len(self.texts)


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
    refused: list[Refused] = []
    texts: list[Text] = []
    order = choose_rows(len(rows), limit, seed)
    with naming(str(file), "written"):
        growing = file.with_suffix(".part")
        crops = map_new(growing, np.uint8, (max(len(order), 1), PAIR, SIDE, SIDE, 3))
        for place in order:
            row = rows.read(place)
            found = _read(row.key, row.chosen, row.images, halves=halves)
            if isinstance(found, Refused):
                refused.append(found)
                continue
            text, crops[len(texts)] = found
            texts.append(text)
        crops.flush()
        growing.replace(file)
    return Material(texts, Crops(np.load(file, mmap_mode="r"))), refused


def choose_rows(rows: int, limit: int, seed: int) -> list[int]:
    """Return the places of ``limit`` of so many rows, drawn by ``seed``, rising; 0: of all."""
    return sorted(np.random.default_rng(seed).permutation(rows)[: limit or None].tolist())


def _read(key: str, chosen: str, images: Sequence[bytes], *, halves: bool) -> tuple[Text, NDArray[np.uint8]] | Refused:
    """Return a row's text and its crops ``(2, 64, 64, 3)``, or why it has none."""
    text = read_text(key, chosen, len(images), halves=halves)
    if isinstance(text, Refused):
        return text
    try:
        return text, np.stack([crop(data) for data in images])
    except RefusedImageError as error:
        return Refused(key=key, reason="an image cannot be decoded", detail=str(error))


def read_text(key: str, chosen: str, images: int, *, halves: bool) -> Text | Refused:
    """Return what a row says, or why that cannot be learnt.

    Args:
        key: the row's.
        chosen: its text.
        images: how many it is about.
        halves: whether the text must be an implicit-change description.
    """
    if images != PAIR:
        return Refused(key=key, reason="not about two images", detail=f"{images} images")
    parts = read_difference(chosen, difference_verbs())
    if halves and not isinstance(parts, Difference):
        return Refused(key=key, reason=NO_HALVES, detail=parts.reason)
    return Text(key, chosen, parts if isinstance(parts, Difference) else None)


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
        self.sentences = [_sentence(text, clip, words, length) for text in material.texts]
        self.relevant: NDArray[np.float32] | None = None
        """``(rows, 2, places + L)``, where it was found before the training what is relevant."""

    def make(self, rows: Sequence[int]) -> tuple[Described, "Tensor"]:
        """Return a batch, and ``(B, 2)`` numbers that are equal where halves are the same text."""
        sentences = [self.sentences[row] for row in rows]
        seen = self._material.pictures.see(rows)
        longest = max(len(one.written.tokens) for one in sentences)
        numbers: dict[str, int] = {}
        identity = [[numbers.setdefault(text, len(numbers)) for text in one.identity] for one in sentences]
        batch = Described(
            pixels=seen.pixels,
            features=seen.features,
            codes=seen.codes,
            tokens=_both(half.tokens for one in sentences for half in one.halves),
            words=_both(half.numbers for one in sentences for half in one.halves),
            written=_filled([one.written.tokens for one in sentences], longest, self._pad),
            numbers=_filled([one.written.numbers for one in sentences], longest, NO_WORD),
            relevant=None if self.relevant is None else torch.from_numpy(self.relevant[list(rows)]),
        )
        return batch, torch.tensor(identity)

    def ahead(self, orders: Iterable[Order]) -> "Iterator[tuple[Order, tuple[Described, Tensor]]]":
        """Yield each step's order with its batch; the next one is made while the caller computes."""
        before: tuple[Order, Future[tuple[Described, Tensor]]] | None = None
        with ThreadPoolExecutor(1) as thread:
            for order in orders:
                made = thread.submit(self.make, order[-1])
                if before:
                    yield before[0], before[1].result()
                before = (order, made)
            if before:
                yield before[0], before[1].result()

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
