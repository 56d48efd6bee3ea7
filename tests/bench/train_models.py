"""Write a small Qwen2.5-VL with random weights, of about the proportions of the published ones.

An image's way through the vision tower costs about as much as its tokens' way through the language
model, as there; attention is a larger share, since widths are smaller. Needs PyTorch and
transformers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pairwright.tasks.training.tiny_model import LONGEST, TEMPLATE, train_tokenizer

VOCABULARY = 1500
TEXT: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LONGEST,
    "rms_norm_eps": 1e-6,
    "bos_token_id": None,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1_000_000.0,
        "mrope_section": [8, 12, 12],
    },
}
VISION = {
    "depth": 4,
    "hidden_size": 128,
    "intermediate_size": 340,
    "num_heads": 4,
    "out_hidden_size": 256,
    "window_size": 112,
    "fullatt_block_indexes": [3],
}
MARKS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


def write_model(folder: Path, texts: Sequence[str]) -> None:
    """Write a checkpoint in float32, with a tokenizer that has learnt these texts."""
    from transformers import (
        Qwen2_5_VLConfig,
        Qwen2_5_VLForConditionalGeneration,
        Qwen2_5_VLProcessor,
        Qwen2VLImageProcessor,
        Qwen2VLVideoProcessor,
        logging,
    )

    logging.disable_progress_bar()
    tokenizer = train_tokenizer(texts, VOCABULARY)
    processor = Qwen2_5_VLProcessor(
        Qwen2VLImageProcessor(), tokenizer, Qwen2VLVideoProcessor(), chat_template=TEMPLATE
    )
    processor.save_pretrained(folder)
    number: Any = tokenizer.convert_tokens_to_ids
    own = {
        "vocab_size": len(tokenizer),
        "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
    }
    marks: Any = {name: number(token) for name, token in MARKS.items()}
    config = Qwen2_5_VLConfig(
        text_config=TEXT | own, vision_config=VISION, tie_word_embeddings=True, **marks
    )
    torch.manual_seed(0)
    Qwen2_5_VLForConditionalGeneration._from_config(config, dtype=torch.float32).save_pretrained(
        folder
    )
