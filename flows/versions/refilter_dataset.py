"""Try other mining thresholds on a dataset's stored similarities.

No image is read, embedded or searched again. The new pairs are an extra table, and the old one
stays; a later build with the same thresholds finds it done. The dataset itself does not change
unless the thresholds are kept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pairwright.flows.building.run_build import run_stage
from pairwright.flows.pipeline.load_profile import change_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow
from pairwright.tasks.store.executor import Executor, ShardFailed
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build, write_record
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.stage import Planned

SECTION = "mining"
NAMED = 3  # maximum new pairs that are named
THRESHOLDS = ("mining.", "matching.min_matches", "matching.max_pairs")
DEPENDENT = (
    *("similar_pairs", "matched_pairs"),
    *("alignments", "aligned_images", "aligned_embeddings", "pairs"),
)
"""Tables that depend on the thresholds."""
Pairs = dict[str, tuple[str, str]]
"""Both images of each pair, by the pair's key."""


@dataclass(frozen=True, kw_only=True)
class Refiltered:
    """Pairs of other thresholds from the stored neighbours."""

    before: list[Counts]  # counts of each dependent table with the dataset's thresholds
    after: list[Counts]  # counts with the new thresholds
    kept: int
    gained: int
    gained_names: list[str]  # names of the images of a few new pairs
    lost: int
    failures: list[ShardFailed]


def change_thresholds(present: Version, settings: Sequence[str]) -> Version:
    """Return the current tables up to the pairs, with other mining thresholds."""
    if not settings:
        raise ConfigError(
            "nothing to change: give thresholds, as in --set mining.min_similarity=0.8"
        )
    for setting in settings:
        if not setting.strip().startswith(THRESHOLDS):
            names = f"{THRESHOLDS[0]}*, {', '.join(THRESHOLDS[1:])}"
            raise ConfigError(
                f"--set {setting}: refilter changes {names} only; build again to change other "
                "things"
            )
    profile = present.profile
    if "neighbours" not in {stage.name for stage in Pipeline(profile, SECTION).running}:
        if profile.pairing == "similarity":
            why = f"its source ({profile.source_config.kind}) brought the pairs"
        else:
            why = f"its images pair by {profile.pairing}"
        raise ConfigError(f"{present.folder.url}: {why}: there is nothing to filter again")
    return replace(present, pipeline=Pipeline(change_profile(profile, settings), SECTION))


def refilter_dataset(
    present: Version, changed: Version, executor: Executor, *, keep: bool
) -> Refiltered:
    """Make the pairs of the changed thresholds and compare them with the dataset's."""
    mined = replace(present, pipeline=Pipeline(present.profile, SECTION))
    with mined.resolved() as (build, stages):
        before = [counts for planned, counts in stages if _depends_on_thresholds(planned)]
        old_pairs = _read_pairs(build, mined.stages[-1])
    dependent = [planned for planned in changed.planned if _depends_on_thresholds(planned)]
    failures: list[ShardFailed] = []
    after: list[Counts] = []
    with changed.opened() as build:
        leading = changed.planned[: changed.planned.index(dependent[0])]
        _resolve_finished(changed, build, leading)
        for planned in dependent:
            counts, stage_failures = run_stage(build, planned, executor)
            failures += stage_failures
            after.append(counts)
        new_pairs = _read_pairs(build, dependent[-1])
        gained = new_pairs.keys() - old_pairs.keys()
        some_gained = [new_pairs[key] for key in sorted(gained)[:NAMED]]
        gained_names = _name_pairs(changed, build, some_gained)
    if keep and not failures:
        kept_pipeline = Pipeline(changed.profile, present.pipeline.until)
        write_record(present.folder, replace(present, pipeline=kept_pipeline).record)
    return Refiltered(
        before=before,
        after=after,
        kept=len(old_pairs.keys() & new_pairs.keys()),
        gained=len(gained),
        gained_names=gained_names,
        lost=len(old_pairs.keys() - new_pairs.keys()),
        failures=failures,
    )


def _depends_on_thresholds(planned: Planned) -> bool:
    return planned.stage.name in DEPENDENT and planned.is_on


def _resolve_finished(version: Version, build: Build, planned: Iterable[Planned]) -> None:
    """Resolve the stages before the dependent ones; ``ConfigError`` if one has unfinished rows."""
    for counts in map(build.resolve, planned):
        unfinished = counts.pending + counts.failed
        if unfinished:
            url = version.folder.url
            raise ConfigError(
                f"{url}: {counts.stage} still has {unfinished:,} unfinished rows. "
                f"First finish them with: pairwright resume {url}"
            )


def _read_pairs(build: Build, planned: Planned) -> Pairs:
    """Return the live pairs of a resolved table of pairs."""
    pairs: Pairs = {}
    for table in stream_live(build, planned, ["key", "first", "second"]):
        for row in table.to_pylist():
            pairs[row["key"]] = (row["first"], row["second"])
    return pairs


def _name_pairs(version: Version, build: Build, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return the names of the images of some pairs."""
    keys: list[str] = []
    for pair in pairs:
        keys += pair
    planned = version.find_stage("images")
    images = find_live(build, planned, ImageRow, subjects=keys, without=("image", "graph"))
    names = {image.key: image.name for image in images}
    return [f"{names[first]} with {names[second]}" for first, second in pairs]
