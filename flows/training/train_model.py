"""Train on a dataset: settle its tables, freeze the rows, prepare the objective, and train.

The verb ``train``, a Prefect flow and each process of ``torchrun`` or ``accelerate launch`` call
it: the first process prepares, the others wait for it. The same command continues a stopped run.
"""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.flows.training import prepare_training as inputs
from pairwright.flows.training.make_train_config import count_processes, find_run, find_start
from pairwright.flows.versions.show_status import say_reasons
from pairwright.flows.versions.version import Version, open_version
from pairwright.schemas.errors import ConfigError, PairwrightError, StoreError
from pairwright.schemas.section import say_changes
from pairwright.schemas.training import NAMC, TrainConfig
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.manifest import MANIFEST
from pairwright.tasks.store.snapshot import describe_version, snapshot_numbers
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training.estimate_memory import check_memory
from pairwright.tasks.training.find_model import require_bits, require_packages
from pairwright.tasks.training.freeze_rows import (
    check_parts,
    count_reasons,
    count_rows,
    find_held_out,
    freeze_rows,
)
from pairwright.tasks.training.losses import needs_of
from pairwright.tasks.training.report.write_run_page import write_run_page
from pairwright.tasks.training.runs import FREE, HELD_OUT, MetricsFile, Run, check_name

if TYPE_CHECKING:
    from pairwright.tasks.training.ranks import Watcher

log = logging.getLogger(__name__)
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
    measured: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # last measurement on the held-out rows
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
    logging.getLogger("bitsandbytes").setLevel(
        logging.ERROR
    )  # it warns about a missing CPU kernel of the Hub
    require_packages()
    folder = version.folder
    if not folder.is_local:
        raise ConfigError(
            f"{folder.url}: a run is written to a local disk; copy the dataset, or mount it"
        )
    run = Run(Path(folder.path(f"runs/{check_name(name)}")))
    from pairwright.tasks.training.ranks import join_ranks, leave_ranks, own_rank, spread

    join_ranks()
    try:
        if own_rank():
            prepared: Any = spread(None)
            if not isinstance(prepared, Prepared):
                time.sleep(LAST_WORD)
                raise SystemExit(1)
            return _train(run, folder, prepared, watcher=None)
        with run.locked():
            try:
                prepared = prepare(version, config, run, is_chosen=is_chosen)
            except PairwrightError as error:
                spread(error)
                raise
            spread(prepared)
            return _train(run, folder, prepared, watcher=watcher)
    finally:
        leave_ranks()


def _train(run: Run, folder: Folder, prepared: Prepared, *, watcher: "Watcher | None") -> Trained:
    from pairwright.tasks.training.ranks import own_rank

    if prepared.was_finished:
        page, measured = (
            run.folder / "report" / "index.html",
            MetricsFile(run.metrics).resume().last(HELD_OUT),
        )
        shown = str(page) if page.exists() else ""
        return Trained(
            folder=str(run.folder), finished=True, was_finished=True, measured=measured, page=shown
        )
    from pairwright.tasks.training.train_model import Job, fitting

    if prepared.config.objective == NAMC:
        from pairwright.tasks.training.namc.train_namc import train_namc as fit
    else:
        from pairwright.tasks.training.train_model import train_model as fit

    job = Job(
        run=run, config=prepared.config, dataset=folder, start=prepared.start, watcher=watcher
    )
    page = ""
    try:
        with fitting(prepared.config, run):
            ended = fit(job)
    finally:  # also for a failed run: the page shows why
        try:
            page = "" if own_rank() else str(write_run_page(run.folder))
        except (ConfigError, StoreError) as error:
            log.warning("no page was written: %s", error)
    files = (run.answers / f"{name}.jsonl" for name in ("predictions", "references"))
    answers = [str(file) for file in files if file.exists() and file.stat().st_size]
    return Trained(
        folder=str(run.folder),
        finished=ended.finished,
        step=ended.step,
        steps=ended.steps,
        measured=ended.measured,
        page=page,
        answers=" ".join(answers) if ended.finished and len(answers) == 2 else "",
    )


def prepare(
    version: Version, config: TrainConfig, run: Run, *, is_chosen: bool = False
) -> Prepared:
    """Prepare everything that a run needs, and begin it unless it has begun; its lock is held meanwhile.

    A run without a checkpoint loses nothing and begins again; a refused one leaves nothing behind.
    """
    from pairwright.tasks.training.train_model import check_launcher, check_libraries

    check_launcher(config)
    if config.objective == NAMC:
        from pairwright.tasks.training.namc.train_namc import check_settings

        check_settings(config)
    else:
        check_libraries(config)
        if config.model.load_in_4bit:
            require_bits("model.load_in_4bit")
    run.clean()
    if not run.is_finished and not run.steps():
        run.forget()
    folder = version.folder
    if run.config():
        version = _own_version(run, version, is_chosen=is_chosen)
    if config.objective == NAMC:
        found, place = None, find_run(folder, config.start).model if config.start else Path()
        config, start = (
            inputs.pin_models(config, start=place),
            {"folder": str(place)} if config.start else {},
        )
    else:
        found, config = find_start(version, config, run)
        place, start = found.folder, {"folder": str(found.folder), "revision": found.revision}
        if count_gpus() and not run.is_finished:
            check_memory(place, config)
    if config.start and not (place / MANIFEST).exists():
        log.warning("%s: has no %s, so damage to its files cannot be detected", place, MANIFEST)
    prepared = Prepared(config, place, run.is_finished)
    if run.config():
        _check_same(run, config)
        if run.is_finished:
            return prepared
        inputs.check_mixed(run)
        check_parts(folder, run.rows)
        run.check_latest()
    begun = run.config() is not None
    beside = [] if begun else inputs.tell_table(version, config)
    try:
        if not begun:
            _begin(version, config, run, beside, start=start)
        if found is None:
            inputs.have_places(version, config, run)
    except PairwrightError:
        if not run.steps():
            run.forget()
        raise
    return prepared


def _own_version(run: Run, version: Version, *, is_chosen: bool) -> Version:
    """Return the version that a run began with; if it is deleted, any will do, since its rows are frozen."""
    began = run.data().get("snapshot")
    if began == (version.number or None):
        return version
    if is_chosen:
        raise ConfigError(
            f"{run.folder} was begun with version {began}, not {version.number}. Give another --name"
        )
    if began in snapshot_numbers(version.folder):
        return open_version(version.folder, began)
    return version


def _check_same(run: Run, config: TrainConfig) -> None:
    """Refuse to continue with other settings, or another number of processes: steps would have other rows."""
    before = run.config()
    assert before is not None
    changed = list(
        say_changes(before.model_dump(mode="json"), config.model_dump(mode="json"), free=FREE)
    )
    processes, known = count_processes(), run.data().get("processes", 1)
    if processes != known and not run.is_finished:
        changed.append(f"processes were {known}, are {processes}")
    if changed:
        raise ConfigError(
            f"{run.folder} was begun with other settings: {'; '.join(changed)}. Give another --name"
        )
    if before != config:
        run.write_config(config)


def _begin(
    version: Version,
    config: TrainConfig,
    run: Run,
    beside: Sequence[Planned],
    *,
    start: dict[str, Any],
) -> None:
    data, folder = config.data, version.folder
    with inputs.opened_rows(version, config, beside) as (build, planned, decisions):
        needs, splits = needs_of(config), (data.split, data.eval_split)
        refused, decided = freeze_rows(
            build, planned, run.rows, needs=needs, splits=splits, decisions=decisions
        )
        held_out = find_held_out(build, planned, data.split) if data.mix else frozenset[str]()
        about = {
            "dataset": folder.url,
            "snapshot": version.number or None,
            "version": describe_version(build),
            "table": planned.table,
            "decided": dict(sorted(decided.items())),
            "start": start,
            "processes": count_processes(),
        }
    if not count_rows(run.rows, data.split):
        why = (
            f"all of its rows are refused: {say_reasons(count_reasons(refused))}"
            if refused
            else "it has none"
        )
        raise ConfigError(f"{folder.url}: no row of split {data.split!r} can be trained on: {why}")
    if data.eval_split and not count_rows(run.rows, data.eval_split):
        log.warning(
            "split %r (data.eval_split) is empty: nothing is measured on held-out rows",
            data.eval_split,
        )
    if config.objective == "adpo":
        inputs.prepare_retriever(version, config, run.folder)
    mixed, strange = inputs.mix_in(config, run, replace(needs, held_out=held_out, accepted=""))
    rows = {split: count_rows(run.rows, split) for split in (data.split, data.eval_split) if split}
    refused = [*refused, *strange]
    run.begin(
        config, {**about, "rows": rows, "mix": mixed, "refused": count_reasons(refused)}, refused
    )
