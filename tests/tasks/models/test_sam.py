"""SAM through its real files: masks are those of the package's own predictor, one image and one box
at a time."""

import numpy as np
import pytest
import torch
from segment_anything import SamPredictor

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.models.sam import Sam, pin_sam
from pairwright.tasks.models.weights import identify_files
from tests.fixtures.sam_checkpoints import make_sam, write_sam
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
PHOTOGRAPHS = photographs()
NAMES = ("china", "astronaut", "odd", "odd, one more", "small", "wide", "tall", "not contiguous")
"""Landscape, square, upright, odd sizes, and two strips."""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_sam(tmp_path_factory.mktemp("sam") / "sam.pth")


def sam(path, **settings):
    return Sam(
        config=pin_sam(SegmentationConfig(segmenter="sam", checkpoint=str(path), **settings))
    )


def box(tag, *corners):
    return Box(
        tag=tag, score=1.0, **dict(zip(("x0", "y0", "x1", "y1"), map(float, corners), strict=True))
    )


def random_boxes(image, count, *, tags, seed=0):
    rng = np.random.default_rng(seed)
    height, width = image.shape[:2]
    across, down = (np.sort(rng.random((count, 2)) * side, axis=1) for side in (width, height))
    return [box(n % tags, across[n, 0], down[n, 0], across[n, 1], down[n, 1]) for n in range(count)]


def names(count):
    return tuple(Tag(name=f"tag {n}", score=1.0, tagger="nouns") for n in range(count))


def segmented(segmenter, images, boxes, *, tags):
    prepared = [segmenter.prepare(DecodedImage(image)) for image in images]
    return list(segmenter.segment(prepared, [names(tags)] * len(images), boxes))


def package(image, boxes):
    """Return what a user of the package gets: one image, one box at a time, float32."""
    predictor = SamPredictor(make_sam())
    predictor.set_image(np.ascontiguousarray(image))
    for one in boxes:
        corners = torch.tensor([[one.x0, one.y0, one.x1, one.y1]])
        corners = predictor.transform.apply_boxes_torch(corners, image.shape[:2])
        mask, score, _ = predictor.predict_torch(None, None, boxes=corners, multimask_output=False)
        yield mask[0, 0].numpy(), score.item()


def overlap(first, second):
    return (first & second).sum() / max((first | second).sum(), 1)


def test_masks_are_those_of_the_package(path):
    images = [PHOTOGRAPHS[name] for name in NAMES]
    boxes = [random_boxes(image, 5, tags=5, seed=n) for n, image in enumerate(images)]
    found = segmented(sam(path), images, boxes, tags=5)
    between = []
    for image, asked, masks in zip(images, boxes, found, strict=True):
        for got, (mask, score) in zip(masks, package(image, asked), strict=True):
            assert got.mask.shape == image.shape[:2]
            assert overlap(got.mask, mask) >= 0.99
            assert got.score == pytest.approx(score, abs=1e-3)
        between += [overlap(masks[0].mask, other.mask) for other in masks[1:]]
    # The check above can fail: other boxes give clearly other masks.
    assert np.median(between) < 0.8


def test_a_tags_mask_is_the_union_and_its_score_the_least(path):
    image = PHOTOGRAPHS["odd"]
    boxes = random_boxes(image, 6, tags=2)
    (masks,) = segmented(sam(path), [image], [boxes], tags=3)
    single = list(package(image, boxes))
    for tag in (0, 1):
        union = np.logical_or.reduce([mask for mask, _ in single[tag::2]])
        assert overlap(masks[tag].mask, union) >= 0.99
        assert masks[tag].score == pytest.approx(
            min(score for _, score in single[tag::2]), abs=1e-3
        )
    assert not masks[2].mask.any()
    assert masks[2].score == 0


def test_images_without_boxes_are_not_encoded_and_keep_their_places(path):
    images = [PHOTOGRAPHS[name] for name in ("china", "astronaut", "odd")]
    boxes = random_boxes(images[1], 2, tags=2)
    found = segmented(sam(path), images, [[], boxes, []], tags=2)
    (alone,) = segmented(sam(path), [images[1]], [boxes], tags=2)
    for masks, image in zip(found, images, strict=True):
        assert [mask.mask.shape for mask in masks] == [image.shape[:2]] * 2
    assert [any(mask.mask.any() for mask in masks) for masks in found] == [False, True, False]
    assert [overlap(a.mask, b.mask) for a, b in zip(found[1], alone, strict=True)] == [1, 1]
    assert segmented(sam(path), [], [], tags=2) == []
    assert segmented(sam(path), images[:1], [[]], tags=0) == [[]]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 8000), (3000, 1)])
def test_pixels_and_panoramas(path, height, width):
    boxes = [
        box(0, 0, 0, width, height),
        box(1, 0, 0, 0, 0),
        box(1, -50, -50, 3 * width, 3 * height),
    ]
    (masks,) = segmented(
        sam(path), [np.full((height, width, 3), 9, dtype=np.uint8)], [boxes], tags=2
    )
    assert [mask.mask.shape for mask in masks] == [(height, width)] * 2
    assert np.isfinite([mask.score for mask in masks]).all()


def test_numbers_that_are_not_finite_are_an_error(tmp_path, path):
    weights = torch.load(path, weights_only=True)
    weights["image_encoder.neck.3.bias"][0] = torch.nan
    torch.save(weights, tmp_path / "nan.pth")
    image = PHOTOGRAPHS["small"]
    with pytest.raises(ModelError, match=r"segmentation: .*finite"):
        segmented(sam(tmp_path / "nan.pth"), [image], [random_boxes(image, 1, tags=1)], tags=1)


def test_a_local_file_is_known_by_its_bytes_and_found_from_anywhere(path, tmp_path, monkeypatch):
    monkeypatch.chdir(path.parent)
    config = pin_sam(SegmentationConfig(segmenter="sam", checkpoint=path.name))
    assert (config.checkpoint, config.revision) == (str(path), identify_files([path]))
    assert Sam(config=config).version == f"SAM {config.revision}"
    with pytest.raises(ModelError, match=r"segmentation\.revision"):
        pin_sam(
            config.model_copy(update={"checkpoint": str(write_sam(tmp_path / "sam.pth", seed=1))})
        )


@pytest.mark.parametrize(
    ("name", "tensor", "words"),
    [
        ("image_encoder.pos_embed", None, "cannot be loaded: .*pos_embed"),
        ("mask_decoder.output_upscaling.0.bias", None, "mask_decoder.output_upscaling.0.bias"),
        ("image_encoder.neck.0.weight", torch.zeros(3, 3), r"neck.0.weight: .*\[3, 3\]"),
        ("adapter.lora_A", torch.zeros(1), "adapter.lora_A"),
        ("mask_decoder.transformer.layers.7.norm1.bias", torch.zeros(1), "not numbered"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, path, name, tensor, words):
    weights = {
        key: value for key, value in torch.load(path, weights_only=True).items() if key != name
    }
    torch.save(weights if tensor is None else {**weights, name: tensor}, tmp_path / "other.pth")
    with pytest.raises(ModelError, match=rf"(?s)segmentation\.checkpoint: .*{words}"):
        sam(tmp_path / "other.pth")
