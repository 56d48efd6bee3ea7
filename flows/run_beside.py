"""Make a table beside a dataset's own: what a training needs of its rows (log-probabilities, vectors of texts).

Such a table is a stage's like any other: its fingerprint names the tables, the models and the settings that it was made
with, so that one that does not fit is another table; what is there already is not made again, and what was killed goes
on. It belongs to no version of the dataset; it is made of the newest one, whatever a build does meanwhile.
"""

import logging
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from pairwright.flows.find_workers import workers_of
from pairwright.flows.open_version import find_version, settle_version
from pairwright.flows.progress import watching
from pairwright.flows.run_build import Request, run_stage
from pairwright.prompts import load
from pairwright.schemas.errors import ConfigError, TrainingError
from pairwright.schemas.section import Section
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import ShardFailed
from pairwright.tasks.store.stage import Planned, Stage, fingerprint

log = logging.getLogger(__name__)


def run_beside(folder: Folder, stage: Stage, config: Section, *, after: Sequence[Planned] = ()) -> Planned:
    """Do what a stage owes, and return it planned: its table is whole then.

    Args:
        folder: the dataset.
        stage: reads and uses the dataset's tables, or those of ``after``.
        config: its settings; its models are pinned here.
        after: other tables beside the dataset's, as this function returned them.

    Raises:
        ConfigError: the dataset has not the table that the stage reads.
        ModelError: a model is not on this machine.
        TrainingError: some of it could not be made; the same command goes on with it.
    """
    version = find_version(folder)
    planned = _plan(stage, stage.pin(config) if stage.pin else config, [*version.planned, *after])
    with version.opened([*after, planned]) as build:
        settle_version(build, version)
        for one in after:
            build.settle(one)
        _run(build, planned, version.request)
    return planned


def plan_beside(folder: Folder, stage: Stage, config: Section, *, after: Sequence[Planned] = ()) -> Planned:
    """Return a stage planned as ``run_beside`` does it, which is not run: its table may not be there, or not be whole.

    Raises:
        ConfigError: the dataset has not the table that the stage reads.
        ModelError: a model is not on this machine.
    """
    return _plan(stage, stage.pin(config) if stage.pin else config, [*find_version(folder).planned, *after])


@contextmanager
def settled_beside(folder: Folder, beside: Sequence[Planned]) -> Generator[Build]:
    """Open a dataset's newest version with tables beside its own, every one counted, without running anything."""
    version = find_version(folder)
    with version.opened(beside) as build:
        settle_version(build, version)
        for one in beside:
            build.settle(one)
        yield build


def _plan(stage: Stage, config: Any, others: Sequence[Planned]) -> Planned:
    """Return a stage as it runs beside the others."""
    fitted = stage.fit(stage, config) if stage.fit else stage
    tables = {other.stage.name: other.fingerprint for other in others}
    if missing := fitted.tables - tables.keys():
        raise ConfigError(f"{stage.name}: is made of {', '.join(sorted(missing))}, which this dataset has not")
    prompts = {name: load(name).sha256 for name in fitted.prompts}
    return Planned(stage=fitted, config=config, fingerprint=fingerprint(fitted, config, prompts=prompts, tables=tables))


def _run(build: Build, planned: Planned, request: Request) -> None:
    start = time.monotonic()
    with watching() as watcher, workers_of(request) as workers:
        with build.locked(planned, watcher.waiting):
            failures = run_stage(build, planned, request, run_shards=workers.run, watcher=watcher)
        counts = build.settle(planned)
        watcher.end(planned, counts, time.monotonic() - start)
    _check(planned, counts, failures)


def _check(planned: Planned, counts: Counts, failures: Sequence[ShardFailed]) -> None:
    """Refuse to go on with a table that is not whole."""
    owed = counts.failed + counts.pending
    if not owed and not failures:
        return
    why = failures[0].error if failures else next(iter(counts.reasons), "not known")
    raise TrainingError(
        f"{planned.stage.name}: {owed:,} of {counts.of:,} rows could not be made: {why}. What is made is kept; the "
        "same command goes on with it"
    )
