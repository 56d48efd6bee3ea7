"""The verbs of training: train, iterate, recipes, runs."""

import logging
import os
import signal
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app
from pairwright.schemas.errors import ServerError, StoreError, TrainingError

if TYPE_CHECKING:
    from pairwright.flows.training.make_train_config import TrainFlags
    from pairwright.flows.training.train_model import Trained

MODEL = "A folder or a name on the Hub; tiny: a small stand-in."
AGAIN = "Run the same command again to continue."


@app.command(
    epilog="Examples: `pairwright train demo --objective sft`, "
    "`pairwright train demo --objective adpo --from sft`, "
    "`pairwright train demo --recipe qwen2.5-vl-7b-24gb`, "
    "`torchrun --nproc-per-node 4 -m pairwright train demo --objective dpo "
    "--model Qwen/Qwen2.5-VL-3B-Instruct`"
)
def train(
    dataset: options.DatasetUrl,
    objective: Annotated[
        str,
        Option(help="sft, dpo, mdpo, adavip, symmpo, adpo, grpo or namc (default: the recipe's)."),
    ] = "",
    recipe: Annotated[
        str, Option(help="Recipe: a name from `pairwright recipes`, or a .yaml file.")
    ] = "",
    model: Annotated[str, Option(help=MODEL)] = "",
    start: Annotated[str, Option("--from", help="Run to start from.")] = "",
    name: Annotated[str, Option(help="Run name (default: the objective).")] = "",
    size: Annotated[str, Option(help="namc: size of the model, small or paper.")] = "",
    differential: Annotated[
        bool,
        Option(
            "--differential",
            help="sft: add M3Diff's differential perception. vLLM cannot serve it.",
        ),
    ] = False,
    table: Annotated[
        str,
        Option(help="sft: preferences (default), differences, comparisons, questions or captions."),
    ] = "",
    mix: Annotated[
        list[str] | None,
        Option(
            "--mix",
            help="sft: further rows: FILE:SHARE of LLaVA's JSON, or DATASET:SHARE (repeatable).",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        Option("--set", help="Set a field: optimiser.per_device_train_batch_size=8 (repeatable)."),
    ] = None,
    version: options.Version = None,
    push_to_hub: options.PushToHub = "",
    private: options.Private = False,
) -> None:
    """Train a vision-language model, or NAMC, on a table of a dataset, or continue a stopped run.

    Ctrl-C stops it after the current step, with a checkpoint; the same command continues.
    """
    from pairwright.flows.pipeline.load_profile import choose_objective
    from pairwright.flows.training.show_training import watching_training

    objective = choose_objective(objective, recipe)
    name = name or objective
    flags: TrainFlags = {
        "recipe": recipe,
        "model": model,
        "start": start,
        "size": size,
        "differential": differential,
        "table": table,
        "mix": mix or [],
    }
    send = options.to_hub(
        push_to_hub if options.is_first() else "",
        kind="model",
        private=private and options.is_first(),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if os.environ.get("PREFECT_API_URL") and os.environ.get("WORLD_SIZE", "1") == "1":
            from pairwright.flows.prefect.run_in_prefect import train_model

            logging.getLogger("httpx").setLevel(logging.WARNING)
            parameters = {
                "dataset": dataset,
                "objective": objective,
                "name": name,
                "settings": settings or [],
                "version": version,
                **flags,
            }
            trained = options.run_flow(train_model, parameters)
        else:
            if not options.is_first():
                logging.getLogger().setLevel(logging.ERROR)
            opened = options.open_dataset(dataset, version)
            with watching_training() as watcher:
                trained = opened.train(
                    objective, name=name, settings=settings or [], watcher=watcher, **flags
                )
    except KeyboardInterrupt:
        options.print_note(
            "Stopped. The same command continues from the last checkpoint, "
            "or starts again if there is none."
        )
        raise typer.Exit(options.STOPPED) from None
    if not trained.finished:
        options.print_note(
            f"Stopped at step {trained.step:,} of {trained.steps:,}, with a checkpoint. {AGAIN}"
        )
        raise typer.Exit(options.STOPPED)
    if options.is_first():
        _print_outcome(trained, dataset=dataset, name=name)
    send(f"{trained.folder}/checkpoint")


def _print_outcome(trained: "Trained", *, dataset: str, name: str) -> None:
    """Print where the model is, its held-out metrics, and what to do next."""
    from pairwright.flows.training.show_training import describe_metrics

    model = f"{trained.folder}/checkpoint"
    if trained.was_finished:
        print(f"The run {name} is already finished: {model}. Train again under another --name.")
    else:
        print(f"Trained, {trained.steps:,} steps: {model}")
    if trained.measured:
        print(f"Held out: {describe_metrics(trained.measured)}")
    if trained.page:
        print(f"Look at it: {trained.page}")
    if trained.answers:
        print(f"Score its answers: pairwright evaluate captions {trained.answers}")
    elif not trained.was_finished:
        print(
            f"Start another run from it: pairwright train {dataset} "
            f"--objective adpo --from {name} --name NAME"
        )


@app.command(
    epilog="Examples: `pairwright iterate demo --rounds 3`, "
    "`pairwright iterate album --source PHOTOS --profile gpu-80 "
    "--model Qwen/Qwen2-VL-2B-Instruct --set models.policy.launch.command=/.../bin/vllm`"
)
def iterate(
    dataset: options.DatasetUrl,
    rounds: Annotated[int, Option(min=1, help="Rounds after SFT.")] = 3,
    writes: Annotated[
        list[str] | None,
        Option(
            help="Texts of the trained model: sampled_texts (default), blind, differences, "
            "comparisons (repeatable)."
        ),
    ] = None,
    objective: Annotated[str, Option(help="Objective of the rounds.")] = "dpo",
    model: Annotated[str, Option(help=MODEL)] = "",
    source: Annotated[str | None, Option(help="Source of a new dataset.")] = None,
    profile: Annotated[str, Option("--profile", "-p", help="Profile of a new dataset.")] = "",
    settings: options.Settings = None,
    train_settings: Annotated[
        list[str] | None,
        Option(
            "--train-set", metavar="FIELD=VALUE", help="Set a field of all trainings (repeatable)."
        ),
    ] = None,
    name: Annotated[str, Option(help="Name of the runs: NAME-0 (SFT), NAME-1, ...")] = "iterate",
) -> None:
    """Train in rounds on the model's own texts: build, SFT, then rounds, kept unless worse.

    In each round vLLM serves the last model, which writes texts; checks sort them, and the model
    trains on them. A round is measured by the share of true held-out answers on rendered scenes,
    elsewhere by the held-out loss. After any stop, the same command continues.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        iterated = options.load_dataset().iterate(
            dataset,
            rounds=rounds,
            writes=tuple(writes or ("sampled_texts",)),
            objective=objective,
            model=model,
            source=source,
            profile=profile,
            settings=settings or [],
            name=name,
            train_settings=train_settings or [],
        )
    except (ServerError, StoreError, TrainingError) as error:
        raise type(error)(f"{error}. {AGAIN}") from error
    except KeyboardInterrupt:
        iterated = None
    if iterated and iterated.rounds:
        options.print_table(*iterated.table_lines())
        print(f"Held out: {iterated.measure}. Look at it: {iterated.page}")
    if iterated is None or not iterated.finished:
        options.print_note(f"Stopped. {AGAIN}")
        raise typer.Exit(options.STOPPED)
    print(iterated.conclusion)


@app.command(epilog="Example: `pairwright recipes`")
def recipes(*, as_json: options.AsJson = False) -> None:
    """List training recipes, with the memory that they need. A .yaml file may extend one."""
    from pairwright.flows.training.make_train_config import list_recipes

    listed = list_recipes()
    if as_json:
        options.print_json(listed)
        return
    rows = [
        (
            recipe["name"],
            recipe["objective"],
            f"{recipe['gpus']} x {recipe['memory_gb']} GB",
            f"{recipe['needs_gb']:.1f}" if recipe["needs_gb"] else "",
            recipe["about"],
        )
        for recipe in listed
    ]
    options.print_table(["recipe", "objective", ">GPUs", ">needs", "about"], *rows)


RUN_HEADS = [
    "run",
    "objective",
    "model",
    "from",
    ">version",
    ">step",
    ">loss",
    ">held-out loss",
    ">margin",
    "finished",
]
SCORE_HEADS = [
    "run",
    "benchmark",
    "score",
    "of",
    ">value",
    ">interval",
    ">items",
    "data",
    "asked",
    "at (UTC)",
]


@app.command(epilog="Example: `pairwright runs demo`")
def runs(dataset: options.DatasetUrl, as_json: options.AsJson = False) -> None:
    """List the training runs of a dataset: objective, progress, last measurement.

    Scores of `pairwright evaluate model DIR/runs/NAME` follow below, a line each.
    """
    listed = options.open_dataset(dataset).runs()
    if as_json:
        options.print_json(listed)
        return
    if not listed:
        print(f"No runs yet. Start one with: pairwright train {dataset} --objective sft")
        return
    options.print_table(RUN_HEADS, *(run.cells() for run in listed))
    scores = [score for run in listed for score in run.score_cells()]
    if scores:
        print()
        options.print_table(SCORE_HEADS, *scores)
