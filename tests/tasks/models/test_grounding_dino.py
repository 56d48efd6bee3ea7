"""Grounding DINO through transformers' real loaders: boxes are those of the library's own pipeline,
image by image."""

import json
import shutil
from functools import lru_cache

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
from pairwright.tasks.models.grounding_dino import (
    MAX_ASPECT,
    PIXEL_DIGITS,
    SCORE_DIGITS,
    GroundingDino,
    pin_grounding_dino,
)
from pairwright.tasks.models.prepare_ahead import DecodedImage
from tests.fixtures.grounding_checkpoints import write_grounding_folder
from tests.tasks.models.samples import photographs

pytestmark = pytest.mark.usefixtures("one_thread")
PHOTOGRAPHS = photographs()
ORDINARY = {
    name: image
    for name, image in PHOTOGRAPHS.items()
    if max(image.shape) <= MAX_ASPECT * min(image.shape[:2])
}
"""Those that are not stretched."""
NAMES = ("cat", "Red ball", "traffic light")
MANY = (*["red ball", "two dog", "a person", "traffic light"] * 3, "dog")
"""Twelve of two words and a stop: ten of them fill a prompt of 32 tokens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_grounding_folder(tmp_path_factory.mktemp("grounding-dino"))


def tags(*names):
    return [Tag(name=name, score=1.0, tagger="ram") for name in names]


def detector(folder, **config):
    return GroundingDino(
        config=DetectionConfig(detector="grounding-dino", model=str(folder), **config)
    )


def detect(made, images, names):
    return made.detect(
        [made.prepare(DecodedImage(image)) for image in images], [tags(*some) for some in names]
    )


def numbers(boxes):
    return np.array(
        [(box.tag, box.score, box.x0, box.y0, box.x1, box.y1) for box in boxes]
    ).reshape(-1, 6)


def assert_same(boxes, wanted, image):
    """Compare in shares of the image, but for the rounding; results of like score may have changed
    places."""
    scale = np.array([1, 1, *image.shape[1::-1], *image.shape[1::-1]])
    got, expected = (np.array(rows).reshape(-1, 6) / scale for rows in (numbers(boxes), wanted))
    assert got.shape == expected.shape
    rounded = np.array([0, 10**-SCORE_DIGITS, *[10**-PIXEL_DIGITS] * 4]) / 2 / scale
    for row in got:
        assert (np.abs(expected - row) < 1e-4 + rounded).all(axis=1).any()
    for row in expected:
        assert (np.abs(got - row) < 1e-4 + rounded).all(axis=1).any()


@lru_cache(maxsize=1)
def library(folder):
    return GroundingDinoForObjectDetection.from_pretrained(
        folder
    ), GroundingDinoProcessor.from_pretrained(folder)


def reference(folder, image, names, *, threshold, text_threshold):
    """Return what a user of transformers gets of one image and one prompt: ``(tag, score,
    corners)`` in any order.

    The library says which boxes reach the threshold; whose they are is read from the letters that
    each token stands for in the text.
    """
    model, processor = library(folder)
    text = "".join(f"{name.lower()} . " for name in names)
    with torch.inference_mode():
        inputs = processor(images=Image.fromarray(image), text=text, return_tensors="pt")
        found = model(**inputs)
    (kept,) = processor.post_process_grounded_object_detection(
        found, threshold=threshold, text_threshold=text_threshold, target_sizes=[image.shape[:2]]
    )
    scores = found.logits[0].sigmoid()
    scores = scores[scores.max(dim=1).values > threshold]
    letters = processor.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    results, start = [], 0
    for tag, name in enumerate(names):
        tokens = [
            place
            for place, (left, right) in enumerate(letters)
            if start <= left < right <= start + len(name)
        ]
        start += len(name) + 3
        of_tag = scores[:, tokens].max(dim=1).values
        results += [
            (tag, float(score), corners)
            for score, corners in zip(of_tag, kept["boxes"].tolist(), strict=True)
            if score > text_threshold
        ]
    return results


def clipped(results, image):
    """Return what is left of results within the image, by tag and falling score."""
    sides = np.array([*image.shape[1::-1], *image.shape[1::-1]])
    inside = [(tag, score, *np.clip(corners, 0, sides).tolist()) for tag, score, corners in results]
    left = [one for one in inside if one[2] < one[4] and one[3] < one[5]]
    return sorted(left, key=lambda one: (one[0], -one[1]))


@pytest.mark.parametrize(("threshold", "text_threshold"), [(0.25, 0.2), (0.97, 0.5), (0.0, 0.0)])
def test_boxes_are_those_of_transformers(folder, threshold, text_threshold):
    """Batched with others, of all sizes and orientations, with prompts of other lengths."""
    made = detector(
        folder, box_threshold=threshold, text_threshold=text_threshold, max_iou=1.0, batch_size=3
    )
    images = [
        *ORDINARY.values(),
        PHOTOGRAPHS["china"][::-1],
        PHOTOGRAPHS["flower"],
        PHOTOGRAPHS["china"],
    ]
    names = [NAMES[: 1 + place % 3] for place in range(len(images))]
    found = detect(made, images, names)
    total = 0
    for image, some, boxes in zip(images, names, found, strict=True):
        wanted = clipped(
            reference(folder, image, some, threshold=threshold, text_threshold=text_threshold),
            image,
        )
        assert_same(boxes, wanted, image)
        assert [(box.tag, -box.score) for box in boxes] == sorted(
            (box.tag, -box.score) for box in boxes
        )
        total += len(boxes)
    queries = 24 * sum(map(len, names))
    assert total == queries if threshold == 0 else queries / 20 < total < queries


def test_tags_of_several_prompts_keep_their_places(folder):
    made = detector(folder, box_threshold=0.5, text_threshold=0.1, max_iou=1.0, batch_size=4)
    images = [PHOTOGRAPHS[name] for name in ("china", "odd", "china")]
    found = detect(made, images, [MANY, ["cat"], MANY])
    for image, boxes in zip(images[::2], found[::2], strict=True):
        thresholds = {"threshold": 0.5, "text_threshold": 0.1}
        first = reference(folder, image, MANY[:10], **thresholds)
        second = [
            (tag + 10, *rest) for tag, *rest in reference(folder, image, MANY[10:], **thresholds)
        ]
        assert {tag for tag, *_ in second} == {10, 11, 12}
        assert_same(boxes, clipped(first + second, image), image)
        assert [box.tag for box in boxes] == sorted(box.tag for box in boxes)


def test_overlapping_boxes_of_a_tag_go_as_torchvision_says(folder):
    image = PHOTOGRAPHS["astronaut"]
    (every,) = detect(
        detector(folder, box_threshold=0.2, text_threshold=0.1, max_iou=1.0), [image], [NAMES]
    )
    rows = torch.tensor(numbers(every), dtype=torch.float32)
    for overlap in (0.5, 0.1):
        (boxes,) = detect(
            detector(folder, box_threshold=0.2, text_threshold=0.1, max_iou=overlap),
            [image],
            [NAMES],
        )
        kept = batched_nms(rows[:, 2:], rows[:, 1], rows[:, 0], overlap)
        assert 0 < len(kept) < len(every)
        assert set(boxes) == {every[place] for place in kept.tolist()}


@pytest.mark.parametrize(
    "shape", [(1, 1), (500, 1), (16, 8000), (37, 41)], ids=lambda shape: f"{shape}"
)
def test_extreme_images_are_asked_about_like_others(folder, shape):
    made = detector(folder, box_threshold=0, text_threshold=0, max_iou=1.0)
    image = np.full((*shape, 3), 128, dtype=np.uint8)
    alone, _ = detect(made, [image, PHOTOGRAPHS["china"]], [["cat"], ["dog"]])
    _, beside = detect(made, [PHOTOGRAPHS["flower"], image], [["cat"], ["cat"]])
    assert alone
    assert_same(beside, numbers(alone), image)
    assert all(
        0 <= box.x0 < box.x1 <= shape[1] and 0 <= box.y0 < box.y1 <= shape[0] for box in alone
    )


def test_weights_that_give_no_numbers_are_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.text_projection.bias"][:] = float("nan")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"detection\.model: .*finite"):
        detect(detector(tmp_path), [PHOTOGRAPHS["china"]], [["cat"]])


def test_hostile_tags_do_not_move_others(folder):
    made = detector(folder, box_threshold=0.3, text_threshold=0.2)
    image = PHOTOGRAPHS["china"]
    found = detect(made, [image, image], [[name, "cat"] for name in ("[SEP]", "cat . dog .")])
    wanted = detect(made, [image, image], [["[ sep ]", "cat"], ["cat dog", "cat"]])
    assert found == wanted
    # Those that are left out are as if they had not been there.
    gone = ["", ".", "\n", "z" * 10_000, "cat " * 10_000, "\ud800", "🦄"]
    (alone,) = detect(made, [image], [["cat", "dog"]])
    (beside,) = detect(made, [image], [[*gone, "cat", *gone, "dog"]])
    places = {len(gone): 0, 2 * len(gone) + 1: 1}
    assert alone
    assert numbers(alone)[:, 1:].tolist() == numbers(beside)[:, 1:].tolist()
    assert [box.tag for box in alone] == [places[box.tag] for box in beside]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.json", json.dumps({"model_type": "bert"}), "bert.* grounding-dino"),
        ("config.json", "{", "detection: .*JSONDecodeError"),
        ("processor_config.json", "{", "detection: .*processor_config.json"),
        ("processor_config.json", "{}", "detection: .*image processor"),
        ("processor_config.json", None, "detection: "),
        ("tokenizer.json", "{", "detection: "),
        ("model.safetensors", "not weights", "detection: "),
        ("model.safetensors", "cut", r"detection: .*model\.safetensors"),
        ("model.safetensors", "a pickle", "safetensors"),  # which is not read
    ],
)
def test_a_damaged_folder_is_one_message(folder, tmp_path, name, text, words):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / name
    if text is None:
        path.unlink()
    elif text == "a pickle":
        path.rename(tmp_path / "pytorch_model.bin")
    else:
        path.write_bytes(path.read_bytes()[:-100] if text == "cut" else text.encode())
    with pytest.raises(ModelError, match=words):
        detect(detector(tmp_path), [PHOTOGRAPHS["china"]], [["cat"]])
    with pytest.raises(ModelError, match=words):
        pin_grounding_dino(DetectionConfig(model=str(tmp_path)), download=False)
