"""Compute the global attention of SAM's image encoder without its matrix of all patches by all patches.

The package writes that matrix out, several times: at 4,096 patches and 16 heads, 1 GB in float32 each. Relative
positions are added to the products of queries and keys: ``q.k + h[q, row of k] + w[q, column of k]``. The same sum is
one product of longer vectors, ``[q, h[q], w[q]]`` and ``[k, one-hot row, one-hot column]``, which PyTorch's fused
attention takes (ours). Needs PyTorch and the package ``segment-anything``.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MULTIPLE = 8
"""Fused kernels want vectors of whole such lengths."""


def fuse_attention(encoder: Any) -> None:
    """Let the blocks of an ``ImageEncoderViT`` that see the whole image compute it so; its weights stay as they are."""
    for block in encoder.blocks:
        if block.window_size == 0:  # windows have 196 patches: their matrices are small, and no slower
            block.attn.forward = partial(attend, block.attn)


def attend(attention: Any, patches: "Tensor") -> "Tensor":
    """Return what the package's ``Attention`` makes of ``(n, rows, columns, dimension)``, apart from roundings."""
    from torch.nn.functional import scaled_dot_product_attention

    count, rows, columns, dimension = patches.shape
    three = attention.qkv(patches).reshape(count, rows * columns, 3, attention.num_heads, -1)
    queries, keys, values = three.permute(2, 0, 3, 1, 4).unbind(0)
    queries, keys = _with_positions(attention, queries, keys, size=(rows, columns))
    width = values.shape[-1]
    seen = scaled_dot_product_attention(queries, keys, _widened(values, queries.shape[-1]), scale=1.0)[..., :width]
    return attention.proj(seen.permute(0, 2, 1, 3).reshape(count, rows, columns, dimension))


def _with_positions(
    attention: Any, queries: "Tensor", keys: "Tensor", *, size: tuple[int, int]
) -> "tuple[Tensor, Tensor]":
    """Return queries and keys whose products hold the relative positions."""
    import torch
    from segment_anything.modeling.image_encoder import get_rel_pos

    rows, columns = size
    grid = queries.unflatten(2, size)
    down = torch.einsum("bnhwc,hkc->bnhwk", grid, get_rel_pos(rows, rows, attention.rel_pos_h))
    across = torch.einsum("bnhwc,wkc->bnhwk", grid, get_rel_pos(columns, columns, attention.rel_pos_w))
    row = torch.eye(rows, dtype=keys.dtype, device=keys.device).repeat_interleave(columns, dim=0)
    column = torch.eye(columns, dtype=keys.dtype, device=keys.device).repeat(rows, 1)
    places = torch.cat([row, column], dim=1).expand(*keys.shape[:3], -1)
    long_queries = torch.cat([queries * attention.scale, down.flatten(2, 3), across.flatten(2, 3)], dim=-1)
    long_keys = torch.cat([keys, places], dim=-1)
    length = -(-long_keys.shape[-1] // MULTIPLE) * MULTIPLE
    return _widened(long_queries.to(keys.dtype), length), _widened(long_keys, length)


def _widened(vectors: "Tensor", length: int) -> "Tensor":
    """Return vectors with zeros at their ends, which change no product."""
    from torch.nn.functional import pad

    return pad(vectors, (0, length - vectors.shape[-1]))
