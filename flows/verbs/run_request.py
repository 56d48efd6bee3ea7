"""Run what was asked for, show how it goes, say how it ended and what to do next."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import typer

from pairwright.flows.verbs.options import OWED, STOPPED
from pairwright.schemas.errors import PairwrightError, ServerError, SourceError


def run_request(request: Any, flow: str, words: dict[str, Any]) -> None:
    """Run a build here, or as a flow run where a Prefect server is configured; show its progress and its table."""
    if os.environ.get("PREFECT_API_URL"):
        _run_with_prefect(request, flow, words)
    else:
        _run_here(request)


def _run_here(request: Any) -> None:
    from pairwright.flows.run_build import run_build

    with working(request) as (run_shards, watcher):
        report = run_build(request, run_shards=run_shards, watcher=watcher)
    print_failures(report.failures)
    print_table(report.counts, report.seconds)
    _refuse_nothing(report.counts, request)
    if report.stopped:
        print(report.stopped, file=sys.stderr)
    conclude(report.counts, request.folder.url, report.snapshot, report.verdict)


@contextmanager
def working(request: Any) -> Generator[tuple[Any, Any]]:
    """Give worker processes and who shows their progress; an interrupt ends them in order."""
    from pairwright.flows import work_here

    with stopping(request.folder.url), work_here.working(request) as both:
        yield both


@contextmanager
def stopping(dataset: str) -> Generator[None]:
    """End in order what is interrupted, and say how to go on."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as orderly an end as Ctrl-C
    try:
        yield
    except KeyboardInterrupt:
        print(f"Stopped. Nothing finished is lost; go on with: pairwright resume {dataset}", file=sys.stderr)
        raise typer.Exit(STOPPED) from None


def _run_with_prefect(request: Any, flow: str, words: dict[str, Any]) -> None:
    """Run a build as a flow run; its own errors come back as they are.

    Where the server is lost the shards go on without it; what is left then is done here.
    """
    import httpx

    from pairwright.flows import build_dataset
    from pairwright.flows.publish_version import now
    from pairwright.flows.version import open_present
    from pairwright.tasks.store.gates import read_verdict
    from pairwright.tasks.store.snapshot import latest_snapshot

    state, began = None, now()
    try:
        state = getattr(build_dataset, flow)(**words, return_state=True)
    except RuntimeError as error:
        raise ServerError(f"{os.environ['PREFECT_API_URL']}: no Prefect server answers: {error}") from error
    except httpx.HTTPError as error:
        print(f"{os.environ['PREFECT_API_URL']}: Prefect's server is gone ({error}), the rows are not", file=sys.stderr)
    failure = state.result(raise_on_failure=False) if state and state.is_failed() else None
    if isinstance(failure, PairwrightError):
        raise failure
    verdict = read_verdict(request.folder)
    if state is None and (verdict is None or verdict.began < began):
        _run_here(request)
        return
    counts = open_present(request.folder).counts()
    print_table(counts)
    _refuse_nothing(counts, request)
    conclude(counts, request.folder.url, latest_snapshot(request.folder), verdict)


def _refuse_nothing(counts: Any, request: Any) -> None:
    """End with 2 where the source gave no image at all: that is no dataset, and scripts should see it."""
    images = next((count for count in counts if count.stage == "images"), None)
    if images and images.of and images.dropped == images.of:
        reasons = ", ".join(f"{number:,} x {reason}" for reason, number in images.reasons.items())
        raise SourceError(
            f"{request.profile.source}: none of its {images.of:,} items gave an image ({reasons}). Is it of the right "
            f"kind (`pairwright sources`)? Which items: pairwright status {request.folder.url} --refused images"
        )


def conclude(counts: Any, url: str, snapshot: Any, verdict: Any) -> None:
    """Say how the build ended and what to do next; exit with 1 where rows are owed or its gates held it back."""
    from pairwright.flows.say_outcome import say_held, say_owed

    empty = next((count for count in counts if count.of and count.dropped == count.of), None)
    owed = sum(count.failed + count.pending for count in counts)
    if empty and not counts[-1].ok and not owed:
        reasons = ", ".join(empty.reasons)
        after = "" if empty is counts[-1] else ": the tables after it are empty"
        print(f"Note: {empty.stage} dropped all of its {empty.of:,} rows ({reasons}){after}.")
    if owed:
        for line in say_owed(counts, url):
            print(line, file=sys.stderr)
        print(f"{owed:,} rows are still owed. Finish them with: pairwright resume {url}", file=sys.stderr)
    held = list(say_held(verdict, snapshot.number if snapshot else 0, url))
    for line in held:
        print(line, file=sys.stderr)
    if owed or held:
        raise typer.Exit(OWED)
    version = f" as version {snapshot.number}" if snapshot else ""
    print(f"Done: {url}{version}. Look at it with: pairwright report {url}")


def print_failures(failures: Any) -> None:
    """Name the shards that failed, and why."""
    for failure in failures:
        print(f"shard {failure.name} failed: {failure.error}", file=sys.stderr)


def print_table(counts: Any, seconds: Any = ()) -> None:
    """Print what each stage has done, as a table."""
    from rich.console import Console

    from pairwright.flows.progress import stage_table

    wide = None if sys.stdout.isatty() else 160
    Console(width=wide).print(stage_table(counts, seconds))


def print_reasons(counts: Any) -> None:
    """Print why rows were dropped or failed."""
    for count in counts:
        for reason, number in count.reasons.items():
            print(f"  {count.stage}: {number:,} x {reason}")
