"""Take out of a dataset's folder what nothing needs any more.

That is parts that no kept version names and that are no part of the present state; and, once for each removal on
request, every row that no longer counts, since only such rows are made of a removed image.

What is needed is said in rows (``Needed``); a part keeps those, its name, and their places in it, so that versions,
trainings and whoever is reading find them where they were. A kill at any moment leaves every kept version whole and
nothing owed, and the next run does the rest: versions go first, then parts are written anew in place, then files go.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow
from pairwright.tasks.store.dataset import Build, journals_of
from pairwright.tasks.store.files import TEMPORARY, Folder
from pairwright.tasks.store.ledger import COLLECTION
from pairwright.tasks.store.part import Part, count_statuses, encode_part, read_about, read_columns, read_part
from pairwright.tasks.store.snapshot import FOLDER as VERSIONS
from pairwright.tasks.store.snapshot import snapshot_file
from pairwright.tasks.store.takedowns import NAMES, blank, bury, find_removed

Rows = NDArray[np.int32]
NOTHING: Rows = np.empty(0, dtype=np.int32)


@dataclass
class Needed:
    """Collect which rows of which parts are needed, by parts' names below the dataset's folder."""

    rows: dict[str, Rows] = field(default_factory=dict[str, Rows])
    read: set[str] = field(default_factory=set[str])
    """Folders of tables that are read from the source: only their rows name removed images themselves."""
    names: set[str] = field(default_factory=set[str])
    """Live keys, and what they are about: what tables beside the dataset's are made of."""
    files: set[str] = field(default_factory=set[str])
    """Parts that are needed as they are."""

    def add(self, build: Build) -> None:
        """Add what a settled build's outcomes come from."""
        self.files.update(build.items)
        for planned in build.planned:
            name = planned.stage.name
            if "items" in planned.stage.reads:
                self.read.add(planned.table)
            for part, rows in build.ledger.used(name):
                path = f"{planned.table}/{part}"
                self.rows[path] = np.union1d(self.rows.get(path, NOTHING), np.array(rows, dtype=np.int32))
            if planned.stage.writes in (ImageRow, PairRow, PreferenceRow):
                self.names |= build.ledger.names(name)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Say what goes, and what is written anew."""

    versions: Sequence[int]
    """Versions that go."""
    parts: Sequence[str]
    """Parts of which some rows go."""
    files: Sequence[str]
    """Files that go, by their names below the dataset's folder."""
    folders: Sequence[Path]
    """Local folders that go: journals, caches."""
    needed: Needed
    known: Mapping[str, str]
    """What was removed on request, each key with the mark of its image; empty: all rows of a part stay."""

    @property
    def steps(self) -> int:
        """Return how many steps it takes."""
        return len(self.versions) + len(self.parts) + len(self.files) + len(self.folders)


def list_parts(folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield every file of every table: the table's folder, and the file's name."""
    for name in folder.folders("tables"):
        for mark in folder.folders(f"tables/{name}"):
            table = f"tables/{name}/{mark}"
            yield from ((table, file) for file in folder.names(table))


def unneeded_parts(folder: Folder, needed: Needed, beside: Iterable[str]) -> Iterator[str]:
    """Yield the files of tables that nothing needs; those in ``beside`` are not looked at."""
    wanted, spared = needed.files | needed.rows.keys(), set(beside)
    for table, file in list_parts(folder):
        path = f"{table}/{file}"
        if table not in spared and (TEMPORARY in file or (file.endswith(".parquet") and path not in wanted)):
            yield path


def judge_beside(folder: Folder, table: str, needed: Needed, *, strictly: bool) -> bool:
    """Say whether a table beside the dataset's is worth keeping: it is about rows that there still are.

    ``strictly``, its parts are entered with the rows to keep; one that was made of a whole table, removed rows and all,
    is not kept.
    """
    found: dict[str, Rows] = {}
    for file in (file for file in folder.names(table) if file.endswith(".parquet")):
        keys, about = read_columns(Part(folder, f"{table}/{file}"), ["source_key", "subject"])
        if strictly and COLLECTION in about:
            return False
        pairs = zip(keys["source_key"].to_pylist(), keys["subject"].to_pylist(), strict=True)
        places = [place for place, names in enumerate(pairs) if needed.names.intersection(names)]
        found[f"{table}/{file}"] = np.array(places, dtype=np.int32)
    if strictly:
        needed.rows |= {path: rows for path, rows in found.items() if len(rows)}
    return any(map(len, found.values()))


def mixed_parts(folder: Folder, needed: Needed, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the parts that are needed and hold other rows, or rows about removed images."""
    for path, rows in sorted(needed.rows.items()):
        stale, graves = _look(Part(folder, path), rows, known if path.rpartition("/")[0] in needed.read else {})
        if stale or graves:
            yield path


def _look(part: Part, rows: Rows, known: Mapping[str, str]) -> tuple[list[int], dict[int, str]]:
    """Return the places of a part's rows that nothing needs, and those that become tombstones."""
    table, _ = read_columns(part, [*NAMES, "status"])
    needed = set(rows.tolist())
    stale = [place for place, key in enumerate(table["key"].to_pylist()) if key and place not in needed]
    graves = {place: mark for place, mark in find_removed(table, known).items() if place in needed}
    return stale, graves


def carry_out(folder: Folder, plan: Plan) -> Iterator[int]:
    """Do what a plan says, one step after the other; yield how many bytes each has freed.

    What is deleted is flushed twice: no version may come back without its parts, and at the end nothing at all.
    """
    for number in plan.versions:
        yield _delete(folder, snapshot_file(number))
    if plan.versions:
        folder.flush(VERSIONS)
    for path in plan.parts:
        yield _rewrite(Part(folder, path), plan)
    for path in plan.files:
        yield _delete(folder, path)
    for place in plan.folders:
        size = size_of(place)
        shutil.rmtree(place, ignore_errors=True)
        yield size
    _drop_empty(folder)
    for place in {path.rpartition("/")[0] for path in plan.files} | {"journals", "cache"}:
        folder.flush(place)


def _delete(folder: Folder, path: str) -> int:
    size = folder.size_of(path) if folder.exists(path) else 0
    folder.delete(path)
    return size


def _rewrite(part: Part, plan: Plan) -> int:
    """Write a part anew without the rows that go; the others keep their places."""
    known = plan.known if part.name.rpartition("/")[0] in plan.needed.read else {}
    stale, graves = _look(part, plan.needed.rows[part.name], known)
    size, about = part.folder.size_of(part.name), read_about(part)
    table = read_part(part).replace_schema_metadata(None)
    table = blank(bury(table, graves), stale).combine_chunks()
    counts = {"ok": 0, "dropped": 0, "failed": 0, **count_statuses(table)}
    about |= {name: str(count) for name, count in counts.items()}
    part.folder.write(part.name, encode_part(table, about))
    return size - part.folder.size_of(part.name)


def size_of(place: Path) -> int:
    """Return the bytes of all files in a local folder."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def other_folders(folder: Folder, tables: Iterable[str], *, everything: bool) -> Iterator[Path]:
    """Yield local folders of journals and caches of tables that are not among these; ``everything``: of those, too."""
    marks = {tuple(table.split("/")[1:3]) for table in tables}
    journals = journals_of(folder)
    for place in sorted(journals.iterdir()) if journals.is_dir() else ():
        name, _, mark = place.name.rpartition("-")
        if len(mark) == 16 and place.is_dir() and (everything or (name, mark) not in marks):
            yield place
    cache = Path(folder.path("cache"))
    for place in sorted(cache.iterdir()) if folder.is_local and cache.is_dir() else ():
        if place.is_dir() and (everything or place.name not in {mark for _, mark in marks}):
            yield place


def left_work(folder: Folder) -> Iterator[str]:
    """Yield the work files of processes that are dead; on an object store of all: nobody may be at work there."""
    for name in folder.folders("work"):
        yield from files_below(folder, f"work/{name}")


def files_below(folder: Folder, name: str) -> Iterator[str]:
    """Yield every file below a folder, by its name below the dataset's."""
    yield from (f"{name}/{file}" for file in folder.names(name))
    for inner in folder.folders(name):
        yield from files_below(folder, f"{name}/{inner}")


def _drop_empty(folder: Folder) -> None:
    """Delete local folders in which nothing is left but a lock: the dataset is held, so nobody waits for it."""
    if not folder.is_local:
        return
    for top in ("tables", "excluded", "work", "cache", "journals"):
        for place in sorted(Path(folder.path(top)).glob("**/"), reverse=True):
            if not [inner for inner in place.iterdir() if inner.name != ".lock"]:
                (place / ".lock").unlink(missing_ok=True)
                place.rmdir()
