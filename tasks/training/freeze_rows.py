"""Rows of a run: chosen from a preference table, frozen in one file, read one by one as examples.

Writes ``rows.arrow`` into the run's folder: part and row numbers, some 60 bytes each, and people's
edits, applied when a row is read. A resumed run reads the same file, whatever has happened to the
dataset: parts never change. A row that cannot be trained on is refused with a reason, never cut to
fit.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import TypeAdapter

from pairwright.prompts import difference_verbs, use_prompts
from pairwright.prompts.difference_prompts import VERBS
from pairwright.schemas.arrow import from_table, to_table
from pairwright.schemas.control_tokens import refuse_conversation
from pairwright.schemas.decisions import EDITED, UNDECIDED, Decision, Decisions, latest_decisions
from pairwright.schemas.errors import StoreError, TrainingError
from pairwright.schemas.rows import Dropped, PreferenceRow, Turn
from pairwright.tasks.store.files import Folder, naming
from pairwright.tasks.store.index import Index, columns_without
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.part import Part, encode_part, read_positions
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
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}" if detail else reason)

    def to_refused(self, key: str) -> Refused:
        """Return the record of the row."""
        return Refused(key=key, reason=self.reason, detail=self.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Parts of a row that an objective uses."""

    texts: int = 0  # maximum number of rejected texts
    images: bool = False  # whether rejected images are used
    # whether they are used in addition to a rejected text, or only in place of one
    beside: bool = True
    # whether a pair is also shown in the other order, with the text of that order
    exchanged: bool = False
    # whether each answer of a conversation carries loss, or the last one alone
    every_answer: bool = False
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
    # text of the other order of the images, which then are the rejected ones; empty: none
    exchanged: str = ""

    @property
    def conversation(self) -> tuple[Turn, ...]:
        """Return all turns, the chosen text included."""
        return (*self.turns, Turn(role="assistant", text=self.chosen), *self.then)


def make_example(row: PreferenceRow, needs: Needs) -> Example:
    """Return a row's example; ``RefusedRowError`` where it cannot be trained on."""
    check_trainable(row, needs)
    exchanged = _find_exchanged(row) if needs.exchanged else ""
    rejected = [text for text in rejected_texts(row) if text != exchanged][: needs.texts]
    rejected_images: tuple[bytes, ...] = ()
    if needs.images and (needs.beside or not rejected):
        rejected_images = row.rejected_images
    if exchanged:
        rejected_images = row.images[::-1]
    if rejected_images and len(rejected_images) != len(row.images):
        raise RefusedRowError(
            "rejected images do not match", f"{len(rejected_images)} for {len(row.images)}"
        )
    turns = (*row.prompt, Turn(role="assistant", text=row.chosen.strip()))
    first = _first_answer(row) if needs.every_answer else len(row.prompt)
    return Example(
        key=row.key,
        turns=turns[:first],
        images=row.images,
        chosen=turns[first].text.strip(),
        then=tuple(map(_strip_answer, turns[first + 1 :])),
        rejected=tuple(rejected),
        rejected_images=rejected_images,
        exchanged=exchanged,
    )


def _find_exchanged(row: PreferenceRow) -> str:
    """Return the text of a pair in the other order: its text, with first and second exchanged.

    Empty: none, or people changed the chosen text, of which it would no longer be the exchange.
    """
    if len(row.images) != PAIR or row.chosen_model.endswith(EDITED):
        return ""
    texts = {row.rejected_maker: row.rejected}
    for negative in row.negatives:
        texts.setdefault(negative.maker, negative.text)
    exchanged = texts.get("swapped", "").strip()
    return "" if exchanged == row.chosen.strip() else exchanged


def _strip_answer(turn: Turn) -> Turn:
    """Return a turn, an answer without white space around it, which chat templates trim."""
    return replace(turn, text=turn.text.strip()) if turn.role == "assistant" else turn


def _first_answer(row: PreferenceRow) -> int:
    """Return the position of a conversation's first answer; of the chosen text without others."""
    for position, turn in enumerate(row.prompt):
        if turn.role == "assistant":
            return position
    return len(row.prompt)


def check_trainable(row: PreferenceRow, needs: Needs) -> None:
    """Raise ``RefusedRowError`` where a row's texts show that it cannot be trained on."""
    if not row.chosen.strip():
        raise RefusedRowError("no chosen text")
    if not row.prompt or row.prompt[-1].role != "user":
        raise RefusedRowError("the prompt does not end with the user")
    _check_images(row, needs)
    _check_control(row)
    if needs.every_answer:
        _check_turns(row.prompt[_first_answer(row) :])
    has_images = needs.images and bool(row.rejected_image_maker)
    if needs.rejected_side and not rejected_texts(row) and not has_images:
        raise RefusedRowError("no rejected side")


def _check_control(row: PreferenceRow) -> None:
    """Refuse control tokens of any chat format, also of others than the model's own."""
    refused = refuse_conversation(row.prompt, (row.chosen, *rejected_texts(row)))
    if refused:
        raise RefusedRowError(f"{refused.reason} in a text", refused.detail)


def _check_images(row: PreferenceRow, needs: Needs) -> None:
    images = len(row.image_keys)
    held_out = needs.held_out.intersection(row.image_keys)
    if held_out:
        raise RefusedRowError("shows a held-out image", min(held_out))
    if needs.pairs and (not images or images % PAIR):
        raise RefusedRowError(UNPAIRED, f"{images} images")
    placeholders = sum(turn.text.count(PLACE) for turn in row.prompt)
    if placeholders and placeholders != images:
        raise RefusedRowError(
            "images do not match the prompt", f"{placeholders} places for {images} images"
        )


def _check_turns(turns: Sequence[Turn]) -> None:
    """Check the turns of a conversation from its first answer to its last question."""
    roles = [turn.role for turn in turns]
    if roles != ["assistant", "user"] * (len(turns) // 2):
        raise RefusedRowError("its turns do not alternate", " ".join(roles))
    if not all(turn.text.strip() for turn in turns):
        raise RefusedRowError("an empty turn")
    if any(PLACE in turn.text for turn in turns):
        raise RefusedRowError("an image behind the first answer")


def rejected_texts(row: PreferenceRow) -> tuple[str, ...]:
    """Return the rejected text and further negatives, distinct, without the chosen text.

    White space around them, which chat templates trim, does not count.
    """
    texts = [row.rejected, *(negative.text for negative in row.negatives)]
    different = dict.fromkeys(text.strip() for text in texts)
    return tuple(text for text in different if text and text != row.chosen.strip())


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

    @property
    def verbs(self) -> tuple[str, ...]:
        """Return the verbs that a half of a description may begin with."""
        verbs = _open(self.file).schema.metadata.get(b"verbs", b"").decode()
        return tuple(verbs.split("\n")) if verbs else difference_verbs()

    def frozen_edits(self) -> Decisions:
        """Return people's edits as of the freeze."""
        return _read_edits(self.file)

    def read(self, position: int) -> PreferenceRow:
        """Return one row with its images; ``StoreError`` where its part is missing or damaged."""
        entries = _open(self.file, self.split).slice(position, 1).to_pylist()
        return next(self._read(entries, without=()))

    def read_texts(self) -> Iterator[PreferenceRow]:
        """Yield all rows without images; ``StoreError`` where a part is missing or damaged."""
        entries = _open(self.file, self.split).to_pylist()
        for _, entries_of_part in groupby(entries, key=itemgetter("part")):
            yield from self._read(list(entries_of_part), without=IMAGES)

    def edited(self) -> dict[int, PreferenceRow]:
        """Return edited rows without images, by position."""
        edits = self.frozen_edits()
        if not edits:
            return {}
        rows = enumerate(self.read_texts())
        return {position: row for position, row in rows if edits.decision_on(row)}

    def _read(
        self, entries: Sequence[dict[str, Any]], *, without: Sequence[str]
    ) -> Iterator[PreferenceRow]:
        """Yield rows of one part, as edited by people."""
        path = _part_paths(_open(self.file, self.split))[entries[0]["part"]]
        part = _part(self.folder, path)
        edits = self.frozen_edits()
        row_numbers = [entry["row"] for entry in entries]
        table = read_positions(part, row_numbers, columns_without(PreferenceRow, without))
        for entry, row in zip(entries, from_table(table, PreferenceRow), strict=True):
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
    refuse: Callable[[PreferenceRow], Refused | None] | None = None,
) -> tuple[list[Refused], Counter[str]]:
    """Write the trainable rows of the splits of a resolved ``PreferenceRow`` table.

    ``refuse``: further reasons against a row. Returns the others, and how many rows people
    accepted, edited and rejected.
    """
    refused = list[Refused]()
    verdicts = Counter[str]()
    index = live_index(build, planned)
    metadata = {
        "table": planned.table_path,
        "parts": "\n".join(index.names),
        "edits": EDITS.dump_json(decisions.edits()),
        "verbs": "\n".join(_find_verbs(build)),
    }
    schema = SCHEMA.with_metadata(metadata)
    with naming(str(file), "written"), pa.ipc.new_file(str(file), schema) as writer:
        for batch in _read_batches(index, splits):
            entries = list[dict[str, Any]]()
            for part, row_number, row in batch:
                decision = decisions.decision_on(row)
                if decision:
                    verdicts[decision.verdict] += 1
                refusal = _refuse(row, needs, decisions)
                if refuse and not refusal:
                    refusal = refuse(row)
                if refusal:
                    refused.append(refusal)
                else:
                    entries.append(_make_entry(part, row_number, row.key, row.split))
            writer.write_batch(pa.RecordBatch.from_pylist(entries, schema=schema))
    _clear_caches()
    return refused, verdicts


def _find_verbs(build: Build) -> tuple[str, ...]:
    """Return the verbs of a dataset's descriptions, which a user may have replaced."""
    for planned in build.planned:
        if VERBS in planned.prompts:
            with use_prompts(planned.prompts):
                return difference_verbs()
    return difference_verbs()


def _read_batches(
    index: Index, splits: tuple[str, ...]
) -> Iterator[list[tuple[int, int, PreferenceRow]]]:
    """Yield part, row number and row, without images, of the rows of some splits."""
    columns = columns_without(PreferenceRow, IMAGES)
    for part, row_numbers in index.group_by_part():
        for start in range(0, len(row_numbers), BATCH):
            some = row_numbers[start : start + BATCH].tolist()
            rows = from_table(read_positions(index.part(part), some, columns), PreferenceRow)
            numbered = zip(some, rows, strict=True)
            yield [(part, number, row) for number, row in numbered if row.split in splits]


def _make_entry(part: int, row: int, key: str, split: str) -> dict[str, Any]:
    """Return an entry of ``rows.arrow``."""
    return {"part": part, "row": row, "key": key, "split": split}


def _refuse(row: PreferenceRow, needs: Needs, decisions: Decisions) -> Refused | None:
    decision = decisions.decision_on(row)
    if decision and decision.verdict == "reject":
        return Refused(key=row.key, reason="rejected by people")
    if needs.accepted and row.split == needs.accepted and not decision:
        return Refused(key=row.key, reason="not accepted by people")
    try:
        check_trainable(decisions.edit(row), needs)
    except RefusedRowError as error:
        return error.to_refused(row.key)
    return None


def refuse_easy(key: str, hardness: Mapping[str, float], least: float) -> Refused | None:
    """Refuse a row that a blind model answers right, or was not asked about."""
    value = hardness.get(key)
    if value is None:
        return Refused(key=key, reason="its hardness is not known")
    if value < least:
        detail = f"hardness {value:.2f}, data.min_hardness is {least:g}"
        return Refused(key=key, reason="expected without the images", detail=detail)
    return None


def draw_rows(file: Path, split: str, hardness: Mapping[str, float], *, seed: int) -> None:
    """Replace the frozen rows of a split by as many, drawn with their hardness as weight."""
    entries = _open(str(file))
    rows = entries.filter(pc.field("split") == split)
    weights = np.array([hardness[key] for key in rows["key"].to_pylist()])
    if not weights.sum():
        raise TrainingError("data.draw_by_hardness: a blind model is sure of all training rows")
    rng = np.random.default_rng(seed)
    drawn = np.sort(rng.choice(len(rows), len(rows), p=weights / weights.sum()))
    others = entries.filter(pc.field("split") != split)
    _write(file, pa.concat_tables([rows.take(pa.array(drawn)), others]))


def count_frozen(file: Path, split: str) -> int:
    """Return how many rows of a split are frozen."""
    return len(_open(str(file), split))


def check_frozen_parts(folder: Folder, file: Path) -> None:
    """Raise ``TrainingError`` where a part with frozen rows is missing."""
    for path in sorted(frozen_places(file)):
        part = _part(folder, path)
        if not part.folder.exists(part.name):
            raise TrainingError(
                f"{part.path}: missing: build the same again, or start over with another --name"
            )


def frozen_places(file: Path) -> dict[str, set[int]]:
    """Return the row numbers of each part; parts of other folders have absolute paths."""
    entries = _open(str(file))
    paths = _part_paths(entries)
    row_numbers = dict[str, set[int]]()
    for entry in entries.select(["part", "row"]).to_pylist():
        row_numbers.setdefault(paths[entry["part"]], set()).add(entry["row"])
    return row_numbers


def places_by_dataset(folder: Folder, file: Path) -> dict[str, dict[str, set[int]]]:
    """Return the row numbers of each part by dataset; rows of files are of none."""
    datasets: dict[str, dict[str, set[int]]] = {}
    for path, row_numbers in frozen_places(file).items():
        if _is_relative(path):
            datasets.setdefault(folder.url, {})[path] = row_numbers
        elif "/tables/" in path:
            url, _, name = path.rpartition("/tables/")
            datasets.setdefault(url, {})[f"tables/{name}"] = row_numbers
    return datasets


def count_about(folder: Folder, places: Mapping[str, set[int]], keys: Collection[str]) -> int:
    """Return how many rows at places in parts have one of some keys, or are about one."""
    count = 0
    for path, row_numbers in places.items():
        table = read_positions(Part(folder, path), sorted(row_numbers), ["key", "subject"])
        for row in table.to_pylist():
            count += row["key"] in keys or row["subject"] in keys
    return count


def find_held_out(build: Build, planned: Planned, split: str) -> frozenset[str]:
    """Return the images of a resolved table's rows outside a split."""
    keys = set[str]()
    for table in stream_live(build, planned, ["image_keys", "split"]):
        for row in table.to_pylist():
            if row["split"] != split:
                keys.update(row["image_keys"])
    return frozenset(keys)


def write_rows(
    rows: Iterable[PreferenceRow | Dropped], file: Path, *, needs: Needs, split: str, limit: int
) -> list[Refused]:
    """Write the first ``limit`` trainable rows as parts beside a file, and the file.

    Return the refused rows before them.
    """
    refused = list[Refused]()
    entries = list[dict[str, Any]]()
    names = list[str]()

    def trainable() -> Iterator[PreferenceRow]:
        for row in rows:
            if isinstance(row, Dropped):
                refused.append(Refused(key=row.source_key, reason=row.reason, detail=row.detail))
                continue
            refusal = _refuse(row, needs, UNDECIDED)
            if refusal:
                refused.append(refusal)
            else:
                yield row

    chosen = islice(trainable(), limit)
    folder = Folder(str(file.parent))
    while part_rows := list(islice(chosen, ROWS_PER_PART)):
        number = len(names)
        for row_number, row in enumerate(part_rows):
            entries.append(_make_entry(number, row_number, row.key, split))
        names.append(f"{file.stem}-{number:05}.parquet")
        folder.write(names[-1], encode_part(to_table(part_rows, PreferenceRow), {}))
    schema = SCHEMA.with_metadata({"table": str(file.parent.absolute()), "parts": "\n".join(names)})
    _write(file, pa.Table.from_pylist(entries, schema=schema))
    return refused


def mix_rows(file: Path, other: Path, folder: Folder, *, rows: int, seed: int) -> int:
    """Add ``rows`` random frozen rows of another file to a run's; return how many are distinct.

    Rows repeat only after all have been drawn. ``folder`` is the other rows' dataset.
    """
    own_rows = _open(str(file))
    other_rows = _open(str(other))
    permutation = np.random.default_rng(seed).permutation(len(other_rows))
    drawn = pa.array(np.resize(permutation, rows))
    parts = other_rows["part"].to_numpy() + len(_part_paths(own_rows))
    renumbered = other_rows.set_column(0, SCHEMA.field("part"), pa.array(parts, pa.int32()))
    metadata = own_rows.schema.metadata
    paths = json.loads(metadata.get(b"mixed", b"[]")) + _absolute_paths(other_rows, folder)
    edits = _edits(own_rows) + _edits(other_rows)
    metadata |= {b"mixed": json.dumps(paths).encode(), b"edits": EDITS.dump_json(edits)}
    mixed = pa.concat_tables([own_rows, renumbered.take(drawn)])
    _write(file, mixed.replace_schema_metadata(metadata))
    return min(rows, len(other_rows))


def count_reasons(refused: Iterable[Refused]) -> dict[str, int]:
    """Return how many rows were refused for each reason, most frequent first."""
    return dict(Counter(row.reason for row in refused).most_common())


def list_reasons(refused: Iterable[Refused]) -> str:
    """Return the reasons with their numbers, most frequent first, for a message."""
    reasons = count_reasons(refused)
    return ", ".join(f"{reason} ({count:,})" for reason, count in reasons.items())


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
    return latest_decisions(_edits(_open(file)))


def _edits(entries: pa.Table) -> list[Decision]:
    return EDITS.validate_json(entries.schema.metadata.get(b"edits", b"[]"))


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
    """Return the parts by number: the dataset's by relative paths, then others by absolute ones."""
    metadata = entries.schema.metadata
    table = metadata[b"table"].decode()
    names = metadata[b"parts"].decode().split("\n")
    paths = [f"{table}/{name}" for name in names]
    return paths + json.loads(metadata.get(b"mixed", b"[]"))


def _absolute_paths(entries: pa.Table, folder: Folder) -> list[str]:
    paths = _part_paths(entries)
    return [f"{folder.url}/{path}" if _is_relative(path) else path for path in paths]


def _part(folder: Folder, path: str) -> Part:
    if _is_relative(path):
        return Part(folder, path)
    other_folder, _, name = path.rpartition("/")
    return Part(Folder(other_folder), name)


def _is_relative(path: str) -> bool:
    return path.startswith("tables/")
