"""Models on a GPU that computes nothing: nothing stays behind on the CPU, and products are in bfloat16."""

from pathlib import Path

import pytest
import torch

from pairwright.schemas.config import ClipConfig, DetectionConfig, Dinov2Config, SegmentationConfig
from pairwright.schemas.rows import Box, Tag
from pairwright.tasks.models import dinov2_embedder, grounding_dino, open_clip_embedder, sam, text_scorer
from pairwright.tasks.models.prepare_ahead import Seen
from tests.fixtures.checkpoints import READING_CLIP, write_clip_folder, write_dinov2_folder
from tests.fixtures.grounding_checkpoints import write_grounding_folder
from tests.fixtures.sam_checkpoints import write_sam
from tests.on_a_gpu.fake_gpu import FakeGpu
from tests.tasks.models.samples import photographs

PHOTOGRAPHS = list(photographs().values())[:3]
TAGS = (Tag(name="dog", score=1.0, tagger="nouns"), Tag(name="red ball", score=1.0, tagger="nouns"))
BOXES = [Box(tag=tag, score=1.0, x0=3.0, y0=4.0, x1=90.0, y1=80.0) for tag in (0, 1, 1)]


@pytest.fixture(autouse=True)
def forgotten():
    """Forget what was loaded onto the device."""
    yield
    loaded = (dinov2_embedder._load, grounding_dino._load, open_clip_embedder._load, sam._load, text_scorer._load)
    for load in loaded:
        load.cache_clear()


def embed_with_clip(folder, gpu):
    config = ClipConfig(checkpoint=str(write_clip_folder(folder / "clip")))
    made = open_clip_embedder.OpenClip(config=open_clip_embedder.pin_clip(config, download=False))
    prepared = [made.prepare(image) for image in PHOTOGRAPHS]
    with gpu.computing():
        return made.encode(prepared)


def embed_with_dinov2(folder, gpu):
    config = Dinov2Config(model=str(write_dinov2_folder(folder / "dinov2")))
    made = dinov2_embedder.Dinov2(config=dinov2_embedder.pin_dinov2(config, download=False))
    prepared = [made.prepare(image) for image in PHOTOGRAPHS]
    with gpu.computing():
        return made.encode(prepared)


def embed_texts(folder, gpu):
    config = ClipConfig(checkpoint=str(write_clip_folder(folder / "clip", architecture=READING_CLIP)))
    made = text_scorer.OpenClipTexts(config=open_clip_embedder.pin_clip(config, download=False))
    text_scorer._load(made.config.model_dump_json())
    with gpu.computing():
        return made.embed(["a dog", "two cats", "nothing"])


def segment(folder, gpu):
    config = SegmentationConfig(segmenter="sam", checkpoint=str(write_sam(folder / "sam.pth")))
    made = sam.Sam(config=sam.pin_sam(config))
    prepared = [made.prepare(Seen(image)) for image in PHOTOGRAPHS]
    with gpu.computing():
        return list(made.segment(prepared, [TAGS] * 3, [BOXES] * 3))


def detect(folder, gpu):
    config = DetectionConfig(detector="grounding-dino", model=str(write_grounding_folder(folder / "dino")))
    made = grounding_dino.GroundingDino(config=grounding_dino.pin_grounding_dino(config, download=False))
    prepared = [made.prepare(Seen(image)) for image in PHOTOGRAPHS]
    grounding_dino._load(made.config.model, made.config.revision)
    with gpu.computing():
        return list(made.detect(prepared, [TAGS] * 3))


@pytest.mark.parametrize("work", [embed_with_clip, embed_with_dinov2, embed_texts, segment, detect])
def test_a_model_s_whole_work_is_on_the_gpu(work, tmp_path: Path, fake_gpu: FakeGpu) -> None:
    assert len(work(tmp_path, fake_gpu)) == 3
    assert torch.bfloat16 in fake_gpu.products
    assert torch.float64 not in fake_gpu.kinds
