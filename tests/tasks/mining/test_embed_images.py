"""Images in, unit vectors out."""

from dataclasses import replace

import numpy as np
import pytest

from pairwright.schemas.config import ClipConfig, Dinov2Config, EmbeddingConfig
from pairwright.schemas.rows import Dropped
from pairwright.tasks.images.decode import decode_rgb
from pairwright.tasks.mining.embed_images import STAGE, embed_images, name_models, pin_models
from pairwright.tasks.models import devices
from pairwright.tasks.models.descriptors import COLOUR_LAYOUT, GRADIENTS
from pairwright.tasks.models.perceptual_hash import PERCEPTUAL_HASH
from pairwright.tasks.models.prepare_ahead import BATCH
from pairwright.tasks.store.stage import fingerprint
from tests.fixtures.checkpoints import write_clip_folder, write_dinov2_folder
from tests.fixtures.pictures import photograph, picture

CONFIG = EmbeddingConfig()


def row(seed):
    return photograph(picture(seed))


def test_one_unit_vector_per_image_and_embedder():
    rows = [row(0), row(1)]
    got = list(embed_images(rows, CONFIG))
    assert [(made.subject, made.embedder) for made in got] == [
        (image.key, name)
        for image in rows
        for name in ("colour-layout", "gradients", "perceptual-hash")
    ]
    for made, embedder in zip(got, [COLOUR_LAYOUT, GRADIENTS, PERCEPTUAL_HASH] * 2, strict=True):
        pixels = decode_rgb(rows[0].image if made.subject == rows[0].key else rows[1].image)
        raw = embedder.encode([embedder.prepare(pixels)])[0]
        np.testing.assert_allclose(np.array(made.vector) * made.norm, raw, atol=made.norm * 1e-3)
        assert abs(np.linalg.norm(made.vector) - 1) < 1e-3
        assert np.array_equal(np.array(made.vector, dtype=np.float16), made.vector)
        assert np.float32(made.norm) == made.norm
    assert len({made.key for made in got}) == 6


def test_rows_do_not_depend_on_the_batch():
    rows = [row(seed) for seed in range(BATCH + 3)]
    assert list(embed_images(rows, CONFIG)) == [
        made for one in rows for made in embed_images([one], CONFIG)
    ]


def test_flat_images_and_those_that_do_not_decode():
    flat = photograph(np.full((24, 32, 3), 3, np.uint8))
    for made in embed_images([flat], EmbeddingConfig(embedders=("gradients",))):
        assert not any(made.vector)
        assert made.norm == 0
    damaged = replace(row(0), image=row(0).image[:-40])
    (got,) = embed_images([damaged], CONFIG)
    assert isinstance(got, Dropped)
    assert (got.source_key, got.reason) == (damaged.key, "truncated image")


@pytest.fixture(scope="module")
def with_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    clip, dinov2 = write_clip_folder(folder / "clip"), write_dinov2_folder(folder / "dinov2")
    return pin_models(
        EmbeddingConfig(
            embedders=("clip", "gradients", "dinov2"),
            clip=ClipConfig(checkpoint=str(clip)),
            dinov2=Dinov2Config(model=str(dinov2)),
            batch_size=8,
        )
    )


def test_the_fingerprint_knows_the_models_in_use_and_nothing_else(with_models):
    names = name_models(with_models)
    assert names[0] == f"clip ViT-L-14-quickgelu {with_models.clip.revision}"
    assert names[2] == f"dinov2 DINOv2 {with_models.dinov2.revision}"
    unused = {"clip": with_models.clip, "dinov2": with_models.dinov2, "batch": 3, "download": True}
    clip = with_models.clip.model_copy(update={"pretrained": "x"})
    configs = (
        CONFIG,
        CONFIG.model_copy(update=unused),
        with_models,
        with_models.model_copy(update={"batch": 0, "clip": clip}),
        with_models.model_copy(update={"dinov2": Dinov2Config()}),
    )
    marks = [
        fingerprint(STAGE, config, inputs=STAGE.inputs(config), prompts={}, tables={"images": "1"})
        for config in configs
    ]
    assert marks[0] == marks[1]
    assert marks[2] == marks[3]
    assert len({marks[0], marks[2], marks[4]}) == 3


def test_models_get_processes_of_their_own_and_descriptors_need_no_weights(monkeypatch):
    assert pin_models(CONFIG) == CONFIG
    assert STAGE.processes(CONFIG) is None
    assert STAGE.processes(EmbeddingConfig(embedders=("gradients", "clip"))) == 0
    monkeypatch.setattr(devices, "count_gpus", lambda: 2)
    assert STAGE.processes(EmbeddingConfig(embedders=("gradients", "clip"))) == 2
