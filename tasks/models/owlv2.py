"""OWLv2 detector (Minderer et al., 2023), and OWL-ViT, with transformers' model and processor.

Each tag is a query of its own, "a photo of a ..." as in the authors' example; queries do not see
each other, so that a tag's boxes do not depend on the others. A box belongs to the tag that scores
best for it, if that score reaches ``box_threshold``; of two boxes of one tag that overlap by more
than ``max_iou``, the better one is kept. Images are padded to a square and resized by the folder's
processor. On a GPU boxes and scores are float32: bfloat16 would round boxes by pixels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.model_names import DETECTORS
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.adaptive_batches import AdaptiveBatches
from pairwright.tasks.models.boxes import suppress_boxes
from pairwright.tasks.models.checkpoints import load_pretrained
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.weights import Pretrained, is_model_folder, loading, require_modules

if TYPE_CHECKING:
    from torch import device

FIELD = "detection"
NAME = "owlv2"
QUERY = "a photo of a {}"
MAX_IMAGES = 16
"""Maximum images at once on a GPU; a CPU takes one."""
MODELS = Pretrained(
    field=FIELD,
    kind="OWLv2",
    types=("owlv2", "owlvit"),
    known={},
    weights=("model.safetensors", "pytorch_model.bin"),
    extra=(
        *("config.json", "preprocessor_config.json"),
        *("tokenizer_config.json", "vocab.json", "merges.txt"),
    ),
)


class SquareInput(NamedTuple):
    """Image as the network's input."""

    pixels: NDArray[np.float32]
    """``(3, side, side)``"""
    size: tuple[int, int]
    """Height and width of the original image."""


class ImageQueries(NamedTuple):
    """Image with the names of its tags."""

    image: SquareInput
    names: tuple[str, ...]


class OwlNetwork(NamedTuple):
    """Network on its device, with its processor."""

    model: Any
    processor: Any
    device: "device"
    batches: AdaptiveBatches


@dataclass(frozen=True, slots=True, kw_only=True)
class Owlv2:
    """Detector by OWLv2; its weights are loaded at the first use, once per process."""

    config: DetectionConfig
    name: str = NAME

    @property
    def model(self) -> str:
        """Return the model's name on the Hub, or its folder; by default the usual weights."""
        return self.config.model or DETECTORS.weights_of(NAME)

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        return MODELS.identify(self.model, self.config.revision)

    def prepare(self, image: DecodedImage) -> SquareInput:
        """Return the image as the model's processor prepares it; loads no weights."""
        processor = _processor(self.model, self.config.revision)
        pixels = np.require(image.pixels, requirements=["C", "W"])
        inputs = processor.image_processor(images=pixels, return_tensors="np")
        square = np.asarray(inputs["pixel_values"][0], dtype=np.float32)
        height, width = image.pixels.shape[:2]
        return SquareInput(square, (height, width))

    def detect(
        self,
        prepared: Sequence[SquareInput],
        tags: Sequence[Sequence[Tag]],
    ) -> list[tuple[Box, ...]]:
        """Return the boxes of each image, in its pixels, by tag and then by falling score."""
        network = _load(self.model, self.config.revision, self.config.batch_size)
        boxes: list[tuple[Box, ...]] = [() for _ in prepared]
        asked: list[int] = []
        queries: list[ImageQueries] = []
        for position, (image, image_tags) in enumerate(zip(prepared, tags, strict=True)):
            if image_tags:
                asked.append(position)
                queries.append(ImageQueries(image, tuple(tag.name for tag in image_tags)))
        work = partial(_find_boxes, network, self.config)
        answers = network.batches.each(work, queries)
        for position, image_boxes in zip(asked, answers, strict=True):
            boxes[position] = image_boxes
        return boxes


def _find_boxes(
    network: OwlNetwork, config: DetectionConfig, queries: Sequence[ImageQueries]
) -> list[tuple[Box, ...]]:
    """Return the boxes of some images, each by its own queries."""
    import torch

    texts = [[QUERY.format(_clean(name)) for name in query.names] for query in queries]
    tokens = network.processor(text=texts, return_tensors="pt", truncation=True)
    pixels = torch.from_numpy(np.stack([query.image.pixels for query in queries]))
    with torch.inference_mode():
        output = network.model(
            pixel_values=pixels.to(network.device),
            input_ids=tokens["input_ids"].to(network.device),
            attention_mask=tokens["attention_mask"].to(network.device),
        )
    output.logits = output.logits.float().cpu().clone()
    output.pred_boxes = output.pred_boxes.float().cpu()
    for query, logits in zip(queries, output.logits, strict=True):
        logits[:, len(query.names) :] = -torch.inf  # queries that pad those of other images
    if not bool(output.pred_boxes.isfinite().all()) or bool(output.logits.isnan().any()):
        raise ModelError(f"{FIELD}.model: OWLv2 gave boxes or scores that are not finite")
    results = network.processor.post_process_grounded_object_detection(
        output,
        threshold=config.box_threshold,
        target_sizes=[query.image.size for query in queries],
    )
    return [
        tuple(_select_boxes(query, result, config))
        for query, result in zip(queries, results, strict=True)
    ]


def _select_boxes(query: ImageQueries, result: Any, config: DetectionConfig) -> Iterator[Box]:
    """Yield the boxes of each tag."""
    for tag in range(len(query.names)):
        is_of_tag = result["labels"] == tag
        boxes = {name: result[name][is_of_tag] for name in ("boxes", "scores")}
        yield from suppress_boxes(tag, boxes, query.image.size, max_iou=config.max_iou)


def _clean(name: str) -> str:
    """Return a tag without lone surrogates, which cannot be tokenised."""
    return name.encode("utf-8", "ignore").decode()


def pin_owlv2(config: DetectionConfig, *, download: bool) -> DetectionConfig:
    """Return the configuration with the revision of the local weights; folders are checked."""
    require_modules(FIELD, "torch", "torchvision", "transformers")
    model = config.model or DETECTORS.weights_of(NAME)
    update = MODELS.pin(model, config.revision, download=download)
    pinned = config.model_copy(update=update)
    if is_model_folder(pinned.model):
        _processor(pinned.model, pinned.revision)
    return pinned


@lru_cache(maxsize=4)
def _processor(model: str, revision: str) -> Any:
    from transformers import AutoProcessor

    folder = MODELS.resolve_folder(model, revision)
    with loading(FIELD, folder):
        MODELS.find_type(folder)
        return AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


@lru_cache(maxsize=1)
def _load(model: str, revision: str, batch: int) -> OwlNetwork:
    from transformers import AutoModelForZeroShotObjectDetection

    device = choose_device()
    folder = MODELS.checked_folder(model, revision)
    MODELS.find_type(folder)
    network = load_pretrained(
        AutoModelForZeroShotObjectDetection, folder, field=FIELD, trust_remote_code=False
    )
    return OwlNetwork(
        network.eval().to(device),
        _processor(model, revision),
        device,
        AdaptiveBatches(batch, most=MAX_IMAGES, on_cpu=1),
    )
