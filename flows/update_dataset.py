"""Update a dataset under Prefect: look at its source anew, do what is owed, publish a version. What a schedule runs.

Of one dataset one update runs at a time: another that comes due meanwhile is skipped, since the next one sees the same.
The dataset's own lock says so, which a killed process lets go at once. (Prefect's limit on a deployment's runs would
hold its place for five minutes, and end a build whose server is gone for as long.)
"""

import logging
from datetime import datetime
from typing import cast
from uuid import UUID

import httpx
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType
from prefect.runtime import deployment, flow_run
from prefect.states import Completed, Crashed

from pairwright.flows.build_dataset import RUNNER, run_as_flow
from pairwright.flows.run_build import resume_request
from pairwright.tasks.store.dataset import hold
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.gates import read_verdict

log = logging.getLogger(__name__)
LOCK = "schedule"
SKIPPED = "Skipped"


class _Busy(Exception):  # noqa: N818  (no fault: another update is at work)
    pass


@flow(name="update-dataset", flow_run_name="update-{dataset}", task_runner=RUNNER, persist_result=False)
def update_dataset(dataset: str) -> State[None]:
    """Look at a dataset's source anew, do what is owed, and publish a version where its gates hold.

    Args:
        dataset: Folder or URL of the dataset.
    """
    folder = Folder(dataset)
    request = resume_request(dataset, stage="", reason="")
    try:
        with hold(folder, LOCK, _refuse if folder.is_local else None):
            if folder.is_local:
                _bury_dead_runs()
            if made_up := _made_up(folder):
                return Completed(name=SKIPPED, message=made_up)
            return run_as_flow(request)
    except _Busy:
        return Completed(name=SKIPPED, message=f"another update of {dataset} is running; the next one sees the same")


def _refuse() -> None:
    raise _Busy


def _made_up(folder: Folder) -> str:
    """Say that a whole build has looked at the source after this run was due: a run that was missed comes late."""
    verdict, due = read_verdict(folder), cast("datetime", flow_run.get_scheduled_start_time())
    if verdict is None or verdict.held or not verdict.complete or flow_run.get_run_count() > 1:
        return ""
    if datetime.fromisoformat(verdict.began) < due:
        return ""
    return f"was due at {due:%Y-%m-%d %H:%M}; the build that began at {verdict.began[:16]} has made up for it"


def _bury_dead_runs() -> None:
    """Mark earlier runs of this deployment that Prefect takes for running: their processes do not hold the lock."""
    own, deployed = flow_run.get_id(), deployment.get_id()
    if not own or not deployed:
        return
    running = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[UUID(deployed)]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])),
    )
    dead = Crashed(message="its process is gone; the run after it goes on with its work")
    try:
        with get_client(sync_client=True) as client:
            began = client.read_flow_run(UUID(own)).start_time
            for run in client.read_flow_runs(flow_run_filter=running):
                if run.start_time and began and run.start_time < began:
                    client.set_flow_run_state(run.id, dead, force=True)
    except httpx.HTTPError as error:
        log.warning("runs that ended without a word are not marked in Prefect: %s", error)
