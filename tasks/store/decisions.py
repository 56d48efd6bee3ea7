"""The table of what people decided about rows, beside a dataset's own tables.

DIR/decisions/part-<hash>.parquet    decisions as they were made; files are added, none is changed

The table is the union of its files: who adds to it at the same time disturbs nobody, and what is stored twice is
there once. Many small files are joined to one that holds the same. It has the history of each key; the latest by ``at``
counts. All of it is in memory at once: about 1 kB per decision.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pydantic_core import from_json, to_json

from pairwright.schemas.decisions import Decision, Decisions, latest, parse_decision
from pairwright.schemas.errors import ConfigError, StoreError
from pairwright.schemas.rows import PairRow, PreferenceRow, Row, make_key
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.part import Part, encode_part, read_part

FOLDER = "decisions"
MOST_FILES = 64
"""Small files that there may be before they are joined."""
SMALL_BYTES = 1 << 20
TRIES = 20
MOST_BYTES, MOST_LINE = 256 << 20, 200_000
MOST_SENT = 1_000
"""Decisions that a page sends at once."""
SHOWN = 5
"""Faults that a message names."""
BOM = b"\xef\xbb\xbf"
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("key", "verdict", "chosen", "rejected", "note")),
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
    """Return all that was ever decided and not removed, each once."""
    for _ in range(TRIES):
        names = decision_files(folder)
        try:
            return list(dict.fromkeys(one for name in names for one in _read(folder, name)))
        except StoreError:
            if set(names) <= set(decision_files(folder)):
                raise
        # somebody has joined some of them meanwhile
    raise StoreError(f"{folder.path(FOLDER)}: changes all the time, and cannot be read. Try again")


def write_decisions(folder: Folder, decisions: Sequence[Decision]) -> None:
    """Add decisions: all of them, or none; on return they survive a loss of power."""
    if decisions:
        _write(folder, decisions)
        _join_small(folder)


def forget_decisions(folder: Folder, keep: Collection[str]) -> int:
    """Take all decisions about other keys out of the files; return how many keys that were.

    Nobody may add to the table meanwhile but by adding files.
    """
    names = decision_files(folder)
    history = [one for name in names for one in _read(folder, name)]
    gone = {one.key for one in history if one.key not in keep}
    if gone:
        rest = list(dict.fromkeys(one for one in history if one.key in keep))
        kept = [_write(folder, rest)] if rest else []
        _delete(folder, set(names) - set(kept))
    return len(gone)


def _join_small(folder: Folder) -> None:
    names = decision_files(folder)
    if len(names) <= MOST_FILES:
        return
    try:
        small = [name for name in names if folder.size_of(name) < SMALL_BYTES]
        history = dict.fromkeys(one for name in small for one in _read(folder, name))
    except StoreError:  # what was to be stored is stored; somebody else joins them now, or a reader says what is wrong
        return
    if len(small) > MOST_FILES:
        _delete(folder, set(small) - {_write(folder, list(history))})


def _delete(folder: Folder, names: Iterable[str]) -> None:
    for name in sorted(names):
        folder.delete(name)
    folder.flush(FOLDER)


def _write(folder: Folder, decisions: Sequence[Decision]) -> str:
    ordered = sorted(decisions, key=lambda one: one.order)
    rows = [one.model_dump() for one in ordered]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    name = f"{FOLDER}/part-{make_key(*(one.model_dump_json() for one in ordered))}.parquet"
    folder.write(name, encode_part(table, {"table": FOLDER, "rows": str(len(rows))}))
    return name


def _read(folder: Folder, name: str) -> Iterator[Decision]:
    try:
        table = read_part(Part(folder, name))
    except StoreError as error:
        why = error.__cause__ or error
        raise StoreError(
            f"{folder.path(name)}: what people decided cannot be read: {why}. Put it back from a copy; or "
            "delete it, and give `pairwright decide` their files again"
        ) from error
    for row in table.to_pylist():
        yield Decision.model_construct(**{**row, "at": row["at"].astimezone(UTC)})


def read_decision_file(path: Path) -> list[Decision]:
    """Return the decisions of a file; ``ConfigError`` names the lines that are none."""
    now = datetime.now(UTC)
    found: list[Decision] = []
    faults: list[str] = []
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(f"{path}: is larger than {MOST_BYTES >> 20} MB: that is no file of decisions")
        lines = path.read_bytes().removeprefix(BOM).split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_LINE:
            faults.append(f"line {number:,}: is longer than {MOST_LINE:,} bytes")
        elif line.strip():
            try:
                found.append(parse_decision(line, now=now))
            except ValueError as error:
                faults.append(f"line {number:,}: {error}")
    if faults:
        some = "; ".join(faults[:SHOWN]) + ("; ..." if faults[SHOWN:] else "")
        raise ConfigError(f"{path}: nothing is stored, since {len(faults):,} of its lines are no decisions: {some}")
    return found


def parse_decisions(body: bytes) -> list[Decision]:
    """Return the decisions of a JSON list; ``ValueError`` where it is none, or one of them is."""
    now = datetime.now(UTC)
    listed = from_json(body)
    if not isinstance(listed, list) or len(listed) > MOST_SENT:
        raise ValueError(f"a list of at most {MOST_SENT:,} decisions is wanted")
    found: list[Decision] = []
    for number, one in enumerate(listed, 1):
        try:
            found.append(parse_decision(to_json(one), now=now))
        except ValueError as error:
            raise ValueError(f"decision {number}: {error}") from error
    return found


@dataclass(frozen=True, kw_only=True)
class Sorted:
    """Decisions, apart by whether there is what they are about."""

    known: list[Decision] = field(default_factory=list[Decision])
    unknown: list[Decision] = field(default_factory=list[Decision])
    """Nothing in the version has their key."""
    wordless: list[Decision] = field(default_factory=list[Decision])
    """Edits about a pair: it has no texts of its own."""


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


def sort_by_keys(decisions: Sequence[Decision], preferences: Collection[str], pairs: Collection[str]) -> Sorted:
    """Return decisions apart, the keys of preferences and pairs that there are being known."""
    found = Sorted()
    for one in decisions:
        if one.key in preferences or (one.key in pairs and one.verdict != "edit"):
            found.known.append(one)
        else:
            (found.wordless if one.key in pairs else found.unknown).append(one)
    return found
