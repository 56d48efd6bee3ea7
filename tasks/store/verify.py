"""Find missing or changed files of a dataset: files have digests of themselves, and versions name their parts."""

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
    """Yield a message for each file that is missing or changed; reads all of them.

    These are the files that versions name, all parts in ``tables``, and ``parts``, which must exist.
    """
    versions = snapshot_numbers(folder)
    beside = (DECISIONS, *(f"{evaluations.FOLDER}/{run}" for run in folder.folders(evaluations.FOLDER)))
    wanted = {*parts} | {f"{table}/{name}" for table in (*tables, *beside) for name in folder.names(table, ".parquet")}
    told = [fault for name, mend in _records(folder, versions) for fault in _look(folder, name, mend)]
    for number in versions:
        try:
            wanted.update(part_files(read_snapshot(folder, number)))
        except StoreError as error:
            told += [str(error)] if str(error) not in told else []
    yield from told
    for name in sorted(wanted):
        try:
            read_part(Part(folder, name))
        except StoreError as error:
            yield str(error)


def _records(folder: Folder, versions: list[int]) -> Iterator[tuple[str, str]]:
    """Yield the required JSON files, each with its remedy."""
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
