"""Export, train and evaluate under Prefect: the verbs of these names as flow runs for deployments.

They run in this process; Prefect shows them and decides when they start, never what is done.
"""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Completed, Failed
from pydantic import Field

from pairwright.flows import evaluate_captions as captions
from pairwright.flows import evaluate_model as models
from pairwright.flows.build_dataset import RUNNER, as_flow_run, dataset_name, logged, publish_table, tagged
from pairwright.flows.dataset import Dataset
from pairwright.flows.export_dataset import ExportConfig
from pairwright.flows.iterate_rounds import IterateConfig, Iterated, Rounds
from pairwright.flows.progress import log_steps
from pairwright.flows.show_training import TrainingLines
from pairwright.flows.train_model import Trained
from pairwright.schemas.training import Objective
from pairwright.tasks.evaluation.benchmark_list import BENCHMARKS
from pairwright.tasks.evaluation.read_captions import MISSING, PROTOCOLS
from pairwright.tasks.evaluation.score_captions import METRICS, ScoringConfig
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.tally_rows import Selection
from pairwright.tasks.store.files import Folder

FormName = Annotated[str, Field(json_schema_extra={"enum": [*FORMATS]})]
BenchmarkName = Annotated[str, Field(json_schema_extra={"enum": [*BENCHMARKS]})]
MetricName = Annotated[str, Field(json_schema_extra={"enum": [*METRICS]})]
ProtocolName = Annotated[str, Field(json_schema_extra={"enum": [*PROTOCOLS]})]
MissingRule = Annotated[str, Field(json_schema_extra={"enum": [*MISSING]})]


@flow(name="export-dataset", flow_run_name="export-{dataset}", persist_result=False)
def export_dataset(
    dataset: str,
    to: str,
    form: FormName = "hf",
    licences: list[str] | None = None,
    sources: list[str] | None = None,
    version: Annotated[int, Field(ge=1)] | None = None,
    negatives: str = "",
    splits: list[str] | None = None,
    kinds: list[str] | None = None,
    score: float | None = None,
    model: str = "",
    table: str = "",
    *,
    verify: bool = False,
) -> State[None]:
    """Export a dataset in the format of another program.

    Args:
        dataset: Folder or URL of the dataset.
        to: Folder to write; a new name, or an earlier export.
        form: hf is Parquet for datasets.load_dataset; `pairwright formats` lists the others.
        licences: Only rows with all images under one of these licences; "unstated": without one.
        sources: Only rows with images from one of these kinds of sources.
        version: A version's number; none is the newest.
        negatives: ADPO run that provides the negatives.
        splits: Only rows of these splits.
        kinds: Only rows of one of these kinds, as the verb's help names them.
        score: Minimum score of the removal in the rejected images.
        model: Model of the requests of openai-batch.
        table: Another table than the form's own, with its images (hf): pairs, captions, ...
        verify: Read the result as its consumer does, and fail on the first invalid row.
    """
    named = {"licences": licences, "sources": sources, "splits": splits, "kinds": kinds}
    chosen: dict[str, Any] = {name: tuple(some or ()) for name, some in named.items()}
    selection = Selection(**chosen, score=score)
    config = ExportConfig(selection=selection, table=table, negatives=negatives, model=model, verify=verify)
    with logged(), tagged(dataset_name(dataset), form):
        tally = Dataset.open(dataset, version).export(form, to, config=config)
    return Completed(message=f"{tally.rows:,} rows are in {to}")


@flow(name="train-model", flow_run_name="train-{objective}-on-{dataset}", persist_result=False)
def train_model(
    dataset: str,
    objective: Objective,
    model: str = "",
    start: str = "",
    name: str = "",
    settings: list[str] | None = None,
    version: Annotated[int, Field(ge=1)] | None = None,
    recipe: str = "",
) -> State[Trained]:
    """Train a model on the preferences of a dataset, or continue a stopped run.

    Args:
        dataset: Folder of the dataset.
        objective: sft, dpo, mdpo, adavip, adpo or namc.
        model: A folder, a name on the Hub, or tiny; empty: that of the settings.
        start: Run to start from.
        name: Run name; empty: the objective.
        settings: Fields to set ("optimiser.per_device_train_batch_size=8", "optimiser.num_train_epochs=3").
        version: A version's number; none is the one that the run began with, or the newest.
        recipe: A recipe (`pairwright recipes`), or a .yaml file.
    """
    with logged(), tagged(dataset_name(dataset), objective):
        words = {"model": model, "start": start, "name": name, "recipe": recipe}
        opened = Dataset.open(dataset, version)
        trained = opened.train(objective, **words, settings=settings or [], watcher=TrainingLines())
    if trained.finished:
        return Completed(message=f"the model is in {trained.folder}/checkpoint", data=trained)
    return Cancelled(message=f"Stopped at step {trained.step:,} of {trained.steps:,}, with a checkpoint", data=trained)


@flow(name="iterate-rounds", flow_run_name="iterate-{dataset}", task_runner=RUNNER, persist_result=False)
def iterate_rounds(
    dataset: str,
    rounds: Annotated[int, Field(ge=1)] = 3,
    writes: list[str] | None = None,
    objective: Objective = "dpo",
    model: str = "",
    source: str | None = None,
    profile: str = "",
    settings: list[str] | None = None,
    train_settings: list[str] | None = None,
    name: str = "iterate",
) -> State[Iterated]:
    """Train in rounds on the model's own texts: build, SFT, then rounds that are kept unless they are worse.

    Args:
        dataset: Folder of the dataset.
        rounds: Rounds after SFT.
        writes: Texts that the trained model writes: sampled_texts (default), differences, comparisons.
        objective: Objective of the rounds.
        model: The base model: a folder, a name on the Hub, or tiny; empty: that of the settings.
        source: Source of a new dataset.
        profile: Profile of a new dataset; empty: the dataset exists.
        settings: Fields of the profile to set ("models.policy.launch.command=/.../bin/vllm").
        train_settings: Fields of all trainings to set ("optimiser.num_train_epochs=3").
        name: Name of the runs: NAME-0, NAME-1, ...
    """
    words: dict[str, Any] = {"rounds": rounds, "writes": writes or ("sampled_texts",), "objective": objective}
    words |= {"model": model, "source": source, "profile": profile, "settings": settings or [], "name": name}
    config = IterateConfig(**words, train_settings=train_settings or [])
    told: dict[str, Any] = {"watching": lambda: nullcontext(TrainingLines()), "watch": log_steps}
    with logged(), tagged(dataset_name(dataset), objective):
        found = Rounds(folder=Folder(dataset), config=config, worker=as_flow_run, **told).iterate()
    if found.finished:
        return Completed(message=found.conclusion, data=found)
    return Cancelled(message="Stopped: run it again, which goes on", data=found)


@flow(name="evaluate-model", flow_run_name="evaluate-{checkpoint}-on-{benchmark}", persist_result=False)
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
    """Ask a model a benchmark's questions, and score its answers; answered questions are not asked again.

    Args:
        checkpoint: A checkpoint, a run's folder, a name on the Hub; or the model's name on the server.
        benchmark: Which one; `pairwright evaluate model --benchmark list` says what each needs.
        data: Folder of its annotations and images, or a dataset.
        to: File for the scores; empty: below evaluations/, where the worker runs.
        server: Address of the OpenAI-compatible server that has the model; empty: the worker loads it.
        judge: Judge: a server's address, or a profile.
        perturb: noise:5, fog:5 or words:0.4.
        limit: Only the first N items; 0: all.
    """
    place: dict[str, Any] = {"data": Path(data), "to": Path(to) if to else None}
    asked: dict[str, Any] = {"server": server, "judge": judge, "perturb": perturb, "limit": limit or None}
    config = models.EvaluationConfig(model=checkpoint, benchmark=benchmark, **place, **asked)
    with logged(), tagged(dataset_name(checkpoint), benchmark):
        found = models.evaluate_model(config, watch=log_steps)
        rows = [asdict(one) for one in found.results.scores]
        publish_table(f"scores-{benchmark}", rows, "\n\n".join(found.notes()))
    if owed := found.results.owed:
        return Failed(message=f"{owed:,} questions were not answered: run it again, which asks only these")
    said = ", ".join(f"{one.name} {one.value:.3f}" for one in found.results.scores if one.value is not None)
    return Completed(message=said or "there is nothing to score")


@flow(name="evaluate-captions", flow_run_name="evaluate-{predictions}", persist_result=False)
def evaluate_captions(
    predictions: str,
    references: str,
    protocol: ProtocolName = "coco",
    metrics: list[MetricName] | None = None,
    missing: MissingRule = "refuse",
) -> State[None]:
    """Score captions against references, as coco-caption does, with bootstrap intervals.

    Args:
        predictions: File with one text per id; JSON Lines, JSON, or COCO's results.
        references: File with texts per id; the same, COCO's annotations, or Spot-the-Diff's own.
        protocol: Which texts are an item's references.
        metrics: Metrics that must run on the worker's machine; none: all that can.
        missing: References without a prediction: refuse, empty or leave-out.
    """
    config = ScoringConfig(tuple(metrics or METRICS))
    with logged(), tagged(protocol):
        found = captions.evaluate_captions(
            Path(predictions), Path(references), config, protocol=protocol, missing=missing
        )
        rows = [asdict(one) for one in found.found.scores]
        publish_table("caption-scores", rows, "\n\n".join(found.notes()))
    if metrics and (skipped := found.found.skipped):
        return Failed(message="; ".join(f"{name} was skipped: {why}" for name, why in skipped.items()))
    said = ", ".join(f"{one.name} {100 * one.value:.1f}" for one in found.found.scores if one.value is not None)
    return Completed(message=f"x 100: {said}")
