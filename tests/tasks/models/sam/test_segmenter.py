"""SAM through its real files: masks are those of the package's own predictor, one image and one box at a time."""

import re

import numpy as np
import pytest
import torch
from segment_anything import SamPredictor, sam_model_registry

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models.batches import Batches
from pairwright.tasks.models.weights import PublishedFile
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.sam.geometry import Square
from pairwright.tasks.models.sam.segmenter import MOST_BOXES, Prompter, Sam, Union, pin_sam, published
from pairwright.tasks.models.weights import identify_files
from tests.fixtures.sam_checkpoints import make_sam, write_sam
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = photographs()
NAMES = ("china", "astronaut", "odd", "odd, one more", "small", "wide", "tall", "not contiguous")
"""Landscape, square, upright, odd sizes, and two strips."""
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_sam(tmp_path_factory.mktemp("sam") / "sam.pth")


def sam(path, **settings):
    return Sam(config=pin_sam(SegmentationConfig(segmenter="sam", checkpoint=str(path), **settings)))


def box(tag, *corners):
    return Box(tag=tag, score=1.0, **dict(zip(("x0", "y0", "x1", "y1"), map(float, corners), strict=True)))


def random_boxes(image, count, *, tags, seed=0):
    rng = np.random.default_rng(seed)
    height, width = image.shape[:2]
    across, down = (np.sort(rng.random((count, 2)) * side, axis=1) for side in (width, height))
    return [box(n % tags, across[n, 0], down[n, 0], across[n, 1], down[n, 1]) for n in range(count)]


def names(count):
    return tuple(Tag(name=f"tag {n}", score=1.0, tagger="nouns") for n in range(count))


def segmented(segmenter, images, boxes, *, tags):
    prepared = [segmenter.prepare(Seen(image)) for image in images]
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
    found = segmented(sam(path, batch_size=3), images, boxes, tags=5)
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
        assert masks[tag].score == pytest.approx(min(score for _, score in single[tag::2]), abs=1e-3)
    assert not masks[2].mask.any()
    assert masks[2].score == 0


def test_batches_change_roundings_only(path):
    images = [PHOTOGRAPHS[name] for name in NAMES]
    boxes = [random_boxes(image, 4, tags=4) for image in images]
    one, many = (segmented(sam(path, batch_size=batch), images, boxes, tags=4) for batch in (1, 8))
    for first, second in zip(one, many, strict=True):
        assert min(overlap(a.mask, b.mask) for a, b in zip(first, second, strict=True)) > 0.999


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


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((1, 1, 3), 9, dtype=np.uint8),
        np.zeros((2, 8000, 3), dtype=np.uint8),
        np.full((3000, 1, 3), 255, dtype=np.uint8),
    ],
)
def test_pixels_and_panoramas(path, pixels):
    height, width = pixels.shape[:2]
    boxes = [box(0, 0, 0, width, height), box(1, 0, 0, 0, 0), box(1, -50, -50, 3 * width, 3 * height)]
    (masks,) = segmented(sam(path), [pixels], [boxes], tags=2)
    assert [mask.mask.shape for mask in masks] == [(height, width)] * 2
    assert np.isfinite([mask.score for mask in masks]).all()


class Oracle:
    """Draw an ellipse in each box that it is asked for: what a perfect decoder says where everything is an ellipse."""

    def __init__(self, side, most=10**6):
        self.side, self.most, self.asked = side, most, []

    def prompt(self, embedding, boxes):
        assert embedding.shape[0] == 1
        if len(boxes) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.asked.append(len(boxes))
        centres = (torch.arange(self.side // 4) + 0.5) * 4
        middle, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]) / 2
        across = (centres - middle[:, :1]) / half[:, :1]
        down = (centres - middle[:, 1:]) / half[:, 1:]
        reach = (across[:, None, :] ** 2 + down[:, :, None] ** 2).sqrt()
        return 1 - reach, 1 - 0.01 * torch.arange(len(boxes))

    def prompter(self, at_once):
        return Prompter(
            encode=lambda images: images.mean(dim=1, keepdim=True),
            prompt=self.prompt,
            square=Square(self.side),
            device=CPU,
            images=Batches(2),
            boxes=Batches(at_once),
        )

    def segment(self, images, boxes, *, tags, at_once=MOST_BOXES):
        prompter = self.prompter(at_once)
        prepared = [prompter.square.fit(Seen(image)) for image in images]
        return list(prompter.segment(prepared, [names(tags)] * len(images), boxes))


def ellipse(size, one):
    """Return the pixels whose centres lie in the ellipse that fills a box."""
    rows, columns = np.indices(size) + 0.5
    across = (columns - (one.x0 + one.x1) / 2) / ((one.x1 - one.x0) / 2)
    down = (rows - (one.y0 + one.y1) / 2) / ((one.y1 - one.y0) / 2)
    return across**2 + down**2 <= 1


@pytest.mark.parametrize("size", [(480, 640), (601, 401), (333, 997), (1201, 901)])
def test_what_is_drawn_in_a_box_comes_back_in_its_place(size):
    height, width = size
    # The first is 17 of SAM's logits across, on an image of ordinary format.
    corners = [(0.1, 0.2, 0.17, 0.3), (0.3, 0.1, 0.95, 0.5), (0.02, 0.55, 0.4, 0.99), (0.6, 0.6, 0.9, 0.8)]
    boxes = [box(n, x0 * width, y0 * height, x1 * width, y1 * height) for n, (x0, y0, x1, y1) in enumerate(corners)]
    (masks,) = Oracle(1024).segment([np.zeros((*size, 3), np.uint8)], [boxes], tags=4)
    assert min(overlap(got.mask, ellipse(size, one)) for got, one in zip(masks, boxes, strict=True)) >= 0.99


def test_many_boxes_are_asked_for_a_few_at_a_time():
    boxes = [box(0, n, 0, n + 30, 40) for n in range(70)]
    oracle = Oracle(256)
    (masks,) = oracle.segment([np.zeros((50, 120, 3), np.uint8)], [boxes], tags=1)
    assert oracle.asked == [MOST_BOXES, MOST_BOXES, 70 - 2 * MOST_BOXES]
    union = np.logical_or.reduce([ellipse((50, 120), one) for one in boxes])
    assert overlap(masks[0].mask, union) > 0.99


def test_out_of_memory_halves_and_goes_on(caplog):
    boxes = [[box(n % 3, 5 * n, 0, 5 * n + 30, 40) for n in range(20)]] * 3
    images = [np.zeros((50, 150, 3), np.uint8)] * 3
    wanted = Oracle(256).segment(images, boxes, tags=3)
    oracle = Oracle(256, most=5)
    found = oracle.segment(images, boxes, tags=3, at_once=16)
    assert oracle.asked == [4] * 15
    assert re.search(r"\b4\b", caplog.text)
    for first, second in zip(found, wanted, strict=True):
        assert all(np.array_equal(a.mask, b.mask) for a, b in zip(first, second, strict=True))
    with pytest.raises(ModelError, match="out of memory"):
        Oracle(256, most=0).segment(images, boxes, tags=3)


def test_masks_lie_in_memory_by_columns():
    union = Union(2, (30, 40), CPU)
    assert all(mask.mask.flags.f_contiguous and mask.mask.shape == (30, 40) for mask in union.masks())


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
        pin_sam(config.model_copy(update={"checkpoint": str(write_sam(tmp_path / "sam.pth", seed=1))}))


def test_published_weights_are_looked_for_in_the_cache(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path))
    config = SegmentationConfig(segmenter="sam", model="vit_l")
    assert published(config) == PublishedFile(
        field="segmentation",
        name="sam_vit_l_0b3195.pth",
        url="https://dl.fbaipublicfiles.com/segment_anything/sam_vit_l_0b3195.pth",
        sha256="3adcc4315b642a4d2101128f611684e8734c41232a17c648ed1693702a49a622",
    )
    with pytest.raises(ModelError, match=r"sam_vit_l_0b3195\.pth .*segmentation\.download=true"):
        pin_sam(config)
    write_sam(tmp_path / "weights" / "sam_vit_l_0b3195.pth")
    with pytest.raises(ModelError, match="SHA-256"):
        pin_sam(config)


def test_the_names_of_published_files_are_the_registrys():
    files = {model: published(SegmentationConfig(model=model)).name for model in ("vit_b", "vit_l", "vit_h")}
    assert all(name.startswith(f"sam_{model}_") and name.endswith(".pth") for model, name in files.items())
    assert files.keys() == sam_model_registry.keys() - {"default"}


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("missing.pth", None, "segmentation.checkpoint: .*missing.pth"),
        ("text.pth", b"not weights", "segmentation.checkpoint: .*text.pth"),
        ("text.safetensors", b"not weights", "segmentation.checkpoint: .*text.safetensors"),
    ],
)
def test_a_damaged_file_is_one_message(tmp_path, name, data, words):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelError, match=words):
        _ = sam(tmp_path / name).prepare
