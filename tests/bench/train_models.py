"""Write Qwen2.5-VL with random weights, in the published size or a small one of about its proportions.

``FULL`` is Qwen2.5-VL-3B's architecture (8 GB on disk). In ``SMALL``, for CPUs, an image's way through the vision tower
costs about as much as its tokens' way through the language model, as there; attention is a larger share, since widths
are smaller. Needs PyTorch and transformers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pairwright.tasks.training.tiny_model import LONGEST, TEMPLATE, train_tokenizer

VOCABULARY = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Be the sizes of a Qwen2.5-VL."""

    hidden: int
    inner: int
    layers: int
    heads: int
    groups: int
    """Of keys and values."""
    vocabulary: int
    """0: what the tokenizer has."""
    vision_hidden: int
    vision_inner: int
    vision_layers: int
    vision_heads: int
    sections: tuple[int, int, int]
    """Frequencies of a head that tell time, row and column."""


FULL = Size(
    hidden=2048,
    inner=11008,
    layers=36,
    heads=16,
    groups=2,
    vocabulary=151_936,
    vision_hidden=1280,
    vision_inner=3420,
    vision_layers=32,
    vision_heads=16,
    sections=(16, 24, 24),
)
SMALL = Size(
    hidden=256,
    inner=1024,
    layers=4,
    heads=4,
    groups=2,
    vocabulary=0,
    vision_hidden=128,
    vision_inner=340,
    vision_layers=4,
    vision_heads=4,
    sections=(8, 12, 12),
)


def write_model(folder: Path, size: Size, texts: Sequence[str], *, device: str) -> Path:
    """Write a checkpoint whose weights are drawn on ``device``: bfloat16 on a GPU, else float32."""
    from transformers import (
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        logging,
    )

    logging.disable_progress_bar()
    tokenizer = train_tokenizer(texts, VOCABULARY)
    processor = Qwen2_5_VLProcessor(Qwen2VLImageProcessor(), tokenizer, Qwen2VLVideoProcessor(), chat_template=TEMPLATE)
    processor.save_pretrained(folder)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        model = Qwen2_5_VLForConditionalGeneration._from_config(config_of(size, tokenizer), dtype=dtype)
    model.save_pretrained(folder)
    return folder


def config_of(size: Size, tokenizer: Any) -> Any:
    """Return the family's configuration; vision looks through windows, and at all in every eighth layer or the last."""
    from transformers import Qwen2_5_VLConfig

    number = tokenizer.convert_tokens_to_ids
    text = {
        "hidden_size": size.hidden,
        "intermediate_size": size.inner,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.groups,
        "vocab_size": size.vocabulary or len(tokenizer),
        "max_position_embeddings": LONGEST,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": list(size.sections)},
        "bos_token_id": None,
        "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
    }
    vision = {
        "depth": size.vision_layers,
        "hidden_size": size.vision_hidden,
        "intermediate_size": size.vision_inner,
        "num_heads": size.vision_heads,
        "out_hidden_size": size.hidden,
        "window_size": 112,
        "fullatt_block_indexes": [*range(7, size.vision_layers, 8)] or [size.vision_layers - 1],
    }
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    names |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    marks = {name: number(token) for name, token in names.items()}
    return Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **marks)
