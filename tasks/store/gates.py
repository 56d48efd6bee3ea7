"""Judge a build by its profile's gates before it is published: yields, failed shares, drift since the last version.

Reads the counts of settled stages and, where drift is bounded, single columns of two versions; writes ``gates.json``,
what the last build was judged by.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter, ValidationError

from pairwright.schemas.bounds import GatesConfig
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import (
    CaptionRow,
    ComparisonRow,
    DifferenceRow,
    PairRow,
    PreferenceRow,
    QuestionRow,
    RejectedTextRow,
    Row,
)
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.sealed import read_sealed, seal
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned

BINS = 10
"""Bins hold a tenth of the earlier rows each, as is usual for this index."""
STEPS = 100
"""Steps that a similarity of 1 is cut into."""
COMPARED: dict[type[Row], tuple[str, ...]] = {
    **dict.fromkeys((CaptionRow, DifferenceRow, ComparisonRow, RejectedTextRow), ("text",)),
    QuestionRow: ("question", "answer"),
    PreferenceRow: ("chosen", "rejected"),
    PairRow: ("similarity",),
}
"""The columns that are compared: texts by their lengths, similarities by themselves."""
Histogram = Counter[int]
WRITTEN = ("no description", "captions", "described", "comparisons", "questions")
HINTS = {
    **dict.fromkeys(
        WRITTEN, "another model (models.chat), or more attempts (max_attempts in the section of the table)"
    ),
    "no scene graph": (
        "a model that sees photographs: --profile laptop --set models.chat.endpoint=URL; or, of a source that brings "
        "differences, --set differences.writer=given"
    ),
    "nobody wrote about its difference": "--set differences.writer=served, or a source with people's differences",
    "only near-identical neighbours": "a lower mining.min_hash_distance",
    "admitted": "without --exclude, and see that the images have vectors (embedding)",
    "similar_pairs": (
        "other thresholds: mining.min_best_similarity, mining.min_similarity, mining.max_similarity. `pairwright view` "
        "shows what similarities there are, `pairwright refilter` tries others without embedding again"
    ),
    "nouns": "images with captions, or --set pairing=similarity",
    "noun_pairs": "fewer nouns (noun_pairs.levels), or --set pairing=similarity",
    "pairs": "without --exclude",
    "differences": "weaker checks (controls, grounding, judging), or more to choose from (differences.candidates)",
    "preferences": "--set rejections.fallback=none, or --set rejections.enabled=false",
}
"""What to try where a table became empty, by the most frequent reason, else by the table."""


def measure_drift(before: Sequence[int], now: Sequence[int]) -> float:
    """Return the population stability index of two counts over the same bins; 0 where they have the same shares.

    Half a row is added to each bin, so that an empty one has a logarithm.
    """
    old, new = (_shares(counts) for counts in (before, now))
    return math.fsum((n - o) * math.log(n / o) for o, n in zip(old, new, strict=True))


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) + len(counts) / 2
    return [(count + 0.5) / total for count in counts]


def cut_bins(before: Mapping[int, int], now: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Return both histograms over bins that each hold a tenth of the earlier one's rows, or more where values tie.

    What lies below or above all earlier values is in two bins of its own: where those were all equal, nothing else
    would show that they are others now.
    """
    low, high = min(before), max(before)
    old, new = [0], [sum(count for value, count in now.items() if value < low)]
    full, held = sum(before.values()) / BINS, math.inf
    for value in sorted(value for value in before.keys() | now.keys() if low <= value <= high):
        if held >= full:
            old.append(0)
            new.append(0)
            held = 0
        held += before.get(value, 0)
        old[-1] += before.get(value, 0)
        new[-1] += now.get(value, 0)
    return [*old, 0], [*new, sum(count for value, count in now.items() if value > high)]


def _count_lengths(build: Build, planned: Planned, column: str) -> Histogram:
    tables = stream_live(build, planned, [column])
    return _count(pc.call_function("utf8_length", [table.column(column)]) for table in tables)


def _count_similarities(build: Build, planned: Planned, column: str) -> Histogram:
    values = (table.column(column).to_numpy() for table in stream_live(build, planned, [column]))
    return _count(pa.array(np.floor(value * STEPS).astype(np.int64)) for value in values)


def _count(columns: Iterable[pa.Array | pa.ChunkedArray]) -> Histogram:
    found: Histogram = Counter()
    for column in columns:
        for item in column.value_counts().to_pylist():
            found[item["values"]] += item["counts"]
    return found


FILE = "gates.json"
MEND = "`pairwright resume` writes it anew; delete a damaged one first"
Settled = Sequence[tuple[Planned, Counts]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Measurement of one gate."""

    gate: str
    """The field of ``GatesConfig``."""
    stage: str
    about: str
    """What was measured: "ok of 120 inputs", "lengths of chosen", ..."""
    measured: float | None
    """None: it could not be measured."""
    bound: float
    why: str = ""
    """Which tables became empty, and what to try."""

    @property
    def holds(self) -> bool:
        """Say whether what was measured keeps the bound."""
        if self.measured is None:
            return False
        return self.measured >= self.bound if self.gate == "min_yield" else self.measured <= self.bound

    def say(self) -> str:
        """Return one line with both numbers."""
        if self.measured is None:
            return f"{self.about} (gates.{self.gate})"
        side = "at least" if self.gate == "min_yield" else "at most"
        why = f". {self.why}" if self.why else ""
        bounds = f"{self.measured:.3g}, must be {side} {self.bound:.3g} (gates.{self.gate})"
        return f"{self.stage}: {self.about}: {bounds}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a build was judged, and what became of it."""

    began: str
    """When the build listed its source (ISO 8601, UTC)."""
    ended: str
    complete: bool
    """Whether nothing is owed any more."""
    against: int
    """The version that drift is measured from; 0: there was none."""
    version: int
    """The version that was published, or was current already; 0: the build was held back."""
    gates: tuple[Gate, ...]
    stopped: str = ""
    """Why the build ended early, and how to go on; empty: it did not."""

    @property
    def failed(self) -> tuple[Gate, ...]:
        """Return the gates that do not hold."""
        return tuple(gate for gate in self.gates if not gate.holds)

    @property
    def held(self) -> bool:
        """Say whether the build was held back."""
        return not self.version

    @property
    def why(self) -> list[str]:
        """Return what held it back: what ended it early, which is nothing to judge it by, else its gates."""
        return [self.stopped] if self.stopped else [gate.say() for gate in self.failed]


def judge_counts(config: GatesConfig, counts: Sequence[Counts]) -> Iterator[Gate]:
    """Yield the gates that need the counts of the stages only."""
    for one in counts:
        if one.stage in config.min_yield:
            share, bound = one.ok / one.of if one.of else 0.0, config.min_yield[one.stage]
            about = f"ok of {one.of:,} inputs"
            yield Gate(gate="min_yield", stage=one.stage, about=about, measured=share, bound=bound)
        if one.of and config.max_failed < 1:
            share, about = (one.failed + one.pending) / one.of, f"failed or undone of {one.of:,} inputs"
            yield Gate(gate="max_failed", stage=one.stage, about=about, measured=share, bound=config.max_failed)


def judge_result(config: GatesConfig, done: Settled, asked: Sequence[str]) -> Iterator[Gate]:
    """Yield the gate of what was asked for: one of these tables has a row, unless a yield is set for the last."""
    on = {planned.stage.name: (planned, count) for planned, count in done if planned.stage.is_on}
    found = [on[name][1] for name in asked if name in on]
    if (
        not found
        or found[-1].stage in config.min_yield
        or any(count.failed + count.pending for _, count in on.values())
    ):
        return
    if any(count.rows for count in found):
        return
    about, bound = f"ok of {found[-1].of:,} inputs", 1 / max(1, found[-1].of)
    why = say_empty(done, asked)
    yield Gate(gate="min_yield", stage=found[-1].stage, about=about, measured=0.0, bound=bound, why=why)


def say_empty(done: Settled, asked: Sequence[str]) -> str:
    """Say which tables that some are made of became empty, the first three, why, and what to try; "" if none did."""
    wanted, empty = set(asked), list[Counts]()
    for planned, count in reversed(done):
        if planned.stage.is_on and planned.stage.name in wanted:
            wanted |= planned.stage.tables
            empty[:0] = [count] if count.of and not count.rows else []
    if not empty:
        return ""
    reasons = [Counter(count.reasons).most_common(3) for count in empty]
    told = [
        f"{count.stage} ({', '.join(f'{reason}: {number:,}' for reason, number in some)})"
        for count, some in zip(empty[:3], reasons, strict=False)
    ]
    heads = (_without_bound(reason) for reason, _ in reasons[0])
    hint = next((HINTS[head] for head in heads if head in HINTS), HINTS.get(empty[0].stage, ""))
    return f"Empty: {'; '.join(told)}.{f' Try {hint}' if hint else ''}"


def judge_reasons(
    config: GatesConfig, before: Mapping[str, Mapping[str, Any]], counts: Sequence[Counts]
) -> Iterator[Gate]:
    """Yield the gates of the shares of reasons."""
    for count in counts if config.max_reason_drift else ():
        if count.stage not in before:
            continue
        old, new = (_reasons(one) for one in (before[count.stage], count.as_json()))
        if min(old.total(), new.total()) >= config.min_drift_rows:
            names = sorted(old.keys() | new.keys())
            bins = [old[name] for name in names], [new[name] for name in names]
            yield _drifted("max_reason_drift", count.stage, "reasons", config.max_reason_drift, bins)


def _reasons(count: Mapping[str, Any]) -> Counter[str]:
    """Return how many inputs ended with each reason, "" being none."""
    reasons = Counter[str]()
    for reason, number in count["reasons"].items():
        reasons[_without_bound(reason)] += number
    reasons[""] = count["in"] - count["pending"] - reasons.total()
    return reasons


def _without_bound(reason: str) -> str:
    """Return a reason without the setting and the bound behind it, with another of which it is the same reason."""
    return reason.partition(" (")[0]


def judge_columns(config: GatesConfig, before: tuple[Build, Settled], now: tuple[Build, Settled]) -> Iterator[Gate]:
    """Yield the gates of lengths and similarities; a table with the parts of the last version has not drifted."""
    (old_build, old_stages), (build, stages) = before, now
    old_by_name = {planned.stage.name: planned for planned, _ in old_stages}
    for planned, _ in stages:
        name, writes = planned.stage.name, planned.stage.writes
        old = old_by_name.get(name)
        if old is None or old.stage.writes is not writes:
            continue
        gate, count, of = ("max_length_drift", _count_lengths, "lengths of ")
        if writes is PairRow:
            gate, count, of = ("max_similarity_drift", _count_similarities, "")
        bound = getattr(config, gate)
        for column in COMPARED.get(writes, ()) if bound else ():
            counts = count(old_build, old, column), count(build, planned, column)
            if min(one.total() for one in counts) >= config.min_drift_rows:
                yield _drifted(gate, name, f"{of}{column}", bound, cut_bins(*counts))


def _drifted(gate: str, stage: str, what: str, bound: float, counts: tuple[list[int], list[int]]) -> Gate:
    about = f"drift of {what} since the last version (PSI)"
    return Gate(gate=gate, stage=stage, about=about, measured=measure_drift(*counts), bound=bound)


def cannot_judge(config: GatesConfig, why: str) -> Gate:
    """Return the gate that stands for all of drift where the last version cannot be opened: it does not hold."""
    gate = "max_length_drift" if config.max_length_drift else "max_similarity_drift"
    about = f"drift cannot be measured: {why}"
    return Gate(gate=gate, stage="", about=about, measured=None, bound=getattr(config, gate))


def write_verdict(folder: Folder, verdict: Verdict) -> None:
    """Keep how the last build was judged."""
    folder.write(FILE, seal(asdict(verdict)))


def read_verdict(folder: Folder) -> Verdict | None:
    """Return how the last build was judged; ``None`` where none has ended yet."""
    if not folder.exists(FILE):
        return None
    content = read_sealed(folder, FILE, mend=MEND)
    try:
        return TypeAdapter(Verdict).validate_python(content)
    except ValidationError as error:
        raise StoreError(f"{folder.path(FILE)}: another release wrote it. {MEND}") from error
