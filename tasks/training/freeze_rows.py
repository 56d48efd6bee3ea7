"""Rows that a run trains on: chosen of a preference table, frozen in one file, read one by one as examples.

Writes ``rows.arrow`` in the run's folder: which part, which row, some 60 bytes each, and the edits of people, which are
applied when a row is read. A resumed run reads that again, whatever has become of the dataset since: parts are never
changed. A row that cannot be trained on is refused with a reason, never cut to fit.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from pairwright.schemas.arrow import from_table, to_table
from pairwright.schemas.decisions import UNDECIDED, Decision, Decisions, latest
from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.rows import Dropped, PreferenceRow, Turn
from pairwright.tasks.store.dataset import Build
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.index import columns_without
from pairwright.tasks.store.part import Part, encode_part, read_rows
from pairwright.tasks.store.snapshot import live_index, stream_live
from pairwright.tasks.store.stage import Planned

PLACE = "<image>"
"""Stands for an image in a prompt; where a prompt has none, the images go before its first words."""
PAIR, UNPAIRED = 2, "images that are no pairs"
FILE, MIXED = "rows.arrow", "mixed"
SCHEMA = pa.schema([("part", pa.int32()), ("row", pa.int32()), ("key", pa.string()), ("split", pa.string())])
IMAGES = ("images", "rejected_images")
EDITS: TypeAdapter[list[Decision]] = TypeAdapter(list[Decision])
BATCH, ROWS_PER_PART = 1000, 25
"""Rows that are read at once, and that a part of mixed rows has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Record of a row that is not trained on."""

    key: str
    reason: str
    """A short constant phrase."""
    detail: str = ""


class RefusedRowError(Exception):
    """Row that cannot be trained on: a short constant phrase, and what differs from row to row."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason, self.detail = reason, detail
        super().__init__(f"{reason}: {detail}" if detail else reason)

    def about(self, key: str) -> Refused:
        """Return the record of the row."""
        return Refused(key=key, reason=self.reason, detail=self.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What an objective takes of a row."""

    texts: int = 0
    """Rejected texts, at the most."""
    images: bool = False
    """Whether the rejected images are shown."""
    beside: bool = True
    """Whether they are shown beside a rejected text, too; otherwise only where there is none."""
    every_answer: bool = False
    """Whether each answer of a conversation bears loss, not its last one alone."""
    rejected_side: bool = False
    """Whether a row must have a rejected text or rejected images."""
    pairs: bool = False
    """Whether its images are compared in twos (differential perception)."""
    held_out: frozenset[str] = frozenset()
    """Images that no row may show."""
    accepted: str = ""
    """Split of which only rows are taken that people accepted; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What one row gives to train on."""

    key: str
    turns: tuple[Turn, ...]
    """Prompt, up to the first answer that bears loss."""
    images: tuple[bytes, ...]
    """Encoded files."""
    chosen: str
    """That answer."""
    then: tuple[Turn, ...] = ()
    """Rest of the conversation: user and assistant in turn."""
    rejected: tuple[str, ...] = ()
    """Hardest first."""
    rejected_images: tuple[bytes, ...] = ()
    """As many as ``images``; empty: none."""

    @property
    def conversation(self) -> tuple[Turn, ...]:
        """Return all turns, the chosen text among them."""
        return (*self.turns, Turn(role="assistant", text=self.chosen), *self.then)


def make_example(row: PreferenceRow, needs: Needs) -> Example:
    """Return what a row gives; ``RefusedRowError`` where it cannot be trained on."""
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
    """Return the place of a conversation's first answer; ``len(row.prompt)``: the chosen text is the only one."""
    return next((n for n, turn in enumerate(row.prompt) if turn.role == "assistant"), len(row.prompt))


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
        raise RefusedRowError(UNPAIRED, f"{images}, where each is compared with another one")
    places = sum(turn.text.count(PLACE) for turn in row.prompt)
    if places and places != images:
        raise RefusedRowError("images do not match the prompt", f"{places} places for {images} images")
    if needs.every_answer:
        _check_turns(row.prompt[_first_answer(row) :])
    if needs.rejected_side and not rejected_texts(row) and not row.rejected_image_maker:
        raise RefusedRowError("no rejected side")


def _check_turns(turns: Sequence[Turn]) -> None:
    """Raise ``RefusedRowError`` where a conversation cannot go on so from its first answer."""
    if [turn.role for turn in turns] != ["assistant", "user"] * (len(turns) // 2):
        raise RefusedRowError("its turns do not alternate", " ".join(turn.role for turn in turns))
    if not all(turn.text.strip() for turn in turns):
        raise RefusedRowError("an empty turn")
    if any(PLACE in turn.text for turn in turns):
        raise RefusedRowError("an image behind the first answer")


def rejected_texts(row: PreferenceRow) -> tuple[str, ...]:
    """Return the rejected text and the further negatives, each once, without those equal to the chosen text."""
    texts = dict.fromkeys((row.rejected, *(negative.text for negative in row.negatives)))
    return tuple(text for text in texts if text.strip() and text != row.chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenRows:
    """Rows of one split, in the table's order; picklable, so that loading processes open them anew."""

    folder: Folder
    file: str
    """Path of ``rows.arrow``."""
    split: str

    def __len__(self) -> int:
        return len(_open(self.file, self.split))

    def keys(self) -> list[str]:
        """Return the rows' keys, in order."""
        return _open(self.file, self.split).column("key").to_pylist()

    def edits(self) -> Decisions:
        """Return the edits that were made when the rows were frozen."""
        return _read_edits(self.file)

    def read(self, place: int) -> PreferenceRow:
        """Return one row, its images included; ``StoreError`` where its part is gone or damaged."""
        return next(self._read(_open(self.file, self.split).slice(place, 1).to_pylist(), without=()))

    def read_texts(self) -> Iterator[PreferenceRow]:
        """Yield all rows without their images, in order; ``StoreError`` where a part is gone or damaged."""
        for _, some in groupby(_open(self.file, self.split).to_pylist(), key=lambda entry: entry["part"]):
            yield from self._read(list(some), without=IMAGES)

    def edited(self) -> dict[int, PreferenceRow]:
        """Return the rows that people edited, without their images, by place."""
        edits = self.edits()
        return {place: row for place, row in enumerate(self.read_texts()) if edits.about(row)} if edits else {}

    def _read(self, entries: Sequence[dict[str, Any]], *, without: Sequence[str]) -> Iterator[PreferenceRow]:
        part = _part(self.folder, _part_paths(_open(self.file, self.split))[entries[0]["part"]])
        edits = self.edits()
        found = read_rows(part, [entry["row"] for entry in entries], columns_without(PreferenceRow, without))
        for entry, row in zip(entries, from_table(found, PreferenceRow), strict=True):
            if row.key != entry["key"]:
                raise StoreError(
                    f"{part.path}: row {entry['key']} is no longer in it: its image was removed on request. Begin the "
                    "run anew under another --name"
                )
            yield edits.edit(row)


class Frozen(NamedTuple):
    """What was said of the rows of a run when they were frozen."""

    refused: list[Refused]
    decided: Counter[str]
    """How many of them people accepted, edited and rejected."""


def freeze_rows(
    build: Build,
    planned: Planned,
    file: Path,
    *,
    needs: Needs,
    splits: tuple[str, ...],
    decisions: Decisions = UNDECIDED,
) -> Frozen:
    """Write which rows of the splits of a settled table of ``PreferenceRow`` can be trained on; return the others."""
    refused, decided = list[Refused](), Counter[str]()
    index, columns = live_index(build, planned), columns_without(PreferenceRow, IMAGES)
    edits = EDITS.dump_json(decisions.edits())
    schema = SCHEMA.with_metadata({"table": planned.table, "parts": "\n".join(index.names), "edits": edits})
    with naming(str(file), "written"), pa.ipc.new_file(str(file), schema) as writer:
        for number, places in index.places():
            for start in range(0, len(places), BATCH):
                some = places[start : start + BATCH].tolist()
                rows = from_table(read_rows(index.part(number), some, columns), PreferenceRow)
                wanted = [(place, row) for place, row in zip(some, rows, strict=True) if row.split in splits]
                decided.update(one.verdict for _, row in wanted if (one := decisions.about(row)))
                why_not = {row.key: why for _, row in wanted if (why := _refuse(row, needs, decisions))}
                refused += why_not.values()
                kept = ((place, row) for place, row in wanted if row.key not in why_not)
                entries = [{"part": number, "row": place, "key": row.key, "split": row.split} for place, row in kept]
                writer.write_batch(pa.RecordBatch.from_pylist(entries, schema=schema))
    _forget_open()
    return Frozen(refused, decided)


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
    """Return how many rows of a split were frozen."""
    return len(_open(str(file), split))


def check_parts(folder: Folder, file: Path) -> None:
    """Raise ``TrainingError`` where a part that holds frozen rows is gone."""
    for path in sorted(frozen_places(file)):
        if not (part := _part(folder, path)).folder.exists(part.name):
            raise TrainingError(
                f"{part.path}: this run's rows are in it, and it is gone. A build with the same settings "
                "writes it again, byte for byte; or begin anew under another --name"
            )


def frozen_places(file: Path) -> dict[str, set[int]]:
    """Return where the frozen rows are: per part its rows. Those of other folders begin with where these are."""
    entries = _open(str(file))
    paths, found = _part_paths(entries), dict[str, set[int]]()
    for entry in entries.select(["part", "row"]).to_pylist():
        found.setdefault(paths[entry["part"]], set()).add(entry["row"])
    return found


def find_held_out(build: Build, planned: Planned, split: str) -> frozenset[str]:
    """Return the images of a settled table's rows that are not of a split."""
    rows = (row for table in stream_live(build, planned, ["image_keys", "split"]) for row in table.to_pylist())
    return frozenset(key for row in rows if row["split"] != split for key in row["image_keys"])


def write_rows(
    rows: Iterable[PreferenceRow | Dropped], file: Path, *, needs: Needs, split: str, most: int
) -> list[Refused]:
    """Write the first ``most`` rows that can be trained on as parts beside a file, and into it which they are.

    Return those before them that cannot be trained on.
    """
    refused, entries, names = list[Refused](), list[dict[str, Any]](), list[str]()
    good, folder = islice(_sift(rows, needs, refused), most), Folder(str(file.parent))
    while some := list(islice(good, ROWS_PER_PART)):
        entries += [{"part": len(names), "row": n, "key": row.key, "split": split} for n, row in enumerate(some)]
        names.append(f"{file.stem}-{len(names):05}.parquet")
        folder.write(names[-1], encode_part(to_table(some, PreferenceRow), {}))
    schema = SCHEMA.with_metadata({"table": str(file.parent.absolute()), "parts": "\n".join(names)})
    _write(file, pa.Table.from_pylist(entries, schema=schema))
    return refused


def _sift(rows: Iterable[PreferenceRow | Dropped], needs: Needs, refused: list[Refused]) -> Iterator[PreferenceRow]:
    for row in rows:
        if isinstance(row, Dropped):
            refused.append(Refused(key=row.source_key, reason=row.reason, detail=row.detail))
        elif why := _refuse(row, needs, UNDECIDED):
            refused.append(why)
        else:
            yield row


def mix_rows(file: Path, other: Path, folder: Folder, *, rows: int, seed: int) -> int:
    """Add so many frozen rows of another file, drawn, to a run's; return how many different ones they are.

    Where there are fewer, they come again, none twice before each has come. ``folder``: of the dataset they are of.
    """
    own, found = _open(str(file)), _open(str(other))
    drawn = np.resize(np.random.default_rng(seed).permutation(len(found)), rows)
    parts = pa.array(found["part"].to_numpy() + len(_part_paths(own)), pa.int32())
    added = found.set_column(0, SCHEMA.field("part"), parts).take(pa.array(drawn))
    told = [{name.decode(): value for name, value in (one.schema.metadata or {}).items()} for one in (own, found)]
    paths = [f"{folder.url}/{path}" if _is_own(path) else path for path in _part_paths(found)]
    edits = [edit for one in told for edit in EDITS.validate_json(one.get("edits", "[]"))]
    mixed = {"mixed": json.dumps([*json.loads(told[0].get("mixed", "[]")), *paths]), "edits": EDITS.dump_json(edits)}
    _write(file, pa.concat_tables([own, added]).replace_schema_metadata(told[0] | mixed))
    return min(rows, len(found))


def count_reasons(refused: list[Refused]) -> dict[str, int]:
    """Return how many rows were refused for each reason, most first."""
    return dict(Counter(one.reason for one in refused).most_common())


@lru_cache(maxsize=8)
def _open(file: str, split: str | None = None) -> pa.Table:
    """Return the entries of a split; ``None``: of all."""
    try:
        table = pa.ipc.open_file(pa.memory_map(file)).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{file}: cannot be read: {error}. Start the run anew under another --name") from error
    return table if split is None else table.filter(pc.field("split") == split)


@lru_cache(maxsize=8)
def _read_edits(file: str) -> Decisions:
    return latest(EDITS.validate_json((_open(file).schema.metadata or {}).get(b"edits", b"[]")))


def _forget_open() -> None:
    """Forget the files that are open: one of them was written anew."""
    _open.cache_clear()
    _read_edits.cache_clear()


def _write(file: Path, entries: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, entries.schema) as writer:
        writer.write_table(entries)
    Folder(str(file.parent)).write(file.name, sink.getvalue())
    _forget_open()


def _part_paths(entries: pa.Table) -> list[str]:
    """Return the parts by number: the dataset's own by their paths below its folder, then others by where they are."""
    metadata = entries.schema.metadata or {}
    own = [f"{metadata[b'table'].decode()}/{name}" for name in metadata[b"parts"].decode().split("\n")]
    return [*own, *json.loads(metadata.get(b"mixed", b"[]"))]


def _part(folder: Folder, path: str) -> Part:
    place, _, name = path.rpartition("/")
    return Part(folder, path) if _is_own(path) else Part(Folder(place), name)


def _is_own(path: str) -> bool:
    return path.startswith("tables/")
