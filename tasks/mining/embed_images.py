"""Embed each image in each embedder's space (paper 001, Appendix D.1, step 1).

One ``EmbeddingRow`` per image and embedder, and one for its perceptual hash: the unit vector in
float16, and its length before normalisation. An image without any feature for an embedder (one flat
colour) has the zero vector, which is similar to nothing. Each image is decoded once for all
embedders.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Dropped, EmbeddingRow, ImageRow, make_key
from pairwright.tasks.models import perceptual_hash
from pairwright.tasks.models.devices import count_gpus, count_processes
from pairwright.tasks.models.embedders import EMBEDDERS, Embedder, to_unit
from pairwright.tasks.models.prepare_ahead import DecodedImage, Ready, by_image, in_groups
from pairwright.tasks.store.stage import Stage

GROUP = 512
"""Images passed to a device at a time, which cuts them into batches."""
Parts = tuple[NDArray[Any], ...]
"""Input of each embedder for one image."""


def embed_images(
    rows: Sequence[ImageRow],
    config: EmbeddingConfig,
) -> Iterator[EmbeddingRow | Dropped]:
    """Yield each image's vector in each space, in the configured order, and its perceptual hash."""
    embedders = [EMBEDDERS.make(name, config) for name in _names(config)]

    def prepare(image: DecodedImage) -> Parts:
        return tuple(embedder.prepare(image.pixels) for embedder in embedders)

    encode = partial(_encode_group, embedders=embedders)
    on_gpu = _has_weights(config) and count_gpus() > 0
    items = [(row, row) for row in rows]
    yield from in_groups(items, by_image(prepare), encode, on_gpu=on_gpu, size=GROUP)


def _encode_group(
    images: Sequence[Ready[ImageRow, Parts]],
    *,
    embedders: Sequence[Embedder],
) -> Iterator[EmbeddingRow]:
    """Yield the vectors of prepared images, image by image."""
    matrices: list[NDArray[np.float32]] = []
    for number, embedder in enumerate(embedders):
        prepared = [image.part[number] for image in images]
        matrices.append(embedder.encode(prepared))
    for row_index, image in enumerate(images):
        key = image.row.key
        for embedder, matrix in zip(embedders, matrices, strict=True):
            label = f"embedding.{embedder.name}: {embedder.version}, of image {key}"
            unit, norm = to_unit(matrix[row_index], label)
            yield EmbeddingRow(
                key=make_key("embedding", key, embedder.name, embedder.version),
                source_key=key,
                subject=key,
                embedder=embedder.name,
                vector=unit,
                norm=norm,
            )


def name_models(config: EmbeddingConfig) -> tuple[str, ...]:
    """Return the embedders with their versions, for the table's fingerprint."""
    models: list[str] = []
    for name in _names(config):
        embedder = EMBEDDERS.make(name, config)
        models.append(f"{name} {embedder.version}")
    return tuple(models)


def _names(config: EmbeddingConfig) -> tuple[str, ...]:
    """Return the names of each image's vectors: the embedders, and the perceptual hash."""
    return (*config.embedders, perceptual_hash.NAME)


def pin_models(config: EmbeddingConfig) -> EmbeddingConfig:
    """Return the configuration with the local revisions of the weights in use."""
    faults: list[str] = []
    for name in config.embedders:
        try:
            config = EMBEDDERS.pin(name, config, download=config.download)
        except ModelError as error:
            faults.append(str(error))
    if faults:
        raise ModelError("\n\n".join(faults))
    return config


def _has_weights(config: EmbeddingConfig) -> bool:
    return any(EMBEDDERS.has_weights(name) for name in config.embedders)


STAGE = Stage(
    name="embeddings",
    group="mining",
    reads={"images": ImageRow},
    writes=EmbeddingRow,
    function=embed_images,
    config=lambda profile: profile.embedding,
    models=name_models,
    pin=pin_models,
    processes=partial(count_processes, _has_weights),
    without=("graph",),
)
ALIGNED = replace(
    STAGE, name="aligned_embeddings", reads={"aligned_images": ImageRow}, extends="embeddings"
)
