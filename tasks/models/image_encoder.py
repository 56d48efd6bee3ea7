"""Image encoders by transformers' ``AutoModel``: DINOv2, DINOv3, any with a pooled output.

Reads a folder of ``save_pretrained`` (``config.json``, ``preprocessor_config.json``, weights),
local or in the Hub's cache, safetensors first; pickles are read with ``weights_only``, and no code
comes with the weights. Needs PyTorch and transformers. Images are prepared as by the folder's
processor: the shorter side and a centre crop (DINOv2, CLIP), or both sides (DINOv3, ViT). Of DINOv2
and DINOv3 the pooled output is the class token of the last layer, after its normalisation.
"""

import json
import math
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.config import Dinov2Config
from pairwright.schemas.encoder_config import EncoderConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches, Encoder
from pairwright.tasks.models.checkpoints import load_pretrained
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.preprocess import Interpolation, Preprocess, Resize, Size
from pairwright.tasks.models.weights import (
    ANY_TYPE,
    Pretrained,
    is_model_folder,
    loading,
    require_modules,
)

if TYPE_CHECKING:
    from torch import Tensor

CONFIG = "config.json"
PROCESSOR = "preprocessor_config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
KNOWN = {
    "facebook/dinov2-small": "ed25f3a31f01632728cabb09d1542f84ab7b0056",
    "facebook/dinov2-base": "f9e44c814b77203eaa57a6bdbbd535f21ede1415",
    "facebook/dinov2-large": "47b73eefe95e8d44ec3623f8890bd894b6ea2d6c",
}
"""Default commits."""
DINOV2 = Pretrained(
    field="embedding.dinov2",
    kind="DINOv2",
    types=("dinov2", "dinov2_with_registers"),
    known=KNOWN,
    weights=WEIGHTS,
    extra=(CONFIG, PROCESSOR),
)
ANY = Pretrained(
    field="embedding.encoder",
    kind="encoder",
    types=ANY_TYPE,
    known=KNOWN,
    weights=WEIGHTS,
    extra=(CONFIG, PROCESSOR),
)
STEPS = ("do_resize", "do_rescale", "do_normalize")
OTHER_STEPS = ("do_pad", "do_reduce_labels", "crop_pct")
"""Steps of processors that are not done here."""
RESAMPLE: Mapping[int, Interpolation] = {2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of resampling methods."""


def pin_dinov2(config: Dinov2Config, *, download: bool) -> Dinov2Config:
    """Return the configuration with the revision of the local weights."""
    return config.model_copy(update=_pin(DINOV2, config, download=download))


def pin_encoder(config: EncoderConfig, *, download: bool) -> EncoderConfig:
    """Return the configuration with the revision of the local weights."""
    return config.model_copy(update=_pin(ANY, config, download=download))


def _pin(
    models: Pretrained, config: Dinov2Config | EncoderConfig, *, download: bool
) -> dict[str, str]:
    """Return the revision of the local weights; a local folder's processor is read, too."""
    require_modules(models.field, "torch", "torchvision", "transformers")
    update = models.pin(config.model, config.revision, download=download)
    model = update.get("model", config.model)
    if is_model_folder(model):
        _transform(models, Path(model))
    return update


@lru_cache(maxsize=1)
def load_dinov2(config: Dinov2Config, batch: int) -> tuple[Preprocess, Encoder]:
    """Return the model's transform, and the encoder to class tokens."""
    return _load(DINOV2, config, batch)


@lru_cache(maxsize=1)
def load_encoder(config: EncoderConfig, batch: int) -> tuple[Preprocess, Encoder]:
    """Return the model's transform, and the encoder to pooled outputs."""
    return _load(ANY, config, batch)


def _load(
    models: Pretrained, config: Dinov2Config | EncoderConfig, batch: int
) -> tuple[Preprocess, Encoder]:
    from transformers import AutoModel

    device = choose_device()
    folder = models.checked_folder(config.model, config.revision)
    preprocess = _transform(models, folder)
    models.find_type(folder)
    model = load_pretrained(AutoModel, folder, field=models.field, trust_remote_code=False)
    network = partial(_pool, model.eval().to(device), preprocess)
    _try_network(models, folder, network, preprocess)
    return preprocess, Encoder(network=network, device=device, batches=AdaptiveBatches(batch))


def _pool(model: Any, preprocess: Preprocess, crops: "Tensor") -> "Tensor":
    """Return the pooled outputs of crops, ``(n, dimension)``."""
    return model(pixel_values=preprocess.numbers(crops)).pooler_output.flatten(1)


def _try_network(models: Pretrained, folder: Path, network: Any, preprocess: Preprocess) -> None:
    """Refuse a model without a pooled output, by one black crop."""
    import torch

    crop = torch.zeros(1, *preprocess.crop, 3, dtype=torch.uint8, device=choose_device())
    with loading(models.field, folder), torch.inference_mode():
        try:
            network(crop)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"no image encoder with a pooled output ({error})") from error


def _transform(models: Pretrained, folder: Path) -> Preprocess:
    with loading(models.field, folder):
        values = json.loads((folder / PROCESSOR).read_text(encoding="utf-8"))
        return transform_of(values, field=models.field)


def transform_of(values: Mapping[str, Any], *, field: str = DINOV2.field) -> Preprocess:
    """Return the transform of an image processor with this configuration."""
    scales = math.isclose(values["rescale_factor"], 1 / 255, rel_tol=1e-6)
    has_steps = all(values[step] for step in STEPS)
    is_other = any(values.get(step) for step in OTHER_STEPS)
    resized = _read_size(values)
    if resized is None or not (scales and has_steps) or is_other:
        raise ModelError(f"{field}: {PROCESSOR} unsupported image preparation: {dict(values)}")
    resize, size, crop = resized
    return Preprocess(
        resize=resize,
        size=size,
        crop=crop,
        interpolation=RESAMPLE[values["resample"]],
        offset="floor",
        mean=values["image_mean"],
        std=values["image_std"],
    )


def _read_size(values: Mapping[str, Any]) -> tuple[Resize, Size, Size] | None:
    """Return how images are resized, to what size, and the crop; ``None``: in an unknown way."""
    size = values["size"]
    if values["resample"] not in RESAMPLE:
        return None
    if values.get("do_center_crop"):
        side = size.get("shortest_edge", 0)
        crop = values["crop_size"]
        if side < max(crop.values()) or set(size) != {"shortest_edge"}:
            return None
        return "shortest", (side, side), (crop["height"], crop["width"])
    if set(size) != {"height", "width"}:
        return None
    whole = (size["height"], size["width"])
    return "exact", whole, whole
