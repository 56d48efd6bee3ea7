"""The command line: one verb a function. Exit codes: 0 all done, 1 rows still owed, 2 wrong usage or configuration."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.errors import ConfigError, PairwrightError, SourceError

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
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the dataset; made if missing, continued if there.")]
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


@app.command(epilog="Example: `pairwright build PHOTOS --out dataset --until mining`")
def build(
    out: Out,
    source: Source = None,
    profile: ProfileName = "scenes",
    settings: Settings = None,
    limit: Limit = None,
    until: Until = "",
) -> None:
    """Build a dataset, or do what an earlier build of it still owes."""
    from flows.build_dataset import Request, with_source
    from flows.load_profile import load_profile
    from flows.stages import stages_until
    from tasks.store.files import Folder

    stages_until(until)
    chosen = with_source(load_profile(profile, settings or []), source)
    _run(Request(folder=Folder(str(out)), profile=chosen, limit=limit, until=until))


@app.command(epilog="Example: `pairwright resume dataset --stage captioning --reason timeout`")
def resume(
    dataset: Dataset,
    stage: Annotated[str, typer.Option("--stage", help="Retry this stage only.")] = "",
    reason: Annotated[str, typer.Option("--reason", help="Retry only rows that failed for this reason.")] = "",
) -> None:
    """Finish what a dataset still owes: a build that was killed, rows that failed."""
    from dataclasses import replace

    from flows.build_dataset import request_of
    from flows.stages import stages_until
    from tasks.store.files import Folder

    stages_until(stage)
    request, _ = request_of(Folder(dataset))
    _run(replace(request, only_stage=stage, only_reason=reason))


@app.command(epilog="Example: `pairwright status dataset --json`")
def status(dataset: Dataset, as_json: AsJson = False) -> None:
    """Show, per stage, what is done, dropped, failed and owed, and why."""
    from flows.build_dataset import look_at
    from tasks.store.files import Folder
    from tasks.store.snapshot import latest_snapshot

    folder = Folder(dataset)
    counts = look_at(folder)
    snapshot = latest_snapshot(folder)
    if as_json:
        stages = [count.as_json() for count in counts]
        print(
            json.dumps({"dataset": dataset, "snapshot": snapshot.number if snapshot else 0, "stages": stages}, indent=1)
        )
        return
    _print_table(counts)
    for count in counts:
        for reason, number in count.reasons.items():
            print(f"  {count.stage}: {number:,} x {reason}")
    if any(count.failed or count.pending for count in counts):
        print(f"Rows are owed. Finish them with: pairwright resume {dataset}")


def _run(request: Any) -> None:
    """Run a build with a progress bar or log lines, print its table, and end with the right exit code."""
    from rich.console import Console

    from flows.build_dataset import build_dataset
    from flows.progress import BarWatcher, LineWatcher
    from tasks.store.pool import Workers

    console = Console(stderr=True)
    if os.environ.get("PREFECT_API_URL"):
        from flows.prefect_build import build_with_prefect

        report = build_with_prefect(request, watcher=LineWatcher())
    else:
        with Workers(request.profile.run.workers) as workers:
            if console.is_terminal:
                watcher = BarWatcher(console)
                with watcher.progress:
                    report = build_dataset(request, run_shards=workers.run, watcher=watcher)
            else:
                report = build_dataset(request, run_shards=workers.run, watcher=LineWatcher())
    _print_table(report.counts, report.seconds)
    _conclude(report, request.folder.url)


def _conclude(report: Any, url: str) -> None:
    if report.is_complete:
        version = f" as version {report.snapshot.number}" if report.snapshot else ""
        print(f"Done: {url}{version}. Look at it with: pairwright report {url}")
        return
    for failure in report.failures:
        print(f"shard {failure.name} failed: {failure.error}", file=sys.stderr)
    owed = sum(count.failed + count.pending for count in report.counts)
    print(f"{owed:,} rows are still owed. Finish them with: pairwright resume {url}", file=sys.stderr)
    raise typer.Exit(OWED)


def _print_table(counts: Any, seconds: Any = ()) -> None:
    from rich.console import Console

    from flows.progress import stage_table

    wide = None if sys.stdout.isatty() else 160
    Console(width=wide).print(stage_table(counts, seconds))


def main() -> None:
    """Run the command line; turn errors into one message and an exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        app()
    except (ConfigError, SourceError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(WRONG)
    except PairwrightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(OWED)
    except KeyboardInterrupt:
        print("Stopped. Nothing that was finished is lost; go on with: pairwright resume DIR", file=sys.stderr)
        sys.exit(STOPPED)
