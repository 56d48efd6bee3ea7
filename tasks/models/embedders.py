"""Embedders by name: two descriptors without weights, two encoders, and the perceptual hash of every image.

``prepare`` turns one image into the input of ``encode``, possibly in another process: the vector itself, for a
descriptor; a crop of pixels, for an encoder. ``encode`` turns many of those into vectors.
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
    """Model from images to vectors of one space."""

    @property
    def name(self) -> str:
        """Name in profiles."""
        ...

    @property
    def version(self) -> str:
        """Identity, which changes with its vectors."""
        ...

    @property
    def prepare(self) -> Prepare:
        """Transform of one ``(h, w, 3)`` RGB image; picklable."""
        ...

    def encode(self, prepared: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return ``(n, dimension)`` raw vectors of prepared images."""
        ...


EMBEDDERS = Registry("embedders", Embedder, (ColourLayout(), Gradients(), PerceptualHash()))  # those without settings


def make_embedder(name: str, config: EmbeddingConfig) -> Embedder:
    """Return the embedder of that name; weights are loaded at the first use."""
    if name == "clip":
        return OpenClip(config=config.clip, batch=config.batch_size)
    if name == "dinov2":
        return Dinov2(config=config.dinov2, batch=config.batch_size)
    return EMBEDDERS[name]


def to_unit(vector: NDArray[np.float32], whose: str) -> tuple[tuple[float, ...], float]:
    """Return the unit vector in float16, and its norm in float32; zero vectors stay zero."""
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(norm):
        raise ModelError(f"{whose}: gave a vector that is not finite")
    unit = (vector / norm if norm > 0 else vector).astype(np.float16)
    return tuple(unit.tolist()), float(np.float32(norm))
