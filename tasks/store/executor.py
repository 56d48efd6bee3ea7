"""Executors of shards: their interface, and the boundary where errors become records.

They run shards in worker processes of this machine (``pool``), on a Dask cluster (``on_dask``), or
in one of these as the task runs of a Prefect server (``flows.prefect.prefect_executor``).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import Protocol, Self

from pairwright.schemas.errors import PairwrightError
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.shard import ShardDone, ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
OUT_OF_MEMORY = "Out of memory? Try a smaller run.rows_per_shard, or fewer run.workers"
DIED = f"the worker process died. {OUT_OF_MEMORY}"
RunShard = Callable[[Planned, ShardRef], ShardDone]
RunStages = Callable[[], Sequence[Counts]]
"""Function that runs the stages of a step, and returns their counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFailed:
    """Result of a shard that wrote nothing: its rows are unfinished."""

    name: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome and duration of one shard."""

    shard: ShardRef
    result: ShardDone | ShardFailed
    seconds: float
    records: tuple[logging.LogRecord, ...] = ()  # log records of the process that ran it

    def replay_logs(self) -> Self:
        """Log these records in this process, and return the outcome."""
        for record in self.records:
            logger = logging.getLogger(record.name)
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)
        return self


class StageWatcher(Protocol):
    """Watcher of the progress of stages."""

    def note_waiting(self, planned: Planned) -> None:
        """Note that another build holds the table."""

    def begin_stage(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Note the unfinished shards of a stage."""

    def finish_shard(self, planned: Planned, outcome: Outcome) -> None:
        """Note the outcome of a shard."""

    def finish_stage(self, planned: Planned, counts: Counts, seconds: float) -> None:
        """Note the counts of a finished stage."""


class Executor(Protocol):
    """Executor of a build: runs its shards, shows its progress, and can be stopped."""

    watcher: StageWatcher

    @property
    def count(self) -> int:
        """Return the number of shards that run at once."""
        ...

    def submit(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Run shards of a stage; yield the outcome of each as it ends, in any order."""
        ...

    def run_one(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run one shard and wait for it; may be called from many threads."""
        ...

    def run_step(self, step: str, run_stages: RunStages) -> None:
        """Run the stages of a step by calling the function exactly once."""
        ...

    def stop(self) -> None:
        """Stop the running shards: their rows stay unfinished."""
        ...


class NoWatcher:
    """Watcher that shows nothing."""

    def note_waiting(self, planned: Planned) -> None:
        """Do nothing."""

    def begin_stage(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Do nothing."""

    def finish_shard(self, planned: Planned, outcome: Outcome) -> None:
        """Do nothing."""

    def finish_stage(self, planned: Planned, counts: Counts, seconds: float) -> None:
        """Do nothing."""


def run_in_threads(
    executor: Executor, planned: Planned, shards: Sequence[ShardRef]
) -> Iterator[Outcome]:
    """Run shards with as many waiting threads as the executor runs at once.

    Stop it if the caller stops.
    """
    with ThreadPoolExecutor(executor.count) as threads:
        try:
            futures = [threads.submit(executor.run_one, planned, shard) for shard in shards]
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            executor.stop()
            raise


def count_own_processes(planned: Planned) -> int | None:
    """Return the number of processes that a stage gets for its models.

    ``None``: it loads no models.
    """
    if planned.stage.processes is None:
        return None
    return planned.stage.processes(planned.config)


def failed_outcome(shard: ShardRef, error: str, seconds: float = 0.0) -> Outcome:
    """Return the outcome of a shard that wrote nothing."""
    result = ShardFailed(name=shard.name, error=error)
    return Outcome(shard=shard, result=result, seconds=seconds)


def attempt(run: RunShard, planned: Planned, shard: ShardRef) -> Outcome:
    """Run one shard: the boundary at which an error becomes a record."""
    start = time.monotonic()
    try:
        result = run(planned, shard)
    except PairwrightError as error:
        return failed_outcome(shard, str(error), time.monotonic() - start)
    except Exception as error:  # other shards go on; the traceback is in the log
        log.exception("%s failed", shard.name)
        message = f"{type(error).__name__}: {error}"
        return failed_outcome(shard, message, time.monotonic() - start)
    return Outcome(shard=shard, result=result, seconds=time.monotonic() - start)


def attempt_apart(run: RunShard, planned: Planned, shard: ShardRef) -> Outcome:
    """Run one shard in a worker process; its log records travel with the outcome."""
    logger = logging.getLogger("pairwright")
    level = logger.level
    records = SimpleQueue[logging.LogRecord]()
    handler = QueueHandler(records)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        outcome = attempt(run, planned, shard)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return replace(outcome, records=tuple(records.get() for _ in range(records.qsize())))
