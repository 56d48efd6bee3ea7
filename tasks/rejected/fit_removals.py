"""Embed each image without one of its elements, in the space of CLIP's texts and images.

Reads ``RemovalRow`` and the images, writes one ``EmbeddingRow`` per removal (``subject``: the key
of its ``ElementRow``), by the model that embeds the images themselves (paper 004, Eq. 9: CLIP's
candidates). An image is decoded once for all its removals; on a GPU, other processes apply the next
patches meanwhile.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.config import EmbeddingConfig
from pairwright.schemas.removing import FittedConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow, ImageRow, Images, RemovalRow, make_key
from pairwright.tasks.images.decode import RefusedImageError, put_patch
from pairwright.tasks.models.devices import count_gpus, count_processes
from pairwright.tasks.models.embedders import EMBEDDERS, Embedder, to_unit
from pairwright.tasks.models.prepare_ahead import DecodedImage, Ready, in_groups
from pairwright.tasks.store.stage import Stage, Uses

GROUP = 512  # images per call of the model, which cuts them into batches
NO_FIT = "its patch does not fit its image"
Crop = NDArray[Any]


def fit_removals(
    rows: Sequence[RemovalRow], config: FittedConfig, *, images: Images
) -> Iterator[EmbeddingRow | Dropped]:
    """Yield the vector of each image without an element."""
    model = _make_embedder(config)
    on_gpu = _has_weights(config) and count_gpus() > 0
    items = [(row, images[row.image_key]) for row in rows]

    def embed_ready(ready: Sequence[Ready[RemovalRow, Crop]]) -> Iterator[EmbeddingRow]:
        vectors = model.encode([item.part for item in ready])
        for item, vector in zip(ready, vectors, strict=True):
            row = item.row
            origin = f"embedding.{model.name}: {model.version}, of a removal from {row.image_key}"
            unit, norm = to_unit(vector, origin)
            yield EmbeddingRow(
                key=make_key("fitted", row.key, model.name, model.version),
                source_key=row.key,
                subject=row.subject,
                embedder=model.name,
                vector=unit,
                norm=norm,
            )

    prepare = partial(_crop, model.prepare)
    yield from in_groups(
        items,
        prepare,
        embed_ready,
        on_gpu=on_gpu,
        size=GROUP,
    )


def _crop(
    prepare: Callable[[NDArray[np.uint8]], Crop], row: RemovalRow, image: DecodedImage
) -> Crop | Dropped:
    """Return the model's input of the image without the element; may run in another process."""
    try:
        return prepare(put_patch(image.pixels, row.patch, row.window))
    except (RefusedImageError, ValueError) as error:
        return Dropped(
            source_key=row.key,
            reason=NO_FIT,
            detail=f"{row.tag}: {error}",
        )


def _make_embedder(config: FittedConfig) -> Embedder:
    """Return the embedder of the images themselves."""
    embedding = EmbeddingConfig(clip=config.clip, batch_size=config.batch_size)
    return EMBEDDERS.make(config.embedder, embedding)


def _name_models(config: FittedConfig) -> tuple[str, ...]:
    return (f"{config.embedder} {_make_embedder(config).version}",) if config.enabled else ()


def _has_weights(config: FittedConfig) -> bool:
    return config.enabled and EMBEDDERS.has_weights(config.embedder)


STAGE = Stage(
    name="fitted",
    group="rejected",
    reads={"removals": RemovalRow},
    writes=EmbeddingRow,
    function=fit_removals,
    config=lambda profile: profile.fitted,
    enabled=attrgetter("enabled"),
    models=_name_models,
    processes=partial(count_processes, _has_weights),
    without=("mask",),
    uses=(Uses(table="images", row=ImageRow, on="about", without=("graph", "captions")),),
    rows_per_shard=400,
)
