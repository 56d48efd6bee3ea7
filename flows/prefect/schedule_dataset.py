"""Schedule updates of a dataset: a deployment of ``update-dataset`` on a Prefect server, or served
by this process.
"""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from prefect import serve
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from pairwright.flows.prefect.build_dataset import update_dataset
from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.build import read_record
from pairwright.tasks.store.files import Folder

HEARTBEATS = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""Environment of scheduled runs, as in ``docker/prefect.yaml``."""


def check_schedule(dataset: str, cron: str, timezone: str, *, paused: bool) -> str:
    """Return the dataset's absolute folder or URL."""
    place = dataset if "://" in dataset else str(Path(dataset).absolute())
    read_record(Folder(place))
    if not cron and not paused:
        raise ConfigError("--cron is missing: '0 2 * * *' is every night at two")
    try:
        if cron:
            CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        option = "timezone" if wrong["loc"] == ("timezone",) else "cron"
        example = "Europe/Zurich" if option == "timezone" else "'0 2 * * *' is every night at two"
        said = wrong["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--{option} {wrong['input']}: {said} ({example})") from error
    if not os.environ.get("PREFECT_API_URL"):
        raise ConfigError(
            "a schedule needs a Prefect server, and PREFECT_API_URL is not set. Start one that only this machine "
            "can reach, and set its address: `prefect server start --host 127.0.0.1`, then "
            "`export PREFECT_API_URL=http://127.0.0.1:4200/api`"
        )
    return place


def make_deployment(place: str, cron: str, timezone: str, *, paused: bool) -> Any:
    """Return the deployment of a dataset's updates; datasets of one name in different folders have different ones."""
    return update_dataset.to_deployment(
        name=_name_of(place),
        schedule=Cron(cron, timezone=timezone, active=not paused),
        parameters={"dataset": place},
        tags=[place.rstrip("/").rpartition("/")[2]],
        description=f"List the source of {place} again, do what is owed, publish a version if its gates hold.",
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def apply_schedule(deployment: Any, pool: str) -> str:
    """Create or change a deployment on the server, and its work pool if missing; return its full name."""
    with _naming_server():
        with get_client(sync_client=True) as client:
            try:
                client.read_work_pool(pool)
            except ObjectNotFound:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        deployment.job_variables = {"env": HEARTBEATS}
        deployment.apply(work_pool_name=pool)
    return deployment.full_name


def pause_schedule(place: str) -> str:
    """Pause the deployment of a dataset's updates, keeping its times; return its full name."""
    name = f"update-dataset/{_name_of(place)}"
    with _naming_server(), get_client(sync_client=True) as client:
        try:
            found = client.read_deployment_by_name(name)
        except ObjectNotFound as error:
            raise ConfigError(
                f"{place}: has no schedule to pause on {os.environ['PREFECT_API_URL']}"
            ) from error
        for one in found.schedules:
            client.update_deployment_schedule(found.id, one.id, active=False)
    return name


def serve_schedule(deployment: Any) -> None:
    """Apply a deployment and run due updates, one at a time, until Ctrl-C, which pauses it."""
    os.environ.update(HEARTBEATS)  # a deployment without a pool has no variables for its runs
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # only then does asyncio end its tasks in order
    with _naming_server():
        try:
            serve(deployment, limit=1, print_starting_message=False, pause_on_shutdown=False)
        finally:  # Prefect's own pause may be cancelled half-way
            with suppress(ObjectNotFound), get_client(sync_client=True) as client:
                client.pause_deployment(client.read_deployment_by_name(deployment.full_name).id)


@contextmanager
def _naming_server() -> Generator[None]:
    try:
        yield
    except (httpx.HTTPError, PrefectHTTPStatusError, RuntimeError) as error:
        raise ServerError(
            f"{os.environ['PREFECT_API_URL']}: the schedule could not be changed: {error}"
        ) from error


def _name_of(place: str) -> str:
    slug = "".join(c if c.isalnum() else "-" for c in place.rstrip("/").rpartition("/")[2].lower())
    return f"{slug}-{make_key(place)[:8]}"
