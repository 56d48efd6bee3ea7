"""Score vectors by a small network of linear layers, such as an aesthetic head on CLIP's; NumPy,
from safetensors.
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
    require_packages,
)


@dataclass(frozen=True)
class VectorHead:
    """Network of linear layers."""

    field: str
    layers: tuple[
        tuple[NDArray[np.float64], NDArray[np.float64]], ...
    ]  # weights ``(out, in)`` and biases ``(out)``
    has_relu: bool  # whether ReLU follows each layer but the last

    def score(self, vectors: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        """Return the output for each of ``(n, d)`` vectors, normalised first."""
        found = np.array(vectors, dtype=np.float64).reshape(len(vectors), -1)
        width = self.layers[0][0].shape[1]
        if len(found) and found.shape[1] != width:
            raise ModelError(
                f"{self.field}: takes vectors of {width} numbers, embedding.clip makes {found.shape[1]}"
            )
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        for number, (weight, bias) in enumerate(self.layers):
            found = np.maximum(found, 0) if number and self.has_relu else found
            found = found @ weight.T + bias
        return found[:, 0]


def identify_head(field: str, path: str) -> str:
    """Return the identity of a head's file; ``ModelError`` where there is none."""
    return identify_files(find_local(field, Path(path).expanduser()))


@lru_cache(maxsize=4)
def load_head(field: str, path: str, revision: str) -> VectorHead:
    """Return the head in a file."""
    require_packages(field, "safetensors")
    from safetensors import safe_open

    place = Path(path).expanduser()
    check_revision(field, revision, identify_head(field, path), place)
    with loading(field, place), safe_open(str(place), framework="numpy") as file:
        arrays = {name: file.get_tensor(name).astype(np.float64) for name in file.keys()}  # noqa: SIM118 - no mapping
        has_relu = (file.metadata() or {}).get("activation") == "relu"
    weights = {
        name.removesuffix("weight"): array
        for name, array in arrays.items()
        if name.endswith("weight")
    }
    names = sorted(weights, key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    shapes = [weights[name].shape for name in names]
    ends = [*(shape[-1] for shape in shapes[1:]), 1]
    if not shapes or any(
        len(shape) != 2 or shape[0] != end for shape, end in zip(shapes, ends, strict=True)
    ):
        raise ModelError(
            f"{field}: {place}: not a chain of linear layers with one output: {shapes or 'none'}"
        )
    return VectorHead(
        field,
        tuple((weights[name], arrays.get(f"{name}bias", np.zeros(1))) for name in names),
        has_relu,
    )
