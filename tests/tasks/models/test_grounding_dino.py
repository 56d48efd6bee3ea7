"""Grounding DINO by transformers' real loaders: boxes are those of the library's own pipeline."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.ops import batched_nms
from transformers import GroundingDinoForObjectDetection, GroundingDinoProcessor

from pairwright.schemas.config import DetectionConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Tag
from pairwright.tasks.models.boxes import PIXEL_DIGITS, SCORE_DIGITS
from pairwright.tasks.models.grounding_dino import (
    MAX_ASPECT,
    GroundingDino,
    pin_grounding_dino,
)
from pairwright.tasks.models.prepare_ahead import DecodedImage
from tests.fixtures.checkpoints import write_grounding_folder
from tests.fixtures.hostile_checkpoints import damage_file
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
PHOTOGRAPHS = photographs()
CHINA, FLOWER = PHOTOGRAPHS["china"], PHOTOGRAPHS["flower"]
UNSTRETCHED = [
    image for image in PHOTOGRAPHS.values() if max(image.shape) <= MAX_ASPECT * min(image.shape[:2])
]
IMAGES = [*UNSTRETCHED, CHINA[::-1], FLOWER, CHINA]
NAMES = ("cat", "Red ball", "traffic light")
MANY = (*["red ball", "two dog", "a person", "traffic light"] * 3, "dog")
"""Twelve of two words and a stop: ten of them fill a prompt of 32 tokens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_grounding_folder(tmp_path_factory.mktemp("grounding-dino"))


class Library:
    """The library's own pipeline, which runs once for each image and prompt."""

    def __init__(self, folder):
        self.model = GroundingDinoForObjectDetection.from_pretrained(folder)
        self.processor = GroundingDinoProcessor.from_pretrained(folder)
        self.outputs = {}

    def run(self, image, prompt):
        key = (id(image), prompt)
        if key not in self.outputs:
            pixels = Image.fromarray(image)
            inputs = self.processor(images=pixels, text=prompt, return_tensors="pt")
            with torch.inference_mode():
                self.outputs[key] = self.model(**inputs)
        return self.outputs[key]


@pytest.fixture(scope="module")
def library(folder):
    return Library(folder)


def detector(folder, box=0.0, text=0.0, max_iou=1.0, **settings):
    thresholds = {"box_threshold": box, "text_threshold": text, "max_iou": max_iou}
    settings |= {"detector": "grounding-dino", "model": str(folder)}
    return GroundingDino(config=DetectionConfig(**thresholds, **settings))


def detect(model, images, names):
    prepared = [model.prepare(DecodedImage(image)) for image in images]
    tags = [[Tag(name=name, score=1.0, tagger="ram") for name in each] for each in names]
    return model.detect(prepared, tags)


def numbers(boxes):
    rows = [(box.tag, box.score, box.x0, box.y0, box.x1, box.y1) for box in boxes]
    return np.array(rows).reshape(-1, 6)


def assert_same(boxes, expected, image):
    """Compare in shares of the image, but for the rounding; like scores may change places."""
    scale = np.array([1, 1, *image.shape[1::-1], *image.shape[1::-1]])
    rows, expected = (np.array(each).reshape(-1, 6) / scale for each in (numbers(boxes), expected))
    assert rows.shape == expected.shape
    rounded = np.array([0, 10**-SCORE_DIGITS, *[10**-PIXEL_DIGITS] * 4]) / 2 / scale
    close = (np.abs(rows[:, None] - expected) < 1e-4 + rounded).all(axis=2)
    assert close.any(axis=0).all()
    assert close.any(axis=1).all()


def reference(library, image, names, *, box, text):
    """Return what a user of transformers gets of one image and one prompt, within the image.

    The library says which boxes reach the threshold; whose they are is read from the letters that
    each token stands for in the text.
    """
    processor, prompt = library.processor, "".join(f"{name.lower()} . " for name in names)
    outputs = library.run(image, prompt)
    (results,) = processor.post_process_grounded_object_detection(
        outputs, threshold=box, text_threshold=text, target_sizes=[image.shape[:2]]
    )
    scores = outputs.logits[0].sigmoid()
    scores = scores[scores.max(dim=1).values > box]
    sides = np.array([*image.shape[1::-1], *image.shape[1::-1]])
    corners = np.clip(results["boxes"].numpy(), 0, sides)
    visible = (corners[:, :2] < corners[:, 2:]).all(axis=1)
    letters = processor.tokenizer(prompt, return_offsets_mapping=True)["offset_mapping"]
    rows, start = [], 0
    for tag, name in enumerate(names):
        end = start + len(name)
        tokens = [place for place, (a, b) in enumerate(letters) if start <= a < b <= end]
        start = end + 3
        of_tag = scores[:, tokens].max(dim=1).values.numpy()
        for place in np.flatnonzero((of_tag > text) & visible):
            rows.append((tag, of_tag[place], *corners[place]))
    return rows


@pytest.mark.parametrize(
    ("box", "text", "least", "most"),
    [(0.25, 0.2, 0.05, 0.999), (0.97, 0.5, 0.05, 0.999), (0.0, 0.0, 1, 1)],
)
def test_boxes_are_those_of_transformers(folder, library, box, text, least, most):
    """Batched with others, of all sizes and orientations, with prompts of other lengths."""
    names = [NAMES[: 1 + place % 3] for place in range(len(IMAGES))]
    results = detect(detector(folder, box, text, batch_size=3), IMAGES, names)
    for image, tags, boxes in zip(IMAGES, names, results, strict=True):
        assert_same(boxes, reference(library, image, tags, box=box, text=text), image)
        order = [(each.tag, -each.score) for each in boxes]
        assert order == sorted(order)
    queries = 24 * sum(map(len, names))
    assert least * queries <= sum(map(len, results)) <= most * queries


def test_tags_of_several_prompts_keep_their_places(folder, library):
    images = [CHINA, PHOTOGRAPHS["odd"], FLOWER]
    model = detector(folder, 0.5, 0.1, batch_size=4)
    results = detect(model, images, [MANY, ["cat"], MANY])
    for image, boxes in zip(images[::2], results[::2], strict=True):
        first = reference(library, image, MANY[:10], box=0.5, text=0.1)
        second = reference(library, image, MANY[10:], box=0.5, text=0.1)
        assert {tag for tag, *_ in second} == {0, 1, 2}
        assert_same(boxes, first + [(tag + 10, *rest) for tag, *rest in second], image)
        assert [box.tag for box in boxes] == sorted(box.tag for box in boxes)


@pytest.mark.parametrize("max_iou", [0.5, 0.1])
def test_overlapping_boxes_of_a_tag_go_as_torchvision_says(folder, max_iou):
    image = PHOTOGRAPHS["astronaut"]
    (every,) = detect(detector(folder, 0.2, 0.1), [image], [NAMES])
    (boxes,) = detect(detector(folder, 0.2, 0.1, max_iou), [image], [NAMES])
    rows = torch.tensor(numbers(every), dtype=torch.float32)
    places = batched_nms(rows[:, 2:], rows[:, 1], rows[:, 0], max_iou).tolist()
    assert 0 < len(places) < len(every)
    assert set(boxes) == {every[place] for place in places}


@pytest.mark.parametrize("shape", [(1, 1), (500, 1), (16, 8000), (37, 41)], ids=str)
def test_extreme_images_are_asked_about_like_others(folder, shape):
    model, image = detector(folder), np.full((*shape, 3), 128, dtype=np.uint8)
    alone, _ = detect(model, [image, CHINA], [["cat"], ["dog"]])
    _, beside = detect(model, [FLOWER, image], [["cat"], ["cat"]])
    assert alone
    assert_same(beside, numbers(alone), image)
    assert all(0 <= box.x0 < box.x1 <= shape[1] for box in alone)
    assert all(0 <= box.y0 < box.y1 <= shape[0] for box in alone)


@pytest.mark.parametrize(
    ("hostile", "harmless"), [("[SEP]", "[ sep ]"), ("cat . dog .", "cat dog")]
)
def test_hostile_tags_do_not_move_others(folder, hostile, harmless):
    model = detector(folder, 0.3, 0.2)
    boxes = detect(model, [CHINA, CHINA], [[hostile, "cat"], [harmless, "cat"]])
    assert boxes[0] == boxes[1]


def test_tags_that_cannot_be_asked_about_are_left_out(folder):
    gone = ["", ".", "\n", "z" * 10_000, "cat " * 10_000, "\ud800", "🦄"]
    model = detector(folder, 0.3, 0.2)
    (alone,) = detect(model, [CHINA], [["cat", "dog"]])
    (beside,) = detect(model, [CHINA], [[*gone, "cat", *gone, "dog"]])
    assert alone
    assert numbers(alone)[:, 1:].tolist() == numbers(beside)[:, 1:].tolist()
    assert [(7, 15)[box.tag] for box in alone] == [box.tag for box in beside]


def test_weights_that_give_no_numbers_are_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.text_projection.bias"][:] = float("nan")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"detection\.model: .*finite"):
        detect(detector(tmp_path), [CHINA], [["cat"]])


def assert_refused(folder, reason):
    with pytest.raises(ModelError, match=reason):
        detect(detector(folder), [CHINA], [["cat"]])
    with pytest.raises(ModelError, match=reason):
        pin_grounding_dino(DetectionConfig(model=str(folder)), download=False)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", json.dumps({"model_type": "bert"}), "bert.* grounding-dino"),
        ("config.json", "{", "detection: .*JSONDecodeError"),
        ("processor_config.json", "{", "detection: .*processor_config.json"),
        ("processor_config.json", "{}", "detection: .*image processor"),
        ("processor_config.json", None, "detection: "),
        ("tokenizer.json", "{", "detection: "),
        ("model.safetensors", "not weights", "detection: "),
        ("model.safetensors", "cut", r"detection: .*model\.safetensors"),
    ],
)
def test_a_damaged_folder_is_one_message(folder, tmp_path, name, content, reason):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    damage_file(tmp_path / name, content)
    assert_refused(tmp_path, reason)


def test_a_pickle_is_not_read(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    assert_refused(tmp_path, "safetensors")
