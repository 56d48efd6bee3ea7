"""Find out which models a build loads or asks, before it starts; have a server up for each stage that needs one."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline import Pipeline
from pairwright.schemas.config import Profile, ResolvedProfile, resolve
from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import changed_fields
from pairwright.schemas.writing import ChatConfig, ServedSection
from pairwright.tasks.mining import search_neighbours
from pairwright.tasks.models.check_packages import require_faiss
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.serving.launch import Servers
from pairwright.tasks.serving.probe import find_model
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import Outcome
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)


def pin_models(profile: Profile, until: str) -> ResolvedProfile:
    """Return the profile with the revision that this machine has found of each model that the build loads."""
    stages = Pipeline(profile, until).running
    if search_neighbours.STAGE.name in {stage.name for stage in stages}:
        require_faiss()
    found: dict[str, Any] = {}
    for stage in stages:
        if stage.pin:
            own = profile.section(stage.section)
            found.update(changed_fields(own, stage.pin(own), stage.section))
    return resolve(profile, found)


def pin_served(profile: Profile, until: str) -> ResolvedProfile:
    """Return the profile with the name found of each served model that the build asks, and its form of grammar."""
    asking, found = _asking(profile, until), dict[str, Any]()
    for place, own in served_models(profile, until).items():
        count = max(one.images for one in asking if f"models.{profile.model_named(one.asks)}" == place)
        try:
            served = find_model(own, field=place, images=count)
        except ServerError as error:  # nothing has begun: an address is wrong, or nobody is there
            raise ConfigError(str(error)) from error
        found.update(changed_fields(own, served, place))
    return resolve(profile, found)


def served_models(profile: Profile, until: str) -> dict[str, ChatConfig]:
    """Return the served models that the build asks, by the field of the profile that describes each."""
    names = dict.fromkeys(profile.model_named(section.asks) for section in _asking(profile, until))
    return {f"models.{name}": profile.settled.served[name] for name in names}


def _asking(profile: Profile, until: str) -> list[ServedSection]:
    sections = [profile.section(stage.section) for stage in Pipeline(profile, until).running]
    return [own for own in sections if isinstance(own, ServedSection) and own.is_served]


def servers_of(folder: Folder) -> Servers:
    """Return the servers that a build may start; their logs are below the dataset, of a remote one on this machine."""
    if folder.is_local:
        return Servers(Path(folder.path("logs")))
    return Servers(Path(tempfile.gettempdir()) / f"pairwright-logs-{make_key(folder.url)[:16]}")


def waits_for(planned: Planned, counts: Sequence[Counts]) -> str:
    """Return the table that a stage waits for, since shards of it failed as a server was away; empty: there is none.

    A served model would be asked now with less to go by, and again later.
    """
    config = planned.config
    if not isinstance(config, ServedSection) or not config.is_served:
        return ""
    told = {use.table for use in planned.stage.uses if use.counts or planned.stage.by_source}
    return next((count.stage for count in counts if count.stage in told and count.pending), "")


def gpus_of(planned: Planned) -> int:
    """Return how many GPUs of this machine a stage holds: for its own models, or for vLLM that the build starts."""
    config = planned.config
    starts = isinstance(config, ServedSection) and config.is_served and config.served.launch.enabled
    loads = planned.stage.processes is not None and planned.stage.processes(config) is not None
    return count_gpus() if planned.stage.is_on and (starts or loads) else 0


def run_served(
    run_shards: Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]],
    servers: Servers,
    waiting: str,
    planned: Planned,
    shards: Sequence[ShardRef],
) -> Iterator[Outcome]:
    """Run shards, with the server up that their stage asks where this build is to start it; none while it waits."""
    config = planned.config
    if waiting and shards:
        log.warning("%s waits for %s, of which rows are still owed", planned.stage.name, waiting)
        return
    if shards and planned.stage.processes and planned.stage.processes(config) and count_gpus():
        servers.stop()  # the GPU is this stage's own now
    if shards and isinstance(config, ServedSection) and config.is_served:
        ready = config.model_copy(update={"chat": servers.ready(config.served)})
        planned = replace(planned, config=ready)
    yield from run_shards(planned, shards)
