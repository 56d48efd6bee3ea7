"""Find out which models a build loads or asks, before it starts; have a server up for each stage that needs one."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from flows.stages import stages_until
from schemas.config import Profile
from schemas.rows import make_key
from schemas.section import Section
from schemas.writing import ServedSection
from tasks.serving.launch import Servers
from tasks.serving.probe import find_model
from tasks.store.files import Folder
from tasks.store.pool import Outcome
from tasks.store.shard import ShardRef
from tasks.store.stage import Planned


def pin_models(profile: Profile, until: str) -> Profile:
    """Return the profile with each model that the build loads at the revision that this machine has.

    Raises:
        ModelError: one is missing.
    """
    stages = [stage for stage in stages_until(profile, until) if stage.pin]
    pinned = {stage.config: stage.pin(getattr(profile, stage.config)) for stage in stages if stage.pin}
    return profile.model_copy(update=pinned)


def pin_served(profile: Profile, until: str) -> Profile:
    """Return the profile with the name of each served model that the build asks, and the form of grammar it takes.

    Raises:
        ConfigError: no server is named, or it does not serve the model.
        ServerError: one cannot be reached.
    """
    found: dict[str, Section] = {}
    for name in dict.fromkeys(stage.config for stage in stages_until(profile, until)):
        section = getattr(profile, name)
        if name in found or not isinstance(section, ServedSection) or not section.is_served:
            continue
        if section.chat is None and section.role == "writer" and profile.differences.chat is not None:
            name, section = "differences", profile.differences
        if section.chat is not None:
            chat = find_model(section.chat, field=f"{name}.chat")
            found[name] = section.model_copy(update={"chat": chat})
            continue
        role = section.role if section.role != "writer" and getattr(profile, section.role) else "chat"
        if role not in found:
            found[role] = find_model(profile.served(role), field=role)
    return profile.model_copy(update=found)


def servers_of(folder: Folder) -> Servers:
    """Return the servers that a build may start; their logs are below the dataset, of a remote one on this machine."""
    if folder.is_local:
        return Servers(Path(folder.path("logs")))
    return Servers(Path(tempfile.gettempdir()) / f"pairwright-logs-{make_key(folder.url)[:16]}")


def run_served(
    run_shards: Callable[[Planned, Sequence[ShardRef]], Iterator[Outcome]],
    servers: Servers,
    planned: Planned,
    shards: Sequence[ShardRef],
) -> Iterator[Outcome]:
    """Run shards, with the server up that their stage asks where this build is to start it."""
    config = planned.config
    if shards and isinstance(config, ServedSection) and config.is_served:
        ready = config.model_copy(update={"chat": servers.ready(config.model)})
        planned = replace(planned, config=ready)
    yield from run_shards(planned, shards)
