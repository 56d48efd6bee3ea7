"""DINOv2 embedder: the class token of the last layer, after its normalisation.

Reads a folder of ``save_pretrained`` (``config.json``, ``preprocessor_config.json``, weights), local or in the Hub's
cache, safetensors first; pickles are read with ``weights_only``, and no code comes with the weights. Needs PyTorch and
transformers. Images are prepared as by the folder's ``BitImageProcessor``.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import Dinov2Config
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.batches import Batches, Encoder
from pairwright.tasks.models.checkpoints import load_pretrained
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.preprocess import Interpolation, Preprocess, Resize, three
from pairwright.tasks.models.weights import Pretrained, is_local, loading, require_packages

FIELD = "embedding.dinov2"
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
KNOWN = {
    "facebook/dinov2-small": "ed25f3a31f01632728cabb09d1542f84ab7b0056",
    "facebook/dinov2-base": "f9e44c814b77203eaa57a6bdbbd535f21ede1415",
    "facebook/dinov2-large": "47b73eefe95e8d44ec3623f8890bd894b6ea2d6c",
}
"""Default commits."""
KINDS = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel"}
"""transformers' class of each model type."""
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
DEFAULTS: Mapping[str, Any] = {
    "do_resize": True, "size": {"shortest_edge": 224}, "resample": 3, "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224}, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": CLIP_MEAN, "image_std": CLIP_STD,
}  # fmt: skip
"""Defaults of ``BitImageProcessor``."""
RESAMPLE: Mapping[int, Interpolation] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers of resampling methods


@dataclass(frozen=True, slots=True, kw_only=True)
class Dinov2:
    """Embedder by DINOv2; its weights are loaded at the first use, once per process."""

    config: Dinov2Config
    batch: int = 0
    name: str = "dinov2"

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return MODELS.identify(self.config.model, self.config.revision)

    @property
    def prepare(self) -> Callable[[NDArray[np.uint8]], NDArray[Any]]:
        """Return the model's own transform."""
        return _load(self.config.model_dump_json(), self.batch)[0]

    def encode(self, prepared: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return ``(n, dimension)`` class tokens."""
        return _load(self.config.model_dump_json(), self.batch)[1].encode(prepared)


def pin_dinov2(config: Dinov2Config, *, download: bool) -> Dinov2Config:
    """Return the configuration with the revision of the local weights."""
    require_packages(FIELD, "torch", "torchvision", "transformers")
    pinned = config.model_copy(update=MODELS.pin(config.model, config.revision, download=download))
    if is_local(pinned.model):
        _transform(Path(pinned.model))
    return pinned


MODELS = Pretrained(
    field=FIELD,
    kind="DINOv2",
    types=tuple(KINDS),
    known=KNOWN,
    weights=("model.safetensors", "pytorch_model.bin"),
    beside=(CONFIG, PROCESSOR),
)


@lru_cache(maxsize=1)
def _load(configuration: str, batch: int) -> tuple[Preprocess, Encoder]:
    import transformers

    config = Dinov2Config.model_validate_json(configuration)
    device = choose_device()
    folder = MODELS.checked_folder(config.model, config.revision)
    preprocess, kind = _transform(folder), KINDS[MODELS.find_type(folder)]
    model = load_pretrained(getattr(transformers, kind), folder, field=FIELD).eval().to(device)
    encoder = Encoder(
        network=lambda crops: model(preprocess.numbers(crops)).last_hidden_state[:, 0],
        device=device,
        batches=Batches(batch),
    )
    return preprocess, encoder


def _transform(folder: Path) -> Preprocess:
    with loading(FIELD, folder):
        return transform_of(json.loads((folder / PROCESSOR).read_text(encoding="utf-8")))


def transform_of(values: Mapping[str, Any]) -> Preprocess:
    """Return the transform of ``BitImageProcessor`` with this configuration."""
    said = {**DEFAULTS, **{name: value for name, value in values.items() if value is not None}}
    resize, size = _resizing(said["size"])
    crop = (said["crop_size"]["height"], said["crop_size"]["width"]) if said["do_center_crop"] else size
    crops = said["do_center_crop"] or resize == "exact"  # else images differ in size
    scales = said["do_rescale"] and math.isclose(said["rescale_factor"], 1 / 255, rel_tol=1e-6) and said["do_normalize"]
    resizes = said["do_resize"] and said["resample"] in RESAMPLE
    if not crops or not scales or not resizes or crop[0] > size[0] or crop[1] > size[1]:
        raise ModelError(f"{FIELD}: {PROCESSOR} unsupported image preparation: {dict(values)}")
    return Preprocess(
        resize=resize,
        size=size,
        crop=crop,
        interpolation=RESAMPLE[said["resample"]],
        offset="floor",
        mean=three(said["image_mean"]),
        std=three(said["image_std"]),
    )


def _resizing(size: Mapping[str, int]) -> tuple[Resize, tuple[int, int]]:
    if "shortest_edge" in size and "longest_edge" not in size:
        return "shortest", (size["shortest_edge"], size["shortest_edge"])
    if "height" in size and "width" in size:
        return "exact", (size["height"], size["width"])
    raise ModelError(f"{FIELD}: {PROCESSOR} unsupported size: {dict(size)}")
