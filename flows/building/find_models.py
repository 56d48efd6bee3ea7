"""Resolve the models that a build loads or asks, before it starts.

Run a server for each stage that needs one. Fetches and verifies all weights ahead of a build: each
stage with a ``pin`` looks for its files when a build starts, and does so here while an inventory is
taken. Models that vLLM serves are left to vLLM.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import Pipeline, with_source
from pairwright.schemas.config import Profile, ResolvedProfile, add_findings
from pairwright.schemas.errors import ConfigError, ModelError, ServerError
from pairwright.schemas.rows import make_key
from pairwright.schemas.section import Section, changed_fields
from pairwright.schemas.writing import ChatConfig, ServedSection, served_parts
from pairwright.tasks.mining import search_neighbours
from pairwright.tasks.models.check_packages import require_faiss
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.verify_weights import (
    Verified,
    find_missing_served,
    verify_lookups,
    verify_served,
)
from pairwright.tasks.models.weights import is_model_folder
from pairwright.tasks.serving.launch import Servers
from pairwright.tasks.serving.probe import probe_model
from pairwright.tasks.store.executor import count_own_processes
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.stage import Planned, Stage

# text after which the message of a missing model tells how to fetch each of its files
FETCH = ". Fetch it with: "


def pin_models(profile: Profile, until: str) -> ResolvedProfile:
    """Return the profile with this machine's revision of each model that the build loads."""
    stages = Pipeline(profile, until).running
    if search_neighbours.STAGE.name in {stage.name for stage in stages}:
        require_faiss()
    findings: dict[str, Any] = {}
    for stage in stages:
        if stage.pin:
            config = stage.configure(profile)
            findings.update(changed_fields(config, stage.pin(config), stage.section_of(config)))
    return add_findings(profile, findings)


def pin_all(profile: Profile, until: str) -> ResolvedProfile:
    """Return the profile with what a build loads and asks, pinned to this machine.

    Where several things are missing, one ``ConfigError`` names them all; a single one keeps its
    own message.
    """
    try:
        return pin_models(pin_served(profile, until), until)
    except (ConfigError, ModelError) as error:
        problems = list(_list_problems(profile, until))
        if len(problems) < 2:
            raise
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise ConfigError(
            f"{profile.name}: {len(problems)} things are missing on this machine:\n{lines}\n"
            f"Fetch weights with: pairwright fetch --profile {profile.name} --served, and the same "
            f"--set. See all, with how to fix each: pairwright doctor --profile {profile.name}"
        ) from error


def _list_problems(profile: Profile, until: str) -> Iterator[str]:
    """Yield what the build lacks here, in a line each."""
    messages: list[str] = []
    models = served_models(profile, until)
    for model, chat in models.items():
        try:
            probe_model(chat, field=model)
            check_served_weights(chat, model)
        except (ConfigError, ServerError) as error:
            messages.append(str(error))
    if messages and not count_gpus() and any(chat.launch.enabled for chat in models.values()):
        messages.append("no GPU: vLLM, which the build starts, needs one")
    for stage in Pipeline(profile, until).running:
        if stage.pin:
            messages.extend(_find_fault(stage, stage.configure(profile)))
    for message in dict.fromkeys(messages):
        for end in (". Put ", "\n"):
            message = message.partition(end)[0]
        yield message.rstrip(".")


def _find_fault(stage: Stage, config: Any) -> Iterator[str]:
    """Yield why a stage's models cannot be pinned, if so."""
    assert stage.pin
    try:
        stage.pin(config)
    except (ConfigError, ModelError) as error:
        yield from str(error).split("\n\n")


def pin_served(profile: Profile, until: str) -> ResolvedProfile:
    """Return the profile with each served model's name, and its form of grammar."""
    images_of: dict[str, int] = {}  # the most images in a question to each model
    for section in _served_sections(profile, until):
        model = _served_field(profile, section)
        images_of[model] = max(section.images, images_of.get(model, 0))
    findings: dict[str, Any] = {}
    for model, chat in served_models(profile, until).items():
        try:
            found = probe_model(chat, field=model, images=images_of[model])
        except ServerError as error:  # nothing has begun: the address is wrong, or no server runs
            raise ConfigError(str(error)) from error
        check_served_weights(chat, model)
        findings.update(changed_fields(chat, found, model))
    return add_findings(profile, findings)


def check_served_weights(chat: ChatConfig, field: str) -> None:
    """Raise ``ConfigError`` for a model that vLLM would look for in vain on this machine.

    A command of several words may be a container, whose cache is its own.
    """
    launch = chat.launch
    if not launch.enabled or launch.download or len(launch.command) != 1:
        return
    if not chat.model or is_model_folder(chat.model) or "--download-dir" in launch.flags:
        return
    missing = find_missing_served(chat)
    if missing:
        raise ConfigError(
            f"{field}.model: {chat.model} is not on this machine: {missing}. Fetch it with: "
            "pairwright fetch --served, and the same --profile and --set; or let vLLM fetch it: "
            f"--set {field}.launch.download=true"
        )


def served_models(profile: Profile, until: str) -> dict[str, ChatConfig]:
    """Return the served models that the build asks, by field of the profile."""
    sections = _served_sections(profile, until)
    names = dict.fromkeys(profile.model_named(section.asks) for section in sections)
    return {f"models.{name}": profile.resolved.chat_models[name] for name in names}


def _served_sections(profile: Profile, until: str) -> list[ServedSection]:
    """Return the sections of the stages that ask a served model."""
    sections: list[ServedSection] = []
    for stage in Pipeline(profile, until).running:
        sections.extend(served_parts(stage.configure(profile)))
    return sections


def _served_field(profile: Profile, section: ServedSection) -> str:
    """Return the profile's field of the model that a section asks."""
    return f"models.{profile.model_named(section.asks)}"


def servers_of(folder: Folder) -> Servers:
    """Return the servers that a build may start.

    Logs are below the dataset, or on this machine if it is remote.
    """
    if folder.is_local:
        return Servers(Path(folder.path("logs")))
    return Servers(Path(tempfile.gettempdir()) / f"pairwright-logs-{make_key(folder.url)[:16]}")


def waits_for(planned: Planned, counts: Sequence[Counts]) -> str:
    """Return the table that a stage waits for, since shards of it failed without a server.

    Empty: none. Otherwise a served model would be asked now with less context, and again later.
    """
    if not any(served_parts(planned.config)):
        return ""
    stage = planned.stage
    tables = {use.table for use in planned.inputs.uses if use.counts or stage.by_source}
    for count in counts:
        if count.stage in tables and count.pending:
            return count.stage
    return ""


def start_server(servers: Servers, profile: Profile, planned: Planned) -> Planned:
    """Return a stage that asks a running server, started if this build is to.

    Free the GPU for one that loads models.
    """
    if count_own_processes(planned) and count_gpus():
        servers.stop_server()
    config = planned.config
    for section in served_parts(config):
        chat = servers.serve(section.served, field=_served_field(profile, section))
        config = _fill_chat(config, section, chat)
    return replace(planned, config=config)


def _fill_chat(config: Section, section: ServedSection, chat: ChatConfig) -> Section:
    """Return a stage's section with a running server in a part of it that asks."""
    if config is section:
        return config.model_copy(update={"chat": chat})
    values = {
        name: _fill_chat(value, section, chat)
        for name, value in config
        if isinstance(value, Section)
    }
    return config.model_copy(update=values)


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Outcome of fetching: files that are present, and those that could not be fetched."""

    files: list[Verified] = field(default_factory=list[Verified])
    # why a build cannot start, beside the files' own faults
    problems: list[str] = field(default_factory=list[str])

    @property
    def faults(self) -> list[str]:
        """Return all distinct faults."""
        faults = [file.fault for file in self.files if file.fault]
        return list(dict.fromkeys([*faults, *self.problems]))

    @property
    def folder_sizes(self) -> dict[str, list[int]]:
        """Return the sizes of the files by folder."""
        sizes: dict[str, list[int]] = {}
        for file in self.files:
            if file.folder:
                sizes.setdefault(file.folder, []).append(file.size)
        return sizes


def profile_to_fetch(name: str, settings: Sequence[str], source: str | None = None) -> Profile:
    """Return the profile to fetch weights for; without a source, a folder of images is assumed."""
    profile = load_profile(name, settings)
    if source is None and not profile.source:
        return profile.model_copy(update={"source": "folder:"})
    return with_source(profile, [source] if source else [])


def fetch_weights(profile: Profile, until: str, *, fetch: bool) -> Fetched:
    """Fetch and verify every file that a build's stages load.

    Without ``fetch`` only verify, without the network.
    """
    fetched = Fetched()
    pins: dict[str, tuple[Any, Callable[[Any], Any]]] = {}  # by section
    for stage in Pipeline(profile, until).running:
        if stage.pin:
            config = stage.configure(profile)
            pins[stage.section_of(config)] = (config, stage.pin)
    for config, pin in pins.values():
        config = _set_download(config, fetch=fetch)
        files, problem = verify_lookups(partial(pin, config), fetch=fetch)
        # Two sections may need the same files.
        fetched.files.extend(file for file in files if file not in fetched.files)
        if problem:
            fetched.problems.append(problem)
    return fetched


def _set_download(config: Section, *, fetch: bool) -> Section:
    """Return a section where weights may be fetched or not, with the sections inside it."""
    values: dict[str, Any] = {}
    for name, value in config:
        if name == "download":
            values[name] = fetch
        elif isinstance(value, Section):
            values[name] = _set_download(value, fetch=fetch)
    return config.model_copy(update=values)


def fetch_served(profile: Profile, until: str, fetched: Fetched, *, fetch: bool) -> None:
    """Fetch and verify the files of models that the build serves with vLLM as well."""
    for name, chat in served_on_hub(profile, until).items():
        fetched.files.extend(verify_served(chat, name, fetch=fetch))


def served_on_hub(profile: Profile, until: str) -> dict[str, ChatConfig]:
    """Return the models that vLLM loads from the Hub, by field.

    Neither a local folder's nor a server's own.
    """
    return {
        name: chat
        for name, chat in served_models(profile, until).items()
        if chat.launch and chat.model and not is_model_folder(chat.model)
    }
