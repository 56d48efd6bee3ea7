"""Say how attention is computed where several answers share a prompt.

One mask of all tokens against all would do (SDPA, eager), but it computes much that nobody sees, is kept for the
backward pass, and rules out the fastest kernels, which take none. So prompts attend by themselves, causally and without
a mask, and the few tokens of the answers to prompt and answer with a small one: the same sums. FlexAttention skips what
is hidden in one go. Both are under names of ours: for images, which are not packed, SDPA stays.
"""

from typing import Any

import torch
from torch import Tensor

from pairwright.schemas.errors import ConfigError

SPLIT = "packed_sdpa"
"""SDPA in two parts; transformers asks a model with this in its name whether it can have SDPA."""
FLEX = "packed_flex"
"""FlexAttention; under its own name, it is refused by models that do not declare it (Qwen2-VL to Qwen3-VL), though
their attention goes the same way as everybody's."""


def choose_attention(wanted: str) -> Any:
    """Return what ``from_pretrained`` takes as ``attn_implementation`` for a value of ``model.attn_implementation``.

    Raises:
        ConfigError: FlexAttention, and no GPU: it has no backward pass on a CPU.
    """
    if wanted == "eager":
        return wanted
    if wanted == "flex_attention" and not torch.cuda.is_available():
        raise ConfigError("model.attn_implementation: flex_attention cannot be trained with on a CPU; use sdpa")
    return use_attention(FLEX if wanted == "flex_attention" else SPLIT)


def use_attention(name: str) -> dict[str, str]:
    """Make ``SPLIT`` or ``FLEX`` known to transformers, and return which part of a model uses what."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.flex_attention import flex_attention_forward
    from transformers.masking_utils import flex_attention_mask, sdpa_mask

    AttentionInterface.register(SPLIT, attend_in_parts)
    AttentionMaskInterface.register(SPLIT, sdpa_mask)
    AttentionInterface.register(FLEX, flex_attention_forward)
    AttentionMaskInterface.register(FLEX, flex_attention_mask)
    return {"text_config": name, "vision_config": "sdpa"}


def attend_in_parts(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **words: Any
) -> tuple[Tensor, None]:
    """Attend as transformers' SDPA does; where the mask is of the last A queries alone, those before need none.

    Args:
        module: the attention layer.
        query: (P, heads, T, size).
        key: (P, key heads, T, size).
        value: as ``key``.
        attention_mask: (P, 1, A, T) for the last A queries, those before being causal; (P, 1, T, T) for all, or none.
        words: passed on.

    Returns:
        (P, T, heads, size), and no weights.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward as attend

    first = 0 if attention_mask is None else query.shape[2] - attention_mask.shape[2]
    if not first:
        return attend(module, query, key, value, attention_mask, **words)
    prompts, _ = attend(module, query[:, :, :first], key[:, :, :first], value[:, :, :first], None, **words)
    answers, _ = attend(module, query[:, :, first:], key, value, attention_mask, **words)
    return torch.cat([prompts, answers], dim=1), None
