"""Measure what a stage's shards gave and took, per input row: from a build that was watched, or from a dataset's parts.

Parts say how many rows they hold, how large they are and what was asked for them. They never say how long they took
(their bytes depend on their rows alone), so times come from a build that was watched.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf
from typing import Any

from pairwright.schemas.arrow import schema_of
from pairwright.schemas.rates import StoredRate
from pairwright.tasks.store.answers import Asked, asked_of_part
from pairwright.tasks.store.estimate import NOTHING, Estimate, exactly, ratio, share_of
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.part import Part, describe_part, encode_part, read_columns
from pairwright.tasks.store.pool import Outcome, ShardFailed
from pairwright.tasks.store.stage import Planned

MOST_PARTS = 100
"""Of a table that are looked at, evenly spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Be what one shard gave and took."""

    inputs: int
    rows: int
    """That are ok."""
    bytes: int
    asked: Asked | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRates:
    """Say what an input row of a stage gives and takes; ``None``: that is not known."""

    known_from: str
    """In words: "the trial", "this dataset", "scenes on ..."."""
    rows: Estimate | None = None
    failed: Estimate | None = None
    """Share of the inputs."""
    dropped: Estimate | None = None
    reach: Estimate | None = None
    """Inputs per live row of the table that the stage reads."""
    calls: Estimate | None = None
    prompt_tokens: Estimate | None = None
    completion_tokens: Estimate | None = None
    bytes: Estimate | None = None
    """On disk, beside what each part takes."""
    part_bytes: float = 0.0
    """What a part takes beside its rows."""
    seconds: Estimate | None = None
    """Of one worker, beside what each shard takes."""
    cpu_seconds: Estimate | None = None
    start_seconds: float = 0.0
    """From the stage's begin until its workers are at its rows."""

    def completed(self, other: "StageRates | None") -> "StageRates":
        """Return these rates, with what they do not know from another measurement."""
        if other is None:
            return self
        names = ("rows", "failed", "dropped", "reach", "calls", "prompt_tokens", "completion_tokens", "bytes")
        found = {name: own if (own := getattr(self, name)) is not None else getattr(other, name) for name in names}
        timed = self if self.seconds is not None else other
        times = {name: getattr(timed, name) for name in ("seconds", "cpu_seconds", "start_seconds")}
        places = dict.fromkeys(one.known_from for one in (self, timed) if one.known_from)
        part = self.part_bytes if self.bytes is not None else other.part_bytes
        return StageRates(known_from=", times: ".join(places), part_bytes=part, **found, **times)


def sample_outcome(outcome: Outcome) -> Sample | None:
    """Return what a shard gave and took; ``None`` where it failed."""
    if isinstance(outcome.result, ShardFailed):
        return None
    sample = sample_part(Part(outcome.shard.folder, outcome.result.part))
    return Sample(
        inputs=outcome.shard.stop - outcome.shard.start,
        rows=sample.rows,
        bytes=sample.bytes,
        asked=sample.asked,
        seconds=outcome.seconds,
        cpu_seconds=outcome.cpu_seconds,
    )


def sample_part(part: Part) -> Sample:
    """Return what a part says that its shard gave and took.

    Raises:
        StoreError: it is damaged.
    """
    table, about = read_columns(part, ("source_key",))
    inputs = len(set(table.column("source_key").to_pylist()))
    size = part.folder.size_of(part.name)
    return Sample(inputs=inputs, rows=int(about["ok"]), bytes=size, asked=asked_of_part(about))


def sample_parts(folder: Folder, planned: Planned) -> list[Sample]:
    """Return what the parts of a stage's table say, of many an even choice."""
    names = [name for name in folder.names(planned.table) if name.endswith(".parquet")]
    step = max(1, -(-len(names) // MOST_PARTS))
    return [sample_part(Part(folder, f"{planned.table}/{name}")) for name in names[::step]]


def measure_stage(
    planned: Planned, counts: Counts, samples: Sequence[Sample], *, read_rows: int, known_from: str
) -> StageRates:
    """Return a stage's rates, but for times, from its counts and shards.

    Args:
        planned: the stage.
        counts: what became of its input.
        samples: its shards.
        read_rows: live rows of the table that it reads.
        known_from: what to call this measurement.
    """
    done, inputs = counts.of - counts.pending, [sample.inputs for sample in samples]
    if not done or not sum(inputs):
        return StageRates(known_from="")
    asked = [sample.asked or Asked() for sample in samples]
    empty = empty_bytes(planned)
    return StageRates(
        known_from=known_from,
        rows=_rows_rate(counts, ratio([sample.rows for sample in samples], inputs), done),
        failed=share_of(counts.failed, done),
        dropped=share_of(counts.dropped, done),
        reach=_reach(planned, counts.of, read_rows),
        calls=_rate([one.calls for one in asked], inputs),
        prompt_tokens=_rate([one.prompt_tokens for one in asked], inputs),
        completion_tokens=_rate([one.completion_tokens for one in asked], inputs),
        bytes=_rate([max(0, sample.bytes - empty) for sample in samples], inputs),
        part_bytes=empty,
    )


def timed_stage(
    rates: StageRates, samples: Sequence[Sample], *, processes: int, shard_seconds: float, stage_seconds: float
) -> StageRates:
    """Return the rates with times: per row, and until the stage's workers were at its rows.

    Args:
        rates: of the stage.
        samples: its shards, in their order.
        processes: how many of them ran at once; so many of the first ones also started those processes, and do not
            count for a row's time where there are enough others.
        shard_seconds: what a shard takes beside its rows.
        stage_seconds: from the stage's begin to its end.
    """
    timed = [(one.inputs, one.seconds, one.cpu_seconds or 0.0) for one in samples if one.seconds is not None]
    if not timed:
        return rates
    steady = timed[processes:] if len(timed) > 2 * processes else timed
    inputs = [count for count, _, _ in steady]
    seconds = _rate([max(0.0, spent - shard_seconds) for _, spent, _ in steady], inputs)
    work = sum(count for count, _, _ in timed) * seconds.value + len(timed) * shard_seconds
    return replace(
        rates,
        seconds=seconds,
        cpu_seconds=_rate([cpu for _, _, cpu in steady], inputs),
        start_seconds=max(0.0, stage_seconds - work / min(processes, len(timed))),
    )


def _reach(planned: Planned, inputs: int, read_rows: int) -> Estimate | None:
    """Return how many of the rows that it reads a stage is given; the more images, the more are in a pair."""
    if not read_rows:
        return None
    if not planned.stage.only_in:
        return exactly(inputs / read_rows)
    share = share_of(inputs, read_rows)
    return Estimate(share.value, share.low, 1.0)


def empty_bytes(planned: Planned) -> int:
    """Return the size of a part of the stage's table that has no row."""
    table = schema_of(planned.stage.writes).empty_table()
    about = describe_part(f"{planned.table}/part-", table, version=planned.stage.version)
    return sum(map(len, encode_part(table, about)))


def _rows_rate(counts: Counts, spread: Estimate, done: int) -> Estimate:
    """Return the exact number of live rows per input, of which parts do not know the duplicates.

    Its range is the wider one of the shards' spread and of how sure so few inputs make the share that gave any.
    """
    rate, share = counts.rows / done, share_of(counts.ok, done)
    if not rate or not spread.value:
        return Estimate(rate, 0.0, max(spread.high, share.high))
    low, high = rate * share.low / share.value, rate * share.high / share.value
    if isinf(spread.high) and counts.rows <= counts.ok:  # one shard, whose inputs give one row or none
        return Estimate(rate, low, high)
    scale = rate / spread.value
    return Estimate(rate, min(low, spread.low * scale), max(high, spread.high * scale))


def _rate(amounts: Sequence[float], inputs: Sequence[int]) -> Estimate:
    return ratio(amounts, inputs) if any(amounts) else NOTHING


def stored_rates(stored: StoredRate, known_from: str) -> StageRates:
    """Return rates as they were written down, which say nothing of their spread."""
    once = {"start_seconds": stored.start_seconds or 0.0, "part_bytes": stored.part_bytes}
    rates = {name: exactly(value) for name, value in stored if value is not None and name not in once}
    values: dict[str, Any] = {**once, **rates}
    return StageRates(known_from=known_from, **values)


def listed_keys(folder: Folder, items: Sequence[str]) -> set[bytes]:
    """Return the keys of a dataset's listing, 16 bytes each."""
    keys: set[bytes] = set()
    for name in items:
        table, _ = read_columns(Part(folder, name), ("key",))
        keys.update(map(bytes.fromhex, table.column("key").to_pylist()))
    return keys
