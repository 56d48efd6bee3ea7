"""Table of people's decisions, in a folder of its own.

DIR/decisions/000001.parquet         decisions as they were made; files are added, none is changed
DIR/decisions/state.json             number of the last file, and the named filters
DIR/decisions/filter-<hash>.json     named filters

The table is the union of its files in the order of their numbers: what was stored last counts,
whatever the clocks say. Several processes can add to it at once, and a decision stored twice counts
once, as of the first time. Many files are joined into one, which takes the number of the last. It
is read into memory as a whole: about 1 kB per decision.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from pairwright.schemas.arrow import from_table, schema_of
from pairwright.schemas.decisions import (
    Decision,
    Decisions,
    latest_decisions,
    parse_decision,
    refuse_controls,
    say_errors,
)
from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.rows import PairRow, PreferenceRow, Row, make_key
from pairwright.tasks.store.files import Folder, read_sealed, seal
from pairwright.tasks.store.index import columns_without
from pairwright.tasks.store.lineage import read_cells
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.part import Part, encode_part, read_about, read_part

log = logging.getLogger(__name__)
FOLDER = "decisions"
MAX_FILES = 64  # number of files above which they are joined
MAX_SENT = 1_000  # maximum decisions that a page sends at once
SHOWN = 5  # maximum faults that a message names
BOM = b"\xef\xbb\xbf"
STATE = f"{FOLDER}/state.json"
MEND_FILTER = "Delete it, and name the filter again"
MEND_STATE = "Delete it: the next decision writes it again"
TEXTS = ("key", "verdict", "chosen", "rejected", "note", "by", "subject", "question", "texts")
SCHEMA = pa.schema([*((name, pa.string()) for name in TEXTS), ("at", pa.timestamp("us", tz="UTC"))])
FIRST = "first"  # metadata of a file: the number of the first file that was joined into it


def decision_files(folder: Folder) -> list[str]:
    """Return the names of the table's files, below the dataset's folder, in order.

    Those of earlier releases, which have no numbers, come first.
    """
    names = folder.names(FOLDER, ".parquet")
    return [f"{FOLDER}/{name}" for name in sorted(names, key=lambda name: (_number(name), name))]


def _number(name: str) -> int:
    """Return the number of a file; 0: it was written by an earlier release."""
    stem = name.rpartition("/")[2].removesuffix(".parquet")
    return int(stem) if stem.isdecimal() else 0


def last_number(folder: Folder) -> int:
    """Return the number of the last file; 0: there is none with a number."""
    return max(map(_number, decision_files(folder)), default=0)


def read_decisions(folder: Folder) -> Decisions:
    """Return the decisions that count."""
    return latest_decisions(read_history(folder))


def read_history(folder: Folder) -> list[Decision]:
    """Return all decisions ever made and not removed, each once, in the order of storing."""
    while True:
        names = decision_files(folder)
        try:
            return _read(folder, names)
        except StoreError:
            if set(names) <= set(decision_files(folder)):
                raise
        # another process has joined some of them meanwhile


def write_decisions(folder: Folder, decisions: Sequence[Decision]) -> None:
    """Add decisions in their order, all or none; on return they survive a loss of power."""
    stored = {_content(decision) for decision in read_history(folder)}
    new = {_content(decision): decision for decision in decisions}
    added = [decision for content, decision in new.items() if content not in stored]
    if not added:
        return
    number = last_number(folder) + 1
    while not folder.create(_file(number), _encode(added, first=number)):
        number += 1
    _write_state(folder)
    names = decision_files(folder)
    if len(names) > MAX_FILES:
        # The decisions are stored; another process joins now, or a reader names the fault.
        with suppress(StoreError):
            _replace(folder, names, _read(folder, names))


def forget_decisions(folder: Folder, keys: Collection[str]) -> int:
    """Delete all decisions about some keys or subjects; return the number of keys that had one.

    Meanwhile other processes may only add files.
    """
    names = decision_files(folder)
    history = _read(folder, names)
    forgotten = [one for one in history if one.key in keys or one.subject in keys]
    if forgotten:
        removed = set(forgotten)
        remaining = [decision for decision in history if decision not in removed]
        _replace(folder, names, remaining)
    return len({decision.key for decision in forgotten})


def missing_decisions(folder: Folder, known: int = 0) -> Iterator[str]:
    """Yield a message for each missing file of decisions or filters.

    ``known``: the number of the last file that a version knows.
    """
    mend = "Restore it from a copy: decisions of people are lost without it"
    present: set[int] = set()
    for name in decision_files(folder):
        number = _number(name)
        with suppress(StoreError):  # a damaged file is reported by its own check
            first = int(read_about(Part(folder, name)).get(FIRST, number))
            present.update(range(first, number + 1))
    filters: Sequence[str] = ()
    if folder.exists(STATE):
        state = read_sealed(folder, STATE, mend=MEND_STATE)
        known = max(known, state["last"])
        filters = state["filters"]
    elif known or present - {0}:
        yield f"{folder.path(STATE)}: is missing. The next decision writes it again"
    for number in range(1, known + 1):
        if number not in present:
            yield f"{folder.path(_file(number))}: is missing. {mend}"
    existing = folder.names(FOLDER, ".json")
    for name in filters:
        if name not in existing:
            yield f"{folder.path(FOLDER)}/{name}: is missing. Name the filter again"


def _write_state(folder: Folder) -> None:
    """Record which files there are, so that a missing one is noticed."""
    filters = [name for name in folder.names(FOLDER, ".json") if name.startswith("filter-")]
    folder.write(STATE, seal({"last": last_number(folder), "filters": filters}))


def _content(decision: Decision) -> tuple[Any, ...]:
    """Return what makes two decisions the same."""
    names = (*TEXTS[:6], "at")
    return tuple(getattr(decision, name) for name in names)


def _file(number: int) -> str:
    return f"{FOLDER}/{number:06d}.parquet"


def _replace(folder: Folder, names: Sequence[str], decisions: Sequence[Decision]) -> None:
    """Write decisions in place of some files, under the number of the last."""
    last = max(_number(name) for name in names)
    file = _file(max(1, last))
    folder.write(file, _encode(decisions, first=1))
    for name in names:
        if name != file:
            folder.delete(name)
    folder.flush(FOLDER)
    _write_state(folder)


def _encode(decisions: Sequence[Decision], *, first: int) -> bytes:
    rows = [decision.model_dump() for decision in decisions]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    metadata = {"table": FOLDER, "rows": str(len(rows)), FIRST: str(first)}
    return bytes(encode_part(table, metadata))


def _read(folder: Folder, names: Iterable[str]) -> list[Decision]:
    """Return the decisions of files in order; those without a number by their times."""
    unnumbered: list[Decision] = []
    numbered: list[Decision] = []
    for name in names:
        decisions = numbered if _number(name) else unnumbered
        decisions += _read_file(folder, name)
    unnumbered.sort(key=lambda decision: decision.sort_key)
    distinct: dict[tuple[Any, ...], Decision] = {}
    for decision in (*unnumbered, *numbered):
        distinct.setdefault(_content(decision), decision)
    return list(distinct.values())


def _read_file(folder: Folder, name: str) -> Iterator[Decision]:
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
        yield Decision.model_construct(**{**row, "at": at})


def describe_decisions(build: Build, decisions: Sequence[Decision]) -> list[Decision]:
    """Return decisions with what their rows show, from the resolved tables of a build."""
    columns = columns_without(PreferenceRow, ("images", "rejected_images"))
    schema = pa.schema([schema_of(PreferenceRow).field(name) for name in columns])
    keys = [decision.key for decision in decisions]
    shown: dict[str, PreferenceRow] = {}
    for planned in build.planned:
        if planned.stage.writes is PreferenceRow:
            cells = read_cells(build, planned, keys, columns)
            table = pa.Table.from_pylist(list(cells.values()), schema=schema)
            shown |= {row.key: row for row in from_table(table, PreferenceRow)}
    described: list[Decision] = []
    for decision in decisions:
        row = shown.get(decision.key)
        if row:
            described.append(decision.about(row))
        else:  # about a pair
            described.append(decision.model_copy(update={"subject": decision.key}))
    return described


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
    """Return the named filters, by name; a damaged one is logged and left out."""
    filters: list[KeptFilter] = []
    for name in folder.names(FOLDER, ".json"):
        if not name.startswith("filter-"):
            continue
        try:
            content = read_sealed(folder, f"{FOLDER}/{name}", mend=MEND_FILTER)
            filters.append(KeptFilter.model_validate(content))
        except StoreError as error:
            log.warning("%s", error)
        except ValidationError as error:
            log.warning("%s: %s. %s", folder.path(name), say_errors(error), MEND_FILTER)
    return sorted(filters, key=lambda named: named.name)


def keep_filter(folder: Folder, named: KeptFilter) -> None:
    """Store a filter in place of the one of its name; a filter without a query is deleted."""
    name = f"{FOLDER}/filter-{make_key('filter', named.page, named.name)}.json"
    if named.query:
        folder.write(name, seal(named.model_dump()))
    else:
        folder.delete(name)
    _write_state(folder)
