"""Table of the benchmark scores of a dataset's runs, in a folder of its own.

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
    """Score of a run on a benchmark, with its interval; the last seven fields are the score's."""

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
SCHEMA = pa.schema([(column.name, KINDS[column.type]) for column in fields(EvaluationRow)])


def write_evaluation(folder: Folder, rows: Sequence[EvaluationRow]) -> None:
    """Add the rows of one evaluation to a dataset's table; on return they are durable."""
    if not rows:
        return
    first = rows[0]
    key = make_key(first.data, first.asked)
    name = f"{FOLDER}/{first.run}/{first.benchmark}-{key}.parquet"
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=SCHEMA)
    metadata = {"table": FOLDER, "rows": str(len(rows))}
    folder.write(name, encode_part(table, metadata))


def read_evaluations(folder: Folder, run: str) -> list[EvaluationRow]:
    """Return the rows of a run, by benchmark."""
    names = folder.names(f"{FOLDER}/{run}", ".parquet")
    rows: list[EvaluationRow] = []
    for name in names:
        table = read_part(Part(folder, f"{FOLDER}/{run}/{name}"))
        rows.extend(EvaluationRow(**row) for row in table.to_pylist())
    return rows
