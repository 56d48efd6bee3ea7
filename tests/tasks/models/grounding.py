"""Ask a Grounding DINO of a folder, and compare what it says."""

import numpy as np

from schemas.config import DetectionConfig
from schemas.rows import Tag
from tasks.models.grounding_dino import GroundingDino
from tasks.models.prepare_ahead import Seen

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
    """Compare in shares of the image; results of like score may have changed places."""
    scale = np.array([1, 1, *image.shape[1::-1], *image.shape[1::-1]])
    got, expected = (np.array(rows).reshape(-1, 6) / scale for rows in (numbers(boxes), wanted))
    assert got.shape == expected.shape
    for row in got:
        assert np.abs(expected - row).max(axis=1).min() < 1e-4
    for row in expected:
        assert np.abs(got - row).max(axis=1).min() < 1e-4
