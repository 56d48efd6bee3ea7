"""Run shards in worker processes of this machine, which end with the build, even if it is killed.

A worker that dies breaks the pool: a new one is made, and each running shard is repeated in its own
process, to find the one at fault. A stage that loads models gets its own processes, as many as its
devices allow; they end with it, which frees the devices' memory for the next stage. They decode in
as many threads as there are idle workers.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from pairwright.tasks.store.executor import (
    DIED,
    NoWatcher,
    Outcome,
    RunShard,
    RunStages,
    StageWatcher,
    attempt,
    attempt_apart,
    count_own_processes,
    failed_outcome,
    run_in_threads,
)
from pairwright.tasks.store.shard import ShardRef, run_shard
from pairwright.tasks.store.stage import Planned

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

log = logging.getLogger(__name__)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
PLACE = "PAIRWRIGHT_PLACE"
"""Environment variable of a worker: its number in its pool."""
HELPERS = "PAIRWRIGHT_HELPERS"
"""Environment variable of a worker: its maximum number of helper threads."""
PARENT_CHECK_S = 0.5  # interval at which a worker looks whether its parent still lives
SHARED = ""  # name of the pool of stages that load no models


class Workers:
    """Worker processes of a build; with one worker, shards that use no GPU run in this process."""

    def __init__(
        self, count: int, run: RunShard = run_shard, *, watcher: StageWatcher | None = None
    ) -> None:
        """Prepare the pool without starting a process; ``count`` 0: one per core."""
        self.watcher: StageWatcher = watcher or NoWatcher()
        self._count = count or count_cores()
        self._run = run
        self._pools: dict[str, ProcessPoolExecutor] = {}  # by stage, and the shared one
        self._changing = threading.Lock()
        self._quarantine = threading.Lock()
        self._stopped = False

    @property
    def count(self) -> int:
        """Return the number of shards that run at once."""
        return self._count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.stop()
            return
        for pool in self._pools.values():
            pool.shutdown()

    def submit(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Yield the outcome of each shard as it ends, in any order.

        Then the stage's own processes end.
        """
        if self._runs_here(planned):  # not in a thread: Ctrl-C ends it
            for shard in shards:
                yield attempt(self._run, planned, shard)
            return
        yield from run_in_threads(self, planned, shards)
        with self._changing:
            own_pool = self._pools.pop(planned.stage.name, None)
        if own_pool:
            own_pool.shutdown()

    def run_one(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run one shard in a worker process and wait for it; may be called from many threads."""
        if self._runs_here(planned):
            return attempt(self._run, planned, shard)
        name, pool = self._find_pool(planned)
        try:
            with block_interrupts():
                future = pool.submit(attempt_apart, self._run, planned, shard)
            return future.result().replay_logs()
        except (BrokenProcessPool, CancelledError):
            with self._changing:
                if self._pools.get(name) is pool:
                    del self._pools[name]
        if self._stopped:
            return failed_outcome(shard, "stopped")
        log.warning(
            "%s: a worker process died; running the shard again in its own process", shard.name
        )
        return self._run_in_quarantine(planned, shard)

    def run_step(self, step: str, run_stages: RunStages) -> None:
        """Run the stages of a step."""
        del step
        run_stages()

    def stop(self) -> None:
        """Kill the workers: their shards stay unfinished, half-written parts temporary."""
        with self._changing:  # a thread may be adding a pool
            self._stopped = True
            for pool in self._pools.values():
                processes = list((pool._processes or {}).values())  # pyright: ignore[reportPrivateUsage]  (3.14 makes this public)
                pool.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.kill()

    def _runs_here(self, planned: Planned) -> bool:
        """Return whether shards of a stage run in this process."""
        return self._count == 1 and not count_own_processes(planned)

    def _find_pool(self, planned: Planned) -> tuple[str, ProcessPoolExecutor]:
        """Return the pool that runs a stage, with its name; start it if there is none."""
        own_processes = count_own_processes(planned)
        if own_processes is None:
            name = SHARED
            size = self._count
        else:
            name = planned.stage.name
            size = min(own_processes or self._count, self._count)
        with self._changing:
            if name not in self._pools:
                self._pools[name] = _new_pool(size, helpers=self._count // size - 1)
            return name, self._pools[name]

    def _run_in_quarantine(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run a shard in a process of its own, one shard at a time."""
        with self._quarantine, _new_pool(1) as pool:
            try:
                return pool.submit(attempt_apart, self._run, planned, shard).result().replay_logs()
            except BrokenProcessPool:
                return failed_outcome(shard, DIED)


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_threads() -> None:
    """Limit this process and its children to one thread each: shards are the parallelism."""
    for name in THREADS:
        os.environ.setdefault(name, "1")
    # waiting threads leave the core to other workers
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _new_pool(count: int, *, helpers: int = 0) -> ProcessPoolExecutor:
    limit_threads()
    context = multiprocessing.get_context("spawn")
    next_number = context.Value("i", 0)
    return ProcessPoolExecutor(
        count,
        mp_context=context,
        initializer=_begin_worker,
        initargs=(os.getpid(), next_number, helpers),
    )


@contextmanager
def block_interrupts() -> Generator[None]:
    """Block Ctrl-C in processes that are started here, until they leave it to the parent.

    Otherwise each process that is still importing would show a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker(parent: int, next_number: "Synchronized[int]", helpers: int) -> None:
    """Take a number, leave Ctrl-C to the parent, and end with the parent."""
    with next_number.get_lock():
        os.environ[PLACE] = str(next_number.value)
        os.environ[HELPERS] = str(helpers)
        next_number.value += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """End this process when its parent has died."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)
