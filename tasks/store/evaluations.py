"""The table of what a dataset's runs scored on benchmarks, beside its own tables.

DIR/evaluations/RUN/BENCHMARK-<hash>.parquet    a row per score

The table is the union of its files. An evaluation has a file of its own, named after what was asked: who evaluates at
the same time disturbs nobody, and the same evaluation again takes the place of its earlier scores. All of it is small.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, encode_part, read_part

FOLDER = "evaluations"
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "model", "benchmark", "data", "asked", "at", "category", "name")),
        *((name, pa.float64()) for name in ("value", "low", "high")),
        ("items", pa.int64()),
        ("percent", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """Score of a run on a benchmark, with the ends of its interval; the last seven fields are those of a score."""

    run: str
    model: str
    """Identity of the model, which tells it from others."""
    benchmark: str
    data: str
    asked: str
    """What was asked otherwise than by default: "limit 50, blank drop"."""
    at: str
    category: str
    name: str
    value: float | None
    low: float | None
    high: float | None
    items: int
    percent: bool


def write_evaluation(folder: Folder, rows: Sequence[EvaluationRow]) -> None:
    """Add the rows of one evaluation to a dataset's table; on return they survive a loss of power."""
    if rows:
        one = rows[0]
        name = f"{FOLDER}/{one.run}/{one.benchmark}-{make_key(one.data, one.asked)}.parquet"
        table = pa.Table.from_pylist([asdict(row) for row in rows], schema=SCHEMA)
        folder.write(name, encode_part(table, {"table": FOLDER, "rows": str(len(rows))}))


def read_evaluations(folder: Folder, run: str) -> list[EvaluationRow]:
    """Return the rows of a run, by benchmark."""
    names = folder.names(f"{FOLDER}/{run}", ".parquet")
    tables = (read_part(Part(folder, f"{FOLDER}/{run}/{name}")) for name in names)
    return [EvaluationRow(**row) for table in tables for row in table.to_pylist()]
