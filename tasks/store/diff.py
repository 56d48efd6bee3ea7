"""Compare two opened versions of a dataset, stage by stage: rows that came and went, inputs whose outcome changed.

Reads two settled ledgers; rows are compared by key, inputs by theirs. DuckDB does it within its memory limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from pairwright.schemas.arrow import no_rows
from pairwright.tasks.store.dataset import Build

KEYS = no_rows(pa.schema({"key": pa.string()}))
OUTCOMES = no_rows(pa.schema(dict.fromkeys(("key", "outcome", "reason"), pa.string())))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """Count inputs that ended otherwise than before."""

    before: str
    """"ok", "dropped", "failed" or "pending", with the reason behind it; empty: it was no input."""
    after: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDiff:
    """Say how one table of two versions differs."""

    stage: str
    fingerprints: tuple[str, str]
    """Before and after; empty: that version has no such table."""
    rows: tuple[int, int]
    came: int
    went: int
    turned: tuple[Turned, ...]
    """Inputs that are in both, most first."""
    came_keys: tuple[str, ...] = ()
    went_keys: tuple[str, ...] = ()


def diff_stage(before: Build, after: Build, stage: str, *, listed: bool = False) -> StageDiff:
    """Compare one stage of two settled versions."""
    with duckdb.connect() as database:
        for name, build in (("before", before), ("after", after)):
            has = _fingerprint(build, stage) != ""
            keys = build.ledger.columns(f"SELECT key FROM live_{stage}") if has else KEYS
            query = f"SELECT key, outcome, coalesce(reason, '') AS reason FROM outcome_{stage}"
            database.register(f"{name}_keys", keys)
            database.register(f"{name}_outcomes", build.ledger.columns(query) if has else OUTCOMES)
        came, went = (_only(database, *pair) for pair in (("after", "before"), ("before", "after")))
        sizes = [
            int(database.sql(f"SELECT count(*) FROM {name}_keys").fetchall()[0][0]) for name in ("before", "after")
        ]
        return StageDiff(
            stage=stage,
            fingerprints=(_fingerprint(before, stage), _fingerprint(after, stage)),
            rows=(sizes[0], sizes[1]),
            came=len(came),
            went=len(went),
            turned=tuple(_turned(database)),
            came_keys=tuple(sorted(came.to_pylist())) if listed else (),
            went_keys=tuple(sorted(went.to_pylist())) if listed else (),
        )


def _fingerprint(build: Build, stage: str) -> str:
    return next((planned.fingerprint for planned in build.planned if planned.stage.name == stage), "")


def _only(database: duckdb.DuckDBPyConnection, one: str, other: str) -> pa.ChunkedArray:
    return database.sql(f"SELECT key FROM {one}_keys ANTI JOIN {other}_keys USING (key)").to_arrow_table()["key"]


def _turned(database: duckdb.DuckDBPyConnection) -> Sequence[Turned]:
    told = "CASE WHEN {0}.reason = '' THEN {0}.outcome ELSE {0}.outcome || ': ' || {0}.reason END"
    found = database.sql(
        f"SELECT {told.format('b')}, {told.format('a')}, count(*) FROM before_outcomes b JOIN after_outcomes a "
        "USING (key) WHERE b.outcome != a.outcome OR b.reason != a.reason GROUP BY ALL ORDER BY 3 DESC, 1, 2"
    ).fetchall()
    return [Turned(before=before, after=after, count=count) for before, after, count in found]
