"""Train on a dataset: settle its tables, freeze the rows, have what the objective needs, and train.

The verb ``train``, a Prefect flow and each process of ``torchrun`` or ``accelerate launch`` come in here. A run that
was stopped goes on with the same command.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from flows.find_start import TABLE, Start, find_start
from flows.run_build import settled
from schemas.errors import ConfigError
from schemas.training import TrainConfig
from tasks.store.files import Folder
from tasks.store.snapshot import describe_version, latest_snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """Say how a training ended."""

    folder: str
    measured: dict[str, float]
    """On the held-out rows."""


def make_config(objective: str, settings: Sequence[str], **named: str) -> TrainConfig:
    """Return the settings of a run.

    Args:
        objective: "sft", "dpo", "mdpo", "adavip" or "adpo".
        settings: ``section.field=value``.
        named: ``model`` and ``start``, where they are given.

    Raises:
        ConfigError: a setting is not allowed.
    """
    values: dict[str, Any] = {"objective": objective}
    for setting in [*(f"{name}={value}" for name, value in named.items() if value), *settings]:
        field, equals, text = setting.partition("=")
        *sections, last = field.strip().split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
        if not equals or not isinstance(inner, dict):
            raise ConfigError(f"--set {setting}: must look like section.field=value")
        inner[last] = yaml.safe_load(text) if text.strip() else ""
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']} (given: {one['input']!r})" for one in error.errors()]
        raise ConfigError("\n".join(lines)) from error


def train(dataset: str, config: TrainConfig, *, name: str) -> Trained:
    """Train on a dataset, or go on with the run of that name.

    Raises:
        ConfigError: there is nothing to train on, or the run has other settings.
        ModelError: the model is not on this machine.
        TrainingError: the training cannot go on.
    """
    from tasks.training.find_model import require_packages

    require_packages()
    from tasks.training.runs import Run
    from tasks.training.train_model import Job, train_model

    folder = Folder(dataset)
    start = find_start(folder, config, Run(Path(folder.path(f"runs/{name}"))))
    run = begin_run(folder, start, name=name)
    job = Job(run=run, config=start.config, dataset=folder, start=start.found.folder)
    return Trained(folder=str(run.folder), measured=train_model(job))


def begin_run(folder: Folder, start: Start, *, name: str) -> Any:
    """Return the run of that name, begun: its rows frozen, its settings written."""
    from tasks.training.freeze_rows import count_reasons, freeze_rows
    from tasks.training.losses.objectives import OBJECTIVES
    from tasks.training.runs import Run, differences

    if not folder.is_local:
        raise ConfigError(f"{folder.url}: a run is written to a local disk; copy the dataset, or mount it")
    run, config = Run(Path(folder.path(f"runs/{name}"))), start.config
    if before := run.config():
        if changed := list(differences(before, config)):
            raise ConfigError(f"{run.folder} was begun with other settings: {'; '.join(changed)}. Give another --name")
        return run
    loading = config.loading
    with settled(folder) as (build, stages):
        planned, counts = next(((one, count) for one, count in stages if one.stage.name == TABLE), (None, None))
        if planned is None or counts is None or not counts.rows:
            raise ConfigError(
                f"{folder.url}: has no preferences to train on. See why with: pairwright status {folder.url}"
            )
        run.folder.mkdir(parents=True, exist_ok=True)
        splits = (loading.split, loading.held_out)
        refused = freeze_rows(
            build, planned, run.rows, needs=OBJECTIVES[config.objective].needs_of(config), splits=splits
        )
        snapshot = latest_snapshot(folder)
        data = {
            "dataset": folder.url,
            "snapshot": snapshot.number if snapshot else None,
            "version": describe_version(build, [one for one, _ in stages]),
            "table": planned.table,
            "refused": count_reasons(refused),
            "start": start.describe(),
        }
    run.begin(config, data, refused)
    return run
