"""Check this machine: versions, devices, disk, weights, servers, and the needs of each profile.
Builds nothing.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import httpx

from pairwright.flows.building.find_models import served_models
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ModelError, PairwrightError
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
from pairwright.tasks.serving.probe import find_model
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.pool import count_cores

GB = 1e9
MIN_MEMORY_GB, MIN_FREE_GB = 4.0, 5.0
SERVER_SECONDS = 3.0
NOUNS = {find_nouns.STAGE.name, find_mentions.STAGE.name}
# text after which the message of a missing model tells how to fetch each of its files
FETCH = ". Fetch it with: "


def check_machine(out: str, *, needs_gpu: bool) -> Iterator[MachineCheck]:
    """Yield the checks that apply to every profile: Python, processor, memory, GPU, packages, disks, Prefect."""
    yield ok("machine", "Python", f"Python {sys.version.split()[0]} at {sys.executable}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    with suppress(OSError, ValueError):  # no container's limit: no such file, or "max"
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()) / GB)
    state = warning if memory < MIN_MEMORY_GB else ok
    yield state("machine", "processor", f"{count_cores()} cores, {memory:.1f} GB of memory")
    yield from check_gpus(needed=needs_gpu)
    yield from check_packages([faiss_extra()])
    for name, place in (("dataset", out or "."), ("weights", str(weights_folder()))):
        try:
            yield _check_place(name, place)
        except (PairwrightError, OSError) as error:
            yield missing("disk", name, str(error))
    yield _check_prefect(os.environ.get("PREFECT_API_URL", ""))


def _check_place(name: str, url: str) -> MachineCheck:
    """Check whether a folder on a disk, or its nearest existing parent, has room and may be written to."""
    folder = Folder(url)
    if not folder.is_local:
        return ok("disk", name, f"{url}: not looked at")
    place = Path(folder.path("")).absolute()
    place = next(path for path in (place, *place.parents) if path.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return missing(
            "disk",
            name,
            f"{place}: no folder that can be written to",
            mend="name another one with --out",
        )
    free = shutil.disk_usage(place).free / GB
    return (warning if free < MIN_FREE_GB else ok)("disk", name, f"{free:,.1f} GB free at {place}")


def check_profile(profile: Profile, until: str) -> Iterator[MachineCheck]:
    """Yield the checks of one profile: packages, weights, served models."""
    stages = Pipeline(profile, until).running
    sections = {stage.name: stage.configure(profile) for stage in stages}
    loading = any(one.processes and one.processes(sections[one.name]) is not None for one in stages)
    extras = [*(["models"] if loading else []), *(["nouns"] if NOUNS & sections.keys() else [])]
    yield from (check for check in check_packages([faiss_extra(), *extras]) if check.name in extras)
    pinned_stages = {one.section_of(sections[one.name]): one for one in stages if one.pin}
    for section, stage in pinned_stages.items():
        config, mend = (
            sections[stage.name],
            f"pairwright fetch --profile {profile.name}, with the same --set",
        )
        assert stage.pin
        try:
            pinned = stage.pin(config)
            said = ", ".join(stage.models(pinned) if stage.models else ()) or "here"
            check = ok("weights", section, said)
        except ModelError as error:
            said, _, how = str(error).partition(FETCH)
            mend = how.splitlines()[0] if stage.name in NOUNS and how else mend
            check = missing("weights", section, said, mend=mend)
        except (PairwrightError, OSError) as error:
            check = missing("weights", section, str(error))
        if check.state != "ok" or not stage.processes or stage.processes(config) is not None:
            yield check
    waits = {
        "timeout_seconds": SERVER_SECONDS,
        "patience_seconds": SERVER_SECONDS,
        "structured_output": "none",
    }
    for field, chat in served_models(profile, until).items():
        try:
            found = find_model(chat.model_copy(update=waits), field=field)
            yield ok(
                "served",
                field,
                f"{found.model} at {', '.join(found.endpoint) or found.launch.command[0]}",
            )
        except (PairwrightError, OSError) as error:
            yield missing("served", field, str(error))


def _check_prefect(url: str) -> MachineCheck:
    if not url:
        return ok("Prefect", "server", "none configured (PREFECT_API_URL): builds run without one")
    user, _, password = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
    place, auth = f"{url.rstrip('/')}/admin/version", (user, password) if user else None
    try:
        said = str(httpx.get(place, auth=auth, timeout=SERVER_SECONDS).raise_for_status().json())
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        mend = "prefect server start --host 127.0.0.1, PREFECT_API_AUTH_STRING as it has it, or unset PREFECT_API_URL"
        return missing("Prefect", "server", f"{url}: no Prefect server answers", mend=mend)
    state = ok if said.split(".")[:2] == version("prefect").split(".")[:2] else warning
    return state("Prefect", "server", f"{url}: version {said}, here is {version('prefect')}")
