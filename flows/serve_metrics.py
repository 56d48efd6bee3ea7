"""Serve a build's numbers to Prometheus while it runs: rows by outcome, shards, tokens and seconds of each stage.

Listens on 127.0.0.1 only, and only where `run.metrics_port` is set; needs the extra "metrics". Tokens are read from the
parts of the stages that ask served models.
"""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pairwright.flows.progress import LineWatcher
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.answers import TOKENS
from pairwright.tasks.store.part import Part, read_about
from pairwright.tasks.store.pool import Outcome, ShardFailed
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)
HOST = "127.0.0.1"
INSTALL = "python -m pip install -c constraints.txt -e '.[metrics]'"


class MeteredWatcher(LineWatcher):
    """Progress as metrics of a registry, shown by another watcher, too."""

    def __init__(self, shown: LineWatcher, registry: "CollectorRegistry") -> None:
        from prometheus_client import Counter, Gauge

        super().__init__()
        self.shown, self.waiting, self.end = shown, shown.waiting, shown.end
        self.rows = Counter("pairwright_rows", "Rows written.", ["stage", "outcome"], registry=registry)
        self.shards = Counter("pairwright_shards", "Shards that ended.", ["stage", "outcome"], registry=registry)
        self.tokens = Counter("pairwright_tokens", "Tokens of served models.", ["stage", "kind"], registry=registry)
        self.seconds = Counter("pairwright_seconds", "Time that shards took.", ["stage"], registry=registry)
        self.owed = Gauge("pairwright_owed_rows", "Input rows not done yet.", ["stage"], registry=registry)

    def begin(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Say how much is owed."""
        self.owed.labels(planned.stage.name).set(sum(shard.stop - shard.start for shard in shards))
        self.shown.begin(planned, shards)

    def advance(self, planned: Planned, outcome: Outcome) -> None:
        """Count what a shard did."""
        stage, done = planned.stage.name, outcome.result
        self.seconds.labels(stage).inc(outcome.seconds)
        self.shards.labels(stage, "failed" if isinstance(done, ShardFailed) else "done").inc()
        if not isinstance(done, ShardFailed):
            self.owed.labels(stage).dec(outcome.shard.stop - outcome.shard.start)
            for name, count in done.counts.items():
                self.rows.labels(stage, name).inc(count)
            if planned.stage.remembers:
                about = read_about(Part(outcome.shard.folder, done.part))
                for kind in TOKENS:
                    self.tokens.labels(stage, kind.removesuffix("_tokens")).inc(int(about.get(kind, 0)))
        self.shown.advance(planned, outcome)


@contextmanager
def metered(watcher: LineWatcher, port: int) -> Generator[LineWatcher]:
    """Give the watcher, its numbers served meanwhile; a build goes on where the port is taken. 0: it is as it was."""
    if not port:
        yield watcher
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise ConfigError(f"run.metrics_port: prometheus_client is not installed ({error}): {INSTALL}") from error
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
