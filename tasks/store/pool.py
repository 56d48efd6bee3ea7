"""Run shards in worker processes of this machine.

A worker that dies (out of memory, say) breaks the pool: a new one is made, and the shards that were running are done
again one at a time, so that the one at fault is known. Workers end with the build, also when it is killed.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from schemas.errors import PairwrightError
from tasks.store.shard import ShardDone, ShardRef, run_shard
from tasks.store.stage import Planned

log = logging.getLogger(__name__)
ATTEMPTS = 2
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
Run = Callable[[Planned, ShardRef], ShardDone]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailed:
    """Say that a shard wrote nothing: its rows are still owed."""

    name: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Be what became of one shard, and how long it took."""

    shard: ShardRef
    result: ShardDone | ShardFailed
    seconds: float


class Workers:
    """Keep worker processes through a build; with one worker, shards run in this process."""

    def __init__(self, count: int, run: Run = run_shard) -> None:
        """Start no process yet; ``count`` 0 means one per core."""
        self.count = (
            count or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else count or os.cpu_count()
        )
        self._run = run
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool and error is not None:
            _kill(self._pool)
        elif self._pool:
            self._pool.shutdown()

    def run(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Yield the outcome of each shard as it ends, in no certain order."""
        if self.count == 1:
            yield from (_attempt(self._run, planned, shard) for shard in shards)
            return
        broken: list[ShardRef] = []
        yield from self._together(planned, shards, broken)
        for shard in broken:
            yield from self._alone(planned, shard)

    def _together(self, planned: Planned, shards: Sequence[ShardRef], broken: list[ShardRef]) -> Iterator[Outcome]:
        waiting = list(reversed(shards))
        running: dict[Future[Outcome], ShardRef] = {}
        while waiting or running:
            while waiting and len(running) < 2 * (self.count or 1):
                shard = waiting.pop()
                try:
                    running[self._executor().submit(_attempt, self._run, planned, shard)] = shard
                except BrokenProcessPool:
                    waiting.append(shard)
                    break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                shard = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    broken.append(shard)
                    self._pool = None
                else:
                    yield future.result()

    def _alone(self, planned: Planned, shard: ShardRef) -> Iterator[Outcome]:
        for attempt in range(ATTEMPTS):
            try:
                yield self._executor().submit(_attempt, self._run, planned, shard).result()
            except BrokenProcessPool:
                self._pool = None
                log.warning("%s: a worker process died (attempt %d of %d)", shard.name, attempt + 1, ATTEMPTS)
            else:
                return
        error = "the worker process died: out of memory? Try a smaller run.rows_per_shard, or fewer run.workers"
        yield Outcome(shard=shard, result=ShardFailed(name=shard.name, error=error), seconds=0.0)

    def _executor(self) -> ProcessPoolExecutor:
        if self._pool is None:
            for name in THREADS:
                os.environ.setdefault(name, "1")  # one thread per worker: the shards are the parallelism
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.count, mp_context=context, initializer=_begin, initargs=(os.getpid(),)
            )
        return self._pool


def _attempt(run: Run, planned: Planned, shard: ShardRef) -> Outcome:
    """Run one shard; the boundary at which a fault becomes a record instead of ending the build."""
    start = time.monotonic()
    try:
        result: ShardDone | ShardFailed = run(planned, shard)
    except PairwrightError as error:
        result = ShardFailed(name=shard.name, error=str(error))
    except Exception as error:  # other shards go on; the traceback is in the log
        log.exception("%s failed", shard.name)
        result = ShardFailed(name=shard.name, error=f"{type(error).__name__}: {error}")
    return Outcome(shard=shard, result=result, seconds=time.monotonic() - start)


def _begin(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _kill(pool: ProcessPoolExecutor) -> None:
    """Stop the workers at once: their shards are owed, and a half-written part has no final name."""
    processes = list((pool._processes or {}).values())  # pyright: ignore[reportPrivateUsage]  (3.14 makes this public)
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()
