"""Have the language model's attention computed by FlexAttention, which skips what the mask of packed answers hides.

transformers' own name for it is refused by models that do not declare it (Qwen2-VL to Qwen3-VL), though their attention
goes the same way as everybody's; under a name of ours, the same functions are taken. Images, which attend in short
sequences or windows, stay with SDPA.
"""

from typing import Any

import torch

from schemas.errors import ConfigError

FLEX = "flex_for_packed"
"""The name; must not contain "flex_attention", by which transformers knows its own."""


def choose_attention(wanted: str) -> Any:
    """Return what ``from_pretrained`` takes as ``attn_implementation`` for a value of ``model.attention``.

    Raises:
        ConfigError: FlexAttention, and no GPU: it has no backward pass on a CPU.
    """
    if wanted != "flex_attention":
        return "sdpa" if wanted == "auto" else wanted
    if not torch.cuda.is_available():
        raise ConfigError("model.attention: flex_attention cannot be trained with on a CPU; use sdpa")
    return use_flex()


def use_flex() -> dict[str, str]:
    """Make the name known to transformers, and return which part of a model is to use what."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.flex_attention import flex_attention_forward
    from transformers.masking_utils import flex_attention_mask

    AttentionInterface.register(FLEX, flex_attention_forward)
    AttentionMaskInterface.register(FLEX, flex_attention_mask)
    return {"text_config": FLEX, "vision_config": "sdpa"}
