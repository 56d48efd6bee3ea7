"""Find missing or changed files of a dataset.

Each file has a digest of itself, and versions name their parts.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import evaluations, gates, snapshot, takedowns
from pairwright.tasks.store.decision_table import FOLDER as DECISIONS
from pairwright.tasks.store.decision_table import MEND_FILTER, MEND_STATE, missing_decisions
from pairwright.tasks.store.files import Folder, numbered_files, read_sealed
from pairwright.tasks.store.open_tables import MEND_RECORD, RECORD
from pairwright.tasks.store.part import Part, read_part


def find_faults(folder: Folder, tables: Iterable[str], parts: Iterable[str] = ()) -> Iterator[str]:
    """Yield a message for each file that is missing or changed; reads all of them.

    These are the files that versions name, all parts in ``tables``, and ``parts``, which must
    exist.
    """
    names = {*parts, *_parquet_files(folder, tables)}
    numbers = snapshot.snapshot_numbers(folder)
    for name, mend in _records(folder, has_versions=bool(numbers)).items():
        yield from _fault(partial(read_sealed, folder, name, mend=mend))
    last = max(numbers, default=0)
    with suppress(StoreError):  # reported above, as a damaged record
        verdict = gates.read_verdict(folder)
        if verdict:
            last = max(last, verdict.version)
    deleted: list[int] = []
    with suppress(StoreError):
        deleted = snapshot.deleted_versions(folder)
    for number in range(1, last + 1):
        if number in numbers or number not in deleted:
            yield from _fault(partial(_add_parts, names, folder, number))
    known = 0
    last_takedown = 0
    with suppress(StoreError):  # reported above
        newest = snapshot.latest_snapshot(folder)
        if newest:
            known = newest.content.get("decisions", 0)
            last_takedown = newest.takedowns
    listed = numbered_files(folder, takedowns.FOLDER)
    for number in range(1, max([last_takedown, *listed]) + 1):
        if number not in listed:
            file = folder.path(f"{takedowns.FOLDER}/{number:06d}.json")
            yield f"{file}: is missing. {takedowns.MEND_MISSING}"
    try:
        yield from missing_decisions(folder, known)
    except StoreError as error:
        yield str(error)
    for name in sorted(names):
        yield from _fault(partial(read_part, Part(folder, name)))


def _parquet_files(folder: Folder, tables: Iterable[str]) -> Iterator[str]:
    """Yield the Parquet files in the folders of tables, decisions and evaluations."""
    runs = [f"{evaluations.FOLDER}/{run}" for run in folder.folders(evaluations.FOLDER)]
    for path in (*tables, DECISIONS, *runs):
        for name in folder.names(path, ".parquet"):
            yield f"{path}/{name}"


def _records(folder: Folder, *, has_versions: bool) -> dict[str, str]:
    """Return the JSON files that must be there, each with its remedy."""
    records = {RECORD: MEND_RECORD}
    if has_versions or folder.exists(gates.FILE):
        records[gates.FILE] = gates.MEND
    if folder.exists(snapshot.DELETED):
        records[snapshot.DELETED] = snapshot.MEND_DELETED
    for name in numbered_files(folder, takedowns.FOLDER).values():
        records[name] = takedowns.MEND
    for name in folder.names(DECISIONS, ".json"):
        records[f"{DECISIONS}/{name}"] = MEND_FILTER if name.startswith("filter-") else MEND_STATE
    return records


def _add_parts(names: set[str], folder: Folder, number: int) -> None:
    version = snapshot.read_snapshot(folder, number)
    names.update(snapshot.part_files(version))


def _fault(read: Callable[[], object]) -> Iterator[str]:
    try:
        read()
    except StoreError as error:
        yield str(error)
