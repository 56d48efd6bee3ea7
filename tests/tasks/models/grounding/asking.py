"""Ask a Grounding DINO of a folder, and compare what it says."""

import numpy as np

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.rows import Tag
from pairwright.tasks.models.grounding.detector import PIXEL_DIGITS, SCORE_DIGITS, GroundingDino
from pairwright.tasks.models.prepare_ahead import Seen

NAMES = ("cat", "Red ball", "traffic light")


def tags(*names):
    return [Tag(name=name, score=1.0, tagger="ram") for name in names]


def detector(folder, **config):
    return GroundingDino(config=DetectionConfig(detector="grounding-dino", model=str(folder), **config))


def detect(made, images, names):
    return made.detect([made.prepare(Seen(image)) for image in images], [tags(*some) for some in names])


def numbers(boxes):
    return np.array([(box.tag, box.score, box.x0, box.y0, box.x1, box.y1) for box in boxes]).reshape(-1, 6)


def assert_same(boxes, wanted, image):
    """Compare in shares of the image, but for the rounding; results of like score may have changed places."""
    scale = np.array([1, 1, *image.shape[1::-1], *image.shape[1::-1]])
    got, expected = (np.array(rows).reshape(-1, 6) / scale for rows in (numbers(boxes), wanted))
    assert got.shape == expected.shape
    rounded = np.array([0, 10**-SCORE_DIGITS, *[10**-PIXEL_DIGITS] * 4]) / 2 / scale
    for row in got:
        assert (np.abs(expected - row) < 1e-4 + rounded).all(axis=1).any()
    for row in expected:
        assert (np.abs(got - row) < 1e-4 + rounded).all(axis=1).any()
