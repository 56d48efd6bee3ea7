"""Be the two sides of ``bench_namc`` that write of pairs of images, with random weights of the published sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pairwright.tasks.models.namc.describe import Decoding
from pairwright.tasks.models.namc.namc import Namc
from pairwright.tasks.models.namc.sizes import NamcSizes
from pairwright.tasks.training.tiny_model import TEMPLATE, train_tokenizer

SIDE = 224
PROMPT = "Describe how the second image differs from the first one, in one sentence, and name what changed."
PAD, UNKNOWN, START, END, MASK = 0, 100, 101, 102, 103
"""In BERT's vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Say what is written, on which device, with numbers of which type."""

    pairs: int
    tokens: int
    device: str
    kind: torch.dtype


@dataclass(frozen=True, slots=True)
class Writer:
    """Be a model that writes of pairs; a call writes ``Task.tokens`` of each pair, all pairs at once."""

    weights: int
    write: Callable[[], None]


def make_images(pairs: int) -> NDArray[np.uint8]:
    """Return ``(pairs, 2, 224, 224, 3)`` noise."""
    return np.random.default_rng(0).integers(0, 256, (pairs, 2, SIDE, SIDE, 3), dtype=np.uint8)


def make_namc(task: Task) -> Writer:
    """Return NAMC with the CNN that sees the images."""
    import timm

    torch.manual_seed(0)
    cnn: Any = timm.create_model("resnet101", pretrained=False, features_only=True, out_indices=(3,))
    model = Namc(NamcSizes())
    for one in (cnn, model):
        one.eval().to(task.device, task.kind)
    pixels = torch.from_numpy(make_images(task.pairs)).flatten(0, 1).permute(0, 3, 1, 2).float() / 127.5 - 1
    pixels = pixels.to(task.device, task.kind)
    # The end is never written, so that all pairs get all tokens.
    how = Decoding(start=START, end=END, banned=(PAD, UNKNOWN, START, END, MASK), length=task.tokens)

    @torch.inference_mode()
    def write() -> None:
        grids = cnn(pixels)[0].flatten(2).transpose(1, 2).unflatten(0, (task.pairs, 2))
        said = model.write(grids, how)
        if {len(one) for one in said} != {task.tokens}:
            raise AssertionError("NAMC wrote another number of tokens")

    return Writer(_count(model), write)


def make_rival(task: Task) -> Writer:
    """Return a vision-language model of Qwen2-VL-2B's architecture, as transformers runs it."""
    from transformers import AutoModelForImageTextToText, Qwen2VLImageProcessor, Qwen2VLProcessor
    from transformers import Qwen2VLVideoProcessor as Videos

    tokenizer = train_tokenizer([PROMPT], 1_000)
    processor: Any = Qwen2VLProcessor(Qwen2VLImageProcessor(), tokenizer, Videos(), chat_template=TEMPLATE)
    torch.manual_seed(0)
    with torch.device(task.device):
        model: Any = AutoModelForImageTextToText.from_config(_qwen2_vl_2b(tokenizer), dtype=task.kind)
    model.eval()
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": PROMPT}]}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True)
    images = [list(pair) for pair in make_images(task.pairs)]
    inputs = processor(text=[text] * task.pairs, images=images, return_tensors="pt").to(task.device)
    inputs["pixel_values"] = inputs["pixel_values"].to(task.kind)
    length = inputs["input_ids"].shape[1] + task.tokens

    @torch.inference_mode()
    def write() -> None:
        said = model.generate(**inputs, min_new_tokens=task.tokens, max_new_tokens=task.tokens, do_sample=False)
        if tuple(said.shape) != (task.pairs, length):
            raise AssertionError("the vision-language model wrote another number of tokens")

    return Writer(_count(model), write)


def _qwen2_vl_2b(tokenizer: Any) -> Any:
    """Return the published configuration; only the numbers of special tokens are the small tokenizer's."""
    from transformers import Qwen2VLConfig

    number = tokenizer.convert_tokens_to_ids
    text = {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": [16, 24, 24]},
        "bos_token_id": number("<|endoftext|>"),
        "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
    }
    vision = {"depth": 32, "embed_dim": 1280, "num_heads": 16, "mlp_ratio": 4, "patch_size": 14, "hidden_size": 1536}
    names = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    names |= {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
    marks = {name: number(token) for name, token in names.items()}
    return Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **marks)


def _count(model: nn.Module) -> int:
    """Return how many weights a model has; what is shared counts once."""
    return sum(one.numel() for one in model.parameters())
