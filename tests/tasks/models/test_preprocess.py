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
from pairwright.tasks.models import dinov2_embedder, open_clip_embedder
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = photographs()
CLIP = {
    "openai": {},
    "bilinear": {"interpolation": "bilinear"},
    "siglip": {
        "resize_mode": "squash",
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "size": (160, 160),
    },
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
BIT = {
    "dinov2": DINOV2,
    "bilinear": {
        **DINOV2,
        "resample": 2,
        "size": {"shortest_edge": 64},
        "crop_size": {"height": 56, "width": 56},
    },
}


def levels(preprocess, image, wanted):
    """Return by how many of 255 levels our numbers and the library's differ, per pixel and
    channel."""
    crop = preprocess(image)
    assert crop.dtype == np.uint8
    assert crop.flags.c_contiguous
    ours = preprocess.numbers(torch.from_numpy(crop[None].copy()))
    assert ours.shape == wanted.shape
    scale = np.array(preprocess.std)[:, None, None] * 255
    return np.abs(ours.numpy()[0] - wanted.numpy()[0]) * scale


def check(difference, name):
    # Roundings, twice: after each direction.
    assert difference.max() < 5.01, name
    assert difference.mean() < 0.3, name


@pytest.mark.parametrize("kind", CLIP)
def test_the_crop_is_that_of_open_clip(kind):
    cfg = PreprocessCfg(**CLIP[kind])
    for name, image in PHOTOGRAPHS.items():
        wanted = image_transform_v2(cfg, is_train=False)(Image.fromarray(image))[None]
        check(levels(open_clip_embedder.transform_of(vars(cfg)), image, wanted), name)


@pytest.mark.parametrize(
    ("kind", "processor"),
    [*((kind, BitImageProcessor) for kind in BIT), ("dinov2", BitImageProcessorPil)],
)
def test_the_crop_is_that_of_transformers(kind, processor):
    for name, image in PHOTOGRAPHS.items():
        wanted = processor(**BIT[kind])(Image.fromarray(image), return_tensors="pt")["pixel_values"]
        check(levels(dinov2_embedder.transform_of(BIT[kind]), image, wanted), name)


def test_an_extreme_aspect_costs_no_memory():
    # As torchvision does it: 256 x 3,200,000 pixels, 2.4 GB, of which 224 x 224 are kept.
    image = np.zeros((16, 200_000, 3), dtype=np.uint8)
    image[:, 99_990:100_010] = 255
    preprocess = dinov2_embedder.transform_of(DINOV2)
    tracemalloc.start()
    crop = preprocess(image)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    # 16 pixels became 256, so the crop shows the 14 columns in the middle, all of them white.
    assert crop.shape == (224, 224, 3)
    assert crop.min() > 250


UNCROPPED, NEAREST = {"do_center_crop": False}, {"resample": 1}
LARGE_CROP = {"size": {"shortest_edge": 60}, "crop_size": {"height": 70, "width": 71}}
BOTH_EDGES = {"size": {"shortest_edge": 5, "longest_edge": 9}}


@pytest.mark.parametrize(
    ("transform_of", "said"),
    [
        *(
            (dinov2_embedder.transform_of, {**DINOV2, **said})
            for said in (UNCROPPED, NEAREST, LARGE_CROP, BOTH_EDGES)
        ),
        (open_clip_embedder.transform_of, vars(PreprocessCfg(resize_mode="longest"))),
        (open_clip_embedder.transform_of, vars(PreprocessCfg(size=(96, 128)))),
    ],
)
def test_transforms_that_no_published_model_has_are_refused(transform_of, said):
    with pytest.raises(ModelError, match="unsupported"):
        transform_of(said)
