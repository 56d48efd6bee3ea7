"""Vectors of images without an element; `test_choose_removals` compares them with open_clip."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import Profile
from pairwright.schemas.encoder_config import ClipConfig
from pairwright.schemas.removing import FittedConfig
from pairwright.schemas.rows import EmbeddingRow
from pairwright.tasks.models import devices
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.rejected.fit_removals import NO_FIT, STAGE, fit_removals
from tests.fixtures.checkpoints import write_clip_folder
from tests.fixtures.removals import element_of, noise_row, png, removal_of


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"))
    clip = pin_clip(ClipConfig(checkpoint=str(folder)), download=False)
    return FittedConfig(enabled=True, clip=clip, batch_size=4)


def test_what_does_not_fit_or_decode_is_a_reason(config) -> None:
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
    results = {row.source_key: row for row in fit_removals(rows, config, images=images)}
    assert isinstance(results.pop(removal.key), EmbeddingRow)
    assert {key: row.reason for key, row in results.items()} == {
        **dict.fromkeys(("small", "outside", "damaged"), NO_FIT),
        "gone": "damaged image",
    }
    assert "ball: a patch of 3 x 3 pixels" in results["small"].detail


def test_it_is_left_out_unless_clip_chooses(monkeypatch) -> None:
    clip = ClipConfig(model="ViT-B-32", revision="abc")
    embedding = {"embedders": ["gradients", "clip"], "clip": clip}
    profile = Profile.model_validate({"embedding": embedding, "rejections": {"scorer": "clip"}})
    config, plain = STAGE.configure(profile), STAGE.configure(Profile())
    assert config == FittedConfig(enabled=True, clip=clip)
    assert STAGE.enabled(config)
    assert not STAGE.enabled(plain)
    assert (STAGE.models(plain), STAGE.processes(plain)) == ((), None)
    monkeypatch.setattr(devices, "count_gpus", lambda: 2)
    assert STAGE.processes(config) == 2
