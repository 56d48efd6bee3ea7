"""Table of people's decisions, in a folder of its own.

DIR/decisions/part-<hash>.parquet    decisions as they were made; files are added, none is changed
DIR/decisions/filter-<hash>.json     named filters

The table is the union of its files, so that several processes can add to it at once, and a decision
stored twice counts once. Many files are joined into one. The table has the history of each key; the
latest by ``at`` counts. It is read into memory as a whole: about 1 kB per decision.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import from_json, to_json

from pairwright.schemas.decisions import (
    Decision,
    Decisions,
    latest_decisions,
    parse_decision,
    refuse_controls,
)
from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.rows import PairRow, PreferenceRow, Row, make_key
from pairwright.tasks.store.files import Folder, read_sealed, seal
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.part import Part, encode_part, read_part

FOLDER = "decisions"
MAX_FILES = 64  # number of files above which they are joined
MAX_SENT = 1_000  # maximum decisions that a page sends at once
SHOWN = 5  # maximum faults that a message names
BOM = b"\xef\xbb\xbf"
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "verdict", "chosen", "rejected", "note", "by")),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)


def decision_files(folder: Folder) -> list[str]:
    """Return the names of the table's files, below the dataset's folder."""
    return [f"{FOLDER}/{name}" for name in folder.names(FOLDER, ".parquet")]


def read_decisions(folder: Folder) -> Decisions:
    """Return the decisions that count."""
    return latest_decisions(read_history(folder))


def read_history(folder: Folder) -> list[Decision]:
    """Return all decisions ever made and not removed, each once."""
    while True:
        names = decision_files(folder)
        try:
            return _read(folder, names)
        except StoreError:
            if set(names) <= set(decision_files(folder)):
                raise
        # another process has joined some of them meanwhile


def write_decisions(folder: Folder, decisions: Sequence[Decision]) -> None:
    """Add decisions, all or none; on return they survive a loss of power."""
    if not decisions:
        return
    _write(folder, decisions)
    names = decision_files(folder)
    if len(names) > MAX_FILES:
        # The decisions are stored; another process joins now, or a reader names the fault.
        with suppress(StoreError):
            _replace(folder, names, _read(folder, names))


def forget_decisions(folder: Folder, keys: Collection[str]) -> int:
    """Delete all decisions about some keys; return the number of keys that had one.

    Meanwhile other processes may only add files.
    """
    names = decision_files(folder)
    history = _read(folder, names)
    removed_keys = {decision.key for decision in history if decision.key in keys}
    if removed_keys:
        remaining = [decision for decision in history if decision.key not in keys]
        _replace(folder, names, remaining)
    return len(removed_keys)


def _replace(folder: Folder, names: Iterable[str], decisions: Sequence[Decision]) -> None:
    old_names = set(names)
    if decisions:
        old_names.discard(_write(folder, decisions))
    for name in sorted(old_names):
        folder.delete(name)
    folder.flush(FOLDER)


def _write(folder: Folder, decisions: Sequence[Decision]) -> str:
    ordered = sorted(decisions, key=lambda decision: decision.sort_key)
    rows = [decision.model_dump() for decision in ordered]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    texts = [decision.model_dump_json() for decision in ordered]
    name = f"{FOLDER}/part-{make_key(*texts)}.parquet"
    metadata = {"table": FOLDER, "rows": str(len(rows))}
    folder.write(name, encode_part(table, metadata))
    return name


def _read(folder: Folder, names: Iterable[str]) -> list[Decision]:
    decisions: dict[Decision, None] = {}  # a set in the order of the files
    for name in names:
        try:
            table = read_part(Part(folder, name))
        except StoreError as error:
            cause = error.__cause__ or error
            raise StoreError(
                f"{folder.path(name)}: the decisions cannot be read: {cause}. Restore the "
                "file from a copy; or delete it, and give the decision files to "
                "`pairwright decide` again"
            ) from error
        for row in table.to_pylist():
            at = row["at"].astimezone(UTC)
            decision = Decision.model_construct(**{**row, "at": at})
            decisions[decision] = None
    return list(decisions)


def read_decision_file(path: Path) -> list[Decision]:
    """Return the decisions of a file; ``ConfigError`` names invalid lines."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    decisions, faults = _parse(content.removeprefix(BOM).split(b"\n"))
    if faults:
        examples = "; ".join(f"line {fault}" for fault in faults[:SHOWN])
        if len(faults) > SHOWN:
            examples += "; ..."
        raise ConfigError(
            f"{path}: nothing is stored: {len(faults):,} invalid lines. Correct them: {examples}"
        )
    return decisions


def parse_decisions(body: bytes) -> list[Decision]:
    """Return the decisions of a JSON list; ``ValueError`` if it, or a decision, is invalid."""
    listed = from_json(body)
    if not isinstance(listed, list) or len(listed) > MAX_SENT:
        raise ValueError(f"must be a list of at most {MAX_SENT:,} decisions")
    decisions, faults = _parse(map(to_json, listed))
    if faults:
        raise ValueError(f"decision {faults[0]}")
    return decisions


def _parse(lines: Iterable[bytes]) -> tuple[list[Decision], list[str]]:
    """Return the decisions of lines of JSON, and the faults with their numbers."""
    now = datetime.now(UTC)
    decisions: list[Decision] = []
    faults: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            decisions.append(parse_decision(line, now=now))
        except ValueError as error:
            faults.append(f"{number:,}: {error}")
    return decisions, faults


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """Decisions, sorted by whether their subject exists."""

    known: list[Decision] = field(default_factory=list[Decision])
    unknown: list[Decision] = field(default_factory=list[Decision])
    """Decisions about a key that the version does not have."""
    wordless: list[Decision] = field(default_factory=list[Decision])
    """Edits of a pair, which has no texts of its own."""


def sort_decisions(build: Build, decisions: Sequence[Decision]) -> Sorted:
    """Look the keys up in the resolved tables of a build."""
    keys = list({decision.key for decision in decisions})
    query = "SELECT key FROM live_{} WHERE key IN (SELECT unnest(?))"
    existing: dict[type[Row], set[str]] = {PreferenceRow: set(), PairRow: set()}
    for planned in build.planned:
        row_type = planned.stage.writes
        if row_type in existing:
            results = build.ledger.run_query(query.format(planned.stage.name), keys)
            existing[row_type].update(key for (key,) in results)
    return sort_by_keys(decisions, existing[PreferenceRow], existing[PairRow])


def sort_by_keys(
    decisions: Sequence[Decision], preferences: Collection[str], pairs: Collection[str]
) -> Sorted:
    """Sort decisions by the existing keys of preferences and pairs."""
    result = Sorted()
    for decision in decisions:
        if decision.key in preferences:
            result.known.append(decision)
        elif decision.key not in pairs:
            result.unknown.append(decision)
        elif decision.verdict == "edit":
            result.wordless.append(decision)
        else:
            result.known.append(decision)
    return result


class KeptFilter(BaseModel):
    """Named filter of the pages, for everybody who opens the dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=80), AfterValidator(refuse_controls)]
    page: Literal["", "explore"]
    # Query string of the page; empty: delete the filter.
    query: Annotated[str, Field(max_length=2000, pattern=r"^[\x21-\x7e]*$")]


def read_filters(folder: Folder) -> list[KeptFilter]:
    """Return the named filters, by name."""
    filters: list[KeptFilter] = []
    for name in folder.names(FOLDER, ".json"):
        if not name.startswith("filter-"):
            continue
        content = read_sealed(
            folder, f"{FOLDER}/{name}", mend="Delete it, and name the filter again"
        )
        filters.append(KeptFilter.model_validate(content))
    return sorted(filters, key=lambda named: named.name)


def keep_filter(folder: Folder, named: KeptFilter) -> None:
    """Store a filter in place of the one of its name; a filter without a query is deleted."""
    name = f"{FOLDER}/filter-{make_key('filter', named.page, named.name)}.json"
    if named.query:
        folder.write(name, seal(named.model_dump()))
    else:
        folder.delete(name)
