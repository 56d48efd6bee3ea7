"""Build the image encoder of RAM from its checkpoint's own shapes: timm's Swin transformer (Liu et al., 2021).

Reads tensors by their published names. Needs PyTorch and timm. Nothing is allocated before the shapes are known to be
those of the model, and the file's numbers are used where they lie: processes on one machine share them.

timm's Swin is that of the publication with one other name: it puts the merging of patches at the beginning of a stage,
the checkpoint at the end of the one before.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.tensor_shapes import Shapes, compare_shapes, count_parts, name_some

if TYPE_CHECKING:
    from torch import Tensor

SWIN = "visual_encoder."
PATCHES = f"{SWIN}patch_embed.proj.weight"
BLOCK = f"{SWIN}layers.0.blocks.0."
BIAS, INNER = f"{BLOCK}attn.relative_position_bias_table", f"{BLOCK}mlp.fc1.weight"
COMPUTED = re.compile(r"\.(relative_position_index|attn_mask)$")
"""Tensors that follow from the sizes."""
MAX_SIDE = 1024
"""Largest images in pixels that a checkpoint may ask for (ours; published: 384)."""
MAX_MASKS = 1 << 28
"""Most numbers in the masks of shifted windows, which no file holds but memory does (ours; published: 2**25)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinShape:
    """Be the sizes of a Swin transformer."""

    side: int
    """Of the images that it sees, in pixels."""
    patch: int
    embed_dim: int
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    window: int
    mlp_ratio: float

    @property
    def width(self) -> int:
        """Return the length of the vectors that it gives."""
        return self.embed_dim << (len(self.depths) - 1)


def fill_swin(tensors: "Mapping[str, Tensor]") -> tuple[Any, SwinShape]:
    """Return timm's ``SwinTransformer`` with a checkpoint's weights, in float32 on the CPU, and its sizes.

    Raises:
        ModelError: they are not Swin's; the message says why.
    """
    shape = read_swin_shape({name: tuple(tensor.shape) for name, tensor in tensors.items()})
    weights = {_timm_name(name): tensor for name, tensor in tensors.items() if not COMPUTED.search(name)}
    return _fill(shape, weights), shape


def read_swin_shape(shapes: Shapes) -> SwinShape:
    """Return the sizes of the Swin transformer whose tensors have these shapes.

    Raises:
        ModelError: these are not Swin's; the message names what is missing, or does not fit.
    """
    if missing := [name for name in (PATCHES, BIAS, INNER) if name not in shapes]:
        raise ModelError(f"it has no {name_some(missing)}")
    try:
        return _read_swin_shape(shapes)
    except (ArithmeticError, LookupError, ValueError) as error:
        raise ModelError(f"its image encoder is no Swin transformer: {error}") from error


def _read_swin_shape(shapes: Shapes) -> SwinShape:
    embed_dim, _, patch, _ = shapes[PATCHES]
    stages = count_parts(shapes, f"{SWIN}layers.")
    depths = tuple(count_parts(shapes, f"{SWIN}layers.{stage}.blocks.") for stage in range(stages))
    table = "blocks.0.attn.relative_position_bias_table"
    heads = tuple(shapes[f"{SWIN}layers.{stage}.{table}"][1] for stage in range(stages))
    window = (math.isqrt(shapes[BIAS][0]) + 1) // 2
    if (2 * window - 1) ** 2 != shapes[BIAS][0]:
        raise ValueError(f"{BIAS} has {shapes[BIAS][0]} rows, which is no square window")
    grid = _grid(shapes, window, stages)
    if not 0 < grid * patch <= MAX_SIDE or sum(depths) * grid**2 * window**2 > MAX_MASKS:
        raise ValueError(f"it sees images of {grid * patch} pixels in windows of {window * patch}, which is absurd")
    return SwinShape(
        side=grid * patch,
        patch=patch,
        embed_dim=embed_dim,
        depths=depths,
        heads=heads,
        window=window,
        mlp_ratio=shapes[INNER][0] / embed_dim,
    )


def _grid(shapes: Shapes, window: int, stages: int) -> int:
    """Return how many patches there are across an image.

    The masks of shifted windows say it; without them, the last stage has one window, as in all published models.
    """
    masks = shapes.get(f"{SWIN}layers.0.blocks.1.attn_mask")
    if masks:
        return window * math.isqrt(masks[0])
    return window << (stages - 1)


def _timm_name(name: str) -> str:
    """Return timm's name of a tensor of the image encoder."""
    return re.sub(
        r"^layers\.(\d+)\.downsample\.",
        lambda found: f"layers.{int(found[1]) + 1}.downsample.",
        name.removeprefix(SWIN),
    )


def _fill(shape: SwinShape, weights: "Mapping[str, Tensor]") -> Any:
    import torch

    try:
        with torch.device("meta"):
            wanted = {name: tuple(tensor.shape) for name, tensor in _build_swin(shape).state_dict().items()}
        compare_shapes({name: tuple(tensor.shape) for name, tensor in weights.items()}, wanted)
        model = _build_swin(shape)
    except (ArithmeticError, AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"its image encoder is no Swin transformer: {shape}: {error}") from error
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, assign=True)
    return model.requires_grad_(requires_grad=False).eval()


def _build_swin(shape: SwinShape) -> Any:
    from timm.models.swin_transformer import SwinTransformer

    return SwinTransformer(
        img_size=shape.side,
        patch_size=shape.patch,
        embed_dim=shape.embed_dim,
        depths=shape.depths,
        num_heads=shape.heads,
        window_size=shape.window,
        mlp_ratio=shape.mlp_ratio,
        num_classes=0,
        drop_path_rate=0.0,
        weight_init="skip",
    )
