"""Local weights of the wrong kind are refused where a build begins, not where it comes to them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pairwright.schemas.config import SegmentationConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import RamConfig, TaggingConfig
from pairwright.schemas.section import Section
from pairwright.tasks.rejected import segment_boxes, tag_images
from tests.fixtures.ram_checkpoints import Checkpoint, write_ram
from tests.fixtures.sam_checkpoints import write_sam


@pytest.fixture
def sam(tmp_path: Path) -> Path:
    return write_sam(tmp_path / "sam.pth")


@pytest.fixture
def ram(tmp_path: Path) -> Checkpoint:
    return write_ram(tmp_path / "ram")


def tagging(config: RamConfig, **changes: str) -> TaggingConfig:
    return TaggingConfig.model_validate({"taggers": ["ram"], "ram": {**config.model_dump(), **changes}})


def segmenting(path: Path | str) -> SegmentationConfig:
    return SegmentationConfig(segmenter="sam", checkpoint=str(path))


def refusal(pin: Callable[..., Section], config: Section) -> str:
    with pytest.raises(ModelError) as caught:
        pin(config)
    return str(caught.value)


def test_the_right_ones_are_pinned_and_others_refused(ram: Checkpoint, sam: Path, tmp_path: Path) -> None:
    assert tag_images.STAGE.pin(tagging(ram.config)).ram.revision
    assert segment_boxes.STAGE.pin(segmenting(sam)).revision
    said = refusal(tag_images.STAGE.pin, tagging(ram.config, checkpoint=str(sam)))
    assert said.startswith(f"tagging.ram.checkpoint: {sam} ")
    said = refusal(segment_boxes.STAGE.pin, segmenting(ram.config.checkpoint))
    assert said.startswith(f"segmentation.checkpoint: {ram.config.checkpoint} ")
    (tmp_path / "short.txt").write_text("dog\ncat\n")
    short = str(tmp_path / "short.txt")
    assert refusal(tag_images.STAGE.pin, tagging(ram.config, thresholds=short)).startswith("tagging.ram.thresholds")
