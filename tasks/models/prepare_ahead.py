"""Decode and prepare images ahead of the model, for all stages with weights.

Each image is decoded once. On a GPU, threads prepare the next images while the device works
(decoders and resizing release Python's lock); on a CPU the shards in other workers are the
parallelism, and images are prepared on demand.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import Dropped, ImageRow, Row
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.images.decode import RefusedImageError, decode_rgb
from pairwright.tasks.store.pool import HELPERS

BATCH = 32
"""Rows prepared at a time."""
AHEAD = 1024
"""Maximum rows in preparation or waiting for the device."""
R = TypeVar("R", bound=Row)
P = TypeVar("P")
Output = TypeVar("Output")
Chunk = TypeVar("Chunk")


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """Decoded image, as models' input."""

    pixels: NDArray[np.uint8]
    """``(h, w, 3)``, RGB."""
    graph: SceneGraph | None = None
    """Graph of a rendered image."""
    file: bytes = b""
    """Encoded file that the pixels are from; empty: they are from none."""


@dataclass(frozen=True, slots=True)
class Ready(Generic[R, P]):
    """Row with its prepared image."""

    row: R
    part: P


Prepare = Callable[[R, DecodedImage], P | Dropped]
Item = tuple[R, ImageRow]
Result = Ready[R, P] | Dropped


def prepare_ahead(
    items: Sequence[Item[R]],
    prepare: Prepare[R, P],
    *,
    on_gpu: bool,
    batch: int = BATCH,
    ahead: int = AHEAD,
) -> Iterator[Result[R, P]]:
    """Yield each row with the result of ``prepare`` for its image, in order, or as ``Dropped``.

    Consecutive rows of one image decode it once. With ``on_gpu`` threads prepare while the caller
    computes, ``batch`` rows at a time, and ``ahead`` may wait.
    """
    chunks = [items[start : start + batch] for start in range(0, len(items), batch)]
    work = partial(_prepare, prepare=prepare)
    if on_gpu:
        results = run_ahead(work, chunks, most=max(ahead // batch, 1))
    else:
        results = map(work, chunks)
    for chunk_results in results:
        yield from chunk_results


def by_image(prepare: Callable[[DecodedImage], P]) -> Prepare[Any, P]:
    """Return a ``prepare`` that depends on the image alone."""
    return lambda _, image: prepare(image)


def in_groups(
    items: Sequence[Item[R]],
    prepare: Prepare[R, P],
    work: Callable[[list[Ready[R, P]]], Iterator[Output]],
    *,
    on_gpu: bool,
    size: int,
    batch: int = BATCH,
    ahead: int = AHEAD,
) -> Iterator[Output | Dropped]:
    """Yield the results of ``work`` on ``size`` prepared rows at a time, and dropped rows.

    Dropped rows are yielded as they come. Without a GPU ``work`` gets at most ``BATCH`` rows.
    """
    size = size if on_gpu else min(size, BATCH)
    waiting: list[Ready[R, P]] = []
    for result in prepare_ahead(items, prepare, on_gpu=on_gpu, batch=batch, ahead=ahead):
        if isinstance(result, Dropped):
            yield result
        else:
            waiting.append(result)
        if len(waiting) >= size:
            yield from work(waiting)
            waiting = []
    if waiting:
        yield from work(waiting)


def _prepare(items: Sequence[Item[R]], *, prepare: Prepare[R, P]) -> list[Result[R, P]]:
    results: list[Result[R, P]] = []
    for _, group in groupby(items, key=lambda item: item[1].key):
        image_items = list(group)
        rows = [row for row, _ in image_items]
        _, image = image_items[0]
        results += _prepare_image(rows, image, prepare)
    return results


def _prepare_image(
    rows: Sequence[R],
    image: ImageRow,
    prepare: Prepare[R, P],
) -> Iterator[Result[R, P]]:
    """Yield the results of an image's rows."""
    try:
        decoded = DecodedImage(decode_rgb(image.image), image.graph, image.image)
    except RefusedImageError as refused:
        detail = f"{image.name}: {refused.detail}"
        for row in rows:
            yield Dropped(source_key=row.key, reason=refused.reason, detail=detail)
        return
    for row in rows:
        part = prepare(row, decoded)
        yield part if isinstance(part, Dropped) else Ready(row, part)


def run_ahead(
    work: Callable[[Chunk], Output],
    chunks: Iterable[Chunk],
    *,
    most: int,
) -> Iterator[Output]:
    """Yield the results of ``work`` on chunks, computed by threads; ``most`` may wait."""
    futures: deque[Future[Output]] = deque()
    threads = int(os.environ.get(HELPERS, "0")) or 1
    with ThreadPoolExecutor(threads) as executor:
        try:
            for chunk in chunks:
                futures.append(executor.submit(work, chunk))
                if len(futures) >= most:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            for future in futures:
                future.cancel()
