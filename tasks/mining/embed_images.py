"""Make a vector of each image in each embedder's space (paper 001, Appendix D.1, step 1).

Reads ``ImageRow``, writes one ``EmbeddingRow`` per image and embedder, and one for its perceptual hash: the unit vector
as float16 numbers, and the length that it had before. An image in which an embedder sees nothing (one flat colour) has
the zero vector, which is similar to nothing.

Each image is decoded once, for all embedders. On a GPU, other processes decode and prepare the next images while the
device works; on a CPU the shards in other workers are the parallelism. Needs what the embedders need.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.config import EmbeddingConfig
from schemas.errors import ModelError, SourceError
from schemas.rows import Dropped, EmbeddingRow, ImageRow, make_key
from tasks.models import perceptual_hash
from tasks.models.devices import count_gpus
from tasks.models.dinov2_embedder import pin_dinov2
from tasks.models.embedders import WITH_WEIGHTS, Embedder, make_embedder
from tasks.models.open_clip_embedder import pin_clip
from tasks.store.images import RefusedImageError, decode_rgb
from tasks.store.pool import helpers
from tasks.store.stage import Stage

BATCH = 32
"""Images decoded at a time."""
AHEAD = 1024
"""Images that may be decoded, or waiting for the device, at a time."""
GROUP = 512
"""Images handed to a device at a time; it cuts them into batches."""
Prepare = Callable[[NDArray[np.uint8]], NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Be an image without its bytes, and what each embedder encodes of it."""

    key: str
    parts: tuple[NDArray[Any], ...]


def embed_images(rows: Sequence[ImageRow], config: EmbeddingConfig) -> Iterator[EmbeddingRow | Dropped]:
    """Yield the image's vector in each space, in the configured order, and last its perceptual hash."""
    embedders = [make_embedder(name, config) for name in _names(config)]
    on_gpu = _has_weights(config) and count_gpus() > 0
    prepare = [embedder.prepare for embedder in embedders]
    chunks = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    done = _ahead(chunks, prepare) if on_gpu else (_prepare(chunk, prepare) for chunk in chunks)
    waiting: list[Prepared] = []
    for results in done:
        yield from (result for result in results if isinstance(result, Dropped))
        waiting += [result for result in results if isinstance(result, Prepared)]
        if not on_gpu or len(waiting) >= GROUP:
            yield from _embedded(waiting, embedders)
            waiting = []
    yield from _embedded(waiting, embedders)


def _prepare(rows: Sequence[ImageRow], prepare: Sequence[Prepare]) -> list[Prepared | Dropped]:
    """Decode images, once for all embedders; may run in another process."""
    results: list[Prepared | Dropped] = []
    for row in rows:
        try:
            pixels = decode_rgb(row.image)
        except RefusedImageError as refused:
            detail = f"{row.name}: {refused.detail}"
            results.append(Dropped(source_key=row.key, reason=refused.reason, detail=detail))
        else:
            results.append(Prepared(key=row.key, parts=tuple(step(pixels) for step in prepare)))
    return results


def _ahead(chunks: Sequence[Sequence[ImageRow]], prepare: Sequence[Prepare]) -> Iterator[list[Prepared | Dropped]]:
    """Prepare chunks in this worker's helpers, or else in a thread, while the caller uses the last ones."""
    pool = helpers()
    if pool:
        yield from _in_order(pool, chunks, prepare)
    else:
        with ThreadPoolExecutor(1) as thread:
            yield from _in_order(thread, chunks, prepare)


def _in_order(
    pool: Executor, chunks: Sequence[Sequence[ImageRow]], prepare: Sequence[Prepare]
) -> Iterator[list[Prepared | Dropped]]:
    futures: deque[Future[list[Prepared | Dropped]]] = deque()
    try:
        for chunk in chunks:
            futures.append(pool.submit(_prepare, chunk, prepare))
            if len(futures) >= AHEAD // BATCH:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    except BrokenProcessPool as error:
        helpers.cache_clear()
        raise SourceError("a process that decodes images died: out of memory? Try fewer run.workers") from error
    finally:
        for future in futures:
            future.cancel()


def _embedded(images: Sequence[Prepared], embedders: Sequence[Embedder]) -> Iterator[EmbeddingRow]:
    if not images:
        return
    matrices = [embedder.encode([image.parts[n] for image in images]) for n, embedder in enumerate(embedders)]
    for place, image in enumerate(images):
        for embedder, matrix in zip(embedders, matrices, strict=True):
            yield _row(image.key, embedder, matrix[place])


def _row(image: str, embedder: Embedder, vector: NDArray[np.float32]) -> EmbeddingRow:
    norm = float(np.linalg.norm(vector.astype(np.float64)))
    if not np.isfinite(norm):
        raise ModelError(f"embedding.{embedder.name}: {embedder.version} gave a vector that is not finite for {image}")
    unit = (vector / norm if norm > 0 else vector).astype(np.float16)
    return EmbeddingRow(
        key=make_key("embedding", image, embedder.name, embedder.version),
        source_key=image,
        subject=image,
        embedder=embedder.name,
        vector=tuple(unit.tolist()),
        norm=float(np.float32(norm)),
    )


def name_models(config: EmbeddingConfig) -> tuple[str, ...]:
    """Return the embedders with their versions, for the table's fingerprint."""
    return tuple(f"{name} {make_embedder(name, config).version}" for name in _names(config))


def _names(config: EmbeddingConfig) -> tuple[str, ...]:
    """Return what is made of each image: its vectors, and its perceptual hash, by which copies are told."""
    return (*config.embedders, perceptual_hash.NAME)


def pin_models(config: EmbeddingConfig) -> EmbeddingConfig:
    """Return the configuration with the revisions of the weights that this machine has, of the embedders in use.

    Raises:
        ModelError: weights or packages are missing; the message says what fetches them.
    """
    pinned: dict[str, Any] = {}
    if "clip" in config.embedders:
        pinned["clip"] = pin_clip(config.clip, download=config.download)
    if "dinov2" in config.embedders:
        pinned["dinov2"] = pin_dinov2(config.dinov2, download=config.download)
    return config.model_copy(update=pinned)


def count_processes(config: EmbeddingConfig) -> int | None:
    """Return how many processes load the models: one per GPU; without one, as many as there are workers."""
    return count_gpus() if _has_weights(config) else None


def _has_weights(config: EmbeddingConfig) -> bool:
    return any(name in WITH_WEIGHTS for name in config.embedders)


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
    pin=pin_models,
    processes=count_processes,
    without=("graph",),
)
