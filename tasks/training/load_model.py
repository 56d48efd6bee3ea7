"""Load what is trained: a model and its processor by transformers' own loaders, checked before a run begins.

Reads a folder (``find_model``) of safetensors; nothing is fetched, no code of a checkpoint is run. With adapters the
frozen weights are in the precision that is computed in; with full tuning all weights are in float32 and are rounded for
each step, since a step of 5e-7 is less than bfloat16 tells apart in a weight of 0.02, and would be lost (ours).
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForImageTextToText, AutoProcessor
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import NAME as MODULE
from pairwright.schemas.training import ModelConfig, Number, TrainConfig
from pairwright.tasks.models.checkpoints import name_some
from pairwright.tasks.models.differential import attach, load_differential
from pairwright.tasks.models.weights import loading
from pairwright.tasks.training.attention import choose_attention, join_windows
from pairwright.tasks.training.find_model import NAME, find_base, find_module, read_settings
from pairwright.tasks.training.tune_model import merge_adapters

PRECISIONS: dict[Number, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def choose_precision(config: TrainConfig) -> torch.dtype:
    """Return what the model computes in."""
    wanted, gpu = config.optimiser.precision, torch.cuda.is_available()
    if wanted == "auto":
        wanted = "bf16" if gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    if wanted == "fp16" and not gpu:
        raise ConfigError("optimiser.precision: fp16 needs a GPU; fp32 or bf16 do without")
    return PRECISIONS[wanted]


def choose_storage(config: TrainConfig) -> torch.dtype:
    """Return what the weights are kept in: with full tuning float32, so that small steps add up."""
    return torch.float32 if config.model.tuning == "full" else choose_precision(config)


def load_processor(folder: Path) -> Any:
    """Return a checkpoint's processor; adapters without one have that of their model."""
    if not (folder / "tokenizer_config.json").is_file() and (base := find_base(folder)):
        folder = base.folder
    with loading(NAME, folder):
        processor: Any = AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        raise ModelError(f"{NAME}: {folder} has no processor that takes images and texts")
    if getattr(processor, "chat_template", None) is None:
        raise ConfigError(f"--model {folder}: has no chat template, which says how a prompt with images is written")
    return processor


def load_model(folder: Path, config: ModelConfig, *, dtype: torch.dtype) -> Any:
    """Return a checkpoint's model, its weights in this precision; adapters are merged into theirs.

    A module of differential perception that lies beside the weights is attached.
    """
    model = load_plain(folder, config, dtype=dtype)
    if (place := find_module(folder)) and load_differential(model, place):
        _check_finite(place, getattr(model, MODULE))
    return model


def load_to_train(folder: Path, config: TrainConfig) -> Any:
    """Return a model as a run begins with it: with a new module of differential perception where it is to get one."""
    model, wanted = load_model(folder, config.model, dtype=choose_storage(config)), config.model.differential
    if wanted.enabled and not hasattr(model, MODULE):
        with torch.random.fork_rng(devices=[]):  # the same module whatever was drawn before
            torch.manual_seed(config.seed)
            attach(model, **wanted.model_dump(exclude={"enabled"}))
    return model


def load_plain(folder: Path, config: ModelConfig, *, dtype: torch.dtype) -> Any:
    """Return a model as ``load_model`` does, without what perceives differences."""
    if base := find_base(folder):
        return merge_adapters(load_plain(base.folder, config, dtype=dtype), folder)
    attention = choose_attention(config.attn_implementation)
    kind = (settings := read_settings(folder)).get("model_type")
    if kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        own = " It brings code of its own, which is never run." if "auto_map" in settings else ""
        raise ModelError(
            f"{NAME}: {folder} is of type {str(kind)[:80]!r}, which is no model that takes images and texts and gives "
            f"text, as far as this transformers knows.{own}"
        )
    with loading(NAME, folder), _without_reports():
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            folder,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # it is reported, and refused below
            dtype=dtype,
            attn_implementation=attention,
        )
    model, report = loaded
    said = {
        "missing_keys": "its files have no",
        "mismatched_keys": "of another shape than its config.json says:",
        "unexpected_keys": "its config.json has no place for",
    }
    for kind, words in said.items():
        if names := sorted(map(_name_key, report.get(kind) or ())):
            raise ModelError(f"{NAME}: {folder}: {words} {name_some(names)}")
    _check_finite(folder, model)
    join_windows(model)
    return model


def _name_key(key: Any) -> str:
    """Return the name of a weight, with its two shapes where they differ."""
    if isinstance(key, str):
        return key
    name, *shapes = key
    return f"{name} {' and '.join(str(tuple(shape)) for shape in shapes)}"


@contextmanager
def _without_reports() -> Generator[None]:
    """Silence transformers' table of keys: what is wrong becomes an error."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


def _check_finite(folder: Path, model: Any) -> None:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter.sum(dtype=torch.float32)):
            raise ModelError(f"{NAME}: {folder}: {name} holds values that are no numbers (NaN or infinite)")
