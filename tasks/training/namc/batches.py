"""Batches that NAMC learns from: pictures of both images of a row, and its description in words that can be masked.

Reads what ``frozen.py`` wrote. At the small size, which needs no other models, a place is a patch of 8 x 8 pixels: its
features are the patch's values, its code the mean colour, four levels per channel. CLIP sees the same grid. Texts stay
in memory, some 4 kB per row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from pairwright.prompts import difference_verbs
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import make_key
from pairwright.tasks.models.namc import NO_WORD, Described, NamcSizes, NoiseIdentifier
from pairwright.tasks.models.namc_words import ClipWords, DecoderWords, Words, Written
from pairwright.tasks.store.files import naming
from pairwright.tasks.store.vectors import map_new
from pairwright.tasks.texts.differences import Difference, read_difference
from pairwright.tasks.training.freeze_rows import PAIR, Refused
from pairwright.tasks.training.namc.frozen import SMALL_SIDE, Frozen

PATCH, LEVELS = 8, 4
AT_ONCE = 64
"""Rows whose relevance is found at once."""
NO_HALVES = "no implicit-change description"
RELEVANT = "relevant.npy"
Order = tuple[int, float, Sequence[int]]
"""A step: its number, from 0, how many epochs are done, and its rows."""


def small_sizes(vocabulary: int) -> NamcSizes:
    """Return the sizes of the small model."""
    places, features = (SMALL_SIDE // PATCH) ** 2, 3 * PATCH**2
    return NamcSizes(
        width=96, heads=4, places=places, features=features, codes=LEVELS**3, vocabulary=vocabulary, dropout=0.0
    )


def to_patches(crops: Tensor) -> Tensor:
    """Return ``(..., places, 192)`` of ``(..., 64, 64, 3)`` bytes: the values of each patch, in [-1, 1]."""
    return _split(crops).flatten(-3).float() / 127.5 - 1


def to_codes(crops: Tensor) -> Tensor:
    """Return ``(..., places)``: each patch's mean colour as one of 64 codes, red counting most."""
    levels = (_split(crops).float().mean((-3, -2)) * LEVELS / 256).long()
    return levels @ torch.tensor([LEVELS**2, LEVELS, 1], device=crops.device)


def _split(crops: Tensor) -> Tensor:
    """Return ``(..., places, 8, 8, 3)``."""
    rows = crops.unflatten(-3, (-1, PATCH)).unflatten(-2, (-1, PATCH))  # (..., rows, 8, columns, 8, 3)
    return rows.transpose(-4, -3).flatten(-5, -4)


def small_pixels(crops: Tensor) -> Tensor:
    """Return ``(n, 3, 64, 64)`` numbers in [-1, 1] of ``(n, 64, 64, 3)`` bytes: what the small CLIP reads."""
    return crops.movedim(-1, -3).float() / 127.5 - 1


@dataclass(frozen=True, slots=True)
class Text:
    """What a row says; ``parts``: its halves, ``None`` where it is no implicit-change description."""

    key: str
    chosen: str
    parts: Difference | None


def read_rows(
    frozen: Frozen, split: str, *, halves: bool, limit: int = 0, seed: int = 0
) -> tuple[list[Text], NDArray[np.int64], list[Refused]]:
    """Return the texts of a split, ``(rows, 2)`` places of their images, and the rows that cannot be learnt from.

    Args:
        frozen: what was frozen.
        split: the split.
        halves: whether a text must be an implicit-change description, whose words can be masked.
        limit: take so many rows, drawn by ``seed``; 0: all.
        seed: of the draw.
    """
    rows = [row for row in frozen.rows if row["split"] == split]
    drawn = sorted(np.random.default_rng(seed).permutation(len(rows))[: limit or None].tolist())
    texts: list[Text] = []
    sides: list[list[int]] = []
    refused: list[Refused] = []
    for row in (rows[place] for place in drawn):
        found = _read(row, frozen, halves=halves)
        if isinstance(found, Refused):
            refused.append(found)
        else:
            texts.append(found)
            sides.append([frozen.images[key] for key in row["images"]])
    return texts, np.array(sides, dtype=np.int64).reshape(-1, PAIR), refused


def _read(row: dict[str, Any], frozen: Frozen, *, halves: bool) -> Text | Refused:
    """Return what a row says, or why that cannot be learnt."""
    if len(row["images"]) != PAIR:
        return Refused(key=row["key"], reason="not about two images", detail=f"{len(row['images'])} images")
    parts = read_difference(row["chosen"], difference_verbs())
    if halves and not isinstance(parts, Difference):
        return Refused(key=row["key"], reason=NO_HALVES, detail=parts.reason)
    if not all(key in frozen.images for key in row["images"]):
        detail = "it cannot be decoded, or is no image of a pair of the dataset"
        return Refused(key=row["key"], reason="an image could not be encoded", detail=detail)
    return Text(row["key"], row["chosen"], parts if isinstance(parts, Difference) else None)


@dataclass(frozen=True)
class Pictures:
    """Both images of rows as a NAMC is shown them: ``sides`` (rows, 2) says where they are in the files."""

    frozen: Frozen
    sides: NDArray[np.int64]
    pixels: Callable[[Tensor], Tensor] | None = None
    """What turns crops ``(n, side, side, 3)`` into CLIP's pixels; ``None``: nothing is masked."""

    def features(self, rows: Sequence[int]) -> Tensor:
        """Return ``(B, 2, places, features)``: the CNN's, float16 as they are kept; at the small size the patches."""
        grids = self.frozen.grids
        return to_patches(self._some(self.frozen.crops, rows)) if grids is None else self._some(grids, rows)

    def see(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return the pictures' fields of ``Described``; of what the training does not need, nothing."""
        frozen, features = self.frozen, self.features(rows)
        pixels, codes = torch.empty(len(rows), PAIR, 0), torch.empty(len(rows), PAIR, 0, dtype=torch.long)
        if self.pixels is not None:
            crops = self._some(frozen.crops, rows)
            pixels = self.pixels(crops.flatten(0, 1)).unflatten(0, (-1, PAIR))
            if frozen.codes is not None:  # PyTorch knows few unsigned numbers
                codes = self._some(frozen.codes.view(np.int16), rows).long() & 0xFFFF
            elif frozen.grids is None:
                codes = to_codes(crops)
        return {"pixels": pixels, "features": features, "codes": codes}

    def _some(self, values: NDArray[Any] | None, rows: Sequence[int]) -> Tensor:
        assert values is not None
        places = self.sides[list(rows)].flatten()
        return torch.from_numpy(np.stack([values[place] for place in places])).unflatten(0, (-1, PAIR))


@dataclass(frozen=True)
class Sentence:
    """A text as both tokenizers have it; halves are empty where words cannot be masked."""

    halves: tuple[Words, Words]
    written: Written
    identity: tuple[str, str]
    """Equal where halves are the same text."""


class Batches:
    """Makes batches of rows: texts and pictures."""

    def __init__(
        self, texts: Sequence[Text], pictures: Pictures, *, clip: ClipWords, words: DecoderWords, length: int
    ) -> None:
        self.texts, self.pictures, self._pad = texts, pictures, words.pad
        self._sentences = [_sentence(text, clip, words, length) for text in texts]
        self._relevant: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def make(self, rows: Sequence[int]) -> tuple[Described, Tensor]:
        """Return a batch, and ``(B, 2)`` numbers that are equal where halves are the same text."""
        sentences = [self._sentences[row] for row in rows]
        longest = max(len(one.written.tokens) for one in sentences)
        numbers: dict[str, int] = {}
        identity = [[numbers.setdefault(text, len(numbers)) for text in one.identity] for one in sentences]
        batch = Described(
            **self.pictures.see(rows),
            tokens=_both(half.tokens for one in sentences for half in one.halves),
            words=_both(half.numbers for one in sentences for half in one.halves),
            written=_filled([one.written.tokens for one in sentences], longest, self._pad),
            numbers=_filled([one.written.numbers for one in sentences], longest, NO_WORD),
            relevant=None if self._relevant is None else torch.from_numpy(self._relevant[list(rows)]),
        )
        return batch, torch.tensor(identity)

    def ahead(self, orders: Iterable[Order]) -> Iterator[tuple[Order, tuple[Described, Tensor]]]:
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
        keys = [self.texts[row].key for row in rows]
        return [int(make_key("mask", key, str(side), str(epoch))[:16], 16) for side in range(PAIR) for key in keys]

    def relate(self, noise: NoiseIdentifier) -> None:
        """Have batches know what is relevant by CLIP as it is now, before the training; found once, then kept.

        Raises:
            StoreError: the disk refuses, or what was kept is of other rows.
        """
        file = self.pictures.frozen.folder / RELEVANT
        if not file.exists():
            growing, device = file.with_suffix(".part"), noise.masked_patch.device
            found: np.memmap[Any, Any] | None = None
            with naming(str(file), "written"):
                for start in range(0, len(self), AT_ONCE):
                    batch, _ = self.make(range(start, min(start + AT_ONCE, len(self))))
                    shown = (one.flatten(0, 1).to(device) for one in (batch.pixels, batch.tokens, batch.words))
                    relevant = noise.relate(*shown).unflatten(0, (-1, PAIR)).cpu().numpy()
                    found = map_new(growing, np.float32, (len(self), *relevant.shape[1:])) if found is None else found
                    found[start : start + AT_ONCE] = relevant
                    found.flush()
                growing.replace(file)
        relevant = np.load(file, mmap_mode="r")
        if len(relevant) != len(self):
            raise StoreError(f"{file}: is of other rows than the run's. Start the run anew under another --name")
        self._relevant = relevant


def _sentence(text: Text, clip: ClipWords, words: DecoderWords, length: int) -> Sentence:
    if text.parts is None:
        empty = clip.split("")
        return Sentence((empty, empty), words.write_text(text.chosen, length=length), ("", ""))
    own = (text.parts.first_half, text.parts.second_half)
    halves = (clip.split(own[0]), clip.split(own[1]))
    written = words.write(halves, text.parts.verbs, length=length)
    return Sentence(halves, written, (own[0].lower(), own[1].lower()))


def _both(rows: Iterable[NDArray[np.int64]]) -> Tensor:
    return torch.from_numpy(np.stack(list(rows))).unflatten(0, (-1, PAIR))


def _filled(rows: Sequence[NDArray[np.int64]], length: int, value: int) -> Tensor:
    return torch.stack([pad(torch.from_numpy(row), (0, length - len(row)), value=value) for row in rows])
