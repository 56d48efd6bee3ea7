"""Boxes of tags as rows: by the scenes' own graphs, and by a tiny Grounding DINO."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.rows import BoxesRow, Dropped, Tag, TagsRow, make_key
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding_dino import GroundingDino
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.rejected.detect_boxes import STAGE, detect_boxes, make_detector
from tests.fixtures.graphs import graph, thing
from tests.fixtures.grounding_checkpoints import write_grounding_folder
from tests.fixtures.pictures import photograph
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
PIXELS = {
    name: pixels
    for name, pixels in photographs().items()
    if name in ("china", "odd", "wide", "tall", "flower")
}


def tags_row(image, *tags):
    key = make_key("tags", image.key, *(tag.name for tag in tags))
    return TagsRow(key=key, source_key=image.key, subject=image.key, tags=tags)


def tag(name, *objects):
    return Tag(name=name, score=0.9, tagger="ram", objects=objects)


IMAGES = {name: photograph(pixels, name=name) for name, pixels in PIXELS.items()}
ROWS = [tags_row(image, tag("cat"), tag("red ball"), tag("zzzz")) for image in IMAGES.values()]
BY_KEY = {image.key: image for image in IMAGES.values()}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_grounding_folder(tmp_path_factory.mktemp("grounding-dino"))
    return DetectionConfig(detector="grounding-dino", model=str(folder), box_threshold=0.3)


def test_each_image_has_a_row_of_what_the_detector_says(config):
    made = list(detect_boxes(ROWS, config, images=BY_KEY))
    detector = make_detector(config)
    for row, source, image in zip(made, ROWS, IMAGES.values(), strict=True):
        assert isinstance(row, BoxesRow)
        assert (row.source_key, row.subject) == (source.key, image.key)
        assert (row.width, row.height, row.tags) == (image.width, image.height, source.tags)
        (alone,) = detector.detect(
            [detector.prepare(DecodedImage(PIXELS[image.name]))], [source.tags]
        )
        assert row.boxes
        assert [box.tag for box in row.boxes] == [box.tag for box in alone]
        np.testing.assert_allclose(
            [box.score for box in row.boxes], [box.score for box in alone], atol=1e-4
        )
        assert all(
            0 <= box.x0 < box.x1 <= row.width and 0 <= box.y0 < box.y1 <= row.height
            for box in row.boxes
        )
    assert len({row.key for row in made}) == len(made)
    assert made == list(detect_boxes(ROWS, config, images=BY_KEY))


def test_images_without_boxes_are_dropped(config):
    none = tags_row(IMAGES["china"], tag("zzzz"), tag("."))
    broken = replace(IMAGES["odd"], key="broken", image=b"\x89PNG no image", name="broken")
    rows = [none, tags_row(broken, tag("cat")), ROWS[0]]
    made = list(detect_boxes(rows, config, images={**BY_KEY, "broken": broken}))
    by_source = {row.source_key: row for row in made}
    assert by_source[none.key] == Dropped(
        source_key=none.key, reason="no boxes", detail="china: zzzz, ."
    )
    assert isinstance(by_source[rows[1].key], Dropped)
    assert by_source[rows[1].key].reason != "no boxes"
    assert isinstance(by_source[ROWS[0].key], BoxesRow)
    strict = config.model_copy(update={"box_threshold": 1.0, "text_threshold": 1.0})
    assert [type(row) for row in detect_boxes(ROWS, strict, images=BY_KEY)] == [Dropped] * len(ROWS)


def test_scenes_know_their_boxes():
    image = photograph(
        PIXELS["odd"], graph=graph(thing("a", box=(1, 2, 3, 4)), thing("b", box=(5, 6, 7, 8)))
    )
    tags = (tag("ball", "b"), tag("two balls", "a", "b"), tag("ghost", "c"), tag("nothing"))
    rows = [tags_row(image, *tags), tags_row(IMAGES["china"], tag("ball", "a"))]
    found, dropped = detect_boxes(rows, DetectionConfig(), images={**BY_KEY, image.key: image})
    corners = [(box.tag, box.score, box.x0, box.y0, box.x1, box.y1) for box in found.boxes]
    assert corners == [(0, 1, 5, 6, 7, 8), (1, 1, 1, 2, 3, 4), (1, 1, 5, 6, 7, 8)]
    assert dropped.reason == "no boxes"


def test_photographs_have_a_detector_with_weights():
    scenes, photographs = (
        DetectionConfig(),
        DetectionConfig(detector="grounding-dino", model="./nowhere", batch_size=3),
    )
    assert STAGE.pin(scenes) is scenes
    assert (STAGE.processes(scenes), STAGE.processes(photographs)) == (None, count_gpus())
    assert make_detector(photographs) == GroundingDino(config=photographs)
