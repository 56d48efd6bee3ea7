"""The columns of RLAIF-V-Dataset, read by ``datasets`` and by the reader of such data sets."""

import json
from dataclasses import replace

import datasets
import numpy as np
from PIL import Image

from pairwright.schemas.rows import Turn
from pairwright.tasks.images.decode import decode_rgb
from tests.fixtures.exports import export_some, preference, rows_of
from tests.fixtures.pictures import encode
from tests.fixtures.sources import Source

COLUMNS = "ds_name image question chosen rejected origin_dataset origin_split idx image_path"


def test_a_row_about_one_image_is_read_by_datasets_and_by_our_reader(tmp_path, offline) -> None:
    row = preference(1, images=1)
    export_some(tmp_path / "out", [row], form="rlaif-v")
    image, again = Source("rlaif-v", tmp_path / "out/data").read()
    assert image.image == row.images[0]
    assert (again.prompt, again.chosen, again.rejected) == (row.prompt, row.chosen, row.rejected)
    assert again.chosen_model == row.chosen_model
    rows = datasets.load_dataset(str(tmp_path / "out"), split="train", cache_dir=offline)
    assert rows.column_names == COLUMNS.split()
    (read,) = rows
    assert np.array_equal(np.asarray(read["image"]), decode_rgb(row.images[0]))
    assert json.loads(read["origin_split"]) == {"model": "by hand", "type": "by hand"}
    assert (read["idx"], read["ds_name"], read["origin_dataset"]) == (row.key, "by hand", "by hand")


def test_two_images_are_put_side_by_side_pixel_by_pixel(tmp_path) -> None:
    small = encode(Image.new("RGB", (20, 30), "red"), "JPEG")
    text = "Image 1: <image>\nImage 2: <image>\nWhat differs?"
    row = preference(1)
    row = replace(row, images=(row.images[0], small), prompt=(Turn(role="user", text=text),))
    export_some(tmp_path, [row], form="rlaif-v")
    (read,) = rows_of(tmp_path)
    both = decode_rgb(read["image"]["bytes"])
    # 56 pixels of the first, 16 white ones, 20 of the second, 26 white ones below it.
    assert both.shape == (56, 56 + 16 + 20, 3)
    assert np.array_equal(both[:, :56], decode_rgb(row.images[0]))
    assert np.array_equal(both[:30, 72:], decode_rgb(small))
    assert (both[:, 56:72] == 255).all()
    assert (both[30:, 72:] == 255).all()
    assert read["question"] == "Image 1:  \nImage 2:  \nWhat differs?"
    assert read["image_path"] == "-".join(row.image_keys) + ".png"
