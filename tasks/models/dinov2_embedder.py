"""DINOv2 embedder: the class token of the last layer, after its normalisation.

Reads a folder of ``save_pretrained`` (``config.json``, ``preprocessor_config.json``, weights),
local or in the Hub's cache, safetensors first; pickles are read with ``weights_only``, and no code
comes with the weights. Needs PyTorch and transformers. Images are prepared as by the folder's
``BitImageProcessor``.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pairwright.schemas.config import Dinov2Config
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches, Encoder
from pairwright.tasks.models.checkpoints import load_pretrained
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.preprocess import Interpolation, Preprocess
from pairwright.tasks.models.weights import Pretrained, is_model_folder, loading, require_modules

FIELD = "embedding.dinov2"
CONFIG = "config.json"
PROCESSOR = "preprocessor_config.json"
KNOWN = {
    "facebook/dinov2-small": "ed25f3a31f01632728cabb09d1542f84ab7b0056",
    "facebook/dinov2-base": "f9e44c814b77203eaa57a6bdbbd535f21ede1415",
    "facebook/dinov2-large": "47b73eefe95e8d44ec3623f8890bd894b6ea2d6c",
}
"""Default commits."""
KINDS = {"dinov2": "Dinov2Model", "dinov2_with_registers": "Dinov2WithRegistersModel"}
"""transformers' class of each model type."""
STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize")
RESAMPLE: Mapping[int, Interpolation] = {2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of resampling methods."""


def pin_dinov2(config: Dinov2Config, *, download: bool) -> Dinov2Config:
    """Return the configuration with the revision of the local weights."""
    require_modules(FIELD, "torch", "torchvision", "transformers")
    update = MODELS.pin(config.model, config.revision, download=download)
    pinned = config.model_copy(update=update)
    if is_model_folder(pinned.model):
        _transform(Path(pinned.model))
    return pinned


MODELS = Pretrained(
    field=FIELD,
    kind="DINOv2",
    types=tuple(KINDS),
    known=KNOWN,
    weights=("model.safetensors", "pytorch_model.bin"),
    extra=(CONFIG, PROCESSOR),
)


@lru_cache(maxsize=1)
def load_encoder(config: Dinov2Config, batch: int) -> tuple[Preprocess, Encoder]:
    """Return the model's transform, and the encoder to class tokens."""
    import transformers

    device = choose_device()
    folder = MODELS.checked_folder(config.model, config.revision)
    preprocess = _transform(folder)
    kind = getattr(transformers, KINDS[MODELS.find_type(folder)])
    model = load_pretrained(kind, folder, field=FIELD).eval().to(device)
    encoder = Encoder(
        network=lambda crops: model(preprocess.numbers(crops)).last_hidden_state[:, 0],
        device=device,
        batches=AdaptiveBatches(batch),
    )
    return preprocess, encoder


def _transform(folder: Path) -> Preprocess:
    with loading(FIELD, folder):
        values = json.loads((folder / PROCESSOR).read_text(encoding="utf-8"))
        return transform_of(values)


def transform_of(values: Mapping[str, Any]) -> Preprocess:
    """Return the transform of ``BitImageProcessor`` with this configuration."""
    side = values["size"].get("shortest_edge", 0)
    crop = values["crop_size"]
    has_all_steps = all(values[step] for step in STEPS)
    scales = math.isclose(values["rescale_factor"], 1 / 255, rel_tol=1e-6)
    fits = side >= max(crop.values()) and set(values["size"]) == {"shortest_edge"}
    if not (has_all_steps and scales and fits and values["resample"] in RESAMPLE):
        raise ModelError(f"{FIELD}: {PROCESSOR} unsupported image preparation: {dict(values)}")
    return Preprocess(
        resize="shortest",
        size=(side, side),
        crop=(crop["height"], crop["width"]),
        interpolation=RESAMPLE[values["resample"]],
        offset="floor",
        mean=values["image_mean"],
        std=values["image_std"],
    )
