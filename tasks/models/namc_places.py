"""Inputs of NAMC per place of an image's grid, from one crop.

The image is squashed to a square, so that the places of a pair are aligned.

The paper's size has 224 x 224 pixels in 14 x 14 places, seen by frozen models: a CNN's features, a
VQGAN's codes, and CLIP's pixels. Weights are local files or in the Hub's cache; nothing is fetched,
errors name the command. Computed in float32, on a GPU too, where rounding would change codes; up to
64 images at once, halved on out-of-memory; VQGAN takes some 150 MB per image. Needs PyTorch, timm,
open_clip and, for VQGAN, transformers.

The small size needs no other models: of 64 x 64 pixels a place is a patch of 8 x 8, its features
are the patch's values, its code the mean colour, four levels per channel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc_config import (
    CnnConfig,
    DualEncoderConfig,
    NamcConfig,
    VocabularyConfig,
    VqganConfig,
)
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches
from pairwright.tasks.models.checkpoints import compare_shapes, read_checkpoint, shapes_of
from pairwright.tasks.models.devices import choose_device, release
from pairwright.tasks.models.open_clip_embedder import create_model, pin_clip, transform_of
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.weights import (
    HubFiles,
    absolute,
    check_revision,
    find_on_hub,
    identify_files,
    loading,
    require_modules,
)

if TYPE_CHECKING:
    from torch import Tensor

SIDE = 224
"""Pixels per side of a crop."""
GRID = 14
"""Places per side."""
PIXELS = 16
"""Pixels per side of a place."""
SMALL_SIDE = 64
PATCH = 8
LEVELS = 4
AT_ONCE = 64
"""Images on the device at once."""
HALF = (0.5, 0.5, 0.5)
CROP = Preprocess(resize="exact", size=(SIDE, SIDE), crop=(SIDE, SIDE), mean=HALF, std=HALF)
"""Squashes an image; as numbers in [-1, 1], VQGAN's input."""
CLIP = "namc.clip"
CNN = "namc.cnn"
VQGAN = "namc.vqgan"
FIELDS = {CnnConfig: CNN, VqganConfig: VQGAN, VocabularyConfig: "namc.vocabulary"}
"""Names of settings, for messages."""
BERT = "google-bert/bert-base-uncased"
BERT_REVISION = "86b5e0934494bd15c9632b12f734a8a67f723594"
"""Default commit."""
LIGHTNING = "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint"
"""Class that is named in published VQGANs' training states."""
SMALL_CLIP: dict[str, Any] = {
    "embed_dim": 64,
    "vision_cfg": {
        "image_size": SMALL_SIDE,
        "layers": 3,
        "width": 96,
        "head_width": 24,
        "patch_size": PATCH,
    },
    "text_cfg": {"context_length": 77, "vocab_size": 49_408, "width": 64, "heads": 2, "layers": 2},
}
"""Dual encoder of CLIP's form, trained from scratch (4 M weights, 3 M of them words)."""
Named = TypeVar("Named", CnnConfig, VqganConfig, VocabularyConfig)


def crop_small(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return ``(64, 64, 3)`` RGB of a decoded image, squashed."""
    import cv2

    size = (SMALL_SIDE, SMALL_SIDE)
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def split_patches(crops: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return ``(n, 64, 192)`` patch values of ``(n, 64, 64, 3)``."""
    count, across = len(crops), SMALL_SIDE // PATCH
    split = crops.reshape(count, across, PATCH, across, PATCH, 3).swapaxes(2, 3)
    return split.reshape(count, across**2, 3 * PATCH**2)


def join_patches(patches: "Tensor") -> "Tensor":
    """Return ``(B, 2, 3, 64, 64)``, the small CLIP's input, of ``(B, 2, 64, 192)``."""
    across = SMALL_SIDE // PATCH
    pixels = patches.unflatten(-1, (PATCH, PATCH, 3))
    split = pixels.unflatten(2, (across, across))  # (B, 2, rows, columns, 8, 8, 3)
    return split.permute(0, 1, 6, 2, 4, 3, 5).flatten(3, 4).flatten(4, 5)


def to_codes(patches: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return ``(n, places)``: each patch's mean colour as one of 64 codes, red most significant."""
    levels = patches.reshape(*patches.shape[:2], -1, 3).mean(2) * LEVELS // 256
    return levels.astype(np.int64) @ np.array([LEVELS**2, LEVELS, 1])


def pin_namc(config: NamcConfig, *, starts: bool) -> NamcConfig:
    """Return a run's settings at the paper's size with the revisions of the local models.

    A run that continues another one has a vocabulary.
    """
    require_modules("namc", "torch", "timm", "open_clip", "tokenizers", "transformers")
    update: dict[str, object] = {"cnn": pin_weights(config.cnn)}
    if config.noise_enabled:
        update["clip"] = pin_clip(config.clip, download=False, field=CLIP)
    if config.noise_enabled and config.reconstruction_enabled:
        update["vqgan"] = pin_weights(config.vqgan)
    if not starts:
        update["vocabulary"] = pin_weights(config.vocabulary)
    return config.model_copy(update=update)


def pin_weights(config: Named) -> Named:
    """Return the settings with the local revision: a file's hash, or the Hub's commit."""
    path = find_weights(config)
    if not config.checkpoint:
        return config.model_copy(update={"revision": path.parent.name})
    revision = identify_files([path])
    update = {"revision": revision, "checkpoint": absolute(config.checkpoint)}
    return config.model_copy(update=update)


def find_weights(config: CnnConfig | VqganConfig | VocabularyConfig) -> Path:
    """Return the local file of settings; for a vocabulary, BERT's ``vocab.txt``."""
    field = FIELDS[type(config)]
    if config.checkpoint:
        path = Path(config.checkpoint).expanduser()
        if not path.is_file():
            raise ModelError(f"{field}.checkpoint: {path}: no such file")
        check_revision(field, config.revision, identify_files([path]), path)
        return path
    if isinstance(config, VqganConfig):
        raise ModelError(
            f"{field}.checkpoint: required. "
            "Download https://github.com/CompVis/taming-transformers's "
            "vqgan_imagenet_f16_1024 (checkpoints/last.ckpt) and name the file: "
            f"--set {field}.checkpoint=FILE"
        )
    return find_on_hub(_hub_files(config), download=False)


def _hub_files(config: CnnConfig | VocabularyConfig) -> HubFiles:
    """Return the files of timm's CNN, or of a BERT's vocabulary."""
    field = FIELDS[type(config)]
    if isinstance(config, CnnConfig):
        return HubFiles(
            field=field,
            repository=f"timm/{config.model}",
            revision=config.revision,
            weights=("model.safetensors", "pytorch_model.bin"),
            of_build=False,
        )
    default = BERT_REVISION if config.model == BERT else ""
    return HubFiles(
        field=field,
        repository=config.model,
        revision=config.revision or default,
        weights=("vocab.txt",),
        of_build=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEncoder:
    """Model on its device with an output per place of an image."""

    network: "Callable[[Tensor], Tensor]"
    """From ``(n, 3, 224, 224)`` to ``(n, 196, width)``, or ``(n, 196)`` codes."""
    numbers: "Callable[[Tensor], Tensor]"
    """From ``(n, 224, 224, 3)`` bytes to the network's input."""
    kind: type[np.float16] | type[np.uint16]
    width: int
    """Numbers per place, or the number of codes."""

    def encode(self, crops: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the values of each place of ``(224, 224, 3)`` crops, in the stored dtype."""
        results = AdaptiveBatches(most=AT_ONCE).run_batches(self._run, crops)
        return np.concatenate([result.astype(self.kind) for result in results])

    def _run(self, crops: Sequence[NDArray[Any]]) -> NDArray[Any]:
        import torch

        with torch.inference_mode():
            batch = torch.from_numpy(np.stack(crops)).to(choose_device())
            return self.network(self.numbers(batch)).cpu().numpy()


@lru_cache(maxsize=1)
def load_grids(settings: str) -> PlaceEncoder:
    """Return the CNN of settings (``CnnConfig`` as JSON): timm's features of its third stage.

    The weights are timm's, or torchvision's, whose ResNets have the same names.
    """
    import timm

    config = CnnConfig.model_validate_json(settings)
    path = find_weights(config)
    name, _, _ = config.model.partition(".")
    with loading(CNN, path):
        network: Any = timm.create_model(
            name,
            pretrained=False,
            features_only=True,
            out_indices=(3,),
        )
        cfg = dict(network.pretrained_cfg)
    (pixels,) = network.feature_info.reduction()
    (width,) = network.feature_info.channels()
    if pixels != PIXELS:
        raise ModelError(
            f"{CNN}.model: {name}: its third stage has a stride of {pixels} pixels, not {PIXELS}"
        )
    _fill(network, read_checkpoint(path, field=CNN, under="state_dict"), field=CNN, path=path)
    return PlaceEncoder(
        network=lambda pixels: network(pixels)[0].flatten(2).transpose(1, 2),
        numbers=replace(CROP, mean=cfg["mean"], std=cfg["std"]).numbers,
        kind=np.float16,
        width=int(width),
    )


@lru_cache(maxsize=1)
def load_codes(settings: str) -> PlaceEncoder:
    """Return the VQGAN (Esser et al. 2021; taming-transformers' f16) of settings.

    They are a ``VqganConfig`` as JSON. Its encoder and codebook are those of transformers'
    Chameleon, with the same names.
    """
    from transformers import ChameleonVQVAE

    path = find_weights(VqganConfig.model_validate_json(settings))
    weights = read_checkpoint(path, field=VQGAN, under="state_dict", idle=(LIGHTNING,))
    with loading(VQGAN, path):
        model: Any = ChameleonVQVAE(_vqgan_sizes(weights))
    if 1 << (len(model.config.channel_multiplier) - 1) != PIXELS:
        raise ModelError(f"{VQGAN}: {path}: NAMC needs an f16 (codes of 16 x 16 pixels)")
    _fill(model, weights, field=VQGAN, path=path)

    def encode_pixels(pixels: "Tensor") -> "Tensor":
        _, _, codes = model.quantize(model.quant_conv(model.encoder(pixels)))
        return codes.view(len(pixels), -1)

    return PlaceEncoder(
        network=encode_pixels,
        numbers=CROP.numbers,
        kind=np.uint16,
        width=int(model.config.num_embeddings),
    )


def _vqgan_sizes(weights: "Mapping[str, Tensor]") -> Any:
    from transformers import ChameleonVQVAEConfig

    base = len(weights["encoder.conv_in.weight"])
    levels = sorted(_numbers(weights, "encoder.down."))
    blocks = _numbers(weights, "encoder.down.0.block.")
    attended = [level for level in levels if f"encoder.down.{level}.attn.0.q.weight" in weights]
    widths = [len(weights[f"encoder.down.{level}.block.0.conv2.weight"]) for level in levels]
    codes, embedded = weights["quantize.embedding.weight"].shape
    return ChameleonVQVAEConfig(
        embed_dim=embedded,
        num_embeddings=codes,
        latent_channels=weights["quant_conv.weight"].shape[1],
        resolution=256,
        base_channels=base,
        channel_multiplier=[width // base for width in widths],
        num_res_blocks=len(blocks),
        attn_resolutions=[256 >> level for level in attended],
    )


def _numbers(weights: "Mapping[str, Tensor]", prefix: str) -> set[int]:
    """Return the numbers that follow a prefix in the names of weights."""
    names = [name.removeprefix(prefix) for name in weights if name.startswith(prefix)]
    return {int(name.split(".")[0]) for name in names}


def _fill(network: Any, weights: "Mapping[str, Tensor]", *, field: str, path: Path) -> None:
    """Load weights into a frozen network; unknown ones are ignored."""
    shapes = shapes_of(network.state_dict())
    expected = {
        name: shape for name, shape in shapes.items() if not name.endswith("num_batches_tracked")
    }
    tensors = {name: weights[name].float() for name in expected if name in weights}
    try:
        compare_shapes(shapes_of(tensors), expected)
    except ModelError as error:
        raise ModelError(f"{field}: {path}: does not fit the model: {error}") from error
    network.load_state_dict(tensors, strict=False)
    network.eval().requires_grad_(requires_grad=False).to(choose_device())


def release_models() -> None:
    """Free the models' memory, where the tables were made in this process."""
    release(load_grids, load_codes)


def make_place_clip(config: DualEncoderConfig) -> Any:
    """Return a CLIP, both towers, whose patches are the places of the crop."""
    clip = create_model(config, field=CLIP)
    grid = getattr(clip.visual, "grid_size", None)
    size = getattr(clip.visual, "image_size", None)
    if grid != (GRID, GRID) or size != (SIDE, SIDE):
        raise ModelError(
            f"{CLIP}.model: {config.model}: has {size} pixels in {grid} patches, not 224 in 14 x 14"
        )
    return clip


def clip_numbers(clip: Any) -> "Callable[[Tensor], Tensor]":
    """Return the function from crops ``(n, 224, 224, 3)`` to CLIP's input pixels."""
    transform = transform_of(clip.visual.preprocess_cfg)
    return replace(CROP, mean=transform.mean, std=transform.std).numbers
