"""Show a build's progress: a bar on a terminal, one plain line per shard elsewhere.

Numbers for Prometheus on request. They are served on 127.0.0.1 only, and only where
`run.metrics_port` is set; needs the extra "metrics".
"""

import json
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich import progress as bars
from rich.console import Console

from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.answers import TOKENS
from pairwright.tasks.store.executor import Outcome, ShardFailed
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.part import Part, read_about
from pairwright.tasks.store.shard import ShardDone, ShardRef
from pairwright.tasks.store.stage import Planned

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger("pairwright")
HOST = "127.0.0.1"
INSTALL = "python -m pip install -c constraints.txt -e '.[metrics]'"


class JsonLines(logging.Formatter):
    """Formatter of log lines as JSON objects.

    Time (ISO 8601), level, logger, message, and a traceback if any.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return a record's line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class LineWatcher:
    """Progress as lines in the log, one per stage and, with ``shards``, per shard."""

    def __init__(self, *, shards: bool = True) -> None:
        self.shards = shards

    def note_waiting(self, planned: Planned) -> None:
        """Log that another build holds the table."""
        log.info("%s: another build is working on this table; waiting for it", planned.stage.name)

    def begin_stage(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Log the unfinished rows."""
        rows = _count_inputs(shards)
        if rows:
            log.info("%s: %d unfinished rows in %d shards", planned.stage.name, rows, len(shards))

    def finish_shard(self, planned: Planned, outcome: Outcome) -> None:
        """Log the outcome of a shard."""
        if self.shards:
            log_outcome(planned, outcome)

    def finish_stage(self, planned: Planned, counts: Counts, seconds: float) -> None:
        """Log the counts of the stage."""
        log.info(
            "%s: in=%d ok=%d dropped=%d failed=%d pending=%d %.1f s",
            planned.stage.name,
            counts.of,
            counts.ok,
            counts.dropped,
            counts.failed,
            counts.pending,
            seconds,
        )


class BarWatcher(LineWatcher):
    """Progress as bars on a terminal, one per stage with work."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.progress = bars.Progress(
            bars.TextColumn("[bold]{task.description:<12}"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[rate]}"),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
            console=console,
        )

    def begin_stage(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Start a bar if rows are unfinished."""
        rows = _count_inputs(shards)
        if rows:
            self.progress.add_task(planned.stage.name, total=rows, rate="")

    def finish_shard(self, planned: Planned, outcome: Outcome) -> None:
        """Move the bar by the shard's rows."""
        if isinstance(outcome.result, ShardFailed):
            log_outcome(planned, outcome)
        task = self.progress.tasks[-1]
        self.progress.advance(task.id, _count_inputs([outcome.shard]))
        rate = task.completed / max(task.elapsed or 0, 1e-6)
        self.progress.update(task.id, rate=f"{rate:,.1f} rows/s")

    def finish_stage(self, planned: Planned, counts: Counts, seconds: float) -> None:
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
    watcher = BarWatcher(Console(stderr=True))
    with watcher.progress:
        yield watcher


def say_nothing(_done: int, _total: int) -> None:
    """Ignore progress."""


@contextmanager
def log_steps(what: str) -> Generator[Callable[[int, int], None]]:
    """Yield a progress callback that logs one line per tenth of the steps."""
    logged_tenths = 0

    def log_tenth(done: int, total: int) -> None:
        nonlocal logged_tenths
        tenths = 10 * done // max(total, 1)
        if tenths > logged_tenths:
            logged_tenths = tenths
            log.info("%s: %d of %d", what, done, total)

    yield log_tenth


@contextmanager
def show_steps(what: str) -> Generator[Callable[[int, int], None]]:
    """Yield a progress callback: a bar on a terminal, lines in the log elsewhere."""
    if not draws_bars():
        with log_steps(what) as log_tenth:
            yield log_tenth
        return
    progress = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def log_outcome(planned: Planned, outcome: Outcome) -> None:
    """Log one line about a shard: rows, counts, time and rate, or its error."""
    if isinstance(outcome.result, ShardFailed):
        log.error("%s failed: %s", outcome.shard.name, outcome.result.error)
        return
    rows = _count_inputs([outcome.shard])
    counts = sorted(outcome.result.counts.items())
    log.info(
        "%s: %d rows of %s, %s %.1f s %.1f rows/s",
        outcome.shard.name,
        rows,
        ", ".join(planned.inputs.reads),
        " ".join(f"{name}={count}" for name, count in counts),
        outcome.seconds,
        rows / max(outcome.seconds, 1e-6),
    )


def _count_inputs(shards: Sequence[ShardRef]) -> int:
    """Return the number of input rows of some shards."""
    return sum(shard.stop - shard.start for shard in shards)


class MeteredWatcher(LineWatcher):
    """Progress as metrics of a registry, shown by another watcher, too."""

    def __init__(self, shown: LineWatcher, registry: "CollectorRegistry") -> None:
        from prometheus_client import Counter, Gauge

        super().__init__()
        self.shown = shown
        self.note_waiting = shown.note_waiting
        self.finish_stage = shown.finish_stage
        by_outcome = ["stage", "outcome"]
        self.rows = Counter("pairwright_rows", "Rows written.", by_outcome, registry=registry)
        self.shards = Counter(
            "pairwright_shards", "Shards that ended.", by_outcome, registry=registry
        )
        self.tokens = Counter(
            "pairwright_tokens", "Tokens of served models.", ["stage", "kind"], registry=registry
        )
        self.seconds = Counter(
            "pairwright_seconds", "Time that shards took.", ["stage"], registry=registry
        )
        self.unfinished = Gauge(
            "pairwright_owed_rows", "Input rows not done yet.", ["stage"], registry=registry
        )

    def begin_stage(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Set the number of unfinished rows."""
        self.unfinished.labels(planned.stage.name).set(_count_inputs(shards))
        self.shown.begin_stage(planned, shards)

    def finish_shard(self, planned: Planned, outcome: Outcome) -> None:
        """Count the rows and seconds of a shard."""
        stage = planned.stage.name
        self.seconds.labels(stage).inc(outcome.seconds)
        if isinstance(outcome.result, ShardFailed):
            self.shards.labels(stage, "failed").inc()
        else:
            self.shards.labels(stage, "done").inc()
            self._count_rows(planned, outcome.shard, outcome.result)
        self.shown.finish_shard(planned, outcome)

    def _count_rows(self, planned: Planned, shard: ShardRef, done: ShardDone) -> None:
        """Count the rows of a shard that is done, and the tokens of its answers."""
        stage = planned.stage.name
        self.unfinished.labels(stage).dec(_count_inputs([shard]))
        for name, count in done.counts.items():
            self.rows.labels(stage, name).inc(count)
        if not planned.keeps_answers:
            return
        about = read_about(Part(shard.folder, done.part))
        for kind in TOKENS:
            counter = self.tokens.labels(stage, kind.removesuffix("_tokens"))
            counter.inc(int(about.get(kind, 0)))


@contextmanager
def metered(watcher: LineWatcher, port: int) -> Generator[LineWatcher]:
    """Yield the watcher; serve its metrics on ``port`` (0: off).

    A port that is taken stops no build.
    """
    if not port:
        yield watcher
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise ConfigError(
            f"run.metrics_port: prometheus_client is not installed ({error}): {INSTALL}"
        ) from error
    registry = CollectorRegistry()
    try:
        server, thread = start_http_server(port, addr=HOST, registry=registry)
    except OSError as error:
        log.warning("run.metrics_port %d: no metrics are served: %s", port, error.strerror or error)
        yield watcher
        return
    log.info("metrics: http://%s:%d/metrics", HOST, port)
    try:
        yield MeteredWatcher(watcher, registry)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
