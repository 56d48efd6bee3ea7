"""Name what is in photographs with RAM (Zhang et al., 2023) or RAM++ (Huang et al., 2023): 4,585 tags.

Reads the published checkpoints with their lists of tags and thresholds (as ``pairwright fetch`` puts them), or local
ones. Needs PyTorch and timm; the models are written here (``ram_network``), since no package of them is kept up. An
image is squeezed to the model's square, as the authors' transform does, and has the tags whose probability is above a
threshold of their own.

On a GPU it computes in bfloat16 (autocast: normalisations, and RAM++'s weighing, stay float32). Memory at the published
size: the weights (0.9 GB; RAM++ 1.3), and half a gigabyte per image at once on a CPU. There the weights are those of
the file itself, mapped: whoever replaces it must not write into it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig
from pairwright.schemas.rows import Tag
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.ram_network import RamWeights, load_ram, tag_logits
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    check_revision,
    find_published,
    identify_files,
    require_packages,
)

FIELD = "tagging.ram"
HUB = "https://huggingface.co/"
LISTS = (
    "https://raw.githubusercontent.com/xinyu1205/recognize-anything/7cb804a8609e9f4b1a50b7f31436d2df40bb9481/ram/data/"
)
RAM = PublishedFile(
    field=FIELD,
    name="ram_swin_large_14m.pth",
    url=f"{HUB}spaces/xinyu1205/Recognize_Anything-Tag2Text/resolve/main/ram_swin_large_14m.pth",
    sha256="15c729c793af28b9d107c69f85836a1356d76ea830d4714699fb62e55fcc08ed",
)
RAM_PLUS = PublishedFile(
    field=FIELD,
    name="ram_plus_swin_large_14m.pth",
    url=f"{HUB}xinyu1205/recognize-anything-plus-model/resolve/main/ram_plus_swin_large_14m.pth",
    sha256="497c178836ba66698ca226c7895317e6e800034be986452dbd2593298d50e87d",
)
TAGS = PublishedFile(field=FIELD, name="ram_tag_list.txt", url=f"{LISTS}ram_tag_list.txt")
"""4,585 names; both models have the same. No SHA-256 is published, but the address names a commit."""
THRESHOLDS = PublishedFile(field=FIELD, name="ram_tag_list_threshold.txt", url=f"{LISTS}ram_tag_list_threshold.txt")
THRESHOLD = 0.68
"""What the public code takes for tags without a threshold of their own."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's, as the authors' transform has them."""
MAX_IMAGES, IMAGES_ON_CPU = 64, 4
"""Images at once: more makes no GPU faster."""
DIGITS = 4
"""Of a score that is written: the size of a batch changes later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RamTagger:
    """Tagger by RAM or RAM++; its weights are loaded once per process, when they are first needed."""

    config: RamConfig
    plus: bool = False
    batch: int = 0

    @property
    def version(self) -> str:
        """Say which weights these are."""
        return f"{'RAM++' if self.plus else 'RAM'} {self.config.revision or self.config.checkpoint or 'published'}"

    @property
    def prepare(self) -> Callable[[Seen], NDArray[np.uint8]]:
        """Return what squeezes an image to the model's square; it takes no weights along."""
        return partial(_squeeze, self.model.preprocess)

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


def _squeeze(preprocess: Preprocess, seen: Seen) -> NDArray[np.uint8]:
    return preprocess(seen.pixels)


@dataclass(frozen=True, slots=True, kw_only=True)
class RamModel:
    """A model on its device."""

    weights: RamWeights
    names: tuple[str, ...]
    thresholds: NDArray[np.float32]
    preprocess: Preprocess
    device: Any
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
            patches = self.weights.swin.forward_features(images).flatten(1, 2)
            whole = torch.cat([patches.mean(dim=1, keepdim=True), patches], dim=1)
            logits = tag_logits(self.weights.decoder, whole, len(self.names))
            return logits.float().sigmoid().cpu().numpy()

    def _above(self, row: NDArray[np.float32], name: str) -> tuple[Tag, ...]:
        if not np.isfinite(row).all():
            raise ModelError(f"{FIELD}: the model gave probabilities that are not finite: its weights are damaged")
        found = np.flatnonzero(row > self.thresholds).tolist()
        best = sorted(found, key=lambda place: (-row[place], place))
        return tuple(Tag(name=self.names[place], score=round(float(row[place]), DIGITS), tagger=name) for place in best)


@lru_cache(maxsize=1)
def _load(configuration: str, plus: bool, batch: int) -> RamModel:  # noqa: FBT001 - lru_cache's keys
    config, device = RamConfig.model_validate_json(configuration), choose_device()
    weights, names, thresholds = _read(config, plus=plus)
    on_device = {name: tensor.to(device) for name, tensor in weights.decoder.items()}
    side = weights.side
    return RamModel(
        weights=RamWeights(swin=weights.swin.to(device), side=side, decoder=on_device),
        names=names,
        thresholds=np.array(thresholds, dtype=np.float32),
        preprocess=transform_of(side),
        device=device,
        batches=Batches(batch, most=MAX_IMAGES, on_cpu=IMAGES_ON_CPU),
    )


def transform_of(side: int) -> Preprocess:
    """Return what the authors' transform does: the whole image squeezed into a square, whatever its aspect."""
    return Preprocess(
        resize="exact", size=(side, side), crop=(side, side), interpolation="bilinear", mean=MEAN, std=STD
    )


def pin_ram(config: RamConfig, *, plus: bool, download: bool) -> RamConfig:
    """Return the configuration with the hash of the files that are on this machine; local ones are read.

    Raises:
        ModelError: files or packages are missing, or the files are not those that the configuration names, or not
            RAM's (or RAM++'s): a build must not work for hours to find that.
    """
    require_packages(FIELD, "torch", "timm")
    revision = identify_files(list(find_ram(config, plus=plus, download=download).values()))
    named = {name: path for name in ("checkpoint", "tags", "thresholds") if (path := getattr(config, name))}
    if named:
        _read(config, plus=plus)
    return config.model_copy(update={"revision": revision} | {name: absolute(path) for name, path in named.items()})


def find_ram(config: RamConfig, *, plus: bool, download: bool) -> dict[str, Path]:
    """Return the files that a configuration means, by its fields; without thresholds every tag has the same.

    Raises:
        ModelError: one is missing, or they are not those that ``revision`` names.
    """
    published = {"checkpoint": RAM_PLUS if plus else RAM, "tags": TAGS, "thresholds": THRESHOLDS}
    if config.tags and not config.thresholds:
        del published["thresholds"]
    files: dict[str, Path] = {}
    for name, file in published.items():
        local = getattr(config, name)
        files[name] = Path(local).expanduser() if local else find_published(file, download=download)
        if not files[name].is_file():
            raise ModelError(f"{FIELD}.{name}: {files[name]}: no such file")
    if config.revision:
        check_revision(FIELD, config.revision, identify_files(list(files.values())), files["checkpoint"])
    return files


def _read(config: RamConfig, *, plus: bool) -> tuple[RamWeights, tuple[str, ...], tuple[float, ...]]:
    """Return the weights, which stay in the file, and the names of the tags with their thresholds."""
    files = find_ram(config, plus=plus, download=False)
    names, thresholds = read_tags(files["tags"], files.get("thresholds"))
    path = files["checkpoint"]
    weights = load_ram(path, field=f"{FIELD}.checkpoint" if config.checkpoint else FIELD, plus=plus)
    rows = len(weights.decoder["label_embed"])
    if (rows % len(names)) if plus else (rows != len(names)):
        what = "descriptions, which is no multiple" if plus else "tags, which is not the number"
        raise ModelError(
            f"{FIELD}.tags: {path} and {files['tags']}: the checkpoint has {rows:,} {what} of the list's {len(names):,}"
        )
    return weights, names, thresholds


def read_tags(tags: Path, thresholds: Path | None) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the names of the tags, in the checkpoint's order, and the least probability of each.

    Raises:
        ModelError: a list is broken, or the two are of different lengths.
    """
    names = _lines(tags, "tags")
    if not all(names):
        raise ModelError(f"{FIELD}.tags: {tags}: line {names.index('') + 1} is empty")
    if thresholds is None:
        return names, (THRESHOLD,) * len(names)
    least = tuple(_share(line, number, thresholds) for number, line in enumerate(_lines(thresholds, "thresholds"), 1))
    if len(least) != len(names):
        raise ModelError(
            f"{FIELD}.thresholds: {thresholds} has {len(least):,} lines, and {tags} names {len(names):,} tags"
        )
    return names, least


def _share(line: str, number: int, path: Path) -> float:
    try:
        value = float(line)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:  # NaN is neither
        raise ModelError(f"{FIELD}.thresholds: {path}: line {number} is no number from 0 to 1: {line[:40]!r}")
    return value


def _lines(path: Path, name: str) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{FIELD}.{name}: {path} cannot be read: {error}") from error
    if not lines:
        raise ModelError(f"{FIELD}.{name}: {path} is empty")
    return tuple(line.strip() for line in lines)
