"""Batches of images and prompts: the boxes are those of transformers' own pipeline, one image at a time."""

import shutil
from functools import lru_cache

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.ops import batched_nms
from transformers import GroundingDinoForObjectDetection, GroundingDinoProcessor

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.grounding import detector as grounding_dino
from pairwright.tasks.models.grounding.network import canvas
from tests.fixtures.grounding_checkpoints import write_grounding_folder
from tests.tasks.models.grounding.asking import NAMES, assert_same, detect, detector, numbers
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = photographs()
MANY = (*["red ball", "two dog", "a person", "traffic light"] * 3, "dog")
"""Twelve of two words and a stop: ten of them fill a prompt of 32 tokens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_grounding_folder(tmp_path_factory.mktemp("grounding-dino"))


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@lru_cache(maxsize=1)
def library(folder):
    return GroundingDinoForObjectDetection.from_pretrained(folder), GroundingDinoProcessor.from_pretrained(folder)


def reference(folder, image, names, *, threshold, text_threshold):
    """Return what a user of transformers gets of one image and one prompt: ``(tag, score, corners)`` in any order.

    The library says which boxes reach the threshold; whose they are is read from the letters that each token stands
    for in the text.
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
        tokens = [place for place, (left, right) in enumerate(letters) if start <= left < right <= start + len(name)]
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
    height, width = image.shape[:2]
    made = []
    for tag, score, (x0, y0, x1, y1) in results:
        x0, x1 = (min(max(x, 0), width) for x in (x0, x1))
        y0, y1 = (min(max(y, 0), height) for y in (y0, y1))
        if x0 < x1 and y0 < y1:
            made.append((tag, score, x0, y0, x1, y1))
    return sorted(made, key=lambda one: (one[0], -one[1]))


@pytest.mark.parametrize(("threshold", "text_threshold"), [(0.25, 0.2), (0.97, 0.5), (0.0, 0.0)])
def test_boxes_are_those_of_transformers(folder, threshold, text_threshold):
    """Batched with others, of all sizes and orientations, with prompts of other lengths."""
    made = detector(folder, box_threshold=threshold, text_threshold=text_threshold, max_iou=1.0, batch_size=3)
    images = [*PHOTOGRAPHS.values(), PHOTOGRAPHS["china"][::-1], PHOTOGRAPHS["flower"], PHOTOGRAPHS["china"]]
    names = [NAMES[: 1 + place % 3] for place in range(len(images))]
    found = detect(made, images, names)
    total = 0
    for image, some, boxes in zip(images, names, found, strict=True):
        wanted = clipped(reference(folder, image, some, threshold=threshold, text_threshold=text_threshold), image)
        assert_same(boxes, wanted, image)
        assert [(box.tag, -box.score) for box in boxes] == sorted((box.tag, -box.score) for box in boxes)
        total += len(boxes)
    queries = 24 * sum(map(len, names))
    assert total == queries if threshold == 0 else queries / 20 < total < queries


def test_other_images_and_the_batch_change_roundings_only(folder):
    images, names = list(PHOTOGRAPHS.values()), [NAMES] * len(PHOTOGRAPHS)
    made = detector(folder, box_threshold=0, text_threshold=0, max_iou=1.0, batch_size=1)
    alone = [detect(made, [image], [NAMES])[0] for image in images]
    together = detect(
        detector(folder, box_threshold=0, text_threshold=0, max_iou=1.0, batch_size=5), images[::-1], names
    )
    for image, one, other in zip(images, alone, together[::-1], strict=True):
        assert_same(other, numbers(one), image)


def test_the_librarys_own_padding_changes_more(folder):
    """Images are batched with those of their size for this: if the library's padding went unseen, it need not be."""
    model, processor = library(folder)
    images = [Image.fromarray(PHOTOGRAPHS[name]) for name in ("china", "odd")]
    with torch.inference_mode():
        scores = [
            model(**processor(images=some, text=["cat."] * len(some), return_tensors="pt")).logits[0].sigmoid()
            for some in (images[:1], images)
        ]
    one, padded = (found.max(dim=1).values.sort().values for found in scores)
    assert (one - padded).abs().max() > 0.01


def test_tags_of_several_prompts_keep_their_places(folder):
    made = detector(folder, box_threshold=0.5, text_threshold=0.1, max_iou=1.0, batch_size=4)
    images = [PHOTOGRAPHS[name] for name in ("china", "odd", "china")]
    found = detect(made, images, [MANY, ["cat"], MANY])
    for image, boxes in zip(images[::2], found[::2], strict=True):
        thresholds = {"threshold": 0.5, "text_threshold": 0.1}
        first = reference(folder, image, MANY[:10], **thresholds)
        second = [(tag + 10, *rest) for tag, *rest in reference(folder, image, MANY[10:], **thresholds)]
        assert {tag for tag, *_ in second} == {10, 11, 12}
        assert_same(boxes, clipped(first + second, image), image)
        assert [box.tag for box in boxes] == sorted(box.tag for box in boxes)


def test_overlapping_boxes_of_a_tag_go_as_torchvision_says(folder):
    image = PHOTOGRAPHS["astronaut"]
    (every,) = detect(detector(folder, box_threshold=0.2, text_threshold=0.1, max_iou=1.0), [image], [NAMES])
    rows = torch.tensor(numbers(every), dtype=torch.float32)
    for overlap in (0.5, 0.1):
        (boxes,) = detect(detector(folder, box_threshold=0.2, text_threshold=0.1, max_iou=overlap), [image], [NAMES])
        kept = batched_nms(rows[:, 2:], rows[:, 1], rows[:, 0], overlap)
        assert 0 < len(kept) < len(every)
        assert set(boxes) == {every[place] for place in kept.tolist()}


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 500), (500, 1), (16, 8000), (8000, 16), (2, 3), (37, 41)], ids=lambda shape: f"{shape}"
)
def test_extreme_images_are_asked_about_like_others(folder, shape):
    made = detector(folder, box_threshold=0, text_threshold=0, max_iou=1.0)
    image = np.full((*shape, 3), 128, dtype=np.uint8)
    alone, _ = detect(made, [image, PHOTOGRAPHS["china"]], [["cat"], ["dog"]])
    _, beside = detect(made, [PHOTOGRAPHS["flower"], image], [["cat"], ["cat"]])
    assert alone
    assert_same(beside, numbers(alone), image)
    assert all(0 <= box.x0 < box.x1 <= shape[1] and 0 <= box.y0 < box.y1 <= shape[0] for box in alone)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((800, 1066), (800, 1066)),
        ((1333, 800), (1333, 800)),
        # 5 x 167 + 3 x 84 + 2 x 42 + 1 x 21 cells are 1,192; with 4 rows, 4 x 167 + 2 x 84 + 42 + 21, they are 899.
        ((3, 1333), (40, 1333)),
        ((1333, 3), (1333, 40)),
        ((32, 1333), (40, 1333)),
        ((33, 1333), (33, 1333)),
        ((1333, 40), (1333, 40)),
        # 6 x 100 + 3 x 50 + 2 x 25 + 13 cells are 813; 7 rows are 700 + 200 + 50 + 13.
        ((42, 799), (56, 799)),
    ],
)
def test_only_thin_images_are_padded(size, wanted):
    assert canvas(*size, 900) == wanted


def test_out_of_memory_halves_the_batch(folder, monkeypatch):
    images, names = [PHOTOGRAPHS["china"]] * 7, [NAMES] * 7
    wanted = detect(detector(folder, batch_size=7), images, names)
    network, sizes = grounding_dino._load(str(folder), ""), []
    forward = network.model.forward

    def fails(**given):
        sizes.append(len(given["pixel_values"]))
        if len(given["pixel_values"]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(**given)

    def fails_always(**_):
        raise MemoryError

    monkeypatch.setattr(network.model, "forward", fails)
    found = detect(detector(folder, batch_size=6), images, names)
    assert sizes == [6, 3, 3, 1]
    for one, other in zip(found, wanted, strict=True):
        assert_same(one, numbers(other), images[0])
    monkeypatch.setattr(network.model, "forward", fails_always)
    with pytest.raises(ModelError, match="single image"):
        detect(detector(folder, batch_size=2), images, names)


def test_weights_that_give_no_numbers_are_named(folder, tmp_path):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    weights = load_file(tmp_path / "model.safetensors")
    weights["model.text_projection.bias"][:] = float("nan")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"detection\.model: .*finite"):
        detect(detector(tmp_path), [PHOTOGRAPHS["china"]], [["cat"]])
