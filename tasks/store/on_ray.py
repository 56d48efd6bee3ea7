"""Run shards in actors on a Ray cluster: one that is there, or a small one on this machine for the build's time.

An actor is a process that runs one shard at a time and keeps what it has loaded. One that dies is replaced, and the
shard that ran in it is run again elsewhere, a few times. A stage that loads models gets actors of its own, each with a
GPU where the cluster has any, which end when another stage begins. Nothing but references travels. Actors belong to
this process: Ray ends them when it ends, also when it is killed. Ray is told to report nothing to its makers.
"""

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.on_dask import LOOK_S, NOBODY_S
from pairwright.tasks.store.on_worker import Needs, Place, run_here
from pairwright.tasks.store.pool import (
    DIED,
    Outcome,
    Run,
    ShardFailed,
    count_cores,
    limit_threads,
    loads_models,
    spread,
)
from pairwright.tasks.store.shard import ShardRef, run_shard
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
INSTALL = "python -m pip install -c constraints.txt -e '.[ray]'"
TRIES = 4
"""Actors that may die of one shard."""
STORE_BYTES = 100 << 20
"""Ray's object store: only references go through it."""


class Seat:
    """Be an actor: run shards, one after the other."""

    def do(self, run: Run, planned: Planned, shard: ShardRef, needs: Needs) -> Outcome:
        """Run one."""
        return run_here(run, planned, shard, needs)


@dataclass(slots=True)
class _Seats:
    """Be the actors for one stage, or for all that load nothing."""

    name: str
    options: dict[str, Any]
    count: int
    free: "queue.SimpleQueue[Any]" = field(default_factory=queue.SimpleQueue)
    all: set[Any] = field(default_factory=set[Any])


class RayWorkers:
    """Be the workers of a cluster; use as a context manager."""

    def __init__(self, place: Place, needs: Needs, run: Run = run_shard) -> None:
        """Connect, and start a cluster first where none is named.

        Raises:
            ConfigError: Ray is not installed, or nobody answers at the address.
        """
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            import ray
        except ImportError as error:
            raise ConfigError(f"run.runner ray: Ray is not installed ({error}): {INSTALL}") from error
        self._ray, self._place, self._needs, self._run = ray, place, needs, run
        with _own_signals():
            _begin(ray, place)
        self._seats: _Seats | None = None
        self._changing = threading.Lock()
        self._stopped = False

    @property
    def count(self) -> int:
        """Return how many shards run at once, at the most."""
        there = int(self._ray.cluster_resources().get("CPU", 1))
        return max(1, min(there, self._place.workers or there))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        with _own_signals():
            self._ray.shutdown()

    def run(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Yield the outcome of each shard as it ends, in no certain order."""
        return spread(self.run_one, planned, shards, most=self.count, stop=self._stop)

    def run_one(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run one shard in an actor and wait for it; may be called from many threads."""
        start, error = time.monotonic(), DIED
        try:
            seats = self._seats_for(planned)
            for _ in range(TRIES):
                if outcome := self._try(seats, planned, shard):
                    return outcome.logged()
                if self._stopped:
                    error = "stopped"
                    break
                log.warning("%s: a worker died; trying it again in another", shard.name)
        except Exception as fault:  # the actor could not even begin, or the connection is lost
            log.exception("%s failed", shard.name)
            error = f"{type(fault).__name__}: {fault}"
        result = ShardFailed(name=shard.name, error=error)
        return Outcome(shard=shard, result=result, seconds=time.monotonic() - start)

    def _try(self, seats: _Seats, planned: Planned, shard: ShardRef) -> Outcome | None:
        """Return the outcome; ``None`` where the actor died, or all were told to end."""
        seat = seats.free.get()
        if self._stopped:
            seats.free.put(seat)  # for whoever waits, too
            return None
        try:
            return self._wait(seat.do.remote(self._run, planned, shard, self._needs))
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.OutOfMemoryError):
            with self._changing:
                seats.all.discard(seat)
                if not self._stopped:
                    seat = self._new(seats)
            return None
        finally:
            seats.free.put(seat)

    def _wait(self, ref: Any) -> Outcome:
        seen = time.monotonic()
        while True:
            with suppress(self._ray.exceptions.GetTimeoutError):
                return self._ray.get(ref, timeout=LOOK_S)
            if self._ray.cluster_resources().get("CPU"):
                seen = time.monotonic()
            elif time.monotonic() - seen > NOBODY_S:
                raise TimeoutError("the cluster has no machine left")

    def _seats_for(self, planned: Planned) -> _Seats:
        """Return the actors that run the stage; others end, so that what they hold is free."""
        name = planned.stage.name if loads_models(planned) else ""
        memory = self._place.memory_gb_of.get(planned.stage.name, 0.0)
        name = planned.stage.name if memory else name
        with self._changing:
            if self._seats is None or self._seats.name != name:
                self._end_seats()
                self._seats = self._new_seats(name, gpu=loads_models(planned), memory_gb=memory)
            return self._seats

    def _new_seats(self, name: str, *, gpu: bool, memory_gb: float) -> _Seats:
        there = int(self._ray.cluster_resources().get("GPU", 0)) if gpu else 0
        options: dict[str, Any] = {"num_cpus": 1, "num_gpus": 1 if there else 0}
        if memory_gb:
            options["memory"] = int(memory_gb * 1e9)
        seats = _Seats(name, options, min(there, self.count) or self.count)
        for _ in range(seats.count):
            seats.free.put(self._new(seats))
        return seats

    def _new(self, seats: _Seats) -> Any:
        seat = self._ray.remote(Seat).options(**seats.options).remote()
        seats.all.add(seat)
        return seat

    def _end_seats(self) -> None:
        for seat in self._seats.all if self._seats else ():
            with suppress(Exception):  # it may have ended
                self._ray.kill(seat)
        self._seats = None

    def _stop(self) -> None:
        """End the actors: their shards are owed, and a half-written part has no final name."""
        with self._changing:
            self._stopped = True
            self._end_seats()


def _begin(ray: Any, place: Place) -> None:
    """Join a cluster, or start one on this machine, on loopback and without its web page."""
    quiet = {"logging_level": logging.ERROR, "log_to_driver": True}
    if not place.address:
        limit_threads()
        count = place.workers or count_cores()
        ray.init(
            "local",
            num_cpus=count,
            num_gpus=place.gpus,
            include_dashboard=False,
            object_store_memory=STORE_BYTES,
            **quiet,
        )
        return
    try:
        ray.init(place.address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
        raise ConfigError(
            f"run.address {place.address}: no Ray cluster answers ({error}): start one (`ray start --head`), "
            "correct the address (`auto` on a machine of the cluster), or leave it empty for workers on this machine"
        ) from error


@contextmanager
def _own_signals() -> Generator[None]:
    """Keep what this process does at a signal: Ray puts handlers of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
