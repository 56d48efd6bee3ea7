"""Images that were removed on request: a list by which every reader filters, from then on.

DIR/takedowns/000001.json    time, images, reason. Files are added, never changed.

No table of any version holds a row about a removed image for a reader; all other rows stay as they
are, and nothing is made again. ``gc`` writes *tombstones* over the rows in the files: dropped rows
with nothing but keys, which are hashes.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pydantic import TypeAdapter

from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import ABOUT_COLUMNS
from pairwright.tasks.store.files import Folder, numbered_files, read_sealed, seal

FOLDER = "takedowns"
SWEPT = f"{FOLDER}/swept.json"  # number of the last entry whose images are in no file any more
MEND = (
    "It lists removed images: restore it from a copy, or delete it and remove them again "
    "(`pairwright remove`)"
)
MEND_MISSING = (
    "It lists removed images, which would come back: restore it from a copy, or delete the later "
    "entries and remove their images again (`pairwright remove`)"
)
MEND_SWEPT = "Delete it: the next `pairwright gc` writes it again"
REMOVED = "removed on request"
REFUSED = "removed on request, after it was refused"
"""Reasons of tombstones, of ok rows and of dropped or failed ones."""
# columns that a tombstone keeps: hashes, by which later rows know what they depend on
KEYS = ("key", "source_key", "anchor", "facts", *ABOUT_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Takedown:
    """Entry of the list."""

    number: int
    when: str
    keys: tuple[str, ...]  # keys of images
    reason: str


def read_takedowns(folder: Folder) -> list[Takedown]:
    """Return the list in order; a damaged entry is an error: a removed image could come back."""
    files = numbered_files(folder, FOLDER)
    known = read_swept(folder) if files else 0
    for number in range(1, max([known, *files]) + 1):
        if number not in files:
            raise StoreError(f"{folder.path(FOLDER)}/{number:06d}.json: is missing. {MEND_MISSING}")
    entries = (read_sealed(folder, name, mend=MEND) for name in files.values())
    return [TypeAdapter(Takedown).validate_python(content) for content in entries]


def write_takedown(folder: Folder, keys: Sequence[str], *, reason: str) -> Takedown:
    """Add an entry to the list; it takes effect at once."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    while True:
        before = read_takedowns(folder)
        number = before[-1].number + 1 if before else 1
        entry = Takedown(number=number, when=when, keys=tuple(keys), reason=reason)
        if folder.create(f"{FOLDER}/{number:06d}.json", seal(asdict(entry))):
            return entry


def write_swept(folder: Folder, number: int) -> None:
    """Record that no file holds an image of the entries up to this one."""
    folder.write(SWEPT, seal({"swept": number}))


def last_unswept(folder: Folder, entries: Sequence[Takedown]) -> int:
    """Return the number of the last entry whose images may still be in files; 0: none."""
    if not entries:
        return 0
    last = entries[-1].number
    return last if last > read_swept(folder) else 0


def read_swept(folder: Folder) -> int:
    """Return the number of the last entry whose images are in no file any more; 0: none."""
    if not folder.exists(SWEPT):
        return 0
    return int(read_sealed(folder, SWEPT, mend=MEND_SWEPT)["swept"])


def removed_by(entries: Iterable[Takedown]) -> frozenset[str]:
    """Return the images that these entries remove."""
    return frozenset(key for entry in entries for key in entry.keys)


def last_takedown(folder: Folder) -> int:
    """Return the number of the last entry; 0: nothing was ever removed."""
    return max(numbered_files(folder, FOLDER), default=0)


def bury_rows(table: pa.Table, removed: Collection[str]) -> pa.Table:
    """Return a table with tombstones in place of the ok rows about removed keys."""
    names = [name for name in ("key", *ABOUT_COLUMNS) if name in table.column_names]
    positions: list[int] = []
    for position, row in enumerate(table.select([*names, "status"]).to_pylist()):
        if row["status"] == "ok" and any(row[name] in removed for name in names):
            positions.append(position)
    return bury_places(table, positions)


def bury_places(table: pa.Table, positions: Collection[int]) -> pa.Table:
    """Return a table with tombstones in place of some rows; all other rows stay as they are."""
    if not positions:
        return table
    columns = [name for name in (*KEYS, "status") if name in table.column_names]
    order = list(range(len(table)))
    tombstones: list[dict[str, str]] = []
    rows = table.select(columns).take(pa.array(sorted(positions))).to_pylist()
    for position, row in zip(sorted(positions), rows, strict=True):
        order[position] = len(table) + len(tombstones)
        reason = REMOVED if row["status"] == "ok" else REFUSED
        tombstones.append({**row, "status": "dropped", "reason": reason, "detail": ""})
    extra = pa.Table.from_pylist(tombstones, schema=table.schema)
    return pa.concat_tables([table, extra]).take(pa.array(order))
