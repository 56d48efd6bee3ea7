"""The verbs that show a dataset or settings.

status, report, view, decide, sources, settings, profiles.
"""

import os
import shlex
import shutil
import signal
import sys
import textwrap
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from pairwright.flows.verbs import options
from pairwright.flows.verbs.options import app

if TYPE_CHECKING:
    from pairwright.flows.dataset import Dataset
    from pairwright.flows.versions.show_status import Status
    from pairwright.schemas.decisions import Decisions
    from pairwright.tasks.store.decision_table import Sorted


@app.command(epilog="Example: `pairwright status dataset --json`")
def status(
    dataset: options.DatasetUrl,
    as_json: options.AsJson = False,
    refused: Annotated[
        str, Option(help="List the inputs that this table refused, with names and reasons.")
    ] = "",
    verify: Annotated[
        bool,
        Option(
            "--verify",
            help="Read every file of a dataset, model or export; name what is damaged or missing.",
        ),
    ] = False,
) -> None:
    """Show, per stage, what is done, dropped, failed and pending, and why.

    Exits with 0 even if rows are unfinished.
    """
    from pairwright.flows.versions.show_status import verify_copies

    damaged: Sequence[str] | None = verify_copies(dataset) if verify else None
    if damaged is None:  # a dataset, not a copy of one
        opened = options.open_dataset(dataset)
        if refused:
            _print_refused(opened, refused)
        damaged = ()
        if verify or not refused:
            shown = opened.status(verify=verify)
            damaged = shown.damaged
            if as_json:
                options.print_json(shown.as_json())
            elif not refused:
                _print_status(shown)
    for message in damaged:
        print(f"error: {message}", file=sys.stderr)
    if damaged:
        raise typer.Exit(options.UNFINISHED)
    if verify:
        print("Every file is sound: no byte has changed.", file=sys.stderr)


def _print_refused(dataset: "Dataset", table: str) -> None:
    """Print the inputs that a table refused."""
    rows = list(dataset.refused(table))
    for row in rows:
        print("\t".join(row))
    if not rows:
        print(f"No input of {table} was refused.", file=sys.stderr)


def _print_status(status: "Status") -> None:
    """Print the counts of a dataset's stages, the reasons, and what to do next."""
    options.print_stages(status.counts)
    options.print_reasons(status.counts)
    for line in status.note_lines:
        print(line)
    if status.unfinished:
        print(f"Rows are unfinished. Finish them with: pairwright resume {status.dataset}")


@app.command(epilog="Examples: `pairwright sources`, `pairwright sources jsonl`")
def sources(kind: Annotated[str, Argument(help="One kind, to see its details.")] = "") -> None:
    """List the kinds of sources that a build can read, with an example of each; or explain one."""
    from pairwright.tasks.sources.readers import READERS, explain_reader

    if kind:
        print(explain_reader(kind))
        return
    for reader in sorted(READERS.values(), key=lambda reader: reader.kind):
        print(
            f"{reader.kind}\n    {reader.about}\n    pairwright build {reader.example} --out "
            "dataset"
        )


@app.command(epilog="Examples: `pairwright models`, `pairwright models detectors`")
def models(
    place: Annotated[
        str, Argument(help="One place: embedders, taggers, detectors, segmenters, ...")
    ] = "",
    *,
    as_json: options.AsJson = False,
) -> None:
    """List the models that a profile can name, by place, with their usual weights and licences."""
    from pairwright.flows.pipeline.list_models import list_models

    listed = list_models(place)
    if as_json:
        options.print_json(listed)
        return
    rows: list[tuple[str, ...]] = []
    previous = ""
    for model in listed:
        text = f"{model.description} ({model.plugin})" if model.plugin else model.description
        setting = model.setting if model.setting != previous else ""
        previous = model.setting
        rows.append((setting, model.name, text, model.weights, model.licence))
    options.print_table(["setting", "name", "model", "usual weights", "their licence"], *rows)


@app.command(epilog="Example: `pairwright report dataset`")
def report(
    dataset: options.DatasetUrl,
    pairs: Annotated[int, Option(min=0, help="Number of pairs to show.")] = 60,
    version: options.Version = None,
) -> None:
    """Write pages that show a dataset: pairs, texts, removals, charts. They open from disk."""
    pages = options.open_dataset(dataset, version).report(pairs=pairs)
    shown = (
        f"Pairs shown: {pages.pairs:,}. " if pages.pairs else ""
    )  # a source of preferences brings none
    if "://" in pages.page:  # no browser opens it
        print(
            f"{shown}The pages are at {pages.page}. To look at them: pairwright view "
            f"{shlex.quote(dataset)}"
        )
    else:
        print(f"{shown}Open {pages.page}")


VERDICTS = {"accept": "accepted", "edit": "edited", "reject": "rejected"}
UNKNOWN = (
    "about rows that this version lacks (if they were made again since, decide about them again)"
)
WORDLESS = "that edit a pair without a preference, which has no texts of its own"


@app.command(
    epilog="Examples: `pairwright decide dataset decisions.jsonl`, `pairwright decide dataset "
    "--json`"
)
def decide(
    dataset: options.DatasetUrl,
    file: Annotated[
        str, Argument(help="File that a page of `report` saved: decisions.jsonl.")
    ] = "",
    version: options.Version = None,
    as_json: options.AsJson = False,
) -> None:
    """Store which rows people accepted, rejected or edited.

    Exports and trainings follow. Without a file, count them. Decisions about rows that the version
    lacks are refused, with exit code 1. The last one stored about a row counts.
    """
    opened = options.open_dataset(dataset, version)
    stored = opened.decide(file) if file else None
    decisions = opened.decisions()
    refused = list(_say_refused(stored)) if stored else []
    if as_json:
        count = decisions.count_verdicts()
        result: dict[str, Any] = {
            "dataset": dataset,
            "stored": len(stored.known) if stored else 0,
            "refused": refused,
            "decided": len(decisions),
        }
        result.update({verdict: count.get(verdict, 0) for verdict in VERDICTS})
        options.print_json(result)
    else:
        if stored:
            print(f"Decisions stored: {len(stored.known):,}")
        _print_decisions(dataset, decisions)
    for line in refused:
        print(f"not stored: {line}", file=sys.stderr)
    if refused:
        raise typer.Exit(options.UNFINISHED)


def _say_refused(stored: "Sorted") -> Iterator[str]:
    """Yield which decisions were not stored, and why."""
    for decisions, why in ((stored.unknown, UNKNOWN), (stored.wordless, WORDLESS)):
        if decisions:
            keys = ", ".join(decision.key for decision in decisions)
            yield f"{len(decisions):,} {why}: {keys}"


def _print_decisions(dataset: str, decisions: "Decisions") -> None:
    """Print how many rows people have decided about, and how to export them."""
    count = decisions.count_verdicts()
    verdicts = ", ".join(f"{number:,} {VERDICTS[verdict]}" for verdict, number in count.items())
    shown = f" ({verdicts})" if verdicts else ""
    print(f"Rows that people have decided about: {len(decisions):,}{shown}")
    if decisions:
        print(
            "Exports leave out rejected rows and take edited texts. "
            "To export only accepted or edited rows:"
        )
        print(f"  pairwright export {shlex.quote(dataset)} --to DIR --accepted")


@app.command(epilog="Example: `pairwright view dataset`")
def view(
    dataset: options.DatasetUrl,
    port: Annotated[
        int, Option(min=0, max=65535, help="Port on this machine; 0: any free one.")
    ] = 8765,
    version: options.Version = None,
    annotator: Annotated[
        str, Option(envvar="USER", help="Name under which decisions and judgements are stored.")
    ] = "",
    no_browser: Annotated[bool, Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Look at a dataset in the browser: search, filter, accept, reject and edit. Ctrl-C stops it.

    Pages are served to this machine only, and only with the printed address, which contains a
    token.
    """
    from pairwright.flows.building.progress import show_steps

    def ready(url: str, once: str) -> None:
        print(f"Look at {dataset} at\n\n    {url}\n\nCtrl-C stops this.", flush=True)
        if not no_browser:
            with suppress(webbrowser.Error, OSError):
                webbrowser.open(once)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its files are deleted
    with show_steps("Rows read") as watch:
        busy = options.open_dataset(dataset, version).view(
            port=port, annotator=annotator, ready=ready, watch=watch
        )
    print("\nStopped. Decisions are in the dataset.", file=sys.stderr, flush=True)
    # a thread still makes charts, and all else is closed: its resources would be reported as leaks
    if busy:
        os._exit(options.STOPPED)
    raise typer.Exit(options.STOPPED)


@app.command(
    epilog="Examples: `pairwright settings mining --profile laptop`, `pairwright settings "
    "train.optimiser`"
)
def settings(
    section: Annotated[
        str, Argument(help="`mining`, `run`, ..., `train`, or one setting (default: all).")
    ] = "",
    *,
    profile: options.ProfileName = "scenes",
    as_json: options.AsJson = False,
) -> None:
    """List the settings for `--set` and profiles, with type, range, default and meaning."""
    from pairwright.flows.pipeline.list_settings import as_typed, list_settings

    listed = list_settings(section, profile=profile)
    if as_json:
        options.print_json(listed)
        return
    for command in dict.fromkeys(setting.command for setting in listed):
        values = f"  (values of profile {profile})" if command == "build" else ""
        print(f"pairwright {command} --set NAME=VALUE{values}\n")
        for setting in listed:
            if setting.command != command:
                continue
            value = as_typed(setting.value)
            default = ""
            if setting.value != setting.default:
                default = f" (default {as_typed(setting.default)})"
            allowed = "; ".join(text for text in (setting.type, setting.range) if text)
            _print_wrapped(f"{setting.name} = {value}{default}", "        ")
            _print_wrapped(f"    [{allowed}] {setting.meaning}", "    ")
            print()


@app.command(epilog="Example: `pairwright profiles`")
def profiles(*, as_json: options.AsJson = False) -> None:
    """List the profiles that come with Pairwright.

    Copy one to make your own, and use it as `--profile FILE.yaml`.
    """
    from pairwright.flows.pipeline.list_settings import list_profiles

    listed = list_profiles()
    if as_json:
        options.print_json(listed)
        return
    for profile in listed:
        _print_wrapped(f"{profile['name']:12}{profile['about']}", " " * 12)
        print(f"{'':12}{profile['path']}")


def _print_wrapped(text: str, indent: str) -> None:
    """Print a paragraph at the width of the terminal; without a terminal, on one line."""
    width = shutil.get_terminal_size((sys.maxsize, 0)).columns
    print(
        textwrap.fill(
            text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    )
