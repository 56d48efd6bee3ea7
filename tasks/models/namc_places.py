"""Inputs of NAMC per place of an image, from one crop: the image squashed to a square, so that a pair is aligned.

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
    require_packages,
)

if TYPE_CHECKING:
    from torch import Tensor

SIDE, GRID, PIXELS = 224, 14, 16  # pixels of a crop, places per side, pixels of a place
SMALL_SIDE, PATCH, LEVELS = 64, 8, 4
AT_ONCE = 64  # images on the device at once
HALF = (0.5, 0.5, 0.5)
CROP = Preprocess(resize="exact", size=(SIDE, SIDE), crop=(SIDE, SIDE), mean=HALF, std=HALF)
"""Squashes an image; as numbers in [-1, 1], VQGAN's input."""
CLIP, CNN, VQGAN = "namc.clip", "namc.cnn", "namc.vqgan"
FIELDS = {
    CnnConfig: CNN,
    VqganConfig: VQGAN,
    VocabularyConfig: "namc.vocabulary",
}  # settings, for messages
BERT = (
    "google-bert/bert-base-uncased",
    "86b5e0934494bd15c9632b12f734a8a67f723594",
)  # with its default commit
# named in published VQGANs' training states
LIGHTNING = "pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint"
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
    split = patches.unflatten(-1, (PATCH, PATCH, 3)).unflatten(
        2, (across, across)
    )  # (B, 2, rows, columns, 8, 8, 3)
    return split.permute(0, 1, 6, 2, 4, 3, 5).flatten(3, 4).flatten(4, 5)


def to_codes(patches: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return ``(n, places)``: each patch's mean colour as one of 64 codes, red most significant."""
    levels = patches.reshape(*patches.shape[:2], -1, 3).mean(2) * LEVELS // 256
    return levels.astype(np.int64) @ np.array([LEVELS**2, LEVELS, 1])


def pin_namc(config: NamcConfig, *, starts: bool) -> NamcConfig:
    """Return a run's settings at the paper's size with the revisions of the local models.

    A run that continues another one has a vocabulary.
    """
    require_packages("namc", "torch", "timm", "open_clip", "tokenizers", "transformers")
    found: dict[str, object] = {"cnn": pin_weights(config.cnn)}
    if config.noise_enabled:
        found["clip"] = pin_clip(config.clip, download=False, field=CLIP)
    if config.noise_enabled and config.reconstruction_enabled:
        found["vqgan"] = pin_weights(config.vqgan)
    if not starts:
        found["vocabulary"] = pin_weights(config.vocabulary)
    return config.model_copy(update=found)


def pin_weights(config: Named) -> Named:
    """Return the settings with the local revision: a file's hash, or the Hub's commit."""
    found = find_weights(config)
    if not config.checkpoint:
        return config.model_copy(update={"revision": found.parent.name})
    return config.model_copy(
        update={"revision": identify_files([found]), "checkpoint": absolute(config.checkpoint)}
    )


def find_weights(config: CnnConfig | VqganConfig | VocabularyConfig) -> Path:
    """Return the local file of settings; for a vocabulary, BERT's ``vocab.txt``."""
    field, revision = FIELDS[type(config)], config.revision
    if config.checkpoint:
        path = Path(config.checkpoint).expanduser()
        if not path.is_file():
            raise ModelError(f"{field}.checkpoint: {path}: no such file")
        check_revision(field, revision, identify_files([path]), path)
        return path
    if isinstance(config, VqganConfig):
        raise ModelError(
            f"{field}.checkpoint: required. Download https://github.com/CompVis/taming-transformers's "
            f"vqgan_imagenet_f16_1024 (checkpoints/last.ckpt) and name the file: --set {field}.checkpoint=FILE"
        )
    if isinstance(config, CnnConfig):
        repository, weights = f"timm/{config.model}", ("model.safetensors", "pytorch_model.bin")
    else:
        repository, weights = config.model, ("vocab.txt",)
        revision = revision or (BERT[1] if config.model == BERT[0] else "")
    files = HubFiles(
        field=field, repository=repository, revision=revision, weights=weights, of_build=False
    )
    return find_on_hub(files, download=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEncoder:
    """Model on its device with an output per place of an image."""

    # from ``(n, 3, 224, 224)`` to ``(n, 196, width)``, or ``(n, 196)`` codes
    network: "Callable[[Tensor], Tensor]"
    numbers: "Callable[[Tensor], Tensor]"  # from ``(n, 224, 224, 3)`` bytes to the network's input
    kind: type[np.float16] | type[np.uint16]
    width: int  # numbers per place, or the number of codes

    def encode(self, crops: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the values of each place of ``(224, 224, 3)`` crops, in the stored dtype."""
        import torch

        def run(some: Sequence[NDArray[Any]]) -> NDArray[Any]:
            with torch.inference_mode():
                return (
                    self.network(self.numbers(torch.from_numpy(np.stack(some)).to(choose_device())))
                    .cpu()
                    .numpy()
                )

        return np.concatenate(
            [part.astype(self.kind) for part in AdaptiveBatches(most=AT_ONCE).pieces(run, crops)]
        )


@lru_cache(maxsize=1)
def load_grids(settings: str) -> PlaceEncoder:
    """Return the CNN of settings (``CnnConfig`` as JSON): timm's features of its third stage.

    The weights are timm's, or torchvision's, whose ResNets have the same names.
    """
    import timm

    config = CnnConfig.model_validate_json(settings)
    path, name = find_weights(config), config.model.partition(".")[0]
    with loading(CNN, path):
        network: Any = timm.create_model(
            name, pretrained=False, features_only=True, out_indices=(3,)
        )
        cfg = dict(network.pretrained_cfg)
    (pixels,), (width,) = network.feature_info.reduction(), network.feature_info.channels()
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
    """Return the VQGAN (Esser et al. 2021; taming-transformers' f16) of settings (``VqganConfig`` as JSON).

    Its encoder and codebook are those of transformers' Chameleon, with the same names.
    """
    from transformers import ChameleonVQVAE

    path = find_weights(VqganConfig.model_validate_json(settings))
    weights = read_checkpoint(path, field=VQGAN, under="state_dict", idle=(LIGHTNING,))
    with loading(VQGAN, path):
        model: Any = ChameleonVQVAE(_vqgan_sizes(weights))
    if 1 << (len(model.config.channel_multiplier) - 1) != PIXELS:
        raise ModelError(f"{VQGAN}: {path}: NAMC needs an f16 (codes of 16 x 16 pixels)")
    _fill(model, weights, field=VQGAN, path=path)
    return PlaceEncoder(
        network=lambda pixels: model.quantize(model.quant_conv(model.encoder(pixels)))[2].view(
            len(pixels), -1
        ),
        numbers=CROP.numbers,
        kind=np.uint16,
        width=int(model.config.num_embeddings),
    )


def _vqgan_sizes(weights: "Mapping[str, Tensor]") -> Any:
    from transformers import ChameleonVQVAEConfig

    base = len(weights["encoder.conv_in.weight"])
    levels = sorted(
        {int(name.split(".")[2]) for name in weights if name.startswith("encoder.down.")}
    )
    blocks = {
        int(name.split(".")[4]) for name in weights if name.startswith("encoder.down.0.block.")
    }
    attended = [level for level in levels if f"encoder.down.{level}.attn.0.q.weight" in weights]
    codes, embedded = weights["quantize.embedding.weight"].shape
    return ChameleonVQVAEConfig(
        embed_dim=embedded,
        num_embeddings=codes,
        latent_channels=weights["quant_conv.weight"].shape[1],
        resolution=256,
        base_channels=base,
        channel_multiplier=[
            len(weights[f"encoder.down.{level}.block.0.conv2.weight"]) // base for level in levels
        ],
        num_res_blocks=len(blocks),
        attn_resolutions=[256 >> level for level in attended],
    )


def _fill(network: Any, weights: "Mapping[str, Tensor]", *, field: str, path: Path) -> None:
    """Load weights into a frozen network; unknown ones are ignored."""
    own = {
        n: shape
        for n, shape in shapes_of(network.state_dict()).items()
        if not n.endswith("num_batches_tracked")
    }
    found = {name: weights[name].float() for name in own if name in weights}
    try:
        compare_shapes(shapes_of(found), own)
    except ModelError as error:
        raise ModelError(f"{field}: {path}: does not fit the model: {error}") from error
    network.load_state_dict(found, strict=False)
    network.eval().requires_grad_(requires_grad=False).to(choose_device())


def release_models() -> None:
    """Free the models' memory, where the tables were made in this process."""
    release(load_grids, load_codes)


def make_clip(config: DualEncoderConfig) -> Any:
    """Return a CLIP, both towers, whose patches are the places of the crop."""
    clip = create_model(config, field=CLIP)
    grid, size = getattr(clip.visual, "grid_size", None), getattr(clip.visual, "image_size", None)
    if (grid, size) != ((GRID, GRID), (SIDE, SIDE)):
        raise ModelError(
            f"{CLIP}.model: {config.model}: has {size} pixels in {grid} patches, not 224 in 14 x 14"
        )
    return clip


def clip_numbers(clip: Any) -> "Callable[[Tensor], Tensor]":
    """Return the function from crops ``(n, 224, 224, 3)`` to CLIP's input pixels."""
    own = transform_of(clip.visual.preprocess_cfg)
    return replace(CROP, mean=own.mean, std=own.std).numbers
