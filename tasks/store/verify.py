"""Find missing or changed files of a dataset: files have digests of themselves, and versions name
their parts.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

from pairwright.schemas.errors import StoreError
from pairwright.tasks.store import evaluations, gates, snapshot, takedowns
from pairwright.tasks.store.build import MEND_RECORD, RECORD
from pairwright.tasks.store.decision_table import FOLDER as DECISIONS
from pairwright.tasks.store.files import Folder, numbered, read_sealed
from pairwright.tasks.store.part import Part, read_part


def find_faults(folder: Folder, tables: Iterable[str], parts: Iterable[str] = ()) -> Iterator[str]:
    """Yield a message for each file that is missing or changed; reads all of them.

    These are the files that versions name, all parts in ``tables``, and ``parts``, which must
    exist.
    """
    runs = (f"{evaluations.FOLDER}/{run}" for run in folder.folders(evaluations.FOLDER))
    folders = (*tables, DECISIONS, *runs)
    wanted = {*parts} | {
        f"{place}/{name}" for place in folders for name in folder.names(place, ".parquet")
    }
    there = snapshot.snapshot_numbers(folder)
    records = {RECORD: MEND_RECORD}
    if there or folder.exists(gates.FILE):
        records[gates.FILE] = gates.MEND
    if folder.exists(snapshot.DELETED):
        records[snapshot.DELETED] = snapshot.MEND_DELETED
    records |= dict.fromkeys(numbered(folder, takedowns.FOLDER).values(), takedowns.MEND)
    for name, mend in records.items():
        yield from _fault(partial(read_sealed, folder, name, mend=mend))
    published, deleted = {0, *there}, list[int]()
    with suppress(StoreError):  # reported above, as a damaged record
        published |= {verdict.version} if (verdict := gates.read_verdict(folder)) else set()
    with suppress(StoreError):
        deleted = snapshot.deleted_versions(folder)
    for number in range(1, max(published) + 1):
        if number in there or number not in deleted:
            yield from _fault(
                lambda number=number: wanted.update(
                    snapshot.part_files(snapshot.read_snapshot(folder, number))
                )
            )
    for name in sorted(wanted):
        yield from _fault(partial(read_part, Part(folder, name)))


def _fault(read: Callable[[], object]) -> Iterator[str]:
    try:
        read()
    except StoreError as error:
        yield str(error)
