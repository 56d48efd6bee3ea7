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
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import TYPE_CHECKING, Self

from pairwright.schemas.errors import PairwrightError
from pairwright.tasks.store.shard import ShardDone, ShardRef, run_shard
from pairwright.tasks.store.stage import Planned

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

log = logging.getLogger(__name__)
OUT_OF_MEMORY = "Out of memory? Try a smaller run.rows_per_shard, or fewer run.workers"
DIED = f"the worker process died. {OUT_OF_MEMORY}"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
PLACE, HELPERS = "PAIRWRIGHT_PLACE", "PAIRWRIGHT_HELPERS"
"""Environment variables of a worker: its number in its pool, and its maximum number of helpers."""
Run = Callable[[Planned, ShardRef], ShardDone]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailed:
    """Result of a shard that wrote nothing: its rows are still owed."""

    name: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome and duration of one shard."""

    shard: ShardRef
    result: ShardDone | ShardFailed
    seconds: float
    records: tuple[logging.LogRecord, ...] = ()  # log records of the process that ran it

    def logged(self) -> Self:
        """Log these records in this process, and return the outcome."""
        for record in self.records:
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        return self


class Workers:
    """Worker processes of a build; with one worker, shards that use no GPU run in this process."""

    def __init__(self, count: int, run: Run = run_shard) -> None:
        """Prepare the pool without starting a process; ``count`` 0: one per core."""
        self.count = count or count_cores()
        self._run = run
        self._pools: dict[str, ProcessPoolExecutor] = {}  # pools by stage; "" is the shared pool
        self._changing = threading.Lock()
        self._quarantine = threading.Lock()
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self._stop()
        else:
            for pool in self._pools.values():
                pool.shutdown()

    def run(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Yield the outcome of each shard as it ends, in any order; then the stage's own processes end."""
        if self.count == 1 and not count_own(planned):  # not in a thread: Ctrl-C ends it
            yield from (attempt(self._run, planned, shard) for shard in shards)
            return
        yield from spread(self.run_one, planned, shards, most=self.count, stop=self._stop)
        with self._changing:
            own = self._pools.pop(planned.stage.name, None)
        if own:
            own.shutdown()

    def run_one(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run one shard in a worker process and wait for it; may be called from many threads."""
        own = count_own(planned)
        if self.count == 1 and not own:
            return attempt(self._run, planned, shard)
        name, size = (
            ("", self.count)
            if own is None
            else (planned.stage.name, min(own or self.count, self.count))
        )
        with self._changing:
            if name not in self._pools:
                self._pools[name] = _new_pool(size, helpers=self.count // size - 1)
            pool = self._pools[name]
        try:
            with deaf():
                future = pool.submit(attempt_apart, self._run, planned, shard)
            return future.result().logged()
        except (BrokenProcessPool, CancelledError):
            with self._changing:
                if self._pools.get(name) is pool:
                    del self._pools[name]
        if self._stopped:
            return failed(shard, "stopped")
        log.warning(
            "%s: a worker process died; running the shard again in its own process", shard.name
        )
        with self._quarantine, _new_pool(1) as alone:
            try:
                return alone.submit(attempt_apart, self._run, planned, shard).result().logged()
            except BrokenProcessPool:
                return failed(shard, DIED)

    def _stop(self) -> None:
        """Kill the workers: their shards stay owed, and a half-written part has no final name."""
        with self._changing:  # a thread may be adding a pool
            self._stopped = True
            for pool in self._pools.values():
                processes = list((pool._processes or {}).values())  # pyright: ignore[reportPrivateUsage]  (3.14 makes this public)
                pool.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.kill()


def failed(shard: ShardRef, error: str, seconds: float = 0.0) -> Outcome:
    """Return the outcome of a shard that wrote nothing."""
    return Outcome(shard=shard, result=ShardFailed(name=shard.name, error=error), seconds=seconds)


def spread(
    run_one: Callable[[Planned, ShardRef], Outcome],
    planned: Planned,
    shards: Sequence[ShardRef],
    *,
    most: int,
    stop: Callable[[], None],
) -> Iterator[Outcome]:
    """Yield the outcome of each shard as it ends, at most ``most`` running at once; ``stop`` if the caller stops."""
    with ThreadPoolExecutor(most) as threads:
        try:
            for future in as_completed(
                [threads.submit(run_one, planned, shard) for shard in shards]
            ):
                yield future.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            stop()
            raise


def count_own(planned: Planned) -> int | None:
    """Return the number of processes that a stage gets for its models; ``None``: it loads no models."""
    return planned.stage.processes(planned.config) if planned.stage.processes else None


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_threads() -> None:
    """Limit this process and its children to one thread each: shards are the parallelism."""
    for name in THREADS:
        os.environ.setdefault(name, "1")
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # waiting threads leave the core to other workers


def _new_pool(count: int, *, helpers: int = 0) -> ProcessPoolExecutor:
    limit_threads()
    context = multiprocessing.get_context("spawn")
    places = context.Value("i", 0)
    return ProcessPoolExecutor(
        count, mp_context=context, initializer=_begin, initargs=(os.getpid(), places, helpers)
    )


def attempt(run: Run, planned: Planned, shard: ShardRef) -> Outcome:
    """Run one shard; the boundary at which an error becomes a record instead of ending the build."""
    start = time.monotonic()
    try:
        result = run(planned, shard)
    except PairwrightError as error:
        return failed(shard, str(error), time.monotonic() - start)
    except Exception as error:  # other shards go on; the traceback is in the log
        log.exception("%s failed", shard.name)
        return failed(shard, f"{type(error).__name__}: {error}", time.monotonic() - start)
    return Outcome(shard=shard, result=result, seconds=time.monotonic() - start)


def attempt_apart(run: Run, planned: Planned, shard: ShardRef) -> Outcome:
    """Run one shard in a worker process; its log records travel with the outcome."""
    ours, records = logging.getLogger("pairwright"), SimpleQueue[logging.LogRecord]()
    level, handler = ours.level, QueueHandler(records)
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    try:
        outcome = attempt(run, planned, shard)
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)
    return replace(outcome, records=tuple(records.get() for _ in range(records.qsize())))


@contextmanager
def deaf() -> Generator[None]:
    """Block Ctrl-C in processes that are started here, until ``_begin`` leaves it to the parent.

    Otherwise each process that is still importing would show a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, places: "Synchronized[int]", helpers: int) -> None:
    """Take a number, leave Ctrl-C to the parent, and end with the parent."""
    with places.get_lock():
        os.environ[PLACE], os.environ[HELPERS] = str(places.value), str(helpers)
        places.value += 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
