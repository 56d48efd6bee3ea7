"""Run shards in the workers of a Dask cluster.

An existing one, or one started on this machine for the build. Workers run one shard at a time and
keep loaded models. Where some declare a GPU ("--resources GPU=1"), these get the stages that load
models. A worker with other code, or without access to a folder of this machine's disk, fails its
shards with a message. When a worker dies, its shard is run again elsewhere.
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
from pairwright.tasks.store.executor import (
    DIED,
    OUT_OF_MEMORY,
    NoWatcher,
    Outcome,
    RunShard,
    RunStages,
    StageWatcher,
    attempt_apart,
    count_own_processes,
    failed_outcome,
    run_in_threads,
)
from pairwright.tasks.store.shard import ShardRef, run_shard
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)
NANNY = logging.getLogger("distributed.nanny")
INSTALL = "python -m pip install -c constraints.txt -e '.[dask]'"
CONNECT_S = 30  # maximum wait for the scheduler, and for workers
ROOT = Path(__file__).parent.parent.parent
CODE = ("prompts", "schemas", "tasks")
ENDINGS = (".py", ".j2")
LOST = "the cluster lost the shard: check that its scheduler still runs"
_ALONE = threading.Lock()
"""Lock of the running shard: a worker with several threads runs one at a time, since its models
hold the device."""
_LOADED: list[str] = []  # stage of the models that this process has loaded, if any


class DaskWorkers:
    """Workers of a cluster; use as a context manager."""

    def __init__(
        self,
        config: RunConfig,
        *,
        gpus: int = 0,
        paths: Iterable[str] = (),
        watcher: StageWatcher | None = None,
    ) -> None:
        """Connect to the cluster, or start one on this machine with ``gpus``.

        Its workers must access the paths.
        """
        try:
            import distributed
        except ImportError as error:
            raise ConfigError(
                f"run.runner dask: Dask is not installed ({error}): {INSTALL}"
            ) from error
        self.watcher: StageWatcher = watcher or NoWatcher()
        self._dask = distributed
        self._config = config
        logging.getLogger("distributed").setLevel(logging.ERROR)
        NANNY.setLevel(logging.INFO)
        NANNY.addFilter(_is_death)
        paths = tuple(dict.fromkeys(str(Path(path).absolute()) for path in paths))
        code = code_mark() if config.address else ""
        self._requirements = {"code": code, "paths": paths}
        self._started = 0
        self._cluster: Any = None
        if not config.address:
            self._started = config.workers or pool.count_cores()
            self._cluster = _start(self._started, gpus)
        self._client = _connect(config.address or self._cluster, self._started or 1)
        self._running: set[Any] = set()
        self._changing = threading.Lock()
        self._stopped = False

    @property
    def count(self) -> int:
        """Return the number of shards that run at once."""
        if self._started:  # a dead worker is being replaced
            return self._started
        available = len(self._client.nthreads())
        return max(1, min(available, self._config.workers or available))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        NANNY.setLevel(logging.ERROR)  # workers that end with the build have not died
        if kind:
            self.stop()
        with suppress(Exception):  # the scheduler may be gone
            self._client.close(timeout=5)
        if self._cluster is not None:
            self._cluster.close(timeout=10)

    def submit(self, planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        """Yield the outcome of each shard as it ends, in any order."""
        return run_in_threads(self, planned, shards)

    def run_one(self, planned: Planned, shard: ShardRef) -> Outcome:
        """Run one shard in a worker and wait for it; may be called from many threads."""
        start = time.monotonic()
        try:
            future = self._send(planned, shard)
            try:
                return future.result().replay_logs()
            finally:
                with self._changing:
                    self._running.discard(future)
        except self._dask.KilledWorker:
            error = DIED
        except CancelledError:
            error = "stopped" if self._stopped else LOST
        except Exception as fault:  # the worker could not start it, or the connection is lost
            log.exception("%s failed", shard.name)
            error = f"{type(fault).__name__}: {fault}"
        return failed_outcome(shard, error, time.monotonic() - start)

    def run_step(self, step: str, run_stages: RunStages) -> None:
        """Run the stages of a step."""
        del step
        run_stages()

    def stop(self) -> None:
        """Cancel waiting shards.

        On a shared cluster a running shard continues to its end, and its part counts.
        """
        with self._changing:
            self._stopped = True
            with suppress(Exception):  # the scheduler may be gone
                self._client.cancel(list(self._running), force=True)

    def _send(self, planned: Planned, shard: ShardRef) -> Any:
        """Send a shard to the cluster, to a worker with a GPU if its stage loads models.

        Return its future.
        """
        with self._changing:
            if self._stopped:
                raise CancelledError
            resources = {"GPU": 1.0} if self._needs_gpu(planned) else None
            future = self._client.submit(
                run_here,
                run_shard,
                planned,
                shard,
                pure=False,
                key=f"{shard.name}-{uuid.uuid4().hex}",
                resources=resources,
                **self._requirements,
            )
            self._running.add(future)
            return future

    def _needs_gpu(self, planned: Planned) -> bool:
        """Return whether a stage loads models, and some worker declares a GPU."""
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        if count_own_processes(planned) is None:
            return False
        return any("GPU" in worker["resources"] for worker in workers.values())


def _start(count: int, gpus: int) -> Any:
    """Start a cluster on this machine, on loopback, without the dashboard.

    It ends with this process.
    """
    from distributed import Nanny, Scheduler, SpecCluster

    pool.limit_threads()
    workers: dict[int, Any] = {}
    for number in range(count):
        options: dict[str, Any] = {
            "host": "127.0.0.1",
            "nthreads": 1,
            "memory_limit": 0,
            "dashboard": False,
            "silence_logs": logging.ERROR,
            "env": {pool.PLACE: str(number)},
            "resources": {"GPU": 1} if number < gpus else {},
        }
        workers[number] = {"cls": Nanny, "options": options}
    scheduler_options = {
        "host": "127.0.0.1",
        "port": 0,
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",  # no page, no fixed port
    }
    scheduler = {"cls": Scheduler, "options": scheduler_options}
    try:
        with pool.block_interrupts():  # Ctrl-C is for this process only
            return SpecCluster(
                workers=workers, scheduler=scheduler, silence_logs=cast("Any", logging.ERROR)
            )
    except (RuntimeError, OSError, TimeoutError) as error:
        root: BaseException = error
        while root.__cause__:
            root = root.__cause__
        message = " ".join(str(root).split())
        raise ConfigError(f"run.runner dask: its cluster does not start: {message}") from error


def _is_death(record: logging.LogRecord) -> bool:
    """Filter Dask's log: one line per dead worker, otherwise errors only."""
    message = record.getMessage()
    died = "killed by" in message or "exited with" in message
    if message.startswith("Worker process") and died:
        record.msg = f"{message}: its shard is run again. {OUT_OF_MEMORY}"
        record.args = ()
        return True
    return record.levelno >= logging.ERROR


def _connect(address: Any, workers: int) -> Any:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"run.address {address}: no Dask scheduler answers ({error}): start one (`dask "
            "scheduler`), correct the address, or leave it empty for workers on this machine"
        ) from error
    try:
        client.wait_for_workers(workers, timeout=CONNECT_S)
    except TimeoutError as error:
        client.close()
        raise ConfigError(
            f"run.address {address}: the scheduler has no workers: start some (`dask worker "
            f"{address} --nthreads 1`)"
        ) from error
    return client


@lru_cache(maxsize=1)
def code_mark() -> str:
    """Return the hash of the code that determines rows: some 2 MB, read once per process."""
    paths: list[Path] = []
    for top in CODE:
        paths += [path for path in (ROOT / top).rglob("*") if path.suffix in ENDINGS]
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def run_here(
    run: RunShard, planned: Planned, shard: ShardRef, *, code: str = "", paths: Sequence[str] = ()
) -> Outcome:
    """Run one shard in this process, one at a time; an error becomes a record.

    So that its rows equal those made on the building machine, this machine's code must have the
    hash ``code`` (empty: it is the same machine), and ``paths``, which lie on a shared disk, must
    exist.
    """
    with _ALONE:
        pool.limit_threads()
        os.environ.setdefault(pool.PLACE, "0")
        if problem := _find_problem(code, paths):
            return failed_outcome(shard, f"worker on {socket.gethostname()}: {problem}")
        if count_own_processes(planned) is not None:
            _hold_models_of(planned.stage.name)
        return attempt_apart(run, planned, shard)


def _find_problem(code: str, paths: Sequence[str]) -> str:
    """Return why this machine's rows could differ from the building machine's.

    Empty: they cannot.
    """
    if code and code != code_mark():
        return (
            "has another version of Pairwright's code than the building machine: install the same "
            "commit there, and restart the worker"
        )
    for path in paths:
        if not Path(path).exists():
            return (
                f"cannot access {path}: put it on a disk that all machines share, or on an object "
                "store"
            )
    return ""


def _hold_models_of(stage: str) -> None:
    """Release the models of another stage: a device holds those of one."""
    if [*_LOADED] == [stage]:
        return
    if _LOADED:
        forget_models()
    _LOADED[:] = [stage]


def forget_models() -> None:
    """Release the models that stages keep loaded in cached functions."""
    kept = ("pairwright.tasks.store.", "pairwright.tasks.serving.")
    for name, module in list(sys.modules.items()):
        if not name.startswith("pairwright.tasks.") or name.startswith(kept):
            continue
        for value in list(vars(module).values()):
            clear = getattr(value, "cache_clear", None)
            if callable(clear):
                clear()
    gc.collect()
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.empty_cache()
