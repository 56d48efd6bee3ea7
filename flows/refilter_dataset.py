"""Try other mining thresholds on what a dataset has stored: no image is read, nothing is embedded or searched again.

The new pairs are a table of their own beside the old one, which stays; a later build with the same thresholds finds it
done. The dataset itself is not changed unless the thresholds are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pairwright.flows.load_profile import change_profile
from pairwright.flows.pipeline import Pipeline
from pairwright.flows.run_build import Request, Work, run_stage
from pairwright.flows.version import Version
from pairwright.schemas.errors import ConfigError
from pairwright.tasks.store.dataset import Build, read_record, write_record
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.pool import ShardFailed
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned

SECTION = "mining"
DECIDED = (SECTION, "uniting")
"""Sections of the stages whose rows the thresholds decide."""


@dataclass(frozen=True, kw_only=True)
class Refiltered:
    """Pairs that other thresholds make of the stored neighbours."""

    before: list[Counts]
    """Of each table that the thresholds decide, with those that the dataset has."""
    after: list[Counts]
    """With the new ones."""
    kept: int
    gained: int
    lost: int
    failures: list[ShardFailed]


def refilter_request(folder: Folder, settings: Sequence[str]) -> Request:
    """Return the dataset's own request with other mining thresholds."""
    request = Request.again(folder)
    if not settings:
        raise ConfigError("nothing to change: name thresholds, as in --set mining.min_similarity=0.8")
    for setting in settings:
        if not setting.strip().startswith(f"{SECTION}."):
            raise ConfigError(f"--set {setting}: refilter changes {SECTION}.* only; build again to change other things")
    if "neighbours" not in {stage.name for stage in Pipeline(request.profile, SECTION).running}:
        kind, pairing = request.profile.sources.kind, request.profile.pairing
        why = f"its source ({kind}) brought the pairs" if pairing == "similarity" else f"its images pair by {pairing}"
        raise ConfigError(f"{folder.url}: {why}: there is nothing to filter again")
    return replace(request, profile=change_profile(request.profile, settings), until=SECTION)


def refilter_dataset(request: Request, work: Work, *, keep: bool) -> Refiltered:
    """Make the pairs of the request's thresholds and compare them with those that the dataset has."""
    record = read_record(request.folder)
    own, version = (
        Version.of(request.folder, record.model_copy(update={"profile": profile, "until": SECTION}))
        for profile in (record.profile, request.profile)
    )
    with own.settled() as (build, stages):
        before = [counts for planned, counts in stages if _is_decided(planned)]
        old = _keys(build, own.planned[-1])
    made = [planned for planned in version.planned if _is_decided(planned)]
    stored = version.planned[: version.planned.index(made[0])]
    failures: list[ShardFailed] = []
    after: list[Counts] = []
    with version.opened() as build:
        for counts in map(build.settle, stored):
            if counts.pending or counts.failed:
                owed = counts.pending + counts.failed
                raise ConfigError(
                    f"{request.folder.url}: {counts.stage} still owes {owed:,} rows. First finish them with: "
                    f"pairwright resume {request.folder.url}"
                )
        for stage in made:
            counts, failed = run_stage(build, stage, request, work)
            failures += failed
            after.append(counts)
        new = _keys(build, made[-1])
    if keep and not failures:
        write_record(request.folder, record.model_copy(update={"profile": request.profile}))
    return Refiltered(
        before=before,
        after=after,
        kept=len(old & new),
        gained=len(new - old),
        lost=len(old - new),
        failures=failures,
    )


def _is_decided(planned: Planned) -> bool:
    return planned.stage.section in DECIDED and planned.stage.is_on


def _keys(build: Build, pairs: Planned) -> set[str]:
    return {key for table in stream_live(build, pairs, ["key"]) for key in table.column("key").to_pylist()}
