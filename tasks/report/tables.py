"""Reach the settled tables of a build by name; a table that the build did not reach is empty."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pairwright.schemas.arrow import R, schema_of
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.index import Index, columns_without
from pairwright.tasks.store.snapshot import live_index
from pairwright.tasks.store.stage import Planned

CHECKS = ("controlled", "grounded", "judged")
"""Tables of checks, in the order in which descriptions pass them."""
MAKERS = ("retrieved", "swapped", "edited", "sampled", "refuted", "counterfactual")
"""Tables of rejected texts, each of the maker of its name."""
CHUNK_ROWS = 50_000


@dataclass(frozen=True)
class Tables:
    """Hold a build whose stages are settled; the index of a table is looked for once."""

    build: Build
    _indexes: dict[str, Index] = field(default_factory=dict[str, Index], compare=False, repr=False)

    def has(self, name: str) -> bool:
        """Say whether the build went as far as this table, and its stage is on."""
        return self._planned(name) is not None

    def open_all(self) -> None:
        """Look for the indexes of all tables now; after that the build's ledger is not asked for them."""
        for planned in self.build.planned:
            self._index(planned.stage.name)

    def find(self, name: str, row_type: type[R], subjects: Iterable[str], *, without: Sequence[str] = ()) -> list[R]:
        """Return the live rows about the subjects, ordered by subject and key."""
        index = self._index(name)
        if index is None:
            return []
        rows = index.rows(index.find(subjects), row_type, columns_without(row_type, without))
        return sorted(rows, key=lambda row: (row.subject, row.key))

    def stream(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all live rows, a row group at a time."""
        index = self._index(name)
        yield from () if index is None else index.batches(columns)

    def chunks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some narrow columns of all live rows, tens of thousands at a time: what is done per batch is not free.

        Columns that the table does not have are left out, so that tables of different rows may be asked alike.
        """
        planned, index = self._planned(name), self._index(name)
        has = schema_of(planned.stage.writes).names if planned else []
        wanted = [column for column in columns if column in has]
        if index is None or not wanted:
            return
        batch: list[pa.Table] = []
        rows = 0
        for table in index.tables(wanted):
            batch.append(table)
            rows += len(table)
            if rows >= CHUNK_ROWS:
                yield _joined(batch)
                batch, rows = [], 0
        if batch:
            yield _joined(batch)

    def served(self) -> list[str]:
        """Return the tables whose rows say what served models were asked for them, in the order of the build."""
        planned = [one.stage for one in self.build.planned]
        return [stage.name for stage in planned if "served" in schema_of(stage.writes).names]

    def read(self, name: str, columns: Sequence[str]) -> pa.Table:
        """Return some narrow columns of all live rows at once; with a table that was not reached, null columns."""
        parts = list(self.stream(name, columns))
        return pa.concat_tables(parts) if parts else pa.table({column: pa.array([], pa.string()) for column in columns})

    def refused(self, name: str) -> Iterator[tuple[str, str, str]]:
        """Yield status, reason and detail of each input that a table's stage dropped or failed, copies left out."""
        planned = self._planned(name)
        yield from () if planned is None else (row[:3] for row in self.build.refused(planned))

    def _index(self, name: str) -> Index | None:
        """Return the index of a table's live rows; ``None``: the build did not reach it."""
        if name not in self._indexes and (planned := self._planned(name)):
            self._indexes[name] = live_index(self.build, planned)
        return self._indexes.get(name)

    def _planned(self, name: str) -> Planned | None:
        on = (planned for planned in self.build.planned if planned.stage.is_on)
        return next((planned for planned in on if planned.stage.name == name), None)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the tables as one; a column that a part of an older version lacks is null there."""
    return pa.concat_tables(tables, promote_options="default").combine_chunks()
