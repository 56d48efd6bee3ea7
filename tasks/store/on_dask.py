"""Run shards in the workers of a Dask cluster: one that is there, or a small one on this machine for the build's time.

Workers run one shard at a time and keep what they have loaded. Those that say what they have ("--resources
GPU=1,MEMORY=64e9") get the stages that need it. One that has other code, or does not see a folder of this machine's
disk, fails its shards and says what is wrong. A shard whose worker dies is run again elsewhere.
"""

import gc
import hashlib
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, cast

from pairwright.schemas.config import RunConfig
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.pool import (
    DIED,
    OUT_OF_MEMORY,
    PLACE,
    Outcome,
    Run,
    attempt_apart,
    count_cores,
    deaf,
    failed,
    limit_threads,
    loads_models,
    spread,
)
from pairwright.tasks.store.shard import ShardRef, run_shard
from pairwright.tasks.store.stage import Planned

log, NANNY = logging.getLogger(__name__), logging.getLogger("distributed.nanny")
INSTALL = "python -m pip install -c constraints.txt -e '.[dask]'"
CONNECT_S, LOOK_S, NOBODY_S = 30, 5.0, 600.0
"""Longest wait for the scheduler; how often it is looked whether workers are left; how long there may be none."""
ROOT = Path(__file__).parent.parent.parent
CODE = ("prompts", "schemas", "tasks")
ENDINGS = (".py", ".j2")
_ALONE = threading.Lock()
"""Held by the shard that runs: a worker of several threads does one at a time, whose models have the device."""
_LOADED: list[str] = []
"""The stage whose models this process has loaded, if any."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a worker must have to give the rows that a worker of this machine gives."""

    code: str
    """Hash of the code; empty: it is that of this machine."""
    paths: tuple[str, ...]
    """Files and folders of a disk that all machines share."""

    def lack(self) -> str:
        """Return what this process lacks; empty: nothing."""
        host = socket.gethostname()
        if self.code and self.code != code_mark():
            return (
                f"worker on {host}: it has other code of Pairwright than the machine that builds: install the same "
                "commit there, and start the worker anew"
            )
        missing = next((path for path in self.paths if not Path(path).exists()), "")
        if missing:
            return (
                f"worker on {host}: it does not see {missing}: workers of other machines need it on a disk that all "
                "share, or on an object store"
            )
        return ""


class DaskWorkers:
    """Workers of a cluster; use as a context manager."""

    def __init__(self, config: RunConfig, *, gpus: int = 0, paths: Iterable[str] = ()) -> None:
        """Connect to the cluster, or start one, with ``gpus`` on this machine; its workers have to see the paths."""
        try:
            import distributed
        except ImportError as error:
            raise ConfigError(f"run.runner dask: Dask is not installed ({error}): {INSTALL}") from error
        self._dask, self._config = distributed, config
        logging.getLogger("distributed").setLevel(logging.ERROR)
        NANNY.setLevel(logging.INFO)
        NANNY.addFilter(_is_death)
        seen = tuple(dict.fromkeys(str(Path(path).absolute()) for path in paths))
        self._needs = Needs(code_mark() if config.address else "", seen)
        self._started = 0 if config.address else config.workers or count_cores()
        self._cluster: Any = _start(self._started, gpus) if self._started else None
        self._client = _connect(config.address or self._cluster, self._started or 1)
        self._under_way: set[Any] = set()
        self._changing = threading.Lock()
        self._stopped = False

    @property
    def count(self) -> int:
        """Return how many shards run at once."""
        if self._started:  # one that has died is being replaced
            return self._started
        there = len(self._client.nthreads())
        return max(1, min(there, self._config.workers or there))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        NANNY.setLevel(logging.ERROR)  # workers that end with the build are none that died
        if kind:
            self._stop()
        with suppress(Exception):  # a scheduler that has gone cannot be said goodbye to
            self._client.close(timeout=5)
        if self._cluster is not None:
            self._cluster.close(timeout=10)

    def run(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Yield the outcome of each shard as it ends, in no certain order."""
        return spread(self.run_one, planned, shards, most=self.count, stop=self._stop)

    def run_one(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run one shard in a worker and wait for it; may be called from many threads."""
        start = time.monotonic()
        try:
            return self._result(self._submit(planned, shard)).logged()
        except self._dask.KilledWorker:
            error = DIED
        except CancelledError:
            error = "stopped" if self._stopped else "the cluster has lost it: is its scheduler gone?"
        except Exception as fault:  # the worker could not even begin, or the connection is lost
            log.exception("%s failed", shard.name)
            error = f"{type(fault).__name__}: {fault}"
        return failed(shard, error, time.monotonic() - start)

    def _submit(self, planned: Planned, shard: ShardRef) -> Any:
        with self._changing:
            if self._stopped:
                raise CancelledError
            how = {"key": f"{shard.name}-{uuid.uuid4().hex}", "resources": self._wanted(planned) or None}
            future = self._client.submit(run_here, run_shard, planned, shard, self._needs, pure=False, **how)
            self._under_way.add(future)
        return future

    def _wanted(self, planned: Planned) -> dict[str, float]:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        offered = {name for worker in workers.values() for name in worker["resources"]}
        wanted = {"GPU": 1.0} if loads_models(planned) else {}
        if planned.stage.name in self._config.memory_gb_of:
            wanted["MEMORY"] = self._config.memory_gb_of[planned.stage.name] * 1e9
        return {name: amount for name, amount in wanted.items() if name in offered}

    def _result(self, future: Any) -> Outcome:
        seen = time.monotonic()
        try:
            while True:
                with suppress(TimeoutError):
                    return future.result(timeout=LOOK_S)
                if self._client.nthreads():
                    seen = time.monotonic()
                elif time.monotonic() - seen > NOBODY_S:
                    future.cancel()
                    raise CancelledError
        finally:
            with self._changing:
                self._under_way.discard(future)

    def _stop(self) -> None:
        """Give up what waits; on a cluster of others a shard under way goes on to its end, and its part counts."""
        with self._changing:
            self._stopped = True
            with suppress(Exception):  # as above
                self._client.cancel(list(self._under_way), force=True)


def _start(count: int, gpus: int) -> Any:
    """Start a cluster on this machine, on loopback, without its web page; it ends with this process."""
    from distributed import Nanny, Scheduler, SpecCluster

    limit_threads()
    common = {"host": "127.0.0.1", "nthreads": 1, "memory_limit": 0, "dashboard": False, "silence_logs": logging.ERROR}
    own = ({"env": {PLACE: str(n)}, "resources": {"GPU": 1} if n < gpus else {}} for n in range(count))
    workers = {number: {"cls": Nanny, "options": {**common, **options}} for number, options in enumerate(own)}
    page = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # not drawn, and on no port that others may want
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, **page}}
    try:
        with deaf():  # Ctrl-C is this process' to hear
            return SpecCluster(workers=workers, scheduler=scheduler, silence_logs=cast("Any", logging.ERROR))
    except (RuntimeError, OSError, TimeoutError) as error:
        root: BaseException = error
        while root.__cause__:
            root = root.__cause__
        raise ConfigError(
            f"run.runner dask: its cluster does not start on this machine ({' '.join(str(root).split())}): see "
            "whether 127.0.0.1 may be listened at, or build with run.runner=processes"
        ) from error


def _is_death(record: logging.LogRecord) -> bool:
    """Let Dask say in one line that a worker has died, and otherwise only what is an error."""
    said = record.getMessage()
    if said.startswith("Worker process") and ("killed by" in said or "exited with" in said):
        record.msg, record.args = f"{said}: its shard is run again. {OUT_OF_MEMORY}", ()
        return True
    return record.levelno >= logging.ERROR


def _connect(where: Any, workers: int) -> Any:
    from distributed import Client

    try:
        client = Client(where, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"run.address {where}: no Dask scheduler answers ({error}): start one (`dask scheduler`), correct the "
            "address, or leave it empty for workers on this machine"
        ) from error
    try:
        client.wait_for_workers(workers, timeout=CONNECT_S)
    except TimeoutError as error:
        client.close()
        raise ConfigError(
            f"run.address {where}: the scheduler has no workers: start some (`dask worker {where} --nthreads 1`)"
        ) from error
    return client


@lru_cache(maxsize=1)
def code_mark() -> str:
    """Return the hash of the code that decides what rows are: some 2 MB, read once per process."""
    hashed = hashlib.sha256()
    for path in sorted(path for top in CODE for path in (ROOT / top).rglob("*") if path.suffix in ENDINGS):
        hashed.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return hashed.hexdigest()[:16]


def run_here(run: Run, planned: Planned, shard: ShardRef, needs: Needs) -> Outcome:
    """Run one shard in this process, one at a time; its faults become a record."""
    with _ALONE:
        limit_threads()
        os.environ.setdefault(PLACE, "0")
        if lack := needs.lack():
            return failed(shard, lack)
        if loads_models(planned) and [planned.stage.name] != _LOADED:  # a device holds the models of one stage
            if _LOADED:
                forget_models()
            _LOADED[:] = [planned.stage.name]
        return attempt_apart(run, planned, shard)


def forget_models() -> None:
    """Let go of what stages keep loaded: models are values of cached functions."""
    kept = ("pairwright.tasks.store.", "pairwright.tasks.serving.")
    for name, module in list(sys.modules.items()):
        if name.startswith("pairwright.tasks.") and not name.startswith(kept):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.empty_cache()
