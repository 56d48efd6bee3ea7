"""Turn images into codes of a VQGAN (Esser et al. 2021): what masked places of an image are to be told as.

Reads a checkpoint of taming-transformers (``f16``: 16 x 16 pixels to a code) through ``read_checkpoint``; only its
encoder and its codebook are used. The layers are plain functions of tensors that go by their published names, and how
many there are is read off those names. Needs PyTorch. Cost of 224 x 224 pixels: about 0.2 TFLOP.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import read_checkpoint

if TYPE_CHECKING:
    from torch import Tensor

Weights = Mapping[str, "Tensor"]
GROUPS, EPSILON = 32, 1e-6
"""Of its group normalisations."""
NEEDED = ("encoder.conv_in.weight", "encoder.conv_out.weight", "quant_conv.weight", "quantize.embedding.weight")
LIGHTNING = ("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",)
"""A class that published checkpoints name, as the key of what it remembered."""
ROWS_AT_ONCE = 1 << 14
"""Places whose distances to all codes are held at once."""


def read_vqgan(path: Path, *, field: str) -> dict[str, "Tensor"]:
    """Return the encoder and the codebook of a checkpoint.

    Raises:
        ModelError: it cannot be read, or is of something else.
    """
    tensors = read_checkpoint(path, field=field, under="state_dict", idle=LIGHTNING)
    if missing := [name for name in NEEDED if name not in tensors]:
        raise ModelError(f"{field}: {path} is no VQGAN of taming-transformers: it has no {', '.join(missing)}")
    return {name: tensor.float() for name, tensor in tensors.items() if name.startswith(("encoder.", "quant"))}


def encode(weights: Weights, pixels: "Tensor") -> "Tensor":
    """Return ``(B, height / 16, width / 16)`` codes of ``(B, 3, height, width)`` pixels in [-1, 1]."""
    found = _conv(weights, "encoder.conv_in", pixels)
    for level in _numbers(weights, "encoder.down."):
        found = _level(weights, f"encoder.down.{level}.", found)
    found = _residual(weights, "encoder.mid.block_1.", found)
    found = _attend(weights, "encoder.mid.attn_1.", found)
    found = _residual(weights, "encoder.mid.block_2.", found)
    found = _conv(weights, "encoder.conv_out", _active(weights, "encoder.norm_out", found))
    return nearest(_conv(weights, "quant_conv", found), weights["quantize.embedding.weight"])


def nearest(found: "Tensor", codebook: "Tensor") -> "Tensor":
    """Return ``(B, h, w)``: the number of the code ``(codes, e)`` that is nearest to each of ``(B, e, h, w)``."""
    from torch import cat

    places = found.permute(0, 2, 3, 1).flatten(0, 2)
    lengths = codebook.square().sum(1)
    numbers = [(lengths - 2 * part @ codebook.T).argmin(1) for part in places.split(ROWS_AT_ONCE)]
    return cat(numbers).unflatten(0, (found.shape[0], *found.shape[2:]))


def _level(weights: Weights, name: str, found: "Tensor") -> "Tensor":
    from torch.nn.functional import conv2d, pad

    for block in _numbers(weights, f"{name}block."):
        found = _residual(weights, f"{name}block.{block}.", found)
        if f"{name}attn.{block}.q.weight" in weights:
            found = _attend(weights, f"{name}attn.{block}.", found)
    if f"{name}downsample.conv.weight" not in weights:
        return found
    kernel, bias = weights[f"{name}downsample.conv.weight"], weights[f"{name}downsample.conv.bias"]
    return conv2d(pad(found, (0, 1, 0, 1)), kernel, bias, stride=2)


def _residual(weights: Weights, name: str, found: "Tensor") -> "Tensor":
    inner = _conv(weights, f"{name}conv1", _active(weights, f"{name}norm1", found))
    inner = _conv(weights, f"{name}conv2", _active(weights, f"{name}norm2", inner))
    return inner + (_conv(weights, f"{name}nin_shortcut", found) if f"{name}nin_shortcut.weight" in weights else found)


def _attend(weights: Weights, name: str, found: "Tensor") -> "Tensor":
    from torch.nn.functional import scaled_dot_product_attention

    normed = _norm(weights, f"{name}norm", found)
    query, key, value = (_conv(weights, f"{name}{part}", normed).flatten(2).transpose(1, 2) for part in "qkv")
    seen = scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(found.shape)
    return found + _conv(weights, f"{name}proj_out", seen)


def _active(weights: Weights, name: str, found: "Tensor") -> "Tensor":
    from torch.nn.functional import silu

    return silu(_norm(weights, name, found))


def _norm(weights: Weights, name: str, found: "Tensor") -> "Tensor":
    from torch.nn.functional import group_norm

    return group_norm(found, GROUPS, weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)


def _conv(weights: Weights, name: str, found: "Tensor") -> "Tensor":
    from torch.nn.functional import conv2d

    kernel = weights[f"{name}.weight"]
    return conv2d(found, kernel, weights[f"{name}.bias"], padding=kernel.shape[2] // 2)


def _numbers(weights: Weights, name: str) -> list[int]:
    return sorted({int(key.removeprefix(name).partition(".")[0]) for key in weights if key.startswith(name)})
