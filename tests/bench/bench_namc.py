"""Measure NAMC of the paper's size against a vision-language model: tokens per second of greedy
writing.

Run with ``make bench BENCH=namc``, or ``python -m tests.bench.bench_namc``; takes some minutes and
12 GB. Needs the extra ``train``. All weights are random, of the published sizes: a step costs the
same as with learnt ones.

Both sides keep a cache of keys and values, and write the same number of tokens of the same pairs of
images: NAMC, with ResNet-101 that sees the images' grids within the time; and a model of
Qwen2-VL-2B's architecture, run by transformers. Images are scaled, and the prompt is tokenised,
before the clock starts. The paper has 2,248 against 106 (BLIP2IDC, 3.8 B) on an RTX 3090, and does
not say what was timed. The sides take turns, and the best turn counts: of the clock, and of the
process' own seconds, which other work on the machine changes less.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pairwright.tasks.models.devices import choose_device
from pairwright.tasks.models.namc import Namc, NamcSizes
from pairwright.tasks.models.namc_places import SIDE
from pairwright.tasks.training.tiny_model import TEMPLATE, train_tokenizer
from tests.bench.turns import print_rates, take_turns

PROMPT = (
    "Describe how the second image differs from the first one, in one sentence, and name "
    "what changed."
)
PAD, UNKNOWN, START, END, MASK = 0, 100, 101, 102, 103  # in BERT's vocabulary
Work = Callable[[], object]


def make_namc(pairs: int, tokens: int) -> Work:
    """Return the writing of pairs by NAMC with the CNN that sees the images."""
    import timm

    torch.manual_seed(0)
    device = choose_device()
    cnn: Any = (
        timm.create_model("resnet101", pretrained=False, features_only=True, out_indices=(3,))
        .eval()
        .to(device)
    )
    model = Namc(NamcSizes()).eval().to(device)
    pixels = (
        torch.from_numpy(make_images(pairs)).flatten(0, 1).permute(0, 3, 1, 2).float().to(device)
        / 127.5
        - 1
    )
    banned = (PAD, UNKNOWN, START, END, MASK)  # the end, too, so that all pairs get all tokens

    @torch.inference_mode()
    def write() -> None:
        compared = model.compare(cnn(pixels)[0].flatten(2).transpose(1, 2).unflatten(0, (pairs, 2)))
        said = model.describer.generate(
            compared, start=START, end=END, banned=banned, length=tokens
        )
        assert {len(one) for one in said} == {tokens}

    return write


def make_rival(pairs: int, tokens: int) -> Work:
    """Return the writing of pairs by a model of Qwen2-VL-2B's architecture, as transformers runs
    it."""
    from transformers import (
        AutoModelForImageTextToText,
        Qwen2VLConfig,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
    )
    from transformers import Qwen2VLVideoProcessor as Videos

    tokenizer = train_tokenizer([PROMPT], 1_000)
    processor: Any = Qwen2VLProcessor(
        Qwen2VLImageProcessor(), tokenizer, Videos(), chat_template=TEMPLATE
    )
    number: Any = tokenizer.convert_tokens_to_ids
    text = {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1_000_000.0,
            "mrope_section": [16, 24, 24],
        },
        "bos_token_id": number("<|endoftext|>"),
        "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
    }
    vision = {
        "depth": 32,
        "embed_dim": 1280,
        "num_heads": 16,
        "mlp_ratio": 4,
        "patch_size": 14,
        "hidden_size": 1536,
    }
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    marks: dict[str, Any] = {name: number(token) for name, token in names.items()}
    config = Qwen2VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True, **marks
    )
    torch.manual_seed(0)
    with torch.device(choose_device()):
        model: Any = AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    chat = [
        {
            "role": "user",
            "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": PROMPT}],
        }
    ]
    asked = processor.apply_chat_template(chat, add_generation_prompt=True)
    images = [list(pair) for pair in make_images(pairs)]
    inputs = processor(text=[asked] * pairs, images=images, return_tensors="pt").to(model.device)

    @torch.inference_mode()
    def write() -> None:
        said = model.generate(
            **inputs, min_new_tokens=tokens, max_new_tokens=tokens, do_sample=False
        )
        assert said.shape[1] == inputs["input_ids"].shape[1] + tokens

    return write


def make_images(pairs: int) -> Any:
    """Return ``(pairs, 2, 224, 224, 3)`` noise."""
    return np.random.default_rng(0).integers(0, 256, (pairs, 2, SIDE, SIDE, 3), dtype=np.uint8)


def main() -> None:
    """Read the command line."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs", type=int, default=32 if gpu else 4, help="pairs of images at once"
    )
    parser.add_argument(
        "--tokens", type=int, default=48, help="written of each pair; 80 at the most"
    )
    parser.add_argument(
        "--turns", type=int, default=4 if gpu else 2, help="how often each side runs"
    )
    given = parser.parse_args()
    writers = {"NAMC, with ResNet-101": make_namc, "Qwen2-VL-2B's architecture": make_rival}
    sides = {name: make(given.pairs, given.tokens) for name, make in writers.items()}
    title = (
        f"Writing {given.tokens} tokens of each of {given.pairs} pairs at once (the paper's "
        f"ratio: 21)"
    )
    print_rates(title, take_turns(sides, given.turns), given.pairs * given.tokens, "tokens")


if __name__ == "__main__":
    main()
