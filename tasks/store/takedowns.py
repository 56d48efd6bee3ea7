"""Images that were removed on request: a list that every build reads.

DIR/takedowns/000001.json    time, images, reason. Files are added, never changed.

The next build leaves out every part that holds anything of a removed image and makes its other rows
again, so that its version names none of these parts; ``gc`` then deletes them. An item of the
source that gave a removed image is finished by a *tombstone*: a dropped row that holds only marks
(hashes of keys).
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pydantic import TypeAdapter

from pairwright.tasks.store.files import Folder, numbered_files, read_sealed, seal

FOLDER = "takedowns"
SWEPT = f"{FOLDER}/swept.json"  # number of the last entry whose images are gone from all tables
MEND = (
    "It lists removed images: restore it from a copy, or delete it and remove them again "
    "(`pairwright remove`)"
)
MEND_SWEPT = "Delete it: the next `pairwright gc` writes it again"
REMOVED = "removed on request"
# columns in which a row of the source names its images
NAMES = ("key", "subject", "first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Takedown:
    """Entry of the list."""

    number: int
    when: str
    keys: tuple[str, ...]  # keys of images
    reason: str


def read_takedowns(folder: Folder) -> list[Takedown]:
    """Return the list in order; a damaged entry is an error: a removed image could come back."""
    entries = (
        read_sealed(folder, name, mend=MEND) for name in numbered_files(folder, FOLDER).values()
    )
    return [TypeAdapter(Takedown).validate_python(content) for content in entries]


def write_takedown(folder: Folder, keys: Sequence[str], *, reason: str) -> Takedown:
    """Add an entry to the list; it takes effect with the next build."""
    when = datetime.now(UTC).isoformat(timespec="seconds")
    while True:
        before = read_takedowns(folder)
        number = before[-1].number + 1 if before else 1
        entry = Takedown(number=number, when=when, keys=tuple(keys), reason=reason)
        if folder.create(f"{FOLDER}/{number:06d}.json", seal(asdict(entry))):
            return entry


def write_swept(folder: Folder, number: int) -> None:
    """Record that no table holds an image of the entries up to this one."""
    folder.write(SWEPT, seal({"swept": number}))


def last_unswept(folder: Folder, entries: Sequence[Takedown]) -> int:
    """Return the number of the last entry whose images may still be in the tables; 0: none."""
    if not entries:
        return 0
    last = entries[-1].number
    swept = 0
    if folder.exists(SWEPT):
        swept = int(read_sealed(folder, SWEPT, mend=MEND_SWEPT)["swept"])
    return last if last > swept else 0


def removed_by(entries: Iterable[Takedown]) -> frozenset[str]:
    """Return the images that these entries remove."""
    return frozenset(key for entry in entries for key in entry.keys)


def mark_of(key: str) -> str:
    """Return the mark of a key in a tombstone; the ledger's queries compute the same."""
    return hashlib.md5(f"removed {key}".encode(), usedforsecurity=False).hexdigest()


def bury(table: pa.Table, marks: Collection[str]) -> pa.Table:
    """Return a table with tombstones in place of the ok rows about marked images."""
    columns = [name for name in (*NAMES, "source_key", "status") if name in table.column_names]
    order = list(range(len(table)))
    tombstones: list[dict[str, str]] = []
    for row_index, row in enumerate(table.select(columns).to_pylist()):
        if row["status"] != "ok":
            continue
        row_marks = [mark_of(row[name]) for name in NAMES if row.get(name)]
        removed = [mark for mark in row_marks if mark in marks]
        if not removed:
            continue
        order[row_index] = len(table) + len(tombstones)
        tombstone = {
            "key": row_marks[0],
            "source_key": row["source_key"],
            "subject": removed[-1],  # a pair's image, not the pair
            "status": "dropped",
            "reason": REMOVED,
            "detail": "",
        }
        tombstones.append(tombstone)
    if not tombstones:
        return table
    extra = pa.Table.from_pylist(tombstones, schema=table.schema)
    return pa.concat_tables([table, extra]).take(pa.array(order))
