"""The stages of a build, in order. Each is declared at the end of its own file."""

from collections.abc import Sequence
from dataclasses import replace

from pairwright.prompts import load
from pairwright.schemas.config import Profile
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import PairRow
from pairwright.tasks.captioning import (
    ask_questions,
    choose_differences,
    compare_pairs,
    control_differences,
    describe_differences,
    describe_images,
    ground_differences,
    judge_differences,
)
from pairwright.tasks.mining import (
    admit_pairs,
    embed_images,
    exclude_images,
    find_nouns,
    limit_pairs,
    pair_neighbours,
    pair_nouns,
    search_neighbours,
)
from pairwright.tasks.preferences import build_preferences, reject_given, split_pairs
from pairwright.tasks.rejected import (
    choose_elements,
    choose_removals,
    detect_boxes,
    edit_texts,
    edit_with_model,
    find_mentions,
    fit_removals,
    inspect_removals,
    refute_texts,
    remove_elements,
    retrieve_texts,
    sample_texts,
    segment_boxes,
    swap_texts,
    tag_images,
)
from pairwright.tasks.sources import read_given, read_images
from pairwright.tasks.sources.readers import READERS
from pairwright.tasks.store.stage import Planned, Stage, fingerprint

REMOVING = (
    find_mentions.STAGE,
    tag_images.STAGE,
    detect_boxes.STAGE,
    segment_boxes.STAGE,
    choose_elements.STAGE,
    remove_elements.STAGE,
    inspect_removals.STAGE,
    fit_removals.STAGE,
)
"""The steps to an image without one of its elements, each its own table."""
STAGES: tuple[Stage, ...] = (
    read_images.STAGE,
    embed_images.STAGE,
    search_neighbours.STAGE,
    pair_neighbours.STAGE,
    describe_images.STAGE,
    describe_differences.STAGE,
    compare_pairs.STAGE,
    ask_questions.STAGE,
    swap_texts.STAGE,
    edit_texts.STAGE,
    retrieve_texts.STAGE,
    refute_texts.STAGE,
    edit_with_model.STAGE,  # before the samples: the model that reads text may be up since the comparisons
    sample_texts.STAGE,
    *REMOVING,  # after the texts: servers that this build started have ended, and leave the GPU to these models
    choose_removals.STAGE,
    split_pairs.STAGE,
    build_preferences.STAGE,
)
PAIRINGS: dict[str, dict[str, tuple[Stage, ...]]] = {
    "similarity": {},
    "nouns": {pair_neighbours.STAGE.name: (find_nouns.STAGE, pair_nouns.STAGE)},
}
"""The stages that take the place of others, by how images are paired."""
CHECKS = (control_differences.STAGE, ground_differences.STAGE, judge_differences.STAGE)
"""``choose_differences`` takes the best of the descriptions that pass them."""
GIVEN = {stage.name: stage for stage in (find_mentions.GIVEN, choose_removals.GIVEN)}
"""The stages that take the place of others where a source brought the preferences whose images are rejected."""
BEFORE = {
    "given": "embeddings",
    "admitted": "neighbours",
    "nouns": "pairs",
    "brought": "pairs",
    "candidates": "pairs",
    **dict.fromkeys(["described", *(stage.name for stage in CHECKS)], "differences"),
}
"""Tables that only some builds have, with the one that each leads to."""
OPTIONAL = {stage.name for stage in (*CHECKS, *REMOVING, *STAGES) if stage.wanted or stage in REMOVING} | {
    refute_texts.STAGE.name
}
"""Tables that others use where there are any."""
GROUPS = ("sources", "mining", "captioning", "rejected", "preferences")


def stages_of(profile: Profile, until: str = "") -> tuple[Stage, ...]:
    """Return the stages of a build: what the source brings is read, and what would only have led to it is left out.

    The table that a build ends with is made in any case.
    """
    brought = READERS[profile.sources.kind].brings
    given = {stage.name: stage for stage in read_given.STAGES if stage.writes in brought}
    rejecting = STAGES[-1].name in given and profile.rejections.scorer == "clip"
    made = PAIRINGS[profile.pairing]
    wanted = [stage for stage in (map(_about_given, STAGES) if rejecting else STAGES) if _is_wanted(stage, profile)]
    stages = [given.get(stage.name, stage) for own in wanted for stage in made.get(own.name, (own,))]
    stages = [_fitted(stage, profile) for stage in stages]
    needed = {read_images.STAGE.name, until, *given}
    if STAGES[-1].name not in given:
        needed |= _names(wanted) - set().union(*map(_reads, wanted))
    if rejecting:
        stages = _given_first(stages)
    if profile.exclude.sources:
        stages = _redirected(stages, exclude_images.STAGE)
        if PairRow in brought or made:  # then pairs are not found by the vectors that are left
            stages = _followed(stages, admit_pairs.STAGE, "brought")
    if profile.mining.max_pairs_per_image:
        stages = _followed(stages, limit_pairs.STAGE, "candidates")
    checks = [_fitted(stage, profile) for stage in CHECKS if _is_wanted(stage, profile)]
    if checks or profile.differences.is_served:  # so that a check that comes later leaves what was asked as it is
        stages = _followed(stages, choose_differences.STAGE, "described", between=checks)
    if not checks:
        stages = [stage for stage in stages if stage.name != refute_texts.STAGE.name]
    stages = [_without(stage, OPTIONAL - _names(stages)) for stage in stages]
    for stage in reversed(stages):
        if stage.name in needed:
            needed |= _reads(stage)
    return tuple(stage for stage in stages if stage.name in needed)


def _is_wanted(stage: Stage, profile: Profile) -> bool:
    if stage.name in _names(REMOVING) and not profile.rejections.wanted:
        return False
    if stage.name == find_mentions.STAGE.name and tag_images.NOUNS not in profile.tagging.taggers:
        return False
    return stage.wanted is None or stage.wanted(profile.section(stage.config))


def _about_given(stage: Stage) -> Stage:
    """Return the stage as it works on preferences that a source brought, about all of its images."""
    return replace(GIVEN.get(stage.name, stage), only_in="")


def _given_first(stages: Sequence[Stage]) -> list[Stage]:
    """Return the stages with the brought preferences behind the images, and those with rejected images at the end."""
    given = replace(stages[-1], name="given", group="sources")
    return [stages[0], given, *stages[1:-1], reject_given.STAGE]


def _fitted(stage: Stage, profile: Profile) -> Stage:
    return stage.fit(stage, profile.section(stage.config)) if stage.fit else stage


def _without(stage: Stage, missing: set[str]) -> Stage:
    """Return the stage using none of the tables that this build does not have."""
    return replace(stage, uses=tuple(use for use in stage.uses if use.table not in missing))


def _followed(stages: Sequence[Stage], last: Stage, name: str, between: Sequence[Stage] = ()) -> list[Stage]:
    """Return the stages with ``last`` behind the one whose table it takes over; that one's table gets another name."""
    place = next(n for n, stage in enumerate(stages) if stage.name == last.name)
    return [*stages[:place], replace(stages[place], name=name), *between, last, *stages[place + 1 :]]


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
    for stage in stages:
        config = profile.section(stage.config)
        prompts = {name: load(name).sha256 for name in stage.prompts}
        tables[stage.name] = fingerprint(stage, config, prompts=prompts, tables=tables)
        planned.append(Planned(stage=stage, config=config, fingerprint=tables[stage.name]))
    return planned
