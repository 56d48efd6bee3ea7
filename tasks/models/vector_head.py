"""Score vectors by a small network of linear layers, such as an aesthetic head on CLIP's.

NumPy, from safetensors.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.weights import (
    check_revision,
    find_local,
    identify_files,
    loading,
    require_modules,
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class VectorHead:
    """Network of linear layers."""

    field: str
    layers: tuple[tuple[Floats, Floats], ...]
    """Weights ``(out, in)`` and biases ``(out)``."""
    has_relu: bool
    """Whether ReLU follows each layer but the last."""

    def predict(self, vectors: Sequence[Sequence[float]]) -> Floats:
        """Return the output for each of ``(n, d)`` vectors, normalised first."""
        numbers = np.array(vectors, dtype=np.float64)
        values = numbers.reshape(len(vectors), -1)
        first_weight, _ = self.layers[0]
        width = first_weight.shape[1]
        if len(values) and values.shape[1] != width:
            raise ModelError(
                f"{self.field}: takes vectors of {width} numbers, "
                f"embedding.clip makes {values.shape[1]}"
            )
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        values /= np.maximum(norms, np.finfo(np.float32).tiny)
        for number, (weight, bias) in enumerate(self.layers):
            if number and self.has_relu:
                values = np.maximum(values, 0)
            values = values @ weight.T + bias
        return values[:, 0]


def identify_head(field: str, path: str) -> str:
    """Return the identity of a head's file; ``ModelError`` where there is none."""
    files = find_local(field, Path(path).expanduser())
    return identify_files(files)


@lru_cache(maxsize=4)
def load_head(field: str, path: str, revision: str) -> VectorHead:
    """Return the head in a file."""
    require_modules(field, "safetensors")
    file = Path(path).expanduser()
    identity = identify_head(field, path)
    check_revision(field, revision, identity, file)
    with loading(field, file):
        arrays, metadata = _read_arrays(file)
    names = [name.removesuffix("weight") for name in arrays if name.endswith("weight")]
    names.sort(key=_numbers)
    weights = [arrays[f"{name}weight"] for name in names]
    shapes = [weight.shape for weight in weights]
    if not _is_chain(shapes):
        raise ModelError(
            f"{field}: {file}: not a chain of linear layers with one output: {shapes or 'none'}"
        )
    biases = [arrays.get(f"{name}bias", np.zeros(1)) for name in names]
    return VectorHead(
        field,
        layers=tuple(zip(weights, biases, strict=True)),
        has_relu=metadata.get("activation") == "relu",
    )


def _read_arrays(path: Path) -> tuple[dict[str, Floats], dict[str, str]]:
    """Return the arrays and the metadata of a file of safetensors."""
    from safetensors import safe_open

    arrays: dict[str, Floats] = {}
    with safe_open(str(path), framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - no mapping
            array = file.get_tensor(name)
            arrays[name] = array.astype(np.float64)
        return arrays, file.metadata() or {}


def _numbers(name: str) -> list[int]:
    """Return the numbers in a layer's name, which order the layers."""
    return [int(number) for number in re.findall(r"\d+", name)]


def _is_chain(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether layers' shapes ``(out, in)`` follow each other and end in one output."""
    widths = [*(shape[-1] for shape in shapes[1:]), 1]
    for shape, width in zip(shapes, widths, strict=False):
        if len(shape) != 2 or shape[0] != width:
            return False
    return bool(shapes)
