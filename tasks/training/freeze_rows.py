"""Rows of a run: chosen from a preference table, frozen in one file, read one by one as examples.

Writes ``rows.arrow`` into the run's folder: part and row numbers, some 60 bytes each, and people's
edits, applied when a row is read. A resumed run reads the same file, whatever has happened to the
dataset: parts never change. A row that cannot be trained on is refused with a reason, never cut to
fit.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from pairwright.schemas.arrow import from_table, to_table
from pairwright.schemas.decisions import UNDECIDED, Decision, Decisions, latest
from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.rows import Dropped, PreferenceRow, Turn
from pairwright.tasks.store.build import Build
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.index import columns_without
from pairwright.tasks.store.part import Part, encode_part, read_rows
from pairwright.tasks.store.snapshot import live_index, stream_live
from pairwright.tasks.store.stage import Planned

PLACE = "<image>"  # image placeholder in a prompt; without any, images precede the first user turn
PAIR, UNPAIRED = 2, "images that are no pairs"
FILE, MIXED = "rows.arrow", "mixed"
SCHEMA = pa.schema(
    [("part", pa.int32()), ("row", pa.int32()), ("key", pa.string()), ("split", pa.string())]
)
IMAGES = ("images", "rejected_images")
EDITS: TypeAdapter[list[Decision]] = TypeAdapter(list[Decision])
BATCH, ROWS_PER_PART = 1000, 25  # rows read at once, and rows per part of mixed conversations


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Record of a row that is not trained on."""

    key: str
    reason: str  # a short constant phrase
    detail: str = ""


class RefusedRowError(Exception):
    """Row that cannot be trained on: a short constant phrase, and details that vary by row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)

    def about(self, key: str) -> Refused:
        """Return the record of the row."""
        return Refused(key=key, reason=self.reason, detail=self.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Parts of a row that an objective uses."""

    texts: int = 0  # maximum number of rejected texts
    images: bool = False  # whether rejected images are used
    beside: bool = (
        True  # whether they are used beside a rejected text, too, or only in place of one
    )
    every_answer: bool = (
        False  # whether each answer of a conversation carries loss, or the last one alone
    )
    rejected_side: bool = False  # whether a row must have a rejected text or rejected images
    pairs: bool = False  # whether images are compared in pairs (differential perception)
    held_out: frozenset[str] = frozenset()  # images that no row may show
    accepted: str = ""  # split of which people must have accepted each row; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Training example of one row."""

    key: str
    turns: tuple[Turn, ...]  # prompt, up to the first answer with loss
    images: tuple[bytes, ...]  # encoded files
    chosen: str  # the first answer with loss
    then: tuple[Turn, ...] = ()  # rest of the conversation: user and assistant in turn
    rejected: tuple[str, ...] = ()  # hardest first
    rejected_images: tuple[bytes, ...] = ()  # as many as ``images``, or none

    @property
    def conversation(self) -> tuple[Turn, ...]:
        """Return all turns, the chosen text included."""
        return (*self.turns, Turn(role="assistant", text=self.chosen), *self.then)


def make_example(row: PreferenceRow, needs: Needs) -> Example:
    """Return a row's example; ``RefusedRowError`` where it cannot be trained on."""
    check_row(row, needs)
    rejected = rejected_texts(row)[: needs.texts]
    shown = row.rejected_images if needs.images and (needs.beside or not rejected) else ()
    if shown and len(shown) != len(row.images):
        raise RefusedRowError("rejected images do not match", f"{len(shown)} for {len(row.images)}")
    turns = (*row.prompt, Turn(role="assistant", text=row.chosen))
    first = _first_answer(row) if needs.every_answer else len(row.prompt)
    return Example(
        key=row.key,
        turns=turns[:first],
        images=row.images,
        chosen=turns[first].text,
        then=turns[first + 1 :],
        rejected=rejected,
        rejected_images=shown,
    )


def _first_answer(row: PreferenceRow) -> int:
    """Return the position of a conversation's first answer; ``len(row.prompt)`` for the chosen text."""
    return next(
        (n for n, turn in enumerate(row.prompt) if turn.role == "assistant"), len(row.prompt)
    )


def check_row(row: PreferenceRow, needs: Needs) -> None:
    """Raise ``RefusedRowError`` where a row cannot be trained on, as far as that shows without its images."""
    if not row.chosen.strip():
        raise RefusedRowError("no chosen text")
    if not row.prompt or row.prompt[-1].role != "user":
        raise RefusedRowError("the prompt does not end with the user")
    images = len(row.image_keys)
    if shown := needs.held_out.intersection(row.image_keys):
        raise RefusedRowError("shows a held-out image", min(shown))
    if needs.pairs and (not images or images % PAIR):
        raise RefusedRowError(UNPAIRED, f"{images} images")
    places = sum(turn.text.count(PLACE) for turn in row.prompt)
    if places and places != images:
        raise RefusedRowError(
            "images do not match the prompt", f"{places} places for {images} images"
        )
    turns = row.prompt[_first_answer(row) :] if needs.every_answer else ()
    if [turn.role for turn in turns] != ["assistant", "user"] * (len(turns) // 2):
        raise RefusedRowError("its turns do not alternate", " ".join(turn.role for turn in turns))
    if not all(turn.text.strip() for turn in turns):
        raise RefusedRowError("an empty turn")
    if any(PLACE in turn.text for turn in turns):
        raise RefusedRowError("an image behind the first answer")
    if needs.rejected_side and not rejected_texts(row) and not row.rejected_image_maker:
        raise RefusedRowError("no rejected side")


def rejected_texts(row: PreferenceRow) -> tuple[str, ...]:
    """Return the rejected text and further negatives, without duplicates and copies of the chosen text."""
    texts = dict.fromkeys((row.rejected, *(negative.text for negative in row.negatives)))
    return tuple(text for text in texts if text.strip() and text != row.chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenRows:
    """Rows of one split, in the table's order; picklable, for loading processes."""

    folder: Folder
    file: str  # path of ``rows.arrow``
    split: str

    def __len__(self) -> int:
        return len(_open(self.file, self.split))

    def keys(self) -> list[str]:
        """Return the rows' keys, in order."""
        return _open(self.file, self.split).column("key").to_pylist()

    def edits(self) -> Decisions:
        """Return people's edits as of the freeze."""
        return _read_edits(self.file)

    def read(self, place: int) -> PreferenceRow:
        """Return one row with its images; ``StoreError`` where its part is missing or damaged."""
        return next(
            self._read(_open(self.file, self.split).slice(place, 1).to_pylist(), without=())
        )

    def read_texts(self) -> Iterator[PreferenceRow]:
        """Yield all rows without images, in order; ``StoreError`` where a part is missing or damaged."""
        for _, some in groupby(
            _open(self.file, self.split).to_pylist(), key=lambda entry: entry["part"]
        ):
            yield from self._read(list(some), without=IMAGES)

    def edited(self) -> dict[int, PreferenceRow]:
        """Return edited rows without images, by position."""
        edits = self.edits()
        return (
            {place: row for place, row in enumerate(self.read_texts()) if edits.about(row)}
            if edits
            else {}
        )

    def _read(
        self, entries: Sequence[dict[str, Any]], *, without: Sequence[str]
    ) -> Iterator[PreferenceRow]:
        part = _part(self.folder, _part_paths(_open(self.file, self.split))[entries[0]["part"]])
        edits = self.edits()
        found = read_rows(
            part, [entry["row"] for entry in entries], columns_without(PreferenceRow, without)
        )
        for entry, row in zip(entries, from_table(found, PreferenceRow), strict=True):
            if row.key != entry["key"]:
                raise StoreError(
                    f"{part.path}: row {entry['key']} was removed on request: give another --name"
                )
            yield edits.edit(row)


def freeze_rows(
    build: Build,
    planned: Planned,
    file: Path,
    *,
    needs: Needs,
    splits: tuple[str, ...],
    decisions: Decisions = UNDECIDED,
) -> tuple[list[Refused], Counter[str]]:
    """Write the trainable rows of the splits of a settled ``PreferenceRow`` table.

    Returns the others, and how many rows people accepted, edited and rejected.
    """
    refused, decided = list[Refused](), Counter[str]()
    index, columns = live_index(build, planned), columns_without(PreferenceRow, IMAGES)
    edits = EDITS.dump_json(decisions.edits())
    schema = SCHEMA.with_metadata(
        {"table": planned.table, "parts": "\n".join(index.names), "edits": edits}
    )
    with naming(str(file), "written"), pa.ipc.new_file(str(file), schema) as writer:
        for number, places in index.places():
            for start in range(0, len(places), BATCH):
                some = places[start : start + BATCH].tolist()
                rows = from_table(read_rows(index.part(number), some, columns), PreferenceRow)
                wanted = [
                    (place, row)
                    for place, row in zip(some, rows, strict=True)
                    if row.split in splits
                ]
                decided.update(one.verdict for _, row in wanted if (one := decisions.about(row)))
                why_not = {
                    row.key: why for _, row in wanted if (why := _refuse(row, needs, decisions))
                }
                refused += why_not.values()
                kept = ((place, row) for place, row in wanted if row.key not in why_not)
                entries = [
                    {"part": number, "row": place, "key": row.key, "split": row.split}
                    for place, row in kept
                ]
                writer.write_batch(pa.RecordBatch.from_pylist(entries, schema=schema))
    _clear_caches()
    return refused, decided


def _refuse(row: PreferenceRow, needs: Needs, decisions: Decisions) -> Refused | None:
    decision = decisions.about(row)
    if decision and decision.verdict == "reject":
        return Refused(key=row.key, reason="rejected by people")
    if needs.accepted and row.split == needs.accepted and not decision:
        return Refused(key=row.key, reason="not accepted by people")
    try:
        check_row(decisions.edit(row), needs)
    except RefusedRowError as error:
        return error.about(row.key)
    return None


def count_rows(file: Path, split: str) -> int:
    """Return how many rows of a split are frozen."""
    return len(_open(str(file), split))


def check_parts(folder: Folder, file: Path) -> None:
    """Raise ``TrainingError`` where a part with frozen rows is missing."""
    for path in sorted(frozen_places(file)):
        if not (part := _part(folder, path)).folder.exists(part.name):
            raise TrainingError(
                f"{part.path}: missing: build the same again, or start over with another --name"
            )


def frozen_places(file: Path) -> dict[str, set[int]]:
    """Return the rows of each part; parts of other folders have absolute paths."""
    entries = _open(str(file))
    paths, found = _part_paths(entries), dict[str, set[int]]()
    for entry in entries.select(["part", "row"]).to_pylist():
        found.setdefault(paths[entry["part"]], set()).add(entry["row"])
    return found


def find_held_out(build: Build, planned: Planned, split: str) -> frozenset[str]:
    """Return the images of a settled table's rows outside a split."""
    rows = (
        row
        for table in stream_live(build, planned, ["image_keys", "split"])
        for row in table.to_pylist()
    )
    return frozenset(key for row in rows if row["split"] != split for key in row["image_keys"])


def write_rows(
    rows: Iterable[PreferenceRow | Dropped], file: Path, *, needs: Needs, split: str, most: int
) -> list[Refused]:
    """Write the first ``most`` trainable rows as parts beside a file, and the file; return the refused ones."""
    refused, entries, names = list[Refused](), list[dict[str, Any]](), list[str]()

    def trainable() -> Iterator[PreferenceRow]:
        for row in rows:
            if isinstance(row, Dropped):
                refused.append(Refused(key=row.source_key, reason=row.reason, detail=row.detail))
            elif why := _refuse(row, needs, UNDECIDED):
                refused.append(why)
            else:
                yield row

    good, folder = islice(trainable(), most), Folder(str(file.parent))
    while some := list(islice(good, ROWS_PER_PART)):
        entries += [
            {"part": len(names), "row": n, "key": row.key, "split": split}
            for n, row in enumerate(some)
        ]
        names.append(f"{file.stem}-{len(names):05}.parquet")
        folder.write(names[-1], encode_part(to_table(some, PreferenceRow), {}))
    schema = SCHEMA.with_metadata({"table": str(file.parent.absolute()), "parts": "\n".join(names)})
    _write(file, pa.Table.from_pylist(entries, schema=schema))
    return refused


def mix_rows(file: Path, other: Path, folder: Folder, *, rows: int, seed: int) -> int:
    """Add ``rows`` random frozen rows of another file to a run's; return how many distinct ones they are.

    Rows repeat only after all have been drawn. ``folder`` is the other rows' dataset.
    """
    own, found = _open(str(file)), _open(str(other))
    drawn = np.resize(np.random.default_rng(seed).permutation(len(found)), rows)
    parts = pa.array(found["part"].to_numpy() + len(_part_paths(own)), pa.int32())
    added = found.set_column(0, SCHEMA.field("part"), parts).take(pa.array(drawn))
    metadata, paths = own.schema.metadata, _part_paths(found)
    paths = [f"{folder.url}/{path}" if _is_relative(path) else path for path in paths]
    edits = [
        edit
        for one in (own, found)
        for edit in EDITS.validate_json(one.schema.metadata.get(b"edits", b"[]"))
    ]
    mixed = json.dumps([*json.loads(metadata.get(b"mixed", b"[]")), *paths]).encode()
    told = metadata | {b"mixed": mixed, b"edits": EDITS.dump_json(edits)}
    _write(file, pa.concat_tables([own, added]).replace_schema_metadata(told))
    return min(rows, len(found))


def count_reasons(refused: list[Refused]) -> dict[str, int]:
    """Return how many rows were refused for each reason, most frequent first."""
    return dict(Counter(one.reason for one in refused).most_common())


@lru_cache(maxsize=8)
def _open(file: str, split: str | None = None) -> pa.Table:
    try:
        table = pa.ipc.open_file(pa.memory_map(file)).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(
            f"{file}: cannot be read: {error}. Start over with another --name"
        ) from error
    return table if split is None else table.filter(pc.field("split") == split)


@lru_cache(maxsize=8)
def _read_edits(file: str) -> Decisions:
    return latest(EDITS.validate_json(_open(file).schema.metadata.get(b"edits", b"[]")))


def _clear_caches() -> None:
    _open.cache_clear()
    _read_edits.cache_clear()


def _write(file: Path, entries: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, entries.schema) as writer:
        writer.write_table(entries)
    Folder(str(file.parent)).write(file.name, sink.getvalue())
    _clear_caches()


def _part_paths(entries: pa.Table) -> list[str]:
    """Return the parts by number: the dataset's own by relative paths, then others by absolute ones."""
    metadata = entries.schema.metadata
    own = [
        f"{metadata[b'table'].decode()}/{name}" for name in metadata[b"parts"].decode().split("\n")
    ]
    return [*own, *json.loads(metadata.get(b"mixed", b"[]"))]


def _part(folder: Folder, path: str) -> Part:
    place, _, name = path.rpartition("/")
    return Part(folder, path) if _is_relative(path) else Part(Folder(place), name)


def _is_relative(path: str) -> bool:
    return path.startswith("tables/")
