"""Name what is in photographs with RAM (Zhang et al., 2023) or RAM++ (Huang et al., 2023): 4,585 tags.

Reads the published checkpoints, or local ones with the same keys (``ram.files``, ``ram.weights``). Needs PyTorch and
timm; the models are written here, since no package of them is kept up. An image is squeezed to the model's square, as
the authors' transform does, and has the tags whose probability is above a threshold of their own.

On a GPU it computes in bfloat16 (autocast: normalisations, and RAM++'s weighing, stay float32). Memory at the published
size: the weights (0.9 GB; RAM++ 1.3), and half a gigabyte per image at once on a CPU. There the weights are those of
the file itself, mapped: whoever replaces it must not write into it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.schemas.rows import Tag
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.ram.decoder import tag_logits
from pairwright.tasks.models.ram.files import FIELD, TagList, find_ram, read_tags
from pairwright.tasks.models.ram.weights import RamWeights, load_ram
from pairwright.tasks.models.weights import loading

if TYPE_CHECKING:
    from torch import Tensor, device

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, as the authors' transform has them."""
MOST = 64
"""Images at once: more makes no GPU faster."""
DIGITS = 4
"""Of a score that is written: the size of a batch changes later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RamTagger:
    """Tag with RAM or RAM++; its weights are loaded once per process, when they are first needed."""

    config: RamConfig
    plus: bool = False
    batch: int = 0

    @property
    def version(self) -> str:
        """Say which weights these are."""
        return f"{'RAM++' if self.plus else 'RAM'} {self.config.revision or self.config.checkpoint or 'published'}"

    @property
    def prepare(self) -> Callable[[Seen], NDArray[np.uint8]]:
        """Return what squeezes an image to the model's square."""
        return Squeeze(self.model.preprocess)

    def tag(self, prepared: Sequence[NDArray[np.uint8]]) -> list[tuple[Tag, ...]]:
        """Return the tags of each image, by falling probability.

        Raises:
            ModelError: the weights are missing, or give numbers that are not finite.
        """
        return self.model.tag(prepared, name="ram-plus" if self.plus else "ram")

    @property
    def model(self) -> "RamModel":
        """Return the model, loaded."""
        return _load(self.config.model_dump_json(), self.plus, self.batch)


@dataclass(frozen=True, slots=True)
class Squeeze:
    """Prepare what is seen; without weights, so that other processes can."""

    preprocess: Preprocess

    def __call__(self, seen: Seen) -> NDArray[np.uint8]:
        """Return the square, ``(side, side, 3)``."""
        return self.preprocess(seen.pixels)


@dataclass(frozen=True, slots=True, kw_only=True)
class RamModel:
    """Be a model on its device."""

    swin: Any
    decoder: "dict[str, Tensor]"
    tags: TagList
    preprocess: Preprocess
    device: "device"
    batches: Batches

    def tag(self, squares: Sequence[NDArray[np.uint8]], *, name: str) -> list[tuple[Tag, ...]]:
        """Return the tags of each square."""
        return [self._above(row, name) for row in self.batches.run(self.probabilities, squares)] if squares else []

    def probabilities(self, squares: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        """Return ``(n, tags)`` probabilities."""
        import torch

        on_gpu = self.device.type == "cuda"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=on_gpu):
            images = self.preprocess.numbers(torch.from_numpy(np.stack(squares)).to(self.device))
            patches = self.swin.forward_features(images).flatten(1, 2)
            whole = torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1)
            logits = tag_logits(self.decoder, whole, len(self.tags.names))
            return logits.float().sigmoid().cpu().numpy()

    def _above(self, row: NDArray[np.float32], name: str) -> tuple[Tag, ...]:
        if not np.isfinite(row).all():
            raise ModelError(f"{FIELD}: the model gave probabilities that are not finite: its weights are damaged")
        found = np.flatnonzero(row > np.asarray(self.tags.thresholds, dtype=np.float32))
        best = sorted(found.tolist(), key=lambda place: (-row[place], place))
        return tuple(
            Tag(name=self.tags.names[place], score=round(float(row[place]), DIGITS), tagger=name) for place in best
        )


@lru_cache(maxsize=1)
def _load(configuration: str, plus: bool, batch: int) -> RamModel:  # noqa: FBT001 - lru_cache's keys

    config = RamConfig.model_validate_json(configuration)
    device = choose_device()
    weights, tags = _read(config, plus=plus)
    return RamModel(
        swin=weights.swin.to(device),
        decoder={name: tensor.to(device) for name, tensor in weights.decoder.items()},
        tags=tags,
        preprocess=transform_of(weights.side),
        device=device,
        batches=Batches(batch, most=MOST) if device.type == "cuda" else Batches(batch or 4),
    )


def check_ram(config: RamConfig, *, plus: bool) -> None:
    """Refuse local files that are not RAM's (or RAM++'s), before a build has worked for hours to come to them.

    Raises:
        ModelError: names the file, and what is wrong with it.
    """
    if config.checkpoint or config.tags or config.thresholds:
        _read(config, plus=plus)


def _read(config: RamConfig, *, plus: bool) -> tuple[RamWeights, TagList]:
    """Return the weights, which stay in the file, and the names of the tags."""
    files = find_ram(config, plus=plus, download=False)
    tags = read_tags(files)
    with loading(FIELD, files.checkpoint):
        weights = load_ram(files.checkpoint, field=f"{FIELD}.checkpoint" if config.checkpoint else FIELD, plus=plus)
    _check_tags(weights, tags, f"{files.checkpoint} and {files.tags}")
    return weights, tags


def transform_of(side: int) -> Preprocess:
    """Return what the authors' transform does: the whole image squeezed into a square, whatever its aspect."""
    return Preprocess(
        resize="exact", size=(side, side), crop=(side, side), interpolation="bilinear", mean=MEAN, std=STD
    )


def _check_tags(weights: RamWeights, tags: TagList, files: str) -> None:
    """Refuse a list of another length than the checkpoint's."""
    rows, described = len(weights.decoder["label_embed"]), "reweight_scale" in weights.decoder
    if (rows % len(tags.names)) if described else (rows != len(tags.names)):
        what = "descriptions, which is no multiple" if described else "tags, which is not the number"
        raise ModelError(f"{FIELD}.tags: {files}: the checkpoint has {rows:,} {what} of the list's {len(tags.names):,}")
