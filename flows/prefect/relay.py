"""Relay to Prefect of what belongs to a flow run: log lines, tags, table artifacts."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
from prefect import tags
from prefect.artifacts import create_table_artifact
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler
from prefect.runtime import flow_run

from pairwright.schemas.errors import PairwrightError

log = logging.getLogger(__name__)
PAIRWRIGHT = logging.getLogger("pairwright")
UNREACHED = (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError)
"""Exceptions of Prefect's client if its server does not answer."""


class RunLogHandler(APILogHandler):
    """Handler that sends a line to its own run, or to the flow run if the thread has none."""

    def __init__(self, flow_run_id: UUID) -> None:
        super().__init__()
        self.flow_run_id = flow_run_id

    def prepare(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the line in the server's form."""
        if TaskRunContext.get() is None and FlowRunContext.get() is None:
            record.flow_run_id = self.flow_run_id
        return super().prepare(record)


@contextmanager
def log_to_prefect() -> Generator[None]:
    """Send our log lines to Prefect's logs as well during a flow run."""
    if any(isinstance(handler, APILogHandler) for handler in PAIRWRIGHT.handlers):
        yield  # PREFECT_LOGGING_EXTRA_LOGGERS sends them
        return
    handler = RunLogHandler(UUID(flow_run.get_id()))
    level = PAIRWRIGHT.level
    root_handlers = logging.getLogger().handlers
    terminal = [root for root in root_handlers if not isinstance(root, PrefectConsoleHandler)]
    PAIRWRIGHT.addHandler(handler)
    if len(terminal) < len(root_handlers):  # Prefect has configured this worker process
        PAIRWRIGHT.setLevel(level or logging.getLogger("prefect.extra").level)
    for terminal_handler in terminal:
        terminal_handler.addFilter(_is_not_an_end)
    try:
        yield
    finally:
        PAIRWRIGHT.setLevel(level)
        PAIRWRIGHT.removeHandler(handler)


def _is_not_an_end(record: logging.LogRecord) -> bool:
    """Filter out lines on how a run ended, which the command line prints itself."""
    if not record.name.startswith("prefect."):
        return True
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, (PairwrightError, httpx.HTTPError)):
        return False
    return not record.getMessage().startswith("Finished in state")


@contextmanager
def tagged(*names: str) -> Generator[None]:
    """Tag the flow run, and the runs that start within it, however it was started."""
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run.get_id()), tags={*flow_run.get_tags(), *names})
    except UNREACHED as error:
        log.warning("the flow run is not tagged in Prefect: %s", error)
    with tags(*names):
        yield


def dataset_name(dataset: str) -> str:
    """Return the last part of a dataset's path."""
    return dataset.rstrip("/").rpartition("/")[2]


def make_slug(name: str) -> str:
    """Return a name in lower case, with hyphens for all but letters and digits."""
    return "".join(char if char.isalnum() else "-" for char in name.lower())


def publish_table(name: str, rows: list[dict[str, Any]], description: str) -> None:
    """Publish a table under a name.

    If the server is lost, log that, since the rows are on disk anyway.
    """
    key = make_slug(name).strip("-")
    try:
        create_table_artifact(key=key, table=rows, description=description)
    except UNREACHED as error:  # after a minute, in which a server may have come back
        log.warning("%s: not shown in Prefect: %s", name, error)
