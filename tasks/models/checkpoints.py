"""Read the tensors of a checkpoint, and nothing else; compare their shapes with a model's.

Reads safetensors, and files of ``torch.save`` with ``weights_only`` (memory-mapped zip files, shared by the processes
of a machine), as dictionaries of tensors. Needs PyTorch.
"""

import logging
import warnings
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.weights import loading, summarise

if TYPE_CHECKING:
    from torch import Tensor

Shapes = Mapping[str, tuple[int, ...]]
log = logging.getLogger(__name__)
REFUSED = {"missing_keys": "its files have no", "mismatched_keys": "of another shape than its config.json says:"}
WEIGHTS = (".weight", ".bias", ".lora_A", ".lora_B")
NAMED = 4  # maximum keys in a message


class _Unused:
    """Stand-in for a class that a checkpoint names needlessly; never instantiated."""

    def __new__(cls, *_: object) -> Self:
        raise TypeError("the file contains code, not only tensors")


def read_checkpoint(path: Path, *, field: str, under: str = "", idle: Collection[str] = ()) -> dict[str, "Tensor"]:
    """Return a checkpoint's tensors by name, on the CPU: safetensors by its ending, else ``torch.save``'s format.

    Args:
        path: the file.
        field: the setting that names it, for messages.
        under: key of the weights in a training state, such as ``model``, used where present.
        idle: classes that a training state may name beside the weights; they are never made.
    """
    try:
        loaded = _load(path, idle)
    except Exception as error:  # torch, safetensors, zipfile and the system raise errors of many kinds
        raise ModelError(f"{field}: {path} cannot be read as a checkpoint: {summarise(error)}") from error
    values = loaded[under] if under and isinstance(loaded, Mapping) and under in loaded else loaded
    if not isinstance(values, Mapping) or not values:
        found = "nothing" if values is None or values == {} else f"a {type(values).__name__}"
        raise ModelError(f"{field}: {path} is not loaded: it holds {found}, not named tensors")
    import torch

    if other := [name for name, value in values.items() if not isinstance(value, torch.Tensor)]:
        kind = type(values[other[0]]).__name__
        raise ModelError(f"{field}: {path} is not loaded: {str(other[0])[:80]!r} is a {kind}, not a tensor")
    return {str(name): value.detach() for name, value in values.items()}


def _load(path: Path, idle: Collection[str]) -> Any:
    import torch

    if path.suffix.lower() == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path, device="cpu")
    with warnings.catch_warnings(), torch.serialization.safe_globals([(_Unused, name) for name in idle]):
        warnings.simplefilter("ignore")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))


def count_parts(shapes: Shapes, prefix: str) -> int:
    """Return the number of numbered parts; ``ValueError`` where numbers are missing."""
    numbers = {name[len(prefix) :].partition(".")[0] for name in shapes if name.startswith(prefix)}
    if not numbers or numbers != {str(number) for number in range(len(numbers))}:
        raise ValueError(f"its parts {prefix}N are not numbered from 0 without gaps")
    return len(numbers)


def fill_model(model: Any, weights: "Mapping[str, Tensor]") -> None:
    """Load a checkpoint's weights into a model; ``ModelError`` for missing or unknown ones."""
    missing, strange = model.load_state_dict(weights, strict=False, assign=True)
    if missing:
        raise ModelError(f"it has no {name_some(missing)}")
    check_unused(strange)


def load_pretrained(kind: Any, folder: Path, *, field: str, **options: Any) -> Any:
    """Return a complete model by transformers' ``from_pretrained``, from local files alone.

    ``ModelError``: the files cannot be read, or a tensor is missing or of another shape, where transformers would
    initialise it at random.
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
    for about, words in REFUSED.items():
        if names := sorted(map(_name_key, report.get(about) or ())):
            raise ModelError(f"{field}: {folder}: {words} {name_some(names)}")
    try:
        check_unused(sorted(report.get("unexpected_keys") or ()))
    except ModelError as error:
        raise ModelError(f"{field}: {folder}: {error}") from error
    return model


def _name_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    name, *shapes = key
    return f"{name} {' and '.join(str(tuple(shape)) for shape in shapes)}"


def check_unused(names: Sequence[str]) -> None:
    """Refuse weights without a place in the model; unknown buffers, which vary by release, give a warning."""
    if weights := [name for name in names if name.endswith(WEIGHTS)]:
        raise ModelError(f"another model: unknown weights {name_some(weights)}")
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
