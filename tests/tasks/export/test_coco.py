"""Places where images differ, as COCO's own reader and FiftyOne's rules take them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pycocotools.coco import COCO

from pairwright.flows.building.progress import say_nothing
from pairwright.schemas.errors import ValidationError
from pairwright.schemas.scene import Mask
from pairwright.tasks.export.export_rows import verify_export
from pairwright.tasks.export.formats import FORMATS
from pairwright.tasks.export.tally_rows import Tally
from pairwright.tasks.images.masks import encode_mask
from pairwright.tasks.images.regions import CHANGE, Region, list_regions
from tests.fixtures.exports import export_some, preference, rows_of
from tests.fixtures.graphs import pair_row

CHANGED = np.zeros((56, 56), bool)
CHANGED[10:20, 30:34] = True


def read_coco(path, capsys):
    dataset = COCO(str(path))
    capsys.readouterr()
    return dataset


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_pycocotools_reads_boxes_and_masks_beside_the_table(tmp_path, capsys) -> None:
    unknown = replace(preference(3), regions=None)
    same = replace(preference(2), regions=())
    export_some(tmp_path, [preference(1), same, unknown], form="hf")
    dataset = read_coco(tmp_path / "coco/train.json", capsys)
    (annotation,) = dataset.loadAnns(dataset.getAnnIds())
    np.testing.assert_array_equal(dataset.annToMask(annotation), CHANGED)
    assert annotation["bbox"] == [30, 10, 4, 10]
    assert annotation["area"] == 40
    assert dataset.loadCats(annotation["category_id"])[0]["name"] == "cup"
    rows = rows_of(tmp_path)
    shown = {cell["path"] for row in rows[:2] for cell in row["images"]}
    assert {image["file_name"] for image in dataset.loadImgs(dataset.getImgIds())} == shown
    (image,) = dataset.loadImgs(annotation["image_id"])
    assert image["file_name"] == rows[0]["images"][1]["path"]
    assert annotation["pair"] == rows[0]["pair"]
    (region,) = rows[0]["regions"]
    assert (region["image"], region["label"], region["box"]) == (1, "cup", [30, 10, 34, 20])
    assert Mask.model_validate_json(region["mask"]) == encode_mask(CHANGED)
    assert rows[1]["regions"] == rows[2]["regions"] == []


def test_fiftyone_finds_images_and_labels(tmp_path, capsys) -> None:
    """Its COCODetectionDataset is a folder with ``data/`` and ``labels.json``."""
    tally = export_some(tmp_path, [preference(1), preference(2)], form="fiftyone")
    dataset = read_coco(tmp_path / "train/labels.json", capsys)
    files = {path.name for path in (tmp_path / "train/data").iterdir()}
    assert {image["file_name"] for image in dataset.imgs.values()} == files
    assert len(files) == tally.sizes["train"][0] == 4
    annotation = dataset.anns[1]
    assert annotation["text"] == "A cup is new."
    assert annotation["other"] in files


def test_a_wrong_box_is_found(tmp_path) -> None:
    export_some(tmp_path, [preference(1)], form="fiftyone")
    path = tmp_path / "train/labels.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["bbox"][2] = 5
    path.write_text(json.dumps(content))
    tally = Tally(sizes={"train": (2, 0)})
    with pytest.raises(ValidationError, match="box of annotation 1 is not that of its mask"):
        verify_export(tmp_path, FORMATS["fiftyone"], None, tally, say_nothing)


def test_parts_of_a_given_mask_are_regions_of_the_second_image() -> None:
    mask = np.zeros((40, 60), bool)
    mask[5:10, 5:15] = mask[20:40, 50:] = True
    pair = replace(pair_row("a", "b"), change_mask=encode_mask(mask).model_dump_json())
    regions = list_regions(pair, (None, None))
    assert regions is not None
    assert {(region.side, region.label, region.box) for region in regions} == {
        (1, CHANGE, (5, 5, 15, 10)),
        (1, CHANGE, (50, 20, 60, 40)),
    }
    noise = np.zeros((200, 200), bool)
    noise[::3, ::3] = True
    speckled = replace(pair, change_mask=encode_mask(noise).model_dump_json())
    (whole,) = list_regions(speckled, (None, None)) or ()
    assert whole == Region(1, CHANGE, (0, 0, 199, 199), encode_mask(noise))
    unchanged = replace(pair, change_mask=encode_mask(noise & False).model_dump_json())
    assert list_regions(unchanged, (None, None)) == ()
    assert list_regions(pair_row("a", "b"), (None, None)) is None
