"""Embedders by name."""

import pytest

from pairwright.schemas.config import ClipConfig, Dinov2Config, EmbeddingConfig
from pairwright.tasks.models.descriptors import ColourLayout, Gradients
from pairwright.tasks.models.dinov2_embedder import Dinov2
from pairwright.tasks.models.embedders import WITH_WEIGHTS, make_embedder
from pairwright.tasks.models.open_clip_embedder import OpenClip

CONFIG = EmbeddingConfig(clip=ClipConfig(model="RN50"), dinov2=Dinov2Config(model="facebook/dinov2-base"), batch_size=5)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("colour-layout", ColourLayout()),
        ("gradients", Gradients()),
        ("clip", OpenClip(config=CONFIG.clip, batch=5)),
        ("dinov2", Dinov2(config=CONFIG.dinov2, batch=5)),
    ],
)
def test_an_embedder_has_its_name_and_its_part_of_the_configuration(name, made):
    assert make_embedder(name, CONFIG) == made
    assert made.name == name
    assert hasattr(made, "config") == (name in WITH_WEIGHTS)


def test_there_is_no_other():
    with pytest.raises(KeyError):
        make_embedder("sift", CONFIG)
