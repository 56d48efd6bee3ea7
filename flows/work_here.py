"""Give a build its workers, and who shows its progress: bars on a terminal, plain lines elsewhere."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from pairwright.flows.find_workers import workers_of
from pairwright.flows.progress import watching
from pairwright.flows.run_build import Request, Work


@contextmanager
def working(request: Request) -> Generator[Work]:
    """Give what runs a build's shards in the workers that its profile names, and who shows how it goes.

    Raises:
        ConfigError: the profile names a cluster that there is not.
    """
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
