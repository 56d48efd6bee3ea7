"""Export, train and evaluate under Prefect: the verbs of these names as flow runs for deployments.

They run in this process; Prefect shows them and decides when they start, never what is done.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed
from pydantic import Field

from pairwright.flows.building.progress import log_steps
from pairwright.flows.dataset import Dataset
from pairwright.flows.prefect.relay import dataset_name, log_to_prefect, publish_table, tagged
from pairwright.flows.training import evaluate_model as models
from pairwright.flows.training.reproduce_paper import (
    Reproducer,
    ReproductionConfig,
    Step,
    reproduce,
)
from pairwright.flows.training.show_training import TrainingLines
from pairwright.flows.training.train_model import Trained
from pairwright.flows.versions.export_dataset import ExportConfig
from pairwright.schemas.training import ObjectiveName
from pairwright.tasks.evaluation.benchmark_list import ALL
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.tally_rows import EVERYTHING, Selection

FormName = Annotated[str, Field(json_schema_extra={"enum": [*FORMATS]})]
BENCHMARK_NAMES = [benchmark.name for benchmark in ALL]
BenchmarkName = Annotated[str, Field(json_schema_extra={"enum": [*BENCHMARK_NAMES]})]


@flow(name="export-dataset", flow_run_name="export-{dataset}", persist_result=False)
def export_dataset(
    dataset: str,
    to: str,
    form: FormName = "hf",
    version: Annotated[int, Field(ge=1)] | None = None,
    table: str = "",
    selection: Selection = EVERYTHING,
    model: str = "",
    *,
    verify: bool = False,
) -> State[None]:
    """Export a dataset in the format of another program.

    Args:
        dataset: Folder or URL of the dataset.
        to: Folder to write; a new name, or an earlier export.
        form: hf is Parquet for datasets.load_dataset; `pairwright formats` lists the others.
        version: A version's number; none is the newest.
        table: Another table than the form's own, with its images (hf): pairs, captions, ...
        selection: Only some rows, by splits, licences, sources, kinds or score, such as {"splits":
            ["train"]}.
        model: Model of the requests of openai-batch.
        verify: Read the result as its consumer does, and fail on the first invalid row.
    """
    config = ExportConfig(selection=selection, table=table, model=model, verify=verify)
    with log_to_prefect(), tagged(dataset_name(dataset), form):
        tally = Dataset.open(dataset, version).export(form, to, config=config)
    return Completed(message=f"{tally.rows:,} rows are in {to}")


@flow(name="train-model", flow_run_name="train-{objective}-on-{dataset}", persist_result=False)
def train_model(
    dataset: str,
    objective: ObjectiveName,
    model: str = "",
    start: str = "",
    name: str = "",
    settings: list[str] | None = None,
    version: Annotated[int, Field(ge=1)] | None = None,
    recipe: str = "",
    size: str = "",
    table: str = "",
    mix: list[str] | None = None,
    *,
    differential: bool = False,
) -> State[Trained]:
    """Train a model on the preferences of a dataset, or continue a stopped run.

    Args:
        dataset: Folder of the dataset.
        objective: sft, dpo, mdpo, adavip, symmpo, adpo, grpo or namc.
        model: A folder, a name on the Hub, or tiny; empty: that of the settings.
        start: Run to start from.
        name: Run name; empty: the objective.
        settings: Fields to set ("optimiser.per_device_train_batch_size=8",
            "optimiser.num_train_epochs=3").
        version: A version's number; none is the one that the run began with, or the newest.
        recipe: A recipe (`pairwright recipes`), or a .yaml file.
        size: namc: size of the model, small or paper.
        table: sft: preferences (default), differences, comparisons, questions or captions.
        mix: sft: further rows, as FILE:SHARE of LLaVA's JSON, or DATASET:SHARE.
        differential: sft: add M3Diff's differential perception. vLLM cannot serve it.
    """
    with log_to_prefect(), tagged(dataset_name(dataset), objective):
        trained = Dataset.open(dataset, version).train(
            objective,
            name=name,
            settings=settings or [],
            watcher=TrainingLines(),
            recipe=recipe,
            model=model,
            start=start,
            size=size,
            differential=differential,
            table=table,
            mix=mix or [],
        )
    if trained.finished:
        return Completed(message=f"the model is in {trained.folder}/checkpoint", data=trained)
    return Cancelled(
        message=f"Stopped at step {trained.step:,} of {trained.steps:,}, with a checkpoint",
        data=trained,
    )


@flow(
    name="evaluate-model",
    flow_run_name="evaluate-{checkpoint}-on-{benchmark}",
    persist_result=False,
)
def evaluate_model(
    checkpoint: str,
    benchmark: BenchmarkName,
    data: str,
    to: str = "",
    server: str = "",
    judge: str = "",
    perturb: str = "",
    limit: Annotated[int, Field(ge=0)] = 0,
) -> State[None]:
    """Ask a model a benchmark's questions, and score its answers.

    Answered questions are not asked again.

    Args:
        checkpoint: A checkpoint, a run's folder, a name on the Hub; or the model's name on the
            server.
        benchmark: Which one; `pairwright evaluate model --benchmark list` says what each needs.
        data: Folder of its annotations and images, or a dataset.
        to: File for the scores; empty: below evaluations/, where the worker runs.
        server: Address of the OpenAI-compatible server that has the model; empty: the worker loads
            it.
        judge: Judge: a server's address, or a profile.
        perturb: noise:5, fog:5 or words:0.4.
        limit: Only the first N items; 0: all.
    """
    config = models.EvaluationConfig(
        model=checkpoint,
        benchmark=benchmark,
        data=Path(data),
        to=Path(to) if to else None,
        limit=limit or None,
        server=server,
        judge=judge,
        perturb=perturb,
    )
    with log_to_prefect(), tagged(dataset_name(checkpoint), benchmark):
        evaluated = models.evaluate_model(config, watch=log_steps)
        scores = evaluated.results.scores
        rows = [asdict(score) for score in scores]
        publish_table(f"scores-{benchmark}", rows, "\n\n".join(evaluated.summary_lines()))
    pending = evaluated.results.pending
    if pending:
        return Failed(
            message=f"{pending:,} questions were not answered: run it again, which asks only these"
        )
    values = [f"{score.name} {score.value:.3f}" for score in scores if score.value is not None]
    return Completed(message=", ".join(values) or "there is nothing to score")


@flow(name="reproduce-paper", flow_run_name="reproduce-{config.paper}", persist_result=False)
def reproduce_paper(config: ReproductionConfig) -> State[None]:
    """Make a paper's tables: each build, training and evaluation is a task run.

    Args:
        config: The paper, the folder of its data, the folder to write, the scale.
    """
    reproducer = Reproducer(config)
    with log_to_prefect(), tagged(config.paper):
        for _ in reproduce(reproducer, _run_as_task):
            pass
        for table in reproducer.tables:
            outcome = reproducer.read_table(table)
            rows = [dict(zip(outcome.heads, row.cells(), strict=True)) for row in outcome.rows]
            publish_table(f"{config.paper}-{table.benchmark}", rows, outcome.name)
    return Completed(message=f"the tables are in {config.to}/index.html")


@task(persist_result=False, cache_policy=NO_CACHE)
def _run_step(step: Step) -> None:
    step.run()


def _run_as_task(step: Step) -> None:
    """Run a step as a task of its title."""
    _run_step.with_options(name=step.title)(step)
