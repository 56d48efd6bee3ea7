"""Frozen models that look at images for NAMC: a CNN's features and a VQGAN's codes of 14 x 14 places, CLIP's pixels.

All see one crop: the image squashed to 224 x 224 pixels, so that a place is the same 16 x 16 pixels for each, and each
scales its values its own way. Weights are local files or in the Hub's cache; nothing is fetched: what is missing is
named, with what fetches it. Computed in float32, on a GPU too, where codes would otherwise be rounded to their
neighbours; of 64 images at most at once, halved where they do not fit; with VQGAN some 150 MB per image. Needs PyTorch,
timm, open_clip and, for VQGAN, transformers.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc import CnnConfig, DualEncoderConfig, NamcConfig, VocabularyConfig, VqganConfig
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.open_clip_embedder import create_model, pin_clip, transform_of
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.tensor_shapes import name_some
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

SIDE, GRID, PIXELS = 224, 14, 16
"""Of a crop, of its places on a side, and of a place."""
PLACES = GRID**2
AT_ONCE = 64
"""Images on the device at once."""
HALF = (0.5, 0.5, 0.5)
CROP = Preprocess(resize="exact", size=(SIDE, SIDE), crop=(SIDE, SIDE), mean=HALF, std=HALF)
"""Squashes an image; as numbers, in [-1, 1], which is what VQGAN reads."""
CLIP, CNN, VQGAN = "namc.clip", "namc.cnn", "namc.vqgan"
FIELDS = {CnnConfig: CNN, VqganConfig: VQGAN, VocabularyConfig: "namc.vocabulary"}
"""Fields of the settings, for messages."""
KNOWN_WORDS = {"google-bert/bert-base-uncased": "86b5e0934494bd15c9632b12f734a8a67f723594"}
"""The commits that are taken where no revision is named."""
TIMM_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
WHERE_VQGAN = "https://github.com/CompVis/taming-transformers (vqgan_imagenet_f16_1024, checkpoints/last.ckpt)"
LIGHTNING = ("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",)
"""A class that published VQGANs name, as the key of what it remembered."""
HIGHEST_CODE = 1 << 16
Named = TypeVar("Named", CnnConfig, VqganConfig, VocabularyConfig)


def pin_namc(config: NamcConfig, *, starts: bool) -> NamcConfig:
    """Return the settings of a run of the paper's size with the revisions of the models that it needs, all found here.

    A run that starts from another one has a vocabulary.

    Raises:
        ModelError: a package or a file is missing, or is not the one that the settings name.
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
    """Return the settings with the revision of what this machine has: the hash of a local file, or the Hub's commit.

    Raises:
        ModelError: the weights are not on this machine, or others are.
    """
    found = find_weights(config)
    if not config.checkpoint:
        return config.model_copy(update={"revision": found.parent.name})
    return config.model_copy(update={"revision": identify_files([found]), "checkpoint": absolute(config.checkpoint)})


def find_weights(config: CnnConfig | VqganConfig | VocabularyConfig) -> Path:
    """Return the file that settings name, on this machine; of a vocabulary, BERT's ``vocab.txt``.

    Raises:
        ModelError: it is not named, not there, or another local file than the settings' revision says.
    """
    field, revision = FIELDS[type(config)], config.revision
    if config.checkpoint:
        path = Path(config.checkpoint).expanduser()
        if not path.is_file():
            raise ModelError(f"{field}.checkpoint: {path}: no such file")
        check_revision(field, revision, identify_files([path]), path)
        return path
    if isinstance(config, VqganConfig):
        raise ModelError(
            f"{field}.checkpoint: is not named. It is on no Hub: fetch it by hand from {WHERE_VQGAN}, and say where it "
            f"is: --set {field}.checkpoint=FILE"
        )
    if isinstance(config, CnnConfig):
        if "." not in config.model:
            raise ModelError(
                f"{field}.model: {config.model}: names no weights. Add their name, as in resnet101.tv_in1k, or give "
                f"{field}.checkpoint"
            )
        repository, weights = f"timm/{config.model}", TIMM_WEIGHTS
    else:
        repository, weights = config.model, ("vocab.txt",)
        revision = revision or KNOWN_WORDS.get(config.model, "")
    files = HubFiles(field=field, repository=repository, revision=revision, weights=weights, of_build=False)
    return find_on_hub(files, download=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEncoder:
    """A model on its device that says something of each place of an image."""

    field: str
    """The settings that name it, for messages."""
    network: "Callable[[Tensor], Tensor]"
    """From ``(n, 3, 224, 224)`` to ``(n, 196, width)``, or ``(n, 196)`` codes."""
    numbers: "Callable[[Tensor], Tensor]"
    """From ``(n, 224, 224, 3)`` bytes to what the network reads."""
    kind: type[np.float16] | type[np.uint16]
    width: int
    """Numbers per place; of codes: how many there are."""

    def encode(self, crops: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return what there is at each place of ``(224, 224, 3)`` crops, as it is kept.

        Raises:
            ModelError: a number is not finite as float16.
        """
        with np.errstate(over="ignore"):
            pieces = Batches(most=AT_ONCE).pieces(self._run, crops)
            found = np.concatenate([part.astype(self.kind) for part in pieces])
        if self.kind is np.float16 and not np.isfinite(found).all():
            raise ModelError(f"{self.field}: its weights give numbers that are not finite, or beyond float16's 65,504")
        return found

    def _run(self, crops: Sequence[NDArray[Any]]) -> NDArray[Any]:
        import torch

        with torch.inference_mode():
            pixels = self.numbers(torch.from_numpy(np.stack(crops)).to(choose_device()))
            return self.network(pixels).cpu().numpy()


@lru_cache(maxsize=1)
def load_grids(settings: str) -> PlaceEncoder:
    """Return the CNN that settings (``CnnConfig`` as JSON) name: timm's features of its third stage.

    The weights are timm's, or torchvision's, whose ResNets have the same names.

    Raises:
        ModelError: timm has no such model, or the weights are missing, damaged or another model's.
    """
    import timm

    config = CnnConfig.model_validate_json(settings)
    path, name = find_weights(config), config.model.partition(".")[0]
    with loading(CNN, path):
        network: Any = timm.create_model(name, pretrained=False, features_only=True, out_indices=(3,))
        cfg = dict(network.pretrained_cfg)
    (pixels,), (width,) = network.feature_info.reduction(), network.feature_info.channels()
    if pixels != PIXELS:
        raise ModelError(f"{CNN}.model: {name}: its third stage has places of {pixels} pixels, not of {PIXELS}")
    _fill(network, read_checkpoint(path, field=CNN, under="state_dict"), f"{CNN}: {path}")
    network.to(choose_device())
    mean, std = tuple(map(float, cfg["mean"])), tuple(map(float, cfg["std"]))
    return PlaceEncoder(
        field=CNN,
        network=lambda pixels: network(pixels)[0].flatten(2).transpose(1, 2),
        numbers=replace(CROP, mean=mean, std=std).numbers,
        kind=np.float16,
        width=int(width),
    )


@lru_cache(maxsize=1)
def load_codes(settings: str) -> PlaceEncoder:
    """Return the VQGAN (Esser et al. 2021; taming-transformers' f16) that settings (``VqganConfig`` as JSON) name.

    Its encoder and codebook are those of transformers' Chameleon, which has taming's names.

    Raises:
        ModelError: its weights are missing, damaged or another model's.
    """
    from transformers import ChameleonVQVAE

    config = VqganConfig.model_validate_json(settings)
    path = find_weights(config)
    weights = read_checkpoint(path, field=VQGAN, under="state_dict", idle=LIGHTNING)
    try:
        with loading(VQGAN, path):
            model: Any = ChameleonVQVAE(_vqgan_sizes(weights))
    except KeyError as error:
        raise ModelError(f"{VQGAN}: {path} is no VQGAN of taming-transformers: it has no {error}") from error
    sizes = model.config
    if 1 << (len(sizes.channel_multiplier) - 1) != PIXELS or sizes.num_embeddings > HIGHEST_CODE:
        raise ModelError(f"{VQGAN}: {path}: NAMC needs an f16, at most {HIGHEST_CODE:,} codes of 16 x 16 pixels")
    _fill(model, {name: tensor.float() for name, tensor in weights.items()}, f"{VQGAN}: {path}")
    model.to(choose_device())
    return PlaceEncoder(
        field=VQGAN,
        network=lambda pixels: model.quantize(model.quant_conv(model.encoder(pixels)))[2].view(len(pixels), -1),
        numbers=CROP.numbers,
        kind=np.uint16,
        width=int(sizes.num_embeddings),
    )


def _vqgan_sizes(weights: "Mapping[str, Tensor]") -> Any:
    """Return the configuration of a VQGAN, read off the names and shapes of its weights.

    Raises:
        KeyError: it lacks one that every VQGAN has.
    """
    from transformers import ChameleonVQVAEConfig

    base = len(weights["encoder.conv_in.weight"])
    levels = sorted({int(name.split(".")[2]) for name in weights if name.startswith("encoder.down.")})
    blocks = {int(name.split(".")[4]) for name in weights if name.startswith("encoder.down.0.block.")}
    attended = [level for level in levels if f"encoder.down.{level}.attn.0.q.weight" in weights]
    codes, embedded = weights["quantize.embedding.weight"].shape
    return ChameleonVQVAEConfig(
        embed_dim=embedded,
        num_embeddings=codes,
        latent_channels=weights["quant_conv.weight"].shape[1],
        resolution=256,
        base_channels=base,
        channel_multiplier=[len(weights[f"encoder.down.{level}.block.0.conv2.weight"]) // base for level in levels],
        num_res_blocks=len(blocks),
        attn_resolutions=[256 >> level for level in attended],
    )


def _fill(network: Any, weights: "Mapping[str, Tensor]", where: str) -> None:
    """Put weights into a network that only runs; those that it has no place for are passed over.

    Raises:
        ModelError: some are missing, or of other shapes.
    """
    own = network.state_dict()
    needed = [name for name in own if not name.endswith("num_batches_tracked")]
    if wrong := [name for name in needed if name not in weights or weights[name].shape != own[name].shape]:
        raise ModelError(f"{where}: does not fit the model: {name_some(sorted(wrong))}")
    network.load_state_dict({name: weights[name] for name in needed}, strict=False)
    network.eval().requires_grad_(requires_grad=False)


def release_models() -> None:
    """Give the models' memory back, where the tables were made in this process."""
    import torch

    for load in (load_grids, load_codes):
        load.cache_clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def make_clip(config: DualEncoderConfig) -> Any:
    """Return a CLIP, both towers, whose patches are the places of the crop.

    Raises:
        ModelError: its weights are missing or damaged, or it has other patches.
    """
    clip = create_model(config, field=CLIP)
    grid, size = getattr(clip.visual, "grid_size", None), getattr(clip.visual, "image_size", None)
    if (grid, size) != ((GRID, GRID), (SIDE, SIDE)):
        raise ModelError(f"{CLIP}.model: {config.model}: sees {size} pixels in {grid} patches, not 224 in 14 x 14")
    return clip


def clip_numbers(clip: Any) -> "Callable[[Tensor], Tensor]":
    """Return what turns crops ``(n, 224, 224, 3)`` into the pixels that a CLIP reads."""
    own = transform_of(clip.visual.preprocess_cfg)
    return replace(CROP, mean=own.mean, std=own.std).numbers
