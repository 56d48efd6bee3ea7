"""Have what a training of NAMC needs: its defaults, its models, and at the paper's size what they see of the images.

Makes the tables ``grids``, ``codes`` and ``patches`` beside the dataset's own, of the images that its pairs are of, and
copies what the run's rows need into the run's folder. Fetches nothing: a missing model is named, with what fetches it.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairwright.flows.make_table import make_table
from pairwright.flows.show_status import say_reasons
from pairwright.flows.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.namc import PAPER, CnnConfig, NamcConfig
from pairwright.schemas.section import Section
from pairwright.schemas.training import TrainConfig
from pairwright.tasks.models.namc.files import pin_namc
from pairwright.tasks.models.namc.places import release_models
from pairwright.tasks.models.weights import absolute
from pairwright.tasks.training.freeze_rows import FrozenRows
from pairwright.tasks.training.namc import encode_places
from pairwright.tasks.training.namc.freeze_places import freeze_places, stream_rows
from pairwright.tasks.training.runs import PLACES

if TYPE_CHECKING:
    from pairwright.tasks.store.dataset import Build
    from pairwright.tasks.store.stage import Planned, Stage
    from pairwright.tasks.training.runs import Run

log = logging.getLogger(__name__)
EPOCHS = {"clevr-change": 40, "clevr-dc": 40, "spot-the-diff": 10, "image-editing-request": 20}
"""For which the paper fine-tunes, by the dataset's source."""
MODELS = ("clip", "cnn", "vqgan", "vocabulary")
PAIRS = "pairs"


def namc_defaults(config: str, *, starts: bool) -> dict[str, Any]:
    """Return what is set otherwise for NAMC, unless it is set.

    At the paper's size they are the published ones (paper 001, Appendix F): 512 rows to a step for 20 epochs; a run
    that starts from another one is fine-tuned, with 128 rows to a step for the 20 epochs of Image-Editing-Request
    (the other benchmarks have others: ``EPOCHS``), and writes at most 23 tokens.

    Args:
        config: which size.
        starts: whether the run starts from another one: then it is fine-tuned, without masks.
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


def pin_models(config: TrainConfig, run: "Run", *, start: Path) -> TrainConfig:
    """Return the settings with the revisions of the models that this machine has; of a finished run, with its own.

    Args:
        config: what was asked for.
        run: the run, which may have begun.
        start: the model that it starts from, if there is one.

    Raises:
        ConfigError: the small one is asked for what only the other has.
        ModelError: a model is missing, or another than it was.
    """
    own = config.namc
    if own.size != PAPER:
        if own.relevance == "start":
            raise ConfigError("namc.relevance: the small CLIP starts with random weights; use own, or --size paper")
        return config

    before = run.config()
    if config.start and own.cnn == CnnConfig():
        own = own.model_copy(update={"cnn": _cnn_of(start)})
    if before and run.is_finished:
        own = own.model_copy(update=dict(_as_before(own, before.namc)))
    else:
        own = pin_namc(own, starts=bool(config.start))
    return config.model_copy(update={"namc": own})


def _cnn_of(start: Path) -> CnnConfig:
    from pairwright.tasks.training.namc.saved import read_about

    return read_about(start).cnn or CnnConfig()


def _as_before(own: NamcConfig, before: NamcConfig) -> Iterator[tuple[str, Section]]:
    """Yield the models that are named as before: then they are those."""
    for name in MODELS:
        old, new = getattr(before, name), getattr(own, name)
        if _named(old) == _named(new):
            yield name, old


def _named(model: Any) -> dict[str, Any]:
    checkpoint = absolute(model.checkpoint) if model.checkpoint else ""
    return model.model_dump(exclude={"revision"}) | {"checkpoint": checkpoint}


def check_texts(build: "Build", planned: "Planned", config: TrainConfig, rows: Path) -> None:
    """Look whether there is a row to learn from, before anything is made of its images.

    Args:
        build: the opened dataset.
        planned: the settled table that is trained on.
        config: the run's settings.
        rows: which rows of it were frozen.

    Raises:
        ConfigError: no row of the split to train on will do, for these reasons.
    """
    from pairwright.tasks.training.namc.material import NO_HALVES, Text, read_text

    split, reasons = config.data.split, Counter[str]()
    keys = set(FrozenRows(folder=build.folder, file=str(rows), split=split).keys())
    for row in stream_rows(build, planned, keys):
        found = read_text(row["key"], row["chosen"], len(row["images"]), halves=config.namc.noise_enabled)
        if isinstance(found, Text):
            return
        reasons[found.reason] += 1
    if not reasons:
        return
    advice = ". Any text will do with: --set namc.noise_enabled=false" if NO_HALVES in reasons else ""
    raise ConfigError(
        f"{build.folder.url}: NAMC can learn from no row of split {split!r}: {say_reasons(reasons)}{advice}"
    )


def have_places(version: Version, config: TrainConfig, run: "Run") -> None:
    """Have what a run of the paper's size is told of its images, in its folder; once, when it has begun.

    Raises:
        ConfigError: the dataset has no images of its own.
        ModelError: a model is missing, damaged, or of another form.
        StoreError: the disk refuses.
        TrainingError: some images could not be encoded; the same command goes on.
    """
    place, data = run.folder / PLACES, config.data
    if place.exists():
        return
    kind = version.profile.sources.kind
    epochs = EPOCHS.get(kind, config.optimiser.num_train_epochs)
    if config.start and not config.namc.noise_enabled and epochs != config.optimiser.num_train_epochs:
        log.info("published for %s: --set optimiser.num_train_epochs=%d", kind, epochs)
    has_pairs = PAIRS in {planned.stage.name for planned in version.planned}
    try:
        stages = [(stage if has_pairs else replace(stage, only_in=()), own) for stage, own in _stages(config.namc)]
        beside = [make_table(version, stage, own) for stage, own in stages]
    finally:
        release_models()
    keys: set[str] = set()
    for split in filter(None, (data.split, data.eval_split)):
        keys.update(FrozenRows(folder=version.folder, file=str(run.rows), split=split).keys())
    with version.settled(beside) as (build, _):
        tables = {planned.stage.name: planned for planned in build.planned}
        freeze_places(build, tables, place, keys=keys, table=config.table, crops=config.namc.noise_enabled)


def _stages(config: NamcConfig) -> "Iterator[tuple[Stage, Section]]":
    """Yield the tables that a run needs, each with its settings."""
    yield encode_places.GRIDS, config.cnn
    if config.noise_enabled and config.reconstruction_enabled:
        yield encode_places.CODES, config.vqgan
    if config.noise_enabled and config.relevance == "start":
        yield encode_places.PATCHES, config.clip
