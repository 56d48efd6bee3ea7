"""Read the tensors of a checkpoint, and nothing else; compare their shapes with a model's.

Reads safetensors, and files of ``torch.save`` with ``weights_only`` (memory-mapped zip files,
shared by the processes of a machine), as dictionaries of tensors. Needs PyTorch.
"""

import logging
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.weights import loading

if TYPE_CHECKING:
    from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]
log = logging.getLogger(__name__)
REFUSED = {
    "missing_keys": "its files have no",
    "mismatched_keys": "of another shape than its config.json says:",
}
"""Faults in transformers' report of a loaded model, with the start of the message."""
WEIGHTS = (".weight", ".bias", ".lora_A", ".lora_B")
NAMED = 4
"""Maximum keys in a message."""


class _Unused:
    """Stand-in for a class that a checkpoint names needlessly; never instantiated."""

    def __new__(cls, *_: object) -> Self:
        raise TypeError("the file contains code, not only tensors")


def read_checkpoint(
    path: Path,
    *,
    field: str,
    under: str = "",
    idle: Collection[str] = (),
) -> dict[str, "Tensor"]:
    """Return a checkpoint's tensors by name, on the CPU.

    Safetensors by its ending, else ``torch.save``'s format. ``under`` is the key of the weights in
    a training state, such as ``model``, used where present; ``idle`` are classes that a training
    state may name beside the weights: they are never instantiated.
    """
    import torch

    with loading(field, path):
        values = _load(path, idle)
    if under and isinstance(values, Mapping) and under in values:
        values = values[under]
    if not values or not isinstance(values, Mapping):
        raise ModelError(f"{field}: {path} holds no named tensors, but a {type(values).__name__}")
    others = [name for name, value in values.items() if not isinstance(value, torch.Tensor)]
    if others:
        name = str(others[0])[:80]
        kind = type(values[others[0]]).__name__
        raise ModelError(f"{field}: {path} holds more than tensors: {name!r} is a {kind}")
    return {str(name): value.detach() for name, value in values.items()}


def _load(path: Path, idle: Collection[str]) -> Any:
    """Return the content of a checkpoint."""
    import torch
    from safetensors.torch import load_file

    if path.suffix.lower() == ".safetensors":
        return load_file(path, device="cpu")
    with torch.serialization.safe_globals([(_Unused, name) for name in idle]):
        return torch.load(
            path,
            map_location="cpu",
            weights_only=True,
            mmap=zipfile.is_zipfile(path),
        )


def count_parts(shapes: Shapes, prefix: str) -> int:
    """Return the number of numbered parts; ``ValueError`` where numbers are missing."""
    names = [name[len(prefix) :] for name in shapes if name.startswith(prefix)]
    numbers = {name.partition(".")[0] for name in names}
    expected = {str(number) for number in range(len(numbers))}
    if not numbers or numbers != expected:
        raise ValueError(f"its parts {prefix}N are not numbered from 0 without gaps")
    return len(numbers)


def fill_model(model: Any, weights: "Mapping[str, Tensor]") -> None:
    """Load a checkpoint's weights into a model; ``ValueError`` for missing or unknown ones."""
    missing, unknown = model.load_state_dict(weights, strict=False, assign=True)
    if missing:
        raise ValueError(f"it has no {name_some(missing)}")
    _check_unused(unknown)


def load_pretrained(kind: Any, folder: Path, *, field: str, **options: Any) -> Any:
    """Return a complete model by transformers' ``from_pretrained``, from local files alone.

    ``ModelError``: the files cannot be read, or a tensor is missing or of another shape, where
    transformers would initialise it at random.
    """
    with loading(field, folder):
        logging.disable(logging.WARNING)  # transformers' table of keys: faults become errors
        model, report = kind.from_pretrained(
            folder,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported, and refused below
            **options,
        )
    with loading(field, folder):
        for fault, message in REFUSED.items():
            names = sorted(_describe_key(key) for key in report.get(fault) or ())
            if names:
                raise ValueError(f"{message} {name_some(names)}")
        _check_unused(sorted(report.get("unexpected_keys") or ()))
    return model


def _describe_key(key: Any) -> str:
    """Return a key of transformers' report; a mismatched one comes with both shapes."""
    if isinstance(key, str):
        return key
    name, shape, expected = key
    return f"{name} {tuple(shape)} and {tuple(expected)}"


def _check_unused(names: Sequence[str]) -> None:
    """Refuse weights that the model does not have.

    Unknown buffers, which vary by release, give a warning.
    """
    weights = [name for name in names if name.endswith(WEIGHTS)]
    if weights:
        raise ValueError(f"another model: unknown weights {name_some(weights)}")
    if names:
        log.warning("ignored tensors that the model does not have: %s", name_some(names))


def compare_shapes(shapes: Shapes, expected: Shapes) -> None:
    """Refuse missing tensors, unknown ones (of a model built upon this one), and other shapes."""
    missing = [name for name in expected if name not in shapes]
    if missing:
        raise ModelError(f"it has no {name_some(missing)}")
    unknown = [name for name in shapes if name not in expected]
    if unknown:
        raise ModelError(f"another model: unknown weights {name_some(unknown)}")
    for name, shape in shapes.items():
        if shape != expected[name]:
            raise ModelError(f"{name} has shape {shape}, expected {expected[name]}")


def name_some(names: Sequence[str]) -> str:
    """Return the first few names, for a message."""
    first = ", ".join(names[:NAMED])
    if len(names) > NAMED:
        return f"{first} and {len(names) - NAMED} more"
    return first


def shapes_of(tensors: "Mapping[str, Tensor]") -> dict[str, tuple[int, ...]]:
    """Return the tensors' shapes."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
