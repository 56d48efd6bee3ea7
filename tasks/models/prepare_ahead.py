"""Decode and prepare images ahead of the model, for all stages with weights.

Each image is decoded once. On a GPU, other processes prepare the next images while the device works; on a CPU the
shards in other workers are the parallelism, and images are prepared on demand.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import SourceError
from pairwright.schemas.rows import Dropped, ImageRow, Row
from pairwright.schemas.scene import SceneGraph
from pairwright.tasks.store.images import RefusedImageError, decode_rgb
from pairwright.tasks.store.pool import helpers

BATCH = 32  # rows prepared at a time
AHEAD = 1024  # maximum rows in preparation or waiting for the device
R = TypeVar("R", bound=Row)
P = TypeVar("P")
Made = TypeVar("Made")
Chunk = TypeVar("Chunk")


@dataclass(frozen=True, slots=True)
class Seen:
    """Decoded image, as models' input."""

    pixels: NDArray[np.uint8]  # ``(h, w, 3)``, RGB
    graph: SceneGraph | None = None  # of a rendered image


@dataclass(frozen=True, slots=True)
class Ready(Generic[R, P]):
    """Row with its prepared image."""

    row: R
    part: P


Prepare = Callable[[R, Seen], P | Dropped]
Item = tuple[R, ImageRow]
Result = Ready[R, P] | Dropped


def prepare_ahead(
    items: Sequence[Item[R]], prepare: Prepare[R, P], *, on_gpu: bool, batch: int = BATCH, ahead: int = AHEAD
) -> Iterator[Result[R, P]]:
    """Yield each row with the result of ``prepare`` for its image, in order, or as ``Dropped``.

    Consecutive rows of one image decode it once. With ``on_gpu`` helpers prepare while the caller computes, so
    ``prepare`` must be picklable; ``batch`` rows are prepared at a time, and ``ahead`` may wait.
    """
    chunks = [items[start : start + batch] for start in range(0, len(items), batch)]
    work = partial(_prepare, prepare=prepare)
    parts = run_ahead(work, chunks, most=max(ahead // batch, 1)) if on_gpu else map(work, chunks)
    for made, chunk in zip(parts, chunks, strict=True):
        for part, (row, _) in zip(made, chunk, strict=True):  # rows stay here: they hold image files
            yield part if isinstance(part, Dropped) else Ready(row, part)


def by_image(prepare: Callable[[Seen], P]) -> Prepare[Any, P]:
    """Return a ``prepare`` that depends on the image alone."""
    return partial(_by_image, prepare)


def _by_image(prepare: Callable[[Seen], P], row: Row, seen: Seen) -> P:  # noqa: ARG001 - the row is whose image it is
    return prepare(seen)


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


def _prepare(items: Sequence[Item[R]], *, prepare: Prepare[R, P]) -> list[P | Dropped]:
    """Decode and prepare; may run in another process."""
    parts: list[P | Dropped] = []
    for _, group in groupby(items, key=lambda item: item[1].key):
        rows = list(group)
        image = rows[0][1]
        try:
            seen = Seen(decode_rgb(image.image), image.graph)
        except RefusedImageError as refused:
            detail = f"{image.name}: {refused.detail}"
            parts += [Dropped(source_key=row.key, reason=refused.reason, detail=detail) for row, _ in rows]
        else:
            parts += [prepare(row, seen) for row, _ in rows]
    return parts


def run_ahead(work: Callable[[Chunk], Made], chunks: Iterable[Chunk], *, most: int, threads: int = 0) -> Iterator[Made]:
    """Yield the results of ``work`` on chunks, computed in ``threads`` or helper processes while the caller works."""
    pool = None if threads else helpers()
    executor = pool or ThreadPoolExecutor(threads or 1)
    futures: deque[Future[Made]] = deque()
    try:
        for chunk in chunks:
            futures.append(executor.submit(work, chunk))
            if len(futures) >= most:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    except BrokenProcessPool as error:
        helpers.cache_clear()
        raise SourceError("a process that decodes images died: out of memory? Try fewer run.workers") from error
    finally:
        for future in futures:
            future.cancel()
        if not pool:
            executor.shutdown()
