"""Keep a run's metrics: means over logged windows, in one small Parquet file that is written anew and renamed."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

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


@dataclass
class Window:
    """Hold the metrics of some batches until they are logged."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    weights: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))

    def add(self, values: Mapping[str, float], weight: float = 1.0) -> None:
        """Count a batch's means, of so many examples."""
        for name, value in values.items():
            self.sums[name] += value * weight
            self.weights[name] += weight

    def take(self) -> dict[str, float]:
        """Return the means, and begin anew."""
        means = {name: total / self.weights[name] for name, total in self.sums.items() if self.weights[name]}
        self.sums.clear()
        self.weights.clear()
        return means


@dataclass
class MetricsFile:
    """Hold all metrics of a run so far (some hundred bytes per logged step) and write them."""

    path: Path
    entries: list[Entry] = field(default_factory=list[Entry])

    def resume(self, step: int) -> None:
        """Read what was logged up to a step; what came later will be logged again."""
        if self.path.is_file():
            table = pq.read_table(self.path)
            self.entries = [tuple(row.values()) for row in table.to_pylist() if row["step"] <= step]

    def add(self, step: int, epoch: float, split: str, values: Mapping[str, float]) -> None:
        """Remember the values of a step."""
        self.entries += [(step, epoch, split, name, float(value)) for name, value in sorted(values.items())]

    def write(self) -> None:
        """Write the file."""
        columns = list(zip(*self.entries, strict=True)) or [[]] * len(SCHEMA)
        table = pa.table([pa.array(column, kind.type) for column, kind in zip(columns, SCHEMA, strict=True)], SCHEMA)
        new = self.path.with_name(f".{self.path.name}.new")
        pq.write_table(table, new)
        new.replace(self.path)
