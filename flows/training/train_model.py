"""Train on a dataset: open it, lock the run, prepare its files, fit.

The verb ``train``, a Prefect flow and each process of ``torchrun`` or ``accelerate launch`` call
it: the first process prepares, the others wait for it. The same command continues a stopped run.
"""

import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.flows.training.version_tables import VersionTables
from pairwright.flows.versions.version import Version, open_version
from pairwright.schemas.errors import ConfigError, PairwrightError, StoreError, TrainingError
from pairwright.schemas.section import say_changes
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.manifest import MANIFEST
from pairwright.tasks.store.snapshot import snapshot_numbers
from pairwright.tasks.store.takedowns import last_takedown
from pairwright.tasks.training.check_environment import count_launched
from pairwright.tasks.training.find_model import require_packages
from pairwright.tasks.training.freeze_rows import (
    check_frozen_parts,
    count_about,
    count_frozen,
    count_reasons,
    places_by_dataset,
)
from pairwright.tasks.training.mix_datasets import check_mixed
from pairwright.tasks.training.objective import FrozenData, Job, Start
from pairwright.tasks.training.objective_list import OBJECTIVES
from pairwright.tasks.training.report.write_run_page import write_run_page
from pairwright.tasks.training.runs import FREE, HELD_OUT, MetricsFile, Run, check_run_name

if TYPE_CHECKING:
    from pairwright.tasks.training.ranks import Watcher

log = logging.getLogger(__name__)
OTHER_NAME = "Give another name (--name, in Python name=)"
LAST_WORD = 30.0
"""Seconds that other processes wait for the first one's last lines, since a launcher ends all when
one ends."""


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Outcome of a training."""

    folder: str
    # whether there is a finished model; otherwise it was stopped, and the same command continues
    finished: bool
    was_finished: bool = False  # whether it was finished before, so that nothing was done
    step: int = 0
    steps: int = 0
    # last measurement on the held-out rows
    measured: dict[str, float] = field(default_factory=dict[str, float])
    page: str = ""
    # files of its answers to held-out rows, and of the dataset's texts about them, if it writes any
    answers: str = ""


@dataclass(frozen=True)
class Prepared:
    """State of a prepared run, broadcast from rank 0."""

    config: TrainConfig
    start: Path
    was_finished: bool


def train(
    version: Version,
    config: TrainConfig,
    *,
    name: str,
    is_chosen: bool = False,
    watcher: "Watcher | None" = None,
) -> Trained:
    """Train on a version of a dataset, or continue the run of that name.

    A begun run continues with its own version; if the user has chosen another one (``is_chosen``),
    it is refused.
    """
    # Waiting threads give up their core: beside other work, a small model is many times as fast.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # It warns about a missing CPU kernel of the Hub.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    require_packages()
    folder = version.folder
    if not folder.is_local:
        raise ConfigError(
            f"{folder.url}: a run is written to a local disk; copy the dataset, or mount it"
        )
    run = Run(Path(folder.path(f"runs/{check_run_name(name)}")))
    from pairwright.tasks.training.ranks import broadcast, join_ranks, leave_ranks, own_rank

    join_ranks()
    try:
        if own_rank():
            prepared: Any = broadcast(None)
            if not isinstance(prepared, Prepared):  # an error, which the first process reports
                time.sleep(LAST_WORD)
                raise SystemExit(1)
            return _fit(run, folder, prepared, watcher=None)
        with run.lock_run():
            try:
                prepared = prepare_run(version, config, run, is_chosen=is_chosen)
            except PairwrightError as error:
                broadcast(error)
                raise
            broadcast(prepared)
            return _fit(run, folder, prepared, watcher=watcher)
    finally:
        leave_ranks()


def prepare_run(
    version: Version, config: TrainConfig, run: Run, *, is_chosen: bool = False
) -> Prepared:
    """Check the settings, find the start model, and freeze the rows unless the run has begun.

    The run is locked meanwhile. A run without a checkpoint loses nothing and begins again; a
    refused one leaves nothing behind.
    """
    objective = OBJECTIVES[config.objective]
    objective.check(config)
    run.clean()
    if not run.is_finished and not run.steps():
        run.forget()
    if run.config():
        version = _own_version(run, version, is_chosen=is_chosen)
    tables = VersionTables(version)
    start = objective.resolve_start(config, run, tables)
    if config.start and not (start.folder / MANIFEST).exists():
        log.warning(
            "%s: has no %s, so damage to its files cannot be detected", start.folder, MANIFEST
        )
    prepared = Prepared(start.config, start.folder, run.is_finished)
    if run.config():
        _check_same(run, start.config)
        if not run.is_finished:
            run.check_files()
            check_mixed(run)
            check_frozen_parts(version.folder, run.rows)
            _check_removed(version.folder, run)
            run.check_latest()
            objective.restore(start.config, run, tables)
        return prepared
    try:
        frozen = objective.freeze(start.config, run, tables)
        _begin(run, start, frozen)
    except PairwrightError:
        if not run.steps():
            run.forget()
        raise
    return prepared


def _own_version(run: Run, version: Version, *, is_chosen: bool) -> Version:
    """Return the version that a run began with; if it is deleted, any: its rows are frozen."""
    own = run.data().get("snapshot")
    if own == (version.number or None):
        return version
    if is_chosen:
        raise ConfigError(
            f"{run.folder} was begun with version {own}, not {version.number}. {OTHER_NAME}"
        )
    if own in snapshot_numbers(version.folder):
        return open_version(version.folder, own)
    return version


def _check_removed(folder: Folder, run: Run) -> None:
    """Refuse to continue on rows about images that were removed from their dataset since."""
    for dataset, places in places_by_dataset(folder, run.rows).items():
        if not last_takedown(Folder(dataset)):
            continue
        with open_version(Folder(dataset)).resolved() as (build, _):
            removed = set(build.ledger.removed_keys)
        count = count_about(Folder(dataset), places, removed)
        if count:
            raise TrainingError(
                f"{run.folder}: {count:,} of its rows are about images that were removed on "
                "request. Train again with another --name, and delete this run"
            )


def _check_same(run: Run, config: TrainConfig) -> None:
    """Refuse other settings, or another number of processes: steps would have other rows."""
    before = run.config()
    assert before is not None
    old = before.model_dump(mode="json")
    new = config.model_dump(mode="json")
    changes = list(say_changes(old, new, free=FREE))
    processes = count_launched()
    old_processes = run.data().get("processes", 1)
    if processes != old_processes and not run.is_finished:
        changes.append(f"processes were {old_processes}, are {processes}")
    if changes:
        raise ConfigError(
            f"{run.folder} was begun with other settings: {'; '.join(changes)}. {OTHER_NAME}"
        )
    if before != config:
        run.write_config(config)


def _begin(run: Run, start: Start, frozen: FrozenData) -> None:
    """Write the record of the run's data, and last its settings."""
    splits = (start.config.data.split, start.config.data.eval_split)
    record = {
        **frozen.source,
        "start": start.record,
        "processes": count_launched(),
        "rows": {split: count_frozen(run.rows, split) for split in splits if split},
        "mix": frozen.mix,
        "refused": count_reasons(frozen.refused),
    }
    run.record_start(start.config, record, frozen.refused)


def _fit(run: Run, folder: Folder, prepared: Prepared, *, watcher: "Watcher | None") -> Trained:
    """Train, unless the run is finished; write its page in any case."""
    from pairwright.tasks.training.ranks import own_rank

    if prepared.was_finished:
        return _read_finished(run)
    objective = OBJECTIVES[prepared.config.objective]
    job = Job(
        run=run, config=prepared.config, dataset=folder, start=prepared.start, watcher=watcher
    )
    page = ""
    try:
        ended = objective.fit(job)
    finally:  # also for a failed run: the page shows why
        if not own_rank():
            page = _write_page(run)
    return Trained(
        folder=str(run.folder),
        finished=ended.finished,
        step=ended.step,
        steps=ended.steps,
        measured=ended.measured,
        page=page,
        answers=_find_answers(run) if ended.finished else "",
    )


def _read_finished(run: Run) -> Trained:
    """Return the outcome of a run that was finished before."""
    page = run.folder / "report" / "index.html"
    return Trained(
        folder=str(run.folder),
        finished=True,
        was_finished=True,
        measured=MetricsFile(run.metrics).read_until().last(HELD_OUT),
        page=str(page) if page.exists() else "",
    )


def _write_page(run: Run) -> str:
    try:
        return str(write_run_page(run.folder))
    except (ConfigError, StoreError) as error:
        log.warning("no page was written: %s", error)
        return ""


def _find_answers(run: Run) -> str:
    """Return the files of the answers and of their references; empty unless both have lines."""
    files = [run.answers / f"{name}.jsonl" for name in ("predictions", "references")]
    if all(file.exists() and file.stat().st_size for file in files):
        return " ".join(str(file) for file in files)
    return ""
