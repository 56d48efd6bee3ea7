"""Schedule the updates of a dataset: a Prefect deployment of ``update-dataset``, written beside it and applied.

Reads the dataset's record (what it was built from), writes ``prefect.yaml`` into its folder; needs a Prefect server.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.dataset import read_record
from pairwright.tasks.store.files import Folder

FILE = "prefect.yaml"
ENTRYPOINT = "pairwright.flows.build_dataset.update_dataset"
HEAD = """# Written by `pairwright schedule`, which has applied it. To apply it to another server:
#   prefect --no-prompt deploy --all --prefect-file {place}
# Runs are done by: prefect worker start --pool {pool} --type process
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """Timetable of a dataset's updates, and who does them."""

    cron: str
    timezone: str = "UTC"
    paused: bool = False
    pool: str = "pairwright"
    """The work pool whose workers run it; empty: no pool, this process does."""


def check_schedule(dataset: str, timetable: Timetable) -> str:
    """Return the dataset's absolute place.

    Raises:
        ConfigError: there is no such dataset, the time is not one, or no server is configured.
    """
    from prefect.client.schemas.schedules import CronSchedule

    place = dataset if "://" in dataset else str(Path(dataset).absolute())
    read_record(Folder(place))
    try:
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
            "a schedule needs a Prefect server, and PREFECT_API_URL names none. Start one that only this machine "
            "reaches, and name it: `prefect server start --host 127.0.0.1`, then "
            "`export PREFECT_API_URL=http://127.0.0.1:4200/api`"
        )
    return place


def deployment_name(place: str) -> str:
    """Return the name of a dataset's deployment: two datasets of one name, in two places, have two."""
    name = "".join(c if c.isalnum() else "-" for c in place.rstrip("/").rpartition("/")[2].lower())
    return f"{name}-{make_key(place)[:8]}"


def write_schedule(place: str, timetable: Timetable) -> None:
    """Write the deployment into the dataset's folder, in the form that `prefect deploy` reads."""
    schedule: dict[str, Any] = {"cron": timetable.cron, "timezone": timetable.timezone, "active": not timetable.paused}
    deployment: dict[str, Any] = {
        "name": deployment_name(place),
        "description": f"Look at the source of {place} anew, do what is owed, publish a version where its gates hold.",
        "entrypoint": ENTRYPOINT,
        "pull": [],
        "parameters": {"dataset": place},
        "tags": _tags(place),
        "schedules": [schedule],
        "work_pool": {"name": timetable.pool or Timetable.pool},
    }
    folder = Folder(place)
    head = HEAD.format(place=folder.path(FILE), pool=timetable.pool or Timetable.pool)
    folder.write(FILE, f"{head}{yaml.safe_dump({'deployments': [deployment]}, sort_keys=False)}".encode())


def apply_schedule(place: str, timetable: Timetable) -> str:
    """Make or change the deployment on the server, and its work pool where there is none; return its full name.

    Raises:
        ServerError: the server does not answer, or refuses it.
    """
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


def make_deployment(place: str, timetable: Timetable) -> Any:
    """Return the deployment of a dataset's updates."""
    from prefect.schedules import Cron
    from prefect.types.entrypoint import EntrypointType

    from pairwright.flows.build_dataset import update_dataset

    return update_dataset.to_deployment(
        name=deployment_name(place),
        schedule=Cron(timetable.cron, timezone=timetable.timezone, active=not timetable.paused),
        parameters={"dataset": place},
        tags=_tags(place),
        description=f"Look at the source of {place} anew, do what is owed, publish a version where its gates hold.",
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def serve_schedule(place: str, timetable: Timetable) -> None:
    """Apply the deployment and run what is due, one run at a time, until Ctrl-C, which pauses it.

    Raises:
        ServerError: the server does not answer.
    """
    from prefect import serve

    try:
        serve(make_deployment(place, timetable), limit=1, print_starting_message=False)
    except RuntimeError as error:
        raise ServerError(f"{os.environ['PREFECT_API_URL']}: no Prefect server answers: {error}") from error


def _tags(place: str) -> list[str]:
    return [place.rstrip("/").rpartition("/")[2]]
