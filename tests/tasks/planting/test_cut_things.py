"""Things cut out of annotated photographs are planted into others, whole and under their noun."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import skimage.data
from PIL import Image, ImageDraw

from pairwright.schemas.claims import all_hold
from pairwright.schemas.config import PlantedConfig
from pairwright.schemas.errors import SourceError
from pairwright.tasks.captioning.describe_differences import compose_difference
from pairwright.tasks.images.scale import scale_down
from pairwright.tasks.planting.cut_things import cut_out, draw_cut_things
from pairwright.tasks.planting.photograph_planted import photograph_planted
from pairwright.tasks.planting.read_outlines import Outlines, hash_outlines, read_outlines
from pairwright.tasks.scenes.read_claims import read_claims

PHOTOGRAPH = scale_down(skimage.data.coffee(), 320)
SQUARE = [20, 30, 80, 30, 80, 90, 20, 90]
KIWI = (150, 200, 60)
"""A colour that no photograph here has."""


def annotate(category: int, **updates: Any) -> Mapping[str, Any]:
    record = {
        "image_id": 1,
        "category_id": category,
        "segmentation": [SQUARE],
        "bbox": [20, 30, 60, 60],
        "iscrowd": 0,
    }
    return {**record, **updates}


def runs_of(mask: np.ndarray) -> Mapping[str, Any]:
    """Return COCO's uncompressed run lengths."""
    flat = mask.T.reshape(-1)
    changes = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([0, *changes, len(flat)]).tolist()
    return {"size": list(mask.shape), "counts": counts}


def write_annotations(folder: Path, *annotations: Mapping[str, Any], name: str = "a.png") -> str:
    categories = ["kiwi", "ball", "Traffic-light 2", "tennis racket"]
    coco = {
        "images": [{"id": 1, "file_name": name}],
        "categories": [{"id": number, "name": noun} for number, noun in enumerate(categories)],
        "annotations": annotations,
    }
    path = folder / "things.json"
    path.write_text(json.dumps(coco))
    return str(path)


def read(path: str) -> Outlines:
    return read_outlines(path, hash_outlines(path))


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a folder with a picture of a kiwi, and of a racket below it."""
    picture = Image.new("RGB", (200, 300), (90, 90, 160))
    draw = ImageDraw.Draw(picture)
    draw.rectangle((20, 30, 80, 90), fill=KIWI)
    draw.ellipse((60, 150, 140, 250), fill=(200, 60, 40))
    picture.save(tmp_path / "a.png")
    return tmp_path


def test_one_polygon_or_mask_of_a_noun_is_usable(folder) -> None:
    mask = np.zeros((300, 200), bool)
    mask[150:250, 60:140] = True
    racket = annotate(3, segmentation=runs_of(mask), bbox=[60, 150, 80, 100])
    path = write_annotations(
        folder,
        annotate(0),
        racket,
        annotate(1),  # a rendered thing's noun
        annotate(2),  # no noun
        annotate(9),  # no category
        annotate(0, iscrowd=1),
        annotate(0, segmentation=[SQUARE, SQUARE]),
        annotate(0, segmentation=[SQUARE[:4]]),
        annotate(0, segmentation="compressed"),
        annotate(0, bbox=[20, 30, 6, 6]),
        annotate(0, image_id=7),
    )
    assert [outline.noun for outline in read(path).usable] == ["kiwi", "tennis racket"]


def test_a_thing_has_the_pixels_of_its_mask(folder) -> None:
    [outline] = read(write_annotations(folder, annotate(0))).usable
    cutout = cut_out(outline)
    assert cutout is not None
    assert (cutout.pixels[cutout.coverage > 0] == KIWI).all()
    assert (cutout.coverage > 0.5).sum() > 55 * 55


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([0, 30, 80, 30, 80, 90, 0, 90], id="at the border"),
        pytest.param([150, 200, 900, 200, 900, 900], id="beyond the border"),
    ],
)
def test_a_thing_that_is_cut_off_is_left_out(folder, points) -> None:
    [outline] = read(write_annotations(folder, annotate(0, segmentation=[points]))).usable
    assert cut_out(outline) is None


def test_a_mask_of_another_size_is_left_out(folder) -> None:
    runs = runs_of(np.ones((10, 10), bool))
    [outline] = read(write_annotations(folder, annotate(0, segmentation=runs))).usable
    assert cut_out(outline) is None


def test_a_photograph_gets_nothing_that_it_shows_itself(folder) -> None:
    outlines = read(write_annotations(folder, annotate(0)))
    rng = np.random.default_rng(0)
    assert draw_cut_things(rng, outlines, "folder/a.png") == []
    [thing] = draw_cut_things(rng, outlines, "folder/b.png")
    assert thing.phrase == "kiwi"


def test_what_cannot_be_cut_out_is_shown_all_the_same(folder) -> None:
    Image.new("RGB", (200, 300)).save(folder / "b.png")
    path = Path(write_annotations(folder, annotate(0), annotate(0, image_id=2, iscrowd=1)))
    coco = json.loads(path.read_text())
    coco["images"].append({"id": 2, "file_name": "b.png"})
    path.write_text(json.dumps(coco))
    assert draw_cut_things(np.random.default_rng(0), read(str(path)), "b.png") == []


def test_texts_name_planted_cutouts_by_their_noun(folder) -> None:
    outlines = read(write_annotations(folder, annotate(0)))
    config = PlantedConfig(photographs=3, samples_per_pixel=2)
    texts: list[str] = []
    for seed in range(3):
        made = photograph_planted(
            PHOTOGRAPH, config, world="w", seeds=(0, seed), outlines=outlines, name="coffee.png"
        )
        assert made is not None
        graphs = (made[0].graph, made[1].graph)
        for graph in graphs:
            for item in graph.objects:
                assert (item.shape == "kiwi") == (item.colour is None)
        difference = compose_difference(graphs, Random(seed))
        assert difference is not None
        reading = read_claims(difference.text, ["kiwi"])
        assert reading.understood
        assert all_hold(reading.claims, graphs)
        texts.append(difference.text)
    assert "kiwi" in " ".join(texts)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not a COCO file"),
        ("{}", "not a COCO file"),
        ('{"images": [], "categories": [], "annotations": []}', "nothing to cut out"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message) -> None:
    path = tmp_path / "things.json"
    path.write_text(content)
    with pytest.raises(SourceError, match=message):
        read(str(path))


@pytest.mark.parametrize("name", ["../a.png", "/a.png"])
def test_file_names_stay_in_their_folder(folder, name) -> None:
    with pytest.raises(SourceError, match="nothing to cut out"):
        read(write_annotations(folder, annotate(0), name=name))


def test_a_missing_photograph_is_said(folder) -> None:
    with pytest.raises(SourceError, match=r"b\.png is not there"):
        read(write_annotations(folder, annotate(0), name="b.png"))
