"""Find the starting point of a training, and make its settings from the user's options.

A continued run must have the same starting model as before. Unset options get the model's defaults.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.load_profile import (
    RECIPES,
    choose_objective,
    load_recipe,
    make_section,
    profile_names,
    set_field,
)
from pairwright.flows.training.prepare_training import namc_defaults
from pairwright.flows.versions.table import Table
from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.namc_config import SMALL as SMALL_NAMC
from pairwright.schemas.training import (
    NAMC,
    STAND_INS,
    TINY,
    DifferentialConfig,
    ModelConfig,
    OptimiserConfig,
    TrainConfig,
)
from pairwright.tasks.models.weights import absolute, is_local
from pairwright.tasks.serving.gpu_memory import GB
from pairwright.tasks.store.files import Folder
from pairwright.tasks.texts.conversations import turns_of
from pairwright.tasks.training.estimate_memory import Sizes, demand_of
from pairwright.tasks.training.find_model import (
    Found,
    find_model,
    find_module,
    read_module,
    require_packages,
)
from pairwright.tasks.training.runs import Run
from pairwright.tasks.training.tiny_model import write_tiny_model


def find_start(version: Version, config: TrainConfig, run: Run) -> tuple[Found, TrainConfig]:
    """Return the model that a run starts from, and its settings with the model's name and revision."""
    require_packages()
    folder = version.folder
    before = run.config()
    begun: dict[str, Any] = run.data().get("start", {}) if before else {}
    if config.start:
        other = find_run(folder, config.start)
        settings, asked = other.config(), config.model
        assert settings is not None
        own = settings.model
        if "name" in asked.model_fields_set and _lasting(asked) != own.name:
            small = {asked.name, own.name}.intersection(STAND_INS)
            if small or find_model(asked.name, asked.revision).revision != own.revision:
                raise ConfigError(
                    f"--from {config.start}: that run trained {own.name}, and --model says {asked.name}"
                )
        model: dict[str, Any] = {"name": own.name, "revision": own.revision}
        found = find_model(str(other.model), field="--from")
    else:
        name, lasting = config.model.name, _lasting(config.model)
        goes_on = before is not None and before.model.name == lasting
        if before and not goes_on and not is_local(lasting):
            raise ConfigError(
                f"{run.folder} began with the model {before.model.name}, not {name}: give another --name"
            )
        wanted = config.model.revision or (before.model.revision if before and goes_on else "")
        if name in STAND_INS:
            known = begun.get("folder", "")
            if not (known and Path(known).is_dir()):
                table = Table[Any](version, config.data.table)
                texts = list[str]()
                for row in table.rows(without=("images", "rejected_images")):
                    texts += [*(turn.text for turn in turns_of(row)), getattr(row, "rejected", "")]
                known = str(write_tiny_model(Path(folder.path("models")), texts, size=name))
            name = known
        found = find_model(name, wanted)
        model = {"name": lasting, "revision": found.revision}
    if begun and begun["revision"] != found.revision:
        raise ConfigError(
            f"{run.folder} began with another model than the one now in {found.folder}. Restore the old one, or give "
            "another --name"
        )
    model |= {"differential": _perceives_as(found, config)}
    mix = tuple(one if "://" in one else absolute(one) for one in config.data.mix)
    made = {
        "model": config.model.model_copy(update=model),
        "data": config.data.model_copy(update={"mix": mix}),
    }
    return found, config.model_copy(update=made)


def _perceives_as(found: Found, config: TrainConfig) -> DifferentialConfig:
    own, place = config.model.differential, find_module(found.folder)
    if place is None:
        return own
    if not own.enabled:
        raise ConfigError(
            f"{found.folder}: has a module of differential perception, which would be lost. Keep it with "
            f"--differential, which --objective sft takes{'' if config.objective == 'sft' else ' alone'}"
        )
    begun = read_module(place)
    changed = [
        name for name in sorted(own.model_fields_set) if getattr(own, name) != getattr(begun, name)
    ]
    if changed:
        raise ConfigError(
            f"model.differential.{changed[0]}: is {getattr(begun, changed[0])} in {place}, which the run starts from"
        )
    return begun


def _lasting(model: ModelConfig) -> str:
    """Return a model's name that is valid from any folder."""
    return (
        absolute(model.name) if model.name not in STAND_INS and is_local(model.name) else model.name
    )


def find_run(folder: Folder, name: str) -> Run:
    """Return a finished run, by its name in the dataset or its folder."""
    runs = Path(folder.path("runs"))
    run = next(
        (
            Run(place)
            for place in (runs / name, Path(name).expanduser())
            if (place / "config.yaml").exists()
        ),
        None,
    )
    if run and run.is_finished:
        return run
    there = (
        sorted(place.name for place in runs.glob("*") if Run(place).is_finished)
        if runs.is_dir()
        else []
    )
    what = f"{run.folder} is not finished: repeat its command" if run else f"no such run in {runs}"
    raise ConfigError(f"--from {name}: {what}. Finished there: {', '.join(there) or 'none'}")


PAPER_BATCH = 256  # rows of a step over all devices (paper 002, Table 10)


def make_config(
    objective: str,
    settings: Sequence[str],
    *,
    model: str = "",
    start: str = "",
    dataset: str = "",
    recipe: str = "",
) -> TrainConfig:
    """Return the settings of a run; unset ones are the recipe's, the model's or the papers'.

    A run that starts from another run has its model, whatever the recipe's is. That run is looked
    up in ``dataset``; without one, a stand-in model is assumed.
    """
    values: dict[str, Any] = {**(load_recipe(recipe)[1] if recipe else {}), "objective": objective}
    if start:
        _part(values, "model").pop("name", None)
    named = {"objective": objective, "model.name": model, "start": start}
    for setting in settings:
        if named.get(setting.partition("=")[0].strip()):
            raise ConfigError(
                f"--set {setting}: is also given by its own option; leave one of them out"
            )
        set_field(values, setting)
    if model:
        _part(values, "model")["name"] = model
    if start:
        values["start"] = start
    begun = None
    if dataset and values.get("start") and (folder := Folder(dataset)).is_local:
        require_packages()
        begun = find_run(folder, str(values["start"])).config()
    starts, model_values = bool(values.get("start")), _part(values, "model")
    if objective == NAMC:
        if model_values:
            option = "--differential" if "differential" in model_values else "--model"
            raise ConfigError(
                f"{option}: does not apply to NAMC, which trains from scratch or --from a run of its own"
            )
        size = str(
            _part(values, "namc").setdefault("size", begun.namc.size if begun else SMALL_NAMC)
        )
        defaults = namc_defaults(size, starts=starts)
    else:
        name = model_values.get("name") or (begun.model.name if begun else TINY)
        defaults = _model_defaults(objective, values, small=name in STAND_INS, starts=starts)
    for path, value in defaults.items():
        *sections, last = path.split(".")
        _part(values, *sections).setdefault(last, value)
    where = f"--recipe {recipe}" if recipe else f"--objective {objective}"
    return make_section(TrainConfig, values, where=where, settings=settings)


def _model_defaults(
    objective: str, values: dict[str, Any], *, small: bool, starts: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    differential = _part(values, "model", "differential").get("enabled") is True
    if small:  # random weights need not be preserved (ours)
        found = {
            "model.tuning": "full",
            "model.train_vision": True,
            "output.logging_steps": 5,
            "output.eval_steps": 20,
        }
        found |= {
            "optimiser.learning_rate": 2e-3 if objective == "sft" and not starts else 3e-4,
            "optimiser.num_train_epochs": 10 if objective == "sft" else 5,
            "optimiser.per_device_train_batch_size": 8,
        }
    elif differential:  # paper 002, Table 10
        batch = _part(values, "optimiser").get("per_device_train_batch_size")
        rows = (
            batch
            if isinstance(batch, int) and batch > 0
            else OptimiserConfig().per_device_train_batch_size
        )
        found = {"model.lora.rank": 128, "model.lora.alpha": 256}
        found |= {"model.train_vision": True, "model.vision_tuning": "full"}
        found |= {
            "optimiser.learning_rate": 1e-5,
            "optimiser.vision_learning_rate": 2e-6,
            "optimiser.gradient_accumulation_steps": max(
                1, PAPER_BATCH // (rows * count_processes())
            ),
        }
    if _part(values, "model").get("train_vision") is False:
        found.pop("optimiser.vision_learning_rate", None)
    return found | ({"output.write_answers": True} if differential else {})


def _part(values: dict[str, Any], *sections: str) -> dict[str, Any]:
    """Return a section of the settings for reading and writing; another value is refused later."""
    for section in sections:
        found = values.setdefault(section, {})
        values = found if isinstance(found, dict) else {}
    return values


def count_processes() -> int:
    """Return the number of processes that the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def list_recipes() -> list[dict[str, Any]]:
    """Return the recipes that come with Pairwright, with the memory that each of their GPUs needs, in GB.

    NAMC is small: its memory is not counted.
    """
    found: list[dict[str, Any]] = []
    for name in profile_names(RECIPES):
        recipe, config = (
            load_recipe(name)[0],
            make_config(choose_objective("", name), [], recipe=name),
        )
        needs = (
            demand_of(Sizes(**recipe.sizes), config, gpus=recipe.gpus).total / GB
            if recipe.sizes
            else None
        )
        own = recipe.model_dump(include={"about", "gpus", "memory_gb"})
        model = config.model.name if recipe.sizes else ""
        found.append(
            {"name": name, "objective": config.objective, "model": model, "needs_gb": needs, **own}
        )
    return found
