"""Keep weights that are trained in full beside adapters: ``tuned.safetensors``, beside ``adapter_model.safetensors``.

peft saves adapters alone. These weights have the names that they have in the loaded model. Needs PyTorch and peft.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pairwright.schemas.differential import NAME as MODULE
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.checkpoints import read_checkpoint
from pairwright.tasks.models.differential.attach import save_differential
from pairwright.tasks.models.tensor_shapes import name_some
from pairwright.tasks.training.find_model import NAME, TUNED

if TYPE_CHECKING:
    from torch import Tensor

ADAPTER = "lora_"
OF_MODULE = f"{MODULE}."
"""How the names of the weights of differential perception begin."""


def without_module(weights: "dict[str, Tensor]") -> "dict[str, Tensor]":
    """Return the weights that ``from_pretrained`` has a place for."""
    return {name: weight for name, weight in weights.items() if not name.startswith(OF_MODULE)}


def save_beside(model: Any, folder: Path, *, finished: bool) -> None:
    """Write what is trained beside what transformers and peft write: all of it, or of a finished model its parts.

    Args:
        model: with adapters or without, not distributed.
        folder: where the rest is.
        finished: whether differential perception gets its own files; else it is with the others.

    Raises:
        OSError, SafetensorError: the disk refuses.
    """
    from safetensors.torch import save_file

    tuned = trained_beside(model)
    if kept := without_module(tuned) if finished else tuned:
        save_file({name: weight.detach().cpu().contiguous() for name, weight in kept.items()}, folder / TUNED)
    if finished and hasattr(model, MODULE):
        save_differential(model, folder)


def trained_beside(model: Any) -> "dict[str, Tensor]":
    """Return the weights that are trained beside adapters, by name; none for a model without adapters."""
    if not hasattr(model, "get_base_model"):
        return {}
    weights: Iterable[tuple[str, Tensor]] = model.get_base_model().named_parameters()
    return {name: weight for name, weight in weights if weight.requires_grad and ADAPTER not in name}


def load_tuned(model: Any, folder: Path) -> None:
    """Put weights that were trained in full into a model without adapters, where there are some beside them.

    Raises:
        ModelError: they cannot be read, or belong to another model.
    """
    if (folder / TUNED).is_file():
        _place(dict(model.named_parameters()), folder / TUNED)


def restore_beside(model: Any, folder: Path) -> None:
    """Put a checkpoint's weights back into the model that is trained, all of them.

    Raises:
        ModelError: they cannot be read, or are not those that are trained.
    """
    if tuned := trained_beside(model):
        placed = _place(tuned, folder / TUNED)
        if lacking := sorted(tuned.keys() - placed):
            raise ModelError(f"{NAME}: {folder / TUNED}: has no {name_some(lacking)}")


def _place(weights: "dict[str, Tensor]", path: Path) -> set[str]:
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
