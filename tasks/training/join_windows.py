"""Compute the attention of a tower that sees for all windows of a length at once, instead of one call for each.

transformers' Qwen models call scaled dot product attention once per window (Qwen2.5-VL) or image, which on a GPU is far
more launching than computing: of 16 images of 448 x 448 pixels, 7,200 calls per pass. Windows of one length make one
call here, of all lengths at most a few, with the same numbers (ours). Needs PyTorch and transformers.
"""

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

PLAIN = "sdpa"
NAME = "windows_flash"
"""With "flash" in it, since transformers then leaves the windows to the function that is called so."""


def join_windows(model: Any) -> bool:
    """Let a model's tower that sees attend so, if it has windows; say whether it does.

    Nothing else of the model changes, and nothing that is saved.
    """
    AttentionInterface.register(NAME, attend)
    configs = {id(module.config): module.config for module in model.modules() if _has_windows(module)}
    for config in configs.values():
        config._attn_implementation = NAME
    return bool(configs)


def _has_windows(module: Any) -> bool:
    config = getattr(module, "config", None)
    if getattr(config, "_attn_implementation", None) != PLAIN or not hasattr(module, "qkv"):
        return False
    return "cu_seqlens" in inspect.signature(module.forward).parameters


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Return (1, S, H, D): each token's mean of the values of its window, as transformers' attention functions do.

    Args:
        module: not used, nor the mask: there is none.
        query: (1, H, S, D).
        key: (1, H, S, D).
        value: (1, H, S, D).
        attention_mask: None.
        cu_seq_lens_q: (W + 1,) where the windows begin, and S.
        max_length_q: tokens of the largest.
        scaling: of the scores.
    """
    del module, attention_mask
    flat = [one[0].transpose(0, 1) for one in (query, key, value)]  # (S, H, D)
    windows, length = len(cu_seq_lens_q) - 1, len(flat[0])
    if windows * max_length_q == length:  # all are the largest: nothing is waited for or moved
        return _attend(flat, max_length_q, scaling)[None], None
    found = torch.empty_like(flat[0], memory_format=torch.contiguous_format)
    sizes = cu_seq_lens_q.diff()
    for size in filter(None, sizes.unique().tolist()):
        begins = cu_seq_lens_q[:-1][sizes == size]
        places = (begins[:, None] + torch.arange(size, device=begins.device)).flatten()
        found[places] = _attend([one[places] for one in flat], size, scaling)
    return found[None], None


def _attend(flat: list[Tensor], size: int, scaling: float | None) -> Tensor:
    """Return (S, H, D) for windows of one size."""
    query, key, value = (one.unflatten(0, (-1, size)).transpose(1, 2) for one in flat)  # (W, H, size, D)
    found = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling)
    return found.transpose(1, 2).flatten(0, 1)
