"""Build a dataset under Prefect.

A flow run per build, a subflow per step, a task per stage, a task run per shard. Stages and shards
run as without a server, in the same worker processes; Prefect shows them and decides when they
start. Tasks get references, not rows or images. The final state has a message on what to do next.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from pydantic import Field

from pairwright.flows.building.open_executor import open_workers
from pairwright.flows.building.progress import LineWatcher, metered
from pairwright.flows.dataset import Dataset
from pairwright.flows.pipeline.load_profile import profile_names
from pairwright.flows.pipeline.stages import BY_NAME, GROUPS
from pairwright.flows.prefect.prefect_executor import RUNNER, PrefectExecutor
from pairwright.flows.prefect.relay import dataset_name, log_to_prefect, publish_table, tagged
from pairwright.flows.versions.show_status import say_reasons
from pairwright.flows.versions.version import Version
from pairwright.tasks.store.executor import Executor
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import hold

LOCK = "schedule"
"""Lock of updates, one at a time per dataset; a killed process releases it at once, Prefect's own
limit only later."""
StageName = Annotated[str, Field(json_schema_extra={"enum": ["", *GROUPS, *BY_NAME]})]
ProfileName = Annotated[str, Field(json_schema_extra={"examples": [*profile_names()]})]


@flow(name="build-dataset", flow_run_name="build-{out}", task_runner=RUNNER, persist_result=False)
def build_dataset(
    out: str,
    source: str | list[str] | None = None,
    profile: ProfileName = "scenes",
    settings: list[str] | None = None,
    limit: Annotated[int, Field(ge=1)] | None = None,
    until: StageName = "",
    exclude: list[str] | None = None,
    planted: Annotated[int, Field(ge=0)] = 0,
) -> State[None]:
    """Build a dataset, or continue an earlier build of it.

    Args:
        out: Folder or URL of the dataset.
        source: A folder of images, kind:path, or several of these; none: the profile's own.
        profile: Name of a profile, or a .yaml file.
        settings: Fields to set over the profile ("mining.min_similarity=0.8").
        limit: Only the first N images of each source.
        until: Stop after this stage.
        exclude: Sources of images to exclude, together with near-duplicates of them.
        planted: Number of the source's photographs to plant things into, too.
    """
    with log_to_prefect():
        built = Dataset.build(
            source,
            out=out,
            profile=profile,
            settings=settings or [],
            limit=limit,
            until=until,
            exclude=exclude or [],
            planted=planted,
            executor=open_in_prefect,
        )
        return _end_of(built)


@flow(
    name="resume-dataset",
    flow_run_name="resume-{dataset}",
    task_runner=RUNNER,
    persist_result=False,
)
def resume_dataset(
    dataset: str,
    stage: StageName = "",
    reason: str = "",
    settings: list[str] | None = None,
    rescan: bool = False,  # noqa: FBT001, FBT002 - Prefect passes parameters by name
) -> State[None]:
    """Finish the unfinished rows of a dataset.

    Args:
        dataset: Folder or URL of the dataset.
        stage: Retry this stage only.
        reason: Retry only rows that failed for this reason.
        settings: Fields of `run` to set ("run.budget.max_calls=5000").
        rescan: Read all bytes of the source again, also of files of equal size and time.
    """
    with log_to_prefect():
        opened = Dataset.open(dataset)
        opened.resume(
            stage=stage,
            reason=reason,
            settings=settings or [],
            rescan=rescan,
            executor=open_in_prefect,
        )
        return _end_of(opened)


@flow(
    name="update-dataset",
    flow_run_name="update-{dataset}",
    task_runner=RUNNER,
    persist_result=False,
)
def update_dataset(dataset: str) -> State[None]:
    """List a dataset's source again, finish its rows, and publish a version if its gates hold.

    Args:
        dataset: Folder or URL of the dataset.
    """
    folder = Folder(dataset)
    with log_to_prefect():
        opened = Dataset.open(dataset)
        try:
            with hold(folder, LOCK, _Busy.raise_busy if folder.is_local else None):
                opened.resume(executor=open_in_prefect)
                return _end_of(opened)
        except _Busy:
            return Completed(
                name="Skipped",
                message=f"another update of {dataset} is running; the next sees the same",
            )


class _Busy(Exception):  # noqa: N818  (not an error: another update is running)
    @classmethod
    def raise_busy(cls) -> None:
        raise cls


@contextmanager
def open_in_prefect(version: Version) -> Generator[Executor]:
    """Yield an executor that shows steps and shards as subflows and task runs."""
    dataset = version.folder.url
    lines = LineWatcher(shards=False)  # shards are in the logs of their task runs
    with (
        tagged(dataset_name(dataset), version.profile.name),
        metered(lines, version.profile.run.metrics_port) as watcher,
        open_workers(version, watcher) as workers,
    ):
        yield PrefectExecutor(workers, dataset)


def _end_of(dataset: Dataset) -> State[None]:
    """Publish the stage table.

    Return the final state, with the message that the command line prints at the end.
    """
    report = dataset.outcome
    assert report
    name = dataset_name(dataset.url)
    rows: list[dict[str, Any]] = []
    for count, seconds in zip(report.counts, report.seconds, strict=True):
        row = {**count.as_json(), "seconds": round(seconds, 1)}
        rows.append({**row, "reasons": say_reasons(count.reasons)})
    publish_table(f"build-{name}", rows, f"Outcomes of the rows of {name}.")
    if report.is_complete:
        return Completed(message=f"all done, version {report.verdict.version}")
    status = report.status(dataset.url)
    lines = [line for line in (report.stopped, *status.unfinished_lines, *status.held) if line]
    return Failed(message="\n".join(dict.fromkeys(lines)))
