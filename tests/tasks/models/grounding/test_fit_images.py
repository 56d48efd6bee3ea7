"""Images resized as the library's own processor does, and boxes that come back to where they were."""

import pickle
import random

import numpy as np
import pytest
from PIL import Image
from transformers import GroundingDinoImageProcessor
from transformers.image_transforms import get_size_with_aspect_ratio

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.grounding.detector import boxes_of
from pairwright.tasks.models.grounding.fit_images import fit_of
from pairwright.tasks.models.grounding.network import Answer
from pairwright.tasks.models.grounding.pack_tags import Prompt, Span
from pairwright.tasks.models.prepare_ahead import Seen
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = photographs()
SMALL = {"shortest_edge": 96, "longest_edge": 160}


def published(**values):
    return fit_of(values, field="detection.model")


@pytest.mark.parametrize("name", PHOTOGRAPHS)
@pytest.mark.parametrize("size", [SMALL, {"shortest_edge": 333, "longest_edge": 400}])
def test_pixels_are_the_librarys(name, size):
    import torch

    image = PHOTOGRAPHS[name]
    processor = GroundingDinoImageProcessor(size=size)
    wanted = processor(Image.fromarray(image), return_tensors="pt")["pixel_values"][0]
    fit = published(size=size)
    fitted = fit(Seen(image))
    assert (fitted.height, fitted.width) == image.shape[:2]
    assert fitted.pixels.dtype == np.uint8
    got = fit.steps.numbers(torch.from_numpy(fitted.pixels)[None])[0]
    assert got.shape == wanted.shape
    # A rounding is 1 of 255 levels, which is 0.018 after the scaling.
    assert (got - wanted).abs().mean() < 1e-4
    assert (got - wanted).abs().max() < 0.04
    # The check can fail: a pixel to the side is another image.
    assert (got[:, :, 1:] - wanted[:, :, :-1]).abs().mean() > 1e-3


def test_sizes_are_the_librarys():
    draw, fit = random.Random(0), published()
    sides = [1, 2, 3, 799, 800, 801, 1066, 1333, 1334, 2666, 8000]
    pairs = [(height, width) for height in sides for width in sides]
    pairs += [(draw.randint(1, 8000), draw.randint(1, 8000)) for _ in range(2000)]
    wanted = [get_size_with_aspect_ratio(pair, 800, 1333) for pair in pairs]
    assert [fit.size(*pair) for pair in pairs] == [(max(1, height), max(1, width)) for height, width in wanted]
    assert any(0 in size for size in wanted)


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [
        (480, 640, (800, 1066)),
        (640, 480, (1066, 800)),
        (1000, 1000, (800, 800)),
        (16, 8000, (3, 1333)),
        (8000, 16, (1333, 3)),
        (1, 8000, (1, 1333)),
        (1, 1, (800, 800)),
        (1, 2, (666, 1333)),
    ],
)
def test_no_image_explodes(height, width, size):
    fitted = published()(Seen(np.full((height, width, 3), 77, dtype=np.uint8)))
    # By hand: the short side 800, or the long one 1333 and the short one 1333 short / long rounded.
    assert fitted.pixels.shape[:2] == pytest.approx(size, abs=1)
    assert fitted.pixels.nbytes <= 3 * 800 * 1333
    assert (fitted.pixels == 77).all()


def test_it_goes_to_other_processes():
    fit = pickle.loads(pickle.dumps(published(size=SMALL)))
    assert fit(Seen(PHOTOGRAPHS["china"])).pixels.shape == (96, 143, 3)


@pytest.mark.parametrize(
    "values",
    [
        {"size": {"height": 800, "width": 800}},
        {"do_resize": False},
        {"size": {"shortest_edge": 100_000, "longest_edge": 100_000}},
        {"size": {"shortest_edge": 0, "longest_edge": 10}},
        {"size": {"shortest_edge": 20, "longest_edge": 10}},
    ],
)
def test_other_processors_are_refused(values):
    with pytest.raises(ModelError, match=r"detection\.model: .*processor"):
        published(**values)


def overlap(one, other):
    """Return the intersection over the union."""
    wide = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    high = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return wide * high / (sum(areas) - wide * high)


@pytest.mark.parametrize(
    ("height", "width"),
    [(480, 640), (640, 480), (333, 217), (1201, 1999), (1999, 1201), (97, 801), (37, 41), (64, 900)],
)
def test_a_box_comes_back_to_where_it_was(height, width):
    """A rectangle is painted, found in the resized image by its edges, and told as a network tells it."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    box = (width // 7, height // 5, width - width // 3, height - height // 9)
    image[box[1] : box[3], box[0] : box[2]] = 255
    fitted = published()(Seen(image))
    # An edge lies where half of a cell's light does: sums along the middle lines tell it to a fraction of a pixel.
    light = fitted.pixels[:, :, 0] / 255
    rows, columns = light.shape
    down, across = light[:, int(columns * 0.4)], light[int(rows * 0.5)]
    y0, x0 = int(down.argmax()) - (down[: down.argmax()].sum()), int(across.argmax()) - across[: across.argmax()].sum()
    told = np.array([[x0 + across.sum() / 2, y0 + down.sum() / 2, across.sum(), down.sum()]], dtype=np.float32)
    told /= np.array([columns, rows, columns, rows], dtype=np.float32)
    answer = Answer(told, np.ones((1, 4), dtype=np.float32))
    (found,) = boxes_of(answer, Prompt((1, 2, 3, 4), (Span(0, 1, 2),)), fitted, DetectionConfig())
    assert overlap((found.x0, found.y0, found.x1, found.y1), box) >= 0.99
