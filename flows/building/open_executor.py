"""Open the executor of a build.

Worker processes of this machine or a Dask cluster, and its progress.
"""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pairwright.flows.building.find_models import served_models
from pairwright.flows.building.progress import metered, watching
from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.store.executor import Executor, StageWatcher
from pairwright.tasks.store.on_dask import DaskWorkers
from pairwright.tasks.store.pool import Workers

OpenExecutor = Callable[[Version], AbstractContextManager[Executor]]
"""Function that opens the executor of a version's build."""


@contextmanager
def open_executor(version: Version) -> Generator[Executor]:
    """Yield the workers of a version's profile; bars or lines show their progress."""
    logger = logging.getLogger("pairwright")
    if not logger.hasHandlers():  # the program that imports Pairwright has not configured logging
        logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
        logger.setLevel(logging.INFO)
    port = version.profile.run.metrics_port
    with (
        watching() as shown,
        metered(shown, port) as watcher,
        open_workers(version, watcher) as workers,
    ):
        yield workers


@contextmanager
def open_workers(version: Version, watcher: StageWatcher) -> Generator[Executor]:
    """Yield the workers of a version's profile, which end afterwards.

    Those of an existing cluster stay.
    """
    run = version.profile.run
    if run.runner == "processes":
        with Workers(run.workers, watcher=watcher) as workers:
            yield workers
        return
    if run.address:
        _check_endpoints(version)
    gpus = 0 if run.address else count_gpus()
    with DaskWorkers(run, gpus=gpus, paths=_local_paths(version), watcher=watcher) as workers:
        yield workers


def _check_endpoints(version: Version) -> None:
    """Refuse a served model that starts here, where other machines do not look."""
    for field, chat in served_models(version.profile, version.pipeline.until).items():
        if chat.launch.enabled:
            raise ConfigError(
                f"{field}.launch starts vLLM on this machine, where workers on other machines do "
                f"not look for it: start it yourself, set {field}.launch.enabled to false and name "
                f"its addresses in {field}.endpoint"
            )


def _local_paths(version: Version) -> list[str]:
    """Return the paths of this machine that workers read and write."""
    profile = version.profile
    paths = [profile.reading.images, profile.reading.golden]
    for source in (*profile.all_sources, *profile.exclude.sources):
        paths.append(source.partition(":")[2])
    existing = [path for path in paths if path and "://" not in path and Path(path).exists()]
    if version.folder.is_local:
        existing.append(version.folder.path(""))
    return existing
