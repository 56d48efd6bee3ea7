"""Have what a training of NAMC needs: its defaults, its models, and at the paper's size what they see of the images.

Makes the tables ``grids`` and ``codes`` beside the dataset's own, of the images that its pairs are of, and copies what
the run's rows need into the run's folder. Fetches nothing: a missing model is named, with what fetches it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pairwright.flows.make_table import make_table
from pairwright.flows.version import Version
from pairwright.schemas.namc import PAPER, CnnConfig
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc_places import pin_namc, release_models
from pairwright.tasks.training.namc import tables
from pairwright.tasks.training.runs import PLACES, Run


def namc_defaults(config: str, *, starts: bool) -> dict[str, Any]:
    """Return what is set otherwise for NAMC, unless it is set; at the paper's size as published (001, Appendix F).

    A run that starts from another one is fine-tuned for the 20 epochs of Image-Editing-Request (the paper has 40 for
    CLEVR-Change and CLEVR-DC, 10 for Spot-the-Diff).
    """
    if config != PAPER:
        return {
            "namc.noise_enabled": not starts,
            "optimiser.num_train_epochs": 20 if starts else 40,
            "optimiser.per_device_train_batch_size": 16,
            "output.logging_steps": 10,
            "output.eval_steps": 50,
        }
    tuned = {
        "namc.noise_enabled": False,
        "namc.max_new_tokens": 23,
        "optimiser.learning_rate": 2e-4,
        "optimiser.gradient_accumulation_steps": 4,
    }
    return {
        **(tuned if starts else {"optimiser.learning_rate": 3e-4, "optimiser.gradient_accumulation_steps": 16}),
        "optimiser.per_device_train_batch_size": 32,
        "optimiser.num_train_epochs": 20,
        "output.eval_steps": 500,
    }


def pin_models(config: TrainConfig, *, start: Path) -> TrainConfig:
    """Return the settings with the revisions of the models that this machine has."""
    own = config.namc
    if own.size != PAPER:
        return config
    if config.start and own.cnn == CnnConfig():
        from pairwright.tasks.training.namc.captioner import read_about

        own = own.model_copy(update={"cnn": read_about(start).cnn or CnnConfig()})
    return config.model_copy(update={"namc": pin_namc(own, starts=bool(config.start))})


def have_places(version: Version, config: TrainConfig, run: Run) -> None:
    """Have what a run is told of its images in its folder."""
    from pairwright.tasks.training.namc.train_namc import find_texts
    from pairwright.tasks.training.train_model import Job

    own, place = config.namc, run.folder / PLACES
    job = Job(run=run, config=config, dataset=version.folder, start=Path())
    texts = [text for held_out in (False, True) for text in find_texts(job, held_out=held_out)[1]]
    if own.size != PAPER or (place / tables.ABOUT).exists():
        return
    stages = [(tables.GRIDS, own.cnn)]
    if own.noise_enabled and own.reconstruction_enabled:
        stages = [*stages, (tables.CODES, own.vqgan)]
    has_pairs = any(planned.stage.name == "pairs" for planned in version.planned)
    try:
        beside = [make_table(version, one if has_pairs else replace(one, only_in=()), used) for one, used in stages]
    finally:
        release_models()
    with version.settled(beside) as (build, _):
        settled = {planned.stage.name: planned for planned in build.planned}
        made = [settled[stage.name] for stage, _ in stages]
        tables.copy_tables(build, made, [key for text in texts for key in text.images], place)
