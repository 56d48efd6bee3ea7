"""Reading tables from Python: what counts now, and nothing else."""

import shutil
from pathlib import Path

import pytest

from pairwright.flows.read_rows import read_rows
from pairwright.flows.run_build import look_at
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow, PairRow
from pairwright.tasks.store.files import Folder
from tests.flows.conftest import build


def test_rows_are_those_that_count(mined: Path, tmp_path: Path) -> None:
    photographs, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(mined.parent / "in", photographs)
    build(out, str(photographs), until="mining", settings=["run.workers=1"])
    (photographs / "coffee-0.jpg").unlink()
    (photographs / "moon-0.jpg").rename(photographs / "renamed.jpg")
    build(out, str(photographs), until="mining", settings=["run.workers=1"])
    counts = {count.stage: count for count in look_at(Folder(str(out)))}
    images = [row for row in read_rows(str(out), "images") if isinstance(row, ImageRow)]
    assert len(images) == len({row.key for row in images}) == counts["images"].rows == 103
    names = {row.name for row in images}
    assert "renamed.jpg" in names
    assert not names & {"coffee-0.jpg", "moon-0.jpg"}
    assert all(row.image for row in images)
    pairs = [row for row in read_rows(str(out), "pairs") if isinstance(row, PairRow)]
    assert len(pairs) == len({row.key for row in pairs}) == counts["pairs"].rows > 0
    assert {image for pair in pairs for image in (pair.first, pair.second)} <= {row.key for row in images}


def test_columns_are_left_out(mined: Path) -> None:
    assert {row.image for row in read_rows(str(mined), "images", without=["image"]) if isinstance(row, ImageRow)} == {
        b""
    }


def test_missing_tables_are_named(mined: Path) -> None:
    with pytest.raises(ConfigError, match=r"was built without the table captions\. It has images, embeddings"):
        list(read_rows(str(mined), "captions"))
    with pytest.raises(ConfigError, match="paris: no such table"):
        list(read_rows(str(mined), "paris"))
