"""Show runs in Prefect: log lines, tags, final states whose messages say what to do, and tables of numbers."""

import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
from prefect import tags
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler
from prefect.runtime import flow_run
from prefect.states import Completed, Crashed, Failed

from pairwright.flows.run_build import Report
from pairwright.flows.show_status import say_owed
from pairwright.schemas.errors import PairwrightError
from pairwright.tasks.store.ledger import Counts

log = logging.getLogger(__name__)
OURS = logging.getLogger("pairwright")
UNREACHED = (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError)
"""What Prefect's client raises where its server does not answer."""


class RunLogHandler(APILogHandler):
    """Handler that sends a line to the run that writes it, and to the flow run where a thread belongs to none."""

    def __init__(self, flow_run_id: UUID) -> None:
        super().__init__()
        self.flow_run_id = flow_run_id

    def prepare(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the line as the server takes it."""
        if TaskRunContext.get() is None and FlowRunContext.get() is None:
            record.flow_run_id = self.flow_run_id
        return super().prepare(record)


@contextmanager
def logged() -> Generator[None]:
    """Send our log lines to Prefect's logs, too, while a flow run is at work."""
    if any(isinstance(handler, APILogHandler) for handler in OURS.handlers):  # PREFECT_LOGGING_EXTRA_LOGGERS
        yield
        return
    handler, level, root = RunLogHandler(UUID(flow_run.get_id())), OURS.level, logging.getLogger().handlers
    terminal = [one for one in root if not isinstance(one, PrefectConsoleHandler)]
    OURS.addHandler(handler)
    if len(terminal) < len(root):  # Prefect has set up this process, a worker's
        OURS.setLevel(level or logging.getLogger("prefect.extra").level)
    for one in terminal:
        one.addFilter(_is_not_an_end)
    try:
        yield
    finally:
        OURS.setLevel(level)
        OURS.removeHandler(handler)


def _is_not_an_end(record: logging.LogRecord) -> bool:
    """Leave to the command line how a run has ended, which it says itself."""
    if not record.name.startswith("prefect."):
        return True
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (PairwrightError, httpx.HTTPError)) and not record.getMessage().startswith(
        "Finished in state"
    )


@contextmanager
def tagged(*words: str) -> Generator[None]:
    """Give the flow run, and the runs that begin within it, these tags, whoever has started it."""
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run.get_id()), tags={*flow_run.get_tags(), *words})
    except UNREACHED as error:
        log.warning("the flow run is not tagged in Prefect: %s", error)
    with tags(*words):
        yield


def end_dead_runs() -> None:
    """Mark earlier runs of this name as crashed that Prefect takes for running: their processes were killed."""
    context = FlowRunContext.get()
    assert context
    assert context.flow_run
    own = context.flow_run
    same = {"name": {"any_": [own.name]}, "id": {"not_any_": [own.id]}}
    running = {"state": {"type": {"any_": ["RUNNING"]}}, "start_time": {"before_": own.start_time}}
    dead = Crashed(message="its process is gone; the run after it goes on with its work")
    try:
        with get_client(sync_client=True) as client:
            for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate({**same, **running})):
                client.set_flow_run_state(run.id, dead, force=True)
    except UNREACHED as error:
        log.warning("runs that were killed are not marked in Prefect: %s", error)


def dataset_name(dataset: str) -> str:
    """Return the last part of a dataset's place."""
    return dataset.rstrip("/").rpartition("/")[2]


def end_state(report: Report, dataset: str) -> State[None]:
    """Return the final state of a build's flow run: its message is what the command line says at the end."""
    if report.is_complete:
        return Completed(message=f"all done, version {report.verdict.version}")
    status = report.status(dataset)
    return Failed(message="\n".join(filter(None, (report.stopped, *status.owing, *status.held))))


def step_state(counts: Sequence[Counts], dataset: str) -> State[None]:
    """Return the final state of a step of a build: what its stages owe, or how many rows they have."""
    if owed := list(say_owed(counts, dataset)):
        return Failed(message="\n".join(owed))
    return Completed(message=", ".join(f"{count.stage} {count.rows:,}" for count in counts))


def publish_report(dataset: str, report: Report) -> None:
    """Show the stage table, with the numbers of `status --json`, under the dataset's name."""
    name = dataset_name(dataset)
    reasons = ["; ".join(f"{text} ({n})" for text, n in count.reasons.items()) for count in report.counts]
    rows: list[dict[str, Any]] = [
        {**count.as_json(), "seconds": round(spent, 1), "reasons": why}
        for count, spent, why in zip(report.counts, report.seconds, reasons, strict=True)
    ]
    publish_table(f"build-{name}", rows, f"What became of the rows of {name}.")


def publish_table(name: str, rows: list[dict[str, Any]], description: str) -> None:
    """Show a table under a name; where the server is gone, log that, for the rows are on disk all the same."""
    try:
        key = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
        create_table_artifact(key=key, table=rows, description=description)
    except UNREACHED as error:  # after a minute, in which a server may have come back
        log.warning("%s: not shown in Prefect: %s", name, error)
