"""Measure how far a column has drifted between two versions of a table: the population stability index.

Reads single columns as a stream and holds their histograms only, however many rows there are.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from pairwright.tasks.store.snapshot import stream_live
from pairwright.tasks.store.stage import Planned

BINS = 10
"""Bins hold a tenth of the earlier rows each, as is usual for this index."""
STEPS = 100
"""Steps that a similarity of 1 is cut into."""
TEXTS: dict[type[Row], tuple[str, ...]] = {
    CaptionRow: ("text",),
    DifferenceRow: ("text",),
    ComparisonRow: ("text",),
    QuestionRow: ("question", "answer"),
    RejectedTextRow: ("text",),
    PreferenceRow: ("chosen", "rejected"),
}
"""The columns whose lengths are compared."""
SIMILARITIES: dict[type[Row], tuple[str, ...]] = {PairRow: ("similarity",)}
"""The columns of similarities that are compared."""
Histogram = Counter[int]


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


def match_counts(before: Mapping[str, int], now: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """Return two counts by name over all of their names."""
    names = sorted(before.keys() | now.keys())
    return [before.get(name, 0) for name in names], [now.get(name, 0) for name in names]


def count_lengths(build: Build, planned: Planned, column: str) -> Histogram:
    """Return how many live rows of a settled stage have a text of each length, in characters."""
    tables = stream_live(build, planned, [column])
    return _count(pc.call_function("utf8_length", [table.column(column)]) for table in tables)


def count_similarities(build: Build, planned: Planned, column: str) -> Histogram:
    """Return how many live rows of a settled stage have each similarity, in hundredths."""
    values = (table.column(column).to_numpy() for table in stream_live(build, planned, [column]))
    return _count(pa.array(np.floor(value * STEPS).astype(np.int64)) for value in values)


def _count(columns: Iterable[pa.Array | pa.ChunkedArray]) -> Histogram:
    found: Histogram = Counter()
    for column in columns:
        for item in column.value_counts().to_pylist():
            found[item["values"]] += item["counts"]
    return found
