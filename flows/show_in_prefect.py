"""Show in Prefect how a build went: states whose messages say what to do, and tables with the numbers of `status`.

What cannot be shown because the server is gone is logged: the rows are on disk all the same.
"""

import logging
from typing import Any

import httpx
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.client.schemas.objects import State
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Completed, Failed

from pairwright.flows.run_build import Report
from pairwright.flows.say_outcome import say_held, say_owed

log = logging.getLogger(__name__)
UNREACHED = (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError)
"""What Prefect's client raises where its server does not answer."""


def end_state(report: Report, dataset: str) -> State[None]:
    """Return the final state of a build's flow run: its message is what the command line says at the end."""
    if report.is_complete:
        return Completed(message=f"all done, version {report.verdict.version}")
    return Failed(message="\n".join(_lines(report, dataset)))


def _lines(report: Report, dataset: str) -> list[str]:
    current = report.snapshot.number if report.snapshot else 0
    stopped = [report.stopped] if report.stopped else []
    return [*stopped, *say_owed(report.counts, dataset), *say_held(report.verdict, current, dataset)]


def publish_report(dataset: str, report: Report) -> None:
    """Show the stage table, with the numbers of `status --json`, and what is owed or held back, under the name."""
    name = dataset.rstrip("/").rpartition("/")[2]
    key = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-") or "dataset"
    rows: list[dict[str, Any]] = []
    for count, spent in zip(report.counts, report.seconds, strict=True):
        reasons = "; ".join(f"{text} ({n})" for text, n in count.reasons.items())
        rows.append({**count.as_json(), "seconds": round(spent, 1), "reasons": reasons})
    table: dict[str, Any] = {"key": f"build-{key}", "table": rows, "description": f"What became of the rows of {name}."}
    gates = [f"| {gate.gate} | {gate.say()} | {'yes' if gate.holds else '**no**'} |" for gate in report.verdict.gates]
    lines = [
        "| gate | measured | holds |",
        "|---|---|---|",
        *gates,
        "",
        *(f"* {one}" for one in _lines(report, dataset)),
    ]
    words = {"key": f"gates-{key}", "markdown": "\n".join(lines), "description": f"What {name} was judged by."}
    try:
        create_table_artifact(**table)
        create_markdown_artifact(**words)
    except UNREACHED as error:  # after a minute, in which a server may have come back
        log.warning("%s: its numbers are not shown in Prefect: %s", dataset, error)
