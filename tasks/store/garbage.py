"""Delete the files of a dataset that neither a kept version nor the current state names.

Mark and sweep: callers mark the live files (``LiveFiles``); all other files of the tables are dead.
A kill at any moment leaves every kept version complete and no row unfinished, and the next call
does the rest: versions are deleted first, then files.
"""

import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pairwright.schemas.rows import ImageRow, PairRow, PreferenceRow
from pairwright.tasks.store.files import TEMPORARY, Folder
from pairwright.tasks.store.ledger import COLLECTION
from pairwright.tasks.store.open_tables import Build, journals_of, table_folders
from pairwright.tasks.store.part import (
    Part,
    describe_part,
    encode_part,
    read_about,
    read_part,
    read_part_columns,
)
from pairwright.tasks.store.scratch import is_scratch
from pairwright.tasks.store.snapshot import FOLDER as VERSIONS
from pairwright.tasks.store.snapshot import snapshot_file, write_deleted
from pairwright.tasks.store.takedowns import bury_places

EMPTIED = ("tables", "excluded", "work", "journals")
"""Folders below which empty folders are deleted."""
JOURNALS = (".journal", ".answers")
MARK_LENGTH = 16  # digits of a fingerprint
WITHOUT = re.compile(r"-[0-9]{6}$")
"""End of the name of a part from which removed images were erased: the number of the removal."""


@dataclass
class LiveFiles:
    """Files to keep, by their names below the dataset's folder."""

    files: set[str] = field(default_factory=set[str])
    # live keys and subjects, which extra tables are about
    keys: set[str] = field(default_factory=set[str])

    def mark_build(self, build: Build) -> None:
        """Mark the files that a resolved build's outcomes come from."""
        self.files.update(build.items)
        for planned in build.planned:
            name = planned.stage.name
            parts = (*build.ledger.live_parts(name), *build.ledger.other_parts(name))
            self.files.update(f"{planned.table_path}/{part}" for part in parts)
            if planned.stage.writes in (ImageRow, PairRow, PreferenceRow):
                rows = build.ledger.run_query(
                    f"SELECT key FROM live_{name} UNION SELECT subject FROM live_{name}"
                )
                self.keys |= {key for (key,) in rows}


@dataclass(frozen=True, kw_only=True)
class GarbagePlan:
    """Files and folders to delete."""

    versions: Sequence[int]
    files: Sequence[str]  # names below the dataset's folder
    folders: Sequence[Path]  # local folders of journals

    @property
    def step_count(self) -> int:
        """Return the number of steps."""
        return len(self.versions) + len(self.files) + len(self.folders)


def find_removed(build: Build) -> dict[str, set[int]]:
    """Return the rows about removed images in the parts of a resolved build."""
    places: dict[str, set[int]] = {}
    for planned in build.planned:
        for name, rows in build.ledger.removed_places(planned.stage.name).items():
            places[f"{planned.table_path}/{name}"] = set(rows)
    return places


def erase_rows(folder: Folder, path: str, rows: Collection[int], *, takedown: int) -> str:
    """Write a part without the content of some rows beside it; return its name.

    The name follows the old one in order, so that the table keeps its order.
    """
    part = Part(folder, path)
    table = bury_places(read_part(part), rows)
    old = read_about(part)
    parent, _, file = path.rpartition("/")
    stem = WITHOUT.sub("", file.removesuffix(".parquet"))
    name = f"{parent}/{stem}-{takedown:06d}.parquet"
    about = describe_part(name, table, version=int(old["version"]))
    folder.write(name, encode_part(table, {**old, **about}))
    return name


def list_parts(folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield folder and name of every file of every table."""
    for table in table_folders(folder):
        for file in folder.names(table):
            yield table, file


def dead_parts(folder: Folder, live: Collection[str]) -> Iterator[str]:
    """Yield the parts of tables that are not live, and half-written files."""
    for table, file in list_parts(folder):
        path = f"{table}/{file}"
        if TEMPORARY in file or (file.endswith(".parquet") and path not in live):
            yield path


def live_extra_parts(
    folder: Folder, table: str, keys: Collection[str], *, strictly: bool
) -> list[str]:
    """Return the live parts of an extra table: all of them, if any row is about an existing key.

    ``strictly``: the parts in which every row is, without those made from a whole table.
    """
    live: list[str] = []
    has_any = False
    paths = [f"{table}/{file}" for file in folder.names(table, ".parquet")]
    for path in paths:
        columns, about = read_part_columns(Part(folder, path), ["source_key", "subject"])
        source_keys = columns["source_key"].to_pylist()
        subjects = columns["subject"].to_pylist()
        are_live = [
            source_key in keys or subject in keys
            for source_key, subject in zip(source_keys, subjects, strict=True)
        ]
        has_any = has_any or any(are_live)
        if all(are_live) and COLLECTION not in about:
            live.append(path)
    if strictly:
        return live
    return paths if has_any else []


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
    for journals in plan.folders:
        size = sum(path.stat().st_size for path in journals.rglob("*") if path.is_file())
        shutil.rmtree(journals, ignore_errors=True)
        yield size
    _drop_empty(folder)
    for parent in {path.rpartition("/")[0] for path in plan.files} | {"journals"}:
        folder.flush(parent)


def _delete(folder: Folder, path: str) -> int:
    size = folder.size_of(path) if folder.exists(path) else 0
    folder.delete(path)
    return size


def dead_journals(folder: Folder, tables: Iterable[str], *, everything: bool) -> Iterator[Path]:
    """Yield local journals of other tables than these; ``everything``: of these as well."""
    live = {tuple(table.split("/")[1:3]) for table in tables}
    journals = journals_of(folder)
    if not journals.is_dir():
        return
    for path in sorted(journals.iterdir()):
        name, _, mark = path.name.rpartition("-")
        if len(mark) != MARK_LENGTH or not path.is_dir() or not _holds_journals(path):
            continue
        if everything or (name, mark) not in live:
            yield path


def _holds_journals(path: Path) -> bool:
    """Return whether a folder holds nothing but journals."""
    return all(inner.suffix in JOURNALS for inner in path.iterdir())


def left_work(folder: Folder) -> Iterator[str]:
    """Yield the work files of dead processes.

    On an object store, of all processes, so no build may run there.
    """
    for name in filter(is_scratch, folder.folders("work")):
        yield from files_below(folder, f"work/{name}")


def files_below(folder: Folder, name: str) -> Iterator[str]:
    """Yield every file below a folder, as a name below the dataset's folder."""
    for file in folder.names(name):
        yield f"{name}/{file}"
    for inner in folder.folders(name):
        yield from files_below(folder, f"{name}/{inner}")


def _drop_empty(folder: Folder) -> None:
    """Delete local folders that hold only a lock.

    The dataset is locked, so no process waits for it.
    """
    if not folder.is_local:
        return
    for top in EMPTIED:
        for path in sorted(Path(folder.path(top)).glob("**/"), reverse=True):
            if all(inner.name == ".lock" for inner in path.iterdir()):
                (path / ".lock").unlink(missing_ok=True)
                path.rmdir()
