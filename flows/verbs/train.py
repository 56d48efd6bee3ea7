"""The verbs of training: train, iterate, recipes, runs."""

import json
import logging
import os
import signal
from typing import Annotated, Any

import typer
from typer import Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app
from pairwright.schemas.errors import ServerError, StoreError, TrainingError

MODEL = "A folder or a name on the Hub; tiny: a small stand-in."
GO_ON = "The same command goes on."


@app.command(
    epilog="Examples: `pairwright train demo --objective sft`, `pairwright train demo --objective adpo --from sft`, "
    "`pairwright train demo --recipe qwen2.5-vl-7b-24gb`, "
    "`torchrun --nproc-per-node 4 -m pairwright train demo --objective dpo --model Qwen/Qwen2.5-VL-3B-Instruct`"
)
def train(
    dataset: options.DatasetUrl,
    objective: Annotated[
        str, Option(help="sft, dpo, mdpo, adavip, adpo or namc (default: the recipe's).")
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
    settings = [*(settings or []), *([f"namc.size={size}"] if size else [])]
    settings += ["model.differential.enabled=true"] if differential else []
    settings += [f"data.table={table}"] if table else []
    settings += [f"data.mix={json.dumps(mix)}"] if mix else []
    from pairwright.flows.pipeline.load_profile import choose_objective
    from pairwright.flows.training.show_training import describe, watching_training

    objective = choose_objective(objective, recipe)
    name = name or objective
    words: dict[str, Any] = {
        "name": name,
        "model": model,
        "start": start,
        "settings": settings,
        "recipe": recipe,
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
            words |= {"dataset": dataset, "objective": objective, "version": version}
            trained = options.run_flow(train_model, words)
        else:
            if not options.is_first():
                logging.getLogger().setLevel(logging.ERROR)
            opened = options.open_dataset(dataset, version)
            with watching_training() as watcher:
                trained = opened.train(objective, **words, watcher=watcher)
    except KeyboardInterrupt:
        options.say(
            "Stopped. The same command goes on from the last checkpoint, or starts again if there is none."
        )
        raise typer.Exit(options.STOPPED) from None
    if not trained.finished:
        options.say(
            f"Stopped at step {trained.step:,} of {trained.steps:,}, with a checkpoint. {GO_ON}"
        )
        raise typer.Exit(options.STOPPED)
    if options.is_first():
        model = f"{trained.folder}/checkpoint"
        again = f"The run {name} is already finished: {model}. Train again under another --name."
        print(again if trained.was_finished else f"Trained, {trained.steps:,} steps: {model}")
        if trained.measured:
            print(f"Held out: {describe(trained.measured)}")
        if trained.page:
            print(f"Look at it: {trained.page}")
        if trained.answers:
            print(f"Score its answers: pairwright evaluate captions {trained.answers}")
        elif not trained.was_finished:
            print(
                f"Start another run from it: pairwright train {dataset} --objective adpo --from {name} --name NAME"
            )
    send(f"{trained.folder}/checkpoint")


@app.command(
    epilog="Examples: `pairwright iterate demo --rounds 3`, `pairwright iterate album --source PHOTOS --profile gpu-80 "
    "--model Qwen/Qwen2-VL-2B-Instruct --set models.policy.launch.command=/.../bin/vllm`"
)
def iterate(
    dataset: options.DatasetUrl,
    rounds: Annotated[int, Option(min=1, help="Rounds after SFT.")] = 3,
    writes: Annotated[
        list[str] | None,
        Option(
            help="Texts of the trained model: sampled_texts (default), differences, comparisons (repeatable)."
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
    """Train in rounds on the model's own texts: build, SFT, then rounds that are kept unless they are worse.

    In each round vLLM serves the last model, which writes texts; checks sort them, and the model
    trains on them. A round is measured by the share of true held-out answers on rendered scenes,
    elsewhere by the held-out loss. After any stop, the same command continues.
    """
    words: dict[str, Any] = {
        "rounds": rounds,
        "writes": tuple(writes or ("sampled_texts",)),
        "objective": objective,
    }
    words |= {
        "model": model,
        "source": source,
        "profile": profile,
        "settings": settings or [],
        "name": name,
    }
    words["train_settings"] = train_settings or []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = options.load_dataset().iterate(dataset, **words)
    except (ServerError, StoreError, TrainingError) as error:
        raise type(error)(f"{error}. {GO_ON}") from error
    except KeyboardInterrupt:
        found = None
    if found and found.rounds:
        options.print_table(*found.cells())
        print(f"Held out: {found.measure}. Look at it: {found.page}")
    if found is None or not found.finished:
        options.say(f"Stopped. {GO_ON}")
        raise typer.Exit(options.STOPPED)
    print(found.conclusion)


@app.command(epilog="Example: `pairwright recipes`")
def recipes(*, as_json: options.AsJson = False) -> None:
    """List training recipes, with the memory that they need. A .yaml file may extend one."""
    from pairwright.flows.training.make_train_config import list_recipes

    found = list_recipes()
    if as_json:
        options.print_json(found)
        return
    rows = [
        (
            *(one["name"], one["objective"], f"{one['gpus']} x {one['memory_gb']} GB"),
            *(f"{one['needs_gb']:.1f}" if one["needs_gb"] else "", one["about"]),
        )
        for one in found
    ]
    options.print_table(["recipe", "objective", ">GPUs", ">needs", "about"], *rows)


@app.command(epilog="Example: `pairwright runs demo`")
def runs(dataset: options.DatasetUrl, as_json: options.AsJson = False) -> None:
    """List the training runs of a dataset: objective, progress, last measurement.

    Scores of `pairwright evaluate model DIR/runs/NAME` follow below, a line each.
    """
    found = options.open_dataset(dataset).runs()
    if as_json:
        options.print_json(found)
    elif found:
        losses = (">loss", ">held-out loss", ">margin")
        heads = ["run", "objective", "model", "from", ">version", ">step", *losses, "finished"]
        options.print_table(heads, *(one.cells() for one in found))
        if scores := [score for one in found for score in one.scores()]:
            print()
            heads = [
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
            options.print_table(heads, *scores)
    else:
        print(f"No runs yet. Start one with: pairwright train {dataset} --objective sft")
