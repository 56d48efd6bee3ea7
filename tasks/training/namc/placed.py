"""Open what NAMC of the paper's size learns from: a run's frozen places of images, and its texts.

Reads what ``freeze_places`` wrote. What is relevant to what, by CLIP as it is before the training, is found here once
per row and kept (``relevant.npy``, 2.2 kB per row), whereupon CLIP's own patches are not needed any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from pairwright.schemas.errors import StoreError
from pairwright.schemas.namc import DualEncoderConfig
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc.noise import NO_WORD, NoiseIdentifier, relevance
from pairwright.tasks.models.namc.places import clip_numbers, make_clip
from pairwright.tasks.store.files import naming
from pairwright.tasks.store.vectors import map_new
from pairwright.tasks.training.examples import PAIR
from pairwright.tasks.training.freeze_rows import Refused
from pairwright.tasks.training.namc.freeze_places import CROPS, Frozen
from pairwright.tasks.training.namc.material import Batches, Material, Seen, Text, choose_rows, read_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

AT_ONCE = 64
"""Rows whose relevance is found at once."""
PATCHES, RELEVANT = "patches", "relevant"


@dataclass(frozen=True)
class Placed:
    """Be the pictures: each row's two images are somewhere in the files."""

    sides: NDArray[np.int64]
    """``(rows, 2)`` places of images."""
    grids: NDArray[np.float16]
    codes: NDArray[np.uint16] | None = None
    crops: NDArray[np.uint8] | None = None
    numbers: "Callable[[Tensor], Tensor] | None" = None
    """What turns crops into CLIP's pixels."""

    def features(self, rows: Sequence[int]) -> "Tensor":
        """Return the CNN's features, float16 as they are kept."""
        return _both(self.grids, self.sides[list(rows)])

    def see(self, rows: Sequence[int]) -> Seen:
        """Return what the CNN, CLIP and VQGAN see; of what the training does not need, nothing."""
        sides = self.sides[list(rows)]
        none = torch.empty(len(sides), PAIR, 0)
        pixels, codes = none, none.long()
        if self.crops is not None and self.numbers is not None:
            pixels = self.numbers(_both(self.crops, sides).flatten(0, 1)).unflatten(0, (-1, PAIR))
        if self.codes is not None:
            codes = _both(self.codes.view(np.int16), sides).long() & 0xFFFF  # PyTorch knows few unsigned numbers
        return Seen(pixels, _both(self.grids, sides), codes)


def _both(values: NDArray[Any], sides: NDArray[np.int64]) -> "Tensor":
    """Return ``(B, 2, ...)``: what there is at ``(B, 2)`` places."""
    return torch.from_numpy(np.stack([values[place] for place in sides.flatten()])).unflatten(0, (-1, PAIR))


def read_placed(
    frozen: Frozen, split: str, *, halves: bool, limit: int, seed: int, clip: Any = None
) -> tuple[Material, Placed, list[Refused]]:
    """Return what the rows of a split give, their pictures, and which of them give nothing.

    Args:
        frozen: what was frozen.
        split: the split.
        halves: whether a text must be an implicit-change description, whose words can be masked.
        limit: take so many rows, drawn by ``seed``; 0: all.
        seed: of the draw.
        clip: the model that sees pixels; ``None``: none does.
    """
    rows = frozen.rows.filter(_is(frozen.rows, split))
    texts: list[Text] = []
    sides: list[tuple[int, int]] = []
    refused: list[Refused] = []
    for row in rows.take(choose_rows(len(rows), limit, seed)).to_pylist():
        found = read_text(row["key"], row["chosen"], len(row["images"]), halves=halves)
        if isinstance(found, Text) and min(row["first"], row["second"]) < 0:
            detail = "it cannot be decoded, or is no image of a pair of the dataset"
            found = Refused(key=row["key"], reason="an image could not be encoded", detail=detail)
        if isinstance(found, Refused):
            refused.append(found)
        else:
            texts.append(found)
            sides.append((row["first"], row["second"]))
    pictures = Placed(
        sides=np.array(sides, dtype=np.int64).reshape(-1, PAIR),
        grids=frozen.array("grids"),
        codes=frozen.array("codes") if frozen.has("codes") else None,
        crops=frozen.array(CROPS) if clip is not None else None,
        numbers=clip_numbers(clip) if clip is not None else None,
    )
    return Material(texts, pictures), pictures, refused


def _is(rows: Any, split: str) -> Any:
    import pyarrow as pa

    return pa.array([own == split for own in rows.column("split").to_pylist()], pa.bool_())


def relate(batches: Batches, pictures: Placed, frozen: Frozen, config: DualEncoderConfig) -> None:
    """Have the batches know what is relevant by CLIP as it is before the training; found once, then kept.

    Raises:
        ModelError: CLIP's weights are gone, or others.
        StoreError: the disk refuses, or what was kept is damaged or of other rows.
    """
    file = frozen.folder / f"{RELEVANT}.npy"
    if not file.exists():
        with naming(str(file), "written"):
            _relate(batches, pictures, frozen, config, file)
    found = frozen.array(RELEVANT)
    if len(found) != len(batches.sentences):
        raise StoreError(
            f"{file}: is of {len(found):,} rows, and the run has {len(batches.sentences):,}: they are now read "
            "otherwise. Start the run anew under another --name"
        )
    batches.relevant = found
    (frozen.folder / f"{PATCHES}.npy").unlink(missing_ok=True)


def _relate(batches: Batches, pictures: Placed, frozen: Frozen, config: DualEncoderConfig, file: Path) -> None:
    device = choose_device()
    noise = NoiseIdentifier(make_clip(config), width=1).eval().requires_grad_(requires_grad=False).to(device)
    patches = frozen.array(PATCHES)
    length = len(batches.sentences[0].halves[0].tokens)
    growing, shape = file.with_suffix(".part"), (len(batches.sentences), PAIR, patches.shape[1] + length)
    found = map_new(growing, np.float32, shape)
    for start in range(0, len(found), AT_ONCE):
        halves = [half for one in batches.sentences[start : start + AT_ONCE] for half in one.halves]
        tokens, words = (
            torch.from_numpy(np.stack([getattr(half, name) for half in halves])).to(device)
            for name in ("tokens", "numbers")
        )
        seen = _both(patches, pictures.sides[start : start + AT_ONCE]).flatten(0, 1).to(device).float()
        relevant = relevance(seen, noise.read(tokens).tokens, words != NO_WORD)
        found[start : start + AT_ONCE] = torch.cat(relevant, dim=1).unflatten(0, (-1, PAIR)).cpu().numpy()
    found.flush()
    growing.replace(file)
