"""Which stages of the list are on for a profile, up to where, and ready to run.

Every profile has the same tables. A stage is off where its switch is, where the source or the pairing leaves it nothing
to do, where all that it reads is off, or where nothing that is on needs it: it reads nothing then, and its table is
empty.
"""

from collections.abc import Container
from dataclasses import replace

from pairwright.flows.stages import GROUPS, RESULTS, STAGES, TABLES
from pairwright.prompts import load
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import CheckRow, PairRow, PreferenceRow, make_key
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.stage import Planned, Stage, fingerprint


def stages_until(profile: Profile, until: str = "") -> tuple[Stage, ...]:
    """Return the stages up to a group ("mining") or a table ("pairs"), both included; all for an empty name.

    Raises:
        ConfigError: there is no such stage.
    """
    check_stage(until)
    on = {stage.name: stage for stage in _needed(_switched_on(profile), until)}
    stages = tuple(on.get(stage.name) or _off(stage) for stage in STAGES)
    if not until:
        return stages
    if until in GROUPS:
        return tuple(stage for stage in stages if GROUPS.index(stage.group) <= GROUPS.index(until))
    return stages[: TABLES.index(until) + 1]


def running_stages(profile: Profile, until: str = "") -> tuple[Stage, ...]:
    """Return those of ``stages_until`` that are on."""
    return tuple(stage for stage in stages_until(profile, until) if stage.is_on)


def _switched_on(profile: Profile) -> list[Stage]:
    """Return the stages that have something to do, using none of the tables that are off."""
    on: dict[str, Stage] = {}
    idle = set(_idle(profile))
    for stage in STAGES:
        config = profile.section(stage.config)
        if stage.name in idle or (stage.enabled and not stage.enabled(config)):
            continue
        fitted = _without_empty(stage.fit(stage, config) if stage.fit else stage, on=(*on, "items"))
        if fitted.reads and (fitted.only_in or not stage.only_in):
            on[stage.name] = fitted
    return list(on.values())


def _idle(profile: Profile) -> set[str]:
    """Return the stages that the source, the pairing or the checks leave nothing to do."""
    reader = READERS.get(profile.source_kind)  # a profile may name no source yet
    brought = reader.brings if reader else ()
    mined = not {PairRow, PreferenceRow}.intersection(brought)
    idle = set[str]()
    if not mined or profile.pairing != "similarity":
        idle.add("similar_pairs")
    if not mined or profile.pairing != "nouns":
        idle |= {"nouns", "noun_pairs"}
    if PreferenceRow in brought and not profile.rejections.by_clip:
        idle.add("rejections")  # there are no scene graphs of such images
    checks = (stage for stage in STAGES if stage.writes is CheckRow)
    if not any(stage.enabled and stage.enabled(profile.section(stage.config)) for stage in checks):
        idle.add("refuted")  # nothing is known of what descriptions get wrong
    return idle


def _without_empty(stage: Stage, on: Container[str]) -> Stage:
    """Return the stage without the tables that are off; arguments for which they are used have their defaults."""
    uses = tuple(use for use in stage.uses if use.table in on or use.kind == "before")
    known = {use.argument for use in uses}
    return replace(
        stage,
        reads={table: row for table, row in stage.reads.items() if table in on},
        only_in=tuple(table for table in stage.only_in if table in on),
        uses=tuple(use for use in uses if not use.of or use.of in known),
    )


def _needed(stages: list[Stage], until: str) -> list[Stage]:
    """Return the stages that lead to a result, or to the table that a build ends with."""
    needed = {*RESULTS, until}
    for stage in reversed(stages):
        if stage.name in needed:
            needed |= stage.tables
    return [stage for stage in stages if stage.name in needed]


def _off(stage: Stage) -> Stage:
    return replace(stage, reads={}, only_in=(), uses=(), prompts=(), fit=None)


def check_stage(name: str) -> None:
    """Refuse what is neither a group nor a table; the empty name stands for all.

    Raises:
        ConfigError: there is no such stage.
    """
    if name and name not in (*GROUPS, *TABLES):
        raise ConfigError(f"{name}: no such stage. There are {', '.join(GROUPS)}; or a table: {', '.join(TABLES)}")


def find_table(name: str) -> str:
    """Return the name of a table.

    Raises:
        ConfigError: there is no such table.
    """
    if name not in TABLES:
        raise ConfigError(f"{name}: no such table. There are {', '.join(TABLES)}")
    return name


def why_no_neighbours(profile: Profile) -> str:
    """Say in words how images are paired where no neighbours are searched."""
    if profile.pairing != "similarity":
        return f"its images pair by {profile.pairing}, not by how they look"
    return f"its source ({profile.sources.kind}) brought the pairs"


def plan_stages(profile: Profile, until: str = "") -> list[Planned]:
    """Return the stages up to a group or a table, with their configurations and fingerprints.

    Raises:
        ConfigError: there is no such stage.
    """
    planned: list[Planned] = []
    tables: dict[str, str] = {}
    for stage in stages_until(profile, until):
        config = profile.section(stage.config)
        prompts = {name: load(name).sha256 for name in stage.prompts}
        off = make_key(stage.name, "off")[:16]
        tables[stage.name] = fingerprint(stage, config, prompts=prompts, tables=tables) if stage.is_on else off
        planned.append(Planned(stage=stage, config=config, fingerprint=tables[stage.name]))
    return planned
