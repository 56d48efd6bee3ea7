"""Estimate the memory that a training needs of each GPU, before a model is loaded.

Reads the model's ``config.json`` and the size of its weights. Counts weights, gradients, optimiser
states and a reference model. Activations are those of rows with two images and 512 tokens of text,
by a formula for what PyTorch keeps of a packed batch, checked by a test. Needs no PyTorch.
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.serving.gpu_memory import GB, MARGIN, UNCHECKED, gpu_memory, read_model
from pairwright.tasks.training.find_model import find_base

log = logging.getLogger(__name__)
PATCH = 28 * 28  # pixels per token in Qwen2-VL
TEXT, ANSWERED = 512, 256  # tokens of a row's question and answers, and of the answers alone
SEEN_TWICE = ("mdpo", "adavip")  # objectives with rejected images: each row is two sequences
LOGITS = 1 << 27  # bytes of logits in float32 at a time
WIDE = {"lora": 26, "full": 31}
"""Bytes that a layer keeps for its backward pass per token and residual channel; 8 more per
feed-forward channel, and as much again while its gradient is computed. """
NF4 = (1 / 2, 1 / 64, 4 / (64 * 256))
"""Bytes per 4-bit weight: itself, an 8-bit scale for 64, and a float32 scale for 256 of those
(QLoRA)."""
MEANS = {
    "schedule_free": 2,
    "sgd": 0,
    "adafactor": 0,
    "lion": 1,
    "rmsprop": 1,
    "adagrad": 1,
    "ademamix": 3,
}
"""Numbers that optimisers keep per trained weight, by a part of their names; AdamW and the others:
two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Numbers of weights and of channels of a model."""

    whole: int  # all weights
    layers: int
    hidden: int
    inner: int
    queries: int
    keys: int
    vocabulary: int
    tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any], weights: int) -> Self:
        """Return the sizes given by ``config.json`` and the bytes of the weights; ``ValueError`` for missing ones."""
        text: Mapping[str, Any] = config.get("text_config") or config
        dtype = next(
            (
                one[name]
                for one in (text, config)
                for name in ("dtype", "torch_dtype")
                if one.get(name)
            ),
            "",
        )
        try:
            heads, hidden = int(text["num_attention_heads"]), int(text["hidden_size"])
            head = int(text.get("head_dim") or hidden // heads)
            return cls(
                whole=weights // (4 if dtype == "float32" else 2),
                layers=int(text["num_hidden_layers"]),
                hidden=hidden,
                inner=int(text["intermediate_size"]),
                queries=heads * head,
                keys=int(text.get("num_key_value_heads") or heads) * head,
                vocabulary=int(text["vocab_size"]),
                tied=bool(
                    text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
                ),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"config.json lacks the sizes of layers ({error!r})") from error

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """Return the inputs and outputs of a layer's linear layers."""
        attention = (
            (self.hidden, self.queries),
            *[(self.hidden, self.keys)] * 2,
            (self.queries, self.hidden),
        )
        return (*attention, *[(self.hidden, self.inner)] * 2, (self.inner, self.hidden))

    @property
    def layer(self) -> int:
        """Return the weights of a layer without norms and biases."""
        return sum(one * other for one, other in self.linear)

    @property
    def table(self) -> int:
        """Return the weights of the input or the output embedding."""
        return self.vocabulary * self.hidden

    @property
    def language(self) -> int:
        """Return the weights of the language model."""
        return min(self.whole, self.layers * self.layer + self.table * (1 if self.tied else 2))

    def adapters(self, rank: int) -> int:
        """Return the weights of LoRA on all linear layers of the language model."""
        return self.layers * rank * sum(one + other for one, other in self.linear)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Bytes that a training needs of each GPU, besides ``MARGIN``."""

    weights: int
    states: int  # gradients in float32, and optimiser states
    gathered: int  # gathered by FSDP at once, in 16 bits: two layers, embeddings, vision tower
    reference: int
    activations: int

    @property
    def total(self) -> int:
        """Return the sum, ``MARGIN`` included."""
        return sum(astuple(self)) + MARGIN


def count_trained(sizes: Sizes, config: TrainConfig) -> int:
    """Return the number of trained weights."""
    own = config.model
    if own.tuning == "lora":
        return sizes.adapters(own.lora.rank) + _count_vision(sizes, config)
    return sizes.whole if own.train_vision else sizes.language


def _count_vision(sizes: Sizes, config: TrainConfig) -> int:
    own = config.model
    return (sizes.whole - sizes.language) * (own.train_vision and own.vision_tuning == "full")


def demand_of(sizes: Sizes, config: TrainConfig, *, gpus: int = 1) -> Demand:
    """Return the demand of each GPU; ``gpus`` share the weights by FSDP."""
    full = config.model.tuning == "full"
    trained, number = count_trained(sizes, config), 4 if config.optimiser.precision == "fp32" else 2
    copy, optim = full and config.objective == "adpo", config.optimiser.optim
    means = next((count for name, count in MEANS.items() if name in optim), 2) * (
        1 if "8bit" in optim else 4
    )
    states = 4 + (0 if "paged" in optim else means)  # paged ones are swapped out under pressure
    # With gradient accumulation, autocast keeps rounded copies of trained weights.
    rounded = (
        2 * trained
        if full and gpus == 1 and config.optimiser.gradient_accumulation_steps > 1
        else 0
    )
    linear = sizes.layers * sizes.layer * config.model.load_in_4bit
    frozen = number * (sizes.whole - linear - _count_vision(sizes, config)) + int(sum(NF4) * linear)
    return Demand(
        weights=(4 * sizes.whole if full else frozen + 4 * trained) // gpus + rounded,
        states=states * trained // gpus,
        gathered=2 * (2 * sizes.layer + 2 * sizes.table + sizes.whole - sizes.language)
        if gpus > 1
        else 0,
        reference=number * sizes.whole + (4 - number) * 2 * sizes.table if copy else 0,
        activations=_activations(sizes, config) * number // 2
        + number * sizes.hidden * sizes.inner * config.model.load_in_4bit,  # one dequantised layer
    )


def _activations(sizes: Sizes, config: TrainConfig) -> int:
    rows = config.optimiser.per_device_train_batch_size * (
        2 if config.objective in SEEN_TWICE else 1
    )
    tokens = rows * (2 * config.model.max_pixels // PATCH + TEXT)
    layer, gradients = WIDE[config.model.tuning] * sizes.hidden + 8 * sizes.inner, 8 * sizes.inner
    if config.optimiser.gradient_checkpointing:  # layers keep their inputs; one at a time the rest
        kept, at_once = (
            (4 if config.model.tuning == "full" else 2) * sizes.hidden,
            layer + gradients,
        )
    else:
        kept, at_once = layer, gradients
    words = rows * ANSWERED * 4 * sizes.vocabulary + LOGITS
    return tokens * kept * sizes.layers + max(tokens * at_once, words)


def is_spread() -> bool:
    """Return whether accelerate's launcher shards the weights over processes."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def check_memory(folder: Path, config: TrainConfig) -> None:
    """Log the memory that a training needs of each GPU; warn, with settings that need less, where it exceeds the GPU's.

    Raises ``ConfigError`` where it does not fit with any batch size.
    """
    cards, gpus = gpu_memory(), int(os.environ.get("WORLD_SIZE", "1")) if is_spread() else 1
    if not cards:
        return
    try:
        base = find_base(folder)
        sizes = Sizes.of(*read_model(base.folder if base else folder))
    except ValueError as unknown:
        log.info("%s%s", UNCHECKED, unknown)
        return
    need, card = demand_of(sizes, config, gpus=gpus), min(cards)
    named = ("weights", "gradients and optimiser", "gathered", "reference", "activations")
    parts = ", ".join(
        f"{name} {size / GB:.1f}" for name, size in zip(named, astuple(need), strict=True) if size
    )
    said = f"the training needs about {need.total / GB:.1f} GB of each GPU ({parts}, {MARGIN / GB:.0f} overhead)"
    if need.total <= card:
        log.info("%s, of %.1f", said, card / GB)
        return
    said = f"{said}, and the smallest has {card / GB:.1f}. Try {need_less(config)}"
    if need.total - need.activations > card:
        raise ConfigError(f"model.name: {said}")
    log.warning("%s", said)


def need_less(config: TrainConfig) -> str:
    """Return settings that need less memory, first those without effect on results."""
    optimiser, model = config.optimiser, config.model
    settings = _halve_batch(config)
    if not optimiser.gradient_checkpointing:
        settings.append("--set optimiser.gradient_checkpointing=true")
    if not is_spread() and len(gpu_memory()) > 1:
        settings.append("FSDP (accelerate launch --use_fsdp)")
    if model.tuning != "lora":
        settings.append("--set model.tuning=lora")
    if not model.load_in_4bit:
        settings.append("--set model.load_in_4bit=true (with LoRA)")
    settings.append(f"--set model.max_pixels={model.max_pixels // 2}")
    return ", or ".join(settings)


def need_smaller_batch(config: TrainConfig) -> str:
    """Return the batch size that needs less memory, for a training without other such settings."""
    return ", or ".join(_halve_batch(config)) or "a smaller model"


def _halve_batch(config: TrainConfig) -> list[str]:
    rows = config.optimiser.per_device_train_batch_size // 2
    if not rows:
        return []
    steps = 2 * config.optimiser.gradient_accumulation_steps
    return [
        f"--set optimiser.per_device_train_batch_size={rows} "
        f"--set optimiser.gradient_accumulation_steps={steps}"
    ]
