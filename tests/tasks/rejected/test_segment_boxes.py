"""Masks of boxes as rows: by the scenes' own graphs, and by a tiny SAM."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import MasksRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.masks import decode_mask, encode_mask
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.perception.segmenters import SEGMENTERS
from pairwright.tasks.rejected.segment_boxes import (
    COVERING,
    NO_PIXELS,
    OUTSIDE,
    STAGE,
    segment_boxes,
)
from tests.fixtures.checkpoints import write_sam
from tests.fixtures.graphs import graph, thing
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import box, boxes_row, tag
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
NAMES = ("china", "odd", "wide", "tall", "flower")
PIXELS = {name: pixels for name, pixels in photographs().items() if name in NAMES}
IMAGES = {name: photograph(pixels, name=name) for name, pixels in PIXELS.items()}
BY_KEY = {image.key: image for image in IMAGES.values()}


def part(image, tag, *shares):
    """Return a box at shares of an image's width and height."""
    corners = np.multiply(shares, (image.width, image.height) * 2).tolist()
    return box(tag, *corners)


def row_with_three_boxes(image):
    corners = ((0, 0.1, 0.2, 0.6, 0.9), (2, 0.5, 0, 1, 0.5), (2, 0, 0.6, 0.4, 1))
    boxes = [part(image, *shares) for shares in corners]
    return boxes_row(image, [tag("cat"), tag("unicorn"), tag("dog")], boxes)


ROWS = [row_with_three_boxes(image) for image in IMAGES.values()]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = write_sam(tmp_path_factory.mktemp("sam") / "sam.pth")
    return STAGE.pin(SegmentationConfig(segmenter="sam", checkpoint=str(path)))


def masks_of(row):
    return [decode_mask(Mask.model_validate_json(mask)) for mask in row.masks]


def segment(config, image, tags, boxes):
    (row,) = segment_boxes([boxes_row(image, tags, boxes)], config, images={image.key: image})
    return row


def test_each_image_has_a_row_of_what_the_segmenter_says(config) -> None:
    rows = list(segment_boxes(ROWS, config, images=BY_KEY))
    segmenter = SEGMENTERS.make(config.segmenter, config)
    for row, source, pixels in zip(rows, ROWS, PIXELS.values(), strict=True):
        assert isinstance(row, MasksRow)
        assert (row.source_key, row.subject) == (source.key, source.subject)
        assert (row.height, row.width) == pixels.shape[:2]
        # The tag that nothing was found for is gone, and the boxes count without it.
        assert [tag.name for tag in row.tags] == ["cat", "dog"]
        assert row.boxes == tuple(replace(box, tag=min(box.tag, 1)) for box in source.boxes)
        prepared = segmenter.prepare(DecodedImage(pixels))
        (alone,) = segmenter.segment([prepared], [row.tags], [row.boxes])
        for mask, expected in zip(masks_of(row), alone, strict=True):
            union = (mask | expected.mask).sum()
            assert (mask & expected.mask).sum() >= 0.99 * union > 0
        assert row.whys == ("", "")
        np.testing.assert_allclose(row.mask_scores, [mask.score for mask in alone], atol=1e-4)
    assert len({row.key for row in rows}) == len(ROWS)


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        ((0, 0, 1, 1), COVERING),
        ((0.02, 0, 1, 0.98), COVERING),
        ((0.1, 0.1, 0.9, 0.1), OUTSIDE),
        ((0, 1, 1, 2), OUTSIDE),
        ((float("nan"), 0, 0.1, 0.1), OUTSIDE),
    ],
)
def test_a_box_that_makes_no_mask_says_why(config, shares, why) -> None:
    image = IMAGES["odd"]
    assert segment(config, image, [tag("a")], [part(image, 0, *shares)]).whys == (why,)


def test_a_box_that_covers_the_image_does_not_spoil_its_tag(config) -> None:
    image = IMAGES["china"]
    small, whole = part(image, 0, 0.2, 0.2, 0.6, 0.5), part(image, 0, 0, 0, 1, 1)
    both = segment(config, image, [tag("a")], [whole, small])
    alone = segment(config, image, [tag("a")], [small])
    assert both.masks == alone.masks
    assert both.whys == ("",)
    assert len(both.boxes) == 2
    assert both.key != alone.key


def test_scenes_have_the_renderers_masks() -> None:
    ball = np.zeros((6, 8), dtype=bool)
    ball[1:4, :3] = True
    scene = graph(thing("a").model_copy(update={"mask": encode_mask(ball)}))
    image = photograph(np.zeros((6, 8, 3), dtype=np.uint8), graph=scene)
    tags = [tag("ball", "a"), tag("ghost", "b"), tag("unfound", "a"), tag("sky", "a")]
    boxes = [box(0, 0, 1, 3, 4), box(1, 0, 1, 3, 4), box(3, 0, 0, 8, 6)]
    row = segment(SegmentationConfig(), image, tags, boxes)
    assert [tag.name for tag in row.tags] == ["ball", "ghost", "sky"]
    first, ghost, sky = masks_of(row)
    assert np.array_equal(first, ball)
    assert not ghost.any()
    assert not sky.any()
    assert row.whys == ("", NO_PIXELS, COVERING)
    assert row.mask_scores == (1, 1, 1)


def test_the_stage_names_its_weights_and_its_processes(config, tmp_path) -> None:
    assert STAGE.models(config) == (f"sam SAM {config.revision}",)
    assert STAGE.models(SegmentationConfig()) == ("scene-graph scene graphs 1",)
    assert STAGE.processes(SegmentationConfig()) is None
    assert STAGE.processes(config) == count_gpus()
    assert pickle.loads(pickle.dumps(STAGE)).processes(config) == count_gpus()
    with pytest.raises(ModelError, match=r"segmentation\.checkpoint"):
        STAGE.pin(SegmentationConfig(segmenter="sam", checkpoint=str(tmp_path / "none.pth")))
