"""Weights of a model that are trained: LoRA's adapters, or its own; saved beside adapters, and merged again.

The language model is trained; the vision tower and the projector only with ``train_vision``; a module of differential
perception always. What is trained in full beside adapters is kept in ``tuned.safetensors``: peft saves adapters alone.
"""

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import NAME as MODULE
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.checkpoints import name_some, read_checkpoint
from pairwright.tasks.models.differential import find_tower, save_differential
from pairwright.tasks.models.weights import loading
from pairwright.tasks.training.find_model import ADAPTER_WEIGHTS, NAME, TUNED

log = logging.getLogger(__name__)
ADAPTER = "lora_"
OF_MODULE = f"{MODULE}."
"""How the names of the weights of differential perception begin."""


def prepare_model(model: Any, config: TrainConfig) -> Any:
    """Return the model with what is trained switched on: adapters, or weights."""
    inside, own = _language(model), config.model
    in_full = own.train_vision and (own.tuning == "full" or own.vision_tuning == "full")

    def is_full(name: str) -> bool:
        return name.startswith(OF_MODULE) or (in_full and not name.startswith(inside))

    if own.tuning == "lora":
        beside = [weight for name, weight in model.named_parameters() if is_full(name)]
        model = _with_adapters(model, config)
        for weight in beside:  # in float32, as adapters are: small steps add up
            weight.data = weight.data.float()
            weight.requires_grad = True
    else:
        for name, weight in model.named_parameters(remove_duplicate=False):
            weight.requires_grad = is_full(name) or name.startswith(inside)
    of = sum(weight.numel() for weight in model.parameters())
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    what = f"adapters of rank {own.lora.rank}" if own.tuning == "lora" else "weights"
    log.info("trained: %s of %s parameters (%.2f %%), %s", f"{trained:,}", f"{of:,}", 100 * trained / of, what)
    return model


def freeze_model(model: Any, dtype: torch.dtype) -> Any:
    """Return a model that is only compared with, for ``computing`` in a precision.

    Its linear layers are kept in that precision: autocast would round them so at each step, which gives the same
    numbers from twice the memory. What autocast leaves in float32 (embeddings, norms) stays as it is.
    """
    model.eval().requires_grad_(requires_grad=False)
    inputs = model.get_input_embeddings().weight
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear) and layer.weight is not inputs:
            layer.to(dtype)
    return model


def computing(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Return the context in which the Trainer lets a model compute."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not torch.float32)


def _language(model: Any) -> tuple[str, ...]:
    """Return how the names of the language model's parameters begin, the output layer's too."""
    if (decoder := model.get_decoder()) is model:
        return ("",)
    inner = {id(decoder), id(model.get_output_embeddings())}
    return tuple(f"{name}." for name, module in model.named_modules() if id(module) in inner)


def _with_adapters(model: Any, config: TrainConfig) -> Any:
    import peft

    lora = config.model.lora
    own = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=_targets(model, config)
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():  # the same whatever was drawn before
        # This peft asks transformers by a name that is to go.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        torch.manual_seed(config.seed)
        return peft.get_peft_model(model, own)


def _targets(model: Any, config: TrainConfig) -> list[str]:
    named, head = config.model.lora.target_modules, model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    vision = config.model.train_vision and config.model.vision_tuning == "same"
    inside = ("",) if vision else _language(model)
    found: list[str] = []
    for name, layer in model.named_modules():
        called = not named or any(name == one or name.endswith(f".{one}") for one in named)
        if not isinstance(layer, torch.nn.Linear) or not f"{name}.".startswith(inside) or not called:
            continue
        if name.startswith(OF_MODULE) or (layer is head and not named):
            continue
        if layer is head and tied:
            raise ConfigError(f"model.lora.target_modules: {name} shares its weights with the input's embedding")
        found.append(name)
    if not found:
        raise ConfigError(f"model.lora.target_modules {list(named)}: no linear layer that is trained is called so")
    return found


def split_rates(optimizer: torch.optim.Optimizer, model: Any, rate: float) -> None:
    """Put the weights of the vision tower into groups of their own, behind the others.

    Its adapters, if it has some, are among them; the projector behind it is not, nor is differential perception. The
    optimizer must be new: what has steps behind it would be of other groups.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    tower = find_tower(base, field="optimiser.vision_learning_rate")
    own = {id(weight) for weight in tower.whole.parameters()} - {id(weight) for weight in tower.after.parameters()}
    for group in list(optimizer.param_groups):
        seeing = [weight for weight in group["params"] if id(weight) in own]
        group["params"] = [weight for weight in group["params"] if id(weight) not in own]
        if seeing:
            optimizer.add_param_group({**group, "params": seeing, "lr": rate})


def merge_adapters(model: Any, folder: Path) -> Any:
    """Return a model with a folder's adapters added to its weights, computed in float32 and rounded once.

    Weights that were trained in full beside the adapters come with them.
    """
    import peft

    with loading(NAME, folder):
        own = peft.PeftConfig.from_pretrained(str(folder))
        if not isinstance(own, peft.LoraConfig):
            raise ModelError(f"{NAME}: {folder} holds adapters of kind {own.peft_type}; LoRA's can be merged")
        tensors = load_file(folder / ADAPTER_WEIGHTS)
        own.inference_mode = True
        tuned = peft.get_peft_model(model, own)
        report = peft.set_peft_model_state_dict(tuned, tensors)
    missing = sorted(name for name in report.missing_keys if ADAPTER in name)
    if strange := [*missing, *report.unexpected_keys]:
        raise ModelError(f"{NAME}: {folder}: belongs to another model: {name_some(strange)}")
    if bad := next((name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()), None):
        raise ModelError(f"{NAME}: {folder}: {bad} holds values that are no numbers (NaN or infinite)")
    merged = tuned.merge_and_unload()
    if (folder / TUNED).is_file():
        _place(dict(merged.named_parameters()), folder / TUNED)
    return merged


# ---- what is trained beside adapters


def without_module(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that ``from_pretrained`` has a place for."""
    return {name: weight for name, weight in weights.items() if not name.startswith(OF_MODULE)}


def save_beside(model: Any, folder: Path, *, finished: bool) -> None:
    """Write what is trained beside what transformers and peft write; when finished, the module into its own files."""
    tuned = trained_beside(model)
    if kept := without_module(tuned) if finished else tuned:
        save_file({name: weight.detach().cpu().contiguous() for name, weight in kept.items()}, folder / TUNED)
    if finished and hasattr(model, MODULE):
        save_differential(model, folder)


def trained_beside(model: Any) -> dict[str, Tensor]:
    """Return the weights that are trained beside adapters, by name; none for a model without adapters."""
    if not hasattr(model, "get_base_model"):
        return {}
    weights = model.get_base_model().named_parameters()
    return {name: weight for name, weight in weights if weight.requires_grad and ADAPTER not in name}


def restore_beside(model: Any, folder: Path) -> None:
    """Put a checkpoint's weights back into the model that is trained, all of them."""
    if tuned := trained_beside(model):
        placed = _place(tuned, folder / TUNED)
        if lacking := sorted(tuned.keys() - placed):
            raise ModelError(f"{NAME}: {folder / TUNED}: has no {name_some(lacking)}")


def _place(weights: dict[str, Tensor], path: Path) -> set[str]:
    """Copy a file's tensors into weights of the same names; return the names."""
    tensors = read_checkpoint(path, field=NAME)
    for name, tensor in tensors.items():
        own = weights.get(name)
        if own is None or own.shape != tensor.shape:
            raise ModelError(f"{NAME}: {path}: belongs to another model: {name_some([name])}")
        if not torch.isfinite(tensor).all():
            raise ModelError(f"{NAME}: {path}: {name} holds values that are no numbers (NaN or infinite)")
        with torch.no_grad():
            own.copy_(tensor)
    return set(tensors)
