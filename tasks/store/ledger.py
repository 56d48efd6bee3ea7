"""Decide what is unfinished: live keys of the input less the source keys finished in the output.

The ledger reads the key columns of every part into DuckDB, which joins within a memory limit and
spills to disk. For each stage, in order, it makes ``input_S`` (the present input rows, under the
names by which their results are recognised) and ``live_S`` (the ok rows that count: made from a
present input, one per key). Every input is ok, dropped, failed or pending; rows without their
source in the input are stale, and in no live table. Rows about images that were removed on request
are in ``present_S``, from which inputs follow, and not in ``live_S``, which all readers read.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa

from pairwright.schemas.arrow import concat_parts, integers
from pairwright.schemas.errors import StoreError, ValidationError
from pairwright.schemas.rows import ABOUT_COLUMNS, ItemRow, Row
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, describe_part, read_part_columns
from pairwright.tasks.store.stage import Planned, Uses
from pairwright.tasks.store.takedowns import REFUSED, REMOVED

MEMORY_LIMIT = "1GB"
COLUMNS = ("key", "source_key", "status", "reason", "anchor", "facts", *ABOUT_COLUMNS)
PLACED = ", ".join(["part INTEGER", "row INTEGER", *(f'"{column}" VARCHAR' for column in COLUMNS)])
ENDS = ("ok", "dropped", "failed", "pending")
BATCH_ROWS = 20_000
READERS = 32  # parts of an object store read at once
COLLECTION = (
    "collection"  # metadata field in which a part of a stage with ``whole`` identifies its input
)
DUPLICATE = "duplicate of another row"
TOMBSTONE = f"(r.status = 'dropped' AND r.reason = '{REMOVED}')"
"""SQL: whether a row stands for one about a removed image, whose content is deleted."""
LINKS = {"subject": "subject", "about": "unnest(about)", "key": "key"}
"""SQL for each ``Uses.on``: subjects of the rows used with a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One stage's input rows by outcome: ``of = ok + dropped + failed + pending``."""

    stage: str
    fingerprint: str
    of: int = 0
    ok: int = 0
    dropped: int = 0
    failed: int = 0
    pending: int = 0
    rows: int = 0  # number of ok rows (one input may give several)
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    """Inputs by the reason why they were dropped, failed, or gave rows with a remark."""
    failures: dict[str, int] = field(
        default_factory=dict[str, int]
    )  # failed inputs by reason, for ``resume --reason``

    def as_json(self) -> dict[str, Any]:
        """Return the counts as ``pairwright status --json`` prints them."""
        names = ("stage", "fingerprint", *ENDS, "rows", "reasons")
        return {"in": self.of, **{name: getattr(self, name) for name in names}}


class Ledger:
    """Ledger of the keys of a dataset's tables; a context manager."""

    def __init__(self, folder: Folder, scratch: Path) -> None:
        """Open an empty ledger that may spill to ``scratch``."""
        self.folder = folder
        self._scratch = scratch
        self._database = duckdb.connect(
            config={
                "memory_limit": MEMORY_LIMIT,
                "temp_directory": str(scratch),
                "preserve_insertion_order": True,
            }
        )
        self.run_query("SET enable_progress_bar = false")  # it goes to standard output
        self.run_query(
            "ATTACH ':memory:' AS tables (COMPRESS); USE tables"
        )  # a third of the memory of temporary tables
        self._loaded: dict[str, dict[str, int]] = {}
        self._places: dict[str, str] = {}
        self.has_removals = False
        self.resolved = set[str]()
        """Tables whose live rows are known."""
        self.run_query("CREATE TABLE removed (key VARCHAR)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        self._database.close()
        if isinstance(error, duckdb.OutOfMemoryException):
            reason = str(error).partition("\n")[0]
            raise StoreError(
                f"{self._scratch}: has no room for data beyond {MEMORY_LIMIT} of memory: {reason} "
                "Free space there, or set TMPDIR to a folder on a larger disk; `pairwright "
                "resume` continues"
            ) from error

    def run_query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the result of a query of ``live_S``, ``input_S``, ``outcome_S`` or ``rows_S``."""
        return self._database.execute(query, values).fetchall()

    def set_items(self, table: str, names: Sequence[str]) -> None:
        """Set the parts of a listing, in this order, as the input of the sources stages."""
        self._load("items", table, names)
        first = _first_of_its_key("rows_items", "true", "r.part, r.row")
        self.run_query(f"""
            CREATE OR REPLACE TABLE live_items AS SELECT row_number() OVER () - 1 AS seq, * FROM (
                SELECT * FROM rows_items r WHERE {first} ORDER BY part, row)""")
        self.run_query("CREATE OR REPLACE TEMP VIEW present_items AS SELECT * FROM live_items")
        self._make_about("items", ItemRow)

    def remove_images(self, images: Iterable[str]) -> None:
        """Take images, and all rows about them, out of the live tables; before any is resolved."""
        keys = sorted(images)
        self.has_removals = bool(keys)
        self.run_query("INSERT INTO removed SELECT unnest(?::VARCHAR[])", keys)

    @property
    def removed_keys(self) -> list[str]:
        """Return the keys of removed images and of rows about them, of the tables so far."""
        return [key for (key,) in self.run_query("SELECT DISTINCT key FROM removed ORDER BY key")]

    def load_parts(self, planned: Planned, *, without: Collection[str] = ()) -> None:
        """Read the keys of parts added since the last call, other than those ``without``."""
        names: Sequence[str] = ()
        if planned.is_on:
            names = self.folder.names(planned.table_path, ".parquet")
        if without:
            names = [name for name in names if f"{planned.table_path}/{name}" not in without]
        self._load(planned.stage.name, planned.table_path, names)

    def load_only(self, planned: Planned, live: Sequence[str], others: Sequence[str]) -> None:
        """Read the keys of some parts only.

        An ok row of ``others`` counts only as a duplicate: such a part may have been rewritten
        since, if all of its rows had failed.
        """
        name = planned.stage.name
        self._load(name, planned.table_path, [*live, *others])
        count = len(live)
        live_keys = f"SELECT key FROM rows_{name} WHERE part < {count} AND status = 'ok'"
        self.run_query(
            f"DELETE FROM rows_{name} WHERE part >= {count} AND status = 'ok' "
            f"AND key NOT IN ({live_keys})"
        )

    def _load(self, name: str, table: str, names: Sequence[str]) -> None:
        if name not in self._loaded:
            self.run_query(
                f"CREATE OR REPLACE TABLE rows_{name} ({PLACED}); "
                f"CREATE OR REPLACE TABLE parts_{name} (part INTEGER, name VARCHAR)"
            )
            self._loaded[name] = {}
        numbers = self._loaded[name]
        # A retry of a part in which every row failed replaces it: such parts are read again.
        failed = f"SELECT part FROM rows_{name} GROUP BY part HAVING bool_and(status = 'failed')"
        again = self.run_query(f"SELECT name FROM parts_{name} WHERE part IN ({failed})")
        unread = {part for (part,) in again}
        self.run_query(f"DELETE FROM rows_{name} WHERE part IN ({failed})")
        new = dict[str, int]()
        for part in names:
            if part not in numbers and part not in new:
                new[part] = len(numbers) + len(new)
        numbers.update(new)
        if new:
            parts = f"INSERT INTO parts_{name} SELECT unnest(?), unnest(?)"
            self.run_query(parts, list(new.values()), list(new))
        to_read = {part: numbers[part] for part in names if part in unread or part in new}
        for keys in self._read_keys(table, to_read):
            self._database.register("new_rows", keys)
            self.run_query(f"INSERT INTO rows_{name} BY NAME SELECT * FROM new_rows")
            self._database.unregister("new_rows")

    def _read_keys(self, table: str, parts: Mapping[str, int]) -> Iterator[pa.Table]:
        """Yield the keys of parts, some thousand rows at once, in one chunk.

        Of many small chunks DuckDB runs out of memory (5,000 parts of 4 rows).
        On an object store many parts are read in parallel.
        """

        def read_keys(item: tuple[str, int]) -> pa.Table:
            name, number = item
            return _keys(Part(self.folder, f"{table}/{name}"), number)

        batch: list[pa.Table] = []
        with ThreadPoolExecutor(READERS) as threads:
            for start in range(0, len(parts), 2 * READERS):  # so that few wait in memory
                some = islice(parts.items(), start, start + 2 * READERS)
                for keys in (
                    map(read_keys, some) if self.folder.is_local else threads.map(read_keys, some)
                ):
                    batch.append(keys)
                    if sum(map(len, batch)) >= BATCH_ROWS:
                        yield concat_parts(batch).combine_chunks()
                        batch = []
        if batch:
            yield concat_parts(batch).combine_chunks()

    def resolve(self, planned: Planned) -> None:
        """Compute a stage's present input and live rows from the live tables of earlier stages."""
        self._unite(planned)
        self._make_input(planned)
        name = planned.stage.name
        self._places.pop(name, None)
        alive = f"r.status = 'ok' AND r.source_key IN (SELECT source_key FROM input_{name})"
        if self.has_removals:
            self._trace_removed(name)
            alive = (
                f"(r.status = 'ok' OR {TOMBSTONE} AND r.key IN (SELECT key FROM removed)) "
                f"AND r.source_key IN (SELECT source_key FROM input_{name})"
            )
        order = "r.anchor, r.source_key, r.part, r.row"  # only mined pairs have an anchor
        first = _first_of_its_key(f"rows_{name}", alive, order)
        self.run_query(f"""
            CREATE OR REPLACE TABLE live_{name} AS SELECT row_number() OVER () - 1 AS seq, * FROM (
                SELECT r.* FROM rows_{name} r
                JOIN (SELECT part, row_number() OVER (ORDER BY name) AS rank FROM parts_{name}) p
                    USING (part)
                WHERE {alive} AND {first} ORDER BY p.rank, r.row)""")
        self._take_out_removed(name)
        self._make_about(name, planned.stage.writes)
        self.resolved.add(name)
        self.run_query(f"""
            CREATE OR REPLACE TABLE outcome_{name} AS
            SELECT i.seq, i.source_key, i.key, i.part, i.row,
                CASE WHEN i.done THEN 'ok'
                    WHEN b.best >= 2 OR i.removed THEN 'dropped'
                    WHEN b.best = 1 THEN 'failed'
                    ELSE 'pending' END AS outcome,
                CASE WHEN i.done THEN coalesce(w.remark, '')
                    WHEN i.removed THEN '{REMOVED}'
                    WHEN b.best = 3 THEN '{DUPLICATE}'
                    WHEN b.best = 2 THEN b.dropped
                    ELSE b.failed END AS reason
            FROM (
                SELECT *, source_key IN (SELECT source_key FROM live_{name}) AS done,
                    source_key IN (SELECT source_key FROM present_{name}) AS removed
                FROM input_{name}
            ) i
            LEFT JOIN (
                SELECT source_key, max(reason) AS remark FROM live_{name}
                WHERE reason != '' GROUP BY ALL
            ) w USING (source_key)
            LEFT JOIN (
                SELECT source_key,
                    max(CASE status WHEN 'ok' THEN 3 WHEN 'dropped' THEN 2 ELSE 1 END) AS best,
                    min(reason) FILTER (status = 'dropped') AS dropped,
                    min(reason) FILTER (status = 'failed') AS failed
                FROM rows_{name} WHERE source_key NOT IN (SELECT source_key FROM live_{name})
                GROUP BY source_key
            ) b USING (source_key)""")

    def _trace_removed(self, name: str) -> None:
        """Add the keys of a table's rows about removed images, also of stale ones, to ``removed``.

        A row is about an image if it names it, or was made from a row about it.
        """
        self.run_query(f"""
            CREATE OR REPLACE TABLE removed_input_{name} AS
            SELECT source_key FROM input_{name} WHERE key IN (SELECT key FROM removed)""")
        self.run_query(f"""
            INSERT INTO removed
            SELECT DISTINCT r.key FROM rows_{name} r
            WHERE (r.status = 'ok' OR {TOMBSTONE}) AND {self._is_removed(name)}
                AND r.key NOT IN (SELECT key FROM removed)""")

    def _is_removed(self, name: str) -> str:
        """Return the condition that a row ``r`` of a table is about a removed image."""
        columns = ("key", *ABOUT_COLUMNS)
        named = [f"r.{column} IN (SELECT key FROM removed)" for column in columns]
        made = f"r.source_key IN (SELECT source_key FROM removed_input_{name})"
        return f"coalesce({' OR '.join([*named, made])}, false)"

    def _take_out_removed(self, name: str) -> None:
        """Make ``present_S``, the live rows with those about removed images, and take these out.

        What a row depends on is computed from ``present_S``, so that a removal makes no other row
        unfinished.
        """
        if not self.has_removals:
            self.run_query(
                f"CREATE OR REPLACE TEMP VIEW present_{name} AS SELECT * FROM live_{name}"
            )
            return
        gone = "key IN (SELECT key FROM removed)"
        self.run_query(f"CREATE OR REPLACE TABLE present_{name} AS SELECT * FROM live_{name}")
        self.run_query(f"DELETE FROM live_{name} WHERE {gone}")
        self.run_query(f"DELETE FROM input_{name} WHERE {gone}")

    def _make_about(self, name: str, row_type: type[Row]) -> None:
        """Make ``about_S``.

        The present rows with ``about``, the list of the keys that each is about.
        """
        columns = ", ".join(f'"{column}"' for column in row_type.ABOUT)
        query = f"SELECT *, [{columns}] AS about FROM present_{name}"
        self.run_query(f"CREATE OR REPLACE TEMP VIEW about_{name} AS {query}")

    def _unite(self, planned: Planned) -> None:
        """Make ``read_S``: the present rows of all tables that the stage reads.

        For a key in several tables the first one's row counts. Parts are numbered consecutively, in
        the order of the tables.
        """
        name = planned.stage.name
        tables = list(planned.inputs.reads)
        if len(tables) == 1:
            self.run_query(
                f"CREATE OR REPLACE TEMP VIEW read_{name} AS SELECT * FROM about_{tables[0]}"
            )
            return
        columns = ", ".join(f'"{column}"' for column in ("row", *COLUMNS))
        no_rows = f"SELECT 0 AS place, 0 AS seq, part, {columns}, [key] AS about FROM rows_{name}"
        selects = [f"{no_rows} WHERE false"]
        part_count = 0
        for position, table in enumerate(tables):
            selects.append(
                f"SELECT {position} AS place, seq, part + {part_count} AS part, {columns}, about "
                f"FROM about_{table}"
            )
            part_count += len(self.part_names(table))
        self.run_query(f"""
            CREATE OR REPLACE TEMP VIEW read_{name} AS
            SELECT row_number() OVER (ORDER BY place, seq) - 1 AS seq, place, part, {columns}, about
            FROM (
                SELECT * FROM ({" UNION ALL ".join(selects)})
                QUALIFY row_number() OVER (PARTITION BY key ORDER BY place) = 1)""")

    def _make_input(self, planned: Planned) -> None:
        """Give each input row the name by which its results are recognised.

        That is its key; with ``whole``, hashed with the whole input; with uses that count, with the
        keys of the rows used, so that a row is unfinished again when they change; with
        ``by_source``, with its source key and, if the stage reads several tables, its table.
        """
        stage = planned.stage
        inputs = planned.inputs
        parts = ["l.key"]
        if stage.by_source:
            parts.append("l.source_key")
        if stage.by_source and len(inputs.reads) > 1:
            parts.append("l.place")
        joins = ""
        facts = ["coalesce(l.facts, '')"] if stage.facts and stage.facts(planned.config) else []
        counted = [use for use in inputs.uses if use.counts or use.facts]
        for number, use in enumerate(counted):
            used = f"({links_of(planned, use)}) m JOIN present_{use.table} u ON u.{use.by} = m.link"
            column = "facts" if use.facts else "key"
            keys = f"string_agg(u.{column}, ' ' ORDER BY u.key) AS keys"
            keys_of = f"SELECT m.key AS about, {keys} FROM {used} GROUP BY ALL"
            joins += f" LEFT JOIN ({keys_of}) u{number} ON u{number}.about = l.key"
            counting = facts if use.facts else parts
            counting.append(f"coalesce(u{number}.keys, '')")
        if inputs.is_whole:
            parts.append(f"'{self.collection(planned)}'")
        source_key = parts[0]
        if len(parts) > 1:
            source_key = f"md5({' || chr(31) || '.join(parts)})"
        if facts:  # rows of earlier releases have none, and keep their names
            known = " || ".join(facts)
            named = f"md5({' || chr(31) || '.join([source_key, *facts])})"
            source_key = f"CASE WHEN {known} = '' THEN {source_key} ELSE {named} END"
        chosen = ""
        if inputs.only_in:
            subjects = [f"SELECT unnest(about) FROM about_{table}" for table in inputs.only_in]
            chosen = f"WHERE l.key IN ({' UNION ALL '.join(subjects)})"
        self.run_query(f"""
            CREATE OR REPLACE TABLE input_{stage.name} AS
            SELECT row_number() OVER () - 1 AS seq, * FROM (
                SELECT l.key, {source_key} AS source_key, l.part, l.row
                FROM read_{stage.name} l {joins} {chosen} ORDER BY l.seq)""")

    def collection(self, planned: Planned) -> str:
        """Return an identifier of the whole input, and of every table passed as a whole."""
        relations = [f"read_{planned.stage.name}"]
        for use in planned.inputs.uses:
            if use.kind in ("table", "vectors"):
                relations.append(f"present_{use.table}")
        # Independent of the order of the rows.
        row = "key || coalesce(facts, '')"
        hashes = f"coalesce(bit_xor(md5_number({row})), 0), bit_xor(md5_number({row} || '+'))"
        identifiers = list[str]()
        for relation in relations:
            (values,) = self.run_query(f"SELECT count(*), {hashes} FROM {relation}")
            identifiers.append(":".join(map(str, values)))
        return " ".join(identifiers)

    def count_stage(self, planned: Planned) -> Counts:
        """Count a resolved stage.

        ``ValidationError`` if the counts, taken independently, do not add up.
        """
        name = planned.stage.name
        ((total, rows),) = self.run_query(
            f"SELECT (SELECT count(*) FROM input_{name}), (SELECT count(*) FROM live_{name})"
        )
        numbers = dict.fromkeys(ENDS, 0)
        reasons = Counter[str]()
        failures = Counter[str]()
        by_reason = self.run_query(
            f"SELECT outcome, coalesce(reason, ''), count(*) FROM outcome_{name} "
            "GROUP BY ALL ORDER BY 2"
        )
        for end, reason, number in by_reason:
            numbers[end] += number
            if reason and end != "pending":
                reasons[reason] += number
            if end == "failed":
                failures[reason] += number
        if sum(numbers.values()) != total:
            raise ValidationError(
                f"stage {name} does not add up: {total} input rows, but {numbers}; report this bug"
            )
        return Counts(
            stage=name,
            fingerprint=planned.fingerprint,
            of=total,
            rows=rows,
            reasons=dict(reasons.most_common()),
            failures=dict(failures.most_common()),
            **numbers,
        )

    def unfinished_rows(
        self, name: str, rows_per_shard: int, *, reason: str = ""
    ) -> pa.RecordBatchReader:
        """Return the unfinished input rows of a resolved stage, in the input's own order.

        Columns: ``key``, ``source_key``, ``part`` and ``row`` (position of the input row) and
        ``shard`` (its number if the whole input is cut into slices of ``rows_per_shard``). With
        ``reason``, only rows that failed for it.
        """
        which = "outcome IN ('pending', 'failed')"
        if reason:
            which = "outcome = 'failed' AND reason = ?"
        return self._database.sql(
            f"SELECT key, source_key, part, row, (seq // {int(rows_per_shard)})::INTEGER AS shard "
            f"FROM outcome_{name} WHERE {which} ORDER BY seq",
            params=[reason] if reason else None,
        ).to_arrow_reader(BATCH_ROWS)

    def refused(self, name: str, *, remarked: bool = False) -> list[tuple[str, int, str]]:
        """Return part file, row and the input's subject of each dropped or failed row of a stage.

        ``remarked``: of its live rows with a reason.
        """
        relation = f"rows_{name}"
        status = "r.status = o.outcome AND r.status != 'ok'"
        group = "r.source_key"
        if remarked:
            relation = f"live_{name}"
            status = "r.reason != ''"
            group = "r.row"
        return self.run_query(f"""
            SELECT p.name, min(r.row), any_value(l.subject) FROM {relation} r
            JOIN outcome_{name} o USING (source_key) JOIN parts_{name} p ON p.part = r.part
            JOIN read_{name} l ON l.key = o.key
            WHERE {status} GROUP BY p.name, {group} ORDER BY 1, 2""")

    def duplicates(self, name: str) -> list[tuple[str, int, str, int]]:
        """Return the positions of duplicate rows, and of the rows that they duplicate."""
        return self.run_query(f"""
            SELECT p.name, min(r.row), any_value(q.name), any_value(w.row) FROM outcome_{name} o
            JOIN rows_{name} r USING (source_key) JOIN live_{name} w ON w.key = r.key
            JOIN parts_{name} p ON p.part = r.part JOIN parts_{name} q ON q.part = w.part
            WHERE o.outcome = 'dropped' AND o.reason = '{DUPLICATE}' AND r.status = 'ok'
            GROUP BY p.name, r.source_key ORDER BY 1, 2""")

    def index(
        self, tables: Sequence[str], *, only_in: str = "", by: str = "subject"
    ) -> pa.RecordBatchReader:
        """Return ``subject`` (16 bytes, sorted), ``part`` and ``row`` of each live row of tables.

        Parts are numbered consecutively, in the order of the tables. With ``only_in``, only of rows
        that share their subject with a live row of that table. ``by``: the column that is read as
        the subject.
        """
        chosen = f"WHERE subject IN (SELECT subject FROM live_{only_in})" if only_in else ""
        selects: list[str] = []
        part_count = 0
        for table in tables:
            columns = f"unhex({by}) AS subject, part + {part_count} AS part, row, key"
            selects.append(f"SELECT {columns} FROM live_{table} {chosen}")
            part_count += len(self.part_names(table))
        return self._database.sql(
            f"SELECT subject, part, row FROM ({' UNION ALL '.join(selects)}) ORDER BY subject, key"
        ).to_arrow_reader(BATCH_ROWS)

    def hash_positions(self, table: str) -> str:
        """Return a hash of the keys and positions of a table's live rows.

        It costs half a second per million rows, and is needed for every few rows read.
        """
        if table not in self._places:
            position = "key || ' ' || part || ' ' || row"
            ((value,),) = self.run_query(
                f"SELECT bit_xor(md5_number({position})) FROM live_{table}"
            )
            self._places[table] = str(value)
        return self._places[table]

    def part_names(self, table: str) -> list[str]:
        """Return the files of a table's parts, by the number in ``part`` columns."""
        return [
            name
            for _, name in self.run_query(f"SELECT part, name FROM parts_{table} ORDER BY part")
        ]

    def fetch_table(self, query: str) -> pa.Table:
        """Return the result of a query of the resolved tables as an Arrow table."""
        return self._database.sql(query).to_arrow_table()

    def removed_places(self, table: str) -> dict[str, list[int]]:
        """Return the rows about removed images of a resolved table, by part, tombstones left out.

        Also those that are not live for another reason.
        """
        places: dict[str, list[int]] = {}
        if not self.has_removals:
            return places
        is_content = f"coalesce(r.reason, '') NOT IN ('{REMOVED}', '{REFUSED}')"
        rows = self.run_query(
            f"SELECT p.name, r.row FROM rows_{table} r JOIN parts_{table} p USING (part) "
            f"WHERE {is_content} AND {self._is_removed(table)} ORDER BY 1, 2"
        )
        for name, row in rows:
            places.setdefault(name, []).append(row)
        return places

    def other_parts(self, table: str) -> list[str]:
        """Return the parts of a resolved stage with dropped or failed rows and no live ones."""
        names = self.run_query(
            f"SELECT DISTINCT p.name FROM rows_{table} r JOIN parts_{table} p USING (part) "
            f"WHERE r.source_key IN (SELECT source_key FROM input_{table}) "
            f"AND r.part NOT IN (SELECT part FROM present_{table}) ORDER BY 1"
        )
        return [name for (name,) in names]

    def live_parts(self, table: str) -> dict[str, int]:
        """Return the number of present rows by part, for parts that hold some."""
        counts = self.run_query(
            f"SELECT p.name, count(*) FROM present_{table} JOIN parts_{table} p USING (part) "
            "GROUP BY ALL ORDER BY 1"
        )
        return dict(counts)


def _first_of_its_key(table: str, which: str, order: str) -> str:
    """Return the condition that a row ``r`` of a table is the first of its key, by ``order``.

    Only repeated keys are sorted: sorting is expensive, and they are few.
    """
    twice = f"SELECT key FROM {table} r WHERE {which} GROUP BY key HAVING count(*) > 1"
    return f"""(r.key NOT IN ({twice}) OR (r.part, r.row) IN (
        SELECT (r.part, r.row) FROM {table} r WHERE {which} AND r.key IN ({twice})
        QUALIFY row_number() OVER (PARTITION BY r.key ORDER BY {order}) = 1))"""


def links_of(planned: Planned, use: Uses) -> str:
    """Return the query of the subjects of the rows used with each input row.

    They are named by the input row itself, or by a row used before (``of``).
    """
    if not use.of:
        return f"SELECT key, {LINKS[use.on]} AS link FROM read_{planned.stage.name}"
    other = next(other for other in planned.inputs.uses if other.argument == use.of)
    return (
        f"SELECT v.of AS key, {LINKS[use.on]} AS link "
        f"FROM (SELECT key AS of, link FROM ({links_of(planned, other)})) v "
        f"JOIN about_{other.table} o ON o.subject = v.link"
    )


def _keys(part: Part, number: int) -> pa.Table:
    """Return a part's key columns, after checking its metadata."""
    table, stated = read_part_columns(part, COLUMNS)
    actual = describe_part(part.name, table, version=0)
    del actual["version"]
    del actual["name"]
    wrong = list[str]()
    for name, value in actual.items():
        if stated.get(name) != value:
            wrong.append(f"{name} {stated.get(name)} (it is {value})")
    if wrong:
        raise StoreError(
            f"{part.path}: the part states {', '.join(wrong)}. "
            "Delete it and run `pairwright resume`"
        )
    table = table.append_column("part", integers(np.full(len(table), number, np.int32)))
    return table.append_column("row", integers(np.arange(len(table), dtype=np.int32)))
