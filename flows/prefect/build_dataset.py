"""Build a dataset under Prefect: a flow run per build, a subflow per step, a task per stage, a task run per shard.

Stages and shards run as without a server, in the same worker processes; Prefect shows them and
decides when they start. Tasks get references, not rows or images. Also shared by all flows: log
lines, tags and tables in Prefect, and final states with messages on what to do next.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from queue import Queue
from threading import Event
from typing import Annotated, Any
from uuid import UUID

import httpx
from prefect import flow, tags, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler
from prefect.runtime import flow_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Completed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from pairwright.flows.building.progress import LineWatcher, log_outcome, metered
from pairwright.flows.building.run_build import Request, RunShards, RunStep, Work, workers_of
from pairwright.flows.dataset import Dataset
from pairwright.flows.pipeline.load_profile import profile_names
from pairwright.flows.pipeline.stages import BY_NAME, GROUPS
from pairwright.flows.versions.show_status import say_owed, say_reasons, say_shard
from pairwright.schemas.errors import PairwrightError
from pairwright.tasks.store.build import hold
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.on_dask import Runner
from pairwright.tasks.store.pool import Outcome
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

RUNNER: Any = ThreadPoolTaskRunner(
    max_workers=512
)  # threads that only wait; the workers set the pace
# task runs submitted per worker process: enough to keep workers busy, few to lose with a server
AHEAD = 2
LOCK = "schedule"
"""Lock of updates, one at a time per dataset; a killed process releases it at once, Prefect's own
limit only later."""
log = logging.getLogger(__name__)
StageName = Annotated[str, Field(json_schema_extra={"enum": ["", *GROUPS, *BY_NAME]})]
ProfileName = Annotated[str, Field(json_schema_extra={"examples": [*profile_names()]})]


@flow(name="build-dataset", flow_run_name="build-{out}", task_runner=RUNNER, persist_result=False)
def build_dataset(
    out: str,
    source: str | None = None,
    profile: ProfileName = "scenes",
    settings: list[str] | None = None,
    limit: Annotated[int, Field(ge=1)] | None = None,
    until: StageName = "",
    exclude: list[str] | None = None,
) -> State[None]:
    """Build a dataset, or continue an earlier build of it.

    Args:
        out: Folder or URL of the dataset.
        source: A folder of images, or kind:path; none: the profile's own.
        profile: Name of a profile, or a .yaml file.
        settings: Fields to set over the profile ("mining.min_similarity=0.8").
        limit: Only the first N images of the source.
        until: Stop after this stage.
        exclude: Sources of images to exclude, together with near-duplicates of them.
    """
    words: dict[str, Any] = {
        "profile": profile,
        "settings": settings or [],
        "limit": limit,
        "until": until,
    }
    with logged():
        return _end_of(
            Dataset.build(source, out=out, **words, exclude=exclude or [], worker=as_flow_run)
        )


@flow(
    name="resume-dataset",
    flow_run_name="resume-{dataset}",
    task_runner=RUNNER,
    persist_result=False,
)
def resume_dataset(
    dataset: str, stage: StageName = "", reason: str = "", settings: list[str] | None = None
) -> State[None]:
    """Finish the owed rows of a dataset.

    Args:
        dataset: Folder or URL of the dataset.
        stage: Retry this stage only.
        reason: Retry only rows that failed for this reason.
        settings: Fields of `run` to set ("run.budget.max_calls=5000").
    """
    with logged():
        opened = Dataset.open(dataset)
        opened.resume(stage=stage, reason=reason, settings=settings or [], worker=as_flow_run)
        return _end_of(opened)


@flow(
    name="update-dataset",
    flow_run_name="update-{dataset}",
    task_runner=RUNNER,
    persist_result=False,
)
def update_dataset(dataset: str) -> State[None]:
    """List a dataset's source again, do what is owed, and publish a version if its gates hold.

    Args:
        dataset: Folder or URL of the dataset.
    """
    folder = Folder(dataset)
    with logged():
        opened = Dataset.open(dataset)
        try:
            with hold(folder, LOCK, _Busy.refuse if folder.is_local else None):
                opened.resume(worker=as_flow_run)
                return _end_of(opened)
        except _Busy:
            return Completed(
                name="Skipped",
                message=f"another update of {dataset} is running; the next sees the same",
            )


class _Busy(Exception):  # noqa: N818  (not an error: another update is running)
    @classmethod
    def refuse(cls) -> None:
        raise cls


@contextmanager
def as_flow_run(request: Request) -> Generator[Work]:
    """Yield a runner of a build's shards and steps as task runs and subflows of the current flow run."""
    dataset, gone = request.folder.url, Event()
    lines = LineWatcher(shards=False)  # shards are in the logs of their task runs
    with (
        tagged(dataset_name(dataset), request.profile.name),
        metered(lines, request.profile.run.metrics_port) as watcher,
        workers_of(request) as workers,
    ):
        yield Work(
            run_shards=_as_task_runs(workers, gone),
            run_step=_as_subflows(dataset, gone),
            watcher=watcher,
        )


def _end_of(dataset: Dataset) -> State[None]:
    """Publish the stage table; return the final state, with the message that the command line prints at the end."""
    report, name = dataset.outcome, dataset_name(dataset.url)
    assert report
    rows: list[dict[str, Any]] = [
        {**count.as_json(), "seconds": round(spent, 1), "reasons": say_reasons(count.reasons)}
        for count, spent in zip(report.counts, report.seconds, strict=True)
    ]
    publish_table(f"build-{name}", rows, f"Outcomes of the rows of {name}.")
    if report.is_complete:
        return Completed(message=f"all done, version {report.verdict.version}")
    status = report.status(dataset.url)
    return Failed(
        message="\n".join(
            dict.fromkeys(filter(None, (report.stopped, *status.owing, *status.held)))
        )
    )


def _as_subflows(url: str, gone: Event) -> RunStep:
    """Return a runner of a build's steps as subflows; without Prefect once its server is lost."""

    def run_step(step: str, run: Callable[[], Sequence[Counts]]) -> None:
        waiting, faults, ending = [run], list[Exception](), ExitStack()

        def run_stages(dataset: str) -> State[None]:  # noqa: ARG001  (names the run)
            try:
                counts = (
                    waiting.pop()()
                )  # Prefect keeps this function; the build's objects are released
            except PairwrightError as error:  # raised again in the build's flow run
                faults.append(error)
                return Failed(message=str(error))
            except Exception as error:
                faults.append(error)
                raise
            if (
                gone.is_set()
            ):  # report the end in one attempt, not in minutes of retries while the build waits
                ending.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}))
            if owed := list(say_owed(counts, url)):
                return Failed(message="\n".join(owed))
            return Completed(message=", ".join(f"{count.stage} {count.rows:,}" for count in counts))

        run_stages.__qualname__ = step
        subflow = flow(
            name=step, flow_run_name=f"{step}-{{dataset}}", task_runner=RUNNER, persist_result=False
        )
        try:
            with ending:
                if not gone.is_set():
                    subflow(run_stages)(dataset_name(url), return_state=True)
        except UNREACHED as error:
            log.warning("%s: lost Prefect's server (%s); the build continues", step, error)
            gone.set()
        if waiting:
            run()
        if faults:
            raise faults.pop()

    return run_step


def _as_task_runs(workers: Runner, gone: Event) -> RunShards:
    """Return a runner of shards as Prefect task runs, each in one of the workers, which need not know Prefect.

    If its server does not answer, Prefect ends a task run without running it: this shard and later
    ones are run anyway.
    """

    def run(planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        waiting, ended = deque(shards), Queue[tuple[ShardRef, list[Outcome]]]()
        stage, lost = planned.stage, list[ShardRef]()

        def run_shard(
            planned: Planned, shard: ShardRef, outcomes: list[Outcome]
        ) -> State[None] | None:
            outcomes.append(workers.run_one(planned, shard))
            log_outcome(planned, outcomes[0])
            failed = say_shard(planned, outcomes[0])
            return Failed(message=failed) if failed else None

        run_shard.__qualname__ = stage.name  # Prefect derives the task's key from it
        own = task(
            name=stage.name,
            task_run_name="{shard.name}",
            tags=[stage.name, stage.group],
            cache_policy=NO_CACHE,
            persist_result=False,
            # with 0, Prefect logs a failed state as a missing exception: "NoneType: None"
            retries=1,
            retry_condition_fn=lambda _task, _run, _state: False,
        )(run_shard)
        under_way = 0
        while under_way or (waiting and not gone.is_set()):
            while waiting and not gone.is_set() and under_way < AHEAD * workers.count:
                shard, outcomes = waiting.popleft(), list[Outcome]()
                future = own.submit(planned, shard, outcomes)
                future.add_done_callback(lambda _, end=(shard, outcomes): ended.put(end))
                under_way += 1
            shard, outcomes = ended.get()
            under_way -= 1
            if not outcomes:
                log.warning(
                    "%s: its task run did not start (Prefect's server lost?); the build continues",
                    shard.name,
                )
                lost.append(shard)
                gone.set()
            yield from outcomes
        for outcome in workers.run(planned, [*lost, *waiting]):
            log_outcome(planned, outcome)
            yield outcome

    return run


OURS = logging.getLogger("pairwright")
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
def logged() -> Generator[None]:
    """Send our log lines to Prefect's logs as well during a flow run."""
    if any(
        isinstance(handler, APILogHandler) for handler in OURS.handlers
    ):  # PREFECT_LOGGING_EXTRA_LOGGERS
        yield
        return
    handler, level, root = (
        RunLogHandler(UUID(flow_run.get_id())),
        OURS.level,
        logging.getLogger().handlers,
    )
    terminal = [one for one in root if not isinstance(one, PrefectConsoleHandler)]
    OURS.addHandler(handler)
    if len(terminal) < len(root):  # Prefect has configured this worker process
        OURS.setLevel(level or logging.getLogger("prefect.extra").level)
    for one in terminal:
        one.addFilter(_is_not_an_end)
    try:
        yield
    finally:
        OURS.setLevel(level)
        OURS.removeHandler(handler)


def _is_not_an_end(record: logging.LogRecord) -> bool:
    """Filter out lines on how a run ended, which the command line prints itself."""
    if not record.name.startswith("prefect."):
        return True
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(
        error, (PairwrightError, httpx.HTTPError)
    ) and not record.getMessage().startswith("Finished in state")


@contextmanager
def tagged(*words: str) -> Generator[None]:
    """Tag the flow run, and the runs that start within it, however it was started."""
    try:
        with get_client(sync_client=True) as client:
            client.update_flow_run(UUID(flow_run.get_id()), tags={*flow_run.get_tags(), *words})
    except UNREACHED as error:
        log.warning("the flow run is not tagged in Prefect: %s", error)
    with tags(*words):
        yield


def dataset_name(dataset: str) -> str:
    """Return the last part of a dataset's path."""
    return dataset.rstrip("/").rpartition("/")[2]


def publish_table(name: str, rows: list[dict[str, Any]], description: str) -> None:
    """Publish a table under a name; if the server is lost, log that, since the rows are on disk anyway."""
    try:
        key = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
        create_table_artifact(key=key, table=rows, description=description)
    except UNREACHED as error:  # after a minute, in which a server may have come back
        log.warning("%s: not shown in Prefect: %s", name, error)
