"""Show a build's progress: a bar on a terminal, one plain line per shard elsewhere, a table at the end."""

import json
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from rich import progress as bars
from rich.console import Console

from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import Outcome, ShardFailed
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger("pairwright")


class JsonLines(logging.Formatter):
    """Formatter of log lines as JSON objects: time (ISO 8601), level, logger, message, and a traceback if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class LineWatcher:
    """Progress as lines in the log, one per stage and, with ``shards``, per shard."""

    def __init__(self, *, shards: bool = True) -> None:
        self.shards = shards

    def waiting(self, planned: Planned) -> None:
        """Log that another build holds the table."""
        log.info("%s: another build is working on this table; waiting for it", planned.stage.name)

    def begin(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Log the owed rows."""
        rows = sum(shard.stop - shard.start for shard in shards)
        if rows:
            log.info("%s: %d rows owed in %d shards", planned.stage.name, rows, len(shards))

    def advance(self, planned: Planned, outcome: Outcome) -> None:
        """Log the outcome of a shard."""
        if self.shards:
            log_outcome(planned, outcome)

    def end(self, planned: Planned, counts: Counts, seconds: float) -> None:
        """Log the counts of the stage."""
        said = f"in={counts.of} ok={counts.ok} dropped={counts.dropped} failed={counts.failed} pending={counts.pending}"
        log.info("%s: %s %.1f s", planned.stage.name, said, seconds)


class BarWatcher(LineWatcher):
    """Progress as bars on a terminal, one per stage with work."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        done = (bars.TextColumn("[bold]{task.description:<12}"), bars.BarColumn(), bars.MofNCompleteColumn())
        times = (bars.TextColumn("{task.fields[rate]}"), bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
        self.progress = bars.Progress(*done, *times, console=console)

    def begin(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Start a bar if rows are owed."""
        if rows := sum(shard.stop - shard.start for shard in shards):
            self.progress.add_task(planned.stage.name, total=rows, rate="")

    def advance(self, planned: Planned, outcome: Outcome) -> None:
        """Move the bar by the shard's rows."""
        if isinstance(outcome.result, ShardFailed):
            log_outcome(planned, outcome)
        task = self.progress.tasks[-1]
        self.progress.advance(task.id, outcome.shard.stop - outcome.shard.start)
        self.progress.update(task.id, rate=f"{task.completed / max(task.elapsed or 0, 1e-6):,.1f} rows/s")

    def end(self, planned: Planned, counts: Counts, seconds: float) -> None:
        """Do nothing: the bar shows it, and the table follows."""


def draws_bars() -> bool:
    """Return whether bars are drawn: on a terminal, unless quiet or JSON logs are set."""
    if any(isinstance(handler.formatter, JsonLines) for handler in logging.root.handlers):
        return False
    return log.level <= logging.INFO and Console(stderr=True).is_terminal


@contextmanager
def watching() -> Generator[LineWatcher]:
    """Yield the watcher of stages: bars on a terminal, lines elsewhere."""
    if not draws_bars():
        yield LineWatcher()
        return
    bars = BarWatcher(Console(stderr=True))
    with bars.progress:
        yield bars


def say_nothing(_done: int, _total: int) -> None:
    """Ignore progress."""


@contextmanager
def log_steps(what: str) -> Generator[Callable[[int, int], None]]:
    """Yield a progress callback that logs one line per tenth of the steps."""
    said = 0

    def tell(done: int, total: int) -> None:
        nonlocal said
        if (tenths := 10 * done // max(total, 1)) > said:
            said = tenths
            log.info("%s: %d of %d", what, done, total)

    yield tell


@contextmanager
def show_steps(what: str) -> Generator[Callable[[int, int], None]]:
    """Yield a progress callback: a bar on a terminal, lines in the log elsewhere."""
    if not draws_bars():
        with log_steps(what) as tell:
            yield tell
        return
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn())
    with bars.Progress(*columns, bars.TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def log_outcome(planned: Planned, outcome: Outcome) -> None:
    """Log one line about a shard: rows, counts, time and rate, or its error."""
    rows = outcome.shard.stop - outcome.shard.start
    if isinstance(outcome.result, ShardFailed):
        log.error("%s failed: %s", outcome.shard.name, outcome.result.error)
        return
    counts = " ".join(f"{name}={count}" for name, count in sorted(outcome.result.counts.items()))
    rate, read = rows / max(outcome.seconds, 1e-6), ", ".join(planned.stage.reads)
    log.info("%s: %d rows of %s, %s %.1f s %.1f rows/s", outcome.shard.name, rows, read, counts, outcome.seconds, rate)
