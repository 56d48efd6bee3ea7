"""The stages that are on for a profile, up to one of them, ready to run.

A stage is off if its switch is off, if the source or the pairing leaves it nothing to do, if
everything that it reads is off, or if no stage that is on needs it. It is then planned without
inputs, and its table, which every profile has, is empty.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.stages import BY_NAME, GROUPS, RESULTS, STAGES, TABLES
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError, SourceError
from pairwright.schemas.rows import NeighbourRow, PairRow, PreferenceRow
from pairwright.schemas.suggest import suggest
from pairwright.tasks.sources.readers import recognise_source
from pairwright.tasks.sources.sources import (
    are_mined,
    brings,
    have_graphs,
    have_texts,
    readers_of,
)
from pairwright.tasks.store.stage import LISTING, NO_INPUTS, Inputs, Planned, Stage, plan_stage


def list_stages(plugins: Iterable[str]) -> tuple[Stage, ...]:
    """Return our stages in order, with each named plugin stage at the end of its group."""
    added = [BY_NAME[name] for name in plugins]
    for stage in added:
        if stage.group not in GROUPS:
            known = ", ".join(GROUPS)
            raise ConfigError(
                f"plugin's stage {stage.name}: no such group {stage.group!r}: {known}"
            )
    stages = sorted((*STAGES, *added), key=lambda stage: GROUPS.index(stage.group))
    tables = {LISTING}
    for stage in stages:
        missing = stage.input_tables - tables
        if stage in added and missing:
            raise ConfigError(
                f"plugin's stage {stage.name}: reads {', '.join(missing)}, "
                "which no earlier stage makes"
            )
        tables.add(stage.name)
    return tuple(stages)


class Pipeline:
    """Pipeline: the stages of a build, in order, for a profile, up to one of them or to the last.

    pipeline = pw.Pipeline("scenes", until="mining")
    pipeline.tables                              # table of each stage, the same for every profile
    [stage.name for stage in pipeline.running]   # those that are on
    pipeline.run(pw.open("album"))               # do what is unfinished in the dataset
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
        """Return all stages, also those that are off; the same for every profile."""
        stages = list_stages(self.profile.stages)
        if not self.until:
            return stages
        if self.until in GROUPS:
            last = GROUPS.index(self.until)
            return tuple(stage for stage in stages if GROUPS.index(stage.group) <= last)
        names = [stage.name for stage in stages]
        return stages[: names.index(self.until) + 1]

    @property
    def running(self) -> tuple[Stage, ...]:
        """Return the stages that are on."""
        return tuple(stage for stage in self.stages if stage.name in self.inputs)

    @cached_property
    def inputs(self) -> dict[str, Inputs]:
        """Return the inputs of each stage that is on, by its name."""
        stages = list_stages(self.profile.stages)
        switched_on = _switched_on(self.profile, stages)
        needed = {*RESULTS, *self.profile.stages, self.until}
        for stage in reversed(stages):
            is_needed = stage.name in needed or (stage.extends and stage.extends in needed)
            if is_needed and stage.name in switched_on:
                needed |= {stage.name, *switched_on[stage.name].input_tables}
        return {name: inputs for name, inputs in switched_on.items() if name in needed}

    @property
    def caveat(self) -> str:
        """Return known limits: of the embedders on a mined source, of checks; empty: none."""
        is_mined = any(stage.writes is NeighbourRow for stage in self.running)
        limits = [self.profile.caveat if is_mined else "", self.profile.language_caveat]
        return ". ".join(limit for limit in limits if limit)

    @property
    def tables(self) -> list[str]:
        """Return the names of the tables: each is written by the stage of its name."""
        return [stage.name for stage in self.stages]

    def plan(self) -> list[Planned]:
        """Return the stages with their configurations and fingerprints."""
        planned: list[Planned] = []
        tables: dict[str, str] = {}
        prompts = self.profile.resolved.prompt_texts
        for stage in self.stages:
            config = stage.configure(self.profile)
            inputs = self.inputs.get(stage.name, NO_INPUTS)
            step = plan_stage(stage, config, inputs=inputs, tables=tables, prompts=prompts)
            tables[stage.name] = step.fingerprint
            planned.append(step)
        return planned

    def run(self, dataset: Any) -> Any:
        """Do the pending work of a ``Dataset``, publish a version, and return the ``Report``."""
        return dataset.run(self)

    def __repr__(self) -> str:
        names = " > ".join(stage.name for stage in self.running)
        return f"<pipeline of profile {self.profile.name}: {names}>"


def _switched_on(profile: Profile, stages: Sequence[Stage]) -> dict[str, Inputs]:
    """Return the inputs of the stages whose switches are on, in order, by stage."""
    on: dict[str, Inputs] = {}
    idle = _idle(profile)
    for stage in stages:
        config = stage.configure(profile)
        if stage.name in idle or (stage.enabled and not stage.enabled(config)):
            continue
        inputs = stage.inputs(config, on)
        if inputs.reads:
            on[stage.name] = inputs
    return on


def _idle(profile: Profile) -> set[str]:
    """Return the stages without work for this source or pairing."""
    source = profile.source_config
    mined = are_mined(source)
    idle = set[str]()
    if not mined or profile.pairing != "similarity":
        idle |= {"similar_pairs", "matched_pairs"}
    if {reader.kind for reader in readers_of(source)} == {"scenes"}:
        idle.add("matched_pairs")  # worlds share their rooms
    if not mined or profile.pairing != "nouns":
        idle |= {"nouns", "noun_pairs"}
    if profile.differences.writer == ("given",) and not have_graphs(source):
        idle |= _need_graphs(profile)
    if brings(source, row_type=PreferenceRow) and not profile.rejections.by_vectors:
        idle.add("rejections")  # such images have no scene graphs
    return idle


def _need_graphs(profile: Profile) -> set[str]:
    """Return the stages that would write from scene graphs alone."""
    idle = {"edited", "targets"}
    if profile.captions.writer == "scene-graph":
        idle.add("captions")
    if profile.comparisons.writer == "scene-graph":
        idle.add("comparisons")
    if profile.tagging.taggers == ("scene-graph",):
        idle.add("tags")
    return idle


def check_stage(name: str) -> None:
    """Refuse a name of neither a group nor a table; empty stands for all."""
    if name and name not in GROUPS and name not in BY_NAME:
        raise ConfigError(f"{name}: no such stage; {suggest(name, [*GROUPS, *TABLES])}")


def check_tables(names: Iterable[str]) -> None:
    """Refuse a name that is not a table's."""
    if strange := next((name for name in names if name not in BY_NAME), ""):
        raise ConfigError(f"{strange}: no such table; {suggest(strange, TABLES)}")


def with_source(profile: Profile, sources: Sequence[str], planted: int = 0) -> Profile:
    """Return the profile reading other sources; without any, it keeps its own.

    With ``planted``, things are planted into this many photographs of the first one, too, and the
    texts of these are composed.
    """
    texts = list(sources) or profile.all_sources
    if not texts[0]:
        raise SourceError(
            f"profile {profile.name} has no source: give one, "
            "as in `pairwright build PHOTOS --out DIR`"
        )
    paths: dict[str, str] = {}
    for name in ("images", "golden"):
        path = getattr(profile.reading, name)
        if path and "://" not in path:
            path = str(Path(path).absolute())  # a build can be resumed from anywhere
        paths[name] = path
    if paths["golden"]:
        texts = [text if ":" in text else f"golden:{text}" for text in texts]
    reading = profile.reading.model_copy(update=paths)
    first, *further = dict.fromkeys(recognise_source(text) for text in texts)
    updates: dict[str, Any] = {"reading": reading}
    if profile.prompts:
        updates["prompts"] = str(Path(profile.prompts).absolute())
    if planted:
        further.append(_planted_source(first))
        updates["planted"] = profile.planted.model_copy(update={"count": planted})
        if not profile.differences.is_composed:
            writers = ("scene-graph", *profile.differences.writer)
            updates["differences"] = profile.differences.model_copy(update={"writer": writers})
    updates |= {"source": first, "sources": tuple(further)}
    profile = _take_given_texts(profile.model_copy(update=updates))
    _check_cutting(profile)
    _check_rules(profile)
    return profile


def _take_given_texts(profile: Profile) -> Profile:
    """Return the profile describing pairs by people's texts, if its sources have any.

    A profile that names writers keeps them.
    """
    source = profile.source_config
    written = profile.differences
    if "writer" in written.model_fields_set or not have_texts(source):
        return profile
    writers = (*written.writer, "given") if have_graphs(source) else ("given",)
    differences = written.model_copy(update={"writer": writers})
    return profile.model_copy(update={"differences": differences})


def _check_rules(profile: Profile) -> None:
    """Refuse a rule for a kind of source that the dataset is not made of."""
    kinds = {source.partition(":")[0] for source in profile.all_sources}
    unknown = sorted(profile.per_source.keys() - kinds)
    if unknown:
        raise ConfigError(
            f"per_source.{unknown[0]}: no source is of this kind; choose from "
            f"{', '.join(sorted(kinds))}"
        )


def _check_cutting(profile: Profile) -> None:
    """Refuse to align or cut pairs of sources that have none."""
    config = profile.source_config
    if not config.cuts_pairs or are_mined(config) or brings(config, row_type=PairRow):
        return
    setting = "mining.align" if config.align else "tiles.size"
    raise ConfigError(
        f"{setting}: {profile.source} brings preferences, not pairs of images; leave it unset"
    )


def _planted_source(source: str) -> str:
    """Return the source that plants things into a source's photographs."""
    kind, _, path = source.partition(":")
    if kind != "folder":
        raise ConfigError(
            f"--planted: things are planted into a folder of photographs, not into {kind}: "
            "name the folder as another source, planted:FOLDER"
        )
    return f"planted:{path}"
