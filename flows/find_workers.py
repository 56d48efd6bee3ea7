"""Choose the workers that a build's shards run in (processes here, a Dask cluster), and who shows its progress."""

import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from pairwright.flows.find_models import served_models
from pairwright.flows.progress import watching
from pairwright.flows.run_build import Request, Work
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.store.on_dask import DaskWorkers
from pairwright.tasks.store.pool import Runner, Workers


@contextmanager
def workers_of(request: Request) -> Generator[Runner]:
    """Give the workers that the request's profile names; they end with it, those of a standing cluster stay."""
    run = request.profile.run
    if run.runner == "processes":
        with Workers(run.workers) as workers:
            yield workers
        return
    for field, chat in served_models(request.profile, request.until).items() if run.address else ():
        if chat.launch.enabled:
            raise ConfigError(
                f"{field}.launch starts vLLM on this machine, where workers on other machines do not look for "
                f"it: start it yourself, set {field}.launch.enabled to false and name its addresses in {field}.endpoint"
            )
    with DaskWorkers(run, gpus=0 if run.address else count_gpus(), paths=_paths(request)) as workers:
        yield workers


def _paths(request: Request) -> Iterator[str]:
    profile = request.profile
    if request.folder.is_local:
        yield request.folder.path("")
    sources = [profile.source, *profile.exclude.sources]
    named = [profile.reading.images, *(source.partition(":")[2] for source in sources)]
    yield from (path for path in named if path and "://" not in path and Path(path).exists())


@contextmanager
def working(request: Request) -> Generator[Work]:
    """Give what runs a build's shards in the workers that its profile names, and who shows how it goes."""
    with _heard(), watching() as watcher, workers_of(request) as workers:
        yield Work(run_shards=workers.run, watcher=watcher)


@contextmanager
def _heard() -> Generator[None]:
    """Show our log on standard error meanwhile, where a program that imports Pairwright has set up none."""
    log = logging.getLogger("pairwright")
    if log.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), log.level
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
