"""Tables of a resolved build by name; a table that the build did not reach is empty.

DuckDB counts over all rows, within the store's memory limit; it spills to disk.
"""

import contextlib
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from pairwright.schemas.arrow import R, concat_parts, schema_of
from pairwright.tasks.pages.charts import ValueCounts
from pairwright.tasks.store.index import Index, columns_without
from pairwright.tasks.store.ledger import MEMORY_LIMIT
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.snapshot import live_index
from pairwright.tasks.store.stage import Planned

PREFERENCES = ("preferences", "given_preferences")  # tables of preferences, the latest first
CHUNK_ROWS = 50_000
FINE = 0.0001  # step of counted cosines and scores, finer than their display
WORDS = "len(regexp_extract_all({}, '[^\\s]+'))"  # number of words of a text, as SQL
Columns = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Tables:
    """Resolved build with the indexes of its tables, each opened once."""

    build: Build
    _indexes: dict[tuple[str, bool], Index] = field(
        default_factory=dict[tuple[str, bool], Index],
        compare=False,
        repr=False,
    )

    def has_table(self, name: str) -> bool:
        """Return whether the build reached this table, and its stage is on."""
        return self._planned(name) is not None

    @property
    def preferences(self) -> str:
        """Return the name of the latest table of preferences; empty: none."""
        return next((name for name in PREFERENCES if self.has_table(name)), "")

    def open_all(self) -> None:
        """Open all indexes now, so that the build's ledger is not read later."""
        for planned in self.build.planned:
            self.index(planned.stage.name)
            self.index(planned.stage.name, extended=True)

    def find_rows(
        self,
        name: str,
        row_type: type[R],
        subjects: Iterable[str],
        *,
        without: Sequence[str] = (),
    ) -> list[R]:
        """Return the live rows about the subjects, ordered by subject and key.

        Those of the tables that extend the named one, too.
        """
        index = self.index(name, extended=True)
        if index is None:
            return []
        rows = index.rows_at(
            index.find_positions(subjects), row_type, columns_without(row_type, without)
        )
        return sorted(rows, key=lambda row: (row.subject, row.key))

    def chunks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield narrow columns of all live rows in large batches, since each batch has a cost.

        Missing columns are left out, so that tables of different rows can be read alike.
        """
        planned = self._planned(name)
        index = self.index(name)
        if planned is None or index is None:
            return
        stored = schema_of(planned.stage.writes).names
        columns = [column for column in columns if column in stored]
        if not columns:
            return
        batch: list[pa.Table] = []
        for table in index.part_tables(columns):
            batch.append(table)
            if sum(map(len, batch)) >= CHUNK_ROWS:
                yield concat_parts(batch).combine_chunks()
                batch = []
        if batch:
            yield concat_parts(batch).combine_chunks()

    @contextlib.contextmanager
    def database(self, **columns: Sequence[str]) -> Generator[duckdb.DuckDBPyConnection]:
        """Open DuckDB with narrow columns of all live rows of tables, and a ``number`` per row.

        Missing columns are null, as are all columns of a table that the build did not reach.
        """
        with (
            tempfile.TemporaryDirectory(prefix="pairwright-") as scratch,
            open_database(":memory:", Path(scratch)) as database,
        ):
            for name, names in columns.items():
                self._copy_columns(database, name, names)
            yield database

    def _copy_columns(
        self, database: duckdb.DuckDBPyConnection, name: str, columns: Sequence[str]
    ) -> None:
        planned = self._planned(name)
        schema = schema_of(planned.stage.writes) if planned else pa.schema([])
        fields: list[pa.Field[Any]] = []
        for column in columns:
            is_stored = column in schema.names
            fields.append(schema.field(column) if is_stored else pa.field(column, pa.null()))
        database.register("chunk", pa.schema(fields).empty_table())
        database.execute(f"CREATE TABLE {name} AS SELECT *, 0::BIGINT AS number FROM chunk")
        rows = 0
        for chunk in self.chunks(name, columns):
            database.register("chunk", chunk)
            numbered = f"SELECT *, row_number() OVER () + {rows} AS number FROM chunk"
            database.execute(f"INSERT INTO {name} BY NAME {numbered}")
            rows += len(chunk)

    def query(
        self, query: str, columns: Columns, values: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the result of a query about columns of tables.

        It is empty if the build reached none of the tables.
        """
        if not any(map(self.has_table, columns)):
            return []
        with self.database(**columns) as database:
            return database.execute(query, list(values)).fetchall()

    def tally(
        self,
        query: str,
        columns: Columns,
        *,
        step: float = FINE,
    ) -> dict[str, ValueCounts]:
        """Count rounded values by name.

        The query returns ``place``, the order of names, ``name`` and ``value``.
        """
        counted = f"""SELECT name, list(steps ORDER BY steps), list(rows ORDER BY steps) FROM (
            SELECT min(place) AS place, name, round(value / {step})::BIGINT AS steps,
                count(*) AS rows
            FROM ({query}) WHERE value IS NOT NULL GROUP BY name, steps)
            GROUP BY name ORDER BY min(place), name"""
        tallies: dict[str, ValueCounts] = {}
        for name, steps, rows in self.query(counted, columns):
            values = np.round(np.array(steps) * step, 4)
            tallies[name] = ValueCounts(values, np.array(rows))
        return tallies

    def count_values(
        self, query: str, columns: Columns, values: Sequence[Any] = ()
    ) -> dict[str, int]:
        """Return the counts of each ``value`` of a query, the most frequent first.

        Null counts as empty.
        """
        counted = (
            f"SELECT coalesce(value, ''), count(*) FROM ({query}) GROUP BY 1 ORDER BY 2 DESC, 1"
        )
        return dict(self.query(counted, columns, values))

    def index(self, name: str, *, extended: bool = False) -> Index | None:
        """Return the index of a table's live rows; ``None``: the build did not reach it.

        ``extended``: of the tables that extend it, too.
        """
        planned = self._planned(name)
        if planned and (name, extended) not in self._indexes:
            self._indexes[name, extended] = live_index(self.build, planned, extended=extended)
        return self._indexes.get((name, extended))

    def _planned(self, name: str) -> Planned | None:
        for planned in self.build.planned:
            if planned.is_on and planned.stage.name == name:
                return planned
        return None


@contextlib.contextmanager
def open_database(path: str, scratch: Path) -> Generator[duckdb.DuckDBPyConnection]:
    """Open DuckDB within the store's memory limit."""
    config: dict[str, Any] = {
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": str(scratch / "spill"),
        "preserve_insertion_order": False,
    }
    database = duckdb.connect(path, config=config)
    try:
        database.execute("SET enable_progress_bar = false")
        database.execute("SET enable_external_access = false")  # no query can read another file
        yield database
    finally:
        database.close()
