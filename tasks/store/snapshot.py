"""Versions of a dataset: its tables and parts, and their counts.

A snapshot is a small JSON file that is never changed. Its parts may also hold stale rows; readers
leave those out by the same rule as a build.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from pairwright.schemas.arrow import R
from pairwright.schemas.config import BuildRecord
from pairwright.schemas.errors import StoreError
from pairwright.tasks.store.decision_table import last_number
from pairwright.tasks.store.files import Folder, numbered_files, read_sealed, seal
from pairwright.tasks.store.index import Index, columns_without, open_index
from pairwright.tasks.store.ledger import Counts
from pairwright.tasks.store.open_tables import Build, Snapshot
from pairwright.tasks.store.stage import Planned, table_folder

FOLDER = "snapshots"
DELETED = f"{FOLDER}/deleted.json"
PART = re.compile(r"tables/[\w-]+/[\w-]+/[\w-]+\.parquet")
MEND_DELETED = "Delete it: versions that were deleted on purpose are then reported as missing"
MEND_SNAPSHOT = (
    "It holds no rows: `pairwright resume` publishes a new version; delete a damaged one first"
)


def latest_snapshot(folder: Folder) -> Snapshot | None:
    """Return the newest version, or ``None`` before the first."""
    numbers = snapshot_numbers(folder)
    return read_snapshot(folder, numbers[-1]) if numbers else None


def snapshot_numbers(folder: Folder) -> list[int]:
    """Return the sorted numbers of the existing versions."""
    return list(numbered_files(folder, FOLDER))


def snapshot_file(number: int) -> str:
    """Return the name of a version's file below the dataset's folder."""
    return f"{FOLDER}/{number:06d}.json"


def read_snapshot(folder: Folder, number: int) -> Snapshot:
    """Return one version, whose files are all below the dataset's folder."""
    file = snapshot_file(number)
    snapshot = Snapshot(number, read_sealed(folder, file, mend=MEND_SNAPSHOT))
    for name in part_files(snapshot):
        if not PART.fullmatch(name):
            raise StoreError(f"{folder.path(file)}: names no part: {name}. {MEND_SNAPSHOT}")
    return snapshot


def deleted_versions(folder: Folder) -> list[int]:
    """Return the numbers of the versions that were deleted on purpose."""
    if not folder.exists(DELETED):
        return []
    content = read_sealed(folder, DELETED, mend=MEND_DELETED)
    return list(content["versions"])


def write_deleted(folder: Folder, numbers: Iterable[int]) -> None:
    """Record that versions are deleted on purpose, before deleting them."""
    folder.write(DELETED, seal({"versions": sorted({*deleted_versions(folder), *numbers})}))


def part_files(snapshot: Snapshot) -> Iterator[str]:
    """Yield the files of a version below the dataset's folder: its listing and its parts."""
    yield from snapshot.content["items"]
    for name, stated in snapshot.content["stages"].items():
        table = table_folder(name, stated["fingerprint"])
        yield from (f"{table}/{part}" for part in (*stated["parts"], *stated["refused"]))


def rename_parts(content: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a version's content with other names of some parts, below the dataset's folder."""
    stages: dict[str, Any] = {}
    for name, stated in content["stages"].items():
        table = table_folder(name, stated["fingerprint"])

        def rename(part: str, table: str = table) -> str:
            return names.get(f"{table}/{part}", part).rpartition("/")[2]

        parts = {rename(part): count for part, count in stated["parts"].items()}
        refused = [rename(part) for part in stated["refused"]]
        stages[name] = {**stated, "parts": parts, "refused": refused}
    return {**content, "stages": stages}


def missing_files(folder: Folder, snapshot: Snapshot) -> list[str]:
    """Return the missing files of a version, listing each folder once."""
    files = list(part_files(snapshot))
    tables = {file.rpartition("/")[0] for file in files}
    existing = {f"{table}/{name}" for table in tables for name in folder.names(table)}
    return [file for file in files if file not in existing]


def check_parts(folder: Folder, snapshot: Snapshot) -> None:
    """Raise a ``StoreError`` that names the first missing file of a version."""
    missing = missing_files(folder, snapshot)
    if not missing:
        return
    others = f" (and {len(missing) - 1:,} others)" if len(missing) > 1 else ""
    raise StoreError(
        f"{folder.path(missing[0])}{others}: missing, but version {snapshot.number} names it: "
        "`pairwright gc` or a person deleted it. Make it again: "
        f"pairwright resume {shlex.quote(folder.url)}. Or open another version "
        "(`pairwright versions`)"
    )


def write_snapshot(
    build: Build, done: Sequence[tuple[Planned, Counts]], *, record: BuildRecord
) -> Snapshot:
    """Publish the state of the resolved stages as the next version, unless it is unchanged."""
    stages = {
        planned.stage.name: {
            "fingerprint": planned.fingerprint,
            "counts": counts.as_json(),
            "parts": build.ledger.live_parts(planned.stage.name),
            "refused": build.ledger.other_parts(planned.stage.name),
        }
        for planned, counts in done
    }
    content: dict[str, Any] = {
        "items": list(build.items),
        "takedowns": build.takedowns,
        "stages": stages,
        "lineage": record.model_dump(mode="json"),
    }
    while True:
        latest = latest_snapshot(build.folder)
        if latest and all(latest.content.get(name) == content[name] for name in content):
            return latest
        parent = latest.number if latest else None
        number = (parent or 0) + 1
        created = datetime.now(UTC).isoformat(timespec="seconds")
        header = {
            "version": number,
            "parent": parent,
            "created": created,
            "decisions": last_number(build.folder),
        }
        whole = {**header, **content}
        if build.folder.create(snapshot_file(number), seal(whole)):
            return Snapshot(number, whole)


def describe_version(build: Build) -> str:
    """Return a text for messages: which version is read."""
    return f"version {build.pinned.number}" if build.pinned else "not yet a version"


def find_live(
    build: Build,
    planned: Planned,
    row_type: type[R],
    *,
    subjects: Iterable[str] | None = None,
    without: Sequence[str] = (),
) -> list[R]:
    """Return a resolved stage's live rows, ordered by subject and key.

    With ``subjects``, only of these, and of the tables that extend the stage's, too.
    """
    index = live_index(build, planned, extended=subjects is not None)
    positions = range(len(index)) if subjects is None else index.find_positions(subjects)
    rows = index.rows_at(positions, row_type, columns_without(row_type, without))
    return sorted(rows, key=lambda row: (row.subject, row.key))


def stream_live(build: Build, planned: Planned, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some columns of a resolved stage's live rows, part by part, reading each byte once."""
    return live_index(build, planned).batches(columns)


def live_index(build: Build, planned: Planned, *, extended: bool = False) -> Index:
    """Open the index of a resolved stage's live rows; ``extended``: and of its extensions."""
    name = build.write_index(planned.stage.name, extended=extended)
    return open_index(build.folder, name, planned.table_path)
