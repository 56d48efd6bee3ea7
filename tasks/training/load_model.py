"""Load a model, choose its trained weights, and save those that peft does not.

Reads a folder (``find_model``) of safetensors by transformers' loaders; fetches nothing, runs no
code of a checkpoint. With adapters the frozen weights are kept in the compute precision, or in 4
bits; full tuning keeps float32 and rounds for each step, since bfloat16 would lose a step of 5e-7
in a weight of 0.02 (ours).

The language model is trained; the vision tower and projector with ``train_vision``; differential
perception always. Weights trained in full beside adapters go into ``tuned.safetensors``, since peft
saves adapters alone.
"""

import importlib
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from transformers import AutoModelForImageTextToText, AutoProcessor
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import NAME as MODULE
from pairwright.schemas.training import ModelConfig, TrainConfig
from pairwright.tasks.models.checkpoints import load_pretrained, name_some, read_checkpoint
from pairwright.tasks.models.differential import (
    attach,
    find_tower,
    load_differential,
    save_differential,
)
from pairwright.tasks.models.weights import loading
from pairwright.tasks.training.attention import choose_attention, join_windows
from pairwright.tasks.training.find_model import (
    ADAPTER_WEIGHTS,
    CONFIG,
    NAME,
    TUNED,
    find_base,
    find_module,
    read_json,
    require_bits,
)

log = logging.getLogger(__name__)
ADAPTER = "lora_"
OF_MODULE = f"{MODULE}."  # prefix of the weights of differential perception
OF_PEFT = "base_model.model."  # prefix of all weights of a model with adapters


def choose_precision(config: TrainConfig) -> torch.dtype:
    """Return the compute precision."""
    wanted = config.optimiser.precision
    fast = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if wanted == "bf16" or (wanted == "auto" and fast) else torch.float32


def choose_storage(config: TrainConfig) -> torch.dtype:
    """Return the precision of the stored weights: float32 for full tuning, so that small steps add up."""
    return torch.float32 if config.model.tuning == "full" else choose_precision(config)


def computing(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Return the autocast context of the Trainer."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32)


def load_processor(folder: Path) -> Any:
    """Return a checkpoint's processor; adapters without one use their base model's."""
    if not (folder / "tokenizer_config.json").is_file() and (base := find_base(folder)):
        folder = base.folder
    with loading(NAME, folder):
        processor: Any = AutoProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        raise ModelError(f"{NAME}: {folder} has no processor for images and texts")
    if getattr(processor, "chat_template", None) is None:
        raise ConfigError(f"--model {folder}: has no chat template")
    return processor


def load_model(folder: Path, config: ModelConfig, *, dtype: torch.dtype) -> Any:
    """Return a checkpoint's model in this precision, adapters merged, differential perception attached."""
    model = load_plain(folder, config, dtype=dtype)
    if config.load_in_4bit:
        keep_in_4bit(model, dtype)
    if place := find_module(folder):
        load_differential(model, place)
    return model


def load_to_train(folder: Path, config: TrainConfig) -> Any:
    """Return a run's initial model, with a new differential perception module where one is configured."""
    model, wanted = (
        load_model(folder, config.model, dtype=choose_storage(config)),
        config.model.differential,
    )
    if wanted.enabled and not hasattr(model, MODULE):
        with torch.random.fork_rng(devices=[]):  # the same module whatever was drawn before
            torch.manual_seed(config.seed)
            attach(model, **wanted.model_dump(exclude={"enabled"}))
    return model


def load_plain(folder: Path, config: ModelConfig, *, dtype: torch.dtype) -> Any:
    """Return a model as ``load_model`` does, without differential perception."""
    if base := find_base(folder):
        return merge_adapters(load_plain(base.folder, config, dtype=dtype), folder)
    kind = (settings := read_json(folder / CONFIG)).get("model_type")
    if kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        own = " Code in a checkpoint is never run." if "auto_map" in settings else ""
        raise ModelError(
            f"{NAME}: {folder}: unsupported vision-language model type {str(kind)[:80]!r}.{own}"
        )
    model = load_pretrained(
        AutoModelForImageTextToText,
        folder,
        field=NAME,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation=choose_attention(),
    )
    join_windows(model)
    return model


def keep_in_4bit(model: Any, dtype: torch.dtype) -> None:
    """Quantise the language model's linear layers to 4 bits (NF4, scales in 8 bits; QLoRA, Dettmers et al. 2023).

    bitsandbytes rounds them when the model moves to its GPU; without one, here. The vision tower,
    embeddings and the output layer keep their precision.
    """
    require_bits("model.load_in_4bit")
    bits: Any = importlib.import_module("bitsandbytes.nn")
    for name, layer in _linear_layers(model, _language_prefixes(model)):
        small = bits.Linear4bit(
            1, 1, bias=False, compute_dtype=dtype, quant_type="nf4", device="meta"
        )
        small.in_features, small.out_features, small.bias = (
            layer.in_features,
            layer.out_features,
            layer.bias,
        )
        small.weight = bits.Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4")
        small.support_avx512bf16_for_cpu = False  # else scales are rounded again between steps
        model.set_submodule(name, small if torch.cuda.is_available() else small.to("cpu"))


def round_to_4bit(model: Any) -> None:
    """Round an unquantised model's weights to their 4-bit values."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    for _, layer in _linear_layers(model, _language_prefixes(model)):
        kept = quantize_4bit(layer.weight.data, compress_statistics=True, quant_type="nf4")
        layer.weight.data = dequantize_4bit(*kept)


def _linear_layers(model: Any, inside: tuple[str, ...]) -> list[tuple[str, torch.nn.Linear]]:
    """Return the linear layers with these name prefixes, without the output layer."""
    head = model.get_output_embeddings()
    named = [
        (name, layer) for name, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)
    ]
    return [
        (name, layer)
        for name, layer in named
        if layer is not head and f"{name}.".startswith(inside)
    ]


# ---- what is trained


def prepare_model(model: Any, config: TrainConfig) -> Any:
    """Return the model with adapters or trainable weights switched on."""
    import peft

    inside, own = _language_prefixes(model), config.model
    in_full = own.train_vision and (own.tuning == "full" or own.vision_tuning == "full")

    def is_full(name: str) -> bool:
        return name.startswith(OF_MODULE) or (in_full and not name.startswith(inside))

    if own.tuning == "lora":
        beside = [weight for name, weight in model.named_parameters() if is_full(name)]
        layers = _linear_layers(
            model, ("",) if own.train_vision and own.vision_tuning == "same" else inside
        )
        targets, lora = [name for name, _ in layers if not name.startswith(OF_MODULE)], own.lora
        adapters = peft.LoraConfig(
            r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=targets
        )
        with (
            torch.random.fork_rng(devices=[]),
            warnings.catch_warnings(),
        ):  # the same whatever was drawn before
            # peft uses a deprecated name of transformers.
            warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
            torch.manual_seed(config.seed)
            model = peft.get_peft_model(model, adapters)
        for weight in beside:  # in float32, as adapters are: small steps add up
            weight.data = weight.data.float()
            weight.requires_grad = True
    else:
        for name, weight in model.named_parameters(remove_duplicate=False):
            weight.requires_grad = is_full(name) or name.startswith(inside)
    of = sum(getattr(weight, "quant_state", weight).shape.numel() for weight in model.parameters())
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    what = f"adapters of rank {own.lora.rank}" if own.tuning == "lora" else "weights"
    log.info(
        "trained: %s of %s parameters (%.2f %%), %s",
        f"{trained:,}",
        f"{of:,}",
        100 * trained / of,
        what,
    )
    return model


def freeze_model(model: Any, dtype: torch.dtype) -> Any:
    """Return a frozen model for ``computing`` in a precision.

    Linear layers are stored in that precision: autocast would round them at each step, with the
    same result and twice the memory. Embeddings and norms, which autocast keeps in float32, stay as
    they are.
    """
    model.eval().requires_grad_(requires_grad=False)
    inputs = model.get_input_embeddings().weight
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and layer.weight is not inputs:
            layer.to(dtype)
    return model


def _language_prefixes(model: Any) -> tuple[str, ...]:
    """Return the name prefixes of the language model's parameters, the output layer included."""
    if (decoder := model.get_decoder()) is model:
        return ("",)
    inner = {id(decoder), id(model.get_output_embeddings())}
    return tuple(f"{name}." for name, module in model.named_modules() if id(module) in inner)


def split_rates(optimizer: torch.optim.Optimizer, model: Any, rate: float) -> None:
    """Move the vision tower's weights, adapters included, into parameter groups of their own at ``rate``.

    The projector and differential perception keep the main rate. The optimiser must be new: its
    state belongs to groups.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    tower = find_tower(base, field="optimiser.vision_learning_rate")
    own = {id(weight) for weight in tower.whole.parameters()} - {
        id(weight) for weight in tower.after.parameters()
    }
    for group in list(optimizer.param_groups):
        seeing = [weight for weight in group["params"] if id(weight) in own]
        group["params"] = [weight for weight in group["params"] if id(weight) not in own]
        if seeing:
            optimizer.add_param_group({**group, "params": seeing, "lr": rate})


def merge_adapters(model: Any, folder: Path) -> Any:
    """Return a model with a folder's adapters merged in float32 and rounded once.

    Weights trained in full beside the adapters are copied, too.
    """
    import peft

    with loading(NAME, folder):
        own = peft.PeftConfig.from_pretrained(str(folder))
        if not isinstance(own, peft.LoraConfig):
            raise ModelError(
                f"{NAME}: {folder} holds {own.peft_type} adapters; only LoRA can be merged"
            )
        tensors = load_file(folder / ADAPTER_WEIGHTS)
        own.inference_mode = True
        tuned = peft.get_peft_model(model, own)
        report = peft.set_peft_model_state_dict(tuned, tensors)
    missing = sorted(name for name in report.missing_keys if ADAPTER in name)
    if strange := [*missing, *report.unexpected_keys]:
        raise ModelError(f"{NAME}: {folder}: belongs to another model: {name_some(strange)}")
    merged = tuned.merge_and_unload()
    if (folder / TUNED).is_file():
        _copy_weights(dict(merged.named_parameters()), folder / TUNED)
    return merged


# ---- what is trained beside adapters


def without_module(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without those of differential perception, which ``from_pretrained`` does not know."""
    return {name: weight for name, weight in weights.items() if not name.startswith(OF_MODULE)}


def save_beside(
    model: Any, folder: Path, *, finished: bool, weights: Mapping[str, Any] | None = None
) -> None:
    """Write weights trained beside adapters, and when ``finished`` the differential perception module.

    ``weights``: the model's gathered weights, at least the trained ones, where FSDP shards them.
    """
    own = {
        name.removeprefix(OF_PEFT): weight
        for name, weight in (weights or model.state_dict()).items()
    }
    tuned = {name: own[name] for name in trained_beside(model)}
    if kept := without_module(tuned) if finished else tuned:
        save_file(
            {name: weight.detach().cpu().contiguous() for name, weight in kept.items()},
            folder / TUNED,
        )
    if finished and hasattr(model, MODULE):
        module = {
            name.removeprefix(OF_MODULE): own[name]
            for name in own.keys() - without_module(own).keys()
        }
        save_differential(model, folder, module)


def save_spread(model: Any, folder: Path, *, first: bool) -> None:
    """Write weights that FSDP's checkpoints of adapters lack. All processes call it, the first one writes."""
    if trained_beside(model):
        options = StateDictOptions(
            full_state_dict=True, cpu_offload=True, ignore_frozen_params=True
        )
        weights = get_model_state_dict(model, options=options)
        if first:
            save_beside(model, folder, finished=False, weights=weights)


def trained_beside(model: Any) -> dict[str, Tensor]:
    """Return the weights trained beside adapters, by name; none for a model without adapters."""
    if not hasattr(model, "get_base_model"):
        return {}
    weights = model.get_base_model().named_parameters()
    return {
        name: weight for name, weight in weights if weight.requires_grad and ADAPTER not in name
    }


def restore_beside(model: Any, folder: Path) -> None:
    """Restore the weights of ``trained_beside`` from a checkpoint."""
    if tuned := trained_beside(model):
        _copy_weights(tuned, folder / TUNED)


def _copy_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Copy a file's tensors into weights of the same names."""
    for name, tensor in read_checkpoint(path, field=NAME).items():
        own = weights.get(name)
        if own is None or own.shape != tensor.shape:
            raise ModelError(f"{NAME}: {path}: belongs to another model: {name_some([name])}")
        own.detach().copy_(tensor)
