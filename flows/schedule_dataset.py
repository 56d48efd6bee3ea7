"""Schedule updates of a dataset: a deployment of ``update-dataset`` on a Prefect server, or served by this process."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.dataset import read_record
from pairwright.tasks.store.files import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Schedule of a dataset's updates, with the work pool."""

    cron: str
    timezone: str = "UTC"
    paused: bool = False
    pool: str = "pairwright"


def check_schedule(dataset: str, timetable: Timetable) -> str:
    """Return the dataset's absolute folder or URL."""
    from prefect.client.schemas.schedules import CronSchedule

    place = dataset if "://" in dataset else str(Path(dataset).absolute())
    read_record(Folder(place))
    if not timetable.cron and not timetable.paused:
        raise ConfigError("--cron is missing: '0 2 * * *' is every night at two")
    try:
        if timetable.cron:
            CronSchedule(cron=timetable.cron, timezone=timetable.timezone)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        option = "timezone" if wrong["loc"] == ("timezone",) else "cron"
        example = "Europe/Zurich" if option == "timezone" else "'0 2 * * *' is every night at two"
        raise ConfigError(
            f"--{option} {wrong['input']}: {wrong['msg'].removeprefix('Value error, ')} ({example})"
        ) from error
    if not os.environ.get("PREFECT_API_URL"):
        raise ConfigError(
            "a schedule needs a Prefect server, and PREFECT_API_URL is not set. Start one that only this machine "
            "can reach, and set its address: `prefect server start --host 127.0.0.1`, then "
            "`export PREFECT_API_URL=http://127.0.0.1:4200/api`"
        )
    return place


def apply_schedule(place: str, timetable: Timetable) -> str:
    """Create or change the deployment on the server, and its work pool if missing; return its full name."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    deployment = make_deployment(place, timetable)
    try:
        with get_client(sync_client=True) as client:
            try:
                client.read_work_pool(timetable.pool)
            except ObjectNotFound:
                client.create_work_pool(WorkPoolCreate(name=timetable.pool, type="process"))
        deployment.apply(work_pool_name=timetable.pool)
    except (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError) as error:
        raise ServerError(f"{os.environ['PREFECT_API_URL']}: the schedule could not be applied: {error}") from error
    return deployment.full_name


def pause_schedule(place: str) -> str:
    """Pause the deployment of a dataset's updates, keeping its times; return its full name."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    name = f"update-dataset/{_name_of(place)}"
    try:
        with get_client(sync_client=True) as client:
            found = client.read_deployment_by_name(name)
            for one in found.schedules:
                client.update_deployment_schedule(found.id, one.id, active=False)
    except ObjectNotFound as error:
        raise ConfigError(f"{place}: has no schedule to pause on {os.environ['PREFECT_API_URL']}") from error
    except (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError) as error:
        raise ServerError(f"{os.environ['PREFECT_API_URL']}: the schedule could not be paused: {error}") from error
    return name


def _name_of(place: str) -> str:
    slug = "".join(c if c.isalnum() else "-" for c in place.rstrip("/").rpartition("/")[2].lower())
    return f"{slug}-{make_key(place)[:8]}"


def make_deployment(place: str, timetable: Timetable) -> Any:
    """Return the deployment of a dataset's updates; datasets of one name in different folders have different ones."""
    from prefect.schedules import Cron
    from prefect.types.entrypoint import EntrypointType

    from pairwright.flows.build_dataset import update_dataset

    return update_dataset.to_deployment(
        name=_name_of(place),
        schedule=Cron(timetable.cron, timezone=timetable.timezone, active=not timetable.paused),
        parameters={"dataset": place},
        tags=[place.rstrip("/").rpartition("/")[2]],
        description=f"List the source of {place} again, do what is owed, publish a version if its gates hold.",
        entrypoint_type=EntrypointType.MODULE_PATH,
        job_variables={"env": {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}},  # as in docker/prefect.yaml
    )


def serve_schedule(place: str, timetable: Timetable) -> None:
    """Apply the deployment and run due updates, one at a time, until Ctrl-C, which pauses it."""
    from prefect import serve

    try:
        serve(make_deployment(place, timetable), limit=1, print_starting_message=False)
    except RuntimeError as error:
        raise ServerError(f"{os.environ['PREFECT_API_URL']}: no Prefect server answers: {error}") from error
