"""Make the settings of a training of what a user has said; what is not said is as the model wants it.

The verb ``train`` and its flow come in here. Reads nothing but the run that another one starts from.
"""

import os
from collections.abc import Sequence
from typing import Any

from pairwright.flows.find_start import find_run
from pairwright.flows.load_profile import make_section, set_field
from pairwright.flows.prepare_namc import namc_defaults
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.namc import SMALL
from pairwright.schemas.training import NAMC, STAND_INS, TINY, OptimiserConfig, TrainConfig
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.find_model import require_packages

PAPER_BATCH = 256
"""Rows of a step over all devices (paper 002, Table 10)."""


def make_config(
    objective: str, settings: Sequence[str], *, model: str = "", start: str = "", dataset: str = ""
) -> TrainConfig:
    """Return the settings of a run; what is not set is as the model wants it, or as the papers have it.

    Args:
        objective: "sft", "dpo", "mdpo", "adavip", "adpo" or "namc".
        settings: ``section.field=value``.
        model: the model's name; empty: as the settings say.
        start: the run that it starts from; empty: as the settings say.
        dataset: where that run is looked for, to know its model; empty: it is a stand-in's, or a small NAMC.

    Raises:
        ConfigError: a setting is not allowed, or there is no such run.
    """
    values: dict[str, Any] = {"objective": objective}
    named = {"objective": objective, "model.name": model, "start": start}
    for setting in settings:
        if named.get(setting.partition("=")[0].strip()):
            raise ConfigError(f"--set {setting}: is said twice. Leave it to its own option of the command")
        set_field(values, setting)
    if model:
        _part(values, "model")["name"] = model
    if start:
        values["start"] = start
    begun = _begun_with(dataset, str(values.get("start", "")))
    if objective == NAMC:
        if _part(values, "model"):
            option = "--differential" if "differential" in _part(values, "model") else "--model"
            raise ConfigError(f"{option}: NAMC is a model of its own, trained from scratch or --from another run of it")
        size = str(_part(values, "namc").setdefault("size", begun.namc.size if begun else SMALL))
        for path, value in namc_defaults(size, starts=bool(values.get("start"))).items():
            section, _, last = path.partition(".")
            _part(values, section).setdefault(last, value)
    else:
        name = _part(values, "model").get("name") or (begun.model.name if begun else TINY)
        for path, value in model_defaults(objective, values, small=name in STAND_INS).items():
            *sections, last = path.split(".")
            _part(values, *sections).setdefault(last, value)
    return make_section(TrainConfig, values, where=f"--objective {objective}", settings=settings)


def _begun_with(dataset: str, start: str) -> TrainConfig | None:
    """Return the settings of the run that another one starts from; ``None``: there is none on this machine's disks."""
    if not dataset or not start or not (folder := Folder(dataset)).is_local:
        return None
    require_packages()
    return find_run(folder, start).config()


def model_defaults(objective: str, values: dict[str, Any], *, small: bool) -> dict[str, Any]:
    """Return what is set otherwise for a vision-language model, unless it is set.

    Args:
        objective: what is optimised.
        values: what is set.
        small: whether it is a stand-in.
    """
    differential = _part(values, "model", "differential").get("enabled") is True
    if small:
        found = stand_in_defaults(objective, starts=bool(values.get("start")))
    else:
        found = (
            differential_defaults(_part(values, "optimiser").get("per_device_train_batch_size")) if differential else {}
        )
    if _part(values, "model").get("train_vision") is False:
        found.pop("optimiser.vision_learning_rate", None)
    return found | ({"output.write_answers": True} if differential else {})


def differential_defaults(batch: Any = None) -> dict[str, Any]:
    """Return what is set otherwise to train differential perception, as paper 002 does (Table 10).

    Args:
        batch: rows per device and step, where that is set.
    """
    rows = batch if isinstance(batch, int) and batch > 0 else OptimiserConfig().per_device_train_batch_size
    return {
        "model.lora.rank": 128,
        "model.lora.alpha": 256,
        "model.train_vision": True,
        "model.vision_tuning": "full",
        "optimiser.learning_rate": 1e-5,
        "optimiser.vision_learning_rate": 2e-6,
        "optimiser.gradient_accumulation_steps": max(1, PAPER_BATCH // (rows * count_processes())),
    }


def stand_in_defaults(objective: str, *, starts: bool) -> dict[str, Any]:
    """Return what is set otherwise for the stand-ins, unless it is set: random weights have nothing to be kept (ours).

    Args:
        objective: what is optimised.
        starts: whether the run starts from another one.
    """
    rate = 2e-3 if objective == "sft" and not starts else 3e-4
    return {
        "model.tuning": "full",
        "model.train_vision": True,
        "optimiser.learning_rate": rate,
        "optimiser.num_train_epochs": 10 if objective == "sft" else 5,
        "optimiser.per_device_train_batch_size": 8,
        "output.logging_steps": 5,
        "output.eval_steps": 20,
    }


def _part(values: dict[str, Any], *sections: str) -> dict[str, Any]:
    """Return a section of the settings, to be read and written; one that is no section is refused later."""
    for section in sections:
        found = values.setdefault(section, {})
        values = found if isinstance(found, dict) else {}
    return values


def count_processes() -> int:
    """Return how many processes the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))
