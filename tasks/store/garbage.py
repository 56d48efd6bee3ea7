"""Delete the files of a dataset that neither a kept version nor the current state names.

A kill at any moment leaves every kept version complete and nothing owed, and the next call does the
rest: versions are deleted first, then files.
"""

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow
from pairwright.tasks.store.build import Build, journals_of, table_folders
from pairwright.tasks.store.files import TEMPORARY, Folder
from pairwright.tasks.store.ledger import COLLECTION, Ledger
from pairwright.tasks.store.part import Part, read_columns
from pairwright.tasks.store.snapshot import FOLDER as VERSIONS
from pairwright.tasks.store.snapshot import snapshot_file, write_deleted
from pairwright.tasks.store.takedowns import NAMES


@dataclass
class Needed:
    """Files to keep, by their names below the dataset's folder."""

    files: set[str] = field(default_factory=set[str])
    names: set[str] = field(
        default_factory=set[str]
    )  # live keys and subjects, which other tables are about

    def add(self, build: Build) -> None:
        """Add the files that a settled build's outcomes come from."""
        self.files.update(build.items)
        for planned in build.planned:
            name = planned.stage.name
            parts = (*build.ledger.live_parts(name), *build.ledger.other_parts(name))
            self.files.update(f"{planned.table}/{part}" for part in parts)
            if planned.stage.writes in (ImageRow, PairRow, PreferenceRow):
                found = build.ledger.run(
                    f"SELECT key FROM live_{name} UNION SELECT subject FROM live_{name}"
                )
                self.names |= {key for (key,) in found}


@dataclass(frozen=True, kw_only=True)
class GarbagePlan:
    """Files and folders to delete."""

    versions: Sequence[int]
    files: Sequence[str]  # names below the dataset's folder
    folders: Sequence[Path]  # local folders of journals

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return len(self.versions) + len(self.files) + len(self.folders)


def holds_one(ledger: Ledger, table: str, keys: Sequence[str]) -> bool:
    """Return whether a live row of a settled stage is, or is about, one of these keys."""
    columns = " OR ".join(f"{name} IN (SELECT unnest(?))" for name in NAMES)
    return bool(
        ledger.run(
            f"SELECT key FROM live_{table} WHERE {columns} LIMIT 1", *[list(keys)] * len(NAMES)
        )
    )


def list_parts(folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield folder and name of every file of every table."""
    for table in table_folders(folder):
        yield from ((table, file) for file in folder.names(table))


def unneeded_parts(folder: Folder, needed: Collection[str]) -> Iterator[str]:
    """Yield the files of tables that are not needed."""
    for table, file in list_parts(folder):
        path = f"{table}/{file}"
        if TEMPORARY in file or (file.endswith(".parquet") and path not in needed):
            yield path


def needed_beside(
    folder: Folder, table: str, names: Collection[str], *, strictly: bool
) -> list[str]:
    """Return the needed parts of a table beside the dataset's: all of them, if any row is about an existing key.

    ``strictly``: the parts in which every row is, without those made from a whole table.
    """
    found: dict[str, list[bool]] = {}
    for file in folder.names(table, ".parquet"):
        keys, about = read_columns(Part(folder, f"{table}/{file}"), ["source_key", "subject"])
        pairs = zip(keys["source_key"].to_pylist(), keys["subject"].to_pylist(), strict=True)
        live = [one in names or other in names for one, other in pairs]
        found[f"{table}/{file}"] = [False] if strictly and COLLECTION in about else live
    if strictly:
        return [path for path, live in found.items() if all(live)]
    return list(found) if any(map(any, found.values())) else []


def carry_out(folder: Folder, plan: GarbagePlan) -> Iterator[int]:
    """Carry out a plan step by step; yield the bytes freed by each step.

    Deletions are flushed twice: after the versions, so that none can come back without its parts,
    and at the end.
    """
    if plan.versions:
        write_deleted(folder, plan.versions)
    for number in plan.versions:
        yield _delete(folder, snapshot_file(number))
    if plan.versions:
        folder.flush(VERSIONS)
    for path in plan.files:
        yield _delete(folder, path)
    for place in plan.folders:
        size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
        shutil.rmtree(place, ignore_errors=True)
        yield size
    _drop_empty(folder)
    for place in {path.rpartition("/")[0] for path in plan.files} | {"journals"}:
        folder.flush(place)


def _delete(folder: Folder, path: str) -> int:
    size = folder.size_of(path) if folder.exists(path) else 0
    folder.delete(path)
    return size


def other_folders(folder: Folder, tables: Iterable[str], *, everything: bool) -> Iterator[Path]:
    """Yield local journals of other tables than these; ``everything``: of these as well."""
    marks = {tuple(table.split("/")[1:3]) for table in tables}
    journals = journals_of(folder)
    for place in sorted(journals.iterdir()) if journals.is_dir() else ():
        name, _, mark = place.name.rpartition("-")
        if len(mark) == 16 and place.is_dir() and (everything or (name, mark) not in marks):
            yield place


def left_work(folder: Folder) -> Iterator[str]:
    """Yield the work files of dead processes; on an object store, of all processes, so no build may run there."""
    for name in folder.folders("work"):
        yield from files_below(folder, f"work/{name}")


def files_below(folder: Folder, name: str) -> Iterator[str]:
    """Yield every file below a folder, as a name below the dataset's folder."""
    yield from (f"{name}/{file}" for file in folder.names(name))
    for inner in folder.folders(name):
        yield from files_below(folder, f"{name}/{inner}")


def _drop_empty(folder: Folder) -> None:
    """Delete local folders that hold only a lock; the dataset is locked, so no process waits for it."""
    if not folder.is_local:
        return
    for top in ("tables", "excluded", "work", "journals"):
        for place in sorted(Path(folder.path(top)).glob("**/"), reverse=True):
            if not [inner for inner in place.iterdir() if inner.name != ".lock"]:
                (place / ".lock").unlink(missing_ok=True)
                place.rmdir()
