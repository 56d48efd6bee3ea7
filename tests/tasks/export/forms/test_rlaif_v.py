"""What is exported in the columns of RLAIF-V-Dataset, read by ``datasets`` and by the reader of
such data sets."""

import io
import json
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pairwright.schemas.rows import ImageRow, PreferenceRow, Turn
from pairwright.tasks.images.decode import decode_rgb
from tests.fixtures.exports import export_some, preference
from tests.fixtures.tables import config_of, read_all

COLUMNS = [
    *(
        "ds_name",
        "image",
        "question",
        "chosen",
        "rejected",
        "origin_dataset",
        "origin_split",
        "idx",
        "image_path",
    )
]


def test_a_row_about_one_image_keeps_its_bytes_and_is_read_again(tmp_path: Path) -> None:
    row = preference(1, images=1)
    export_some(tmp_path / "out", [row], form="rlaif-v")
    _, found = read_all(config_of("rlaif-v", tmp_path / "out/data"))
    ((image, read),) = found.values()
    assert isinstance(image, ImageRow)
    assert isinstance(read, PreferenceRow)
    assert image.image == row.images[0]
    assert (read.prompt, read.chosen, read.rejected) == (row.prompt, row.chosen, row.rejected)
    assert read.chosen_model == row.chosen_model


def test_columns_are_those_of_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    datasets.disable_progress_bars()
    row = preference(1, images=1)
    export_some(tmp_path / "out", [row], form="rlaif-v")
    rows = datasets.load_dataset(
        str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert rows.column_names == COLUMNS
    (read,) = rows
    assert np.array_equal(np.asarray(read["image"]), decode_rgb(row.images[0]))
    assert json.loads(read["origin_split"]) == {"model": "by hand", "type": "by hand"}
    assert (read["idx"], read["ds_name"], read["origin_dataset"]) == (row.key, "by hand", "by hand")


def test_two_images_are_put_side_by_side_pixel_by_pixel(tmp_path: Path) -> None:
    small = io.BytesIO()
    Image.new("RGB", (20, 30), "red").save(small, "JPEG")
    row = preference(1)
    row = replace(
        row,
        images=(row.images[0], small.getvalue()),
        prompt=(Turn(role="user", text="Image 1: <image>\nImage 2: <image>\nWhat differs?"),),
    )
    export_some(tmp_path / "out", [row], form="rlaif-v")
    (read,) = pq.read_table(next((tmp_path / "out/data").iterdir())).to_pylist()
    both = decode_rgb(read["image"]["bytes"])
    # 56 pixels of the first, 16 white ones, 20 of the second, 26 white ones below it.
    assert both.shape == (56, 56 + 16 + 20, 3)
    assert np.array_equal(both[:, :56], decode_rgb(row.images[0]))
    assert np.array_equal(both[:30, 72:], decode_rgb(row.images[1]))
    assert (both[:, 56:72] == 255).all()
    assert (both[30:, 72:] == 255).all()
    assert read["question"] == "Image 1:  \nImage 2:  \nWhat differs?"
    assert read["image_path"] == "-".join(row.image_keys) + ".png"


def test_broken_images_and_several_turns_are_not_held(tmp_path: Path) -> None:
    good = preference(1)
    talk = (*good.prompt, Turn(role="assistant", text="a"), Turn(role="user", text="b"))
    rows = [
        good,
        replace(good, images=(good.images[0], b"\x89PNG broken")),
        replace(good, prompt=talk),
    ]
    tally = export_some(tmp_path / "out", rows, form="rlaif-v")
    assert tally.rows == 1
    assert dict(tally.unheld) == {
        "an image cannot be put beside another: damaged image": 1,
        "the prompt has several turns": 1,
    }
