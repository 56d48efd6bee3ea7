"""The stages that are on for a profile, up to one of them, ready to run.

A stage is off if its switch is off, if the source or the pairing leaves it nothing to do, if
everything that it reads is off, or if no stage that is on needs it. It then reads nothing, and its
table, which every profile has, is empty.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.stages import BY_NAME, GROUPS, RESULTS, STAGES, TABLES
from pairwright.prompts import load
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError, SourceError
from pairwright.schemas.rows import NeighbourRow, PairRow, PreferenceRow, make_key
from pairwright.tasks.sources.readers import READERS, recognise_source
from pairwright.tasks.store.stage import Planned, Stage, fingerprint


def list_stages(plugins: Iterable[str]) -> tuple[Stage, ...]:
    """Return our stages in order, with each named plugin stage at the end of its group."""
    added = [BY_NAME[name] for name in plugins]
    if strange := next((stage for stage in added if stage.group not in GROUPS), None):
        raise ConfigError(
            f"plugin's stage {strange.name}: no such group {strange.group!r}: {', '.join(GROUPS)}"
        )
    stages = sorted((*STAGES, *added), key=lambda stage: GROUPS.index(stage.group))
    for place, stage in enumerate(stages):
        made = {"items", *(before.name for before in stages[:place])}
        if stage in added and (missing := stage.tables - made):
            raise ConfigError(
                f"plugin's stage {stage.name}: reads {', '.join(missing)}, which no earlier stage makes"
            )
    return tuple(stages)


class Pipeline:
    """Pipeline: the stages of a build, in order, for a profile, up to one of them or to the last.

    pipeline = pw.Pipeline("scenes", until="mining")
    pipeline.tables                              # the table that each stage writes; the same for every profile
    [stage.name for stage in pipeline.running]   # those that are on
    pipeline.run(pw.open("album"))               # do what the dataset owes of them
    """

    def __init__(self, profile: Profile | str, until: str = "") -> None:
        check_stage(until)
        self.profile = load_profile(profile) if isinstance(profile, str) else profile
        self.until = until
        if until and until not in (*GROUPS, *TABLES, *self.profile.stages):
            raise ConfigError(
                f"{until}: is a plugin's stage; switch it on in the profile: --set stages.{until}="
            )

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Return the stages with the tables that each reads; none for a stage that is off."""
        every = list_stages(self.profile.stages)
        needed = {*RESULTS, *self.profile.stages, self.until}
        on: dict[str, Stage] = {}
        for stage in reversed(_switched_on(self.profile, every)):
            if stage.name in needed:
                needed |= stage.tables
                on[stage.name] = stage
        off = {"reads": {}, "only_in": (), "uses": (), "prompts": (), "fit": None}
        stages = tuple(on.get(stage.name) or replace(stage, **off) for stage in every)
        if not self.until:
            return stages
        if self.until in GROUPS:
            return tuple(
                stage for stage in stages if GROUPS.index(stage.group) <= GROUPS.index(self.until)
            )
        return stages[: [stage.name for stage in stages].index(self.until) + 1]

    @property
    def running(self) -> tuple[Stage, ...]:
        """Return the stages that are on."""
        return tuple(stage for stage in self.stages if stage.is_on)

    @property
    def caveat(self) -> str:
        """Return a known limit of the embedders on the source, if it is mined; empty: none is known."""
        return (
            self.profile.caveat
            if any(stage.writes is NeighbourRow for stage in self.running)
            else ""
        )

    @property
    def tables(self) -> list[str]:
        """Return the names of the tables: each is written by the stage of its name."""
        return [stage.name for stage in self.stages]

    def plan(self) -> list[Planned]:
        """Return the stages with their configurations and fingerprints."""
        planned: list[Planned] = []
        tables: dict[str, str] = {}
        for stage in self.stages:
            config = stage.configure(self.profile)
            prompts = {name: load(name).sha256 for name in stage.prompts}
            off = make_key(stage.name, "off")[:16]
            tables[stage.name] = (
                fingerprint(stage, config, prompts=prompts, tables=tables) if stage.is_on else off
            )
            planned.append(Planned(stage=stage, config=config, fingerprint=tables[stage.name]))
        return planned

    def run(self, dataset: Any) -> Any:
        """Do what a ``Dataset`` owes of these stages, and publish a version; return the ``Report``."""
        return dataset.run(self)

    def __repr__(self) -> str:
        return f"<pipeline of profile {self.profile.name}: {' > '.join(stage.name for stage in self.running)}>"


def _switched_on(profile: Profile, stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages whose switches are on, in order, with what is there of the tables that each reads."""
    on: dict[str, Stage] = {}
    idle = _idle(profile)
    for stage in stages:
        config = stage.configure(profile)
        if stage.name in idle or (stage.enabled and not stage.enabled(config)):
            continue
        fitted, there = stage.fit(stage, config) if stage.fit else stage, {*on, "items"}
        reads = {table: row for table, row in fitted.reads.items() if table in there}
        only_in = tuple(table for table in fitted.only_in if table in there)
        uses = tuple(use for use in fitted.uses if use.table in there)
        known = {use.argument for use in uses}
        uses = tuple(use for use in uses if not use.of or use.of in known)
        if reads and (only_in or not stage.only_in):
            on[stage.name] = replace(fitted, reads=reads, only_in=only_in, uses=uses)
    return list(on.values())


def _idle(profile: Profile) -> set[str]:
    """Return the stages without work for this source or pairing."""
    reader = READERS.get(profile.source_kind)  # a profile may name no source yet
    brought = reader.brings if reader else ()
    mined = not {PairRow, PreferenceRow}.intersection(brought)
    idle = set[str]()
    if not mined or profile.pairing != "similarity":
        idle |= {"similar_pairs", "matched_pairs"}
    if profile.source_kind == "scenes":
        idle.add("matched_pairs")  # worlds share their rooms
    if not mined or profile.pairing != "nouns":
        idle |= {"nouns", "noun_pairs"}
    if PreferenceRow in brought and not profile.rejections.by_clip:
        idle.add("rejections")  # such images have no scene graphs
    return idle


def check_stage(name: str) -> None:
    """Refuse a name of neither a group nor a table; empty stands for all."""
    if name and name not in GROUPS and name not in BY_NAME:
        raise ConfigError(
            f"{name}: no such stage. There are {', '.join(GROUPS)}; or a table: {', '.join(TABLES)}"
        )


def check_tables(names: Iterable[str]) -> None:
    """Refuse a name that is not a table's."""
    if strange := next((name for name in names if name not in BY_NAME), ""):
        raise ConfigError(f"{strange}: no such table. There are {', '.join(TABLES)}")


def with_source(profile: Profile, source: str | None) -> Profile:
    """Return the profile reading another source; ``None`` keeps its own."""
    text = profile.source if source is None else source
    if not text:
        raise SourceError(
            f"profile {profile.name} has no source: give one, as in `pairwright build PHOTOS --out DIR`"
        )
    images = profile.reading.images
    if images and "://" not in images:
        images = str(Path(images).absolute())  # a build can be resumed from anywhere
    reading = profile.reading.model_copy(update={"images": images})
    return profile.model_copy(update={"source": recognise_source(text), "reading": reading})
