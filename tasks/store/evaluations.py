"""The table of benchmark scores of a dataset's runs, beside its own tables.

DIR/evaluations/RUN/BENCHMARK-<hash>.parquet    a row per score

The table is the union of its files. Each evaluation has its own file, named after its options, so
that several can run at once, and a repeated one replaces its earlier scores.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa

from pairwright.schemas.rows import make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, encode_part, read_part

FOLDER = "evaluations"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """Score of a run on a benchmark, with the ends of its interval; the last seven fields are those of a score."""

    run: str
    model: str  # identity of the model
    benchmark: str
    data: str
    asked: str  # options that differ from their defaults: "limit 50, blank drop"
    at: str
    category: str
    name: str
    value: float | None
    low: float | None
    high: float | None
    items: int
    percent: bool


KINDS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    float | None: pa.float64(),
}
SCHEMA = pa.schema([(one.name, KINDS[one.type]) for one in fields(EvaluationRow)])


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
