"""Embedders by name: two descriptors without weights, two encoders, and the perceptual hash.

``prepare`` turns one image into the input of ``encode``, possibly in another process: the vector
itself, for a descriptor; a crop of pixels, for an encoder. ``encode`` turns many of those into
vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import ClipConfig, Dinov2Config, EmbeddingConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.plugins import Registry
from pairwright.tasks.models import dinov2_embedder, open_clip_embedder
from pairwright.tasks.models.adaptive_batches import Encoder
from pairwright.tasks.models.descriptors import COLOUR_LAYOUT, GRADIENTS
from pairwright.tasks.models.perceptual_hash import PERCEPTUAL_HASH
from pairwright.tasks.models.preprocess import Preprocess

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


@dataclass(frozen=True, slots=True)
class EncoderModel:
    """Embedder by an encoder; its weights are loaded at the first use, once per process."""

    name: str
    version: str
    load: Callable[[Any, int], tuple[Preprocess, Encoder]]
    config: ClipConfig | Dinov2Config
    batch: int
    """Images at a time; 0: as many as fit."""

    @property
    def prepare(self) -> Prepare:
        """Return the model's own transform."""
        preprocess, _ = self.load(self.config, self.batch)
        return preprocess

    def encode(self, prepared: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
        """Return ``(n, dimension)`` vectors."""
        _, encoder = self.load(self.config, self.batch)
        return encoder.encode(prepared)


EMBEDDERS = Registry("embedders", Embedder, (COLOUR_LAYOUT, GRADIENTS, PERCEPTUAL_HASH))
"""Embedders without settings."""


def make_embedder(name: str, config: EmbeddingConfig) -> Embedder:
    """Return the embedder of that name."""
    if name == "clip":
        return make_clip(config.clip, config.batch_size)
    if name == "dinov2":
        return make_dinov2(config.dinov2, config.batch_size)
    return EMBEDDERS[name]


def make_clip(config: ClipConfig, batch: int = 0) -> EncoderModel:
    """Return the embedder by a CLIP model's image tower."""
    version = open_clip_embedder.identify_clip(config)
    return EncoderModel("clip", version, open_clip_embedder.load_encoder, config, batch)


def make_dinov2(config: Dinov2Config, batch: int = 0) -> EncoderModel:
    """Return the embedder by DINOv2."""
    version = dinov2_embedder.MODELS.identify(config.model, config.revision)
    return EncoderModel("dinov2", version, dinov2_embedder.load_encoder, config, batch)


def to_unit(vector: NDArray[np.float32], label: str) -> tuple[tuple[float, ...], float]:
    """Return the unit vector in float16, and its norm in float32; zero vectors stay zero.

    ``label`` names the vector in an error.
    """
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(norm):
        raise ModelError(f"{label}: gave a vector that is not finite")
    unit = vector / norm if norm > 0 else vector
    return tuple(unit.astype(np.float16).tolist()), float(np.float32(norm))
