"""Choose the rows of a preference table that a run trains on, and freeze them: which part, which row, in one file.

Reads a settled table's columns without its images, a row group at a time; writes ``rows.arrow`` in the run's folder
(some 60 bytes per row), which a resumed run reads again, whatever has become of the dataset since: parts are never
changed. Rows are then read at random by their place, images and all.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

import pyarrow as pa

from pairwright.schemas.arrow import from_table
from pairwright.schemas.decisions import UNDECIDED, Decisions
from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.rows import PreferenceRow
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.index import columns_without
from pairwright.tasks.store.part import Part, read_rows
from pairwright.tasks.store.snapshot import live_index
from pairwright.tasks.store.stage import Planned
from pairwright.tasks.training.examples import Needs, RefusedRowError, look_at

FILE = "rows.arrow"
SCHEMA = pa.schema(
    [
        ("part", pa.int32()),
        ("row", pa.int32()),
        ("key", pa.string()),
        ("split", pa.string()),
        ("images", pa.int32()),
    ]
)
IMAGES = ("images", "rejected_images")
BY_PEOPLE = {
    "reject": "rejected by people",
    # Its texts in the table are the old ones, and so are their vectors and the reference's scores.
    "edit": "edited by people: its new texts are in exports only",
}
"""Why rows are left out of which people said so."""
BATCH = 10_000
"""Rows that are held in memory at once; the list of refused ones is held whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Say why a row is not trained on."""

    key: str
    reason: str
    """A short constant phrase."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenRows:
    """Be the rows of one split, in the table's order; picklable, so that loading processes open it anew."""

    folder: Folder
    file: str
    """Path of ``rows.arrow``."""
    split: str

    def __len__(self) -> int:
        return len(_places(self.file, self.split))

    def keys(self) -> list[str]:
        """Return the rows' keys, in order."""
        return _places(self.file, self.split).column("key").to_pylist()

    def all_show(self) -> bool:
        """Say whether each row is known to have an image."""
        table = _places(self.file, self.split)
        return "images" in table.column_names and all(table.column("images").to_pylist())

    def read(self, place: int) -> PreferenceRow:
        """Return one row, its images included.

        Raises:
            StoreError: its part is gone or damaged.
        """
        entry = _places(self.file, self.split).slice(place, 1).to_pylist()[0]
        table, names = _table_of(self.file)
        part = Part(self.folder, f"{table}/{names[entry['part']]}")
        found = read_rows(part, [entry["row"]], columns_without(PreferenceRow, ()))
        if found["key"][0].as_py() != entry["key"]:
            raise StoreError(
                f"{part.path}: row {entry['key']} is no longer in it: its image was removed on request. Begin the run "
                "anew under another --name"
            )
        return next(iter(from_table(found, PreferenceRow)))


def freeze_rows(
    build: Build,
    planned: Planned,
    file: Path,
    *,
    needs: Needs,
    splits: tuple[str, ...],
    decisions: Decisions = UNDECIDED,
) -> list[Refused]:
    """Write which rows of the splits can be trained on; return the others of these splits.

    Args:
        build: the opened dataset.
        planned: its settled table of ``PreferenceRow``.
        file: what is written.
        needs: what the objective needs of a row.
        splits: the splits that are looked at.
        decisions: what people said of the rows.

    Raises:
        StoreError: the disk refuses.
    """
    refused: list[Refused] = []

    def entries() -> Iterator[dict[str, str | int]]:
        for number, row, preference in _light_rows(build, planned):
            if preference.split not in splits:
                continue
            decision = decisions.about(preference)
            if decision and decision.verdict in BY_PEOPLE:
                refused.append(Refused(key=preference.key, reason=BY_PEOPLE[decision.verdict]))
                continue
            try:
                look_at(preference, needs)
            except RefusedRowError as error:
                refused.append(Refused(key=preference.key, reason=error.reason, detail=error.detail))
            else:
                images = len(preference.image_keys)
                yield {"part": number, "row": row, "key": preference.key, "split": preference.split, "images": images}

    names = "\n".join(live_index(build, planned).names)
    schema = SCHEMA.with_metadata({"table": planned.table, "parts": names})
    with naming(str(file), "written"), pa.ipc.new_file(str(file), schema) as writer:
        rows = entries()
        for some in iter(lambda: list(islice(rows, BATCH)), []):
            writer.write_batch(pa.RecordBatch.from_pylist(some, schema=schema))
    for cached in (_file, _places, _table_of):  # of a file that was there before
        cached.cache_clear()
    return refused


def count_rows(file: Path, split: str) -> int:
    """Return how many rows of a split were frozen."""
    return len(_places(str(file), split))


def check_parts(folder: Folder, file: Path) -> None:
    """Look whether the parts that hold the frozen rows are still there.

    Raises:
        TrainingError: names the first that is not.
    """
    for path in sorted(frozen_places(file)):
        if not folder.exists(path):
            raise TrainingError(
                f"{folder.path(path)}: this run's rows are in it, and it is gone. A build with the same settings "
                "writes it again, byte for byte; or begin anew under another --name"
            )


def frozen_places(file: Path) -> dict[str, set[int]]:
    """Return where the frozen rows are: per part, below the dataset's folder, its rows."""
    table, names = _table_of(str(file))
    entries = _file(str(file))
    found: dict[str, set[int]] = {}
    for part, row in zip(entries.column("part").to_pylist(), entries.column("row").to_pylist(), strict=True):
        found.setdefault(f"{table}/{names[part]}", set()).add(row)
    return found


def count_reasons(refused: list[Refused]) -> dict[str, int]:
    """Return how many rows were refused for each reason, most first."""
    return dict(Counter(one.reason for one in refused).most_common())


def _light_rows(build: Build, planned: Planned) -> Iterator[tuple[int, int, PreferenceRow]]:
    """Yield the live rows without their images, each with its part's number and its place there."""
    index = live_index(build, planned)
    columns = columns_without(PreferenceRow, IMAGES)
    for number, places in index.places():
        for start in range(0, len(places), 1000):
            some = places[start : start + 1000].tolist()
            table = read_rows(index.part(number), some, columns)
            yield from zip([number] * len(some), some, from_table(table, PreferenceRow), strict=True)


@lru_cache(maxsize=4)
def _file(file: str) -> pa.Table:
    try:
        return pa.ipc.open_file(pa.memory_map(file)).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{file}: cannot be read: {error}. Start the run anew under another --name") from error


@lru_cache(maxsize=8)
def _places(file: str, split: str) -> pa.Table:
    table = _file(file)
    return table.filter(pa.array(table.column("split").to_numpy() == split))


@lru_cache(maxsize=4)
def _table_of(file: str) -> tuple[str, tuple[str, ...]]:
    metadata = _file(file).schema.metadata or {}
    return metadata[b"table"].decode(), tuple(metadata[b"parts"].decode().split("\n"))
