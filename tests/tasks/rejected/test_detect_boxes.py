"""Boxes of tags as rows: by the scenes' own graphs, and by a tiny Grounding DINO."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.rows import BoxesRow, Dropped
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.grounding_dino import GroundingDino
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.perception.detectors import make_detector
from pairwright.tasks.rejected.detect_boxes import STAGE, detect_boxes
from tests.fixtures.checkpoints import write_grounding_folder
from tests.fixtures.graphs import graph, thing
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import tag, tags_row
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = ("china", "odd", "wide", "tall", "flower")
PIXELS = {name: pixels for name, pixels in photographs().items() if name in NAMES}
IMAGES = {name: photograph(pixels, name=name) for name, pixels in PIXELS.items()}
BY_KEY = {image.key: image for image in IMAGES.values()}
ROWS = [tags_row(image, tag("cat"), tag("red ball"), tag("zzzz")) for image in IMAGES.values()]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_grounding_folder(tmp_path_factory.mktemp("grounding-dino"))
    return DetectionConfig(detector="grounding-dino", model=str(folder), box_threshold=0.3)


def test_each_image_has_a_row_of_what_the_detector_says(config) -> None:
    rows = list(detect_boxes(ROWS, config, images=BY_KEY))
    detector = make_detector(config)
    for row, source, image in zip(rows, ROWS, IMAGES.values(), strict=True):
        assert isinstance(row, BoxesRow)
        assert (row.source_key, row.subject, row.tags) == (source.key, image.key, source.tags)
        assert (row.width, row.height) == (image.width, image.height)
        prepared = detector.prepare(DecodedImage(PIXELS[image.name]))
        (alone,) = detector.detect([prepared], [source.tags])
        assert row.boxes
        assert [box.tag for box in row.boxes] == [box.tag for box in alone]
        scores = [box.score for box in row.boxes]
        np.testing.assert_allclose(scores, [box.score for box in alone], atol=1e-4)
        assert all(0 <= box.x0 < box.x1 <= row.width for box in row.boxes)
        assert all(0 <= box.y0 < box.y1 <= row.height for box in row.boxes)
    assert len({row.key for row in rows}) == len(rows)
    assert rows == list(detect_boxes(ROWS, config, images=BY_KEY))


def test_images_without_boxes_are_dropped(config) -> None:
    unknown = tags_row(IMAGES["china"], tag("zzzz"), tag("."))
    broken = replace(IMAGES["odd"], key="broken", image=b"\x89PNG no image", name="broken")
    sources = [unknown, tags_row(broken, tag("cat")), ROWS[0]]
    rows = detect_boxes(sources, config, images={**BY_KEY, "broken": broken})
    by_source = {row.source_key: row for row in rows}
    assert by_source[unknown.key] == Dropped(
        source_key=unknown.key, reason="no boxes", detail="china: zzzz, ."
    )
    assert isinstance(by_source[sources[1].key], Dropped)
    assert by_source[sources[1].key].reason != "no boxes"
    assert isinstance(by_source[ROWS[0].key], BoxesRow)
    strict = config.model_copy(update={"box_threshold": 1.0, "text_threshold": 1.0})
    rows = detect_boxes(ROWS[:2], strict, images=BY_KEY)
    assert [type(row) for row in rows] == [Dropped] * 2


def test_scenes_know_their_boxes() -> None:
    things = (thing("a", box=(1, 2, 3, 4)), thing("b", box=(5, 6, 7, 8)))
    image = photograph(PIXELS["odd"], graph=graph(*things))
    tags = (tag("ball", "b"), tag("two balls", "a", "b"), tag("ghost", "c"), tag("nothing"))
    sources = [tags_row(image, *tags), tags_row(IMAGES["china"], tag("ball", "a"))]
    row, dropped = detect_boxes(sources, DetectionConfig(), images={**BY_KEY, image.key: image})
    corners = [(box.tag, box.score, box.x0, box.y0, box.x1, box.y1) for box in row.boxes]
    assert corners == [(0, 1, 5, 6, 7, 8), (1, 1, 1, 2, 3, 4), (1, 1, 5, 6, 7, 8)]
    assert dropped.reason == "no boxes"


def test_photographs_have_a_detector_with_weights() -> None:
    scenes = DetectionConfig()
    photographs = DetectionConfig(detector="grounding-dino", model="./nowhere", batch_size=3)
    assert STAGE.pin(scenes) is scenes
    assert (STAGE.processes(scenes), STAGE.processes(photographs)) == (None, count_gpus())
    assert make_detector(photographs) == GroundingDino(config=photographs)
