"""The index of live rows by their subjects; vectors of all images as matrices."""

import os
import random
from collections.abc import Iterable, Iterator, Sequence
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
from pairwright.tasks.store.open_tables import Build
from pairwright.tasks.store.part import Part, encode_part
from pairwright.tasks.store.snapshot import find_live, stream_live
from pairwright.tasks.store.vectors import open_vectors, write_vectors
from tests.fixtures.rows import row_of
from tests.tasks.store.faults import fail
from tests.tasks.store.toy import build_toy, settled_toy

TABLE = "tables/captions/0"
PARTS = {"part-a.parquet": 250, "part-b.parquet": 3, "part-c.parquet": 101}


def caption(part: str, row: int) -> CaptionRow:
    """About four rows of the first part, and some of the others, share a subject."""
    return row_of(CaptionRow, part, row, source=make_key("subject", row % 90), text=f"{part} {row}")


ROWS = {name: [caption(name, row) for row in range(count)] for name, count in PARTS.items()}
LIVE = {name: [row for row in range(count) if row % 3] for name, count in PARTS.items()}
"""Of each part, the rows that count."""
LIVE_ROWS = [ROWS[name][row] for name in PARTS for row in LIVE[name]]
ALL = columns_without(CaptionRow, ())


def entries(
    places: Iterable[tuple[str, int, int]], chunk: int | None = None
) -> pa.RecordBatchReader:
    """Return the index of rows: their subject, and their place by part and row."""
    rows = [
        {"subject": bytes.fromhex(subject), "part": part, "row": row}
        for subject, part, row in sorted(places)
    ]
    return pa.Table.from_pylist(rows).to_reader(max_chunksize=chunk)


@pytest.fixture(params=["local", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    folder = Folder({"local": str(tmp_path), "memory": f"memory://index{tmp_path}"}[request.param])
    for name, rows in ROWS.items():
        folder.write(f"{TABLE}/{name}", encode_part(to_table(rows, CaptionRow), {}))
    places = [
        (ROWS[name][row].subject, n, row) for n, name in enumerate(PARTS) for row in LIVE[name]
    ]
    write_index(tmp_path / "written.arrow", entries(places, 7), list(PARTS))
    folder.write("index.arrow", (tmp_path / "written.arrow").read_bytes())
    return open_index(folder, "index.arrow", TABLE)


@pytest.mark.parametrize("numbers", [[4], [80, 4, 4, 17], ["none"], []])
def test_every_live_row_about_a_subject_is_found(index: Index, numbers: list[object]) -> None:
    subjects = [make_key("subject", number) for number in numbers]
    keys = [row.key for row in index.rows_at(index.find_positions(subjects), CaptionRow, ALL)]
    assert sorted(keys) == sorted(row.key for row in LIVE_ROWS if row.subject in subjects)
    assert len(index) == len(LIVE_ROWS)


def test_rows_come_part_by_part_with_the_columns_asked_for(index: Index) -> None:
    positions = list(range(len(index)))
    random.Random(0).shuffle(positions)
    columns = columns_without(CaptionRow, ["sentences"])
    assert list(index.rows_at(positions, CaptionRow, columns)) == LIVE_ROWS
    textless = index.rows_at([0, 1], CaptionRow, columns_without(CaptionRow, ["text"]))
    assert {row.text for row in textless} == {None}
    subjects = [key.decode() for key in index.subjects]
    assert subjects == sorted({row.subject for row in LIVE_ROWS})


def test_subjects_that_share_their_first_half_are_told_apart(tmp_path: Path) -> None:
    subjects = [f"{'a' * 16}{n:016x}" for n in range(5)] + [f"{'b' * 16}{0:016x}"]
    places = ((subject, 0, row) for row, subject in enumerate(subjects))
    write_index(tmp_path / "x", entries(places), ["part"])
    index = open_index(Folder(str(tmp_path)), "x", TABLE)
    assert [index.find_positions([subject]).tolist() for subject in subjects] == [
        [n] for n in range(6)
    ]
    assert index.find_positions([f"{'a' * 16}{9:016x}"]).tolist() == []


def test_an_empty_table_has_an_empty_index(tmp_path: Path) -> None:
    kinds = {"subject": pa.binary(), "part": pa.int32(), "row": pa.int32()}
    write_index(tmp_path / "x", pa.schema(kinds).empty_table().to_reader(), [])
    index = open_index(Folder(str(tmp_path)), "x", TABLE)
    assert (len(index), index.names, index.subjects.tolist()) == (0, (), [])
    assert (list(index.part_tables(["text"])), list(index.batches(["text"]))) == ([], [])
    assert index.find_positions([make_key(1)]).tolist() == []
    assert list(index.rows_at(np.empty(0, np.int64), CaptionRow, ["key"])) == []


WORDS = [f"word{number:03d}" for number in range(25)]


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Build]:
    """Build the toy dataset, then take five words away; yield it resolved."""
    build_toy(tmp_path, WORDS, rows_per_shard=10)
    with settled_toy(tmp_path, WORDS[5:]) as build:
        yield build


def test_streamed_rows_are_the_live_ones_in_the_order_of_the_parts(
    toy: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "ROWS_PER_GROUP", 4)  # cuts the streamed tables, not the file
    reads: list[tuple[str, tuple[int, ...]]] = []
    read_rows = index_module.read_positions

    def note(part: Part, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        reads.append((part.name, tuple(rows)))
        return read_rows(part, rows, columns)

    monkeypatch.setattr(index_module, "read_positions", note)
    table = pa.concat_tables(stream_live(toy, toy.planned[0], ["key", "name"]))
    assert sorted(table.column("name").to_pylist()) == WORDS[5:]
    assert reads == sorted(reads)
    assert all(rows[-1] // 4 == rows[0] // 4 for _, rows in reads)
    places = [(name, row) for name, rows in reads for row in rows]
    assert len(places) == len(set(places)) == 20


def test_live_rows_are_found_by_subject(toy: Build) -> None:
    images = toy.planned[0]
    rows = find_live(toy, images, ImageRow)
    subjects = [rows[3].key, rows[11].key, "0" * 32]
    few = find_live(toy, images, ImageRow, subjects=subjects, without=("image",))
    expected = sorted([rows[3], rows[11]], key=lambda row: row.subject)
    assert [(row.key, row.name, row.image) for row in few] == [
        (row.key, row.name, b"") for row in expected
    ]
    assert find_live(toy, images, ImageRow, subjects=[]) == []


IMAGES = [make_key("image", number) for number in range(7)]
SIZES = {"colour": 3, "shape": 5}


def embedding(image: str, embedder: str) -> EmbeddingRow:
    rng = np.random.default_rng([int(image[:8], 16), SIZES[embedder]])
    vector = rng.normal(size=SIZES[embedder])
    norm = float(np.linalg.norm(vector))
    unit = tuple(np.float16(vector / norm).tolist())
    fields = {"embedder": embedder, "vector": unit, "norm": np.float32(norm).item()}
    return row_of(EmbeddingRow, image, embedder, source=image, **fields)


EMBEDDINGS = [embedding(image, embedder) for image in IMAGES for embedder in SIZES]


def indexed(root: Path, rows: list[EmbeddingRow]) -> Index:
    """Write the rows as two parts and index them."""
    folder, parts = Folder(str(root)), [rows[:5], rows[5:]]
    for n, some in enumerate(parts):
        folder.write(f"tables/e/0/part-{n}", encode_part(to_table(some, EmbeddingRow), {}))
    places = [(row.subject, n, at) for n, some in enumerate(parts) for at, row in enumerate(some)]
    write_index(root / "index", entries(places), ["part-0", "part-1"])
    return open_index(folder, "index", "tables/e/0")


def test_every_vector_is_found_by_its_image(tmp_path: Path) -> None:
    write_vectors(tmp_path / "vectors", indexed(tmp_path, EMBEDDINGS))
    opened = open_vectors(tmp_path / "vectors")
    assert list(opened) == sorted(SIZES)
    for row in EMBEDDINGS:
        vectors = opened[row.embedder]
        (place,) = vectors.rows_of([row.subject])
        assert tuple(vectors.matrix[place].tolist()) == row.vector
        assert vectors.norms[place].item() == row.norm
    shape = opened["shape"]
    assert (shape.matrix.dtype, shape.matrix.shape) == (np.float16, (7, 5))
    assert shape.norms.dtype == np.float32
    assert [key.decode() for key in shape.keys] == sorted(IMAGES)
    keys = [IMAGES[5], IMAGES[0], IMAGES[5]]
    assert [shape.keys[place].decode() for place in shape.rows_of(keys)] == keys


def test_an_embedder_that_misses_an_image_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"\b1 images .*shape.*pairwright resume"):
        write_vectors(tmp_path / "vectors", indexed(tmp_path, EMBEDDINGS[:-1]))


def test_a_full_disk_is_an_error_and_does_not_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", fail("ENOSPC"), raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_vectors(tmp_path / "vectors", indexed(tmp_path, EMBEDDINGS))
