"""Vectors of images without an element: those of open_clip's own pipeline on the whole altered image."""

from dataclasses import replace

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from pairwright.schemas.config import Profile
from pairwright.schemas.encoders import ClipConfig
from pairwright.schemas.removing import FittedConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow
from pairwright.tasks.models import devices
from pairwright.tasks.models.open_clip_embedder import pin_clip
from pairwright.tasks.rejected import fit_removals as stage
from pairwright.tasks.rejected.fit_removals import STAGE, fit_removals
from tests.fixtures.checkpoints import write_clip_folder
from tests.fixtures.removals import element_of, noise_row, png, removal_of, without_block

IMAGES = [noise_row(0, size=(120, 80)), noise_row(1, size=(61, 97))]
BLOCKS = {"ball": (10, 20, 50, 60), "corner": (0, 0, 30, 30)}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = write_clip_folder(tmp_path_factory.mktemp("clip"))
    return FittedConfig(enabled=True, clip=pin_clip(ClipConfig(checkpoint=str(folder)), download=False), batch_size=4)


@pytest.fixture(scope="module")
def reference(config):
    """Return what a user of open_clip gets for one image, at unit length."""
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{config.clip.checkpoint}")
    model.eval()

    def embed(pixels):
        with torch.inference_mode():
            return model.encode_image(preprocess(Image.fromarray(pixels))[None], normalize=True)[0].numpy()

    return embed


def removals():
    """Return two removals of each image, with what each paints over."""
    return [
        (image, removal_of(image, element_of(image.key, tag), window), window)
        for image in IMAGES
        for tag, window in BLOCKS.items()
    ]


def fit(config, rows=None):
    rows = [row for _, row, _ in removals()] if rows is None else rows
    return list(fit_removals(rows, config, images={image.key: image for image in IMAGES}))


def test_vectors_are_those_of_the_altered_images(config, reference):
    made = fit(config)
    assert len(made) == 4
    for row, (image, removal, window) in zip(made, removals(), strict=True):
        assert isinstance(row, EmbeddingRow)
        assert (row.subject, row.source_key, row.embedder) == (removal.subject, removal.key, "clip")
        wanted = reference(without_block(image, window))
        np.testing.assert_allclose(row.vector, wanted, atol=4e-3)
        assert np.array_equal(np.array(row.vector, np.float16), row.vector)
        # The check above can fail: the original is farther from what is without the block.
        assert np.abs(reference(without_block(image, (0, 0, 1, 1))) - wanted).max() > 0.02
    assert len({row.key for row in made}) == 4


def test_what_does_not_fit_or_decode_is_a_reason(config):
    image, removal, _ = removals()[0]
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
        {"embedding": {"embedders": ["gradients", "clip"], "clip": clip}, "rejections": {"scorer": "clip"}}
    )
    assert profile.section("fitted") == FittedConfig(enabled=True, clip=clip)
    assert STAGE.enabled(profile.section("fitted"))
    assert not STAGE.enabled(Profile().section("fitted"))
    assert STAGE.models(Profile().section("fitted")) == ()
    assert STAGE.processes(Profile().section("fitted")) is None
    monkeypatch.setattr(devices, "count_gpus", lambda: 2)
    assert STAGE.processes(profile.section("fitted")) == 2
