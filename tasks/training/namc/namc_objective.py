"""NAMC as a training objective: a captioner of differences, trained from scratch (paper 001).

At the paper's size it learns from the tables ``grids`` and ``codes`` of the pairs' images, of which
the run has copies. Nothing is fetched: an error names a missing model and the command that fetches
it. Needs no PyTorch before the rows are frozen.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.schemas.errors import ConfigError
from pairwright.schemas.namc_config import PAPER, SMALL, CnnConfig, WeightsConfig
from pairwright.schemas.training import OptimiserConfig, TrainConfig
from pairwright.tasks.models.namc_places import pin_namc, release_models
from pairwright.tasks.store.stage import Stage
from pairwright.tasks.training.check_environment import (
    check_launcher,
    count_launched,
    explain_out_of_memory,
)
from pairwright.tasks.training.estimate_memory import need_smaller_batch
from pairwright.tasks.training.freeze_dataset import freeze_dataset, open_training_table
from pairwright.tasks.training.losses import needs_of
from pairwright.tasks.training.namc.feature_tables import ABOUT, CODES, GRIDS, copy_tables
from pairwright.tasks.training.objective import (
    DatasetTables,
    Ended,
    FrozenData,
    Job,
    Start,
    read_section,
)
from pairwright.tasks.training.runs import PLACES, Run, find_run


class NamcObjective:
    """Training of NAMC from scratch, or from a finished run of NAMC."""

    def defaults(self, values: Mapping[str, Any], start: TrainConfig | None) -> dict[str, Any]:
        """Return the schedule of the model's size; the size is the start model's, else small."""
        model = read_section(values, "model")
        if model:
            option = "--differential" if "differential" in model else "--model"
            raise ConfigError(
                f"{option}: does not apply to NAMC, "
                "which trains from scratch or --from a run of its own"
            )
        size = start.namc.size if start else SMALL
        size = str(read_section(values, "namc").get("size", size))
        return {"namc.size": size} | namc_defaults(size, starts=bool(values.get("start")))

    def check(self, config: TrainConfig) -> None:
        """Refuse several processes, and settings of transformers' Trainer."""
        check_launcher(config, can_shard=False)
        check_settings(config)

    def resolve_start(self, config: TrainConfig, run: Run, tables: DatasetTables) -> Start:
        """Find the model of the run to start from, and the revisions of the frozen models."""
        del run  # no model is recorded in it
        if not config.start:
            return Start(folder=Path(), config=pin_models(config, start=Path()), record={})
        folder = find_run(tables.folder, config.start).model
        resolved = pin_models(config, start=folder)
        return Start(folder=folder, config=resolved, record={"folder": str(folder)})

    def freeze(self, config: TrainConfig, run: Run, tables: DatasetTables) -> FrozenData:
        """Freeze the rows, and at the paper's size the features of their images."""
        with open_training_table(tables, config, []) as table:
            frozen = freeze_dataset(config, run, table, tables, needs=needs_of(config))
        copy_image_features(config, run, tables)
        return frozen

    def restore(self, config: TrainConfig, run: Run, tables: DatasetTables) -> None:
        """Copy the features of the images again; a run that was finished has deleted them."""
        if config.namc.size == PAPER and not (run.folder / PLACES / ABOUT).exists():
            copy_image_features(config, run, tables)

    def fit(self, job: Job) -> Ended:
        """Train in this process."""
        from pairwright.tasks.training.namc.train_namc import train_namc

        with explain_out_of_memory(job.run, partial(need_smaller_batch, job.config)):
            return train_namc(job)

    def describe_model(self, config: TrainConfig) -> str:
        """Return the model's size."""
        return f"namc {config.namc.size}"

    def can_be_served(self, config: TrainConfig) -> bool:
        """Return False: vLLM does not know the architecture."""
        del config
        return False


def namc_defaults(size: str, *, starts: bool) -> dict[str, Any]:
    """Return the defaults of a size; at the paper's those published (001, Appendix F).

    A run that starts from another one is fine-tuned for the 20 epochs of Image-Editing-Request (the
    paper has 40 for CLEVR-Change and CLEVR-DC, 10 for Spot-the-Diff).
    """
    if size != PAPER:
        return {
            "output.logging_steps": 10,
            "output.eval_steps": 50,
            "optimiser.per_device_train_batch_size": 16,
            "optimiser.num_train_epochs": 20 if starts else 40,
            "namc.noise_enabled": not starts,
        }
    defaults: dict[str, Any] = {
        "output.eval_steps": 500,
        "optimiser.per_device_train_batch_size": 32,
        "optimiser.num_train_epochs": 20,
        "optimiser.learning_rate": 2e-4 if starts else 3e-4,
        "optimiser.gradient_accumulation_steps": 4 if starts else 16,
    }
    if starts:
        defaults |= {"namc.noise_enabled": False, "namc.max_new_tokens": 23}
    return defaults


def check_settings(config: TrainConfig) -> None:
    """Refuse settings that this training does not support."""
    if count_launched() > 1:
        raise ConfigError(
            "NAMC is trained by one process: start it with `pairwright train`, without a launcher"
        )
    has_other_optimiser = config.optimiser.optim != OptimiserConfig().optim
    if has_other_optimiser or config.data.group_by_length or config.output.report_to:
        raise ConfigError(
            "optimiser.optim, data.group_by_length, output.report_to: not supported by NAMC"
        )


def pin_models(config: TrainConfig, *, start: Path) -> TrainConfig:
    """Return the settings with this machine's revisions of the frozen models."""
    namc = config.namc
    if namc.size != PAPER:
        return config
    if config.start and namc.cnn == CnnConfig():
        from pairwright.tasks.training.namc.captioner import read_metadata

        cnn = read_metadata(start).cnn or CnnConfig()
        namc = namc.model_copy(update={"cnn": cnn})
    pinned = pin_namc(namc, starts=bool(config.start))
    return config.model_copy(update={"namc": pinned})


def copy_image_features(config: TrainConfig, run: Run, tables: DatasetTables) -> None:
    """Copy the grids and codes of the run's images into its folder, at the paper's size.

    At any size, rows that cannot be learnt from are refused before models look at images.
    """
    from pairwright.tasks.training.namc.train_namc import find_texts

    job = Job(run=run, config=config, dataset=tables.folder, start=Path())
    keys = list[str]()
    for held_out in (False, True):
        _, texts, _ = find_texts(job, held_out=held_out)
        keys += [key for text in texts for key in text.images]
    if config.namc.size != PAPER:
        return
    try:
        planned = [
            tables.make_table(stage, models) for stage, models in _choose_stages(config, tables)
        ]
    finally:
        release_models()
    with tables.open_tables(planned) as build:
        copy_tables(build, planned, keys, run.folder / PLACES)


def _choose_stages(config: TrainConfig, tables: DatasetTables) -> list[tuple[Stage, WeightsConfig]]:
    """Return the stages of the tables that are learnt from, with their models.

    They encode the images of pairs, or all images of a dataset without pairs.
    """
    namc = config.namc
    stages: list[tuple[Stage, WeightsConfig]] = [(GRIDS, namc.cnn)]
    if namc.noise_enabled and namc.reconstruction_enabled:
        stages.append((CODES, namc.vqgan))
    if "pairs" in tables.stages_by_table:
        return stages
    return [(replace(stage, only_in=()), models) for stage, models in stages]
