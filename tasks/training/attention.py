"""Attention functions for transformers: answers that share a prompt, and windows of a vision tower.

A single mask over all tokens would be correct (SDPA, eager), but compute masked scores and rule out
the fastest kernels. So prompts attend causally without a mask, and the few answer tokens attend to
prompt and answer with a small mask: the result is the same. transformers' Qwen models call SDPA
once per window or image (16 images of 448 x 448 pixels: 7,200 calls per pass); here windows of
equal length take one call, with the same result (ours).
"""

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

SPLIT = "packed_sdpa"  # name of two-part SDPA; transformers looks for "sdpa" in it
WINDOWS = (
    "windows_flash"  # transformers passes windows unsplit to functions with "flash" in their name
)


def choose_attention() -> dict[str, str]:
    """Register the attention in two parts; return ``attn_implementation`` for ``from_pretrained``."""
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(SPLIT, attend_in_parts)
    AttentionMaskInterface.register(SPLIT, sdpa_mask)
    return {"text_config": SPLIT, "vision_config": "sdpa"}


def attend_in_parts(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **words: Any,
) -> tuple[Tensor, None]:
    """Return (P, T, heads, size) as transformers' SDPA does, with a mask for the last queries alone.

    Queries are (P, heads, T, size), keys and values (P, key heads, T, size). The mask is (P, 1, A,
    T) for the last A queries, with the earlier ones causal; (P, 1, T, T) for all; or ``None``.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward as attend

    first = 0 if attention_mask is None else query.shape[2] - attention_mask.shape[2]
    if not first:
        return attend(module, query, key, value, attention_mask, **words)
    prompts, _ = attend(
        module, query[:, :, :first], key[:, :, :first], value[:, :, :first], None, **words
    )
    answers, _ = attend(module, query[:, :, first:], key, value, attention_mask, **words)
    return torch.cat([prompts, answers], dim=1), None


def join_windows(model: Any) -> bool:
    """Batch a vision tower's attention over windows of equal length; return whether it has windows."""
    AttentionInterface.register(WINDOWS, attend_windows)
    seeing = [one for one in model.modules() if hasattr(one, "qkv") and hasattr(one, "config")]
    windowed = [
        one.config for one in seeing if "cu_seqlens" in inspect.signature(one.forward).parameters
    ]
    for config in windowed:
        if config._attn_implementation == "sdpa":
            config._attn_implementation = WINDOWS
    return bool(windowed)


def attend_windows(
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
    """Return (1, S, H, D): attention within each window.

    Query, key and value are (1, H, S, D); ``cu_seq_lens_q`` (W + 1,) holds the starts of the
    windows, then S; ``max_length_q`` is the length of the longest window.
    """
    del module, attention_mask
    flat = [one[0].transpose(0, 1) for one in (query, key, value)]  # (S, H, D)
    windows, length = len(cu_seq_lens_q) - 1, len(flat[0])
    if windows * max_length_q == length:  # equal lengths: no device sync, no copy
        return _attend_equal(flat, max_length_q, scaling)[None], None
    found = torch.empty_like(flat[0], memory_format=torch.contiguous_format)
    sizes = cu_seq_lens_q.diff()
    for size in filter(None, sizes.unique().tolist()):
        begins = cu_seq_lens_q[:-1][sizes == size]
        places = (begins[:, None] + torch.arange(size, device=begins.device)).flatten()
        found[places] = _attend_equal([one[places] for one in flat], size, scaling)
    return found[None], None


def _attend_equal(flat: list[Tensor], size: int, scaling: float | None) -> Tensor:
    """Return (S, H, D) for windows of one size."""
    query, key, value = (
        one.unflatten(0, (-1, size)).transpose(1, 2) for one in flat
    )  # (W, H, size, D)
    found = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling)
    return found.transpose(1, 2).flatten(0, 1)
