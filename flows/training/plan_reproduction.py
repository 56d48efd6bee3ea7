"""Say what a reproduction takes before it runs: steps of trainings, memory of GPUs, disk."""

import json
from collections.abc import Iterator
from math import ceil
from typing import Any

from pairwright.flows.pipeline.load_profile import load_recipe
from pairwright.flows.training.make_train_config import make_config
from pairwright.flows.training.reproduce_paper import (
    Reproducer,
    Step,
    load_reproduction,
    paper_names,
)
from pairwright.schemas.training import RecipeConfig, TrainConfig
from pairwright.tasks.serving.gpu_memory import GB
from pairwright.tasks.training.estimate_memory import Sizes, count_trained, demand_of

HEADS = ("step", ">training steps", ">rows a step", ">GPUs", ">GB of each", ">GB of disk", "")
UNKNOWN = "?"
STATE_BYTES = 12
"""Bytes of disk per trained weight of a checkpoint: itself and AdamW's two means in float32."""


def list_papers() -> Iterator[tuple[str, str, str, str]]:
    """Yield each paper's name, title, tables and folders of data."""
    for name in paper_names():
        paper = load_reproduction(name)
        folders = dict[str, None]()
        for training_set in paper.training_sets.values():
            folders |= dict.fromkeys(training_set.folders)
        folders |= dict.fromkeys(table.benchmark for table in paper.tables)
        tables = ", ".join(table.name.partition(":")[0] for table in paper.tables)
        yield name, paper.title, tables, ", ".join(folders)


def plan_lines(reproducer: Reproducer) -> Iterator[tuple[object, ...]]:
    """Yield heads, and each step with what it takes; numbers that are not known are "?"."""
    yield HEADS
    kept_gb = 0.0
    passing_gb = 0.0  # checkpoints of the training under way
    for step in reproducer.steps():
        cells: tuple[object, ...] = ("", "", "", "", "")
        if step.kind == "train":
            cells, finished_gb, checkpoints_gb = _plan_training(reproducer, step)
            kept_gb += finished_gb
            passing_gb = max(passing_gb, checkpoints_gb)
        yield (step.title, *cells, "done" if _is_done(reproducer, step) else "")
    yield ("all", "", "", "", "", f"{kept_gb + passing_gb:.1f}", "")


def _plan_training(reproducer: Reproducer, step: Step) -> tuple[tuple[object, ...], float, float]:
    """Return the cells of a training, and the GB of its finished model and of its checkpoints."""
    config, recipe = _make_config(reproducer, step)
    optimiser = config.optimiser
    rows_per_step = optimiser.per_device_train_batch_size * optimiser.gradient_accumulation_steps
    rows_per_step *= recipe.gpus
    steps = _count_steps(reproducer, step, config, rows_per_step)
    if not recipe.sizes:
        return (steps, rows_per_step, "", "", ""), 0.0, 0.0
    sizes = Sizes(**recipe.sizes)
    memory_gb = demand_of(sizes, config, gpus=recipe.gpus).total / GB
    finished_gb, checkpoints_gb = _count_disk(sizes, config)
    disk = f"{finished_gb + checkpoints_gb:.1f}"
    cells = (steps, rows_per_step, recipe.gpus, f"{memory_gb:.1f}", disk)
    return cells, finished_gb, checkpoints_gb


def _make_config(reproducer: Reproducer, step: Step) -> tuple[TrainConfig, RecipeConfig]:
    """Return the settings of a training, and its recipe; at small scale it has none."""
    options = reproducer.train_options(step.arm, step.training_set)
    settings = options.pop("settings")
    options.pop("name")
    config = make_config(reproducer.paper.arms[step.arm].objective, settings, **options)
    if not options["recipe"]:
        return config, RecipeConfig()
    recipe, _ = load_recipe(options["recipe"])
    return config, recipe


def _count_steps(
    reproducer: Reproducer, step: Step, config: TrainConfig, rows_per_step: int
) -> object:
    """Return the optimiser steps of a training; "?" where its rows are not known yet."""
    if config.optimiser.max_steps:
        return config.optimiser.max_steps
    rows = _count_rows(reproducer, step)
    if not rows:
        return UNKNOWN
    return ceil(rows / rows_per_step * config.optimiser.num_train_epochs)


def _count_rows(reproducer: Reproducer, step: Step) -> int:
    """Return the training rows of a run or, before it, the published number of texts."""
    path = reproducer.run_of(step.arm, step.training_set).folder / "data.json"
    if path.exists():
        content: dict[str, Any] = json.loads(path.read_text())
        return content["rows"].get("train", 0)
    return reproducer.training_set(step.training_set).training_rows


def _count_disk(sizes: Sizes, config: TrainConfig) -> tuple[float, float]:
    """Return the GB of the finished model, and of the checkpoints while it is trained."""
    trained = count_trained(sizes, config)
    number_size = 4 if config.optimiser.precision == "fp32" else 2
    finished = number_size * sizes.whole
    checkpoints = config.output.save_total_limit * STATE_BYTES * trained
    return finished / GB, checkpoints / GB


def _is_done(reproducer: Reproducer, step: Step) -> bool:
    if step.kind == "train":
        return reproducer.run_of(step.arm, step.training_set).is_finished
    if step.kind == "evaluate" and step.scores:
        return step.scores.exists()
    return False
