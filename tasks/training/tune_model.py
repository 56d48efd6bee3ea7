"""Say which weights of a model are trained: LoRA's adapters, or its own; and put adapters back into the weights.

Needs PyTorch and peft. The language model is what is trained; the tower that sees and the projector behind it are only
with ``train_vision``; a module of differential perception always is, all of it.
"""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.tensor_shapes import name_some
from pairwright.tasks.models.weights import loading
from pairwright.tasks.training.find_model import ADAPTER_WEIGHTS, NAME
from pairwright.tasks.training.tuned_weights import OF_MODULE, load_tuned

log = logging.getLogger(__name__)


def prepare_model(model: Any, config: TrainConfig) -> Any:
    """Return the model with what is trained switched on: adapters, or weights.

    Raises:
        ConfigError: no layer is called as ``model.lora.target_modules`` says, or one cannot have an adapter.
    """
    inside, vision = _language(model), config.model.train_vision
    if config.model.tuning == "lora":
        beside = [own for name, own in model.named_parameters() if _is_beside(name, inside, config)]
        model = _with_adapters(model, config)
        for parameter in beside:  # in float32, as adapters are: small steps add up
            parameter.data = parameter.data.float()
            parameter.requires_grad = True
    else:
        for name, parameter in model.named_parameters(remove_duplicate=False):
            parameter.requires_grad = vision or name.startswith((*inside, OF_MODULE))
    trained, of = count_parameters(model)
    log.info("trained: %s of %s parameters (%.2f %%), %s", f"{trained:,}", f"{of:,}", 100 * trained / of, _how(config))
    return model


def _is_beside(name: str, language: tuple[str, ...], config: TrainConfig) -> bool:
    """Say whether a weight is trained in full beside adapters."""
    vision = config.model.train_vision and config.model.vision_tuning == "full"
    return name.startswith(OF_MODULE) or (vision and not name.startswith(language))


def _how(config: TrainConfig) -> str:
    what = "with the tower that sees" if config.model.train_vision else "the language model's"
    return f"{what}, adapters of rank {config.model.lora.rank}" if config.model.tuning == "lora" else what


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


def count_parameters(model: Any) -> tuple[int, int]:
    """Return how many parameters are trained, and how many there are; tied ones count once."""
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return trained, sum(parameter.numel() for parameter in model.parameters())


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
    with torch.random.fork_rng(devices=[]), _peft_as_it_is():  # the same adapters whatever was drawn before
        torch.manual_seed(config.seed)
        return peft.get_peft_model(model, own)


@contextmanager
def _peft_as_it_is() -> Generator[None]:
    """Silence that this peft asks transformers by a name that is to go."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        yield


def _targets(model: Any, config: TrainConfig) -> list[str]:
    """Return the names of the layers that get adapters."""
    named, head = config.model.lora.target_modules, model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    vision = config.model.train_vision and config.model.vision_tuning == "same"
    inside = ("",) if vision else _language(model)
    found: list[str] = []
    for name, layer in model.named_modules():
        if not isinstance(layer, torch.nn.Linear) or not f"{name}.".startswith(inside) or not _is_named(name, named):
            continue
        if name.startswith(OF_MODULE):
            continue
        if layer is not head:
            found.append(name)
        elif named and tied:
            raise ConfigError(f"model.lora.target_modules: {name} shares its weights with the input's embedding")
        elif named:
            found.append(name)
    if not found:
        raise ConfigError(f"model.lora.target_modules {list(named)}: no linear layer that is trained is called so")
    return found


def _is_named(name: str, named: tuple[str, ...]) -> bool:
    return not named or any(name == one or name.endswith(f".{one}") for one in named)


def merge_adapters(model: Any, folder: Path) -> Any:
    """Return a model with adapters added to its weights; computed in float32 and rounded once.

    Weights that were trained in full beside the adapters come with them.

    Args:
        model: what they were trained on.
        folder: as peft's ``save_pretrained`` writes it, in safetensors.

    Raises:
        ModelError: they cannot be loaded, or belong to another model.
    """
    import peft
    from safetensors.torch import load_file

    with loading(NAME, folder):
        own = peft.PeftConfig.from_pretrained(str(folder))
        if not isinstance(own, peft.LoraConfig):
            raise ModelError(f"{NAME}: {folder} holds adapters of kind {own.peft_type}; LoRA's can be merged")
        tensors = load_file(folder / ADAPTER_WEIGHTS)
        own.inference_mode = True
        tuned = peft.get_peft_model(model, own)
        report = peft.set_peft_model_state_dict(tuned, tensors)
    missing = sorted(name for name in report.missing_keys if "lora_" in name)
    if strange := [*missing, *report.unexpected_keys]:
        raise ModelError(f"{NAME}: {folder}: belongs to another model: {name_some(strange)}")
    if bad := next((name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()), None):
        raise ModelError(f"{NAME}: {folder}: {bad} holds values that are no numbers (NaN or infinite)")
    merged = tuned.merge_and_unload()
    load_tuned(merged, folder)
    return merged
