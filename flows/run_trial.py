"""Measure what stages need: by a trial, which is a real build of a source's first rows, or by a dataset's own parts.

A trial is cut into many small shards, so that their differences say how far its rates may be off, and so that the
shards in which worker processes start can be told from the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pairwright.flows.find_models import pin_models, pin_served
from pairwright.flows.pipeline import Pipeline
from pairwright.flows.run_build import Request, Watcher, Work, run_build
from pairwright.flows.version import open_present
from pairwright.schemas.budget import BudgetConfig
from pairwright.schemas.config import RunConfig
from pairwright.schemas.gates import GatesConfig
from pairwright.tasks.mining import embed_images, pair_neighbours
from pairwright.tasks.models.time_search import widths_of
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.measure_stage import (
    Sample,
    StageRates,
    measure_stage,
    sample_outcome,
    sample_parts,
    timed_stage,
)
from pairwright.tasks.store.pool import Outcome, ShardFailed, count_cores
from pairwright.tasks.store.shard import ShardRef
from pairwright.tasks.store.stage import Planned

SHARDS, SHARDS_PER_WORKER = 8, 3
"""Of each stage of a trial, at the least."""
Settled = Sequence[tuple[Planned, Counts]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurements of a trial."""

    rates: Mapping[str, StageRates] = field(default_factory=dict[str, StageRates])
    images: int = 0
    """Images whose neighbours were searched."""
    widths: tuple[int, ...] = ()
    """How many numbers the vectors of each searched space have."""
    shard_seconds: float | None = None
    """What a shard takes beside its rows; ``None``: that was not measured."""
    failures: Sequence[ShardFailed] = ()


class Collector:
    """Pass on what happens in a build, and remember its shards."""

    def __init__(self, watcher: Watcher) -> None:
        """Remember nothing yet."""
        self._watcher = watcher
        self._outcomes: dict[str, list[Outcome]] = {}
        self.seconds: dict[str, float] = {}
        """Per stage, from its begin to its end."""

    def waiting(self, planned: Planned) -> None:
        """Pass it on."""
        self._watcher.waiting(planned)

    def begin(self, planned: Planned, shards: Sequence[ShardRef]) -> None:
        """Pass it on."""
        self._watcher.begin(planned, shards)

    def advance(self, planned: Planned, outcome: Outcome) -> None:
        """Remember a shard."""
        self._outcomes.setdefault(planned.stage.name, []).append(outcome)
        self._watcher.advance(planned, outcome)

    def end(self, planned: Planned, counts: Counts, seconds: float) -> None:
        """Remember how long a stage took."""
        self.seconds[planned.stage.name] = seconds
        self._watcher.end(planned, counts, seconds)

    def samples(self, name: str) -> list[Sample]:
        """Return what a stage's shards gave and took, in their order."""
        outcomes = sorted(self._outcomes.get(name, []), key=lambda outcome: outcome.shard.name)
        return [sample for sample in map(sample_outcome, outcomes) if sample]


def trial_request(request: Request, folder: Folder, rows: int) -> Request:
    """Return the request of a trial: the same build of the first rows, in small shards, in a folder of its own.

    Raises:
        ConfigError, ModelError: the build could not begin.
    """
    profile = pin_models(pin_served(request.profile, request.until), request.until)
    names = [stage.name for stage in Pipeline(profile, request.until).running]
    size = -(-rows // max(SHARDS, SHARDS_PER_WORKER * (profile.run.workers or count_cores())))
    run = RunConfig(workers=profile.run.workers, rows_per_shard_of=dict.fromkeys(names, size), budget=BudgetConfig())
    profile = profile.model_copy(update={"run": run, "gates": GatesConfig()})
    limit = min(rows, request.limit or rows)
    return Request(folder=folder, profile=profile, limit=limit, until=request.until)


def run_trial(request: Request, work: Work, *, processes: Mapping[str, int]) -> Measured:
    """Build what a trial asks for, and return what it has shown; ``processes`` is how many shards run at once."""
    collector = Collector(work.watcher)
    report = run_build(request, replace(work, watcher=collector))
    with open_present(request.folder).settled() as (_, stages):
        samples = {planned.stage.name: collector.samples(planned.stage.name) for planned, _ in stages}
        shard_seconds = min((one.seconds for some in samples.values() for one in some if one.seconds), default=0.0)
        rates = {
            name: timed_stage(
                rate,
                samples[name],
                processes=processes[name],
                shard_seconds=shard_seconds,
                stage_seconds=collector.seconds[name],
            )
            for name, rate in _rates(stages, samples, known_from="the trial").items()
        }
        return _measured(request.folder, stages, rates, shard_seconds=shard_seconds, failures=report.failures)


def measure_dataset(folder: Folder) -> Measured:
    """Return what a dataset's parts say: everything but times."""
    with open_present(folder).settled() as (_, stages):
        samples = {planned.stage.name: sample_parts(folder, planned) for planned, _ in stages}
        return _measured(folder, stages, _rates(stages, samples, known_from="this dataset"))


def _rates(stages: Settled, samples: Mapping[str, Sequence[Sample]], *, known_from: str) -> dict[str, StageRates]:
    rows = {planned.stage.name: counts.rows for planned, counts in stages}
    return {
        planned.stage.name: measure_stage(
            planned,
            counts,
            samples[planned.stage.name],
            read_rows=sum(rows.get(table, counts.of) for table in planned.stage.reads),
            known_from=known_from,
        )
        for planned, counts in stages
        if planned.stage.is_on
    }


def _measured(
    folder: Folder,
    stages: Settled,
    rates: Mapping[str, StageRates],
    *,
    shard_seconds: float | None = None,
    failures: Sequence[ShardFailed] = (),
) -> Measured:
    of = {planned.stage.name: counts.of for planned, counts in stages}
    tables = {planned.stage.name: planned.table for planned, _ in stages}
    embedded = tables.get(embed_images.STAGE.name, "")
    return Measured(
        rates=rates,
        images=of.get(pair_neighbours.STAGE.name, 0),
        widths=widths_of(folder, embedded) if embedded else (),
        shard_seconds=shard_seconds,
        failures=failures,
    )
