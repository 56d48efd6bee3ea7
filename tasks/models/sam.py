"""SAM segmenter (Kirillov et al., 2023), by the package ``segment-anything``.

Reads the published checkpoints or any file with the same keys, without the package's loader, which
runs pickles. Each image is encoded once for all its tags: one alone fills a GPU. On a GPU the
encoder computes in bfloat16; boxes and masks are always float32, or corners would move by up to
four pixels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.checkpoints import (
    Shapes,
    count_parts,
    fill_model,
    read_checkpoint,
    shapes_of,
)
from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.scene_models import TagMask
from pairwright.tasks.models.weights import (
    PublishedFile,
    absolute,
    find_checkpoint,
    identify_files,
    loading,
    require_modules,
)

if TYPE_CHECKING:
    from torch import Tensor

FIELD = "segmentation"
ADDRESS = "https://dl.fbaipublicfiles.com/segment_anything/"


def _published(name: str, sha256: str) -> PublishedFile:
    return PublishedFile(field=FIELD, name=name, url=ADDRESS + name, sha256=sha256)


FILES = {
    "vit_b": _published(
        "sam_vit_b_01ec64.pth",
        "ec2df62732614e57411cdcf32a23ffdf28910380d03139ee0f4fcbe91eb8c912",
    ),
    "vit_l": _published(
        "sam_vit_l_0b3195.pth",
        "3adcc4315b642a4d2101128f611684e8734c41232a17c648ed1693702a49a622",
    ),
    "vit_h": _published(
        "sam_vit_h_4b8939.pth",
        "a7bf3b02f3ebf1267aba913ff637d9a2d5c33d3173bb679e46d9f338c26f262e",
    ),
}
"""The published files, by model."""
USUAL = "vit_h"
MAX_MASK_PIXELS = 1 << 26
"""Maximum mask pixels of an image at once, 4 bytes each."""
LOADING = Lock()
"""Held while threads that prepare images wait for the weights, or each would load them."""
DECODER_HEADS = 8
"""Attention heads of the mask decoder, which no shape reveals; all published models have eight."""
Part = tuple[Box, NDArray[np.bool_], float]
"""Box with its ``(h, w)`` mask and its score."""


class SquareImage(NamedTuple):
    """Image resized to the model's square."""

    pixels: NDArray[np.uint8]
    """``(h, w, 3)``; the longer side is the square's."""
    original: tuple[int, int]
    """Height and width of the original image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sam:
    """Segmenter by SAM; its weights are loaded at the first use, once per process."""

    config: SegmentationConfig
    name: str = "sam"

    @property
    def version(self) -> str:
        """Return the identity of the weights."""
        config = self.config
        return f"SAM {config.revision or config.checkpoint or config.model or USUAL}"

    def prepare(self, image: DecodedImage) -> SquareImage:
        """Return the image in the model's square."""
        with LOADING:
            predictor = _load(self)
        return resize_to_side(predictor.transform.target_length, image)

    def segment(
        self,
        prepared: Sequence[SquareImage],
        tags: Sequence[Sequence[Tag]],
        boxes: Sequence[Sequence[Box]],
    ) -> Iterator[list[TagMask]]:
        """Yield for each image one mask per tag: the union of its boxes' masks.

        Its score is the lowest of theirs.
        """
        predictor = _load(self)
        for image, image_tags, image_boxes in zip(prepared, tags, boxes, strict=True):
            masks = np.zeros((len(image_tags), *image.original), dtype=np.bool_)
            scores: dict[int, float] = {}
            for box, mask, score in _masks(predictor, image, image_boxes):
                masks[box.tag] |= mask
                scores[box.tag] = min(score, scores.get(box.tag, score))
            yield [TagMask(mask, scores.get(tag, 0.0)) for tag, mask in enumerate(masks)]


def resize_to_side(side: int, image: DecodedImage) -> SquareImage:
    """Return an image resized as by ``ResizeLongestSide``, which fails where a side becomes 0."""
    from segment_anything.utils.transforms import ResizeLongestSide

    height, width = image.pixels.shape[:2]
    rows, columns = ResizeLongestSide.get_preprocess_shape(height, width, side)
    size = (max(columns, 1), max(rows, 1))
    resized = Image.fromarray(image.pixels).resize(size, Image.Resampling.BILINEAR)
    return SquareImage(np.asarray(resized), (height, width))


def _masks(predictor: Any, image: SquareImage, boxes: Sequence[Box]) -> Iterator[Part]:
    """Yield each box of an image with its mask and score."""
    if not boxes:
        return
    _encode(predictor, image)
    height, width = image.original
    step = max(MAX_MASK_PIXELS // (height * width), 1)
    for start in range(0, len(boxes), step):
        yield from _decode(predictor, image, boxes[start : start + step])


def _encode(predictor: Any, image: SquareImage) -> None:
    """Set the image of the predictor."""
    import torch

    device = predictor.device
    pixels = torch.tensor(image.pixels, device=device).permute(2, 0, 1)[None]
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        predictor.set_torch_image(pixels, image.original)
    predictor.features = predictor.features.float()


def _decode(predictor: Any, image: SquareImage, boxes: Sequence[Box]) -> Iterator[Part]:
    """Yield some boxes of the predictor's image with their masks and scores."""
    import torch

    corners = [(box.x0, box.y0, box.x1, box.y1) for box in boxes]
    original = torch.tensor(corners, device=predictor.device)
    resized = predictor.transform.apply_boxes_torch(original, image.original)
    masks, scores, _ = predictor.predict_torch(None, None, boxes=resized, multimask_output=False)
    if not bool(torch.isfinite(scores).all()):
        raise ModelError(f"{FIELD}: SAM gave scores that are not finite: its weights are damaged")
    yield from zip(boxes, masks[:, 0].cpu().numpy(), scores[:, 0].tolist(), strict=True)


def pin_sam(config: SegmentationConfig) -> SegmentationConfig:
    """Return the configuration with the hash of the local weights.

    A named checkpoint is checked.
    """
    require_modules(FIELD, "torch", "torchvision", "segment_anything")
    path = find_checkpoint(
        config.checkpoint,
        FILES[config.model or USUAL],
        config.revision,
        download=config.download,
    )
    if config.checkpoint:
        load_sam(path, field=f"{FIELD}.checkpoint")
    update = {"revision": identify_files([path]), "checkpoint": absolute(config.checkpoint)}
    return config.model_copy(update=update)


@lru_cache(maxsize=1)
def _load(sam: Sam) -> Any:
    from segment_anything import SamPredictor

    config = sam.config
    path = find_checkpoint(
        config.checkpoint, FILES[config.model or USUAL], config.revision, download=False
    )
    return SamPredictor(load_sam(path, field=FIELD).to(choose_device()))


def load_sam(path: Path, *, field: str) -> Any:
    """Return the package's ``Sam`` with a checkpoint's weights, in float32 on the CPU."""
    weights = read_checkpoint(path, field=field)
    with loading(field, path):
        model = build_sam(weights)
        fill_model(model, {name: tensor.float() for name, tensor in weights.items()})
    return model.requires_grad_(requires_grad=False).eval()


def build_sam(weights: "Mapping[str, Tensor]") -> Any:
    """Return the package's ``Sam`` of a checkpoint's shapes, on the meta device.

    A block's relative positions give the side of its attention window in patches: there are ``2 *
    side - 1`` of them, of a head's width. A window smaller than the image is local.
    """
    import torch
    from segment_anything.modeling import Sam

    shapes = shapes_of(weights)
    _, grid, _, _ = shapes["image_encoder.pos_embed"]
    patch = shapes["image_encoder.patch_embed.proj.weight"][-1]
    with torch.device("meta"):
        encoder = _build_encoder(shapes, grid=grid, patch=patch)
        prompts = _build_prompts(shapes, grid=grid, patch=patch)
        decoder = _build_decoder(shapes)
    return Sam(encoder, prompts, decoder)


def _prompt_width(shapes: Shapes) -> int:
    """Return the width of prompts, masks and images in the decoder."""
    return shapes["mask_decoder.mask_tokens.weight"][1]


def _build_encoder(shapes: Shapes, *, grid: int, patch: int) -> Any:
    """Return the image encoder."""
    import torch
    from segment_anything.modeling import ImageEncoderViT

    blocks = count_parts(shapes, "image_encoder.blocks.")
    positions = [shapes[f"image_encoder.blocks.{block}.attn.rel_pos_h"] for block in range(blocks)]
    sides = [(length + 1) // 2 for length, _ in positions]
    _, head_width = positions[0]
    width = shapes["image_encoder.pos_embed"][-1]
    norm: Any = partial(torch.nn.LayerNorm, eps=1e-6)
    return ImageEncoderViT(
        img_size=grid * patch,
        patch_size=patch,
        embed_dim=width,
        depth=blocks,
        num_heads=width // head_width,
        mlp_ratio=shapes["image_encoder.blocks.0.mlp.lin1.weight"][0] / width,
        out_chans=_prompt_width(shapes),
        norm_layer=norm,
        use_rel_pos=True,
        window_size=min(sides) % grid,
        global_attn_indexes=tuple(block for block, side in enumerate(sides) if side == grid),
    )


def _build_prompts(shapes: Shapes, *, grid: int, patch: int) -> Any:
    """Return the prompt encoder."""
    from segment_anything.modeling import PromptEncoder

    return PromptEncoder(
        embed_dim=_prompt_width(shapes),
        image_embedding_size=(grid, grid),
        input_image_size=(grid * patch, grid * patch),
        mask_in_chans=shapes["prompt_encoder.mask_downscaling.3.weight"][0],
    )


def _build_decoder(shapes: Shapes) -> Any:
    """Return the mask decoder."""
    from segment_anything.modeling import MaskDecoder, TwoWayTransformer

    masks, width = shapes["mask_decoder.mask_tokens.weight"]
    layers = "mask_decoder.transformer.layers."
    transformer = TwoWayTransformer(
        depth=count_parts(shapes, layers),
        embedding_dim=width,
        num_heads=DECODER_HEADS,
        mlp_dim=shapes[f"{layers}0.mlp.lin1.weight"][0],
    )
    score = "mask_decoder.iou_prediction_head.layers."
    return MaskDecoder(
        transformer_dim=width,
        transformer=transformer,
        num_multimask_outputs=masks - 1,
        iou_head_depth=count_parts(shapes, score),
        iou_head_hidden_dim=shapes[f"{score}0.weight"][0],
    )
