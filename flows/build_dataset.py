"""Build a dataset under Prefect: one flow run per build, one task run per shard, a table artifact at the end.

Runs the same stages (``flows.stages``) and the same shard function as a build without a server, in the same worker
processes; Prefect shows them and decides when they start, never what is done. Tasks get references, not rows or images.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Queue
from threading import Event
from typing import Annotated, Any

from prefect import flow, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Failed
from prefect.task_runners import ThreadPoolTaskRunner
from pydantic import Field

from pairwright.flows.find_workers import workers_of
from pairwright.flows.load_profile import profile_names
from pairwright.flows.progress import LineWatcher
from pairwright.flows.run_build import Request, make_request, resume_request, run_build
from pairwright.flows.say_outcome import say_shard
from pairwright.flows.show_in_prefect import end_state, publish_report
from pairwright.flows.stages import GROUPS, table_names
from pairwright.tasks.store.pool import Outcome, Runner
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

RUNNER: Any = ThreadPoolTaskRunner(max_workers=512)  # threads that wait; the workers set the pace
AHEAD = 2
"""Task runs that are submitted per worker process: so that none waits, and few are lost with a server."""
log = logging.getLogger(__name__)
StageName = Annotated[str, Field(json_schema_extra={"enum": ["", *GROUPS, *table_names()]})]
ProfileName = Annotated[str, Field(json_schema_extra={"examples": [*profile_names()]})]
Runs = Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]]


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
    return run_as_flow(make_request(out, source, **words, exclude=exclude or []))


@flow(name="resume-dataset", flow_run_name="resume-{dataset}", task_runner=RUNNER, persist_result=False)
def resume_dataset(
    dataset: str, stage: StageName = "", reason: str = "", settings: list[str] | None = None
) -> State[None]:
    """Finish what a dataset still owes.

    Args:
        dataset: Folder or URL of the dataset.
        stage: Retry this stage only.
        reason: Retry only rows that failed for this reason.
        settings: Fields of `run` to set ("run.budget.calls=5000").
    """
    return run_as_flow(resume_request(dataset, stage=stage, reason=reason, settings=settings or []))


def tags_of(request: Request) -> tuple[str, str]:
    """Return the tags of a build's flow run and task runs: the dataset's name and the profile's."""
    return request.folder.url.rstrip("/").rpartition("/")[2], request.profile.name


def run_as_flow(request: Request) -> State[None]:
    """Build within a flow run; return the state that it ends with."""
    with workers_of(request) as workers, tags(*tags_of(request)):
        report = run_build(request, run_shards=as_task_runs(workers), watcher=LineWatcher())
    publish_report(request.folder.url, report)
    return end_state(report, request.folder.url)


def as_task_runs(workers: Runner) -> Runs:
    """Return a way to run shards as Prefect task runs, each in one of the workers; these need not know of Prefect.

    Prefect asks its server before a task's first run of each kind, and ends the task run unrun where nobody answers. A
    shard that came back so is run all the same, and what comes after it is not sent to Prefect any more.
    """
    gone = Event()

    @task(name="shard", task_run_name="{shard.name}", cache_policy=NO_CACHE, persist_result=False)
    def run_shard_task(planned: Planned, shard: ShardRef, outcomes: list[Outcome]) -> State[None] | None:
        outcomes.append(workers.run_one(planned, shard))
        failed = say_shard(planned, outcomes[0])
        return Failed(message=failed) if failed else None

    def run(planned: Planned, shards: Sequence[ShardRef]) -> Iterator[Outcome]:
        waiting, ended = deque(shards), Queue[tuple[ShardRef, list[Outcome]]]()
        lost: list[ShardRef] = []
        under_way = 0
        while under_way or (waiting and not gone.is_set()):
            while waiting and not gone.is_set() and under_way < AHEAD * workers.count:
                shard, outcomes = waiting.popleft(), list[Outcome]()
                with tags(planned.stage.name, planned.stage.group):
                    future = run_shard_task.submit(planned, shard, outcomes)
                future.add_done_callback(lambda _, end=(shard, outcomes): ended.put(end))
                under_way += 1
            shard, outcomes = ended.get()
            under_way -= 1
            if not outcomes:
                log.warning("%s: its task run did not run (is Prefect's server gone?); the build goes on", shard.name)
                lost.append(shard)
                gone.set()
            yield from outcomes
        yield from workers.run(planned, [*lost, *waiting])

    return run
