"""Versions of a dataset: which tables and parts belong to it, and how many rows they hold.

A snapshot is a small JSON file that is never changed. Its parts may also hold rows that are no longer live (their
source is gone); readers leave those out by the same rule as a build.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from schemas.arrow import R
from schemas.errors import StoreError
from tasks.store.dataset import Build
from tasks.store.files import Folder
from tasks.store.index import columns_without, open_index
from tasks.store.ledger import Counts
from tasks.store.stage import Planned

FOLDER = "snapshots"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Name one version and hold its JSON."""

    number: int
    content: dict[str, Any]


def latest_snapshot(folder: Folder) -> Snapshot | None:
    """Return the newest version, or ``None`` before the first.

    Raises:
        StoreError: the file is damaged.
    """
    names = [name for name in folder.names(FOLDER) if name.endswith(".json")]
    if not names:
        return None
    name = f"{FOLDER}/{names[-1]}"
    try:
        return Snapshot(int(names[-1].removesuffix(".json")), json.loads(folder.read(name)))
    except ValueError as error:
        raise StoreError(f"{folder.path(name)}: the snapshot is damaged: {error}") from error


def write_snapshot(build: Build, done: Sequence[tuple[Planned, Counts]], *, record: dict[str, Any]) -> Snapshot:
    """Publish what the settled stages hold as the next version; nothing new gives no new version."""
    stages = {
        planned.stage.name: {
            "fingerprint": planned.fingerprint,
            "counts": counts.as_json(),
            "parts": dict(build.ledger.live_parts(planned.stage.name)),
        }
        for planned, counts in done
    }
    content: dict[str, Any] = {"items": build.items, "stages": stages, "lineage": record}
    while True:
        before = latest_snapshot(build.folder)
        if before and {name: before.content.get(name) for name in content} == json.loads(json.dumps(content)):
            return before
        number = before.number + 1 if before else 1
        about = {
            "parent": before.number if before else None,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        text = json.dumps({"version": number, **about, **content}, indent=1)
        if build.folder.create(f"{FOLDER}/{number:06d}.json", text.encode()):
            return Snapshot(number, json.loads(text))


def read_live(build: Build, planned: Planned, row_type: type[R], *, without: Sequence[str] = ()) -> Iterator[R]:
    """Yield the live rows of a settled stage in the order of their subjects, a few hundred in memory at a time."""
    name = build.write_index(planned.stage.name)
    index = open_index(build.folder, name, planned.table)
    columns = columns_without(row_type, without)
    for start in range(0, len(index), 256):
        rows = index.rows(range(start, min(start + 256, len(index))), row_type, columns)
        yield from sorted(rows, key=lambda row: (row.subject, row.key))
