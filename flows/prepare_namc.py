"""Have what a training of NAMC needs: its defaults, its models, and at the paper's size what they see of the images.

Makes the tables ``grids`` and ``codes`` beside the dataset's own, of the images that its pairs are of, and copies what
the run's rows need into the run's folder. Fetches nothing: a missing model is named, with what fetches it.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairwright.flows.make_table import make_table
from pairwright.flows.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.namc import PAPER, CnnConfig
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc_places import pin_namc, release_models
from pairwright.tasks.models.weights import absolute
from pairwright.tasks.training.namc import tables
from pairwright.tasks.training.namc.frozen import copy_tables
from pairwright.tasks.training.runs import PLACES, Run

log = logging.getLogger(__name__)
EPOCHS = {"clevr-change": 40, "clevr-dc": 40, "spot-the-diff": 10, "image-editing-request": 20}
"""For which the paper fine-tunes, by the dataset's source."""
MODELS = ("clip", "cnn", "vqgan", "vocabulary")


def namc_defaults(config: str, *, starts: bool) -> dict[str, Any]:
    """Return what is set otherwise for NAMC, unless it is set.

    At the paper's size they are the published ones (paper 001, Appendix F): 512 rows to a step for 20 epochs; a run
    that starts from another one is fine-tuned, without masks, with 128 rows to a step for the 20 epochs of
    Image-Editing-Request (the other benchmarks have others: ``EPOCHS``), and writes at most 23 tokens.
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
    first = {"namc.relevance": "start", "optimiser.learning_rate": 3e-4, "optimiser.gradient_accumulation_steps": 16}
    return {
        **(tuned if starts else first),
        "optimiser.per_device_train_batch_size": 32,
        "optimiser.num_train_epochs": 20,
        "output.eval_steps": 500,
    }


def pin_models(config: TrainConfig, run: Run, *, start: Path) -> TrainConfig:
    """Return the settings with the revisions of the models that this machine has; of a finished run, with its own."""
    own, before = config.namc, run.config()
    if own.size != PAPER:
        if own.relevance == "start":
            raise ConfigError("namc.relevance: the small CLIP starts with random weights; use own, or --size paper")
        return config
    if config.start and own.cnn == CnnConfig():
        from pairwright.tasks.training.namc.captioner import read_about

        own = own.model_copy(update={"cnn": read_about(start).cnn or CnnConfig()})
    if before and run.is_finished:
        pairs = {name: (getattr(before.namc, name), getattr(own, name)) for name in MODELS}
        own = own.model_copy(update={name: old for name, (old, new) in pairs.items() if _named(old) == _named(new)})
    else:
        own = pin_namc(own, starts=bool(config.start))
    return config.model_copy(update={"namc": own})


def _named(model: Any) -> dict[str, Any]:
    """Return how a model is named, whichever revision it has."""
    checkpoint = absolute(model.checkpoint) if model.checkpoint else ""
    return model.model_dump(exclude={"revision"}) | {"checkpoint": checkpoint}


def have_places(version: Version, config: TrainConfig, run: Run) -> None:
    """Have what a run is told of its images in its folder."""
    from pairwright.tasks.training.namc.train_namc import freeze_run

    own, place = config.namc, run.folder / PLACES
    frozen = freeze_run(run, config, version.folder)
    if own.size != PAPER or frozen.widths:
        return
    kind = version.profile.sources.kind
    epochs = EPOCHS.get(kind, config.optimiser.num_train_epochs)
    if config.start and not own.noise_enabled and epochs != config.optimiser.num_train_epochs:
        log.info("published for %s: --set optimiser.num_train_epochs=%d", kind, epochs)
    stages = [(tables.GRIDS, own.cnn)]
    if own.noise_enabled and own.reconstruction_enabled:
        stages = [*stages, (tables.CODES, own.vqgan)]
    has_pairs = any(planned.stage.name == "pairs" for planned in version.planned)
    try:
        beside = [make_table(version, one if has_pairs else replace(one, only_in=()), used) for one, used in stages]
    finally:
        release_models()
    with version.settled(beside) as (build, _):
        copy_tables(build, {planned.stage.name: planned for planned in build.planned}, place)
