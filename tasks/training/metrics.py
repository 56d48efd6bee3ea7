"""Keep a run's metrics: means over logged windows, in one small Parquet file that is written anew and renamed."""

import logging
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from pairwright.tasks.store.files import Folder

log = logging.getLogger(__name__)
TRAIN, HELD_OUT = "train", "held-out"
"""The splits that metrics are of."""
SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("epoch", pa.float64()),
        ("split", pa.string()),
        ("name", pa.string()),
        ("value", pa.float64()),
    ]
)
Entry = tuple[int, float, str, str, float]
Sums = dict[str, tuple[float, float]]
"""Of each metric the weighted sum, and the sum of the weights."""
EMPTY: Mapping[str, float] = MappingProxyType({})


@dataclass
class Window:
    """Hold the metrics of some batches until they are logged."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    weights: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))

    def add(self, values: Mapping[str, float], weight: float = 1.0, counts: Mapping[str, float] = EMPTY) -> None:
        """Count a batch's means: of so many examples, or of so many as ``counts`` says of a metric."""
        for name, value in values.items():
            own = counts.get(name, weight)
            self.sums[name] += value * own
            self.weights[name] += own

    def look(self) -> Sums:
        """Return the sums."""
        return {name: (total, self.weights[name]) for name, total in self.sums.items()}

    def empty(self) -> Sums:
        """Return the sums, and begin anew."""
        found = self.look()
        self.sums.clear()
        self.weights.clear()
        return found

    def join(self, others: Iterable[Sums]) -> None:
        """Add the sums of other windows."""
        for other in others:
            for name, (total, weight) in other.items():
                self.sums[name] += total
                self.weights[name] += weight

    def take(self) -> dict[str, float]:
        """Return the means, and begin anew."""
        return {name: total / weight for name, (total, weight) in self.empty().items() if weight}


@dataclass
class MetricsFile:
    """Hold all metrics of a run so far (some hundred bytes per logged step) and write them."""

    path: Path
    entries: list[Entry] = field(default_factory=list[Entry])

    def resume(self, step: int) -> None:
        """Read what was logged up to a step; what came later will be logged again."""
        try:
            table = pq.read_table(self.path)
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowInvalid) as error:
            log.warning("%s: cannot be read: %s. Metrics begin anew", self.path, error)
            return
        self.entries = [tuple(row.values()) for row in table.to_pylist() if row["step"] <= step]

    def has(self, step: int, split: str) -> bool:
        """Say whether a step was logged."""
        return any(entry[0] == step and entry[2] == split for entry in reversed(self.entries))

    def last(self, split: str) -> dict[str, float]:
        """Return what was logged last."""
        newest = max((entry[0] for entry in self.entries if entry[2] == split), default=None)
        return {entry[3]: entry[4] for entry in self.entries if entry[0] == newest and entry[2] == split}

    def add(self, step: int, epoch: float, split: str, values: Mapping[str, float]) -> None:
        """Remember the values of a step."""
        self.entries += [(step, epoch, split, name, float(value)) for name, value in sorted(values.items())]

    def write(self) -> None:
        """Write the file.

        Raises:
            StoreError: the disk refuses.
        """
        columns = list(zip(*self.entries, strict=True)) or [[]] * len(SCHEMA)
        table = pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], SCHEMA)
        whole = pa.BufferOutputStream()
        pq.write_table(table, whole)
        Folder(str(self.path.parent)).write(self.path.name, whole.getvalue().to_pybytes())


def read_metrics(path: Path) -> MetricsFile:
    """Return all that a run has logged; nothing where there is no such file."""
    metrics = MetricsFile(path)
    metrics.resume(sys.maxsize)
    return metrics
