"""Masks of boxes as rows: by the scenes' own graphs, and by a tiny SAM."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, BoxesRow, MasksRow, Tag
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.masks import decode_mask, encode_mask
from pairwright.tasks.models.devices import count_gpus
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.rejected.segment_boxes import (
    COVERING,
    NO_PIXELS,
    OUTSIDE,
    STAGE,
    make_segmenter,
    segment_boxes,
)
from tests.fixtures.graphs import graph, thing
from tests.fixtures.pictures import photograph
from tests.fixtures.rows import row_of
from tests.fixtures.sam_checkpoints import write_sam
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
PIXELS = {
    name: pixels
    for name, pixels in photographs().items()
    if name in ("china", "odd", "wide", "tall", "flower")
}
BALL = np.zeros((6, 8), dtype=bool)
BALL[1:4, :3] = True


def tag(name, *objects):
    return Tag(name=name, score=0.9, tagger="ram", objects=objects)


def box(place, *shares, size=(1, 1)):
    """Return a box at shares of an image's height and width."""
    height, width = size
    corners = zip(
        ("x0", "y0", "x1", "y1"),
        (shares[0] * width, shares[1] * height, shares[2] * width, shares[3] * height),
        strict=True,
    )
    return Box(tag=place, score=0.8, **dict(corners))


def boxes_row(image, tags, boxes):
    about = {
        "width": image.width,
        "height": image.height,
        "tags": tuple(map(tag, tags)),
        "boxes": tuple(boxes),
    }
    return row_of(BoxesRow, image.key, *map(str, boxes), source="tags", subject=image.key, **about)


IMAGES = {name: photograph(pixels, name=name) for name, pixels in PIXELS.items()}
BY_KEY = {image.key: image for image in IMAGES.values()}
ROWS = [
    boxes_row(
        image,
        ("cat", "unicorn", "dog"),
        [
            box(0, 0.1, 0.2, 0.6, 0.9, size=pixels.shape[:2]),
            box(2, 0.5, 0, 1, 0.5, size=pixels.shape[:2]),
            box(2, 0, 0.6, 0.4, 1, size=pixels.shape[:2]),
        ],
    )
    for image, pixels in zip(IMAGES.values(), PIXELS.values(), strict=True)
]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = write_sam(tmp_path_factory.mktemp("sam") / "sam.pth")
    return STAGE.pin(SegmentationConfig(segmenter="sam", checkpoint=str(path)))


def masks_of(row):
    return [decode_mask(Mask.model_validate_json(mask)) for mask in row.masks]


def whys(config, image, *boxes):
    """Return why each tag has no mask, of boxes of one tag each."""
    row = boxes_row(image, [str(place) for place in range(len(boxes))], boxes)
    (made,) = segment_boxes([row], config, images={image.key: image})
    return made.whys


def test_each_image_has_a_row_of_what_the_segmenter_says(config):
    made = list(segment_boxes(ROWS, config, images=BY_KEY))
    segmenter = make_segmenter(config)
    for row, source, pixels in zip(made, ROWS, PIXELS.values(), strict=True):
        assert isinstance(row, MasksRow)
        assert (row.source_key, row.subject) == (source.key, source.subject)
        assert (row.height, row.width) == pixels.shape[:2]
        # The tag that nothing was found for is gone, and the boxes count without it.
        assert [one.name for one in row.tags] == ["cat", "dog"]
        assert row.boxes == tuple(replace(one, tag=min(one.tag, 1)) for one in source.boxes)
        (alone,) = segmenter.segment(
            [segmenter.prepare(DecodedImage(pixels))], [row.tags], [row.boxes]
        )
        for got, wanted in zip(masks_of(row), alone, strict=True):
            assert (got & wanted.mask).sum() >= 0.99 * (got | wanted.mask).sum() > 0
        assert row.whys == ("", "")
        np.testing.assert_allclose(row.mask_scores, [mask.score for mask in alone], atol=1e-4)
    assert len({row.key for row in made}) == len(ROWS)


def test_boxes_that_make_no_mask_are_left_out_and_say_why(config):
    image = IMAGES["odd"]
    width, height = image.width, image.height
    lies = [
        (0, 0, 1, 1),
        (-3, -3, 4, 4),
        (0, 0.02, 0.98, 1),
        (0.1, 0.1, 0.1, 0.9),
        (1, 0, 2, 1),
        (0.9, 0.9, 0.2, 0.2),
    ]
    nan = Box(tag=6, score=0.5, x0=float("nan"), y0=0, x1=9, y1=9)
    boxes = [*(box(place, *shares, size=(height, width)) for place, shares in enumerate(lies)), nan]
    assert whys(config, image, *boxes) == (
        COVERING,
        COVERING,
        COVERING,
        OUTSIDE,
        OUTSIDE,
        OUTSIDE,
        OUTSIDE,
    )


def test_a_box_that_covers_the_image_does_not_spoil_its_tag(config):
    image = IMAGES["china"]
    size = (image.height, image.width)
    small, whole = box(0, 0.2, 0.2, 0.5, 0.6, size=size), box(0, 0, 0, 1, 1, size=size)
    both, alone = (
        next(iter(segment_boxes([boxes_row(image, ["a"], boxes)], config, images=BY_KEY)))
        for boxes in ([whole, small], [small])
    )
    assert both.masks == alone.masks
    assert both.whys == ("",)
    assert len(both.boxes) == 2
    assert both.key != alone.key


def test_scenes_have_the_renderers_masks():
    scene = graph(thing("a").model_copy(update={"mask": encode_mask(BALL)}))
    image = photograph(np.zeros((6, 8, 3), dtype=np.uint8), graph=scene)
    boxes = [box(place, 0, 0.2, 0.4, 0.7, size=(6, 8)) for place in (0, 1, 3)]
    row = boxes_row(
        image, ["ball", "ghost", "unfound", "sky"], [*boxes[:2], box(3, 0, 0, 1, 1, size=(6, 8))]
    )
    row = replace(
        row, tags=(tag("ball", "a"), tag("ghost", "b"), tag("unfound", "a"), tag("sky", "a"))
    )
    (made,) = segment_boxes([row], SegmentationConfig(), images={image.key: image})
    assert [one.name for one in made.tags] == ["ball", "ghost", "sky"]
    first, ghost, sky = masks_of(made)
    np.testing.assert_array_equal(first, BALL)
    assert not ghost.any()
    assert not sky.any()
    assert made.whys == ("", NO_PIXELS, COVERING)
    assert made.mask_scores == (1, 1, 1)


def test_the_stage_names_its_weights_and_its_processes(config, tmp_path):
    assert STAGE.models(config) == (f"sam SAM {config.revision}",)
    assert STAGE.models(SegmentationConfig()) == ("scene-graph scene graphs 1",)
    assert STAGE.pin(SegmentationConfig()) == SegmentationConfig()
    assert STAGE.processes(SegmentationConfig()) is None
    assert STAGE.processes(config) == count_gpus()
    with pytest.raises(ModelError, match=r"segmentation\.checkpoint"):
        STAGE.pin(SegmentationConfig(segmenter="sam", checkpoint=str(tmp_path / "none.pth")))
    assert pickle.loads(pickle.dumps(STAGE)).processes(config) == count_gpus()
