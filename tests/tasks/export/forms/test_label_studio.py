"""Tasks of Label Studio: its documented fields, and its masks by an independent decoder."""

import json
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest

from pairwright.tasks.export.forms.label_studio import encode_brush
from tests.fixtures.exports import export_some, preference


def decode_brush(rle):
    """Decode rle-pack bit by bit, as its published algorithm does."""
    bits = "".join(f"{byte:08b}" for byte in rle)
    position = 0

    def read(count):
        nonlocal position
        position += count
        return int(bits[position - count : position], 2)

    size = read(32)
    word = read(5) + 1
    lengths = [read(4) + 1 for _ in range(4)]
    values = []
    while len(values) < size:
        is_run = read(1)
        length = read(lengths[read(2)]) + 1
        values += [read(word)] * length if is_run else [read(word) for _ in range(length)]
    return np.array(values, np.uint8)


@pytest.mark.parametrize(
    ("height", "width", "share"), [(30, 40, 0.5), (200, 150, 0.001), (1, 1, 1)]
)
def test_masks_are_read_as_they_were(height, width, share) -> None:
    mask = np.random.default_rng(0).random((height, width)) < share
    mask[0, 0] = True
    decoded = decode_brush(encode_brush(mask)).reshape(height, width, 4)
    np.testing.assert_array_equal(decoded[:, :, 3], mask * 255)


def test_tasks_have_the_fields_that_the_importer_reads(tmp_path) -> None:
    export_some(tmp_path / "by hand", [preference(1)], form="label-studio")
    (task,) = json.loads((tmp_path / "by hand/data/train.json").read_text())
    (prediction,) = task["predictions"]
    box, mask = prediction["result"]
    value = box["value"]
    corner = (value["x"], value["y"], value["width"], value["height"])
    assert corner == pytest.approx((100 * 30 / 56, 100 * 10 / 56, 100 * 4 / 56, 100 * 10 / 56))
    assert value["rectanglelabels"] == mask["value"]["brushlabels"] == ["cup"]
    assert (mask["original_width"], mask["original_height"]) == (56, 56)
    pixels = decode_brush(mask["value"]["rle"]).reshape(56, 56, 4)[:, :, 3] > 0
    assert pixels.sum() == pixels[10:20, 30:34].sum() == 40
    view = ElementTree.fromstring((tmp_path / "by hand/label_config.xml").read_text())
    names = {tag.get("name"): tag for tag in view}
    for result in (box, mask):
        control = names[result["from_name"]]
        assert control.get("toName") == result["to_name"]
        assert control.tag.lower() == result["type"]
        assert [label.get("value") for label in control] == ["cup"]
        assert names[result["to_name"]].get("value", "").removeprefix("$") in task["data"]
    for side, image in zip(("first", "second"), preference(1).images, strict=True):
        path = unquote(task["data"][side]).removeprefix("/data/local-files/?d=")
        assert (tmp_path / path).read_bytes() == image
    assert task["data"]["text"] == "A cup is new."
