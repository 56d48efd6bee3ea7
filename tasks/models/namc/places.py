"""What three models make of the 14 x 14 places of an image: a CNN's features, a VQGAN's codes, CLIP's patches.

All of them see one crop: the image squashed to 224 x 224 pixels, so that a place is the same 16 x 16 pixels for each,
and each scales its values its own way. Reads weights through ``files``; needs PyTorch, timm and open_clip. Computed in
float32, on a GPU too, where codes would otherwise be rounded to their neighbours. Memory on the device: of 64 images at
the most, halved where they do not fit; with VQGAN some 150 MB per image.
"""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.schemas.namc import CnnConfig, DualEncoderConfig, VqganConfig
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc import vqgan
from pairwright.tasks.models.namc.cnn import make_cnn
from pairwright.tasks.models.namc.files import CLIP, CNN, VQGAN, check_file, find_vqgan
from pairwright.tasks.models.open_clip_embedder import create_model, transform_of
from pairwright.tasks.models.preprocess import Preprocess
from pairwright.tasks.models.weights import loading

if TYPE_CHECKING:
    from torch import Tensor, device

SIDE, GRID = 224, 14
PLACES = GRID**2
MOST = 64
"""Images on the device at once."""
HALF = (0.5, 0.5, 0.5)
CROP = Preprocess(resize="exact", size=(SIDE, SIDE), crop=(SIDE, SIDE), mean=HALF, std=HALF)
"""Squashes an image; as numbers, in [-1, 1], which is what VQGAN reads."""
HIGHEST_CODE = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceEncoder:
    """Be a model on its device that says something of each place of an image."""

    field: str
    """The settings that name it, for messages."""
    network: "Callable[[Tensor], Tensor]"
    """From ``(n, 3, 224, 224)`` to ``(n, 196, width)``, or ``(n, 196)`` codes."""
    numbers: "Callable[[Tensor], Tensor]"
    """From ``(n, 224, 224, 3)`` bytes to what the network reads."""
    kind: type[np.float16] | type[np.uint16]
    width: int
    """Numbers per place; of codes: how many there are."""
    device: "device"
    batches: Batches

    def encode(self, crops: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return what there is at each place of ``(224, 224, 3)`` crops, as it is kept.

        Raises:
            ModelError: a number is not finite as float16.
        """
        with np.errstate(over="ignore"):
            found = np.concatenate([part.astype(self.kind) for part in self.batches.pieces(self._run, crops)])
        if self.kind is np.float16 and not np.isfinite(found).all():
            raise ModelError(f"{self.field}: its weights give numbers that are not finite, or beyond float16's 65,504")
        return found

    def _run(self, crops: Sequence[NDArray[Any]]) -> NDArray[Any]:
        import torch

        with torch.inference_mode():
            pixels = self.numbers(torch.from_numpy(np.stack(crops)).to(self.device))
            return self.network(pixels).cpu().numpy()


@lru_cache(maxsize=1)
def load_grids(settings: str) -> PlaceEncoder:
    """Return the CNN that settings (``CnnConfig`` as JSON) name: the features of its third stage.

    Raises:
        ModelError: its weights are missing, damaged or another model's.
    """
    config = CnnConfig.model_validate_json(settings)
    cnn, device = make_cnn(config), _choose_device()
    network = cnn.network.to(device)
    return PlaceEncoder(
        field=CNN,
        network=lambda pixels: network(pixels)[0].flatten(2).transpose(1, 2),
        numbers=replace(CROP, mean=cnn.mean, std=cnn.std).numbers,
        kind=np.float16,
        width=cnn.width,
        device=device,
        batches=Batches(most=MOST),
    )


@lru_cache(maxsize=1)
def load_codes(settings: str) -> PlaceEncoder:
    """Return the VQGAN that settings (``VqganConfig`` as JSON) name.

    Raises:
        ModelError: its weights are missing, damaged or another model's.
    """
    import torch

    config = VqganConfig.model_validate_json(settings)
    path, device = find_vqgan(config), _choose_device()
    check_file(path, config, VQGAN)
    weights = {name: tensor.to(device) for name, tensor in vqgan.read_vqgan(path, field=VQGAN).items()}
    codes = len(weights["quantize.embedding.weight"])
    if codes > HIGHEST_CODE:
        raise ModelError(f"{VQGAN}: {path}: has {codes:,} codes; {HIGHEST_CODE:,} are the most")
    with loading(VQGAN, path), torch.inference_mode():
        shape = vqgan.encode(weights, torch.zeros(1, 3, 2 * 16, 2 * 16, device=device)).shape
    if shape != (1, 2, 2):
        raise ModelError(f"{VQGAN}: {path}: a code is not of 16 x 16 pixels; NAMC needs an f16")
    return PlaceEncoder(
        field=VQGAN,
        network=lambda pixels: vqgan.encode(weights, pixels).flatten(1),
        numbers=CROP.numbers,
        kind=np.uint16,
        width=codes,
        device=device,
        batches=Batches(most=MOST),
    )


@lru_cache(maxsize=1)
def load_patches(settings: str) -> PlaceEncoder:
    """Return the image tower of the CLIP that settings (``DualEncoderConfig`` as JSON) name: its patches, projected.

    Raises:
        ModelError: its weights are missing, damaged, or of a tower that is not CLIP's or not of 14 x 14 patches.
    """
    from pairwright.tasks.models.namc.noise import NoiseIdentifier

    config, device = DualEncoderConfig.model_validate_json(settings), _choose_device()
    clip = make_clip(config)
    noise = NoiseIdentifier(clip, width=1).eval().requires_grad_(requires_grad=False).to(device)
    return PlaceEncoder(
        field=CLIP,
        network=lambda pixels: noise.see(pixels).patches,
        numbers=clip_numbers(clip),
        kind=np.float16,
        width=int(clip.visual.proj.shape[1]),
        device=device,
        batches=Batches(most=MOST),
    )


def release_models() -> None:
    """Give the models' memory back, where the tables were made in this process."""
    import torch

    for load in (load_grids, load_codes, load_patches):
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


def _choose_device() -> "device":
    return choose_device()
