"""Try other mining thresholds on a dataset's stored similarities: no image is read, embedded or searched again.

The new pairs are a table beside the old one, which stays; a later build with the same thresholds
finds it done. The dataset itself does not change unless the thresholds are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pairwright.flows.building.run_build import Request, Work, run_stage
from pairwright.flows.pipeline.load_profile import change_profile
from pairwright.flows.pipeline.pipeline import Pipeline
from pairwright.flows.versions.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.build import Build, read_record, write_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import ShardFailed
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned

SECTION = "mining"
NAMED = 3  # maximum new pairs that are named
THRESHOLDS = ("mining.", "matching.min_matches", "matching.max_pairs")
DECIDED = ("similar_pairs", "matched_pairs", "pairs")  # tables that depend on the thresholds


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


def refilter_request(folder: Folder, settings: Sequence[str]) -> Request:
    """Return the dataset's own request with other mining thresholds."""
    request = Request.again(folder)
    if not settings:
        raise ConfigError(
            "nothing to change: give thresholds, as in --set mining.min_similarity=0.8"
        )
    for setting in settings:
        if not setting.strip().startswith(THRESHOLDS):
            names = f"{THRESHOLDS[0]}*, {', '.join(THRESHOLDS[1:])}"
            raise ConfigError(
                f"--set {setting}: refilter changes {names} only; build again to change other things"
            )
    if "neighbours" not in {stage.name for stage in Pipeline(request.profile, SECTION).running}:
        kind, pairing = request.profile.sources.kind, request.profile.pairing
        why = (
            f"its source ({kind}) brought the pairs"
            if pairing == "similarity"
            else f"its images pair by {pairing}"
        )
        raise ConfigError(f"{folder.url}: {why}: there is nothing to filter again")
    return replace(request, profile=change_profile(request.profile, settings), until=SECTION)


def refilter_dataset(request: Request, work: Work, *, keep: bool) -> Refiltered:
    """Make the pairs of the request's thresholds and compare them with the dataset's."""
    record = read_record(request.folder)
    records = (
        record.model_copy(update={"profile": one.profile, "until": SECTION})
        for one in (record, request)
    )
    own, version = (Version.of(request.folder, one) for one in records)
    with own.settled() as (build, stages):
        before = [counts for planned, counts in stages if _is_decided(planned)]
        old = _read_pairs(build, own.planned[-1]).keys()
    made = [planned for planned in version.planned if _is_decided(planned)]
    failures, after = list[ShardFailed](), list[Counts]()
    with version.opened() as build:
        for counts in map(build.settle, version.planned[: version.planned.index(made[0])]):
            if owed := counts.pending + counts.failed:
                raise ConfigError(
                    f"{request.folder.url}: {counts.stage} still owes {owed:,} rows. First finish them with: "
                    f"pairwright resume {request.folder.url}"
                )
        for stage in made:
            counts, failed = run_stage(build, stage, request, work)
            failures += failed
            after.append(counts)
        pairs = _read_pairs(build, made[-1])
        new = pairs.keys()
        some = [pairs[key] for key in sorted(new - old)[:NAMED]]
        tables = stream_live(build, version.find("images"), ["key", "name"]) if some else ()
        names = {row["key"]: row["name"] for table in tables for row in table.to_pylist()}
    if keep and not failures:
        write_record(request.folder, record.model_copy(update={"profile": request.profile}))
    return Refiltered(
        before=before,
        after=after,
        kept=len(old & new),
        gained=len(new - old),
        gained_names=[f"{names[first]} with {names[second]}" for first, second in some],
        lost=len(old - new),
        failures=failures,
    )


def _is_decided(planned: Planned) -> bool:
    return planned.stage.name in DECIDED and planned.stage.is_on


def _read_pairs(build: Build, pairs: Planned) -> dict[str, tuple[str, str]]:
    """Return both images of each pair, by its key."""
    rows = (
        row
        for table in stream_live(build, pairs, ["key", "first", "second"])
        for row in table.to_pylist()
    )
    return {row["key"]: (row["first"], row["second"]) for row in rows}
