"""Run shards in the workers of a Dask cluster: an existing one, or one started on this machine for the build.

Workers run one shard at a time and keep loaded models. Where some declare a GPU ("--resources
GPU=1"), these get the stages that load models. A worker with other code, or without access to a
folder of this machine's disk, fails its shards with a message. When a worker dies, its shard is run
again elsewhere.
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
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, cast

from pairwright.schemas.config import RunConfig
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store import pool
from pairwright.tasks.store.shard import ShardRef, run_shard
from pairwright.tasks.store.stage import Planned

log, NANNY = logging.getLogger(__name__), logging.getLogger("distributed.nanny")
INSTALL = "python -m pip install -c constraints.txt -e '.[dask]'"
CONNECT_S = 30  # maximum wait for the scheduler, and for workers
ROOT = Path(__file__).parent.parent.parent
CODE = ("prompts", "schemas", "tasks")
ENDINGS = (".py", ".j2")
_ALONE = threading.Lock()
"""Lock of the running shard: a worker with several threads runs one at a time, since its models
hold the device."""
_LOADED: list[str] = []  # stage of the models that this process has loaded, if any


class DaskWorkers:
    """Workers of a cluster; use as a context manager."""

    def __init__(self, config: RunConfig, *, gpus: int = 0, paths: Iterable[str] = ()) -> None:
        """Connect to the cluster, or start one on this machine with ``gpus``; its workers must access the paths."""
        try:
            import distributed
        except ImportError as error:
            raise ConfigError(
                f"run.runner dask: Dask is not installed ({error}): {INSTALL}"
            ) from error
        self._dask, self._config = distributed, config
        logging.getLogger("distributed").setLevel(logging.ERROR)
        NANNY.setLevel(logging.INFO)
        NANNY.addFilter(_is_death)
        paths = tuple(dict.fromkeys(str(Path(path).absolute()) for path in paths))
        self._needs = {"code": code_mark() if config.address else "", "paths": paths}
        self._started = 0 if config.address else config.workers or pool.count_cores()
        self._cluster: Any = _start(self._started, gpus) if self._started else None
        self._client = _connect(config.address or self._cluster, self._started or 1)
        self._under_way: set[Any] = set()
        self._changing = threading.Lock()
        self._stopped = False

    @property
    def count(self) -> int:
        """Return the number of shards that run at once."""
        if self._started:  # a dead worker is being replaced
            return self._started
        there = len(self._client.nthreads())
        return max(1, min(there, self._config.workers or there))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        NANNY.setLevel(logging.ERROR)  # workers that end with the build have not died
        if kind:
            self._stop()
        with suppress(Exception):  # the scheduler may be gone
            self._client.close(timeout=5)
        if self._cluster is not None:
            self._cluster.close(timeout=10)

    def run(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[pool.Outcome]:
        """Yield the outcome of each shard as it ends, in any order."""
        return pool.spread(self.run_one, planned, shards, most=self.count, stop=self._stop)

    def run_one(self, planned: Planned, shard: ShardRef) -> pool.Outcome:
        """Run one shard in a worker and wait for it; may be called from many threads."""
        start = time.monotonic()
        try:
            with self._changing:
                if self._stopped:
                    raise CancelledError
                workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
                on_gpu = pool.count_own(planned) is not None and any(
                    "GPU" in one["resources"] for one in workers.values()
                )
                how = {
                    "key": f"{shard.name}-{uuid.uuid4().hex}",
                    "resources": {"GPU": 1.0} if on_gpu else None,
                }
                future = self._client.submit(
                    run_here, run_shard, planned, shard, pure=False, **self._needs, **how
                )
                self._under_way.add(future)
            try:
                return future.result().logged()
            finally:
                with self._changing:
                    self._under_way.discard(future)
        except self._dask.KilledWorker:
            error = pool.DIED
        except CancelledError:
            error = (
                "stopped"
                if self._stopped
                else "the cluster lost the shard: check that its scheduler still runs"
            )
        except Exception as fault:  # the worker could not start it, or the connection is lost
            log.exception("%s failed", shard.name)
            error = f"{type(fault).__name__}: {fault}"
        return pool.failed(shard, error, time.monotonic() - start)

    def _stop(self) -> None:
        """Cancel waiting shards; on a shared cluster a running shard continues to its end, and its part counts."""
        with self._changing:
            self._stopped = True
            with suppress(Exception):  # as above
                self._client.cancel(list(self._under_way), force=True)


Runner = (
    pool.Workers | DaskWorkers
)  # runner of shards, in processes of this machine or in the workers of a cluster


def _start(count: int, gpus: int) -> Any:
    """Start a cluster on this machine, on loopback, without the dashboard; it ends with this process."""
    from distributed import Nanny, Scheduler, SpecCluster

    pool.limit_threads()
    common = {
        "host": "127.0.0.1",
        "nthreads": 1,
        "memory_limit": 0,
        "dashboard": False,
        "silence_logs": logging.ERROR,
    }
    own = (
        {"env": {pool.PLACE: str(n)}, "resources": {"GPU": 1} if n < gpus else {}}
        for n in range(count)
    )
    workers = {
        number: {"cls": Nanny, "options": {**common, **options}}
        for number, options in enumerate(own)
    }
    page = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}  # no page, no fixed port
    scheduler = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, **page}}
    try:
        with pool.deaf():  # Ctrl-C is for this process only
            return SpecCluster(
                workers=workers, scheduler=scheduler, silence_logs=cast("Any", logging.ERROR)
            )
    except (RuntimeError, OSError, TimeoutError) as error:
        root: BaseException = error
        while root.__cause__:
            root = root.__cause__
        raise ConfigError(
            f"run.runner dask: its cluster does not start: {' '.join(str(root).split())}"
        ) from error


def _is_death(record: logging.LogRecord) -> bool:
    """Filter Dask's log: one line per dead worker, otherwise errors only."""
    said = record.getMessage()
    if said.startswith("Worker process") and ("killed by" in said or "exited with" in said):
        record.msg, record.args = f"{said}: its shard is run again. {pool.OUT_OF_MEMORY}", ()
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
    """Return the hash of the code that determines rows: some 2 MB, read once per process."""
    hashed = hashlib.sha256()
    for path in sorted(
        path for top in CODE for path in (ROOT / top).rglob("*") if path.suffix in ENDINGS
    ):
        hashed.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return hashed.hexdigest()[:16]


def run_here(
    run: pool.Run, planned: Planned, shard: ShardRef, *, code: str = "", paths: Sequence[str] = ()
) -> pool.Outcome:
    """Run one shard in this process, one at a time; an error becomes a record.

    So that its rows equal those made on the building machine, this machine's code must have the
    hash ``code`` (empty: it is the same machine), and ``paths``, which lie on a shared disk, must
    exist.
    """
    with _ALONE:
        pool.limit_threads()
        os.environ.setdefault(pool.PLACE, "0")
        host = f"worker on {socket.gethostname()}"
        if code and code != code_mark():
            other = "has another version of Pairwright's code than the building machine"
            return pool.failed(
                shard, f"{host}: {other}: install the same commit there, and restart the worker"
            )
        if missing := next((path for path in paths if not Path(path).exists()), ""):
            where = "put it on a disk that all machines share, or on an object store"
            return pool.failed(shard, f"{host}: cannot access {missing}: {where}")
        if (
            pool.count_own(planned) is not None and [planned.stage.name] != _LOADED
        ):  # a device holds one stage's models
            if _LOADED:
                forget_models()
            _LOADED[:] = [planned.stage.name]
        return pool.attempt_apart(run, planned, shard)


def forget_models() -> None:
    """Release the models that stages keep loaded in cached functions."""
    kept = ("pairwright.tasks.store.", "pairwright.tasks.serving.")
    for name, module in list(sys.modules.items()):
        if name.startswith("pairwright.tasks.") and not name.startswith(kept):
            for value in list(vars(module).values()):
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
        torch.cuda.empty_cache()
