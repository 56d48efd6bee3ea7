"""Say how a build goes and how it ended, and what to do next."""

import signal
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from pairwright.flows.verbs.options import OWED, STOPPED
from pairwright.schemas.errors import SourceError

if TYPE_CHECKING:
    from pairwright.flows.dataset import Dataset
    from pairwright.tasks.store.ledger import Counts
    from pairwright.tasks.store.pool import ShardFailed


@contextmanager
def stopping(dataset: str) -> Generator[None]:
    """End in order what is interrupted, and say how to go on."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as orderly an end as Ctrl-C
    try:
        yield
    except KeyboardInterrupt:
        go_on = f" Nothing finished is lost; go on with: pairwright resume {dataset}" if dataset else ""
        print(f"Stopped.{go_on}", file=sys.stderr)
        raise typer.Exit(STOPPED) from None


def conclude(dataset: "Dataset") -> None:
    """Say how a build ended and what to do next; exit with 1 where rows are owed or its gates held it back.

    Raises:
        SourceError: no image came of its source.
    """
    if report := dataset.outcome:
        print_failures(report.failures)
        print_table(report.counts, report.seconds)
    status = report.status(dataset.url) if report else dataset.status()  # where Prefect ran it, it is looked up
    if not report:
        print_table(status.counts)
    _refuse_nothing(status.counts, dataset)
    if report and report.stopped:
        print(report.stopped, file=sys.stderr)
    _print_empty(status.counts, owed=status.owed)
    for line in status.owing:
        print(line, file=sys.stderr)
    if status.owed:
        print(
            f"{status.owed:,} rows are still owed. Finish them with: pairwright resume {dataset.url}", file=sys.stderr
        )
    for line in status.held:
        print(line, file=sys.stderr)
    if status.owed or status.held:
        raise typer.Exit(OWED)
    version = f" as version {status.version}" if status.version else ""
    print(f"Done: {dataset.url}{version}. Look at it with: pairwright report {dataset.url}")


def _refuse_nothing(counts: "Sequence[Counts]", dataset: "Dataset") -> None:
    """End with 2 where the source gave no image at all: that is no dataset, and scripts should see it."""
    images = next((count for count in counts if count.stage == "images"), None)
    if images and images.of and images.dropped == images.of:
        reasons = ", ".join(f"{number:,} x {reason}" for reason, number in images.reasons.items())
        raise SourceError(
            f"{dataset.profile.source}: none of its {images.of:,} items gave an image ({reasons}). Is it of the right "
            f"kind (`pairwright sources`)? Which items: pairwright status {dataset.url} --refused images"
        )


def _print_empty(counts: "Sequence[Counts]", *, owed: int) -> None:
    """Name the stage that dropped all of its rows, so that those after it had none."""
    empty = next((count for count in counts if count.of and count.dropped == count.of), None)
    if empty and not counts[-1].ok and not owed:
        after = "" if empty is counts[-1] else ": the tables after it are empty"
        print(f"Note: {empty.stage} dropped all of its {empty.of:,} rows ({', '.join(empty.reasons)}){after}.")


def print_failures(failures: "Iterable[ShardFailed]") -> None:
    """Name the shards that failed, and why."""
    for failure in failures:
        print(f"shard {failure.name} failed: {failure.error}", file=sys.stderr)


def print_table(counts: "Sequence[Counts]", seconds: Sequence[float] = ()) -> None:
    """Print what each stage has done, as a table."""
    from rich.console import Console

    from pairwright.flows.progress import stage_table

    wide = None if sys.stdout.isatty() else 160
    Console(width=wide).print(stage_table(counts, seconds))


def print_reasons(counts: "Sequence[Counts]") -> None:
    """Print why rows were dropped or failed."""
    for count in counts:
        for reason, number in count.reasons.items():
            print(f"  {count.stage}: {number:,} x {reason}")
