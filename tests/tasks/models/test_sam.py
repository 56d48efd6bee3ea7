"""SAM by its real files: masks are those of the package's own predictor, box by box."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from segment_anything import SamPredictor

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models import sam
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.sam import Sam, pin_sam
from pairwright.tasks.models.weights import identify_files
from tests.fixtures.checkpoints import make_sam, write_sam
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
PHOTOGRAPHS = photographs()
NAMES = ("china", "astronaut", "odd", "odd, one more", "small", "wide", "tall", "not contiguous")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_sam(tmp_path_factory.mktemp("sam") / "sam.pth")


def pin(path):
    return pin_sam(SegmentationConfig(segmenter="sam", checkpoint=str(path)))


@pytest.fixture(scope="module")
def segmenter(path):
    return Sam(config=pin(path))


def box(tag, *corners):
    x0, y0, x1, y1 = map(float, corners)
    return Box(tag=tag, score=1.0, x0=x0, y0=y0, x1=x1, y1=y1)


def random_boxes(image, count, *, tags, seed=0):
    rng = np.random.default_rng(seed)
    height, width = image.shape[:2]
    across, down = (np.sort(rng.random((count, 2)) * side, axis=1) for side in (width, height))
    return [box(n % tags, across[n, 0], down[n, 0], across[n, 1], down[n, 1]) for n in range(count)]


def segment(segmenter, images, boxes, *, tags):
    prepared = [segmenter.prepare(DecodedImage(image)) for image in images]
    names = tuple(Tag(name=f"tag {n}", score=1.0, tagger="nouns") for n in range(tags))
    return list(segmenter.segment(prepared, [names] * len(images), boxes))


def package(image, boxes):
    """Return what a user of the package gets: one image, one box at a time, float32."""
    predictor = SamPredictor(make_sam())
    predictor.set_image(np.ascontiguousarray(image))
    masks = []
    for each in boxes:
        corners = torch.tensor([[each.x0, each.y0, each.x1, each.y1]])
        corners = predictor.transform.apply_boxes_torch(corners, image.shape[:2])
        mask, score, _ = predictor.predict_torch(None, None, boxes=corners, multimask_output=False)
        masks.append((mask[0, 0].numpy(), score.item()))
    return masks


def overlap(first, second):
    return (first & second).sum() / max((first | second).sum(), 1)


def test_masks_are_those_of_the_package(segmenter):
    images = [PHOTOGRAPHS[name] for name in NAMES]
    boxes = [random_boxes(image, 4, tags=4, seed=n) for n, image in enumerate(images)]
    results = segment(segmenter, images, boxes, tags=4)
    others = []
    for image, image_boxes, masks in zip(images, boxes, results, strict=True):
        for mask, (expected, score) in zip(masks, package(image, image_boxes), strict=True):
            assert mask.mask.shape == image.shape[:2]
            assert overlap(mask.mask, expected) >= 0.99
            assert mask.score == pytest.approx(score, abs=1e-3)
        others += [overlap(masks[0].mask, other.mask) for other in masks[1:]]
    assert np.median(others) < 0.8, "other boxes have clearly other masks"


def test_a_tags_mask_is_the_union_and_its_score_the_least(segmenter):
    image = PHOTOGRAPHS["odd"]
    boxes = random_boxes(image, 6, tags=2)
    ((first, second, none),) = segment(segmenter, [image], [boxes], tags=3)
    single = package(image, boxes)
    for mask, expected in ((first, single[::2]), (second, single[1::2])):
        assert overlap(mask.mask, np.logical_or.reduce([each for each, _ in expected])) >= 0.99
        assert mask.score == pytest.approx(min(score for _, score in expected), abs=1e-3)
    assert not none.mask.any()
    assert none.score == 0


def test_images_without_boxes_are_not_encoded_and_keep_their_places(segmenter):
    images = [PHOTOGRAPHS[name] for name in ("china", "astronaut", "odd")]
    boxes = random_boxes(images[1], 2, tags=2)
    results = segment(segmenter, images, [[], boxes, []], tags=2)
    (alone,) = segment(segmenter, [images[1]], [boxes], tags=2)
    for masks, image in zip(results, images, strict=True):
        assert [mask.mask.shape for mask in masks] == [image.shape[:2]] * 2
    assert [any(mask.mask.any() for mask in masks) for masks in results] == [False, True, False]
    assert [overlap(a.mask, b.mask) for a, b in zip(results[1], alone, strict=True)] == [1, 1]
    assert segment(segmenter, [], [], tags=2) == []
    assert segment(segmenter, images[:1], [[]], tags=0) == [[]]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 8000), (3000, 1)])
def test_pixels_and_panoramas(segmenter, height, width):
    beyond = box(1, -50, -50, 3 * width, 3 * height)
    boxes = [box(0, 0, 0, width, height), box(1, 0, 0, 0, 0), beyond]
    image = np.full((height, width, 3), 9, dtype=np.uint8)
    (masks,) = segment(segmenter, [image], [boxes], tags=2)
    assert [mask.mask.shape for mask in masks] == [(height, width)] * 2
    assert np.isfinite([mask.score for mask in masks]).all()


def write_changed(path, target, name, tensor):
    """Write a checkpoint with another tensor, or without it."""
    weights = torch.load(path, weights_only=True)
    weights.pop(name, None)
    torch.save(weights if tensor is None else weights | {name: tensor}, target)
    return target


def test_numbers_that_are_not_finite_are_an_error(tmp_path, path):
    bias = torch.full((16,), torch.nan)
    damaged = write_changed(path, tmp_path / "nan.pth", "image_encoder.neck.3.bias", bias)
    image = PHOTOGRAPHS["small"]
    with pytest.raises(ModelError, match=r"segmentation: .*finite"):
        segment(Sam(config=pin(damaged)), [image], [random_boxes(image, 1, tags=1)], tags=1)


def test_a_local_file_is_known_by_its_bytes_and_found_from_anywhere(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    config = pin(path.name)
    assert (config.checkpoint, config.revision) == (str(path), identify_files([path]))
    assert Sam(config=config).version == f"SAM {config.revision}"
    other = write_sam(tmp_path / "sam.pth", seed=1)
    with pytest.raises(ModelError, match=r"segmentation\.revision"):
        pin_sam(config.model_copy(update={"checkpoint": str(other)}))


@pytest.mark.parametrize(
    ("name", "tensor", "reason"),
    [
        ("image_encoder.pos_embed", None, "cannot be loaded: .*pos_embed"),
        ("mask_decoder.output_upscaling.0.bias", None, "mask_decoder.output_upscaling.0.bias"),
        ("image_encoder.neck.0.weight", torch.zeros(3, 3), r"neck.0.weight: .*\[3, 3\]"),
        ("adapter.lora_A", torch.zeros(1), "adapter.lora_A"),
        ("mask_decoder.transformer.layers.7.norm1.bias", torch.zeros(1), "not numbered"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, path, name, tensor, reason):
    other = write_changed(path, tmp_path / "other.pth", name, tensor)
    with pytest.raises(ModelError, match=rf"(?s)segmentation\.checkpoint: .*{reason}"):
        pin(other)


def test_threads_that_prepare_images_load_the_weights_once(tmp_path, monkeypatch):
    segmenter = Sam(config=pin(write_sam(tmp_path / "sam.pth", seed=7)))
    loads = []
    load_sam = sam.load_sam
    monkeypatch.setattr(
        sam, "load_sam", lambda *words, **how: loads.append(words) or load_sam(*words, **how)
    )
    images = [DecodedImage(PHOTOGRAPHS["small"])] * 8
    with ThreadPoolExecutor(8) as threads:
        prepared = list(threads.map(segmenter.prepare, images))
    assert (len(prepared), len(loads)) == (8, 1)
