"""Find stored rates that hold for a build: flows/rates/*.yaml, figures that this project has measured.

A rate holds for a stage that is configured as it was when it was measured, on the same class of device. What nobody has
measured is not there, and is told as unknown.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from pairwright.flows.find_models import gpus_of
from pairwright.flows.load_profile import load_profile, make_section
from pairwright.schemas.config import Profile
from pairwright.schemas.rates import StoredRates
from pairwright.tasks.store.measure_stage import StageRates, stored_rates
from pairwright.tasks.store.stage import Planned

FOLDER = Path(__file__).parent / "rates"
CPU = "cpu"
FREE: dict[str, set[str]] = {"scenes": {"seed", "worlds"}, "images": {"licence"}}
"""Fields that do not change what a row takes, in sections that decide it beside a stage's own."""


def load_rates() -> list[StoredRates]:
    """Return all stored measurements.

    Raises:
        ConfigError: a file says something that is not allowed.
    """
    return [
        make_section(StoredRates, yaml.safe_load(path.read_text(encoding="utf-8")), where=str(path))
        for path in sorted(FOLDER.glob("*.yaml"))
    ]


def rates_for(profile: Profile, planned: Sequence[Planned]) -> dict[str, StageRates]:
    """Return the stored rates that hold for stages of a profile, by stage."""
    found: dict[str, StageRates] = {}
    for stored in load_rates():
        measured = load_profile(stored.profile, stored.settings)
        for one in planned:
            name = one.stage.name
            rate = stored.stages.get(name)
            device = stored.device == CPU or gpus_of(one) > 0
            if rate and device and name not in found and _is_alike(one, profile, measured):
                found[name] = stored_rates(rate, f"{stored.profile} on {stored.machine}")
    return found


def shard_seconds() -> float:
    """Return what a shard takes beside its rows, of the slowest machine that was measured; 0 where none was."""
    return max((stored.shard_seconds for stored in load_rates()), default=0.0)


def _is_alike(planned: Planned, profile: Profile, measured: Profile) -> bool:
    """Say whether a row of the stage is the same work in both."""
    if "items" in planned.stage.reads and profile.sources.kind != measured.source.partition(":")[0]:
        return False
    name = planned.stage.section
    sections = ("images", "reading", "scenes") if name == "sources" else (name,)
    return all(list(_counted(profile, one)) == list(_counted(measured, one)) for one in sections)


def _counted(profile: Profile, name: str) -> Iterator[tuple[str, Any]]:
    section = profile.section(name)
    free = FREE.get(name, section.uncounted)
    yield from ((field, value) for field, value in section if field not in free)
