"""Look at this machine, and at what each profile needs of it, without building anything.

Every look has a few seconds and may fail: what cannot be looked at is said, and nothing here raises or waits for ever.
"""

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pairwright.flows.find_models import served_models
from pairwright.flows.load_profile import load_profile
from pairwright.flows.pipeline import Pipeline
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError, ModelError
from pairwright.schemas.health import Check, missing, ok, warning
from pairwright.tasks.mining import find_nouns
from pairwright.tasks.models.check_packages import check_gpus, check_packages, faiss_extra
from pairwright.tasks.models.fetching.published import weights_folder
from pairwright.tasks.rejected import find_mentions
from pairwright.tasks.serving.check_served import check_prefect, check_served
from pairwright.tasks.store.check_disk import check_clock, check_limits, check_place, check_processor, python_version
from pairwright.tasks.store.stage import Stage

LOOK_SECONDS = 45.0
"""Longest wait for one look; those that ask servers take less."""
NOUNS = {find_nouns.STAGE.name, find_mentions.STAGE.name}
FETCH = ". Fetch it with: "
"""After this the message of a missing model says how each of its files is fetched by itself."""
Look = Callable[[], Iterable[Check]]


def profile_to_check(name: str, settings: Sequence[str]) -> Profile:
    """Return the profile; where it names no source, a folder of images stands for it.

    Raises:
        ConfigError: the profile or a setting is wrong.
    """
    profile = load_profile(name, settings)
    return profile if profile.source else profile.model_copy(update={"source": "folder:"})


def check_machine(out: str, *, workers: int, needs_gpu: bool) -> Iterator[Check]:
    """Yield what is so for every profile: processor, memory, GPU, Python, disks, clock, Prefect."""
    yield ok("machine", "Python", python_version())
    yield from _look("machine", "processor", partial(check_processor, workers))
    yield from _look("machine", "GPU", partial(check_gpus, needed=needs_gpu))
    yield from _look("machine", "limits", check_limits)
    yield from _look("machine", "clock", partial(check_clock, out))
    yield from _look("packages", "core", partial(check_packages, [faiss_extra()]))
    yield from _look("disk", "dataset", partial(check_place, "dataset", out or "."))
    for name, folder in _caches().items():
        yield from _look("disk", name, partial(check_place, name, str(folder)))
    yield from _look("Prefect", "server", partial(check_prefect, dict(os.environ)))


def _caches() -> dict[str, Path]:
    """Return where files of this machine are kept that no dataset holds, by what they are called here."""
    hub = os.environ.get("HF_HUB_CACHE") or f"{os.environ.get('HF_HOME', '~/.cache/huggingface')}/hub"
    return {
        "weights": weights_folder(),
        "Hub's cache": Path(hub).expanduser(),
        "temporary files": Path(tempfile.gettempdir()),
    }


def check_profile(profile: Profile, until: str) -> Iterator[Check]:
    """Yield what a profile needs beside that: packages, weights, served models.

    Raises:
        ConfigError: there is no such stage.
    """
    stages = Pipeline(profile, until).running
    extras = list(_extras(stages, profile))
    if extras:
        yield from _look("packages", "extras", partial(_check_extras, extras))
    for stage in {one.section: one for one in stages if one.pin}.values():
        yield from _look("weights", stage.section, partial(_check_weights, stage, profile))
    for field, chat in served_models(profile, until).items():
        yield from _look("served", field, partial(check_served, chat, field))


def _extras(stages: Sequence[Stage], profile: Profile) -> Iterator[str]:
    """Yield the extras of packages that the stages need beside the core."""
    if any(one.processes and one.processes(profile.section(one.section)) is not None for one in stages):
        yield "models"
    if any(one.name in NOUNS for one in stages):
        yield "nouns"


def _check_extras(extras: Sequence[str]) -> Iterator[Check]:
    checks = check_packages([faiss_extra(), *extras])
    yield from (check for check in checks if check.name in extras)


def _check_weights(stage: Stage, profile: Profile) -> Iterator[Check]:
    """Yield whether what a stage loads is here; nothing for one that loads nothing."""
    assert stage.pin
    own = profile.section(stage.section)
    try:
        pinned = stage.pin(own)
    except ModelError as error:
        said, _, how = str(error).partition(FETCH)
        mend = f"pairwright fetch --profile {profile.name}, with the same --set"
        yield missing("weights", stage.section, said, mend=how.splitlines()[0] if stage.name in NOUNS and how else mend)
        return
    if stage.processes and stage.processes(own) is None:
        return
    models = stage.models(pinned) if stage.models else ()
    yield ok("weights", stage.section, ", ".join(models) or "here")


def can_build(checks: Iterable[Check]) -> bool:
    """Say whether nothing is missing."""
    return not any(check.state == "missing" for check in checks)


def _look(area: str, name: str, look: Look) -> list[Check]:
    """Return what a look finds; also where it fails, or does not come back."""
    found: list[Check] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.extend(look())
        except ConfigError as error:
            found.append(missing(area, name, str(error)))
        except Exception as error:  # noqa: BLE001 - on a strange machine anything may fail: it is said, and the rest goes on
            failed.append(error)

    thread: Any = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LOOK_SECONDS)
    if thread.is_alive():
        return [*found, warning(area, name, f"there is no answer after {LOOK_SECONDS:.0f} s")]
    if failed:
        text = f"{type(failed[0]).__name__}: {failed[0]}"
        return [*found, warning(area, name, f"this could not be looked at: {text}")]
    return found
