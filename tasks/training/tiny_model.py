"""Write a small Qwen2-VL with random weights, to try a training without a download.

Reads texts, for a byte-level tokenizer. Writes the family's own files, loaded by
``from_pretrained``. It learns the style of the texts and, with the larger preset, some vision.
"""

import heapq
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import naming

RECIPE = 3  # part of the folder's name: raise when the same texts give another model
# Texts for the tokenizer: those of the lowest hashes, independent of order and number.
MOST_TEXTS = 20_000
TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
"""The family's own tokens, in its order."""
TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content -%}
{% if part.type in ('image', 'image_url') %}<|vision_start|><|image_pad|><|vision_end|>
{%- elif part.type == 'text' %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""The family's template without its default system prompt, which would be a tenth of such a model's
work."""
LONGEST = 32_768
THETA = 30.0
"""Base of the rotary embedding. Published models have a million, for long texts and 64 frequencies;
with 16 frequencies, rows and columns would turn by a thousandth per token and positions would be
lost. """


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a model: widths, and numbers of layers and heads."""

    vocabulary: int  # maximum learnt tokens, single bytes included; ``TOKENS`` are extra
    hidden: int
    layers: int
    heads: int
    vision_width: int
    vision_layers: int
    vision_heads: int
    patch: int  # pixels per side of a patch; two by two patches make one token
    max_pixels: int  # larger images are scaled down
    spread: float  # standard deviation of the weights


SIZES = {
    "tiny": Size(
        vocabulary=1000,
        hidden=128,
        layers=2,
        heads=4,
        vision_width=64,
        vision_layers=2,
        vision_heads=2,
        patch=14,
        max_pixels=256 * 196,
        spread=0.05,
    ),
    "small": Size(
        vocabulary=1500,
        hidden=192,
        layers=4,
        heads=6,
        vision_width=128,
        vision_layers=3,
        vision_heads=4,
        patch=8,
        max_pixels=256 * 192,
        spread=0.04,
    ),
}
"""To try a training within minutes, and to learn vision from scratch."""


def write_tiny_model(
    folder: Path,
    texts: Iterable[str],
    *,
    seed: int = 0,
    size: str = "tiny",
) -> Path:
    """Write a checkpoint of one of the ``SIZES`` unless it exists, and return its path.

    It is ``folder``/SIZE-HASH. The hash covers the texts, in any order, the seed and the libraries'
    versions: same input, same bytes. The folder appears when complete; of two processes that write
    it at once, one wins.
    """
    import tokenizers
    import torch
    import transformers

    lowest = heapq.nsmallest(MOST_TEXTS, ((make_key(text), text) for text in texts))
    corpus = sorted({text for _, text in lowest})
    libraries = (str(torch.__version__), transformers.__version__, tokenizers.__version__)
    key = make_key(RECIPE, repr(SIZES[size]), seed, *libraries, *corpus)
    target = folder / f"{size}-{key[:16]}"
    if target.exists():
        return target
    with naming(str(target), "written"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=folder) as scratch:
            new = Path(scratch) / "model"
            _write_checkpoint(new, corpus, SIZES[size], seed)
            try:
                new.rename(target)
            except OSError:
                if not target.exists():  # else another process was first
                    raise
    return target


def _write_checkpoint(
    folder: Path,
    corpus: Sequence[str],
    size: Size,
    seed: int,
) -> None:
    import torch
    import transformers

    tokenizer = train_tokenizer(corpus, size.vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.Qwen2VLForConditionalGeneration(qwen_config(tokenizer, size))
    model.generation_config = transformers.GenerationConfig(
        **end_tokens(tokenizer), do_sample=False
    )
    transformers.logging.disable_progress_bar()
    model.save_pretrained(folder)
    save_processor(folder, tokenizer, size, template=TEMPLATE)


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Any:
    """Return a tokenizer of the family's kind (byte-level BPE) trained on the texts."""
    from transformers import Qwen2Tokenizer

    trained = Qwen2Tokenizer().train_new_from_iterator(
        [list(texts)], vocabulary, show_progress=False
    )
    trained.add_tokens(list(TOKENS), special_tokens=True)
    trained.eos_token = "<|im_end|>"
    trained.pad_token = "<|endoftext|>"
    trained.model_max_length = LONGEST
    return trained


def qwen_config(tokenizer: Any, size: Size) -> Any:
    """Return the configuration of a model of this size."""
    from transformers import Qwen2VLConfig

    number = tokenizer.convert_tokens_to_ids
    half = size.hidden // size.heads // 2
    space = half * 3 // 8
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": size.hidden,
        "intermediate_size": 2 * size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.heads // 2,
        "max_position_embeddings": LONGEST,
        # As published: a quarter of the frequencies for order, three eighths each for row and
        # column.
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": THETA,
            "mrope_section": [half - 2 * space, space, space],
        },
        "initializer_range": size.spread,
        "rms_norm_eps": 1e-6,
        "bos_token_id": number("<|endoftext|>"),
        "eos_token_id": number("<|im_end|>"),
        "pad_token_id": number("<|endoftext|>"),
    }
    vision = {
        "depth": size.vision_layers,
        "embed_dim": size.vision_width,
        "hidden_size": size.hidden,
        "num_heads": size.vision_heads,
        "patch_size": size.patch,
        "initializer_range": size.spread,
    }
    return Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=True,
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
    )


def save_processor(
    folder: Path,
    tokenizer: Any,
    size: Size,
    *,
    template: str,
) -> None:
    """Write tokenizer, chat template and image processor.

    Image sides are multiples of two patches.
    """
    from transformers import Qwen2VLImageProcessor

    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    images = Qwen2VLImageProcessor(
        patch_size=size.patch,
        min_pixels=(4 * size.patch) ** 2,
        max_pixels=size.max_pixels,
    )
    images.save_pretrained(folder)


def end_tokens(tokenizer: Any) -> dict[str, Any]:
    """Return the end tokens for a generation config."""
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    pad = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    return {"bos_token_id": pad, "pad_token_id": pad, "eos_token_id": [end, pad]}
