"""Make the settings of a training from the user's options and the objective's defaults."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from pairwright.flows.pipeline.load_profile import (
    RECIPES,
    choose_objective,
    load_recipe,
    make_section,
    profile_names,
    set_field,
)
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.serving.gpu_memory import GB
from pairwright.tasks.store.files import Folder
from pairwright.tasks.training.check_environment import count_launched
from pairwright.tasks.training.estimate_memory import Sizes, demand_of
from pairwright.tasks.training.find_model import require_packages
from pairwright.tasks.training.objective_list import OBJECTIVES
from pairwright.tasks.training.runs import find_run

log = logging.getLogger(__name__)


class TrainFlags(TypedDict, total=False):
    """Options of ``pairwright train`` besides ``--set``; an empty one is like an absent one."""

    recipe: str
    model: str
    start: str
    size: str
    differential: bool
    table: str
    mix: Sequence[str]


FIELDS = {
    "model": "model.name",
    "start": "start",
    "size": "namc.size",
    "differential": "model.differential.enabled",
    "table": "data.table",
    "mix": "data.mix",
}
"""Field that each option sets."""
BATCHES = "optimiser.gradient_accumulation_steps"
EXCLUSIVE = ("objective", "model.name", "start")
"""Fields that ``--set`` must not set again."""


def make_config(
    objective: str, settings: Sequence[str], *, dataset: str = "", **flags: Unpack[TrainFlags]
) -> TrainConfig:
    """Return the settings of a run; unset ones are the recipe's, the model's or the papers'.

    A run that starts from another run has its model, whatever the recipe's is. That run is looked
    up in ``dataset``; without one, a stand-in model is assumed.
    """
    recipe = flags.get("recipe", "")
    values = _read_values(objective, settings, flags)
    if objective in OBJECTIVES:
        start = _read_start(dataset, str(values.get("start") or ""))
        defaults = OBJECTIVES[objective].defaults(values, start)
        for field, value in defaults.items():
            *sections, name = field.split(".")
            _section(values, *sections).setdefault(name, value)
    where = f"--recipe {recipe}" if recipe else f"--objective {objective}"
    return make_section(
        TrainConfig, values, where=where, settings=settings, options=_show_options(flags)
    )


def warn_of_batch(config: TrainConfig, recipe: str, settings: Sequence[str]) -> None:
    """Log where other processes than a recipe's GPUs make a step of other rows than the recipe's.

    Batches that the user sets, or that fit themselves to the processes, are left alone.
    """
    about, values = load_recipe(recipe)
    values["objective"] = config.objective
    processes = count_launched()
    if processes == about.gpus or any("batch_size" in text for text in settings):
        return
    if any("gradient_accumulation_steps" in text for text in settings):
        return
    if BATCHES in OBJECTIVES[config.objective].defaults(values, None):
        return
    optimiser = config.optimiser
    rows = optimiser.per_device_train_batch_size
    step = rows * optimiser.gradient_accumulation_steps
    wanted = step * about.gpus
    advice = f"start as many processes: torchrun --nproc-per-node {about.gpus} -m pairwright train"
    if wanted % (rows * processes) == 0:
        batches = wanted // (rows * processes)
        advice += f" ..., or keep its batch: --set {BATCHES}={batches}"
    log.warning(
        "%d rows a step on %d process(es), where the recipe %s has %d on %d GPU(s): %s",
        step * processes,
        processes,
        recipe,
        wanted,
        about.gpus,
        advice,
    )


def _read_values(objective: str, settings: Sequence[str], flags: TrainFlags) -> dict[str, Any]:
    """Return the fields that the user sets, over the recipe's."""
    options: Mapping[str, Any] = {**flags}
    fields = {field: options[name] for name, field in FIELDS.items() if options.get(name)}
    fields["objective"] = objective
    values: dict[str, Any] = {}
    if options.get("recipe"):
        _, values = load_recipe(options["recipe"])
    values["objective"] = objective
    if "start" in fields:
        _section(values, "model").pop("name", None)
    for setting in settings:
        field = setting.partition("=")[0].strip()
        if field in EXCLUSIVE and fields.get(field):
            raise ConfigError(
                f"--set {setting}: is also given by its own option; leave one of them out"
            )
        set_field(values, setting)
    for field, value in fields.items():
        *sections, name = field.split(".")
        _section(values, *sections)[name] = value
    return values


def _read_start(dataset: str, start: str) -> TrainConfig | None:
    """Return the settings of the run to start from."""
    if not dataset or not start:
        return None
    folder = Folder(dataset)
    if not folder.is_local:
        return None
    require_packages()
    return find_run(folder, start).config()


def _section(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a section of the settings for writing; another value is refused later."""
    for name in names:
        section = values.setdefault(name, {})
        values = section if isinstance(section, dict) else {}
    return values


def _show_options(flags: TrainFlags) -> Mapping[str, str]:
    """Return the options as the user wrote them, by field, for error messages."""
    options = dict[str, str]()
    size = flags.get("size")
    table = flags.get("table")
    if size:
        options[FIELDS["size"]] = f"--size {size}"
    if flags.get("differential"):
        options[FIELDS["differential"]] = "--differential"
    if table:
        options[FIELDS["table"]] = f"--table {table}"
    if flags.get("mix"):
        options[FIELDS["mix"]] = " ".join(f"--mix {source}" for source in flags.get("mix", ()))
    return options


def list_recipes() -> list[dict[str, Any]]:
    """Return the recipes that come with Pairwright, with the memory needed of each GPU, in GB.

    NAMC is small: its memory is not counted.
    """
    recipes: list[dict[str, Any]] = []
    for name in profile_names(RECIPES):
        recipe, _ = load_recipe(name)
        config = make_config(choose_objective("", name), [], recipe=name)
        model = ""
        needs_gb = None
        if recipe.sizes:
            model = config.model.name
            demand = demand_of(Sizes(**recipe.sizes), config, gpus=recipe.gpus)
            needs_gb = demand.total / GB
        description = recipe.model_dump(include={"about", "gpus", "memory_gb"})
        recipes.append(
            {
                "name": name,
                "objective": config.objective,
                "model": model,
                "needs_gb": needs_gb,
                **description,
            }
        )
    return recipes
