"""SAM, SAM 2 and SAM 3 of transformers: masks are those of the library's own pipeline."""

import numpy as np
import pytest
import torch
import transformers as hf
from PIL import Image
from safetensors.torch import load_file

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models import box_sam
from pairwright.tasks.models.prepare_ahead import DecodedImage
from pairwright.tasks.perception.segmenters import SEGMENTERS
from tests.fixtures.newer_checkpoints import write_box_sam_folder
from tests.tasks.models.samples import photographs

KINDS = {
    "sam": ("sam1", "SamModel", "SamProcessor"),
    "sam2": ("sam2", "Sam2Model", "Sam2Processor"),
    "sam2_video": ("sam2", "Sam2Model", "Sam2Processor"),
    "sam3_tracker": ("sam3", "Sam3TrackerModel", "Sam3TrackerProcessor"),
}
IMAGE = next(iter(photographs().values()))
TAGS = tuple(Tag(name=name, score=1.0, tagger="ram") for name in ("dog", "ball"))
CORNERS = ((10.0, 20.0, 90.0, 110.0), (60.0, 5.0, 150.0, 100.0), (30.0, 40.0, 70.0, 80.0))
BOXES = [
    Box(tag=tag, score=1.0, x0=x0, y0=y0, x1=x1, y1=y1)
    for tag, (x0, y0, x1, y1) in zip((0, 1, 1), CORNERS, strict=True)
]


@pytest.fixture(autouse=True)
def forget():
    yield
    box_sam._load.cache_clear()
    box_sam._processor.cache_clear()


def segmenter_of(name, folder):
    config = SEGMENTERS.pin(name, SegmentationConfig(segmenter=name, model=str(folder)))
    return SEGMENTERS.make(name, config)


def segment(segmenter):
    prepared = [segmenter.prepare(DecodedImage(IMAGE))]
    (masks,) = segmenter.segment(prepared, [TAGS], [BOXES])
    return masks


@pytest.mark.parametrize("kind", KINDS)
def test_masks_are_those_of_transformers(kind, tmp_path):
    name, model_class, processor_class = KINDS[kind]
    folder = write_box_sam_folder(tmp_path / kind, kind)
    masks = segment(segmenter_of(name, folder))
    model = getattr(hf, model_class).from_pretrained(folder).eval()
    images = getattr(hf, box_sam.OWN_PROCESSORS[name]).from_pretrained(folder)
    processor = getattr(hf, processor_class)(images)
    boxes = [[list(corners) for corners in CORNERS]]
    inputs = processor(images=Image.fromarray(IMAGE), input_boxes=boxes, return_tensors="pt")
    with torch.inference_mode():
        output = model(
            pixel_values=inputs["pixel_values"],
            input_boxes=inputs["input_boxes"].float(),
            multimask_output=False,
        )
    sizes = [inputs["original_sizes"]]
    if "reshaped_input_sizes" in inputs:
        sizes.append(inputs["reshaped_input_sizes"])
        expected = images.post_process_masks(
            output.pred_masks, *sizes, pad_size={"height": 128, "width": 128}
        )[0]
    else:
        expected = processor.post_process_masks(output.pred_masks, *sizes)[0]
    first, second, third = expected[:, 0].numpy()
    assert masks[0].mask.shape == IMAGE.shape[:2]
    assert (masks[0].mask == first).mean() > 0.999
    assert (masks[1].mask == (second | third)).mean() > 0.999
    scores = output.iou_scores[0, :, 0].tolist()
    assert masks[1].score == pytest.approx(min(scores[1:]), abs=1e-4)
    assert (first != second).any(), "a wrong box would show"


def test_the_image_part_of_a_published_sam3_has_its_own_weights(tmp_path):
    folder = write_box_sam_folder(tmp_path / "sam3", "sam3_video")
    segmenter = segmenter_of("sam3", folder)
    published = load_file(folder / "model.safetensors")
    network = box_sam._load("sam3", str(folder), segmenter.config.revision).model
    parts = {
        "tracker_model.mask_decoder.": network.mask_decoder,
        "detector_model.vision_encoder.backbone.": network.vision_encoder.backbone,
        "tracker_neck.": network.vision_encoder.neck,
    }
    for prefix, part in parts.items():
        weights = dict(part.named_parameters())
        assert weights
        assert all(
            torch.equal(published[f"{prefix}{key}"], value) for key, value in weights.items()
        )
    masks = segment(segmenter)
    assert any(mask.mask.any() for mask in masks)


def test_a_model_of_another_family_is_refused(tmp_path):
    folder = write_box_sam_folder(tmp_path / "sam2", "sam2")
    with pytest.raises(ModelError, match=r"describes a sam2, not a sam3_tracker or a sam3_video"):
        segmenter_of("sam3", folder)


def test_an_image_without_boxes_has_empty_masks(tmp_path):
    segmenter = segmenter_of("sam2", write_box_sam_folder(tmp_path / "sam2", "sam2"))
    prepared = [segmenter.prepare(DecodedImage(IMAGE))]
    (masks,) = segmenter.segment(prepared, [TAGS], [[]])
    assert [bool(mask.mask.any()) for mask in masks] == [False, False]
    assert np.array_equal([mask.score for mask in masks], [0, 0])
