"""Embedders by name; vectors at unit length, in 16 bits, with the length that they had."""

import numpy as np
import pytest

from pairwright.schemas.config import ClipConfig, Dinov2Config, EmbeddingConfig
from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.descriptors import ColourLayout, Gradients
from pairwright.tasks.models.dinov2_embedder import Dinov2
from pairwright.tasks.models.embedders import WITH_WEIGHTS, make_embedder, to_unit
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
    with pytest.raises(KeyError):
        make_embedder(f"no {name}", CONFIG)


def test_the_length_is_told_and_taken_out() -> None:
    unit, norm = to_unit(np.array([3, 0, 4], np.float32), "")
    assert unit == (float(np.float16(0.6)), 0.0, float(np.float16(0.8)))
    assert norm == 5.0
    tiny = np.array([3e-30, 4e-30], np.float32)
    unit, norm = to_unit(tiny, "")
    assert unit == (float(np.float16(0.6)), float(np.float16(0.8)))
    assert norm == np.linalg.norm(tiny.astype(np.float64)).astype(np.float32)
    assert to_unit(np.zeros(3, np.float32), "") == ((0.0, 0.0, 0.0), 0.0)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_what_is_no_number_is_an_error(value: float) -> None:
    with pytest.raises(ModelError, match="image 7"):
        to_unit(np.array([1, value], np.float32), "clip, of image 7")
