"""Check a build against its profile's gates before publishing: yields, failed shares, drift since the last version.

Reads the counts of settled stages and, if drift is bounded, single columns of two versions; writes ``gates.json``, the
verdict on the last build.
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
from pairwright.schemas.checks import without_bound
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
"""Each bin holds a tenth of the earlier rows, as is usual for this index."""
STEPS = 100
"""Steps that a similarity of 1 is cut into."""
COMPARED: dict[type[Row], tuple[str, ...]] = {
    **dict.fromkeys((CaptionRow, DifferenceRow, ComparisonRow, RejectedTextRow), ("text",)),
    QuestionRow: ("question", "answer"),
    PreferenceRow: ("chosen", "rejected"),
    PairRow: ("similarity",),
}
"""Columns that are compared: texts by length, similarities by value."""
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
    "admitted": "leaving out --exclude, other bounds in filters; check that the images have vectors (embedding)",
    "similar_pairs": (
        "other thresholds: mining.min_best_similarity, mining.min_similarity, mining.max_similarity. `pairwright view` "
        "shows the similarities, `pairwright refilter` tries other thresholds without embedding again"
    ),
    "nouns": "images with captions, or --set pairing=similarity",
    "noun_pairs": "fewer nouns (noun_pairs.levels), or --set pairing=similarity",
    "pairs": "without --exclude",
    "differences": "weaker checks (controls, grounding, judging), or more to choose from (differences.candidates)",
    "preferences": "--set rejections.fallback=none, or --set rejections.enabled=false",
}
"""Remedies for an empty table, by the most frequent reason, else by the table."""


def measure_drift(before: Sequence[int], now: Sequence[int]) -> float:
    """Return the population stability index of two counts over the same bins; 0 for equal shares.

    Half a row is added to each bin, so that an empty bin has a logarithm.
    """
    old, new = (_shares(counts) for counts in (before, now))
    return math.fsum((n - o) * math.log(n / o) for o, n in zip(old, new, strict=True))


def _shares(counts: Sequence[int]) -> list[float]:
    total = sum(counts) + len(counts) / 2
    return [(count + 0.5) / total for count in counts]


def cut_bins(before: Mapping[int, int], now: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Return both histograms over bins that each hold a tenth of the earlier one's rows, or more where values tie.

    Values below or above all earlier ones have two bins of their own; if the earlier values were all equal, nothing
    else would show a change.
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
    """``None``: could not be measured."""
    bound: float
    why: str = ""
    """Tables that became empty, and what to try."""

    @property
    def holds(self) -> bool:
        """Return whether the measurement is within the bound."""
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
    """Verdict on a build, and its result."""

    began: str
    """Time at which the build listed its source (ISO 8601, UTC)."""
    ended: str
    complete: bool
    """Whether nothing is owed."""
    against: int
    """Version against which drift is measured; 0: none."""
    version: int
    """Version that was published, or was already current; 0: the build was held back."""
    gates: tuple[Gate, ...]
    stopped: str = ""
    """Why the build ended early, and how to continue; empty: it did not."""

    @property
    def failed(self) -> tuple[Gate, ...]:
        """Return the gates that failed."""
        return tuple(gate for gate in self.gates if not gate.holds)

    @property
    def held(self) -> bool:
        """Return whether the build was held back."""
        return not self.version

    @property
    def why(self) -> list[str]:
        """Return why it was held back: what ended it early, in which case gates do not count, else its gates."""
        return [self.stopped] if self.stopped else [gate.say() for gate in self.failed]


def judge_counts(config: GatesConfig, counts: Sequence[Counts]) -> Iterator[Gate]:
    """Yield the gates that need only the counts of the stages."""
    for one in counts:
        if one.stage in config.min_yield:
            share, bound = one.ok / one.of if one.of else 0.0, config.min_yield[one.stage]
            about = f"ok of {one.of:,} inputs"
            yield Gate(gate="min_yield", stage=one.stage, about=about, measured=share, bound=bound)
        if one.of and config.max_failed < 1:
            share, about = (one.failed + one.pending) / one.of, f"failed or pending of {one.of:,} inputs"
            yield Gate(gate="max_failed", stage=one.stage, about=about, measured=share, bound=config.max_failed)


def judge_result(config: GatesConfig, done: Settled, asked: Sequence[str]) -> Iterator[Gate]:
    """Yield the gate of the requested tables: one of them has a row, unless a yield is set for the last."""
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
    """Return a sentence on the first three empty tables that these are made from, why, and what to try; "" if none."""
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
    heads = (without_bound(reason) for reason, _ in reasons[0])
    hint = next((HINTS[head] for head in heads if head in HINTS), HINTS.get(empty[0].stage, ""))
    return f"Empty: {'; '.join(told)}.{f' Try {hint}' if hint else ''}"


def judge_reasons(
    config: GatesConfig, before: Mapping[str, Mapping[str, Any]], counts: Sequence[Counts]
) -> Iterator[Gate]:
    """Yield the gates on the shares of reasons."""
    for count in counts if config.max_reason_drift else ():
        if count.stage not in before:
            continue
        old, new = (_reasons(one) for one in (before[count.stage], count.as_json()))
        if min(old.total(), new.total()) >= config.min_drift_rows:
            names = sorted(old.keys() | new.keys())
            bins = [old[name] for name in names], [new[name] for name in names]
            yield _drifted("max_reason_drift", count.stage, "reasons", config.max_reason_drift, bins)


def _reasons(count: Mapping[str, Any]) -> Counter[str]:
    """Return the number of inputs by reason; "" stands for none."""
    reasons = Counter[str]()
    for reason, number in count["reasons"].items():
        reasons[without_bound(reason)] += number
    reasons[""] = count["in"] - count["pending"] - reasons.total()
    return reasons


def judge_columns(config: GatesConfig, before: tuple[Build, Settled], now: tuple[Build, Settled]) -> Iterator[Gate]:
    """Yield the gates on lengths and similarities; a table with the parts of the last version has not drifted."""
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
    """Return the failed gate that stands for all drift if the last version cannot be opened."""
    gate = "max_length_drift" if config.max_length_drift else "max_similarity_drift"
    about = f"drift cannot be measured: {why}"
    return Gate(gate=gate, stage="", about=about, measured=None, bound=getattr(config, gate))


def write_verdict(folder: Folder, verdict: Verdict) -> None:
    """Write the verdict on the last build."""
    folder.write(FILE, seal(asdict(verdict)))


def read_verdict(folder: Folder) -> Verdict | None:
    """Return the verdict on the last build; ``None`` before the first has ended."""
    if not folder.exists(FILE):
        return None
    content = read_sealed(folder, FILE, mend=MEND)
    try:
        return TypeAdapter(Verdict).validate_python(content)
    except ValidationError as error:
        raise StoreError(f"{folder.path(FILE)}: written by another release. {MEND}") from error
