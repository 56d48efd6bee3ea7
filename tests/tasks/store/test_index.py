"""The index of live rows, by which every row about a subject is found; vectors of all images as
matrices."""

import os
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import CaptionRow, EmbeddingRow, ImageRow, make_key
from pairwright.tasks.store import index as index_module
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.index import Index, columns_without, open_index, write_index
from pairwright.tasks.store.open_tables import Build, write_items
from pairwright.tasks.store.part import encode_part
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.vectors import open_vectors, write_vectors
from tests.fixtures.rows import row_of
from tests.tasks.store.toy import ToyConfig, build_toy, list_words, plan_toy

TABLE = "tables/captions/0"
PARTS = {"part-a.parquet": 250, "part-b.parquet": 3, "part-c.parquet": 101}


def _row(part: str, row: int) -> CaptionRow:
    subject = make_key(
        "subject", row % 90
    )  # about four rows of the first part, and some of the others, per subject
    return row_of(CaptionRow, part, row, source=subject, text=f"{part} {row}")


ROWS = {name: [_row(name, row) for row in range(count)] for name, count in PARTS.items()}
LIVE = {name: [row for row in range(count) if row % 3] for name, count in PARTS.items()}
"""Of each part, the rows that count."""


def _entries(
    places: Iterable[tuple[str, int, int]], chunk: int | None = None
) -> pa.RecordBatchReader:
    """Return the index of rows: their subject, and their place by part and row."""
    found = [
        {"subject": bytes.fromhex(subject), "part": part, "row": row}
        for subject, part, row in sorted(places)
    ]
    return pa.Table.from_pylist(found).to_reader(max_chunksize=chunk)


@pytest.fixture(params=["local", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    folder = Folder(str(tmp_path) if request.param == "local" else f"memory://index{tmp_path}")
    for name, rows in ROWS.items():
        folder.write(f"{TABLE}/{name}", encode_part(to_table(rows, CaptionRow), {}))
    places = [
        (ROWS[name][row].subject, n, row) for n, name in enumerate(PARTS) for row in LIVE[name]
    ]
    write_index(tmp_path / "index.arrow", _entries(places, 7), list(PARTS))
    if request.param == "memory":
        folder.write("index.arrow", (tmp_path / "index.arrow").read_bytes())
    return open_index(folder, "index.arrow", TABLE)


def _live() -> list[CaptionRow]:
    return [ROWS[name][row] for name in PARTS for row in LIVE[name]]


def test_every_live_row_about_a_subject_is_found(index: Index) -> None:
    columns = columns_without(CaptionRow, ())
    for numbers in ([4], [80, 4, 4, 17], ["none"], []):
        subjects = [make_key("subject", number) for number in numbers]
        found = index.rows(index.find(subjects), CaptionRow, columns)
        right = [row for row in _live() if row.subject in subjects]
        assert sorted(row.key for row in found) == sorted(row.key for row in right)
    assert len(index) == len(_live())


def test_rows_come_part_by_part_with_the_columns_asked_for(index: Index) -> None:
    positions = list(range(len(index)))
    random.Random(0).shuffle(positions)
    rows = list(index.rows(positions, CaptionRow, columns_without(CaptionRow, ["sentences"])))
    assert rows == _live()
    assert {
        row.text for row in index.rows([0, 1], CaptionRow, columns_without(CaptionRow, ["text"]))
    } == {None}


def test_subjects_are_listed_once(index: Index) -> None:
    subjects = [key.decode() for key in index.images]
    assert subjects == sorted({row.subject for row in _live()})


def test_subjects_that_share_their_first_half_are_told_apart(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    subjects = [f"{'a' * 16}{n:016x}" for n in range(5)] + [f"{'b' * 16}{0:016x}"]
    write_index(
        tmp_path / "x",
        _entries((subject, 0, row) for row, subject in enumerate(subjects)),
        ["part"],
    )
    index = open_index(folder, "x", TABLE)
    for row, subject in enumerate(subjects):
        assert index.find([subject]).tolist() == [row]
    assert index.find([f"{'a' * 16}{9:016x}"]).tolist() == []


def test_an_empty_table_has_an_empty_index(tmp_path: Path) -> None:
    kinds = {"subject": pa.binary(), "part": pa.int32(), "row": pa.int32()}
    write_index(tmp_path / "x", pa.schema(kinds).empty_table().to_reader(), [])
    index = open_index(Folder(str(tmp_path)), "x", TABLE)
    assert (
        len(index),
        index.names,
        list(index.tables(["text"])),
        list(index.batches(["text"])),
    ) == (0, (), [], [])
    assert index.find([make_key(1)]).tolist() == []
    assert index.images.tolist() == []
    assert list(index.rows(np.empty(0, np.int64), CaptionRow, ["key"])) == []


WORDS = [f"word{number:03d}" for number in range(25)]


@pytest.fixture
def toy(tmp_path):
    """Build the toy dataset, then take five words away; yield it settled."""
    build_toy(tmp_path, WORDS, rows_per_shard=10)
    planned = plan_toy(ToyConfig())
    folder = Folder(str(tmp_path))
    with Build(folder, planned, write_items(folder, list_words(WORDS[5:])), 10) as build:
        counts = [build.settle(stage) for stage in planned]
        yield build, planned, counts


def test_streamed_rows_are_the_live_ones_in_the_order_of_the_parts(toy, monkeypatch):
    build, planned, _ = toy
    monkeypatch.setattr(index_module, "ROWS_PER_GROUP", 4)  # cuts the streamed tables, not the file
    reads, read = [], index_module.read_rows

    def note(part, rows, columns):
        reads.append((part.name, tuple(rows)))
        return read(part, rows, columns)

    monkeypatch.setattr(index_module, "read_rows", note)
    table = pa.concat_tables(stream_live(build, planned[0], ["key", "name"]))
    assert sorted(table.column("name").to_pylist()) == WORDS[5:]
    assert reads == sorted(reads)
    assert all(rows[-1] // 4 == rows[0] // 4 for _, rows in reads)
    places = [(name, row) for name, rows in reads for row in rows]
    assert len(places) == len(set(places)) == 20


def test_rows_are_found_by_subject(toy):
    build, planned, _ = toy
    rows = find_live(build, planned[0], ImageRow)
    wanted = [rows[3].key, rows[11].key, "0" * 32]
    found = find_live(build, planned[0], ImageRow, subjects=wanted, without=("image",))
    right = sorted([rows[3], rows[11]], key=lambda row: row.subject)
    assert [(row.key, row.name, row.image) for row in found] == [
        (row.key, row.name, b"") for row in right
    ]
    assert find_live(build, planned[0], ImageRow, subjects=[]) == []


IMAGES = [make_key("image", number) for number in range(7)]
SIZES = {"colour": 3, "shape": 5}


def _vector(image: str, embedder: str) -> EmbeddingRow:
    vector = np.random.default_rng([int(image[:8], 16), SIZES[embedder]]).normal(
        size=SIZES[embedder]
    )
    length = float(np.linalg.norm(vector))
    unit = tuple(np.float16(vector / length).tolist())
    norm = np.float32(length).item()
    return row_of(
        EmbeddingRow, image, embedder, source=image, embedder=embedder, vector=unit, norm=norm
    )


def _index(root: Path, rows: list[EmbeddingRow]) -> Index:
    """Write the rows as two parts and index them."""
    folder = Folder(str(root))
    parts = {"part-0": rows[:5], "part-1": rows[5:]}
    for name, some in parts.items():
        folder.write(f"tables/e/0/{name}", encode_part(to_table(some, EmbeddingRow), {}))
    places = [
        (row.subject, n, number)
        for n, some in enumerate(parts.values())
        for number, row in enumerate(some)
    ]
    write_index(root / "index", _entries(places), list(parts))
    return open_index(folder, "index", "tables/e/0")


def test_every_vector_is_found_by_its_image(tmp_path: Path) -> None:
    rows = [_vector(image, embedder) for image in IMAGES for embedder in SIZES]
    write_vectors(tmp_path / "vectors", _index(tmp_path, rows))
    opened = open_vectors(tmp_path / "vectors")
    assert list(opened) == sorted(SIZES)
    for row in rows:
        vectors = opened[row.embedder]
        (place,) = vectors.rows_of([row.subject])
        assert tuple(vectors.matrix[place].tolist()) == row.vector
        assert vectors.norms[place].item() == row.norm
    shape = opened["shape"]
    assert (shape.matrix.dtype, shape.matrix.shape, shape.norms.dtype) == (
        np.float16,
        (7, 5),
        np.float32,
    )
    assert [key.decode() for key in shape.keys] == sorted(IMAGES)
    asked = [IMAGES[5], IMAGES[0], IMAGES[5]]
    assert [shape.keys[place].decode() for place in shape.rows_of(asked)] == asked


def test_an_embedder_that_misses_an_image_is_named(tmp_path: Path) -> None:
    rows = [_vector(image, embedder) for image in IMAGES for embedder in SIZES][:-1]
    with pytest.raises(StoreError, match=r"\b1 images .*shape.*pairwright resume"):
        write_vectors(tmp_path / "vectors", _index(tmp_path, rows))


def test_their_room_on_the_disk_is_taken_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk must be an error here: writing to a map of a file that has no room ends the
    process."""

    def refuse(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_vectors(
            tmp_path / "vectors", _index(tmp_path, [_vector(image, "colour") for image in IMAGES])
        )
