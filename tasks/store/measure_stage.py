"""Measure what a stage's shards gave and took, per input row: from a build that was watched, or from a dataset's parts.

Parts say how many rows they hold, how large they are and what was asked for them. They never say how long they took
(their bytes depend on their rows alone), so times come from a build that was watched.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from schemas.rates import StoredRate
from tasks.store.asked import Asked, asked_of_part
from tasks.store.estimate import NOTHING, Estimate, exactly, ratio
from tasks.store.files import Folder
from tasks.store.ledger import Counts
from tasks.store.part import Part, read_columns
from tasks.store.pool import Outcome, ShardFailed
from tasks.store.stage import Planned

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
        return StageRates(known_from=", times: ".join(places), **found, **times)


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
    counts: Counts, samples: Sequence[Sample], *, read_rows: int, known_from: str, processes: int = 1
) -> StageRates:
    """Return a stage's rates from its counts and shards.

    Args:
        counts: what became of its input.
        samples: its shards, in their order.
        read_rows: live rows of the table that it reads.
        known_from: what to call this measurement.
        processes: how many of its shards ran at once; so many of the first ones also started them and do not count
            where times are measured.
    """
    done = counts.of - counts.pending
    if not done or not sum(sample.inputs for sample in samples):
        return StageRates(known_from="")
    inputs = [sample.inputs for sample in samples]
    asked = [sample.asked or Asked() for sample in samples]
    timed = samples[processes:] if len(samples) > 2 * processes else samples
    return StageRates(
        known_from=known_from,
        rows=_scaled(ratio([sample.rows for sample in samples], inputs), counts.rows / done),
        failed=_share(counts.failed, done),
        dropped=_share(counts.dropped, done),
        reach=exactly(counts.of / read_rows) if read_rows else None,
        calls=_rate([one.calls for one in asked], inputs),
        prompt_tokens=_rate([one.prompt_tokens for one in asked], inputs),
        completion_tokens=_rate([one.completion_tokens for one in asked], inputs),
        bytes=_rate([sample.bytes for sample in samples], inputs),
        seconds=_timed(timed, lambda sample: sample.seconds),
        cpu_seconds=_timed(timed, lambda sample: sample.cpu_seconds),
    )


def _share(part: int, whole: int) -> Estimate:
    """Return a share with Wilson's range, which suits small numbers and shares near 0 and 1."""
    z = 1.96**2
    middle = (part + z / 2) / (whole + z)
    half = (z * (part * (whole - part) / whole + z / 4)) ** 0.5 / (whole + z)
    return Estimate(part / whole, max(0.0, middle - half), min(1.0, middle + half))


def _scaled(spread: Estimate, value: float) -> Estimate:
    """Return an exact rate with the spread of its samples: of duplicates the parts do not know."""
    if not spread.value:
        return spread
    return spread.times(value / spread.value)


def _rate(amounts: Sequence[float], inputs: Sequence[int]) -> Estimate:
    return ratio(amounts, inputs) if any(amounts) else NOTHING


def _timed(samples: Sequence[Sample], time_of: Callable[[Sample], float | None]) -> Estimate | None:
    times = [time_of(sample) for sample in samples]
    known = [time for time in times if time is not None]
    return ratio(known, [sample.inputs for sample in samples]) if len(known) == len(times) else None


def stored_rates(stored: StoredRate, known_from: str) -> StageRates:
    """Return rates as they were written down, which say nothing of their spread."""
    values = {name: value for name, value in stored if value is not None and name != "start_seconds"}
    found = {name: exactly(value) for name, value in values.items()}
    return StageRates(known_from=known_from, start_seconds=stored.start_seconds or 0.0, **found)
