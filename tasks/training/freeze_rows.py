"""Rows that a run trains on: chosen of a preference table, frozen in one file, read one by one as examples.

Reads a settled table's columns without its images, a row group at a time; writes ``rows.arrow`` in the run's folder:
which part, which row, some 60 bytes each. A resumed run reads that again, whatever has become of the dataset since:
parts are never changed. Rows are then read at random by their place, images and all. A row that cannot be trained on is
refused with a reason, never cut to fit.
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
from pairwright.schemas.rows import PreferenceRow, Turn
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.index import columns_without
from pairwright.tasks.store.part import Part, read_rows
from pairwright.tasks.store.snapshot import live_index
from pairwright.tasks.store.stage import Planned

PLACE = "<image>"
"""Stands for an image in a prompt; where a prompt has none, the images go before its first words."""
PAIR, UNPAIRED = 2, "images that are no pairs"
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


class RefusedRowError(Exception):
    """Row that cannot be trained on: a short constant phrase, and what differs from row to row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Record of a row that is not trained on."""

    key: str
    reason: str
    """A short constant phrase."""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an objective takes of a row."""

    texts: int = 0
    """Rejected texts, at the most."""
    images: bool = False
    """Whether the rejected images are shown."""
    beside: bool = True
    """Whether they are shown beside a rejected text, too; otherwise only where there is none."""
    least: str = "nothing"
    """What a row must have: "nothing" but the chosen text, a rejected "text", "image", or "either"."""
    pairs: bool = False
    """Whether its images are compared in twos (differential perception)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What one row gives to train on."""

    key: str
    turns: tuple[Turn, ...]
    images: tuple[bytes, ...]
    """Encoded files."""
    chosen: str
    rejected: tuple[str, ...] = ()
    """Hardest first."""
    rejected_images: tuple[bytes, ...] = ()
    """As many as ``images``; empty: none."""


def make_example(row: PreferenceRow, needs: Needs) -> Example:
    """Return what a row gives.

    Raises:
        RefusedRowError: it cannot be trained on.
    """
    check_row(row, needs)
    if places := _count_places(row, len(row.images)):
        raise RefusedRowError("images do not match the prompt", places)
    rejected = rejected_texts(row)[: needs.texts]
    shown = row.rejected_images if needs.images and (needs.beside or not rejected) else ()
    if shown and len(shown) != len(row.images):
        raise RefusedRowError("rejected images do not match", f"{len(shown)} for {len(row.images)}")
    return Example(
        key=row.key, turns=row.prompt, images=row.images, chosen=row.chosen, rejected=rejected, rejected_images=shown
    )


def check_row(row: PreferenceRow, needs: Needs) -> None:
    """Check what can be checked without the images.

    Raises:
        RefusedRowError: the row cannot be trained on.
    """
    if not row.chosen.strip():
        raise RefusedRowError("no chosen text")
    if not row.prompt or row.prompt[-1].role != "user":
        raise RefusedRowError("the prompt does not end with the user")
    if needs.pairs and (not row.image_keys or len(row.image_keys) % PAIR):
        raise RefusedRowError(UNPAIRED, f"{len(row.image_keys)}, where each is compared with another one")
    if places := _count_places(row, len(row.image_keys)):
        raise RefusedRowError("images do not match the prompt", places)
    text, image = bool(rejected_texts(row)), bool(row.rejected_image_maker)
    if not {"nothing": True, "text": text, "image": image, "either": text or image}[needs.least]:
        raise RefusedRowError(f"no rejected {'side' if needs.least == 'either' else needs.least}")


def rejected_texts(row: PreferenceRow) -> tuple[str, ...]:
    """Return the rejected text and the further negatives, each once, without those equal to the chosen text."""
    texts = dict.fromkeys((row.rejected, *(negative.text for negative in row.negatives)))
    return tuple(text for text in texts if text.strip() and text != row.chosen)


def _count_places(row: PreferenceRow, images: int) -> str:
    """Return in words how the prompt's places for images differ from their number; empty: they do not."""
    found = sum(turn.text.count(PLACE) for turn in row.prompt)
    return f"{found} places for {images} images" if found and found != images else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenRows:
    """Rows of one split, in the table's order; picklable, so that loading processes open them anew."""

    folder: Folder
    file: str
    """Path of ``rows.arrow``."""
    split: str

    def __len__(self) -> int:
        return len(_split_of(self.file, self.split))

    def keys(self) -> list[str]:
        """Return the rows' keys, in order."""
        return _split_of(self.file, self.split).column("key").to_pylist()

    def all_show(self) -> bool:
        """Return whether each row is known to have an image."""
        table = _split_of(self.file, self.split)
        return "images" in table.column_names and all(table.column("images").to_pylist())

    def read(self, place: int) -> PreferenceRow:
        """Return one row, its images included.

        Raises:
            StoreError: its part is gone or damaged.
        """
        entry = _split_of(self.file, self.split).slice(place, 1).to_pylist()[0]
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
            try:
                decision = decisions.about(preference)
                if decision and decision.verdict in BY_PEOPLE:
                    raise RefusedRowError(BY_PEOPLE[decision.verdict])
                check_row(preference, needs)
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
    for cached in (_read_file, _split_of, _table_of):  # of a file that was there before
        cached.cache_clear()
    return refused


def _light_rows(build: Build, planned: Planned) -> Iterator[tuple[int, int, PreferenceRow]]:
    """Yield the live rows without their images, each with its part's number and its place there."""
    index = live_index(build, planned)
    columns = columns_without(PreferenceRow, IMAGES)
    for number, places in index.places():
        for start in range(0, len(places), 1000):
            some = places[start : start + 1000].tolist()
            table = read_rows(index.part(number), some, columns)
            yield from zip([number] * len(some), some, from_table(table, PreferenceRow), strict=True)


def count_rows(file: Path, split: str) -> int:
    """Return how many rows of a split were frozen."""
    return len(_split_of(str(file), split))


def check_parts(folder: Folder, file: Path) -> None:
    """Check that the parts that hold the frozen rows are still there.

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
    entries = _read_file(str(file))
    found: dict[str, set[int]] = {}
    for part, row in zip(entries.column("part").to_pylist(), entries.column("row").to_pylist(), strict=True):
        found.setdefault(f"{table}/{names[part]}", set()).add(row)
    return found


def count_reasons(refused: list[Refused]) -> dict[str, int]:
    """Return how many rows were refused for each reason, most first."""
    return dict(Counter(one.reason for one in refused).most_common())


@lru_cache(maxsize=4)
def _read_file(file: str) -> pa.Table:
    try:
        return pa.ipc.open_file(pa.memory_map(file)).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{file}: cannot be read: {error}. Start the run anew under another --name") from error


@lru_cache(maxsize=8)
def _split_of(file: str, split: str) -> pa.Table:
    table = _read_file(file)
    return table.filter(pa.array(table.column("split").to_numpy() == split))


@lru_cache(maxsize=4)
def _table_of(file: str) -> tuple[str, tuple[str, ...]]:
    metadata = _read_file(file).schema.metadata or {}
    return metadata[b"table"].decode(), tuple(metadata[b"parts"].decode().split("\n"))
