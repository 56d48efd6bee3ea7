"""Build SAM (Kirillov et al., 2023) from a checkpoint's own shapes, and fill it.

Reads the published ``sam_vit_*.pth``, or any file with the same keys, safetensors too. Needs PyTorch and the package
``segment-anything``, whose own loader is not used: it runs pickles. Nothing is allocated before the shapes are known
to be those of the model, and the file's numbers are used where they lie: processes on one machine share them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.tensor_shapes import Shapes, compare_shapes, count_parts, name_some

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = "image_encoder.blocks."
LAYER = "mask_decoder.transformer.layers."
SCORE = "mask_decoder.iou_prediction_head.layers."
NEEDED = (
    "image_encoder.pos_embed",
    "image_encoder.patch_embed.proj.weight",
    f"{BLOCK}0.attn.rel_pos_h",
    f"{BLOCK}0.mlp.lin1.weight",
    "image_encoder.neck.0.weight",
    "prompt_encoder.mask_downscaling.3.weight",
    "mask_decoder.mask_tokens.weight",
    f"{LAYER}0.mlp.lin1.weight",
    f"{SCORE}0.weight",
)
"""The tensors whose shapes say what the model is."""
DECODER_HEADS = 8
"""Attention heads of the mask decoder: the one number that no shape tells; all published models have eight."""
MAX_SIDE = 4096
"""Largest images, in pixels, that a checkpoint may ask for (ours; published: 1024)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamShape:
    """Be the sizes of a SAM model."""

    embed_dim: int
    """Of the image encoder."""
    depth: int
    heads: int
    global_blocks: tuple[int, ...]
    """Blocks whose attention sees the whole image; the others' sees windows."""
    window: int
    """Side of a window in patches; 0: there are none."""
    mlp_ratio: float
    patch: int
    """Side of a patch in pixels."""
    side: int
    """Side of the images that it sees, in pixels."""
    prompt_dim: int
    mask_channels: int
    decoder_depth: int
    decoder_mlp: int
    masks: int
    """Masks per prompt when it is asked for several."""
    score_depth: int
    score_width: int


def read_shape(shapes: Shapes) -> SamShape:
    """Return the sizes of the model whose tensors have these shapes.

    Raises:
        ModelError: these are not SAM's; the message names what is missing, or does not fit.
    """
    if missing := [name for name in NEEDED if name not in shapes]:
        raise ModelError(f"it is no SAM checkpoint: it has no {name_some(missing)}")
    if empty := [name for name, shape in shapes.items() if 0 in shape]:
        raise ModelError(f"it is no SAM checkpoint: {name_some(empty)} hold nothing")
    try:
        return _read_shape(shapes)
    except (ValueError, IndexError, ZeroDivisionError) as error:
        raise ModelError(f"it is no SAM checkpoint: {error}") from error


def _read_shape(shapes: Shapes) -> SamShape:
    _, grid, grid_across, embed_dim = shapes["image_encoder.pos_embed"]
    patch = shapes["image_encoder.patch_embed.proj.weight"][-1]
    if grid != grid_across or not 0 < grid * patch <= MAX_SIDE:
        raise ValueError(f"it sees {grid_across * patch} x {grid * patch} pixels, not squares up to {MAX_SIDE}")
    sides, width = _attention(shapes)
    windows = set(sides) - {grid}
    if len(windows) > 1:
        raise ValueError(f"its blocks have windows of several sizes: {sorted(windows)}")
    masks, prompt_dim = shapes["mask_decoder.mask_tokens.weight"]
    mask_channels, _, _, _ = shapes["prompt_encoder.mask_downscaling.3.weight"]
    return SamShape(
        embed_dim=embed_dim,
        depth=len(sides),
        heads=embed_dim // width,
        global_blocks=tuple(place for place, side in enumerate(sides) if side == grid),
        window=windows.pop() if windows else 0,
        mlp_ratio=shapes[f"{BLOCK}0.mlp.lin1.weight"][0] / embed_dim,
        patch=patch,
        side=grid * patch,
        prompt_dim=prompt_dim,
        mask_channels=mask_channels,
        decoder_depth=count_parts(shapes, LAYER),
        decoder_mlp=shapes[f"{LAYER}0.mlp.lin1.weight"][0],
        masks=masks - 1,
        score_depth=count_parts(shapes, SCORE),
        score_width=shapes[f"{SCORE}0.weight"][0],
    )


def _attention(shapes: Shapes) -> tuple[list[int], int]:
    """Return how many patches each block's attention sees across, and the width of a head.

    Relative positions say both: there are ``2 * side - 1`` of them, one vector of a head's width for each.
    """
    names = [f"{BLOCK}{place}.attn.rel_pos_h" for place in range(count_parts(shapes, BLOCK))]
    if missing := [name for name in names if name not in shapes]:
        raise ValueError(f"it has no {name_some(missing)}")
    return [(shapes[name][0] + 1) // 2 for name in names], shapes[names[0]][1]


def load_sam(path: Path, *, field: str) -> Any:
    """Return the package's ``Sam`` with a checkpoint's weights, in float32 on the CPU.

    Args:
        path: the checkpoint.
        field: the field of the profile that names it, for messages.

    Raises:
        ModelError: it cannot be read, or is no SAM checkpoint; the message says why.
    """
    weights = read_checkpoint(path, field=field)
    try:
        return fill_sam(weights)
    except ModelError as error:
        raise ModelError(f"{field}: {path}: {error}") from error


def fill_sam(weights: "Mapping[str, Tensor]") -> Any:
    """Return the package's ``Sam`` with these weights.

    Raises:
        ModelError: they are not SAM's.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    shape = read_shape(shapes)
    try:
        model = build_sam(shape)
    except (ArithmeticError, AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"it is no SAM checkpoint: {asdict(shape)} make no model: {error}") from error
    compare_shapes(shapes, {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()})
    if strange := [name for name, tensor in weights.items() if not tensor.is_floating_point()]:
        raise ModelError(f"{name_some(strange)} are not floating-point numbers")
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, assign=True)
    return model.requires_grad_(requires_grad=False).eval()


def build_sam(shape: SamShape) -> Any:
    """Return the package's ``Sam`` of these sizes, without numbers (on PyTorch's meta device)."""
    import torch
    from segment_anything.modeling import ImageEncoderViT, MaskDecoder, PromptEncoder, Sam, TwoWayTransformer
    from torch.nn import LayerNorm

    grid = shape.side // shape.patch
    norm: Any = partial(LayerNorm, eps=1e-6)
    with torch.device("meta"):
        encoder = ImageEncoderViT(
            img_size=shape.side, patch_size=shape.patch, embed_dim=shape.embed_dim, depth=shape.depth,
            num_heads=shape.heads, mlp_ratio=shape.mlp_ratio, out_chans=shape.prompt_dim, qkv_bias=True,
            norm_layer=norm, use_rel_pos=True, window_size=shape.window,
            global_attn_indexes=shape.global_blocks,
        )  # fmt: skip
        prompts = PromptEncoder(
            embed_dim=shape.prompt_dim, image_embedding_size=(grid, grid),
            input_image_size=(shape.side, shape.side), mask_in_chans=shape.mask_channels,
        )  # fmt: skip
        transformer = TwoWayTransformer(
            depth=shape.decoder_depth, embedding_dim=shape.prompt_dim, num_heads=DECODER_HEADS,
            mlp_dim=shape.decoder_mlp,
        )  # fmt: skip
        decoder = MaskDecoder(
            transformer_dim=shape.prompt_dim, transformer=transformer, num_multimask_outputs=shape.masks,
            iou_head_depth=shape.score_depth, iou_head_hidden_dim=shape.score_width,
        )  # fmt: skip
    return Sam(encoder, prompts, decoder)
