"""Find what is missing or changed of a dataset: files carry digests of themselves, and versions name their parts."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import evaluations, gates, takedowns
from pairwright.tasks.store.dataset import MEND_RECORD, RECORD
from pairwright.tasks.store.decisions import FOLDER as DECISIONS
from pairwright.tasks.store.files import Folder, numbered
from pairwright.tasks.store.part import Part, read_part
from pairwright.tasks.store.sealed import read_sealed
from pairwright.tasks.store.snapshot import (
    DELETED,
    MEND_DELETED,
    MEND_SNAPSHOT,
    deleted_versions,
    part_files,
    read_snapshot,
    snapshot_file,
    snapshot_numbers,
)


def find_faults(folder: Folder, tables: Iterable[str], parts: Iterable[str] = ()) -> Iterator[str]:
    """Yield a message for each file that is missing or has another byte than was written; reads them all.

    Looked at are what versions name, all parts that are in ``tables``, and ``parts``, which must be there.
    """
    versions = snapshot_numbers(folder)
    beside = (DECISIONS, *(f"{evaluations.FOLDER}/{run}" for run in folder.folders(evaluations.FOLDER)))
    wanted = {*parts} | {f"{table}/{name}" for table in (*tables, *beside) for name in folder.names(table, ".parquet")}
    for name, mend in _records(folder, versions):
        yield from _look(folder, name, mend)
    for number in versions:
        with suppress(StoreError):  # told above
            wanted.update(part_files(read_snapshot(folder, number)))
    for name in sorted(wanted):
        try:
            read_part(Part(folder, name))
        except StoreError as error:
            yield str(error)


def _records(folder: Folder, versions: list[int]) -> Iterator[tuple[str, str]]:
    """Yield the JSON files that there must be, and how to mend each."""
    yield RECORD, MEND_RECORD
    published = versions[-1] if versions else 0
    if versions or folder.exists(gates.FILE):
        yield gates.FILE, gates.MEND
        with suppress(StoreError):
            verdict = gates.read_verdict(folder)
            published = max(published, verdict.version if verdict else 0)
    deleted: list[int] = []
    if folder.exists(DELETED):
        yield DELETED, MEND_DELETED
        with suppress(StoreError):
            deleted = deleted_versions(folder)
    for number in range(1, published + 1):
        if number in versions or number not in deleted:
            yield snapshot_file(number), MEND_SNAPSHOT
    for name in numbered(folder, takedowns.FOLDER).values():
        yield name, takedowns.MEND


def _look(folder: Folder, name: str, mend: str) -> Iterator[str]:
    try:
        if not folder.exists(name):
            raise StoreError(f"{folder.path(name)}: is missing. {mend}")
        read_sealed(folder, name, mend=mend, strictly=True)
    except StoreError as error:
        yield str(error)
