"""Models on a GPU that computes nothing: nothing stays behind on the CPU, and products are in the
precision meant.

The models are of the published sizes, by the real loaders from files without numbers
(``fixtures/published``), and take as much at once as a stage begins with, but for boxes.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models import (
    embedders,
    grounding_dino,
    image_encoder,
    lama,
    namc_places,
    open_clip_embedder,
    ram,
    sam,
    text_scorer,
    weights,
)
from pairwright.tasks.models.adaptive_batches import MOST, AdaptiveBatches
from pairwright.tasks.models.prepare_ahead import DecodedImage
from tests.fixtures import published_files as published
from tests.fixtures.big_lama import BigLama
from tests.fixtures.namc_models import make_vqgan, write_cnn, write_vqgan
from tests.on_a_gpu.fake_gpu import FakeGpu

PHOTOGRAPH = np.zeros((1080, 1920, 3), dtype=np.uint8)
TAGS = (Tag(name="dog", score=1.0, tagger="nouns"), Tag(name="red ball", score=1.0, tagger="nouns"))
BOXES = [Box(tag=tag, score=1.0, x0=3.0, y0=4.0, x1=1900.0, y1=1000.0) for tag in (0, 1, 1)]
HALF, SINGLE = {torch.bfloat16}, {torch.float32}


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
    """Look for models in this test's folder, by their names alone, and forget what was loaded onto
    the device."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(weights, "digest", lambda *_: "0" * 32)  # gigabytes of zeros
    yield
    for module in (grounding_dino, ram, sam, text_scorer):
        module._load.cache_clear()
    for load in (image_encoder.load_dinov2, open_clip_embedder.load_encoder):
        load.cache_clear()


def embed_with_clip(folder):
    made = embedders.make_clip(published.put_clip(folder, "clip-vit-l-14"))
    with published.nothing_drawn():
        prepared = [made.prepare(PHOTOGRAPH)] * MOST
    return lambda: made.encode(prepared)


def embed_with_dinov2(folder):
    made = embedders.make_dinov2(published.put_dinov2(folder, "dinov2-large"))
    prepared = [made.prepare(PHOTOGRAPH)] * MOST
    return lambda: made.encode(prepared)


def embed_texts(folder):
    made = text_scorer.OpenClipTexts(config=published.put_clip(folder, "clip-vit-l-14"))
    with published.nothing_drawn():
        text_scorer._load(made)
    return lambda: made.embed(["a dog", "two cats", "nothing"])  # always as many at once


def tag(folder):
    made, build = ram.RamTagger(config=published.put_ram(folder)), ram.build_swin

    def build_empty(shapes):
        with published.nothing_drawn():
            return build(shapes)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ram, "build_swin", build_empty)
        prepared = [made.prepare(DecodedImage(PHOTOGRAPH))] * ram.MAX_IMAGES
    return lambda: made.tag(prepared)


def detect(folder):
    made = grounding_dino.GroundingDino(
        config=published.put_grounding_dino(folder, "grounding-dino-base")
    )
    prepared = [made.prepare(DecodedImage(PHOTOGRAPH))]
    grounding_dino._load(made.config.model, made.config.revision)
    return lambda: made.detect(prepared, [TAGS])


def segment(folder):
    made = sam.Sam(config=published.put_sam(folder, "sam-vit-h"))
    prepared = [made.prepare(DecodedImage(PHOTOGRAPH))]
    return lambda: list(made.segment(prepared, [TAGS], [BOXES]))


def fill(_):
    """Fill holes by the program's network: TorchScript takes no tensors but real ones."""
    with published.nothing_drawn():
        network = BigLama().eval().requires_grad_(requires_grad=False).to("cuda")
    made, batches = (
        lama.LamaInpainter(config=RemovalsConfig(inpainter="lama")),
        AdaptiveBatches(most=lama.MAX_CROPS),
    )
    window = (50, 50, 1850, 1050)
    prepared = [
        made.prepare(PHOTOGRAPH, np.ones((1000, 1800), dtype=bool), window)
    ] * lama.MAX_CROPS

    def work():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lama, "_load", lambda *_: (network, batches))
            return list(made.inpaint(prepared))

    return work


@pytest.mark.parametrize(
    ("work", "results", "products"),
    [
        (embed_with_clip, MOST, HALF),
        (embed_with_dinov2, MOST, HALF),
        (embed_texts, 3, HALF),
        (tag, ram.MAX_IMAGES, HALF),
        (detect, 1, HALF | SINGLE),  # boxes and scores
        (segment, 1, HALF | SINGLE),  # all but the encoder
        (fill, lama.MAX_CROPS, SINGLE),  # cuFFT takes no bfloat16
    ],
)
def test_a_model_s_whole_work_is_on_the_gpu(
    work, results, products, tmp_path: Path, fake_gpu: FakeGpu
) -> None:
    run = work(tmp_path)
    with fake_gpu.computing():
        assert len(run()) == results
    assert fake_gpu.products == products
    assert torch.float64 not in fake_gpu.kinds


@pytest.mark.parametrize("kind", ["grids", "codes"])
def test_what_namc_knows_of_places_comes_from_the_gpu_in_float32(
    kind, tmp_path: Path, fake_gpu: FakeGpu
) -> None:
    if kind == "grids":
        path, load, more = (
            write_cnn(tmp_path / "resnet18.pth"),
            namc_places.load_grids,
            {"model": "resnet18"},
        )
    else:
        path, load, more = (
            write_vqgan(tmp_path / "vqgan.ckpt", make_vqgan()),
            namc_places.load_codes,
            {},
        )
    encoder = load(json.dumps({"checkpoint": str(path), **more}))
    crops = [np.zeros((224, 224, 3), dtype=np.uint8)] * 3
    with fake_gpu.computing():
        assert encoder.encode(crops).shape[:2] == (3, 196)
    namc_places.release_models()
    assert fake_gpu.products == SINGLE
    assert torch.float64 not in fake_gpu.kinds
