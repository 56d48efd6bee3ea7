"""Embedders by name: two descriptors without weights, two encoders with them, and the perceptual hash of every image.

An embedder works in two steps, so that the first can run in other processes than the second: ``prepare`` turns one
image into what is encoded of it (the vector itself, for a descriptor; a small square of pixels, for an encoder), and
``encode`` turns many of those into vectors.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.plugins import Registry
from pairwright.tasks.models.descriptors import ColourLayout, Gradients
from pairwright.tasks.models.dinov2_embedder import Dinov2
from pairwright.tasks.models.open_clip_embedder import OpenClip
from pairwright.tasks.models.perceptual_hash import PerceptualHash

Pixels = NDArray[np.uint8]
Prepare = Callable[[Pixels], NDArray[Any]]
WITH_WEIGHTS = ("clip", "dinov2")


@runtime_checkable
class Embedder(Protocol):
    """Turn images into vectors of one space."""

    @property
    def name(self) -> str:
        """The name that profiles use."""
        ...

    @property
    def version(self) -> str:
        """What changes when the same image would get another vector."""
        ...

    @property
    def prepare(self) -> Prepare:
        """What is done with one ``(h, w, 3)`` RGB image; can be sent to another process."""
        ...

    def encode(self, prepared: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return ``(n, dimension)`` raw vectors of prepared images."""
        ...


EMBEDDERS = Registry("embedders", Embedder, (ColourLayout(), Gradients(), PerceptualHash()))
"""Those that have no settings."""


def make_embedder(name: str, config: EmbeddingConfig) -> Embedder:
    """Return the embedder of that name; its weights are loaded when they are first needed."""
    if name == "clip":
        return OpenClip(config=config.clip, batch=config.batch_size)
    if name == "dinov2":
        return Dinov2(config=config.dinov2, batch=config.batch_size)
    return EMBEDDERS[name]


def to_unit(vector: NDArray[np.float32], whose: str) -> tuple[tuple[float, ...], float]:
    """Return the unit vector as float16 numbers, and its length as a float32; the zero vector stays what it is."""
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(norm):
        raise ModelError(f"{whose}: gave a vector that is not finite")
    unit = (vector / norm if norm > 0 else vector).astype(np.float16)
    return tuple(unit.tolist()), float(np.float32(norm))
