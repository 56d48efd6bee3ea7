"""The table of decisions, beside a dataset's own tables.

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
    latest,
    parse_decision,
    refuse_controls,
)
from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.rows import PairRow, PreferenceRow, Row, make_key
from pairwright.tasks.store.build import Build
from pairwright.tasks.store.files import Folder, read_sealed, seal
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
    return latest(read_history(folder))


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
    if len(names := decision_files(folder)) > MAX_FILES:
        with suppress(
            StoreError
        ):  # the decisions are stored; another process joins now, or a reader names the fault
            _replace(folder, names, _read(folder, names))


def forget_decisions(folder: Folder, keep: Collection[str]) -> int:
    """Delete all decisions about other keys; return the number of these keys.

    Meanwhile other processes may only add files.
    """
    names = decision_files(folder)
    history = _read(folder, names)
    gone = {one.key for one in history if one.key not in keep}
    if gone:
        _replace(folder, names, [one for one in history if one.key in keep])
    return len(gone)


def _replace(folder: Folder, names: Iterable[str], decisions: Sequence[Decision]) -> None:
    kept = {_write(folder, decisions)} if decisions else set[str]()
    for name in sorted(set(names) - kept):
        folder.delete(name)
    folder.flush(FOLDER)


def _write(folder: Folder, decisions: Sequence[Decision]) -> str:
    ordered = sorted(decisions, key=lambda one: one.order)
    rows = [one.model_dump() for one in ordered]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    name = f"{FOLDER}/part-{make_key(*(one.model_dump_json() for one in ordered))}.parquet"
    folder.write(name, encode_part(table, {"table": FOLDER, "rows": str(len(rows))}))
    return name


def _read(folder: Folder, names: Iterable[str]) -> list[Decision]:
    found: dict[Decision, None] = {}
    for name in names:
        try:
            table = read_part(Part(folder, name))
        except StoreError as error:
            why = error.__cause__ or error
            raise StoreError(
                f"{folder.path(name)}: the decisions cannot be read: {why}. Restore the file from a copy; or "
                "delete it, and give the decision files to `pairwright decide` again"
            ) from error
        rows = ({**row, "at": row["at"].astimezone(UTC)} for row in table.to_pylist())
        found |= dict.fromkeys(Decision.model_construct(**row) for row in rows)
    return list(found)


def read_decision_file(path: Path) -> list[Decision]:
    """Return the decisions of a file; ``ConfigError`` names invalid lines."""
    try:
        found, faults = _parse(path.read_bytes().removeprefix(BOM).split(b"\n"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if faults:
        some = "; ".join(f"line {fault}" for fault in faults[:SHOWN]) + (
            "; ..." if faults[SHOWN:] else ""
        )
        raise ConfigError(
            f"{path}: nothing is stored: {len(faults):,} invalid lines. Correct them: {some}"
        )
    return found


def parse_decisions(body: bytes) -> list[Decision]:
    """Return the decisions of a JSON list; ``ValueError`` if it is not a list, or a decision is invalid."""
    listed = from_json(body)
    if not isinstance(listed, list) or len(listed) > MAX_SENT:
        raise ValueError(f"must be a list of at most {MAX_SENT:,} decisions")
    found, faults = _parse(map(to_json, listed))
    if faults:
        raise ValueError(f"decision {faults[0]}")
    return found


def _parse(lines: Iterable[bytes]) -> tuple[list[Decision], list[str]]:
    """Return the decisions of lines of JSON, and the faults with their numbers."""
    now = datetime.now(UTC)
    found, faults = list[Decision](), list[str]()
    for number, line in enumerate(lines, 1):
        try:
            found += [parse_decision(line, now=now)] if line.strip() else []
        except ValueError as error:
            faults.append(f"{number:,}: {error}")
    return found, faults


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """Decisions, sorted by whether their subject exists."""

    known: list[Decision] = field(default_factory=list[Decision])
    unknown: list[Decision] = field(
        default_factory=list[Decision]
    )  # about a key that the version does not have
    wordless: list[Decision] = field(
        default_factory=list[Decision]
    )  # edits of a pair, which has no texts of its own


def sort_decisions(build: Build, decisions: Sequence[Decision]) -> Sorted:
    """Look the keys up in the settled tables of a build."""
    keys = list({one.key for one in decisions})
    query = "SELECT key FROM live_{} WHERE key IN (SELECT unnest(?))"
    known: dict[type[Row], set[str]] = {PreferenceRow: set(), PairRow: set()}
    for planned in build.planned:
        if planned.stage.writes in known:
            found = build.ledger.run(query.format(planned.stage.name), keys)
            known[planned.stage.writes].update(key for (key,) in found)
    return sort_by_keys(decisions, known[PreferenceRow], known[PairRow])


def sort_by_keys(
    decisions: Sequence[Decision], preferences: Collection[str], pairs: Collection[str]
) -> Sorted:
    """Sort decisions by the existing keys of preferences and pairs."""
    found = Sorted()
    for one in decisions:
        if one.key in preferences or (one.key in pairs and one.verdict != "edit"):
            found.known.append(one)
        else:
            (found.wordless if one.key in pairs else found.unknown).append(one)
    return found


class KeptFilter(BaseModel):
    """Named filter of the pages, for everybody who opens the dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=80), AfterValidator(refuse_controls)]
    page: Literal["", "explore"]
    query: Annotated[
        str, Field(max_length=2000, pattern=r"^[\x21-\x7e]*$")
    ]  # of the page; empty: delete the filter


def read_filters(folder: Folder) -> list[KeptFilter]:
    """Return the named filters, by name."""
    names = [name for name in folder.names(FOLDER, ".json") if name.startswith("filter-")]
    found = [
        read_sealed(folder, f"{FOLDER}/{name}", mend="Delete it, and name the filter again")
        for name in names
    ]
    return sorted((KeptFilter.model_validate(one) for one in found), key=lambda one: one.name)


def keep_filter(folder: Folder, given: KeptFilter) -> None:
    """Store a filter in place of the one of its name; a filter without a query is deleted."""
    name = f"{FOLDER}/filter-{make_key('filter', given.page, given.name)}.json"
    if given.query:
        folder.write(name, seal(given.model_dump()))
    else:
        folder.delete(name)
