"""Find the model that a run of a vision-language model starts from.

Reads the run's folder, the folder of the run to start from, the model's files. Writes a stand-in
model where one is asked for. A continued run must have the same start model as before.
"""

from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import STAND_INS, DifferentialConfig, ModelConfig, TrainConfig
from pairwright.tasks.models.weights import absolute, is_model_folder
from pairwright.tasks.store.files import Folder
from pairwright.tasks.texts.conversations import turns_of
from pairwright.tasks.training.find_model import (
    Found,
    find_model,
    find_module,
    read_module,
    require_packages,
)
from pairwright.tasks.training.objective import DatasetTables
from pairwright.tasks.training.runs import Run, find_run
from pairwright.tasks.training.tiny_model import write_tiny_model

IMAGES = ("images", "rejected_images")


def find_start(config: TrainConfig, run: Run, tables: DatasetTables) -> tuple[Found, TrainConfig]:
    """Return the start model, and the settings with the model's name and revision."""
    require_packages()
    record: dict[str, Any] = run.data().get("start", {}) if run.config() else {}
    if config.start:
        model, update = _find_model_of_run(config, tables.folder)
    else:
        model, update = _find_named_model(config, run, tables)
    if record and record["revision"] != model.revision:
        raise ConfigError(
            f"{run.folder} began with another model than the one now in {model.folder}. "
            "Restore the old one, or give another --name"
        )
    update["differential"] = _resolve_differential(config, model)
    mix = tuple(source if "://" in source else absolute(source) for source in config.data.mix)
    resolved = config.model_copy(
        update={
            "model": config.model.model_copy(update=update),
            "data": config.data.model_copy(update={"mix": mix}),
        }
    )
    return model, resolved


def _find_model_of_run(config: TrainConfig, dataset: Folder) -> tuple[Found, dict[str, Any]]:
    """Return the model of the run to start from, and the name and revision of its base model."""
    other = find_run(dataset, config.start)
    settings = other.config()
    assert settings is not None
    base = settings.model
    named = config.model
    if "name" in named.model_fields_set and _absolute_name(named) != base.name:
        is_stand_in = named.name in STAND_INS or base.name in STAND_INS
        if is_stand_in or find_model(named.name, named.revision).revision != base.revision:
            raise ConfigError(
                f"--from {config.start}: that run trained {base.name}, "
                f"and --model says {named.name}"
            )
    model = find_model(str(other.model), field="--from")
    return model, {"name": base.name, "revision": base.revision}


def _find_named_model(
    config: TrainConfig, run: Run, tables: DatasetTables
) -> tuple[Found, dict[str, Any]]:
    """Return the model that the settings name, with the revision that a continued run has."""
    name = config.model.name
    lasting_name = _absolute_name(config.model)
    revision = config.model.revision
    before = run.config()
    if before and before.model.name == lasting_name:
        revision = revision or before.model.revision
    elif before and not is_model_folder(lasting_name):
        raise ConfigError(
            f"{run.folder} began with the model {before.model.name}, not {name}: "
            "give another --name"
        )
    if name in STAND_INS:
        name = _find_stand_in(config, run, tables)
    model = find_model(name, revision)
    return model, {"name": lasting_name, "revision": model.revision}


def _find_stand_in(config: TrainConfig, run: Run, tables: DatasetTables) -> str:
    """Return the folder of a stand-in: the run's, or a new one with the tokens of the dataset."""
    folder = run.data().get("start", {}).get("folder", "") if run.config() else ""
    if folder and Path(folder).is_dir():
        return folder
    texts = list[str]()
    for row in tables.read_rows(config.data.table, without=IMAGES):
        texts += [turn.text for turn in turns_of(row)]
        texts.append(getattr(row, "rejected", ""))
    models = Path(tables.folder.path("models"))
    return str(write_tiny_model(models, texts, size=config.model.name))


def _resolve_differential(config: TrainConfig, model: Found) -> DifferentialConfig:
    """Return the settings of differential perception: the model's own where it has the module."""
    wanted = config.model.differential
    folder = find_module(model.folder)
    if folder is None:
        return wanted
    if not wanted.enabled:
        advice = "Keep it with --differential, which --objective sft takes"
        if config.objective != "sft":
            advice += " alone"
        raise ConfigError(
            f"{model.folder}: has a module of differential perception, which would be lost. "
            f"{advice}"
        )
    present = read_module(folder)
    for name in sorted(wanted.model_fields_set):
        if getattr(wanted, name) != getattr(present, name):
            raise ConfigError(
                f"model.differential.{name}: is {getattr(present, name)} in {folder}, "
                "which the run starts from"
            )
    return present


def _absolute_name(model: ModelConfig) -> str:
    """Return a model's name that is valid from any folder."""
    if model.name not in STAND_INS and is_model_folder(model.name):
        return absolute(model.name)
    return model.name
