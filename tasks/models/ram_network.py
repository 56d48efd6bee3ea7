"""RAM and RAM++ from their published checkpoints: timm's Swin transformer, and the decoder that asks for each tag.

Sizes are those of the checkpoint's shapes, and the file's numbers are used where they lie. Each tag asks the image's
vectors through two layers of cross-attention, without tags seeing each other: BERT's layers, after Query2Label without
their self-attention. RAM knows a tag by one vector; RAM++ by 51, those of descriptions, weighted by how well each fits.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import Shapes, count_parts, read_checkpoint, shapes_of

if TYPE_CHECKING:
    from torch import Tensor

SWIN, HEAD = "visual_encoder.", "tagging_head."
LAYER = f"{HEAD}encoder.layer."
OLD_HEAD = re.compile(r"^vision_multi\.")
"""What the head is called in some files."""
UNUSED = re.compile(rf"(?!{SWIN}|{HEAD}|label_embed|reweight_scale|image_proj\.|wordvec_proj\.|fc\.)")
"""What writes captions (``tag_encoder``, ``text_decoder``); nothing here reads that."""
DELETED = re.compile(rf"{re.escape(HEAD)}embeddings\.|{re.escape(LAYER)}\d+\.attention\.")
"""Parts of BERT that the authors delete from the head."""
COMPUTED = re.compile(r"\.(relative_position_index|attn_mask)$")
"""Tensors that follow from the sizes."""
MERGING = re.compile(r"^layers\.(\d+)\.downsample\.")
HEADS = 4
"""Of each layer of the decoder; no tensor's shape says it."""
EPSILON = 1e-12
"""BERT's, in its normalisations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RamWeights:
    """A model's weights, in float32 on the CPU."""

    swin: Any
    """timm's ``SwinTransformer``, from ``(n, 3, side, side)`` to ``(n, rows, columns, width)``."""
    side: int
    """Of the images that it sees, in pixels."""
    decoder: "dict[str, Tensor]"
    """Everything else by its published key."""


def load_ram(path: Path, *, field: str, plus: bool, tags: int) -> RamWeights:
    """Return the weights of a checkpoint of RAM, or of RAM++, that knows so many tags; ``field`` names it."""
    read = {
        OLD_HEAD.sub(HEAD, name): value for name, value in read_checkpoint(path, field=field, under="model").items()
    }
    tensors = {name: value for name, value in read.items() if not UNUSED.match(name) and not DELETED.match(name)}
    try:
        return _fill(tensors, plus=plus, tags=tags)
    except ModelError as error:
        raise ModelError(f"{field}: {path}: {error}") from error
    except Exception as error:  # shapes that make no model: timm's and PyTorch's own errors
        raise ModelError(f"{field}: {path}: it is no checkpoint of RAM: {type(error).__name__}: {error}") from error


def _fill(tensors: "Mapping[str, Tensor]", *, plus: bool, tags: int) -> RamWeights:
    import torch

    if "label_embed" in tensors and plus != ("reweight_scale" in tensors):  # their other keys are the same
        found, wanted = ("RAM", "ram") if plus else ("RAM++", "ram-plus")
        raise ModelError(f"it is a checkpoint of {found}: set tagging.taggers to {wanted}, or name another file")
    weights = {name: tensor.float() for name, tensor in tensors.items() if not COMPUTED.search(name)}
    swin = build_swin(shapes_of(tensors))
    # timm puts the merging of patches at the beginning of a stage, the checkpoint at the end of the one before.
    parts = {
        MERGING.sub(lambda found: f"layers.{int(found[1]) + 1}.downsample.", name.removeprefix(SWIN)): tensor
        for name, tensor in weights.items()
        if name.startswith(SWIN)
    }
    swin.load_state_dict(parts, assign=True)
    decoder = {name: tensor for name, tensor in weights.items() if not name.startswith(SWIN)}
    rows, what = len(decoder["label_embed"]), "descriptions" if plus else "tags"
    if rows % tags if plus else rows != tags:
        raise ModelError(f"it has {rows:,} {what}, which does not fit the list of {tags:,} tags (tagging.ram.tags)")
    with torch.inference_mode():
        tag_logits(decoder, torch.zeros(1, 1, swin.num_features), tags)  # every tensor is there, and fits
    side = swin.patch_embed.img_size[0]
    return RamWeights(swin=swin.requires_grad_(requires_grad=False).eval(), side=side, decoder=decoder)


def build_swin(shapes: Shapes) -> Any:
    """Return timm's ``SwinTransformer`` of the sizes that a checkpoint's shapes tell, with random weights.

    The masks of shifted windows say how large images are; without them, the last stage has one window, as in all
    published models.
    """
    from timm.models.swin_transformer import SwinTransformer

    embed_dim, _, patch, _ = shapes[f"{SWIN}patch_embed.proj.weight"]
    stages = [f"{SWIN}layers.{stage}.blocks." for stage in range(count_parts(shapes, f"{SWIN}layers."))]
    tables = [shapes[f"{stage}0.attn.relative_position_bias_table"] for stage in stages]
    window = (math.isqrt(tables[0][0]) + 1) // 2
    masks = shapes.get(f"{SWIN}layers.0.blocks.1.attn_mask")
    return SwinTransformer(
        img_size=patch * window * (math.isqrt(masks[0]) if masks else 1 << (len(stages) - 1)),
        patch_size=patch,
        embed_dim=embed_dim,
        depths=tuple(count_parts(shapes, stage) for stage in stages),
        num_heads=tuple(heads for _, heads in tables),
        window_size=window,
        mlp_ratio=shapes[f"{stages[0]}0.mlp.fc1.weight"][0] / embed_dim,
        num_classes=0,
        drop_path_rate=0.0,
        weight_init="skip",
    )


def tag_logits(weights: "Mapping[str, Tensor]", image: "Tensor", tags: int) -> "Tensor":
    """Return the logit of each tag, ``(n, tags)``, of images ``(n, 1 + patches, width)``.

    The first vector of an image is the mean of the others; ``weights`` has the decoder's published keys.
    """
    from torch.nn.functional import linear, relu

    seen = linear(image, weights["image_proj.weight"], weights["image_proj.bias"])
    labels = weights["label_embed"][None]
    if "reweight_scale" in weights:
        labels = _weigh_descriptions(weights, seen[:, 0], tags)
    asked = relu(linear(labels, weights["wordvec_proj.weight"], weights["wordvec_proj.bias"]))
    for layer in range(len({name[len(LAYER) :].partition(".")[0] for name in weights if name.startswith(LAYER)})):
        asked = _ask(weights, f"{LAYER}{layer}.", asked, seen)
    return linear(asked, weights["fc.weight"], weights["fc.bias"])[..., 0]


def _weigh_descriptions(weights: "Mapping[str, Tensor]", image: "Tensor", tags: int) -> "Tensor":
    """Return the mean of each tag's descriptions, weighted by a softmax of their fit to the image ``(n, width)``.

    The result is ``(n, tags, width)``, in the precision of ``label_embed``: autocast does not reach it.
    """
    import torch

    with torch.autocast(image.device.type, enabled=False):
        described = weights["label_embed"].view(tags, -1, image.shape[-1])
        direction = torch.nn.functional.normalize(image.to(described.dtype), dim=-1)
        fit = weights["reweight_scale"].exp() * torch.einsum("nw,tdw->tnd", direction, described)
        return torch.bmm(fit.softmax(dim=-1), described).transpose(0, 1)


def _ask(weights: "Mapping[str, Tensor]", layer: str, tags: "Tensor", image: "Tensor") -> "Tensor":
    """Return what one layer makes of the tags' vectors; those that are the same for all images are asked once."""
    from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

    def project(name: str, values: "Tensor") -> "Tensor":
        return linear(values, weights[f"{layer}{name}.weight"], weights[f"{layer}{name}.bias"])

    def heads(name: str, values: "Tensor") -> "Tensor":
        return project(f"crossattention.self.{name}", values).unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def normalised(name: str, values: "Tensor") -> "Tensor":
        name = f"{layer}{name}.LayerNorm"
        return layer_norm(values, values.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)

    query = heads("query", tags).expand(len(image), -1, -1, -1)
    found = scaled_dot_product_attention(query, heads("key", image), heads("value", image))
    gathered = project("crossattention.output.dense", found.transpose(1, 2).flatten(2))
    tags = normalised("crossattention.output", gathered + tags)
    return normalised("output", project("output.dense", gelu(project("intermediate.dense", tags))) + tags)
