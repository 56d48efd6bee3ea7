"""Embedders by name: descriptors without weights, encoders, the perceptual hash, plugins'.

``prepare`` turns one image into the input of ``encode``, possibly in another process: the vector
itself, for a descriptor; a crop of pixels, for an encoder. ``encode`` turns many of those into
vectors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.encoder_config import ClipConfig, Dinov2Config, EncoderConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import image_encoder, open_clip_embedder
from pairwright.tasks.models.adaptive_batches import Encoder
from pairwright.tasks.models.descriptors import COLOUR_LAYOUT, GRADIENTS, Descriptor
from pairwright.tasks.models.model_registry import ModelRegistry, OwnModel
from pairwright.tasks.models.perceptual_hash import PERCEPTUAL_HASH
from pairwright.tasks.models.preprocess import Preprocess

Pixels = NDArray[np.uint8]
Prepare = Callable[[Pixels], NDArray[Any]]


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
    config: ClipConfig | Dinov2Config | EncoderConfig
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


def make_clip(config: ClipConfig, batch: int = 0) -> EncoderModel:
    """Return the embedder by a CLIP model's image tower."""
    version = open_clip_embedder.identify_clip(config)
    return EncoderModel("clip", version, open_clip_embedder.load_encoder, config, batch)


def make_dinov2(config: Dinov2Config, batch: int = 0) -> EncoderModel:
    """Return the embedder by DINOv2."""
    version = image_encoder.DINOV2.identify(config.model, config.revision)
    return EncoderModel("dinov2", version, image_encoder.load_dinov2, config, batch)


def make_encoder(config: EncoderConfig, batch: int = 0) -> EncoderModel:
    """Return the embedder by an image encoder with a pooled output."""
    version = image_encoder.ANY.identify(config.model, config.revision)
    return EncoderModel("encoder", version, image_encoder.load_encoder, config, batch)


def _make_clip(config: EmbeddingConfig) -> Embedder:
    return make_clip(config.clip, config.batch_size)


def _make_dinov2(config: EmbeddingConfig) -> Embedder:
    return make_dinov2(config.dinov2, config.batch_size)


def _make_encoder(config: EmbeddingConfig) -> Embedder:
    return make_encoder(config.encoder, config.batch_size)


def _pin_clip(config: EmbeddingConfig) -> EmbeddingConfig:
    pinned = open_clip_embedder.pin_clip(config.clip, download=config.download)
    return config.model_copy(update={"clip": pinned})


def _pin_dinov2(config: EmbeddingConfig) -> EmbeddingConfig:
    pinned = image_encoder.pin_dinov2(config.dinov2, download=config.download)
    return config.model_copy(update={"dinov2": pinned})


def _pin_encoder(config: EmbeddingConfig) -> EmbeddingConfig:
    pinned = image_encoder.pin_encoder(config.encoder, download=config.download)
    return config.model_copy(update={"encoder": pinned})


def _describes(descriptor: Descriptor) -> OwnModel[EmbeddingConfig, Embedder]:
    """Return an embedder without settings and weights."""
    return OwnModel(lambda _: descriptor)


EMBEDDERS: ModelRegistry[EmbeddingConfig, Embedder] = ModelRegistry(
    "embedders",
    Embedder,
    {
        COLOUR_LAYOUT.name: _describes(COLOUR_LAYOUT),
        GRADIENTS.name: _describes(GRADIENTS),
        PERCEPTUAL_HASH.name: OwnModel(lambda _: PERCEPTUAL_HASH),
        "clip": OwnModel(_make_clip, _pin_clip),
        "dinov2": OwnModel(_make_dinov2, _pin_dinov2),
        "encoder": OwnModel(_make_encoder, _pin_encoder),
    },
)
"""All embedders, by name."""


def to_unit(vector: NDArray[np.float32], label: str) -> tuple[tuple[float, ...], float]:
    """Return the unit vector in float16, and its norm in float32; zero vectors stay zero.

    ``label`` names the vector in an error.
    """
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(norm):
        raise ModelError(f"{label}: gave a vector that is not finite")
    unit = vector / norm if norm > 0 else vector
    return tuple(unit.astype(np.float16).tolist()), float(np.float32(norm))
