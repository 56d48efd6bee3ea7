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
TEXT = 512  # tokens of a row's question and answers
ANSWERED = 256  # tokens of its answers alone
# objectives with rejected or exchanged images: each row is two sequences
SEEN_TWICE = ("mdpo", "adavip", "symmpo")
LOGITS = 1 << 27  # bytes of logits in float32 at a time
PROJECTOR = 12  # weights of a projector in squares of the channels, at most (Qwen3-VL has four)
WIDE = {"lora": 26, "full": 31, "projector": 26}
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
"""Numbers that optimisers keep per trained weight, by a part of their names; the others: 2."""


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
    def from_published(
        cls,
        config: Mapping[str, Any],
        weights: int,
    ) -> Self:
        """Return the sizes given by ``config.json`` and the bytes of the weights.

        ``ValueError``: sizes are missing.
        """
        text: Mapping[str, Any] = config.get("text_config") or config
        weight_size = 4 if _find_dtype(text, config) == "float32" else 2
        try:
            heads = int(text["num_attention_heads"])
            hidden = int(text["hidden_size"])
            head = int(text.get("head_dim") or hidden // heads)
            tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))
            return cls(
                whole=weights // weight_size,
                layers=int(text["num_hidden_layers"]),
                hidden=hidden,
                inner=int(text["intermediate_size"]),
                queries=heads * head,
                keys=int(text.get("num_key_value_heads") or heads) * head,
                vocabulary=int(text["vocab_size"]),
                tied=bool(tied),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"config.json lacks the sizes of layers ({error!r})") from error

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """Return the inputs and outputs of a layer's linear layers."""
        query = (self.hidden, self.queries)
        key = (self.hidden, self.keys)
        output = (self.queries, self.hidden)
        gate = (self.hidden, self.inner)
        down = (self.inner, self.hidden)
        return query, key, key, output, gate, gate, down

    @property
    def layer(self) -> int:
        """Return the weights of a layer without norms and biases."""
        return sum(inputs * outputs for inputs, outputs in self.linear)

    @property
    def embedding_weights(self) -> int:
        """Return the weights of the input or the output embedding."""
        return self.vocabulary * self.hidden

    @property
    def language(self) -> int:
        """Return the weights of the language model."""
        tables = 1 if self.tied else 2
        return min(self.whole, self.layers * self.layer + self.embedding_weights * tables)

    def adapters(self, rank: int) -> int:
        """Return the weights of LoRA on all linear layers of the language model."""
        return self.layers * rank * sum(inputs + outputs for inputs, outputs in self.linear)


def _find_dtype(*configs: Mapping[str, Any]) -> str:
    """Return the first dtype that a configuration states; empty: none."""
    for config in configs:
        dtype = config.get("dtype") or config.get("torch_dtype")
        if dtype:
            return dtype
    return ""


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
    if config.model.tuning == "projector":
        return PROJECTOR * sizes.hidden**2
    if config.model.tuning == "lora":
        lora = config.model.lora
        rank = max(lora.rank, *lora.rank_pattern.values(), 0)
        in_full = len(lora.modules_to_save) * sizes.embedding_weights
        return sizes.adapters(rank) + in_full + _count_vision(sizes, config)
    return sizes.whole if config.model.train_vision else sizes.language


def _count_vision(sizes: Sizes, config: TrainConfig) -> int:
    """Return the vision weights that are trained in full."""
    if config.model.train_vision and config.model.vision_tuning == "full":
        return sizes.whole - sizes.language
    return 0


def demand_of(
    sizes: Sizes,
    config: TrainConfig,
    *,
    gpus: int = 1,
) -> Demand:
    """Return the demand of each GPU; ``gpus`` share the weights by FSDP."""
    trained = count_trained(sizes, config)
    number_size = 4 if config.optimiser.precision == "fp32" else 2
    activations = _activations(sizes, config) * number_size // 2
    if config.model.load_in_4bit:
        activations += number_size * sizes.hidden * sizes.inner  # one dequantised layer
    return Demand(
        weights=_count_weights(sizes, config, number_size, gpus),
        states=_state_size(config.optimiser.optim) * trained // gpus,
        gathered=_count_gathered(sizes) if gpus > 1 else 0,
        reference=_count_reference(sizes, config, number_size),
        activations=activations,
    )


def _count_weights(
    sizes: Sizes,
    config: TrainConfig,
    number_size: int,
    gpus: int,
) -> int:
    """Return the bytes of the policy's weights; frozen ones have ``number_size`` bytes."""
    trained = count_trained(sizes, config)
    if config.model.tuning != "full":
        linear = sizes.layers * sizes.layer * config.model.load_in_4bit
        frozen = sizes.whole - linear - _count_vision(sizes, config)
        return (number_size * frozen + int(sum(NF4) * linear) + 4 * trained) // gpus
    weights = 4 * sizes.whole // gpus
    if gpus == 1 and config.optimiser.gradient_accumulation_steps > 1:
        weights += 2 * trained  # autocast keeps rounded copies of trained weights
    return weights


def _state_size(optimiser: str) -> int:
    """Return the bytes of gradient and optimiser state for each trained weight."""
    if "paged" in optimiser:
        return 4  # its states are swapped out under pressure
    means = next((count for name, count in MEANS.items() if name in optimiser), 2)
    mean_size = 1 if "8bit" in optimiser else 4
    return 4 + means * mean_size


def _count_gathered(sizes: Sizes) -> int:
    """Return the bytes that FSDP gathers at once."""
    vision = sizes.whole - sizes.language
    return 2 * (2 * sizes.layer + 2 * sizes.embedding_weights + vision)


def _count_reference(
    sizes: Sizes,
    config: TrainConfig,
    number_size: int,
) -> int:
    """Return the bytes of a copied reference model, its embeddings in float32."""
    if config.model.tuning == "lora" or config.objective != "adpo":
        return 0
    return number_size * sizes.whole + (4 - number_size) * 2 * sizes.embedding_weights


def _activations(sizes: Sizes, config: TrainConfig) -> int:
    rows = config.optimiser.per_device_train_batch_size
    if config.objective in SEEN_TWICE:
        rows *= 2
    tokens = rows * (2 * config.model.max_pixels // PATCH + TEXT)
    gradients = 8 * sizes.inner
    layer = WIDE[config.model.tuning] * sizes.hidden + 8 * sizes.inner
    stored = layer  # of each layer
    at_once = gradients
    if config.optimiser.gradient_checkpointing:  # only layer inputs are kept; the rest recomputed
        stored = (4 if config.model.tuning == "full" else 2) * sizes.hidden
        at_once = layer + gradients
    logits = rows * ANSWERED * 4 * sizes.vocabulary + LOGITS
    return tokens * stored * sizes.layers + max(tokens * at_once, logits)


def is_sharded() -> bool:
    """Return whether accelerate's launcher shards the weights over processes."""
    return os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"


def check_memory(folder: Path, config: TrainConfig) -> None:
    """Log the memory that a training needs of each GPU.

    Where it exceeds the GPU's, warn and name settings that need less. Raises ``ConfigError`` where
    it does not fit with any batch size.
    """
    cards = gpu_memory()
    if not cards:
        return
    gpus = int(os.environ.get("WORLD_SIZE", "1")) if is_sharded() else 1
    try:
        base = find_base(folder)
        sizes = Sizes.from_published(*read_model(base.folder if base else folder))
    except ValueError as error:
        log.info("%s%s", UNCHECKED, error)
        return
    demand = demand_of(sizes, config, gpus=gpus)
    card = min(cards)
    estimate = _describe_demand(demand)
    if demand.total <= card:
        log.info("%s, of %.1f", estimate, card / GB)
        return
    problem = f"{estimate}, and the smallest has {card / GB:.1f}. Try {need_less(config)}"
    if demand.total - demand.activations > card:
        raise ConfigError(f"model.name: {problem}")
    log.warning("%s", problem)


def _describe_demand(demand: Demand) -> str:
    names = ("weights", "gradients and optimiser", "gathered", "reference", "activations")
    parts: list[str] = []
    for name, size in zip(names, astuple(demand), strict=True):
        if size:
            parts.append(f"{name} {size / GB:.1f}")
    return (
        f"the training needs about {demand.total / GB:.1f} GB of each GPU "
        f"({', '.join(parts)}, {MARGIN / GB:.0f} overhead)"
    )


def need_less(config: TrainConfig) -> str:
    """Return settings that need less memory, first those without effect on results."""
    optimiser = config.optimiser
    model = config.model
    settings = _halve_batch(config)
    if not optimiser.gradient_checkpointing:
        settings.append("--set optimiser.gradient_checkpointing=true")
    if not is_sharded() and len(gpu_memory()) > 1:
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
