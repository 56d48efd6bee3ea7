"""The stages of a build, in order. Each is declared at the end of its own file."""

from collections.abc import Sequence
from dataclasses import replace

from prompts import load
from schemas.config import Profile
from schemas.errors import ConfigError
from schemas.rows import PairRow
from tasks.captioning import compare_pairs, describe_differences, describe_images
from tasks.mining import (
    admit_pairs,
    embed_images,
    exclude_images,
    find_nouns,
    limit_pairs,
    pair_neighbours,
    pair_nouns,
    search_neighbours,
)
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
PAIRINGS: dict[str, dict[str, tuple[Stage, ...]]] = {
    "similarity": {},
    "nouns": {pair_neighbours.STAGE.name: (find_nouns.STAGE, pair_nouns.STAGE)},
}
"""The stages that take the place of others, by how images are paired."""
BEFORE = {"admitted": "neighbours", "nouns": "pairs", "brought": "pairs", "candidates": "pairs"}
"""Tables that only some builds have, with the one that each leads to."""
GROUPS = ("sources", "mining", "captioning", "rejected", "preferences")


def stages_of(profile: Profile, until: str = "") -> tuple[Stage, ...]:
    """Return the stages of a build: what the source brings is read, and what would only have led to it is left out.

    The table that a build ends with is made in any case.
    """
    brought = READERS[profile.sources.kind].brings
    given = {stage.name: stage for stage in read_given.STAGES if stage.writes in brought}
    made = PAIRINGS[profile.pairing]
    stages = [given.get(stage.name, stage) for own in STAGES for stage in made.get(own.name, (own,))]
    needed = {read_images.STAGE.name, until, *given}
    if STAGES[-1].name not in given:
        needed |= _names(STAGES) - set().union(*map(_reads, STAGES))
    if profile.exclude.sources:
        stages = _redirected(stages, exclude_images.STAGE)
        if PairRow in brought or made:  # then pairs are not found by the vectors that are left
            stages = _followed(stages, admit_pairs.STAGE, "brought")
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


def _redirected(stages: Sequence[Stage], new: Stage) -> list[Stage]:
    """Return the stages with ``new`` behind the one that it reads, and all later ones reading its table instead."""
    place = next(n for n, stage in enumerate(stages) if stage.name == new.reads)
    later = [
        replace(
            stage,
            reads=new.name if stage.reads == new.reads else stage.reads,
            uses=tuple(
                replace(use, table=new.name, name=use.argument) if use.table == new.reads else use for use in stage.uses
            ),
        )
        for stage in stages[place + 1 :]
    ]
    return [*stages[: place + 1], new, *later]


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
    stages = stages_of(profile, until)
    if not until:
        return stages
    if until in GROUPS:
        return tuple(stage for stage in stages if GROUPS.index(stage.group) <= GROUPS.index(until))
    names = table_names()
    return tuple(stage for stage in stages if names.index(stage.name) <= names.index(until))


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
    """Return the names of all tables that a build may have, in order."""
    return [name for stage in STAGES for name in (*(new for new in BEFORE if BEFORE[new] == stage.name), stage.name)]


def why_no_neighbours(profile: Profile) -> str:
    """Say in words how images are paired where no neighbours are searched."""
    if profile.pairing != "similarity":
        return f"its images pair by {profile.pairing}, not by how they look"
    return f"its source ({profile.sources.kind}) brought the pairs"


def plan_stages(profile: Profile, stages: Sequence[Stage]) -> list[Planned]:
    """Return the stages with their configurations and fingerprints."""
    planned: list[Planned] = []
    tables: dict[str, str] = {}
    for declared in stages:
        config = profile.section(declared.config)
        stage = declared.fit(declared, config) if declared.fit else declared
        prompts = {name: load(name).sha256 for name in stage.prompts}
        tables[stage.name] = fingerprint(stage, config, prompts=prompts, tables=tables)
        planned.append(Planned(stage=stage, config=config, fingerprint=tables[stage.name]))
    return planned
