"""Images that were removed on request, and rows without what was made of them.

DIR/takedowns/000001.json    when, which images, why; or that they were taken back. Files are added, none is changed.

A removed image is no live image any more, so everything made of it is stale by the ledger's one rule, and no stage
runs again for it beyond what is owed by that. In a part, a removed row of an item that is still listed becomes a
*tombstone*: a dropped row that finishes the item and names nothing but hashes, by which it is owed again when the image
is taken back. Every other row that is taken out becomes a blank one, so that no other row changes its place in the
part.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.files import Folder

pc: Any = pyarrow.compute
FOLDER = "takedowns"
SWEPT = f"{FOLDER}/swept.json"
"""Names the last entry of which nothing is left in the tables."""
REMOVED = "removed on request"
BACK = "removed, and taken back"
"""Why an item is owed that a tombstone had finished."""
NAMES = ("key", "subject", "first", "second")
"""Columns by which a row that was read from the source says which images it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takedown:
    """Be one entry of the list."""

    number: int
    when: str
    keys: tuple[str, ...]
    """Of images."""
    reason: str
    undo: bool = False
    """Whether the images are taken back."""
    copies: tuple[str, ...] = ()
    """Files beside the tables that held something of the images when they were removed."""


def read_takedowns(folder: Folder, last: int | None = None) -> list[Takedown]:
    """Return the list in its order, up to an entry's number; ``None``: all.

    Raises:
        StoreError: an entry is damaged. What was removed must not come back by that, so nothing goes on without it.
    """
    names = [name for name in folder.names(FOLDER) if name.endswith(".json") and name[:-5].isdecimal()]
    wanted = [name for name in names if last is None or int(name[:-5]) <= last]
    return [_read(folder, f"{FOLDER}/{name}") for name in sorted(wanted, key=lambda name: int(name[:-5]))]


def _read(folder: Folder, name: str) -> Takedown:
    try:
        return TypeAdapter(Takedown).validate_json(folder.read(name))
    except ValidationError as error:
        raise StoreError(
            f"{folder.path(name)}: is damaged: {error}. Write it anew: it says what was removed"
        ) from error


def write_takedown(
    folder: Folder, keys: Sequence[str], *, reason: str, undo: bool = False, copies: Sequence[str] = ()
) -> Takedown:
    """Add an entry to the list; it counts from the next build on."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    while True:
        before = read_takedowns(folder)
        entry = Takedown(
            number=before[-1].number + 1 if before else 1,
            when=when,
            keys=tuple(keys),
            reason=reason,
            undo=undo,
            copies=tuple(copies),
        )
        if folder.create(f"{FOLDER}/{entry.number:06d}.json", json.dumps(asdict(entry), indent=1).encode()):
            return entry


def read_swept(folder: Folder) -> int:
    """Return the number of the last entry of which nothing is left in the tables."""
    return int(json.loads(folder.read(SWEPT))["swept"]) if folder.exists(SWEPT) else 0


def write_swept(folder: Folder, number: int) -> None:
    """Remember that nothing is left in the tables of what was removed up to an entry."""
    folder.write(SWEPT, json.dumps({"swept": number}).encode())


def last_unswept(folder: Folder, entries: Sequence[Takedown]) -> int:
    """Return the number of the last entry of which something may be left in the tables; 0: there is none."""
    swept, removed = read_swept(folder), removed_by(entries)
    open_ones = [
        one.number for one in entries if one.number > swept and not one.undo and removed.intersection(one.keys)
    ]
    return open_ones[-1] if open_ones else 0


def removed_by(entries: Iterable[Takedown]) -> frozenset[str]:
    """Return the images that are removed after these entries."""
    found: set[str] = set()
    for entry in entries:
        found = found - set(entry.keys) if entry.undo else found | set(entry.keys)
    return frozenset(found)


@lru_cache(maxsize=4)
def removed_images(folder: Folder, last: int) -> dict[str, str]:
    """Return the images that are removed after the list's entry ``last``, each with its mark; once per process."""
    return marked(removed_by(read_takedowns(folder, last)))


def marked(keys: Iterable[str]) -> dict[str, str]:
    """Return keys, each with its mark."""
    return {key: mark_of(key) for key in keys}


def mark_of(key: str) -> str:
    """Return what a tombstone says in place of a key."""
    return hashlib.md5(f"removed {key}".encode(), usedforsecurity=False).hexdigest()


@dataclass
class Removed:
    """Know, while tables are read in the order of the stages, which of their rows are about removed images."""

    last: int = 0
    """Number of the list's last entry that counts; 0: nothing was ever removed."""
    known: dict[str, str] = field(default_factory=dict[str, str])
    """Keys that are gone, each with the mark of the image by which: images, then brought pairs of them."""
    told: dict[str, str] = field(default_factory=dict[str, str])
    """The same of those that only tombstones tell, by their own marks."""

    def read(self, keys: pa.Table) -> pa.Table:
        """Return the key columns of rows that were read from the source, as they count.

        A row about a removed image is a dropped one; what a tombstone had finished whose image was taken back has
        failed, so that it is owed.
        """
        if not self.last:
            return keys
        hits = find_removed(keys, self.known, self.told)
        self.known |= {keys["key"][place].as_py(): mark for place, mark in hits.items()}
        back = set(self._taken_back(keys.filter(_among(keys["reason"], [REMOVED]))))
        keys = _put(keys, np.array(list(hits), dtype=np.int64), status="dropped", reason=REMOVED)
        # All that the item gave: it is read again as a whole.
        return _put(keys, _among(keys["source_key"], back).nonzero()[0], status="failed", reason=BACK)

    def _taken_back(self, stones: pa.Table) -> Iterator[str]:
        """Yield the items whose tombstones no longer hold; learn from the others."""
        images = set(self.known.values())
        for stone in stones.select(["key", "source_key", "subject"]).to_pylist():
            if stone["key"] not in images:
                yield stone["source_key"]
            elif stone["subject"] != stone["key"]:
                self.told[stone["subject"]] = stone["key"]


def _among(column: pa.ChunkedArray, values: Iterable[str]) -> NDArray[np.bool_]:
    """Return which cells are one of the values."""
    return pc.is_in(column, value_set=pa.array(list(values), pa.string())).to_numpy()


def _put(table: pa.Table, places: NDArray[np.int64], **values: str) -> pa.Table:
    """Return the table with other values in some rows of some columns."""
    for name, value in values.items() if len(places) else ():
        cells: list[str | None] = table[name].to_pylist()
        for place in places.tolist():
            cells[place] = value
        column = table.schema.get_field_index(name)
        table = table.set_column(column, table.schema.field(name), pa.array(cells, table.schema.field(name).type))
    return table


def find_removed(table: pa.Table, known: Mapping[str, str], told: Mapping[str, str] | None = None) -> dict[int, str]:
    """Return the places of the ok rows that are about removed images, each with the image's mark."""
    found: dict[int, str] = {}
    lives = _among(table["status"], ["ok"])
    for name in (name for name in NAMES if name in table.column_names):
        for place in (lives & _among(table[name], known)).nonzero()[0].tolist():
            found.setdefault(place, known[table[name][place].as_py()])
    if told:
        subjects, statuses = table["subject"].to_pylist(), table["status"].to_pylist()
        for place, (subject, status) in enumerate(zip(subjects, statuses, strict=True)):
            if status == "ok" and (mark := mark_of(subject)) in told:
                found.setdefault(place, told[mark])
    return found


def bury(table: pa.Table, graves: Mapping[int, str]) -> pa.Table:
    """Return a table with tombstones at these places, each with the mark of the image by whose removal."""
    stones = [
        {
            "key": mark,
            "source_key": table["source_key"][place].as_py(),
            "subject": mark_of(table["subject"][place].as_py()),
            "status": "dropped",
            "reason": REMOVED,
            "detail": "",
        }
        for place, mark in graves.items()
    ]
    return _replaced(table, list(graves), stones)


def blank(table: pa.Table, places: Sequence[int]) -> pa.Table:
    """Return a table with nothing in some of its rows."""
    nothing = {**dict.fromkeys(("key", "source_key", "subject", "reason", "detail"), ""), "status": "dropped"}
    return _replaced(table, places, [nothing] * len(places))


def _replaced(table: pa.Table, places: Sequence[int], rows: Sequence[Mapping[str, str]]) -> pa.Table:
    if not places:
        return table
    order = list(range(len(table)))
    for number, place in enumerate(places):
        order[place] = len(table) + number
    return pa.concat_tables([table, pa.Table.from_pylist(list(rows), schema=table.schema)]).take(pa.array(order))
