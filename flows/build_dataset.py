"""Build a dataset under Prefect: a flow run per build, a subflow per step, a task per stage, a task run per shard.

Stages and shards run as without a server, in the same worker processes; Prefect shows them and decides when they start.
Tasks get references, not rows or images. Also what all flows show in Prefect: log lines, tags, tables of numbers, and
final states whose messages say what to do.
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
from prefect import Task, flow, tags, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext, TaskRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.handlers import APILogHandler, PrefectConsoleHandler
from prefect.runtime import flow_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Completed, Crashed, Failed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from pairwright.flows.dataset import Dataset
from pairwright.flows.load_profile import profile_names
from pairwright.flows.progress import LineWatcher, log_outcome
from pairwright.flows.run_build import Report, Request, RunShards, RunStep, Work, workers_of
from pairwright.flows.show_status import say_owed, say_shard
from pairwright.flows.stages import BY_NAME, GROUPS
from pairwright.schemas.errors import PairwrightError
from pairwright.tasks.store.dataset import hold
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import Outcome, Runner
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned, Stage

RUNNER: Any = ThreadPoolTaskRunner(max_workers=512)  # threads that wait; the workers set the pace
AHEAD = 2
"""Task runs that are submitted per worker process: so that none waits, and few are lost with a server."""
LOCK = "schedule"
"""One update of a dataset runs at a time; a killed process lets its lock go at once, Prefect's own limit only later."""
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
    """Build a dataset, or do what an earlier build of it still owes.

    Args:
        out: Folder or URL of the dataset.
        source: A folder of images, or kind:path; none: the profile's own.
        profile: A profile's name, or a .yaml file.
        settings: Fields to set over the profile ("mining.min_similarity=0.8").
        limit: Only the first so many images of the source.
        until: Stop after this stage.
        exclude: Sources whose images are kept out, and what is nearly one of them.
    """
    words: dict[str, Any] = {"profile": profile, "settings": settings or [], "limit": limit, "until": until}
    with logged():
        return _end_of(Dataset.build(source, out=out, **words, exclude=exclude or [], worker=as_flow_run))


@flow(name="resume-dataset", flow_run_name="resume-{dataset}", task_runner=RUNNER, persist_result=False)
def resume_dataset(
    dataset: str, stage: StageName = "", reason: str = "", settings: list[str] | None = None
) -> State[None]:
    """Finish what a dataset still owes.

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


@flow(name="update-dataset", flow_run_name="update-{dataset}", task_runner=RUNNER, persist_result=False)
def update_dataset(dataset: str) -> State[None]:
    """Look at a dataset's source anew, do what is owed, and publish a version where its gates hold.

    Args:
        dataset: Folder or URL of the dataset.
    """
    folder = Folder(dataset)
    with logged():
        opened = Dataset.open(dataset)
        try:
            with hold(folder, LOCK, _refuse if folder.is_local else None):
                if folder.is_local:  # whoever is alive holds the lock
                    end_dead_runs()
                opened.resume(worker=as_flow_run)
                return _end_of(opened)
        except _Busy:
            said = f"another update of {dataset} is running; the next one sees the same"
            return Completed(name="Skipped", message=said)


class _Busy(Exception):  # noqa: N818  (no fault: another update is at work)
    pass


def _refuse() -> None:
    raise _Busy


@contextmanager
def as_flow_run(request: Request) -> Generator[Work]:
    """Give what runs a build's shards and steps as task runs and subflows of the flow run that is at work."""
    dataset, gone = request.folder.url, Event()
    with tagged(dataset_name(dataset), request.profile.name), workers_of(request) as workers:
        yield Work(
            run_shards=_as_task_runs(workers, gone),
            run_step=_as_subflows(dataset, gone),
            watcher=LineWatcher(shards=False),  # those are in the logs of their task runs
        )


def _end_of(dataset: Dataset) -> State[None]:
    assert dataset.outcome
    publish_report(dataset.url, dataset.outcome)
    return end_state(dataset.outcome, dataset.url)


def _as_subflows(url: str, gone: Event) -> RunStep:
    """Return a way to run a build's steps as subflows; without Prefect once its server is gone."""

    def run_step(step: str, run: Callable[[], Sequence[Counts]]) -> None:
        waiting, faults, ending = [run], list[Exception](), ExitStack()

        def run_stages(dataset: str) -> State[None]:  # noqa: ARG001  (names the run)
            try:
                counts = waiting.pop()()  # Prefect keeps this function; what it built with is let go
            except PairwrightError as error:  # raised again in the build's flow run, which shows where
                faults.append(error)
                return Failed(message=str(error))
            except Exception as error:
                faults.append(error)
                raise
            if gone.is_set():  # its end is told in one attempt, not in minutes of them while all stands still
                ending.enter_context(temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}))
            return step_state(counts, url)

        run_stages.__qualname__ = step
        subflow = flow(name=step, flow_run_name=f"{step}-{{dataset}}", task_runner=RUNNER, persist_result=False)
        try:
            with ending:
                if not gone.is_set():
                    subflow(run_stages)(dataset_name(url), return_state=True)
        except UNREACHED as error:
            log.warning("%s: Prefect's server is gone (%s); the build goes on", step, error)
            gone.set()
        if waiting:
            run()
        if faults:
            raise faults.pop()

    return run_step


def _as_task_runs(workers: Runner, gone: Event) -> RunShards:
    """Return a way to run shards as Prefect task runs, each in one of the workers; these need not know of Prefect.

    Where its server does not answer, Prefect ends a task run unrun: that shard is run all the same, and those after it.
    """

    def run(planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        waiting, ended = deque(shards), Queue[tuple[ShardRef, list[Outcome]]]()
        run_shard = _task_of(planned.stage, workers)
        lost: list[ShardRef] = []
        under_way = 0
        while under_way or (waiting and not gone.is_set()):
            while waiting and not gone.is_set() and under_way < AHEAD * workers.count:
                shard, outcomes = waiting.popleft(), list[Outcome]()
                future = run_shard.submit(planned, shard, outcomes)
                future.add_done_callback(lambda _, end=(shard, outcomes): ended.put(end))
                under_way += 1
            shard, outcomes = ended.get()
            under_way -= 1
            if not outcomes:
                log.warning("%s: its task run did not run (is Prefect's server gone?); the build goes on", shard.name)
                lost.append(shard)
                gone.set()
            yield from outcomes
        for outcome in workers.run(planned, [*lost, *waiting]):
            log_outcome(planned, outcome)
            yield outcome

    return run


def _task_of(stage: Stage, workers: Runner) -> Task[[Planned, ShardRef, list[Outcome]], State[None] | None]:
    def run_shard(planned: Planned, shard: ShardRef, outcomes: list[Outcome]) -> State[None] | None:
        outcomes.append(workers.run_one(planned, shard))
        log_outcome(planned, outcomes[0])
        failed = say_shard(planned, outcomes[0])
        return Failed(message=failed) if failed else None

    run_shard.__qualname__ = stage.name  # Prefect makes the task's key of it
    return task(
        name=stage.name,
        task_run_name="{shard.name}",
        tags=[stage.name, stage.group],
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=1,  # with none, Prefect logs a failed state as an exception that there is not: "NoneType: None"
        retry_condition_fn=lambda _task, _run, _state: False,
    )(run_shard)


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
    return Failed(message="\n".join(dict.fromkeys(filter(None, (report.stopped, *status.owing, *status.held)))))


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
