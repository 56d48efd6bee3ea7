"""The stages of a build, in order. Each is declared at the end of its own file."""

from collections.abc import Sequence
from dataclasses import replace

from prompts import load
from schemas.config import Profile
from schemas.errors import ConfigError
from tasks.captioning import compare_pairs, describe_differences, describe_images
from tasks.mining import embed_images, limit_pairs, pair_neighbours, search_neighbours
from tasks.preferences import build_preferences, split_pairs
from tasks.rejected import edit_texts, remove_elements, retrieve_texts, swap_texts
from tasks.sources import read_given, read_images
from tasks.sources.readers import READERS
from tasks.store.stage import Planned, Stage, fingerprint

STAGES: tuple[Stage, ...] = (
    read_images.STAGE,
    embed_images.STAGE,
    search_neighbours.STAGE,
    pair_neighbours.STAGE,
    describe_images.STAGE,
    describe_differences.STAGE,
    compare_pairs.STAGE,
    remove_elements.STAGE,
    swap_texts.STAGE,
    edit_texts.STAGE,
    retrieve_texts.STAGE,
    split_pairs.STAGE,
    build_preferences.STAGE,
)
GROUPS = ("sources", "mining", "captioning", "rejected", "preferences")


def stages_of(profile: Profile) -> tuple[Stage, ...]:
    """Return the stages of a build: what the source brings is read, and what would only have led to it is left out."""
    brought = READERS[profile.sources.kind].brings
    given = {stage.name: stage for stage in read_given.STAGES if stage.writes in brought}
    stages = [given.get(stage.name, stage) for stage in STAGES]
    needed = {read_images.STAGE.name, *given}
    if STAGES[-1].name not in given:
        needed |= _names(STAGES) - set().union(*map(_reads, STAGES))
    if profile.mining.max_pairs_per_image:
        stages = _followed(stages, limit_pairs.STAGE, "candidates")
    for stage in reversed(stages):
        if stage.name in needed:
            needed |= _reads(stage)
    return tuple(stage for stage in stages if stage.name in needed)


def _followed(stages: Sequence[Stage], last: Stage, name: str) -> list[Stage]:
    """Return the stages with ``last`` behind the one whose table it takes over; that one's table gets another name."""
    place = next(n for n, stage in enumerate(stages) if stage.name == last.name)
    return [*stages[:place], replace(stages[place], name=name), last, *stages[place + 1 :]]


def _names(stages: Sequence[Stage]) -> set[str]:
    return {stage.name for stage in stages}


def _reads(stage: Stage) -> set[str]:
    return {stage.reads, stage.only_in, *(use.table for use in stage.uses)}


def stages_until(profile: Profile, until: str) -> tuple[Stage, ...]:
    """Return a build's stages up to a group ("mining") or a table ("pairs"), both included; all for an empty name.

    Raises:
        ConfigError: there is no such stage.
    """
    check_stage(until)
    stages = stages_of(profile)
    if not until:
        return stages
    names = table_names()
    last = max(n for n, stage in enumerate(STAGES) if until in (stage.group, stage.name))
    # A table of this build alone leads to the pairs.
    places = {stage: names.index(stage.name if stage.name in names else "pairs") for stage in stages}
    return tuple(stage for stage in stages if places[stage] <= last)


def check_stage(name: str) -> None:
    """Refuse what is neither a group nor a table; the empty name stands for all.

    Raises:
        ConfigError: there is no such stage.
    """
    if name and name not in GROUPS and name not in table_names():
        raise ConfigError(
            f"{name}: no such stage. There are {', '.join(GROUPS)}; or a table: {', '.join(table_names())}"
        )


def find_table(name: str) -> str:
    """Return the name of a table.

    Raises:
        ConfigError: there is no such table.
    """
    if name not in table_names():
        raise ConfigError(f"{name}: no such table. There are {', '.join(table_names())}")
    return name


def table_names() -> list[str]:
    """Return the names of all tables, in order."""
    return [stage.name for stage in STAGES]


def plan_stages(profile: Profile, stages: Sequence[Stage]) -> list[Planned]:
    """Return the stages with their configurations and fingerprints."""
    planned: list[Planned] = []
    tables: dict[str, str] = {}
    for stage in stages:
        config = getattr(profile, stage.config)
        prompts = {name: load(name).sha256 for name in stage.prompts}
        tables[stage.name] = fingerprint(stage, config, prompts=prompts, tables=tables)
        planned.append(Planned(stage=stage, config=config, fingerprint=tables[stage.name]))
    return planned
