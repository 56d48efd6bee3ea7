"""Train under Prefect: one flow run per training, its metrics as a table artifact.

Runs what the verb ``train`` runs, in this process; Prefect shows it, and decides when it starts, never what is done.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from prefect import flow
from prefect.artifacts import create_table_artifact
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed
from pydantic import Field

from pairwright.flows.make_train_config import make_config
from pairwright.flows.show_training import TrainingLines
from pairwright.flows.train_model import Trained, train
from pairwright.schemas.training import Objective
from pairwright.tasks.training.metrics import HELD_OUT, TRAIN, MetricsFile, read_metrics
from pairwright.tasks.training.runs import Run

MOST_ROWS = 500
"""Logged steps that the artifact shows at the most."""


@flow(name="train-model", flow_run_name="train-{objective}-on-{dataset}", persist_result=False)
def train_dataset(
    dataset: Annotated[str, Field(description="Folder of the dataset")],
    objective: Annotated[Objective, Field(description="What is optimised")],
    model: Annotated[str, Field(description="A folder, a name on the Hub, or tiny; empty: that of the settings")] = "",
    start: Annotated[str, Field(description="The run whose model this one starts from")] = "",
    name: Annotated[str, Field(description="Of the run; empty: the objective's")] = "",
    settings: Annotated[
        list[str] | None, Field(description='Fields to set ("optimiser.batch=8", "optimiser.epochs=3")')
    ] = None,
) -> State[Trained]:
    """Train a model on the preferences of a dataset, or go on with a run that was stopped.

    Args:
        dataset: Folder of the dataset.
        objective: sft, dpo, mdpo, adavip, adpo or namc.
        model: A folder, a name on the Hub, or tiny; empty: that of the settings.
        start: The run whose model this one starts from.
        name: Of the run; empty: the objective's.
        settings: Fields to set ("optimiser.batch=8").
    """
    config = make_config(objective, settings or [], model=model, start=start, dataset=dataset)
    trained = train(dataset, config, name=name or objective, watcher=TrainingLines())
    publish_metrics(Path(trained.folder), dataset)
    if trained.finished:
        return Completed(message=f"the model is in {trained.folder}/checkpoint", data=trained)
    return Cancelled(message=f"Stopped at step {trained.step:,} of {trained.steps:,}, with a checkpoint", data=trained)


def tags_of(dataset: str, objective: str) -> tuple[str, str]:
    """Return the tags of a training's flow run: the dataset's name and the objective."""
    return Path(dataset).name, objective


def publish_metrics(folder: Path, dataset: str) -> None:
    """Show a run's metrics in Prefect's UI, under a key of the dataset's and the run's names."""
    metrics = read_metrics(Run(folder).metrics)
    rows = [*_rows(metrics, TRAIN)[-MOST_ROWS:], *_rows(metrics, HELD_OUT)]
    key = "".join(c if c.isalnum() else "-" for c in f"{Path(dataset).name}-{folder.name}".lower()).strip("-")
    create_table_artifact(key=f"train-{key}", table=rows, description=f"What was logged of the run {folder.name}.")


def _rows(metrics: MetricsFile, split: Literal["train", "held-out"]) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for step, _, own, name, value in metrics.entries:
        if own == split:
            found.setdefault(step, {"split": split, "step": step})[name] = value
    return [found[step] for step in sorted(found)]
