"""Follow rows from table to table, to what was made from them or what they were made from.

Compare two versions.

A row is made from its stage's input row, from the rows that were looked up for it (one or many with
the same subject), and from the images that it names. Tables that a stage got as a whole are not
followed: through them every row would come from every other. Rows and inputs of two versions are
compared by key.

Reads the resolved ledgers' key columns.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pairwright.schemas.rows import ImageRow, Row
from pairwright.tasks.store.ledger import Ledger, links_of
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.stage import Planned

Way = Literal["made of it", "made from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A row, and the row from which it was reached."""

    table: str
    key: str
    of_table: str
    of_key: str


def find_keys(build: Build, prefix: str) -> list[tuple[str, str]]:
    """Return live rows of a resolved build with this key prefix, by table, the listing first.

    At most ten each.
    """
    tables = ["items", *(planned.stage.name for planned in build.planned)]
    return [(table, key) for table in tables for key in keys_like(build.ledger, table, prefix)]


def keys_like(ledger: Ledger, table: str, prefix: str) -> list[str]:
    """Return the first ten keys of a resolved table's live rows with this prefix."""
    query = f"SELECT key FROM live_{table} WHERE starts_with(key, ?) ORDER BY key LIMIT 10"
    return [key for (key,) in ledger.run_query(query, prefix)]


def follow(build: Build, seeds: Iterable[tuple[str, str]], way: Way) -> list[Link]:
    """Return every row reachable from some rows of a resolved build, nearest table first."""
    run = build.ledger.run_query
    run(
        "CREATE OR REPLACE TEMP TABLE reached "
        "(n INTEGER, tbl VARCHAR, key VARCHAR, of_tbl VARCHAR, of_key VARCHAR)"
    )
    for table, key in dict.fromkeys(seeds):
        run("INSERT INTO reached VALUES (0, ?, ?, '', '')", table, key)
    images = {planned.stage.name for planned in build.planned if planned.stage.writes is ImageRow}
    extensions: dict[str, list[str]] = {}
    for planned in build.planned:
        extensions.setdefault(planned.stage.extends, []).append(planned.stage.name)
    number = 0
    for planned in build.planned if way == "made of it" else reversed(build.planned):
        for table, edges in _edges(planned, images, extensions):
            made, source = (planned.stage.name, "made"), (table, "source")
            (to, to_column), (of, of_column) = (
                (made, source) if way == "made of it" else (source, made)
            )
            number += 1
            run(
                f"INSERT INTO reached SELECT {number}, '{to}', e.{to_column}, '{of}', "
                f"min(e.{of_column}) "
                f"FROM ({edges}) e JOIN reached r ON r.tbl = '{of}' AND r.key = e.{of_column} "
                f"WHERE e.{to_column} NOT IN (SELECT key FROM reached WHERE tbl = '{to}') "
                "GROUP BY ALL"
            )
    found = run("SELECT tbl, key, of_tbl, of_key FROM reached WHERE n > 0 ORDER BY n, of_key, key")
    return [
        Link(table=table, key=key, of_table=of, of_key=of_key) for table, key, of, of_key in found
    ]


def _edges(
    planned: Planned, images: Iterable[str], extensions: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the tables that a stage's rows are made from, each with the query of its edges.

    ``made``, ``source``.
    """
    name = planned.stage.name
    rows = (
        f"SELECT r.key AS made, i.key AS input FROM rows_{name} r JOIN input_{name} i "
        "USING (source_key) "
        f"WHERE r.status = 'ok' AND r.key IN (SELECT key FROM live_{name})"
    )
    for table in planned.inputs.reads:
        yield (
            table,
            (
                f"SELECT made, input AS source FROM ({rows}) WHERE input IN (SELECT key FROM "
                f"live_{table})"
            ),
        )
    for use in (use for use in planned.inputs.uses if use.kind in ("one", "many")):
        linked = f"({rows}) x JOIN ({links_of(planned, use)}) m ON m.key = x.input"
        for table in (use.table, *extensions.get(use.table, ())):
            if table == name:
                continue
            used = f"live_{table} u ON u.subject = m.link"
            yield table, f"SELECT x.made, u.key AS source FROM {linked} JOIN {used}"
    if planned.stage.writes.ABOUT == Row.ABOUT:
        return  # about the subject of its input, which is reached already
    named = f"SELECT key, unnest(about) AS image FROM about_{name}"
    for table in (table for table in images if table != name):
        yield (
            table,
            (
                f"SELECT n.key AS made, l.key AS source FROM ({named}) n "
                f"JOIN live_{table} l ON l.key "
                f"= n.image"
            ),
        )


def count_reached(links: Sequence[Link], seeds: Iterable[tuple[str, str]] = ()) -> dict[str, int]:
    """Return the number of reached rows per table, including the starting rows."""
    return dict(Counter([*(table for table, _ in seeds), *(link.table for link in links)]))


def read_cells(
    build: Build, planned: Planned, keys: Sequence[str], columns: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return some columns of live rows by key; missing keys are left out."""
    name = planned.stage.name
    places = build.ledger.run_query(
        f"SELECT p.name, l.row, l.key FROM live_{name} l JOIN parts_{name} p USING (part) "
        "WHERE l.key IN (SELECT unnest(?)) ORDER BY 1, 2",
        list(keys),
    )
    return {key: row for (_, _, key), row in build.read_columns(planned, places, columns)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """Number of inputs with one change of outcome."""

    # "ok", "dropped", "failed" or "pending", followed by the reason; empty: not an input before
    before: str
    after: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDiff:
    """Difference of one table between two versions."""

    stage: str
    fingerprints: tuple[
        str, str
    ]  # fingerprints before and after; empty: that version lacks the table
    rows: tuple[int, int]
    came: int
    went: int
    turned: tuple[Turned, ...]  # inputs in both versions, most frequent change first


def diff_stage(before: Build, after: Build, stage: str) -> StageDiff:
    """Compare one stage of two resolved versions."""
    (old_mark, old, ended), (mark, new, ends) = (
        _state_of(build, stage) for build in (before, after)
    )
    turned = Counter(
        (ended[key], ends[key]) for key in ended.keys() & ends.keys() if ended[key] != ends[key]
    )
    return StageDiff(
        stage=stage,
        fingerprints=(old_mark, mark),
        rows=(len(old), len(new)),
        came=len(new - old),
        went=len(old - new),
        turned=tuple(
            Turned(before=one, after=other, count=count)
            for (one, other), count in sorted(turned.items(), key=lambda item: (-item[1], item[0]))
        ),
    )


def _state_of(build: Build, stage: str) -> tuple[str, set[str], dict[str, str]]:
    """Return a table's fingerprint, its live keys, and each input's outcome with its reason."""
    planned = next((planned for planned in build.planned if planned.stage.name == stage), None)
    if planned is None:
        return "", set(), {}
    ended = build.ledger.run_query(
        f"SELECT key, CASE WHEN coalesce(reason, '') = '' THEN outcome ELSE outcome || ': ' || "
        f"reason END "
        f"FROM outcome_{stage}"
    )
    return (
        planned.fingerprint,
        {key for (key,) in build.ledger.run_query(f"SELECT key FROM live_{stage}")},
        dict(ended),
    )
