"""The verbs of training: train, iterate, recipes, runs."""

import json
import logging
import os
import signal
from dataclasses import asdict
from typing import Annotated, Any

import typer

from pairwright.flows.verbs.options import (
    STOPPED,
    AsJson,
    DatasetUrl,
    Private,
    PushToHub,
    Settings,
    Version,
    app,
    is_first,
    load_dataset,
    open_dataset,
    print_table,
    run_flow,
    say,
    to_hub,
)
from pairwright.schemas.errors import ServerError, StoreError, TrainingError

GO_ON = "The same command goes on."


@app.command(
    epilog="Examples: `pairwright train demo --objective sft`, `pairwright train demo --objective adpo --from sft`, "
    "`pairwright train demo --recipe qwen2.5-vl-7b-24gb`, "
    "`torchrun --nproc-per-node 4 -m pairwright train demo --objective dpo --model Qwen/Qwen2.5-VL-3B-Instruct`"
)
def train(
    dataset: DatasetUrl,
    objective: Annotated[
        str, typer.Option("--objective", help="sft, dpo, mdpo, adavip, adpo or namc (default: the recipe's).")
    ] = "",
    recipe: Annotated[
        str,
        typer.Option("--recipe", help="Recipe: a name from `pairwright recipes`, or a .yaml file."),
    ] = "",
    model: Annotated[str, typer.Option("--model", help="A folder or a name on the Hub; tiny: a small stand-in.")] = "",
    start: Annotated[str, typer.Option("--from", help="Run to start from.")] = "",
    name: Annotated[str, typer.Option("--name", help="Run name (default: the objective).")] = "",
    size: Annotated[str, typer.Option("--size", help="namc: size of the model, small or paper.")] = "",
    differential: Annotated[
        bool,
        typer.Option(
            "--differential",
            help="sft: add M3Diff's differential perception to the model. vLLM cannot serve it.",
        ),
    ] = False,
    table: Annotated[
        str,
        typer.Option("--table", help="sft: preferences (default), differences, comparisons, questions or captions."),
    ] = "",
    mix: Annotated[
        list[str] | None,
        typer.Option("--mix", help="sft: further rows: FILE:SHARE of LLaVA's JSON, or DATASET:SHARE (repeatable)."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a field: optimiser.per_device_train_batch_size=8 (repeatable)."),
    ] = None,
    version: Version = None,
    push_to_hub: PushToHub = "",
    private: Private = False,
) -> None:
    """Train a vision-language model, or NAMC, on a table of a dataset, or continue a stopped run.

    Ctrl-C stops it after the current step, with a checkpoint; the same command continues.
    """
    settings = [*(settings or []), *([f"namc.size={size}"] if size else [])]
    settings += ["model.differential.enabled=true"] if differential else []
    settings += [f"data.table={table}"] if table else []
    settings += [f"data.mix={json.dumps(mix)}"] if mix else []
    from pairwright.flows.load_profile import choose_objective

    objective = choose_objective(objective, recipe)
    words: dict[str, Any] = {"model": model, "start": start, "settings": settings, "recipe": recipe}
    name = name or objective
    send = to_hub(push_to_hub if is_first() else "", kind="model", private=private and is_first())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if os.environ.get("PREFECT_API_URL") and os.environ.get("WORLD_SIZE", "1") == "1":
            words |= {"dataset": dataset, "objective": objective, "version": version}
            from pairwright.flows.run_in_prefect import train_model

            logging.getLogger("httpx").setLevel(logging.WARNING)
            trained = _result_of(run_flow(train_model, {"name": name, **words}))
        else:
            from pairwright.flows.show_training import watching_training

            if not is_first():
                logging.getLogger().setLevel(logging.ERROR)
            opened = open_dataset(dataset, version)
            with watching_training() as watcher:
                trained = opened.train(objective, name=name, **words, watcher=watcher)
    except KeyboardInterrupt:
        say("Stopped. The same command goes on from the last checkpoint, or starts again if there is none.")
        raise typer.Exit(STOPPED) from None
    _conclude_training(trained, dataset, name)
    send(f"{trained.folder}/checkpoint")


def _conclude_training(trained: Any, dataset: str, name: str) -> None:
    from pairwright.flows.show_training import describe

    if not trained.finished:
        say(f"Stopped at step {trained.step:,} of {trained.steps:,}, with a checkpoint. The same command goes on.")
        raise typer.Exit(STOPPED)
    if not is_first():
        return
    if trained.was_finished:
        print(f"The run {name} is already finished: {trained.folder}/checkpoint. Train again under another --name.")
    else:
        print(f"Trained, {trained.steps:,} steps: {trained.folder}/checkpoint")
    if trained.measured:
        print(f"Held out: {describe(trained.measured)}")
    if trained.page:
        print(f"Look at it: {trained.page}")
    if trained.was_finished:
        return
    if trained.answers:
        print(f"Score its answers: pairwright evaluate captions {trained.answers}")
    else:
        print(f"Start another run from it: pairwright train {dataset} --objective adpo --from {name} --name NAME")


@app.command(
    epilog="Examples: `pairwright iterate demo --rounds 3`, `pairwright iterate album --source PHOTOS --profile gpu-80 "
    "--model Qwen/Qwen2-VL-2B-Instruct --set models.policy.launch.command=/.../bin/vllm`"
)
def iterate(
    dataset: DatasetUrl,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds after SFT.")] = 3,
    writes: Annotated[
        list[str] | None,
        typer.Option(
            "--writes",
            help="Texts that the trained model writes: sampled_texts (rejected ones; default), differences or "
            "comparisons (repeatable).",
        ),
    ] = None,
    objective: Annotated[str, typer.Option("--objective", help="Objective of the rounds.")] = "dpo",
    model: Annotated[str, typer.Option("--model", help="A folder or a name on the Hub; tiny: a small stand-in.")] = "",
    source: Annotated[str | None, typer.Option("--source", help="Source of a new dataset.")] = None,
    profile: Annotated[str, typer.Option("--profile", "-p", help="Profile of a new dataset.")] = "",
    settings: Settings = None,
    train_settings: Annotated[
        list[str] | None,
        typer.Option("--train-set", metavar="FIELD=VALUE", help="Set a field of all trainings (repeatable)."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the runs: NAME-0 (SFT), NAME-1, ...")] = "iterate",
) -> None:
    """Train in rounds on the model's own texts: build, SFT, then rounds that are kept unless they are worse.

    In each round vLLM serves the last model, which writes texts; checks sort them, and the model trains on them. A
    round is measured by the share of true held-out answers on rendered scenes, elsewhere by the held-out loss. After
    any stop, the same command continues.
    """
    words: dict[str, Any] = {"rounds": rounds, "writes": tuple(writes or ("sampled_texts",)), "objective": objective}
    words |= {"model": model, "source": source, "profile": profile, "settings": settings or [], "name": name}
    words["train_settings"] = train_settings or []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if os.environ.get("PREFECT_API_URL"):
            from pairwright.flows.run_in_prefect import iterate_rounds

            found = _result_of(run_flow(iterate_rounds, {"dataset": dataset, **words}))
        else:
            found = load_dataset().iterate(dataset, **words)
    except (ServerError, StoreError, TrainingError) as error:
        raise type(error)(f"{error}. {GO_ON}") from error
    except KeyboardInterrupt:
        found = None
    if found and found.rounds:
        print_table(*found.cells())
        print(f"Held out: {found.measure}. Look at it: {found.page}")
    if found is None or not found.finished:
        say(f"Stopped. {GO_ON}")
        raise typer.Exit(STOPPED)
    print(found.conclusion)


def _result_of(state: Any) -> Any:
    """Return the result of a flow run; its error is raised."""
    found = state.data if state.is_cancelled() else state.result(raise_on_failure=False)
    if isinstance(found, BaseException):
        raise found
    return found


@app.command(epilog="Example: `pairwright recipes`")
def recipes(*, as_json: AsJson = False) -> None:
    """List training recipes, with the memory that they need. A .yaml file may extend one."""
    from pairwright.flows.make_train_config import list_recipes

    found = list_recipes()
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    gpus = [f"{one.gpus} x {one.memory_gb} GB" for one in found]
    needs = [f"{one.needs_gb:.1f}" if one.needs_gb else "" for one in found]
    rows = zip(found, gpus, needs, strict=True)
    heads = ["recipe", "objective", ">GPUs", ">needs", "about"]
    print_table(heads, *((one.name, one.objective, of, need, one.about) for one, of, need in rows))


@app.command(epilog="Example: `pairwright runs demo`")
def runs(dataset: DatasetUrl, as_json: AsJson = False) -> None:
    """List the training runs of a dataset: objective, progress, last measurement.

    Scores of `pairwright evaluate model DIR/runs/NAME` follow below, a line each.
    """
    found = open_dataset(dataset).runs()
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    elif found:
        heads = [
            *("run", "objective", "model", "from", ">version", ">step"),
            *(">loss", ">held-out loss", ">margin", "finished"),
        ]
        print_table(heads, *(one.cells() for one in found))
        if scores := [score for one in found for score in one.scores()]:
            print()
            heads = ["run", "benchmark", "score", "of", ">value", ">interval", ">items", "data", "asked", "at (UTC)"]
            print_table(heads, *scores)
    else:
        print(f"No runs yet. Start one with: pairwright train {dataset} --objective sft")
