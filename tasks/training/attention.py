"""Attention functions for transformers: answers that share a prompt, and windows of a vision tower.

A single mask over all tokens would be correct (SDPA, eager), but compute masked scores and rule out
the fastest kernels. So prompts attend causally without a mask, and the few answer tokens attend to
prompt and answer with a small mask: the result is the same. transformers' Qwen models call SDPA
once per window or image (16 images of 448 x 448 pixels: 7,200 calls per pass); here windows of
equal length take one call, with the same result (ours).
"""

import inspect
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from pairwright.schemas.errors import ConfigError

SPLIT = "packed_sdpa"  # name of two-part SDPA; transformers looks for "sdpa" in it
# transformers passes windows unsplit to functions with "flash" in their name
WINDOWS = "windows_flash"


NO_FLASH = {
    "gemma3": "its image tokens see each other",
    "gemma3n": "its image tokens see each other",
    "gemma4": "its image tokens see each other",
    "paligemma": "its image tokens see each other",
}
"""Families with a mask that FlashAttention cannot have."""


def choose_attention(name: str = "auto", family: str = "") -> str | dict[str, str]:
    """Return ``attn_implementation`` for ``from_pretrained``, and register attention in two parts.

    ``name`` is ``model.attn_implementation``, ``family`` the model's type. ``ConfigError``:
    FlashAttention is not installed, or has no mask for the family.
    """
    from transformers.masking_utils import sdpa_mask

    if name == "flash_attention_2":
        _check_flash(family)
    if name != "auto":
        return name

    AttentionInterface.register(SPLIT, attend_in_parts)
    AttentionMaskInterface.register(SPLIT, sdpa_mask)
    return {"text_config": SPLIT, "vision_config": "sdpa"}


def _check_flash(family: str) -> None:
    field = "model.attn_implementation: flash_attention_2"
    if family in NO_FLASH:
        raise ConfigError(f"{field} has no mask for {family}: {NO_FLASH[family]}. Take sdpa")
    if find_spec("flash_attn") is None:
        raise ConfigError(
            f"{field} needs flash-attn, not installed here: "
            "python -m pip install flash-attn --no-build-isolation, or take sdpa"
        )
    if not torch.cuda.is_available():
        raise ConfigError(f"{field} needs a GPU. Take sdpa")


def attend_in_parts(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Return (P, T, heads, size) as transformers' SDPA does, with a mask for the last queries.

    Queries are (P, heads, T, size), keys and values (P, key heads, T, size). The mask is (P, 1, A,
    T) for the last A queries, with the earlier ones causal; (P, 1, T, T) for all; or ``None``.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward as attend

    first = 0 if attention_mask is None else query.shape[2] - attention_mask.shape[2]
    if not first:
        return attend(module, query, key, value, attention_mask, **kwargs)
    prompts, _ = attend(
        module,
        query[:, :, :first],
        key[:, :, :first],
        value[:, :, :first],
        None,
        **kwargs,
    )
    answer_queries = query[:, :, first:]
    answers, _ = attend(module, answer_queries, key, value, attention_mask, **kwargs)
    return torch.cat([prompts, answers], dim=1), None


def join_windows(model: Any) -> bool:
    """Batch a vision tower's attention over windows of equal length.

    Returns whether the model has such a tower.
    """
    AttentionInterface.register(WINDOWS, attend_windows)
    has_windows = False
    for module in model.modules():
        if not hasattr(module, "qkv") or not hasattr(module, "config"):
            continue
        if "cu_seqlens" in inspect.signature(module.forward).parameters:
            has_windows = True
            if module.config._attn_implementation == "sdpa":
                module.config._attn_implementation = WINDOWS
    return has_windows


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
    tensors = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]  # (S, H, D)
    windows = len(cu_seq_lens_q) - 1
    if windows * max_length_q == len(tensors[0]):  # equal lengths: no device sync, no copy
        return _attend_equal(tensors, max_length_q, scaling)[None], None
    output = torch.empty_like(tensors[0], memory_format=torch.contiguous_format)
    for positions, size in _group_windows(cu_seq_lens_q):
        equal = [tensor[positions] for tensor in tensors]
        output[positions] = _attend_equal(equal, size, scaling)
    return output[None], None


def _group_windows(starts: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield the token positions of the windows of each size, and the size."""
    sizes = starts.diff()
    for size in filter(None, sizes.unique().tolist()):
        starts_of_size = starts[:-1][sizes == size]
        offsets = torch.arange(size, device=starts.device)
        yield (starts_of_size[:, None] + offsets).flatten(), size


def _attend_equal(
    tensors: list[Tensor],
    size: int,
    scaling: float | None,
) -> Tensor:
    """Return (S, H, D) for windows of one size."""
    windows = [tensor.unflatten(0, (-1, size)).transpose(1, 2) for tensor in tensors]
    query, key, value = windows  # (W, H, size, D)
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=scaling)
    return output.transpose(1, 2).flatten(0, 1)
