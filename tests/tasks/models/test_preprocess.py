"""Our transform against the libraries' own, pixel by pixel, on photographs of every shape."""

import tracemalloc

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from transformers import BitImageProcessor
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models import image_encoder, open_clip_embedder
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = photographs()
HALVES = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
CLIP = {
    "openai": {},
    "bilinear": {"interpolation": "bilinear"},
    "siglip": {"resize_mode": "squash", "size": (160, 160), **HALVES},
}
DINOV2 = {
    "do_resize": True,
    "size": {"shortest_edge": 256},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
SMALL = {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}}
BIT = {"dinov2": DINOV2, "bilinear": {**DINOV2, "resample": 2, **SMALL}}


def assert_pixels(preprocess, transform):
    """Compare levels of 255 per pixel and channel; they are rounded after each direction."""
    for name, image in PHOTOGRAPHS.items():
        crop = preprocess(image)
        assert crop.dtype == np.uint8
        assert crop.flags.c_contiguous
        numbers = preprocess.numbers(torch.from_numpy(crop[None].copy()))
        expected = transform(Image.fromarray(image))
        assert numbers.shape == expected.shape
        scale = np.array(preprocess.std)[:, None, None] * 255
        levels = np.abs(numbers.numpy()[0] - expected.numpy()[0]) * scale
        assert levels.max() < 5.01, name
        assert levels.mean() < 0.3, name


@pytest.mark.parametrize("kind", CLIP)
def test_the_crop_is_that_of_open_clip(kind):
    config = PreprocessCfg(**CLIP[kind])
    transform = image_transform_v2(config, is_train=False)
    preprocess = open_clip_embedder.transform_of(vars(config))
    assert_pixels(preprocess, lambda image: transform(image)[None])


@pytest.mark.parametrize(
    ("kind", "processor"),
    [
        ("dinov2", BitImageProcessor),
        ("bilinear", BitImageProcessor),
        ("dinov2", BitImageProcessorPil),
    ],
)
def test_the_crop_is_that_of_transformers(kind, processor):
    transform = processor(**BIT[kind])
    preprocess = image_encoder.transform_of(BIT[kind])
    assert_pixels(preprocess, lambda image: transform(image, return_tensors="pt")["pixel_values"])


def test_an_extreme_aspect_costs_no_memory():
    """As torchvision does it: 256 x 3,200,000 pixels, 2.4 GB, of which 224 x 224 are kept. 16
    pixels become 256, so the crop shows the 14 columns in the middle, all of them white."""
    image = np.zeros((16, 200_000, 3), dtype=np.uint8)
    image[:, 99_990:100_010] = 255
    preprocess = image_encoder.transform_of(DINOV2)
    tracemalloc.start()
    crop = preprocess(image)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    assert crop.shape == (224, 224, 3)
    assert crop.min() > 250


LARGE_CROP = {"size": {"shortest_edge": 60}, "crop_size": {"height": 70, "width": 71}}


@pytest.mark.parametrize(
    ("module", "config"),
    [
        pytest.param(image_encoder, DINOV2 | {"do_center_crop": False}, id="uncropped"),
        pytest.param(image_encoder, DINOV2 | {"resample": 1}, id="a third way of resampling"),
        pytest.param(image_encoder, DINOV2 | LARGE_CROP, id="a crop beyond the image"),
        pytest.param(
            image_encoder,
            DINOV2 | {"size": {"shortest_edge": 5, "longest_edge": 9}},
            id="both edges",
        ),
        pytest.param(
            open_clip_embedder, vars(PreprocessCfg(resize_mode="longest")), id="the longest edge"
        ),
        pytest.param(open_clip_embedder, vars(PreprocessCfg(size=(96, 128))), id="no square"),
    ],
)
def test_transforms_that_no_published_model_has_are_refused(module, config):
    with pytest.raises(ModelError, match="unsupported"):
        module.transform_of(config)
