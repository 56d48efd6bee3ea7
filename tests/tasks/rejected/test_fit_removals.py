"""Vectors of images without an element: what does not fit; `test_choose_removals` compares them
with open_clip's."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import Profile
from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.removing import FittedConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow
from pairwright.tasks.models import devices
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.rejected import fit_removals as stage
from pairwright.tasks.rejected.fit_removals import STAGE, fit_removals
from tests.fixtures.checkpoints import write_clip_folder
from tests.fixtures.removals import element_of, noise_row, png, removal_of


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"))
    return FittedConfig(
        enabled=True,
        clip=pin_clip(ClipConfig(checkpoint=str(folder)), download=False),
        batch_size=4,
    )


def test_what_does_not_fit_or_decode_is_a_reason(config):
    image = noise_row(0, size=(120, 80))
    removal = removal_of(image, element_of(image.key, "ball"), (10, 20, 50, 60))
    rows = [
        replace(removal, key="small", patch=png(np.zeros((3, 3, 3), np.uint8))),
        replace(removal, key="outside", window=(100, 60, 140, 100)),
        replace(removal, key="damaged", patch=removal.patch[:-30]),
        replace(removal, key="gone", image_key="gone"),
        removal,
    ]
    images = {image.key: image, "gone": replace(image, key="gone", image=b"GIF89a")}
    made = {row.source_key: row for row in fit_removals(rows, config, images=images)}
    assert [made[key].reason for key in ("small", "outside", "damaged")] == [stage.NO_FIT] * 3
    assert "ball: a patch of 3 x 3 pixels" in made["small"].detail
    assert isinstance(made["gone"], Dropped)
    assert made["gone"].reason == "damaged image"
    assert isinstance(made[removal.key], EmbeddingRow)


def test_it_is_left_out_unless_clip_chooses(monkeypatch):
    clip = ClipConfig(model="ViT-B-32", revision="abc")
    profile = Profile.model_validate(
        {
            "embedding": {"embedders": ["gradients", "clip"], "clip": clip},
            "rejections": {"scorer": "clip"},
        }
    )
    assert STAGE.configure(profile) == FittedConfig(enabled=True, clip=clip)
    assert STAGE.enabled(STAGE.configure(profile))
    assert not STAGE.enabled(STAGE.configure(Profile()))
    assert STAGE.models(STAGE.configure(Profile())) == ()
    assert STAGE.processes(STAGE.configure(Profile())) is None
    monkeypatch.setattr(devices, "count_gpus", lambda: 2)
    assert STAGE.processes(STAGE.configure(profile)) == 2
