"""Vectors of all live images as one matrix per embedder."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairwright.schemas.arrow import to_table
from pairwright.schemas.errors import StoreError
from pairwright.schemas.rows import EmbeddingRow, make_key
from pairwright.tasks.store.files import Folder
from pairwright.tasks.store.index import Index, open_index, write_index
from pairwright.tasks.store.part import encode_part
from pairwright.tasks.store.vectors import open_vectors, write_vectors
from tests.fixtures.rows import row_of

IMAGES = [make_key("image", number) for number in range(7)]
SIZES = {"colour": 3, "shape": 5}


def _row(image: str, embedder: str) -> EmbeddingRow:
    vector = np.random.default_rng([int(image[:8], 16), SIZES[embedder]]).normal(size=SIZES[embedder])
    length = float(np.linalg.norm(vector))
    unit = tuple(np.float16(vector / length).tolist())
    norm = np.float32(length).item()
    return row_of(EmbeddingRow, image, embedder, source=image, embedder=embedder, vector=unit, norm=norm)


def _index(root: Path, rows: list[EmbeddingRow]) -> Index:
    """Write the rows as two parts and index them."""
    folder = Folder(str(root))
    parts = {"part-0": rows[:5], "part-1": rows[5:]}
    for name, some in parts.items():
        folder.write(f"tables/e/0/{name}", encode_part(to_table(some, EmbeddingRow), {}))
    places = sorted(
        (bytes.fromhex(row.subject), part, number)
        for part, some in enumerate(parts.values())
        for number, row in enumerate(some)
    )
    columns = {name: [place[n] for place in places] for n, name in enumerate(("subject", "part", "row"))}
    write_index(root / "index", pa.table(columns).to_reader(), list(parts))
    return open_index(folder, "index", "tables/e/0")


def test_every_vector_is_found_by_its_image(tmp_path: Path) -> None:
    rows = [_row(image, embedder) for image in IMAGES for embedder in SIZES]
    write_vectors(tmp_path / "vectors", _index(tmp_path, rows))
    opened = open_vectors(tmp_path / "vectors")
    assert list(opened) == sorted(SIZES)
    for row in rows:
        vectors = opened[row.embedder]
        (place,) = vectors.rows_of([row.subject])
        assert tuple(vectors.matrix[place].tolist()) == row.vector
        assert vectors.norms[place].item() == row.norm
    shape = opened["shape"]
    assert (shape.matrix.dtype, shape.matrix.shape, shape.norms.dtype) == (np.float16, (7, 5), np.float32)
    assert [key.decode() for key in shape.keys] == sorted(IMAGES)
    asked = [IMAGES[5], IMAGES[0], IMAGES[5]]
    assert [shape.keys[place].decode() for place in shape.rows_of(asked)] == asked


def test_an_embedder_that_misses_an_image_is_named(tmp_path: Path) -> None:
    rows = [_row(image, embedder) for image in IMAGES for embedder in SIZES][:-1]
    with pytest.raises(StoreError, match=r"\b1 images .*shape.*pairwright resume"):
        write_vectors(tmp_path / "vectors", _index(tmp_path, rows))


def test_their_room_on_the_disk_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk must be an error here: writing to a map of a file that has no room ends the process."""

    def refuse(descriptor: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_vectors(tmp_path / "vectors", _index(tmp_path, [_row(image, "colour") for image in IMAGES]))
