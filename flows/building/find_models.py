"""Resolve the models that a build loads or asks, before it starts; run a server for each stage that needs one.

Fetches and verifies all weights ahead of a build: each stage with a ``pin`` looks for its files
when a build starts, and does so here while an inventory is taken. Models that vLLM serves are left
to vLLM.
"""

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline, with_source
from pairwright.schemas.config import Profile, ResolvedProfile, resolve
from pairwright.schemas.errors import ConfigError, ServerError
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import changed_fields
from pairwright.schemas.writing import ChatConfig, ServedSection
from pairwright.tasks.mining import search_neighbours
from pairwright.tasks.models.check_packages import require_faiss
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.verify_weights import Verified, verify_lookups, verify_served
from pairwright.tasks.models.weights import is_local
from pairwright.tasks.serving.launch import Servers
from pairwright.tasks.serving.probe import find_model
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import Outcome
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

log = logging.getLogger(__name__)


def pin_models(profile: Profile, until: str) -> ResolvedProfile:
    """Return the profile with this machine's revision of each model that the build loads."""
    stages = Pipeline(profile, until).running
    if search_neighbours.STAGE.name in {stage.name for stage in stages}:
        require_faiss()
    found: dict[str, Any] = {}
    for stage in stages:
        if stage.pin:
            config = stage.configure(profile)
            found.update(changed_fields(config, stage.pin(config), stage.section_of(config)))
    return resolve(profile, found)


def pin_served(profile: Profile, until: str) -> ResolvedProfile:
    """Return the profile with the name of each served model that the build asks, and its form of grammar."""
    asking, found = _asking(profile, until), dict[str, Any]()
    for place, own in served_models(profile, until).items():
        count = max(
            one.images for one in asking if f"models.{profile.model_named(one.asks)}" == place
        )
        try:
            served = find_model(own, field=place, images=count)
        except ServerError as error:  # nothing has begun: the address is wrong, or no server runs
            raise ConfigError(str(error)) from error
        found.update(changed_fields(own, served, place))
    return resolve(profile, found)


def served_models(profile: Profile, until: str) -> dict[str, ChatConfig]:
    """Return the served models that the build asks, by field of the profile."""
    names = dict.fromkeys(profile.model_named(section.asks) for section in _asking(profile, until))
    return {f"models.{name}": profile.settled.served[name] for name in names}


def _asking(profile: Profile, until: str) -> list[ServedSection]:
    sections = [stage.configure(profile) for stage in Pipeline(profile, until).running]
    return [own for own in sections if isinstance(own, ServedSection) and own.is_served]


def servers_of(folder: Folder) -> Servers:
    """Return the servers that a build may start; logs are below the dataset, or on this machine if it is remote."""
    if folder.is_local:
        return Servers(Path(folder.path("logs")))
    return Servers(Path(tempfile.gettempdir()) / f"pairwright-logs-{make_key(folder.url)[:16]}")


def waits_for(planned: Planned, counts: Sequence[Counts]) -> str:
    """Return the table that a stage waits for, since shards of it failed without a server; empty: none.

    Otherwise a served model would be asked now with less context, and again later.
    """
    config = planned.config
    if not isinstance(config, ServedSection) or not config.is_served:
        return ""
    told = {use.table for use in planned.stage.uses if use.counts or planned.stage.by_source}
    return next((count.stage for count in counts if count.stage in told and count.pending), "")


def run_served(
    run_shards: Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]],
    servers: Servers,
    profile: Profile,
    waiting: str,
    planned: Planned,
    shards: Sequence[ShardRef],
) -> Iterator[Outcome]:
    """Run shards, starting the server of their stage if this build is to start it; none while the stage waits."""
    config = planned.config
    if waiting and shards:
        log.warning("%s waits for %s, which still has owed rows", planned.stage.name, waiting)
        return
    if shards and planned.stage.processes and planned.stage.processes(config) and count_gpus():
        servers.stop()  # the GPU is needed by this stage
    if shards and isinstance(config, ServedSection) and config.is_served:
        ready = servers.ready(config.served, field=f"models.{profile.model_named(config.asks)}")
        planned = replace(planned, config=config.model_copy(update={"chat": ready}))
    yield from run_shards(planned, shards)


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Outcome of fetching: files that are present, and those that could not be fetched."""

    files: list[Verified] = field(default_factory=list[Verified])
    problems: list[str] = field(
        default_factory=list[str]
    )  # why a build cannot start, beside the files' own faults

    @property
    def faults(self) -> list[str]:
        """Return all distinct faults."""
        return list(
            dict.fromkeys([*(file.fault for file in self.files if file.fault), *self.problems])
        )

    @property
    def places(self) -> dict[str, list[int]]:
        """Return the sizes of the files by folder."""
        folders = dict.fromkeys(file.folder for file in self.files if file.folder)
        return {
            folder: [file.size for file in self.files if file.folder == folder]
            for folder in folders
        }


def profile_to_fetch(name: str, settings: Sequence[str], source: str | None = None) -> Profile:
    """Return the profile to fetch weights for; without a source, a folder of images is assumed."""
    profile = load_profile(name, settings)
    lacks = source is None and not profile.source
    return (
        profile.model_copy(update={"source": "folder:"}) if lacks else with_source(profile, source)
    )


def fetch_weights(profile: Profile, until: str, *, fetch: bool) -> Fetched:
    """Fetch and verify every file that a build's stages load; without ``fetch`` only verify, without the network."""
    done = Fetched()
    pins: dict[str, tuple[Any, Callable[[Any], Any]]] = {}  # by section
    for stage in Pipeline(profile, until).running:
        if stage.pin:
            config = stage.configure(profile)
            pins[stage.section_of(config)] = config, stage.pin
    for own, pin in pins.values():
        own = own.model_copy(update={"download": fetch}) if hasattr(own, "download") else own
        files, problem = verify_lookups(partial(pin, own), fetch=fetch)
        done.files.extend(files)
        done.problems.extend([problem] if problem else [])
    return done


def fetch_served(profile: Profile, until: str, done: Fetched, *, fetch: bool) -> None:
    """Fetch and verify the files of models that the build serves with vLLM as well."""
    for name, chat in served_on_hub(profile, until).items():
        done.files.extend(verify_served(chat, name, fetch=fetch))


def served_on_hub(profile: Profile, until: str) -> dict[str, ChatConfig]:
    """Return the models that vLLM loads from the Hub, by field: neither a local folder's nor a server's own."""
    served = served_models(profile, until).items()
    return {
        name: chat
        for name, chat in served
        if chat.launch and chat.model and not is_local(chat.model)
    }
