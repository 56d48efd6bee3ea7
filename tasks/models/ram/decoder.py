"""Say which tags an image has, from its vectors: the decoder of RAM and RAM++, as plain functions of tensors.

Each tag asks the image's vectors through two layers of cross-attention, without tags seeing each other: BERT's layers,
after Query2Label without their self-attention, normalised last. RAM knows a tag by one vector; RAM++ by 51, those of
descriptions, weighted by how well each fits the image. The tensors go by the names that they have in the published
checkpoints. Needs PyTorch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

HEADS = 4
"""Of each layer; no tensor's shape says it."""
EPSILON = 1e-12
"""BERT's, in its normalisations."""
HEAD = "tagging_head."
LAYER = f"{HEAD}encoder.layer."


def tag_logits(weights: "Mapping[str, Tensor]", image: "Tensor", tags: int) -> "Tensor":
    """Return the logit of each tag.

    Args:
        weights: the decoder's tensors by their published keys.
        image: ``(n, 1 + patches, width)`` vectors of images; the first is the mean of the others.
        tags: how many there are.

    Returns:
        ``(n, tags)``.
    """
    from torch.nn.functional import linear, relu

    seen = linear(image, weights["image_proj.weight"], weights["image_proj.bias"])
    labels = weights["label_embed"][None]
    if "reweight_scale" in weights:
        labels = weigh_descriptions(weights, seen[:, 0], tags)
    asked = relu(linear(labels, weights["wordvec_proj.weight"], weights["wordvec_proj.bias"]))
    for layer in range(count_layers(weights)):
        asked = _ask(weights, f"{LAYER}{layer}.", asked, seen)
    return linear(asked, weights["fc.weight"], weights["fc.bias"])[..., 0]


def count_layers(weights: "Mapping[str, Tensor]") -> int:
    """Return how many layers the decoder has."""
    return len({name.removeprefix(LAYER).partition(".")[0] for name in weights if name.startswith(LAYER)})


def weigh_descriptions(weights: "Mapping[str, Tensor]", image: "Tensor", tags: int) -> "Tensor":
    """Return one vector per tag and image: the mean of the tag's descriptions, weighted by a softmax of their fit.

    Args:
        weights: holds ``label_embed``, ``(tags * descriptions, width)``, and ``reweight_scale``.
        image: ``(n, width)``.
        tags: how many there are.

    Returns:
        ``(n, tags, width)``, in the precision of ``label_embed``: autocast does not reach it.
    """
    import torch

    with torch.autocast(image.device.type, enabled=False):
        described = weights["label_embed"].view(tags, -1, image.shape[-1])
        direction = torch.nn.functional.normalize(image.to(described.dtype), dim=-1)
        fit = weights["reweight_scale"].exp() * torch.einsum("nw,tdw->tnd", direction, described)
        return torch.bmm(fit.softmax(dim=-1), described).transpose(0, 1)


def _ask(weights: "Mapping[str, Tensor]", layer: str, tags: "Tensor", image: "Tensor") -> "Tensor":
    """Return what one layer makes of the tags' vectors; those that are the same for all images are asked once."""
    from torch.nn.functional import gelu, linear, scaled_dot_product_attention

    def project(name: str, values: "Tensor") -> "Tensor":
        return linear(values, weights[f"{layer}{name}.weight"], weights[f"{layer}{name}.bias"])

    def heads(name: str, values: "Tensor") -> "Tensor":
        return project(f"crossattention.self.{name}", values).unflatten(-1, (HEADS, -1)).transpose(1, 2)

    query = heads("query", tags).expand(len(image), -1, -1, -1)
    found = scaled_dot_product_attention(query, heads("key", image), heads("value", image))
    gathered = project("crossattention.output.dense", found.transpose(1, 2).flatten(2))
    tags = _normalised(weights, f"{layer}crossattention.output.LayerNorm", gathered + tags)
    inner = gelu(project("intermediate.dense", tags))
    return _normalised(weights, f"{layer}output.LayerNorm", project("output.dense", inner) + tags)


def _normalised(weights: "Mapping[str, Tensor]", name: str, values: "Tensor") -> "Tensor":
    from torch.nn.functional import layer_norm

    return layer_norm(values, values.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)
