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
WEIGHTS = (".weight", ".bias", ".lora_A", ".lora_B")
NAMED = 4  # maximum keys in a message


class _Unused:
    """Stand-in for a class that a checkpoint names needlessly; never instantiated."""

    def __new__(cls, *_: object) -> Self:
        raise TypeError("the file contains code, not only tensors")


def read_checkpoint(
    path: Path, *, field: str, under: str = "", idle: Collection[str] = ()
) -> dict[str, "Tensor"]:
    """Return a checkpoint's tensors by name, on the CPU: safetensors by its ending, else ``torch.save``'s format.

    ``under`` is the key of the weights in a training state, such as ``model``, used where present;
    ``idle`` are classes that a training state may name beside the weights: they are never made.
    """
    import torch
    from safetensors.torch import load_file

    with loading(field, path), torch.serialization.safe_globals([(_Unused, name) for name in idle]):
        if path.suffix.lower() == ".safetensors":
            loaded = load_file(path, device="cpu")
        else:
            loaded = torch.load(
                path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
            )
    values = loaded[under] if under and isinstance(loaded, Mapping) and under in loaded else loaded
    if not values or not isinstance(values, Mapping):
        raise ModelError(f"{field}: {path} holds no named tensors, but a {type(values).__name__}")
    if other := [name for name, value in values.items() if not isinstance(value, torch.Tensor)]:
        kind = type(values[other[0]]).__name__
        raise ModelError(
            f"{field}: {path} holds more than tensors: {str(other[0])[:80]!r} is a {kind}"
        )
    return {str(name): value.detach() for name, value in values.items()}


def count_parts(shapes: Shapes, prefix: str) -> int:
    """Return the number of numbered parts; ``ValueError`` where numbers are missing."""
    numbers = {name[len(prefix) :].partition(".")[0] for name in shapes if name.startswith(prefix)}
    if not numbers or numbers != {str(number) for number in range(len(numbers))}:
        raise ValueError(f"its parts {prefix}N are not numbered from 0 without gaps")
    return len(numbers)


def fill_model(model: Any, weights: "Mapping[str, Tensor]") -> None:
    """Load a checkpoint's weights into a model; ``ValueError`` for missing or unknown ones."""
    missing, strange = model.load_state_dict(weights, strict=False, assign=True)
    if missing:
        raise ValueError(f"it has no {name_some(missing)}")
    _check_unused(strange)


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
        for about, words in REFUSED.items():
            faults = [
                one if isinstance(one, str) else f"{one[0]} {tuple(one[1])} and {tuple(one[2])}"
                for one in report.get(about) or ()
            ]
            if names := sorted(faults):
                raise ValueError(f"{words} {name_some(names)}")
        _check_unused(sorted(report.get("unexpected_keys") or ()))
    return model


def _check_unused(names: Sequence[str]) -> None:
    """Refuse weights without a place in the model; unknown buffers, which vary by release, give a warning."""
    if weights := [name for name in names if name.endswith(WEIGHTS)]:
        raise ValueError(f"another model: unknown weights {name_some(weights)}")
    if names:
        log.warning("ignored tensors that the model does not have: %s", name_some(names))


def compare_shapes(found: Shapes, wanted: Shapes) -> None:
    """Refuse tensors that are missing, unknown (of a model built upon this one), or of another shape."""
    if missing := [name for name in wanted if name not in found]:
        raise ModelError(f"it has no {name_some(missing)}")
    if strange := [name for name in found if name not in wanted]:
        raise ModelError(f"another model: unknown weights {name_some(strange)}")
    for name, shape in found.items():
        if shape != wanted[name]:
            raise ModelError(f"{name} has shape {shape}, expected {wanted[name]}")


def name_some(names: Sequence[str]) -> str:
    """Return the first few names, for a message."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def shapes_of(tensors: "Mapping[str, Tensor]") -> dict[str, tuple[int, ...]]:
    """Return the tensors' shapes."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}
