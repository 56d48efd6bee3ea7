"""Shared parts of the verbs: the application, options and exit codes; the last lines of a build."""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from pairwright.schemas.errors import ServerError, SourceError

if TYPE_CHECKING:
    from pairwright.flows.dataset import Dataset
    from pairwright.tasks.store.executor import ShardFailed
    from pairwright.tasks.store.ledger import Counts

# the application, with which the modules of this folder register their verbs
app = typer.Typer(rich_markup_mode=None)

UNFINISHED = 1
WRONG = 2
STOPPED = 130


EMPTY_NAME = "the name is empty; give a folder or a URL"


def refuse_empty(
    context: typer.Context, param: typer.CallbackParam, value: str | None
) -> str | None:
    """Refuse an empty name of a folder, most likely an unset shell variable."""
    source = context.get_parameter_source(param.name or "")
    if value == "" and source and source.name == "COMMANDLINE":
        raise typer.BadParameter(EMPTY_NAME)
    return value


def refuse_empty_names(values: list[str] | None) -> list[str] | None:
    """Refuse an empty name among several."""
    if values and "" in values:
        raise typer.BadParameter(EMPTY_NAME)
    return values


def load_plugins(files: list[str]) -> None:
    """Load the files of `--plugin`."""
    if files:
        from pairwright.schemas.plugins import load_plugin

        for file in files:
            load_plugin(file)


Source = Annotated[
    str | None,
    Argument(
        callback=refuse_empty,
        help="A folder of images, or kind:path (default: the profile's own source).",
    ),
]
Sources = Annotated[
    list[str] | None,
    Argument(
        callback=refuse_empty_names,
        metavar="SOURCE...",
        help="Folders of images, or kind:path (default: the profile's own source).",
    ),
]
Planted = Annotated[
    int,
    Option(
        "--planted",
        metavar="NUMBER",
        min=0,
        help="Plant things into this many photographs, too: pairs whose differences are known.",
    ),
]
Out = Annotated[
    str,
    Option(
        "--out",
        "-o",
        metavar="FOLDER",
        callback=refuse_empty,
        help="Folder or URL of a dataset, old or new.",
    ),
]
DatasetUrl = Annotated[
    str, Argument(callback=refuse_empty, help="Folder of a dataset (of `build --out`).")
]
ProfileName = Annotated[str, Option("--profile", "-p", help="Name of a profile, or a .yaml file.")]
AnyProfile = Annotated[
    str,
    Option(
        "--profile",
        "-p",
        help="Name of a profile, or a .yaml file (default: the dataset's own, or all).",
    ),
]
Settings = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="FIELD=VALUE", help="Set a field: mining.min_similarity=0.8 (repeatable)."
    ),
]
Limit = Annotated[
    int | None, Option("--limit", min=1, help="Only the first N images of each source.")
]
Until = Annotated[
    str,
    Option(
        "--until",
        metavar="STAGE",
        help="Stop after this stage: sources, mining, captioning, ... or a table.",
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON for scripts.")]

PushToHub = Annotated[
    str,
    Option(
        metavar="OWNER/NAME",
        help="Push the folder to this repository of the Hub, created if missing.",
    ),
]
Private = Annotated[
    bool, Option("--private", help="With --push-to-hub: only its owner may see it.")
]
Version = Annotated[
    int | None, Option("--version", min=1, help="Number of a version (default: the newest).")
]


def load_dataset() -> "type[Dataset]":
    """Return ``Dataset``; loaded on use, so that a refused option waits for no stage."""
    from pairwright.flows.dataset import Dataset

    return Dataset


def open_dataset(url: str, version: int | None = None) -> "Dataset":
    """Open a dataset."""
    return load_dataset().open(url, version)


def print_note(text: str) -> None:
    """Print to standard error, in the first of several processes only."""
    if is_first():
        print(text, file=sys.stderr)


def is_first() -> bool:
    """Return whether this is the first, or the only, process of a training."""
    return os.environ.get("RANK", "0") == "0"


def run_flow(flow: Any, kwargs: dict[str, Any]) -> Any:
    """Run a flow on the configured Prefect server; return its result, or raise its error."""
    from prefect.exceptions import CrashedRun, FailedRun

    try:
        state = flow(**kwargs, return_state=True)
    except RuntimeError as error:
        raise ServerError(
            f"{os.environ['PREFECT_API_URL']}: no Prefect server answers: {error}"
        ) from error
    result = state.data if state.is_cancelled() else state.result(raise_on_failure=False)
    if isinstance(result, BaseException) and not isinstance(result, CrashedRun | FailedRun):
        raise result
    return result


def print_json(result: Any) -> None:
    """Print an object or a list as JSON."""
    print(json.dumps(result, indent=1, default=asdict))


@contextmanager
def stopping(dataset: str) -> Generator[None]:
    """End an interrupted command in order, with a line on how to continue."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled like Ctrl-C
    try:
        yield
    except KeyboardInterrupt:
        hint = ""
        if dataset:
            hint = f" Nothing finished is lost; go on with: pairwright resume {dataset}"
        print(f"Stopped.{hint}", file=sys.stderr)
        raise typer.Exit(STOPPED) from None


def conclude(dataset: "Dataset") -> None:
    """Print how a build ended; exit with 1 if rows are unfinished or gates failed."""
    report = dataset.outcome
    if report:
        status = report.status(dataset.url)
        print_failures(report.failures)
        print_stages(status.counts, report.seconds)
    else:  # Prefect ran it
        status = dataset.status()
        print_stages(status.counts)
    for count in status.answers:
        print(count)
    _check_images(dataset, status.counts)
    lines: list[str] = []
    if report and report.stopped and not status.held:
        lines.append(report.stopped)
    lines += status.unfinished_lines
    if status.unfinished:
        lines.append(
            f"{status.unfinished:,} rows are unfinished. Finish them with: pairwright resume "
            f"{dataset.url}"
        )
    for line in (*lines, *status.held):
        print(line, file=sys.stderr)
    if status.unfinished or status.held:
        raise typer.Exit(UNFINISHED)
    version = f" as version {status.version}" if status.version else ""
    print(f"Done: {dataset.url}{version}. Look at it with: pairwright report {dataset.url}")


def _check_images(dataset: "Dataset", counts: "Sequence[Counts]") -> None:
    """Exit with 2 if no item of the source gave an image, so that scripts notice."""
    for images in counts:
        if images.stage != "images" or not images.of or images.dropped != images.of:
            continue
        reasons = ", ".join(f"{number:,} x {reason}" for reason, number in images.reasons.items())
        raise SourceError(
            f"{', '.join(dataset.profile.all_sources)}: none of its {images.of:,} items gave an "
            f"image ({reasons}). Check its kind (`pairwright sources`). To list the items: "
            f"pairwright status {dataset.url} --refused images"
        )


def print_failures(failures: "Iterable[ShardFailed]") -> None:
    """Print the failed shards with their errors."""
    for failure in failures:
        print(f"shard {failure.name} failed: {failure.error}", file=sys.stderr)


def print_table(heads: Sequence[object], *rows: Sequence[object]) -> None:
    """Print a table; columns with a head that begins with ``>`` are right-aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, show_header=any(heads))
    for head in map(str, heads):
        justify = "right" if head.startswith(">") else "left"
        table.add_column(head.removeprefix(">"), justify=justify, overflow="fold")
    for row in rows:
        cells: list[Text | str] = []
        for cell in row:
            if isinstance(cell, Text):
                cells.append(cell)
            else:
                cells.append(f"{cell:,}" if isinstance(cell, int) else str(cell))
        table.add_row(*cells)
    width = None if sys.stdout.isatty() else 160
    Console(width=width, markup=False, highlight=False).print(table)


def print_stages(counts: "Sequence[Counts]", seconds: Sequence[float] = ()) -> None:
    """Print the counts of each stage that had input."""
    from pairwright.flows.versions.show_status import stage_table

    heads, *rows = stage_table(counts, seconds)
    print_table([heads[0], *(f">{head}" for head in heads[1:-1]), heads[-1]], *rows)


def shown_size(size: float) -> str:
    """Return a number of bytes in a readable unit."""
    from rich.filesize import decimal

    return decimal(int(size))


def print_reasons(counts: "Sequence[Counts]") -> None:
    """Print why rows were dropped or failed."""
    for count in counts:
        for reason, number in count.reasons.items():
            print(f"  {count.stage}: {number:,} x {reason}")


def to_hub(
    repository: str,
    *,
    kind: Literal["dataset", "model"] = "dataset",
    private: bool = False,
    revision: str = "",
) -> Callable[[str], None]:
    """Return a function that pushes a folder to the Hub; without a name it does nothing.

    Access is checked before.
    """
    if not repository and private:
        raise typer.BadParameter("--private needs --push-to-hub")
    if not repository:
        return lambda _folder: None
    from pairwright.tasks.export.push_to_hub import Destination, check_destination, push_folder

    destination = Destination(
        repository=repository, kind=kind, private=private, branch=revision or "main"
    )
    check_destination(destination)

    def send(folder: str) -> None:
        try:
            pushed = push_folder(Path(folder), destination)
        except KeyboardInterrupt:
            print(
                "Stopped. Files already sent are kept; the same command continues.", file=sys.stderr
            )
            raise typer.Exit(STOPPED) from None
        seen_by = "private" if pushed.private else "public"
        removed = ""
        if pushed.removed:
            removed = f"; {pushed.removed:,} of an earlier one were removed"
        size = shown_size(pushed.size_bytes)
        print(f"{pushed.address} ({seen_by}) has all {pushed.files:,} files ({size}){removed}")

    return send
