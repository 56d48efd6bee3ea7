"""Extrapolate what a build would do: from what each stage owes now, and what an input row of it gives and takes.

The rows that a stage gives are the new inputs of those that read it. A stage that looks at its whole input owes all of
it again when that grows. What is not known of a stage makes everything after it unknown, and is said so.

Pairs do not grow with images: two images are alike wherever they are in a source. Where a source brings like images
together (worlds, videos), pairs grow with it; of images in no order, each finds more that are like it the more there
are. So the number of pairs is extrapolated in proportion, and its range goes up to where each image of the second kind
would have its pairs: of a share s of images that found one among n, 1 - (1 - s)^(N / n) find one among N.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from pairwright.schemas.config import MiningConfig
from pairwright.schemas.rows import PairRow
from pairwright.tasks.store.estimate import NOTHING, Estimate, add, exactly
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.measure_stage import StageRates
from pairwright.tasks.store.stage import Planned, Stage

HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Say where the build would run, and how it would be cut."""

    processes: Mapping[str, int]
    """Per stage, how many of its shards run at once."""
    gpus: Mapping[str, int]
    """Per stage, how many GPUs of this machine it holds."""
    rows_per_shard: Mapping[str, int]
    shard_seconds: float
    """What a shard takes beside its rows."""
    more_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    """Per stage, seconds of a worker that each input row takes beside those of its rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """Say what a stage would do; ``None``: that is not known."""

    stage: str
    known_from: str
    inputs: Estimate | None = None
    """Rows that it would be given."""
    rows: Estimate | None = None
    """Rows that it would write."""
    dropped: Estimate | None = None
    failed: Estimate | None = None
    calls: Estimate | None = None
    prompt_tokens: Estimate | None = None
    completion_tokens: Estimate | None = None
    cpu_hours: Estimate | None = None
    gpu_hours: Estimate | None = None
    hours: Estimate | None = None
    """From its begin to its end."""
    bytes: Estimate | None = None

    @property
    def amounts(self) -> dict[str, Estimate | None]:
        """Return everything that is estimated, by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("stage", "known_from")}


@dataclass(slots=True)
class _Line:
    """Be what is known while the line is walked along."""

    images: int
    """Images that the rates were measured on; 0: that is not known."""
    fresh: dict[str, Estimate | None]
    """Per table, the rows that its readers have not seen."""
    redone: set[str] = field(default_factory=set[str])
    """Tables of which all rows come again."""

    def new_rows(self, stage: Stage) -> Estimate | None:
        """Return the rows of its tables that a stage has not seen; ``None`` where that is not known."""
        fresh = [self.fresh.get(table) for table in stage.reads]
        return None if None in fresh else add(amount for amount in fresh if amount)

    def redoes(self, stage: Stage) -> bool:
        """Say whether all rows that a stage reads come again."""
        return not self.redone.isdisjoint(stage.reads)


def plan_line(
    planned: Sequence[Planned],
    counts: Mapping[str, Counts],
    rates: Mapping[str, StageRates],
    *,
    items: int,
    images: int,
    site: Site,
) -> list[StagePlan]:
    """Return what each stage would do, in order.

    Args:
        planned: the stages.
        counts: what each has done already; a stage without has done nothing.
        rates: what is known of each.
        items: new items of the source.
        images: how many images the rates were measured on; 0: that is not known.
        site: where it would run.
    """
    line = _Line(images, {"items": exactly(items)})
    plans: list[StagePlan] = []
    for one in planned:
        known = rates.get(one.stage.name) or StageRates(known_from="")
        plans.append(_plan(one, counts.get(one.stage.name), known, line=line, site=site))
    return plans


def _plan(planned: Planned, counts: Counts | None, rates: StageRates, *, line: _Line, site: Site) -> StagePlan:
    name = planned.stage.name
    inputs = _inputs(planned, counts, rates, line)
    if inputs == NOTHING:
        line.fresh[name] = NOTHING
        return StagePlan(
            stage=name, known_from="", **dict.fromkeys(StagePlan(stage="", known_from="").amounts, NOTHING)
        )
    rows = _times(inputs, rates.rows)
    if inputs is not None and rows is not None and issubclass(planned.stage.writes, PairRow):
        rows = _with_more_pairs(rows, inputs, planned, rates=rates, images=line.images)
    line.fresh[name] = _beyond(rows, counts.rows if counts and line.redoes(planned.stage) else 0)
    return StagePlan(
        stage=name,
        known_from=rates.known_from,
        inputs=inputs,
        rows=rows,
        **{one: _times(inputs, getattr(rates, one)) for one in COUNTED},
        bytes=_bytes_of(inputs, rates, site.rows_per_shard[name]),
        **_times_of(planned, inputs, rates, site),
    )


COUNTED = ("dropped", "failed", "calls", "prompt_tokens", "completion_tokens")


def _inputs(planned: Planned, counts: Counts | None, rates: StageRates, line: _Line) -> Estimate | None:
    """Return the rows that a stage would be given: owed ones, new ones, and all others where it looks at the whole."""
    stage = planned.stage
    fresh = line.new_rows(stage)
    if fresh is None:
        return None
    if fresh == NOTHING:
        return exactly(counts.pending + counts.failed if counts else 0)
    if stage.only_in and rates.reach is None:
        return None
    new = fresh * (rates.reach or exactly(1))
    if line.redoes(stage):
        return new
    if not stage.whole or counts is None or not counts.of:
        return new + exactly(counts.pending + counts.failed if counts else 0)
    line.redone.add(stage.name)
    return new + exactly(counts.of)


def _times(inputs: Estimate | None, rate: Estimate | None) -> Estimate | None:
    return None if inputs is None or rate is None else inputs * rate


def _beyond(rows: Estimate | None, known: int) -> Estimate | None:
    """Return the rows that are more than there were."""
    if rows is None or not known:
        return rows
    return Estimate(*(max(0.0, amount - known) for amount in (rows.value, rows.low, rows.high)))


def _with_more_pairs(rows: Estimate, inputs: Estimate, planned: Planned, *, rates: StageRates, images: int) -> Estimate:
    """Return the number of pairs with the range that it has where like images are anywhere in the source."""
    config = planned.config
    if not isinstance(config, MiningConfig) or not images or rates.dropped is None or inputs.value <= images:
        return rows
    most = config.clusters * config.max_per_cluster
    found = 1 - rates.dropped.low
    share = 1 - (1 - min(found, 1.0)) ** (inputs.value / images)
    return Estimate(rows.value, rows.low, max(rows.high, inputs.value * share * most))


def _bytes_of(inputs: Estimate | None, rates: StageRates, rows_per_shard: int) -> Estimate | None:
    if inputs is None or rates.bytes is None:
        return None
    return inputs * rates.bytes + exactly(math.ceil(inputs.value / rows_per_shard) * rates.part_bytes)


def _times_of(planned: Planned, inputs: Estimate | None, rates: StageRates, site: Site) -> dict[str, Estimate | None]:
    """Return the hours of processors, GPUs and the clock."""
    name = planned.stage.name
    more = site.more_seconds.get(name, 0.0)
    cpu = _times(inputs, None if rates.cpu_seconds is None else rates.cpu_seconds + exactly(more))
    cpu = None if cpu is None else cpu.times(1 / HOUR)
    if inputs is None or rates.seconds is None:
        return {"cpu_hours": cpu, "gpu_hours": None if site.gpus[name] else NOTHING, "hours": None}
    shards = math.ceil(inputs.value / site.rows_per_shard[name])
    at_once = max(1, min(site.processes[name], shards))
    work = inputs * (rates.seconds + exactly(more)) + exactly(shards * site.shard_seconds)
    hours = (work.times(1 / at_once) + exactly(rates.start_seconds)).times(1 / HOUR)
    return {"cpu_hours": cpu, "gpu_hours": hours.times(site.gpus[name]), "hours": hours}


def total_of(plans: Sequence[StagePlan], name: str) -> tuple[Estimate, list[str]]:
    """Return the sum of an amount over the stages that know it, and the stages that do not."""
    amounts = {plan.stage: plan.amounts[name] for plan in plans}
    total = NOTHING
    for amount in amounts.values():
        total += amount or NOTHING
    return total, [stage for stage, amount in amounts.items() if amount is None]
