"""Check this machine: versions, devices, disk, weights, servers, and the needs of each profile.

Builds nothing.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from pairwright.flows.building.find_models import FETCH, check_served_weights, served_models
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ModelError, PairwrightError
from pairwright.tasks.captioning import locate_differences
from pairwright.tasks.mining import find_nouns
from pairwright.tasks.models.check_packages import (
    MachineCheck,
    check_gpus,
    check_packages,
    faiss_extra,
    missing,
    ok,
    warning,
)
from pairwright.tasks.models.weights import weights_folder
from pairwright.tasks.rejected import find_mentions
from pairwright.tasks.serving.probe import probe_model
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import count_cores
from pairwright.tasks.store.stage import Stage

GB = 1e9
MIN_MEMORY_GB = 4.0
MIN_FREE_GB = 5.0
SERVER_SECONDS = 3.0
NOUNS = {find_nouns.STAGE.name, find_mentions.STAGE.name, locate_differences.STAGE.name}
MEND_PREFECT = (
    "prefect server start --host 127.0.0.1, PREFECT_API_AUTH_STRING as it has it, or unset "
    "PREFECT_API_URL"
)


def check_machine(out: str, *, needs_gpu: bool) -> Iterator[MachineCheck]:
    """Yield the checks of every profile.

    Python, processor, memory, GPU, packages, disks, Prefect.
    """
    yield ok("machine", "Python", f"Python {sys.version.split()[0]} at {sys.executable}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    with suppress(OSError, ValueError):  # no container's limit: no such file, or "max"
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()) / GB)
    state = warning if memory < MIN_MEMORY_GB else ok
    yield state("machine", "processor", f"{count_cores()} cores, {memory:.1f} GB of memory")
    yield from check_gpus(needed=needs_gpu)
    yield from check_packages([faiss_extra()])
    for name, url in (("dataset", out or "."), ("weights", str(weights_folder()))):
        try:
            yield _check_folder(name, url)
        except (PairwrightError, OSError) as error:
            yield missing("disk", name, str(error))
    yield _check_prefect(os.environ.get("PREFECT_API_URL", ""))


def _check_folder(name: str, url: str) -> MachineCheck:
    """Check whether a local folder, or its nearest existing parent, has room and is writable."""
    folder = Folder(url)
    if not folder.is_local:
        return ok("disk", name, f"{url}: not looked at")
    path = Path(folder.path("")).absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return missing(
            "disk",
            name,
            f"{existing}: no folder that can be written to",
            mend="name another one with --out",
        )
    free = shutil.disk_usage(existing).free / GB
    state = warning if free < MIN_FREE_GB else ok
    return state("disk", name, f"{free:,.1f} GB free at {existing}")


def check_profile(profile: Profile, until: str) -> Iterator[MachineCheck]:
    """Yield the checks of one profile: packages, weights, served models."""
    stages = Pipeline(profile, until).running
    configs = {stage.name: stage.configure(profile) for stage in stages}
    extras = _needed_extras(stages, configs)
    for check in check_packages([faiss_extra(), *extras]):
        if check.name in extras:
            yield check
    pinned_stages: dict[str, Stage] = {}  # by section
    for stage in stages:
        if stage.pin:
            pinned_stages[stage.section_of(configs[stage.name])] = stage
    for section, stage in pinned_stages.items():
        config = configs[stage.name]
        check = _check_weights(stage, config, section, profile.name)
        loads_none = stage.processes is not None and stage.processes(config) is None
        if check.state != "ok" or not loads_none:
            yield check
    yield from _check_served(profile, until)


def _needed_extras(stages: Sequence[Stage], configs: Mapping[str, Any]) -> list[str]:
    """Return the extras of the installation that some stages need."""
    extras: list[str] = []
    for stage in stages:
        if stage.processes and stage.processes(configs[stage.name]) is not None:
            extras.append("models")
            break
    if NOUNS & configs.keys():
        extras.append("nouns")
    return extras


def _check_weights(stage: Stage, config: Any, section: str, profile: str) -> MachineCheck:
    """Check whether the files of a stage's models are on this machine."""
    assert stage.pin
    mend = f"pairwright fetch --profile {profile}, with the same --set"
    try:
        pinned = stage.pin(config)
        models = stage.models(pinned) if stage.models else ()
    except ModelError as error:
        problem, _, fetch_texts = str(error).partition(FETCH)
        if stage.name in NOUNS and fetch_texts:
            mend = fetch_texts.splitlines()[0]
        return missing("weights", section, problem, mend=mend)
    except (PairwrightError, OSError) as error:
        return missing("weights", section, str(error))
    return ok("weights", section, ", ".join(models) or "here")


def _check_served(profile: Profile, until: str) -> Iterator[MachineCheck]:
    """Yield whether each served model answers, or can be started."""
    waits = {
        "timeout_seconds": SERVER_SECONDS,
        "patience_seconds": SERVER_SECONDS,
        "structured_output": "none",
    }
    for field, chat in served_models(profile, until).items():
        try:
            found = probe_model(chat.model_copy(update=waits), field=field)
            check_served_weights(chat, field)
        except (PairwrightError, OSError) as error:
            yield missing("served", field, str(error))
            continue
        address = ", ".join(found.endpoint) or found.launch.command[0]
        yield ok("served", field, f"{found.model} at {address}")


def _check_prefect(url: str) -> MachineCheck:
    """Check whether a configured Prefect server answers, and has the version that is installed."""
    if not url:
        return ok("Prefect", "server", "none configured (PREFECT_API_URL): builds run without one")
    user, _, password = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
    auth = (user, password) if user else None
    address = f"{url.rstrip('/')}/admin/version"
    try:
        response = httpx.get(address, auth=auth, timeout=SERVER_SECONDS).raise_for_status()
        served = str(response.json())
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return missing("Prefect", "server", f"{url}: no Prefect server answers", mend=MEND_PREFECT)
    installed = version("prefect")
    same_minor = served.split(".")[:2] == installed.split(".")[:2]
    state = ok if same_minor else warning
    return state("Prefect", "server", f"{url}: version {served}, here is {installed}")
