"""SAM, SAM 2 and SAM 3 by transformers, prompted by boxes (Kirillov 2023, Ravi 2024, Carion 2025).

Reads a folder of ``save_pretrained``, also one of a video model, whose image part is used: SAM 3 is
published as ``sam3_video``. Each image is encoded once for all its tags. Images are prepared, and
masks enlarged, by the folder's image processor, or by the family's own where the folder has none.
On a GPU the encoder computes in bfloat16; boxes and masks are always float32.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.model_names import SEGMENTERS
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.checkpoints import load_pretrained
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.scene_models import TagMask
from pairwright.tasks.models.weights import Pretrained, loading, require_modules

if TYPE_CHECKING:
    from torch import Tensor, device

FIELD = "segmentation"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""Files of which the folder has one or none."""
MAX_MASK_PIXELS = 1 << 26
"""Maximum mask pixels of an image at once, 4 bytes each."""
Part = tuple[Box, NDArray[np.bool_], float]
"""Box with its ``(h, w)`` mask and its score."""


def _describe(kind: str, *types: str) -> Pretrained:
    """Return the files of a family."""
    return Pretrained(
        field=FIELD,
        kind=kind,
        types=types,
        known={},
        weights=(WEIGHTS,),
        extra=(CONFIG,),
        optional=PROCESSORS,
    )


FAMILIES = {
    "sam1": _describe("SAM", "sam"),
    "sam2": _describe("SAM 2", "sam2", "sam2_video"),
    "sam3": _describe("SAM 3", "sam3_tracker", "sam3_video"),
}
"""Files by the segmenter's name in profiles."""
OWN_PROCESSORS = {
    "sam1": "SamImageProcessor",
    "sam2": "Sam2ImageProcessor",
    "sam3": "Sam3ImageProcessor",
}
"""Image processors of transformers, by the segmenter's name."""


class EncoderInput(NamedTuple):
    """Image as the encoder's input."""

    pixels: NDArray[np.float32]
    """``(3, side, side)``"""
    original: tuple[int, int]
    """Height and width of the original image."""
    resized: tuple[int, int]
    """Height and width within ``pixels``."""


class BoxNetwork(NamedTuple):
    """Network on its device, with its image processor."""

    model: Any
    processor: Any
    device: "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSam:
    """Segmenter by one of the families; its weights are loaded at the first use, per process."""

    config: SegmentationConfig

    @property
    def name(self) -> str:
        """Return the name in profiles."""
        return self.config.segmenter

    @property
    def model(self) -> str:
        """Return the model's name on the Hub, or its folder; by default the usual weights."""
        return self.config.model or SEGMENTERS.weights_of(self.name)

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return FAMILIES[self.name].identify(self.model, self.config.revision)

    def prepare(self, image: DecodedImage) -> EncoderInput:
        """Return the image as the model's processor prepares it; loads no weights."""
        processor = _processor(self.name, self.model, self.config.revision)
        pixels = np.require(image.pixels, requirements=["C", "W"])
        inputs = processor(images=pixels, return_tensors="np")
        square = np.asarray(inputs["pixel_values"][0], dtype=np.float32)
        height, width = image.pixels.shape[:2]
        resized = square.shape[1:]
        if "reshaped_input_sizes" in inputs:  # SAM pads below and to the right
            resized = np.asarray(inputs["reshaped_input_sizes"][0]).tolist()
        return EncoderInput(square, (height, width), (resized[0], resized[1]))

    def segment(
        self,
        prepared: Sequence[EncoderInput],
        tags: Sequence[Sequence[Tag]],
        boxes: Sequence[Sequence[Box]],
    ) -> Iterator[list[TagMask]]:
        """Yield for each image one mask per tag: the union of its boxes' masks.

        Its score is the lowest of theirs.
        """
        network = _load(self.name, self.model, self.config.revision)
        for image, image_tags, image_boxes in zip(prepared, tags, boxes, strict=True):
            masks = np.zeros((len(image_tags), *image.original), dtype=np.bool_)
            scores: dict[int, float] = {}
            for box, mask, score in _masks(network, image, image_boxes):
                masks[box.tag] |= mask
                scores[box.tag] = min(score, scores.get(box.tag, score))
            yield [TagMask(mask, scores.get(tag, 0.0)) for tag, mask in enumerate(masks)]


def _masks(network: BoxNetwork, image: EncoderInput, boxes: Sequence[Box]) -> Iterator[Part]:
    """Yield each box of an image with its mask and score."""
    if not boxes:
        return
    features = _encode(network, image)
    height, width = image.original
    step = max(MAX_MASK_PIXELS // (height * width), 1)
    for start in range(0, len(boxes), step):
        yield from _decode(network, image, features, boxes[start : start + step])


def _encode(network: BoxNetwork, image: EncoderInput) -> "list[Tensor] | Tensor":
    """Return the features of an image: a tensor (SAM), or one of each level."""
    import torch

    on_gpu = network.device.type == "cuda"
    autocast = torch.autocast(network.device.type, torch.bfloat16, enabled=on_gpu)
    with torch.inference_mode(), autocast:
        pixels = torch.from_numpy(image.pixels)[None].to(network.device)
        features = network.model.get_image_embeddings(pixels)
    if isinstance(features, torch.Tensor):
        return features.float()
    return [level.float() for level in features]


def _decode(
    network: BoxNetwork,
    image: EncoderInput,
    features: "list[Tensor] | Tensor",
    boxes: Sequence[Box],
) -> Iterator[Part]:
    """Yield some boxes of an image with their masks and scores."""
    import torch

    rows, columns = image.resized
    height, width = image.original
    across, down = columns / width, rows / height
    corners = [(box.x0 * across, box.y0 * down, box.x1 * across, box.y1 * down) for box in boxes]
    with torch.inference_mode():
        output = network.model(
            image_embeddings=features,
            input_boxes=torch.tensor([corners], dtype=torch.float32, device=network.device),
            multimask_output=False,
        )
        if not bool(torch.isfinite(output.iou_scores).all()):
            raise ModelError(f"{FIELD}: the model gave scores that are not finite")
        masks = _enlarge(network.processor, output.pred_masks, image)
    scores = output.iou_scores[0, :, 0].tolist()
    yield from zip(boxes, masks[:, 0].cpu().numpy(), scores, strict=True)


def _enlarge(processor: Any, masks: "Tensor", image: EncoderInput) -> "Tensor":
    """Return masks of the image's own size, ``(boxes, 1, h, w)``."""
    sizes: dict[str, Any] = {"original_sizes": [image.original]}
    if type(processor).__name__.startswith("SamImageProcessor"):
        sizes["reshaped_input_sizes"] = [image.resized]
        sizes["pad_size"] = {"height": image.pixels.shape[1], "width": image.pixels.shape[2]}
    return processor.post_process_masks(masks, **sizes)[0]


def pin_box_sam(config: SegmentationConfig) -> SegmentationConfig:
    """Return the configuration with the revision of the local weights; folders are checked."""
    require_modules(FIELD, "torch", "torchvision", "transformers")
    model = config.model or SEGMENTERS.weights_of(config.segmenter)
    models = FAMILIES[config.segmenter]
    update = models.pin(model, config.revision, download=config.download)
    pinned = config.model_copy(update=update)
    _processor(pinned.segmenter, pinned.model or model, pinned.revision)
    return pinned


@lru_cache(maxsize=4)
def _processor(family: str, model: str, revision: str) -> Any:
    import transformers

    models = FAMILIES[family]
    folder = models.resolve_folder(model, revision)
    has_one = any((folder / name).is_file() for name in PROCESSORS)
    with loading(FIELD, folder):
        models.find_type(folder)
        kind: Any = getattr(transformers, OWN_PROCESSORS[family])
        return kind.from_pretrained(folder, local_files_only=True) if has_one else kind()


@lru_cache(maxsize=1)
def _load(family: str, model: str, revision: str) -> BoxNetwork:
    from transformers import AutoModelForMaskGeneration

    device = choose_device()
    models = FAMILIES[family]
    folder = models.checked_folder(model, revision)
    models.find_type(folder)
    network = load_pretrained(
        AutoModelForMaskGeneration,
        folder,
        field=FIELD,
        use_safetensors=True,
        trust_remote_code=False,
    )
    processor = _processor(family, model, revision)
    return BoxNetwork(network.eval().to(device), processor, device)
