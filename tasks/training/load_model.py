"""Load what is trained: the model and its processor, by transformers' own loaders, and the adapters by peft's.

Reads a folder or the Hub's local cache; nothing is fetched, no code of a checkpoint is run. Needs PyTorch.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from schemas.errors import ConfigError
from schemas.training import LoraConfig, ModelConfig, TrainConfig
from tasks.models.weights import loading

FIELD = "model"
VISION = ("visual", "vision", "image_newline")
"""What the parts that see are called."""


def choose_precision(config: TrainConfig) -> torch.dtype:
    """Return what the model computes in."""
    wanted = config.optimiser.precision
    if wanted == "auto":
        wanted = "bf16" if torch.cuda.is_available() else "fp32"
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[wanted]


def load_processor(folder: Path) -> Any:
    """Return a checkpoint's processor.

    Raises:
        ModelError: it cannot be loaded.
        ConfigError: it has no chat template.
    """
    with loading(FIELD, folder):
        processor: Any = AutoProcessor.from_pretrained(folder, local_files_only=True)
    if getattr(processor, "chat_template", None) is None:
        raise ConfigError(f"--model {folder}: has no chat template, which says how a prompt with images is written")
    return processor


def load_model(folder: Path, config: ModelConfig, *, dtype: torch.dtype) -> Any:
    """Return a checkpoint's model, its weights in this precision.

    Raises:
        ModelError: it cannot be loaded.
    """
    attention = "sdpa" if config.attention == "auto" else config.attention
    with loading(FIELD, folder):
        return AutoModelForImageTextToText.from_pretrained(
            folder, local_files_only=True, dtype=dtype, attn_implementation=attention
        )


def prepare_model(model: Any, config: ModelConfig) -> Any:
    """Return the model with what is trained switched on: adapters, or weights."""
    if config.tuning == "lora":
        return _with_adapters(model, config)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = config.train_vision or not _sees(name)
    return model


def _with_adapters(model: Any, config: ModelConfig) -> Any:
    import peft

    lora: LoraConfig = config.lora
    targets = [name for name in _linear_layers(model) if _is_target(name, config)]
    if not targets:
        raise ConfigError(f"model.lora.targets {list(lora.targets)}: no linear layer of the model is called so")
    own = peft.LoraConfig(r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets)
    return peft.get_peft_model(model, own)


def _is_target(name: str, config: ModelConfig) -> bool:
    if config.lora.targets:
        return name.endswith(config.lora.targets)
    return config.train_vision or not _sees(name)


def _linear_layers(model: Any) -> list[str]:
    head = model.get_output_embeddings()
    return [name for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear) and layer is not head]


def _sees(name: str) -> bool:
    return any(part.startswith(VISION) or part == "multi_modal_projector" for part in name.split("."))
