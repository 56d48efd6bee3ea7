"""Load a model, choose its trained weights, and save those that peft does not.

Reads a folder (``find_model``) of safetensors by transformers' loaders; fetches nothing, runs no
code of a checkpoint. With adapters the frozen weights are kept in the compute precision, or in 4
bits; full tuning keeps float32 and rounds for each step, since bfloat16 would lose a step of 5e-7
in a weight of 0.02 (ours).

The language model is trained; the vision tower and projector with ``train_vision``; differential
perception always. Weights trained in full in addition to adapters go into ``tuned.safetensors``,
since peft saves adapters alone.
"""

import importlib
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
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
from pairwright.tasks.training.template_arguments import set_arguments

log = logging.getLogger(__name__)
ADAPTER = "lora_"
SAVED = ".modules_to_save."  # peft's copies of modules that are trained in full
OF_MODULE = f"{MODULE}."  # prefix of the weights of differential perception
# parts of the names of numbers that make a layer random in training
RANDOM = ("dropout", "drop_path", "drop_prob", "jitter")
PROJECTORS = frozenset(
    {"connector", "deepstack_merger_list", "merger", "multi_modal_projector", "projector"}
)
"""Names of the modules from image features to the language model, in transformers."""
OF_PEFT = "base_model.model."  # prefix of all weights of a model with adapters


def choose_precision(config: TrainConfig) -> torch.dtype:
    """Return the compute precision."""
    precision = config.optimiser.precision
    if precision == "auto":
        is_fast = torch.cuda.is_available() and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        return torch.bfloat16 if is_fast else torch.float32
    return torch.bfloat16 if precision == "bf16" else torch.float32


def choose_storage(config: TrainConfig) -> torch.dtype:
    """Return the precision of stored weights: float32 for full tuning, to keep small steps."""
    return torch.float32 if config.model.tuning == "full" else choose_precision(config)


def computing(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Return the autocast context of the Trainer."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32)


def load_processor(folder: Path, template_kwargs: Mapping[str, Any] | None = None) -> Any:
    """Return a checkpoint's processor; adapters without one use their base model's.

    ``template_kwargs``: arguments of its chat template.
    """
    if not (folder / "tokenizer_config.json").is_file():
        base = find_base(folder)
        if base:
            folder = base.folder
    with loading(NAME, folder):
        processor: Any = AutoProcessor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        raise ModelError(f"{NAME}: {folder} has no processor for images and texts")
    if getattr(processor, "chat_template", None) is None:
        raise ConfigError(f"--model {folder}: has no chat template")
    set_arguments(processor, template_kwargs or {})
    return processor


def load_model(
    folder: Path,
    config: ModelConfig,
    *,
    dtype: torch.dtype,
) -> Any:
    """Return a checkpoint's model: adapters merged, differential perception attached."""
    model = load_plain(folder, config, dtype=dtype)
    if config.load_in_4bit:
        keep_in_4bit(model, dtype)
    module_folder = find_module(folder)
    if module_folder:
        load_differential(model, module_folder)
    return model


def load_to_train(folder: Path, config: TrainConfig) -> Any:
    """Return a run's initial model; attach a new differential perception module if configured."""
    model = load_model(folder, config.model, dtype=choose_storage(config))
    dropout = config.model.dropout
    if dropout == "zero" or (dropout == "auto" and config.objective != "sft"):
        zero_dropout(model)
    differential = config.model.differential
    if differential.enabled and not hasattr(model, MODULE):
        # Independent of earlier random draws.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            attach(model, **differential.model_dump(exclude={"enabled"}))
    return model


def zero_dropout(model: Any) -> None:
    """Set all dropout of a model's own layers to 0, in place.

    transformers keeps most of it as numbers of a layer, such as ``attention_dropout``, which TRL's
    ``disable_dropout`` does not reach.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
            continue
        for name, value in vars(module).items():
            if isinstance(value, float) and any(part in name for part in RANDOM):
                setattr(module, name, 0.0)


def load_plain(
    folder: Path,
    config: ModelConfig,
    *,
    dtype: torch.dtype,
) -> Any:
    """Return a model as ``load_model`` does, without differential perception."""
    base = find_base(folder)
    if base:
        return merge_adapters(load_plain(base.folder, config, dtype=dtype), folder)
    settings = read_json(folder / CONFIG)
    kind = settings.get("model_type")
    if kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        note = " Code in a checkpoint is never run." if "auto_map" in settings else ""
        raise ModelError(
            f"{NAME}: {folder}: unsupported vision-language model type {str(kind)[:80]!r}.{note}"
        )
    model = load_pretrained(
        AutoModelForImageTextToText,
        folder,
        field=NAME,
        trust_remote_code=False,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation=choose_attention(config.attn_implementation, str(kind)),
    )
    join_windows(model)
    return model


def keep_in_4bit(model: Any, dtype: torch.dtype) -> None:
    """Quantise the language model's linear layers to 4 bits.

    NF4, with scales in 8 bits (QLoRA; Dettmers et al. 2023). bitsandbytes rounds them when the
    model moves to its GPU; without one, here. The vision tower, embeddings and the output layer
    keep their precision.
    """
    require_bits("model.load_in_4bit")
    bits: Any = importlib.import_module("bitsandbytes.nn")
    for name, layer in _linear_layers(model, _language_prefixes(model)):
        small = bits.Linear4bit(
            1,
            1,
            bias=False,
            compute_dtype=dtype,
            quant_type="nf4",
            device="meta",
        )
        small.in_features = layer.in_features
        small.out_features = layer.out_features
        small.bias = layer.bias
        small.weight = bits.Params4bit(layer.weight.data, requires_grad=False, quant_type="nf4")
        small.support_avx512bf16_for_cpu = False  # else scales are rounded again between steps
        model.set_submodule(name, small if torch.cuda.is_available() else small.to("cpu"))


def round_to_4bit(model: Any) -> None:
    """Round an unquantised model's weights to their 4-bit values."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    for _, layer in _linear_layers(model, _language_prefixes(model)):
        quantised = quantize_4bit(layer.weight.data, compress_statistics=True, quant_type="nf4")
        layer.weight.data = dequantize_4bit(*quantised)


def _linear_layers(model: Any, inside: tuple[str, ...]) -> list[tuple[str, torch.nn.Linear]]:
    """Return the linear layers with these name prefixes, without the output layer."""
    head = model.get_output_embeddings()
    layers: list[tuple[str, torch.nn.Linear]] = []
    for name, layer in model.named_modules():
        if not isinstance(layer, torch.nn.Linear) or layer is head:
            continue
        if f"{name}.".startswith(inside):
            layers.append((name, layer))
    return layers


# ---- trained weights


def prepare_model(model: Any, config: TrainConfig) -> Any:
    """Return the model with adapters or trainable weights switched on."""
    if config.model.tuning == "lora":
        model = _add_adapters(model, config)
        description = f"adapters of rank {config.model.lora.rank}"
    elif config.model.tuning == "projector":
        _train_projector(model)
        description = "the projector"
    else:
        prefixes = _language_prefixes(model)
        for name, weight in model.named_parameters(remove_duplicate=False):
            is_language = name.startswith(prefixes)
            weight.requires_grad = is_language or _is_full(name, prefixes, config.model)
        description = "weights"
    _log_trained(model, description)
    return model


def _train_projector(model: Any) -> None:
    """Switch on the projector's weights alone, in float32: small steps add up."""
    prefixes = _language_prefixes(model)
    model.requires_grad_(requires_grad=False)
    count = 0
    for name, weight in model.named_parameters():
        if not name.startswith(prefixes) and PROJECTORS.intersection(name.split(".")):
            weight.data = weight.data.float()
            weight.requires_grad = True
            count += 1
    if not count:
        raise ModelError(
            f"model.tuning: {model.config.model_type} has no projector by one of these names: "
            f"{', '.join(sorted(PROJECTORS))}"
        )


def _is_full(
    name: str,
    language: tuple[str, ...],
    config: ModelConfig,
) -> bool:
    """Return whether a weight outside the language model is trained in full."""
    if name.startswith(OF_MODULE):
        return True
    vision_in_full = config.tuning == "full" or config.vision_tuning == "full"
    return config.train_vision and vision_in_full and not name.startswith(language)


def _add_adapters(model: Any, config: TrainConfig) -> Any:
    """Return the model with LoRA; the weights that are trained in full beside it are in float32."""
    import peft

    prefixes = _language_prefixes(model)
    in_full: list[Tensor] = []
    for name, weight in model.named_parameters():
        if _is_full(name, prefixes, config.model):
            in_full.append(weight)
    lora = config.model.lora
    targets = _find_targets(model, config.model, prefixes)
    _find_endings(targets, lora.rank_pattern, "rank_pattern")
    modules = [name for name, _ in model.named_modules()]
    adapters = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        rank_pattern=dict(lora.rank_pattern),
        modules_to_save=_find_endings(modules, lora.modules_to_save, "modules_to_save") or None,
    )
    # Independent of earlier random draws.
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft uses a deprecated name of transformers.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        torch.manual_seed(config.seed)
        model = peft.get_peft_model(model, adapters)
    in_full += [weight for name, weight in model.named_parameters() if SAVED in name]
    for weight in in_full:  # in float32, as adapters are: small steps add up
        weight.data = weight.data.float()
        weight.requires_grad = True
    return model


def _find_targets(model: Any, config: ModelConfig, language: tuple[str, ...]) -> list[str]:
    """Return the names of the linear layers that get adapters."""
    with_vision = config.train_vision and config.vision_tuning == "same"
    layers = _linear_layers(model, ("",) if with_vision else language)
    names = [name for name, _ in layers if not name.startswith(OF_MODULE)]
    chosen = config.lora.target_modules
    return _find_endings(names, chosen, "target_modules") if chosen else names


def _find_endings(names: Sequence[str], endings: Iterable[str], field: str) -> list[str]:
    """Return the names that are, or end with a dot and, one of the endings.

    ``ConfigError``: an ending fits no name.
    """
    found: dict[str, None] = {}
    for ending in endings:
        fitting = [name for name in names if name == ending or name.endswith(f".{ending}")]
        if not fitting:
            choices = sorted({name.rpartition(".")[2] for name in names} - {""})
            known = ", ".join(name for name in choices if not name.isdigit())
            raise ConfigError(
                f"model.lora.{field}: no module's name ends with {ending!r}; choose from: {known}"
            )
        found.update(dict.fromkeys(fitting))
    return list(found)


def _log_trained(model: Any, description: str) -> None:
    total = 0
    trained = 0
    for weight in model.parameters():
        total += getattr(weight, "quant_state", weight).shape.numel()
        if weight.requires_grad:
            trained += weight.numel()
    log.info(
        "trained: %s of %s parameters (%.2f %%), %s",
        f"{trained:,}",
        f"{total:,}",
        100 * trained / total,
        description,
    )


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
    decoder = model.get_decoder()
    if decoder is model:
        return ("",)
    inner = {id(decoder), id(model.get_output_embeddings())}
    return tuple(f"{name}." for name, module in model.named_modules() if id(module) in inner)


def split_rates(
    optimizer: torch.optim.Optimizer,
    model: Any,
    rate: float,
) -> None:
    """Move the vision tower's weights, adapters included, to parameter groups at ``rate``.

    The projector and differential perception keep the main rate. The optimiser must be new: its
    state belongs to groups.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    tower = find_tower(base, field="optimiser.vision_learning_rate")
    whole = {id(weight) for weight in tower.whole.parameters()}
    tower_ids = whole - {id(weight) for weight in tower.after.parameters()}
    for group in list(optimizer.param_groups):
        weights = group["params"]
        tower_weights = [weight for weight in weights if id(weight) in tower_ids]
        group["params"] = [weight for weight in weights if id(weight) not in tower_ids]
        if tower_weights:
            optimizer.add_param_group({**group, "params": tower_weights, "lr": rate})


def merge_adapters(model: Any, folder: Path) -> Any:
    """Return a model with a folder's adapters merged in float32 and rounded once.

    Weights trained in full beside the adapters are copied, too.
    """
    import peft

    with loading(NAME, folder):
        adapters = peft.PeftConfig.from_pretrained(str(folder))
        if not isinstance(adapters, peft.LoraConfig):
            raise ModelError(
                f"{NAME}: {folder} holds {adapters.peft_type} adapters; only LoRA can be merged"
            )
        tensors = load_file(folder / ADAPTER_WEIGHTS)
        adapters.inference_mode = True
        tuned = peft.get_peft_model(model, adapters)
        report = peft.set_peft_model_state_dict(tuned, tensors)
    missing = sorted(name for name in report.missing_keys if ADAPTER in name)
    mismatches = [*missing, *report.unexpected_keys]
    if mismatches:
        raise ModelError(f"{NAME}: {folder}: belongs to another model: {name_some(mismatches)}")
    merged = tuned.merge_and_unload()
    if (folder / TUNED).is_file():
        _copy_weights(dict(merged.named_parameters()), folder / TUNED)
    return merged


# ---- weights trained in addition to adapters


def without_module(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without differential perception's, unknown to ``from_pretrained``."""
    return {name: weight for name, weight in weights.items() if not name.startswith(OF_MODULE)}


def save_extra_weights(
    model: Any,
    folder: Path,
    *,
    finished: bool,
    weights: Mapping[str, Any] | None = None,
) -> None:
    """Write weights trained beside adapters; the differential perception module if ``finished``.

    ``weights``: the model's gathered weights, at least the trained ones, where FSDP shards them.
    """
    own_weights: dict[str, Any] = {}
    for name, weight in (weights or model.state_dict()).items():
        own_weights[name.removeprefix(OF_PEFT)] = weight
    tuned = {name: own_weights[name] for name in extra_weights(model)}
    if finished:
        tuned = without_module(tuned)
    if tuned:
        tensors: dict[str, Tensor] = {}
        for name, weight in tuned.items():
            tensors[name] = weight.detach().cpu().contiguous()
        save_file(tensors, folder / TUNED)
    if finished and hasattr(model, MODULE):
        module: dict[str, Any] = {}
        for name in own_weights.keys() - without_module(own_weights).keys():
            module[name.removeprefix(OF_MODULE)] = own_weights[name]
        save_differential(model, folder, module)


def save_sharded_weights(
    model: Any,
    folder: Path,
    *,
    first: bool,
) -> None:
    """Write weights that FSDP's checkpoints of adapters lack.

    All processes call it, the first one writes.
    """
    if not extra_weights(model):
        return
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    weights = get_model_state_dict(model, options=options)
    if first:
        save_extra_weights(model, folder, finished=False, weights=weights)


def extra_weights(model: Any) -> dict[str, Tensor]:
    """Return the weights trained beside adapters, by name; none for a model without adapters."""
    if not hasattr(model, "get_base_model"):
        return {}
    weights = model.get_base_model().named_parameters()
    trained = {name: weight for name, weight in weights if weight.requires_grad}
    own = [name for name in trained if ADAPTER not in name and SAVED not in name]
    return {name: trained[name] for name in own}


def restore_extra_weights(model: Any, folder: Path) -> None:
    """Restore the weights of ``trained_beside`` from a checkpoint."""
    tuned = extra_weights(model)
    if tuned:
        _copy_weights(tuned, folder / TUNED)


def _copy_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Copy a file's tensors into weights of the same names."""
    for name, tensor in read_checkpoint(path, field=NAME).items():
        weight = weights.get(name)
        if weight is None or weight.shape != tensor.shape:
            raise ModelError(f"{NAME}: {path}: belongs to another model: {name_some([name])}")
        weight.detach().copy_(tensor)
