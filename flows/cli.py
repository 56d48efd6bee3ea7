"""The command line: one verb a function. Exit codes: 0 all done, 1 rows still owed, 2 wrong usage or configuration."""

import json
import logging
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import typer

from schemas.errors import ConfigError, ModelError, PairwrightError, ServerError, SourceError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Build synthetic image-difference and preference datasets. Start with: `pairwright build --out demo`",
)
OWED, WRONG, STOPPED = 1, 2, 130

Source = Annotated[
    str | None, typer.Argument(help="A folder of images, or kind:path. Default: the profile's own source.")
]
Out = Annotated[str, typer.Option("--out", "-o", help="Folder or URL of the dataset; made if missing, else continued.")]
Dataset = Annotated[str, typer.Argument(help="Folder of a dataset (what `build --out` made).")]
ProfileName = Annotated[str, typer.Option("--profile", "-p", help="A profile's name, or a .yaml file.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Set a field: mining.min_similarity=0.8 (repeatable).")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N images of the source.")]
Until = Annotated[
    str, typer.Option("--until", help="Stop after this stage: sources, mining, captioning, ... or a table.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def _print_version(wanted: bool) -> None:  # noqa: FBT001  (Typer calls it so)
    if wanted:
        from importlib.metadata import version

        print(f"pairwright {version('pairwright')}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: `pairwright build PHOTOS --out dataset --until mining`")
def build(
    out: Out,
    source: Source = None,
    profile: ProfileName = "scenes",
    settings: Settings = None,
    limit: Limit = None,
    until: Until = "",
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", help="Keep out images that are nearly those of this source (repeatable)."),
    ] = None,
) -> None:
    """Build a dataset, or do what an earlier build of it still owes."""
    from flows.run_build import make_request

    words: dict[str, Any] = {"profile": profile, "settings": settings or [], "limit": limit, "until": until}
    words["exclude"] = exclude or []
    try:
        request = make_request(out, source, **words)
    except ServerError as error:  # nothing has begun: an address is wrong, or nobody is there
        raise ConfigError(str(error)) from error
    _run(request, "build_dataset", {"out": out, "source": source, **words})


@app.command(epilog="Example: `pairwright resume dataset --stage captioning --reason timeout`")
def resume(
    dataset: Dataset,
    stage: Annotated[str, typer.Option("--stage", help="Retry this stage only.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Retry only rows that failed for this reason.")] = "",
) -> None:
    """Finish what a dataset still owes: a build that was killed, rows that failed."""
    from flows.run_build import resume_request

    request = resume_request(dataset, stage=stage, reason=reason)
    _run(request, "resume_dataset", {"dataset": dataset, "stage": stage, "reason": reason})


@app.command(epilog="Example: `pairwright status dataset --json`")
def status(
    dataset: Dataset,
    as_json: AsJson = False,
    refused: Annotated[str, typer.Option("--refused", help="List what this table refused, and why, with names.")] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Read every part and name the damaged ones.")] = False,
) -> None:
    """Show, per stage, what is done, dropped, failed and owed, and why. Ends with 0 also when rows are owed."""
    from flows.list_refused import list_refused
    from flows.run_build import settled
    from flows.stages import find_table
    from tasks.store.files import Folder
    from tasks.store.snapshot import latest_snapshot

    folder = Folder(dataset)
    table = find_table(refused) if refused else None
    with settled(folder) as (opened, stages):
        snapshot = latest_snapshot(folder)
        damaged = list(opened.damage()) if verify else []
        if table:
            for row in list_refused(opened, [planned for planned, _ in stages], table):
                print("\t".join(row))
        elif as_json:
            counts = [count.as_json() for _, count in stages]
            number = snapshot.number if snapshot else 0
            print(json.dumps({"dataset": dataset, "snapshot": number, "stages": counts}, indent=1))
        else:
            _print_status(dataset, [count for _, count in stages])
    for message in damaged:
        print(f"error: {message}", file=sys.stderr)
    if damaged:
        raise typer.Exit(OWED)
    if verify:
        print("Every part is sound: each byte is as it was written.", file=sys.stderr)


def _print_status(dataset: str, counts: Any) -> None:
    _print_table(counts)
    _print_reasons(counts)
    if any(count.failed or count.pending for count in counts):
        print(f"Rows are owed. Finish them with: pairwright resume {dataset}")


def _print_reasons(counts: Any) -> None:
    for count in counts:
        for reason, number in count.reasons.items():
            print(f"  {count.stage}: {number:,} x {reason}")


@app.command(epilog="Examples: `pairwright fetch --profile gpu`, `pairwright fetch -p laptop --until mining --check`")
def fetch(
    source: Source = None,
    profile: ProfileName = "scenes",
    settings: Settings = None,
    until: Until = "",
    check: Annotated[bool, typer.Option("--check", help="Fetch nothing: only verify what is on this machine.")] = False,
    served: Annotated[
        bool, typer.Option("--served", help="The models that vLLM loads, too (`launch: local`): tens of gigabytes.")
    ] = False,
) -> None:
    """Fetch and verify all weights that a build with the same options loads. Ends with 1 where some are missing."""
    from flows import fetch_weights as flow

    chosen = flow.profile_to_fetch(profile, settings or [], source)
    try:
        done = flow.fetch_weights(chosen, until, fetch=not check, say=print)
        if served:
            done = done.joined(flow.fetch_served(chosen, until, fetch=not check, say=print))
        else:
            flow.tell_served(chosen, until, ask=not check, say=print)
    except KeyboardInterrupt:
        print("Stopped. What has come is kept; the same command goes on with it.", file=sys.stderr)
        raise typer.Exit(STOPPED) from None
    _conclude_fetch(done, profile, check=check)


def _conclude_fetch(done: Any, profile: str, *, check: bool) -> None:
    from rich.console import Console

    from flows.fetch_weights import files_table, places_of

    for fault in done.faults:
        print(f"error: {fault}", file=sys.stderr)
    if done.files:
        Console(width=None if sys.stdout.isatty() else 160).print(files_table(done.files))
        for place in places_of(done.files):
            print(place)
    if done.faults:
        if check:
            print("Fetch what is missing with the same command without --check.", file=sys.stderr)
        raise typer.Exit(OWED)
    print(f"All weights of the {profile} profile are here." if done.files else f"{profile}: no weights to fetch.")


@app.command(epilog="Example: `pairwright refilter dataset --set mining.min_similarity=0.8`")
def refilter(
    dataset: Dataset,
    settings: Settings = None,
    keep: Annotated[bool, typer.Option("--keep", help="Let the dataset have these thresholds from now on.")] = False,
) -> None:
    """Try other mining thresholds on the stored similarities: what pairs come and go. Nothing is embedded again."""
    from flows.refilter_dataset import refilter_dataset, refilter_request
    from tasks.store.files import Folder

    request = refilter_request(Folder(dataset), settings or [])
    with _working(request) as (run_shards, watcher):
        found = refilter_dataset(request, run_shards=run_shards, watcher=watcher, keep=keep)
    _print_failures(found.failures)
    for title, counts in (("Before", found.before), ("After", found.after)):
        print(f"\n{title}")
        _print_table(counts)
        _print_reasons(counts)
    print(f"\nPairs: {found.kept:,} stay, {found.gained:,} come, {found.lost:,} go.")
    if found.failures:
        raise typer.Exit(OWED)
    words = " ".join(f"--set {setting}" for setting in settings or [])
    if keep:
        print(f"Kept. Make what is missing for these pairs with: pairwright resume {dataset}")
    else:
        print(f"The dataset is as it was. To go on with these pairs: pairwright refilter {dataset} {words} --keep")


@app.command(epilog="Examples: `pairwright sources`, `pairwright sources jsonl`")
def sources(kind: Annotated[str, typer.Argument(help="One kind, to see what it reads in detail.")] = "") -> None:
    """List the kinds of sources that a build can read, with an example of each; or explain one."""
    from tasks.sources.readers import READERS, explain_reader

    if kind:
        print(explain_reader(kind))
        return
    for reader in sorted(READERS.values(), key=lambda reader: reader.kind):
        print(f"{reader.kind}\n    {reader.about}\n    pairwright build {reader.example} --out dataset")


@app.command(epilog="Example: `pairwright report dataset`")
def report(
    dataset: Dataset,
    pairs: Annotated[int, typer.Option("--pairs", min=0, help="How many pairs to show.")] = 60,
) -> None:
    """Write pages that show a dataset: pairs, texts, removals, charts. They open from disk."""
    from flows.report_dataset import report_dataset
    from tasks.store.files import Folder

    folder = Folder(dataset)
    pages = report_dataset(folder, pairs=pairs)
    shown = f"Pairs shown: {pages.shown:,}. " if pages.shown else ""  # there are none where preferences were brought
    print(f"{shown}Open {folder.path('report/index.html')}")


@app.command(epilog="Example: `pairwright calibrate dataset`")
def calibrate(
    dataset: Dataset,
    per_bin: Annotated[int, typer.Option("--per-bin", min=1, max=100, help="Pairs shown of each bin.")] = 12,
    width: Annotated[float, typer.Option("--width", min=0.005, max=0.2, help="Width of a bin of similarity.")] = 0.02,
) -> None:
    """Write a page to choose mining's thresholds by looking: pairs at each similarity, to be judged, and yields."""
    from flows.calibrate_dataset import calibrate_dataset
    from tasks.store.files import Folder

    folder = Folder(dataset)
    made = calibrate_dataset(folder, per_bin=per_bin, width=width)
    print(f"Pairs to judge: {made.pairs:,} in {made.bins:,} bins. Open {folder.path('calibrate/index.html')}")


@app.command(epilog="Example: `pairwright export dataset --format hf --to dataset-hf`")
def export(
    dataset: Dataset,
    to: Annotated[str, typer.Option("--to", help="Folder to write: a new name, or an earlier export.")],
    form: Annotated[str, typer.Option("--format", "-f", help="hf: Parquet that `datasets.load_dataset` reads.")] = "hf",
    licence: Annotated[
        list[str] | None,
        typer.Option(
            "--licence",
            help="Only rows all of whose images are under this licence; `unstated`: under none (repeatable).",
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Only rows whose images are from a source of this kind (repeatable)."),
    ] = None,
) -> None:
    """Write a dataset in a form that other programs read."""
    from flows.export_dataset import export_dataset
    from tasks.export.select_rows import Selection
    from tasks.store.files import Folder

    selection = Selection(licences=tuple(licence or ()), sources=tuple(source or ()))
    tally = export_dataset(Folder(dataset), to, form=form, selection=selection)
    sizes = ", ".join(f"{split} {rows:,}" for split, (rows, _) in tally.sizes.items())
    left_out = f"; {tally.left_out:,} others are left out" if tally.left_out else ""
    print(f"{tally.rows:,} preferences ({sizes}) are in {to}{left_out}")


@app.command(
    epilog="Examples: `pairwright train demo --objective sft`, `pairwright train demo --objective adpo --from sft`, "
    "`torchrun --nproc-per-node 4 -m flows.cli train demo --objective dpo --model Qwen/Qwen2.5-VL-3B-Instruct`"
)
def train(
    dataset: Dataset,
    objective: Annotated[str, typer.Option("--objective", help="sft, dpo, mdpo, adavip or adpo.")],
    model: Annotated[str, typer.Option("--model", help="A folder or a name on the Hub; tiny: a small stand-in.")] = "",
    start: Annotated[str, typer.Option("--from", help="The run whose model this one starts from.")] = "",
    name: Annotated[str, typer.Option("--name", help="Of the run; default: the objective's.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Set a field: optimiser.batch=8 (repeatable).")
    ] = None,
) -> None:
    """Train a vision-language model on the preferences of a dataset, or go on with a run that was stopped.

    Ctrl-C ends it after the step in work, with a checkpoint; the same command goes on.
    """
    from flows.train_model import make_config

    words: dict[str, Any] = {"model": model, "start": start, "settings": settings or []}
    name = name or objective
    config = make_config(objective, settings or [], model=model, start=start)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if os.environ.get("PREFECT_API_URL") and os.environ.get("WORLD_SIZE", "1") == "1":
            trained = _train_with_prefect({"dataset": dataset, "objective": objective, "name": name, **words})
        else:
            trained = _train_here(dataset, config, name)
    except KeyboardInterrupt:
        _say("Stopped. The same command goes on from the last checkpoint, or begins anew where there is none.")
        raise typer.Exit(STOPPED) from None
    _conclude_training(trained, dataset, name)


def _train_here(dataset: str, config: Any, name: str) -> Any:
    from flows.show_training import watching_training
    from flows.train_model import train

    if not _is_first():
        logging.getLogger().setLevel(logging.ERROR)
    with watching_training() as watcher:
        return train(dataset, config, name=name, watcher=watcher)


def _train_with_prefect(words: dict[str, Any]) -> Any:
    """Train as a flow run; its own errors come back as they are."""
    from prefect import tags

    from flows.train_dataset import tags_of, train_dataset

    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        with tags(*tags_of(words["dataset"], words["objective"])):
            state = train_dataset(**words, return_state=True)
    except RuntimeError as error:
        raise ServerError(f"{os.environ['PREFECT_API_URL']}: no Prefect server answers: {error}") from error
    found = state.data if state.is_cancelled() else state.result(raise_on_failure=False)
    if isinstance(found, BaseException):
        raise found
    return found


def _conclude_training(trained: Any, dataset: str, name: str) -> None:
    """Say how a training ended and what to do next."""
    from flows.show_training import describe

    if not trained.finished:
        _say(f"Stopped at step {trained.step:,} of {trained.steps:,}, with a checkpoint. The same command goes on.")
        raise typer.Exit(STOPPED)
    if not _is_first():
        return
    if trained.was_finished:
        print(f"The run {name} is finished already: {trained.folder}/checkpoint. Train anew under another --name.")
    else:
        print(f"Trained, {trained.steps:,} steps: {trained.folder}/checkpoint")
    if trained.measured:
        print(f"Held out: {describe(trained.measured)}")
    if trained.page:
        print(f"Look at it: {trained.page}")
    if not trained.was_finished:
        print(f"Start another run from it: pairwright train {dataset} --objective adpo --from {name} --name NAME")


def _say(text: str) -> None:
    if _is_first():
        print(text, file=sys.stderr)


def _is_first() -> bool:
    """Say whether this is the first, or the only, of several processes that train together."""
    return os.environ.get("RANK", "0") == "0"


@app.command(epilog="Example: `pairwright runs demo`")
def runs(dataset: Dataset, as_json: AsJson = False) -> None:
    """List the training runs of a dataset: what they trained, how far they are, what was measured last."""
    from rich.console import Console

    from flows.list_runs import list_runs, runs_table

    found = list_runs(dataset)
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=1))
    elif found:
        Console(width=None if sys.stdout.isatty() else 160).print(runs_table(found))
    else:
        print(f"No runs yet. Begin one with: pairwright train {dataset} --objective sft")


def _run(request: Any, flow: str, words: dict[str, Any]) -> None:
    """Run a build here, or as a flow run where a Prefect server is configured; show its progress and its table."""
    if os.environ.get("PREFECT_API_URL"):
        _run_with_prefect(request, flow, words)
        return
    from flows.run_build import run_build

    with _working(request) as (run_shards, watcher):
        report = run_build(request, run_shards=run_shards, watcher=watcher)
    _print_failures(report.failures)
    _print_table(report.counts, report.seconds)
    _refuse_nothing(report.counts, request)
    _conclude(report.counts, request.folder.url, report.snapshot)


@contextmanager
def _working(request: Any) -> Generator[tuple[Any, Any]]:
    """Give worker processes and who shows their progress; an interrupt ends them in order."""
    from rich.console import Console

    from flows.progress import BarWatcher, LineWatcher
    from tasks.store.pool import Workers

    console = Console(stderr=True)
    bars = BarWatcher(console) if console.is_terminal else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as orderly an end as Ctrl-C
    try:
        with Workers(request.profile.run.workers) as workers, bars.progress if bars else nullcontext():
            yield workers.run, bars or LineWatcher()
    except KeyboardInterrupt:
        print(f"Stopped. Nothing finished is lost; go on with: pairwright resume {request.folder.url}", file=sys.stderr)
        raise typer.Exit(STOPPED) from None


def _print_failures(failures: Any) -> None:
    for failure in failures:
        print(f"shard {failure.name} failed: {failure.error}", file=sys.stderr)


def _run_with_prefect(request: Any, flow: str, words: dict[str, Any]) -> None:
    """Run a build as a flow run; its own errors come back as they are."""
    from prefect import tags

    from flows import build_dataset
    from flows.run_build import look_at
    from tasks.store.snapshot import latest_snapshot

    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        with tags(*build_dataset.tags_of(request)):
            state = getattr(build_dataset, flow)(**words, return_state=True)
    except RuntimeError as error:
        raise ServerError(f"{os.environ['PREFECT_API_URL']}: no Prefect server answers: {error}") from error
    failure = state.result(raise_on_failure=False) if state.is_failed() else None
    if isinstance(failure, PairwrightError):
        raise failure
    counts = look_at(request.folder)
    _print_table(counts)
    _refuse_nothing(counts, request)
    _conclude(counts, request.folder.url, latest_snapshot(request.folder))


def _refuse_nothing(counts: Any, request: Any) -> None:
    """End with 2 where the source gave no image at all: that is no dataset, and scripts should see it."""
    images = next((count for count in counts if count.stage == "images"), None)
    if images and images.of and images.dropped == images.of:
        reasons = ", ".join(f"{number:,} x {reason}" for reason, number in images.reasons.items())
        raise SourceError(
            f"{request.profile.source}: none of its {images.of:,} items gave an image ({reasons}). Is it of the right "
            f"kind (`pairwright sources`)? Which items: pairwright status {request.folder.url} --refused images"
        )


def _conclude(counts: Any, url: str, snapshot: Any) -> None:
    """Say how the build ended and what to do next; exit with 1 where rows are owed."""
    empty = next((count for count in counts if count.of and count.dropped == count.of), None)
    owed = sum(count.failed + count.pending for count in counts)
    if empty and not counts[-1].ok and not owed:
        reasons = ", ".join(empty.reasons)
        after = "" if empty is counts[-1] else ": the tables after it are empty"
        print(f"Note: {empty.stage} dropped all of its {empty.of:,} rows ({reasons}){after}.")
    if owed:
        print(f"{owed:,} rows are still owed. Finish them with: pairwright resume {url}", file=sys.stderr)
        raise typer.Exit(OWED)
    version = f" as version {snapshot.number}" if snapshot else ""
    print(f"Done: {url}{version}. Look at it with: pairwright report {url}")


def _print_table(counts: Any, seconds: Any = ()) -> None:
    from rich.console import Console

    from flows.progress import stage_table

    wide = None if sys.stdout.isatty() else 160
    Console(width=wide).print(stage_table(counts, seconds))


def main() -> None:
    """Run the command line; turn errors into one message and an exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("faiss").setLevel(logging.WARNING)  # it tells which of its builds it tries
    logging.getLogger("huggingface_hub").propagate = False  # it prints what it says itself
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it tells each request, signed addresses in full
    try:
        app()
    except (ConfigError, SourceError, ModelError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(WRONG)
    except PairwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(OWED)
    except KeyboardInterrupt:
        sys.exit(STOPPED)


if __name__ == "__main__":
    main()
