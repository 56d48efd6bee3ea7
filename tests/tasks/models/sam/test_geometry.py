"""Images and boxes on their way into SAM's square, and masks on their way back: as the package, and as the truth."""

import pickle
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from segment_anything import SamPredictor
from segment_anything.modeling import Sam
from segment_anything.utils.transforms import ResizeLongestSide

from pairwright.schemas.config import ScenesConfig
from pairwright.schemas.rows import Box, ImageRow
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.sam.geometry import Square
from pairwright.tasks.sources.scenes import list_items, read_item
from pairwright.tasks.store.masks import decode_mask
from tests.fixtures.sam_checkpoints import SIDE, make_sam
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = photographs()
SQUARE = Square(1024)
CELL = 4
"""Pixels of the square, along a side, that one of SAM's logits stands for."""
SIZES = [(480, 640), (641, 333), (333, 1000), (1024, 1024), (1500, 1999), (97, 1), (1, 1), (130, 8000)]


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def boxes(*corners):
    return [
        Box(tag=0, score=1.0, **dict(zip(("x0", "y0", "x1", "y1"), map(float, one), strict=True))) for one in corners
    ]


def whole(patches, size):
    """Return masks of an image's size, of the parts in which they are not empty."""
    masks = []
    for patch in patches:
        mask = np.zeros(size, dtype=bool)
        width, height = patch.mask.shape
        mask[patch.top : patch.top + height, patch.left : patch.left + width] = patch.mask.numpy().T
        masks.append(mask)
    return np.array(masks)


def overlap(first, second):
    return (first & second).sum() / (first | second).sum()


@pytest.mark.parametrize("side", [SIDE, 1024])
@pytest.mark.parametrize("name", [name for name in PHOTOGRAPHS if name != "very wide"])
def test_images_are_prepared_as_by_the_package(name, side):
    image = PHOTOGRAPHS[name]
    fitted = Square(side).fit(Seen(image))
    wanted = ResizeLongestSide(side).apply_image(np.ascontiguousarray(image))
    assert fitted.original == image.shape[:2]
    assert fitted.pixels.dtype == np.uint8
    assert fitted.pixels.flags.c_contiguous
    difference = np.abs(fitted.pixels.astype(int) - wanted)
    assert difference.shape == wanted.shape
    assert difference.max() <= 1
    assert difference.mean() < 0.15  # "tall", where the package's resizes one direction before the other; else 0.03


def test_the_encoder_sees_what_the_package_gives_it():
    model = make_sam()
    seen = []
    model.image_encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    square = Square(SIDE)
    images = [PHOTOGRAPHS[name] for name in ("astronaut", "tall", "wide")]
    for image in images:
        SamPredictor(model).set_image(np.ascontiguousarray(image))
    got = square.numbers([square.fit(Seen(image)) for image in images], torch.device("cpu"))
    wanted = torch.cat(seen)
    level = 1 / 57.12  # one of 255
    assert (got - wanted).abs().max() <= 1.02 * level
    assert (got - wanted).abs().mean() < 0.05 * level
    # What is not image is zero, after the levels were scaled.
    assert not got[1][:, :, 5:].any()
    assert got[1][:, :, :4].all(dim=0).any()


@pytest.mark.parametrize("pixels", [np.full((1, 1, 3), 200), np.full((5, 1, 3), 7), np.full((40, 30, 3), 90)])
def test_small_and_flat_images_keep_their_colour(pixels):
    fitted = SQUARE.fit(Seen(pixels.astype(np.uint8)))
    assert max(fitted.pixels.shape[:2]) == 1024
    assert (fitted.pixels == pixels[0, 0]).all()


@pytest.mark.parametrize("size", [(8000, 3), (2, 8000), (300, 8000)])
def test_panoramas_keep_at_least_a_line(size):
    image = np.broadcast_to(np.uint8(77), (*size, 3))
    fitted = SQUARE.fit(Seen(image))
    long, short = max(size), min(size)
    assert sorted(fitted.pixels.shape[:2]) == [max(1, int(short * 1024 / long + 0.5)), 1024]
    assert (fitted.pixels == 77).all()


def test_a_grey_image_stays_grey():
    grey = np.repeat(np.asarray(Image.fromarray(PHOTOGRAPHS["china"]).convert("L"))[:, :, None], 3, axis=2)
    fitted = SQUARE.fit(Seen(grey)).pixels
    assert (fitted == fitted[:, :, :1]).all()


def test_what_prepares_can_be_sent_to_another_process():
    image = PHOTOGRAPHS["odd"]
    fitted = pickle.loads(pickle.dumps(SQUARE.fit))(Seen(image))
    np.testing.assert_array_equal(fitted.pixels, SQUARE.fit(Seen(image)).pixels)


@pytest.mark.parametrize("size", SIZES)
def test_boxes_go_where_the_package_puts_them(size):
    corners = np.random.default_rng(0).random((5, 4)) * [size[1], size[0], size[1], size[0]]
    wanted = ResizeLongestSide(1024).apply_boxes_torch(torch.tensor(corners), size).numpy()
    np.testing.assert_allclose(SQUARE.boxes(boxes(*corners), size), wanted, rtol=1e-6, atol=1e-4)


def test_boxes_by_hand():
    # 400 x 200 fills 1024 x 512: everything is 2.56 times as large.
    got = SQUARE.boxes(boxes((0, 0, 400, 200), (100, 50, 150, 75)), (200, 400))
    np.testing.assert_allclose(got, [[0, 0, 1024, 512], [256, 128, 384, 192]])
    assert SQUARE.boxes([], (200, 400)).shape == (0, 4)


@pytest.mark.parametrize("size", SIZES)
def test_masks_are_the_packages(size):
    torch.manual_seed(0)
    logits = torch.nn.functional.interpolate(torch.randn(6, 1, 12, 12), (256, 256), mode="bicubic")
    logits[0], logits[1] = -1, 1
    logits[2, :, :, :255] = -1  # something in the last column alone, which may be padding
    logits[3] = -1
    logits[3, :, 0, 0] = 5
    logits[4] -= 2
    package = SimpleNamespace(image_encoder=SimpleNamespace(img_size=1024))
    wanted = Sam.postprocess_masks(package, logits, SQUARE.size_of(size), size)[:, 0] > 0
    got = whole(SQUARE.masks(logits[:, 0], size), size)
    assert not got[0].any()
    assert got[1].all()
    assert (got != wanted.numpy()).mean() < 1e-6


def test_what_is_computed_of_a_mask_is_a_window_around_it():
    logits = torch.full((1, 256, 256), -1.0)
    logits[0, 10:20, 40:70] = 1
    (patch,) = SQUARE.masks(logits, (768, 1024))
    # Pixels 160 to 280 across and 40 to 80 down, and two on each side that see these logits, too.
    assert (patch.left, patch.top) == (160 - 2, 40 - 2)
    assert patch.mask.shape == (120 + 4, 40 + 4)
    assert patch.mask[3:-3, 3:-3].all()  # it is round at the corners


def distances(mask):
    """Return how far each pixel's centre is from the mask's edge, positive inside; more than the image is outside."""
    around = np.pad(mask, 1)
    inside, outside = (
        cv2.distanceTransform(values.astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1]
        for values in (around, ~around)
    )
    return np.where(mask, inside - 0.5, 0.5 - outside).astype(np.float32)


def oracle(mask):
    """Return the logits of a perfect decoder: OpenCV's means, in SAM's square, of the distances from the edge."""
    height, width = mask.shape
    scale = 1024 / max(mask.shape)
    size = (max(int(width * scale + 0.5), 1), max(int(height * scale + 0.5), 1))
    fitted = cv2.resize(distances(mask), size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    square = np.pad(fitted, ((0, 1024 - size[1]), (0, 1024 - size[0])), mode="edge")
    return torch.from_numpy(square.reshape(256, CELL, 256, CELL).mean(axis=(1, 3)))[None]


def cells(mask):
    """Return how many logits the mask is across."""
    return np.sqrt(mask.sum()) * 256 / max(mask.shape)


def drawn(size, share):
    """Draw an ellipse of about that share of the image, askew and off the middle."""
    canvas = np.zeros(size, dtype=np.uint8)
    axes = tuple(max(int(side * np.sqrt(share / np.pi)), 1) for side in size[::-1])
    cv2.ellipse(canvas, (int(size[1] * 0.55), int(size[0] * 0.47)), axes, 20, 0, 360, 1, -1)
    return canvas.astype(bool)


@pytest.mark.parametrize("share", [0.005, 0.1, 0.4])
@pytest.mark.parametrize("size", [(480, 640), (601, 401), (433, 997), (1501, 1127), (1000, 1501)])
def test_drawn_masks_come_back(size, share):
    """From a dozen logits across, which is 0.5 % of an image of ordinary format."""
    mask = drawn(size, share)
    (got,) = whole(SQUARE.masks(oracle(mask), size), size)
    assert cells(mask) > 11
    assert overlap(got, mask) >= 0.99


def test_the_oracle_can_fail():
    mask = drawn((480, 640), 0.02)
    (moved,) = whole(SQUARE.masks(oracle(np.roll(mask, 2, axis=1)), mask.shape), mask.shape)
    assert overlap(moved, mask) < 0.98


@pytest.fixture(scope="module")
def rendered():
    """Return the renderer's masks of the objects in two photographs, one of them upright."""
    found = []
    for width, height in ((320, 241), (231, 300)):
        config = ScenesConfig(seed=3, worlds=1, photographs=2, width=width, height=height, samples_per_pixel=1)
        item = next(iter(list_items(config, limit=1)))
        photograph = next(row for row in read_item(item, config=config) if isinstance(row, ImageRow))
        found += [decode_mask(thing.mask) for thing in photograph.graph.objects]
    return [mask for mask in found if mask.any()]


def test_rendered_masks_come_back(rendered):
    """Each object as a picture of its own, cut out with odd margins: of all formats, and large enough."""
    assert len(rendered) > 8
    upright, overlaps = set(), []
    for number, mask in enumerate(rendered):
        lines, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        margin = 3 + number % 7
        part = mask[max(lines[0] - margin, 0) : lines[-1] + 2 * margin, max(columns[0] - 7, 0) : columns[-1] + 8]
        (got,) = whole(SQUARE.masks(oracle(part), part.shape), part.shape)
        assert cells(part) > 70
        overlaps.append(overlap(got, part))
        upright.add(part.shape[0] > part.shape[1])
    assert min(overlaps) >= 0.99
    assert upright == {True, False}
