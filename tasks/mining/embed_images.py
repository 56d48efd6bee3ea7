"""Make a vector of each image in each embedder's space (paper 001, Appendix D.1, step 1).

Reads ``ImageRow``, writes one ``EmbeddingRow`` per image and embedder: the unit vector as float16 numbers, and the
length that it had before. An image in which an embedder sees nothing (one flat colour) has the zero vector, which is
similar to nothing.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.config import EmbeddingConfig
from schemas.rows import Dropped, EmbeddingRow, ImageRow, make_key
from tasks.models.descriptors import Embedder, make_embedder
from tasks.store.images import RefusedImageError, decode_rgb
from tasks.store.stage import Stage

BATCH = 32
"""Images decoded at a time."""


def embed_images(rows: Sequence[ImageRow], config: EmbeddingConfig) -> Iterator[EmbeddingRow | Dropped]:
    """Yield the image's vector in each space, in the configured order."""
    embedders = [make_embedder(name) for name in config.embedders]
    for start in range(0, len(rows), BATCH):
        decoded: list[tuple[ImageRow, NDArray[np.uint8]]] = []
        for row in rows[start : start + BATCH]:
            try:
                decoded.append((row, decode_rgb(row.image)))
            except RefusedImageError as refused:
                yield Dropped(source_key=row.key, reason=refused.reason, detail=f"{row.name}: {refused.detail}")
        yield from _embedded(decoded, embedders)


def _embedded(
    images: Sequence[tuple[ImageRow, NDArray[np.uint8]]], embedders: Sequence[Embedder]
) -> Iterator[EmbeddingRow]:
    matrices = [embedder.embed([pixels for _, pixels in images]) for embedder in embedders]
    for place, (row, _) in enumerate(images):
        for embedder, matrix in zip(embedders, matrices, strict=True):
            yield _row(row, embedder, matrix[place])


def _row(image: ImageRow, embedder: Embedder, vector: NDArray[np.float32]) -> EmbeddingRow:
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    unit = (vector / norm if norm > 0 else vector).astype(np.float16)
    return EmbeddingRow(
        key=make_key("embedding", image.key, embedder.name, embedder.version),
        source_key=image.key,
        subject=image.key,
        embedder=embedder.name,
        vector=tuple(unit.tolist()),
        norm=float(np.float32(norm)),
    )


def name_models(config: EmbeddingConfig) -> tuple[str, ...]:
    """Return the embedders with their versions, for the table's fingerprint."""
    return tuple(f"{name} {make_embedder(name).version}" for name in config.embedders)


STAGE = Stage(
    name="embeddings",
    version=1,
    group="mining",
    reads="images",
    row=ImageRow,
    writes=EmbeddingRow,
    function=embed_images,
    config="embedding",
    models=name_models,
    without=("graph",),
)
