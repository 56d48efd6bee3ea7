"""Schedule updates of a dataset: a deployment of ``update-dataset`` on a Prefect server.

Or served by this process.
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
from pairwright.flows.prefect.relay import dataset_name, make_slug
from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.open_tables import read_record

HEARTBEATS = {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"}
"""Environment of scheduled runs, as in ``docker/prefect.yaml``."""


def check_schedule(dataset: str, cron: str, timezone: str, *, paused: bool) -> str:
    """Return the dataset's absolute folder or URL."""
    url = dataset if "://" in dataset else str(Path(dataset).absolute())
    read_record(Folder(url))
    if not cron and not paused:
        raise ConfigError("--cron is missing: '0 2 * * *' is every night at two")
    if cron:
        _check_times(cron, timezone)
    if not os.environ.get("PREFECT_API_URL"):
        raise ConfigError(
            "a schedule needs a Prefect server, and PREFECT_API_URL is not set. Start one that "
            "only this machine can reach, and set its address: `prefect server start --host "
            "127.0.0.1`, then `export PREFECT_API_URL=http://127.0.0.1:4200/api`"
        )
    return url


def _check_times(cron: str, timezone: str) -> None:
    """Refuse times or a time zone that Prefect cannot read."""
    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        if wrong["loc"] == ("timezone",):
            option = "timezone"
            example = "Europe/Zurich"
        else:
            option = "cron"
            example = "'0 2 * * *' is every night at two"
        problem = wrong["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--{option} {wrong['input']}: {problem} ({example})") from error


def make_deployment(url: str, cron: str, timezone: str, *, paused: bool) -> Any:
    """Return the deployment of a dataset's updates; each folder or URL has its own."""
    return update_dataset.to_deployment(
        name=_deployment_name(url),
        schedule=Cron(cron, timezone=timezone, active=not paused),
        parameters={"dataset": url},
        tags=[dataset_name(url)],
        description=(
            f"List the source of {url} again, finish its rows, publish a version if its gates hold."
        ),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def apply_schedule(deployment: Any, pool: str) -> str:
    """Create or change a deployment on the server, and its work pool if missing.

    Return its full name.
    """
    with _naming_server():
        with get_client(sync_client=True) as client:
            try:
                client.read_work_pool(pool)
            except ObjectNotFound:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        deployment.job_variables = {"env": HEARTBEATS}
        deployment.apply(work_pool_name=pool)
    return deployment.full_name


def pause_schedule(url: str) -> str:
    """Pause the deployment of a dataset's updates, keeping its times; return its full name."""
    name = f"update-dataset/{_deployment_name(url)}"
    with _naming_server(), get_client(sync_client=True) as client:
        try:
            deployment = client.read_deployment_by_name(name)
        except ObjectNotFound as error:
            raise ConfigError(
                f"{url}: has no schedule to pause on {os.environ['PREFECT_API_URL']}"
            ) from error
        for schedule in deployment.schedules:
            client.update_deployment_schedule(deployment.id, schedule.id, active=False)
    return name


def serve_schedule(deployment: Any) -> None:
    """Apply a deployment and run due updates, one at a time, until Ctrl-C, which pauses it."""
    os.environ.update(HEARTBEATS)  # a deployment without a pool has no variables for its runs
    # only then does asyncio end its tasks in order
    signal.signal(signal.SIGINT, signal.default_int_handler)
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


def _deployment_name(url: str) -> str:
    """Return a name that is the dataset's alone.

    Datasets of one name may lie in different folders.
    """
    return f"{make_slug(dataset_name(url))}-{make_key(url)[:8]}"
