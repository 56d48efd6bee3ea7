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

BATCH = 32  # rows prepared at a time
AHEAD = 1024  # maximum rows in preparation or waiting for the device
R = TypeVar("R", bound=Row)
P = TypeVar("P")
Made = TypeVar("Made")
Chunk = TypeVar("Chunk")


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """Decoded image, as models' input."""

    pixels: NDArray[np.uint8]  # ``(h, w, 3)``, RGB
    graph: SceneGraph | None = None  # of a rendered image


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
    parts = run_ahead(work, chunks, most=max(ahead // batch, 1)) if on_gpu else map(work, chunks)
    for part in parts:
        yield from part


def by_image(prepare: Callable[[DecodedImage], P]) -> Prepare[Any, P]:
    """Return a ``prepare`` that depends on the image alone."""
    return lambda _, seen: prepare(seen)


def in_groups(
    items: Sequence[Item[R]],
    prepare: Prepare[R, P],
    work: Callable[[list[Ready[R, P]]], Iterator[Made]],
    *,
    on_gpu: bool,
    size: int,
    batch: int = BATCH,
    ahead: int = AHEAD,
) -> Iterator[Made | Dropped]:
    """Yield the results of ``work`` on ``size`` prepared rows at a time, and dropped rows as they come.

    Without a GPU ``work`` gets at most ``BATCH`` rows.
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
        rows = list(group)
        image = rows[0][1]
        try:
            seen = DecodedImage(decode_rgb(image.image), image.graph)
        except RefusedImageError as refused:
            detail = f"{image.name}: {refused.detail}"
            results += [
                Dropped(source_key=row.key, reason=refused.reason, detail=detail) for row, _ in rows
            ]
        else:
            parts = ((row, prepare(row, seen)) for row, _ in rows)
            results += [
                part if isinstance(part, Dropped) else Ready(row, part) for row, part in parts
            ]
    return results


def run_ahead(
    work: Callable[[Chunk], Made], chunks: Iterable[Chunk], *, most: int
) -> Iterator[Made]:
    """Yield the results of ``work`` on chunks, computed by threads while the caller works; ``most`` may wait."""
    futures: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(int(os.environ.get(HELPERS, "0")) or 1) as executor:
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
