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
EMBEDDERS = (COLOUR_LAYOUT, GRADIENTS, PERCEPTUAL_HASH)


def image(seed):
    return photograph(picture(seed))


def test_one_unit_vector_per_image_and_embedder():
    images = [image(0), image(1)]
    rows = list(embed_images(images, CONFIG))
    both = [(each, embedder) for each in images for embedder in EMBEDDERS]
    for row, (each, embedder) in zip(rows, both, strict=True):
        assert (row.subject, row.embedder) == (each.key, embedder.name)
        raw = embedder.encode([embedder.prepare(decode_rgb(each.image))])[0]
        np.testing.assert_allclose(np.array(row.vector) * row.norm, raw, atol=row.norm * 1e-3)
        assert abs(np.linalg.norm(row.vector) - 1) < 1e-3
        assert np.array_equal(np.array(row.vector, dtype=np.float16), row.vector)
        assert np.float32(row.norm) == row.norm
    assert len({row.key for row in rows}) == 6


def test_rows_do_not_depend_on_the_batch():
    images = [image(seed) for seed in range(BATCH + 3)]
    alone = [row for each in images for row in embed_images([each], CONFIG)]
    assert list(embed_images(images, CONFIG)) == alone


def test_flat_images_have_neither_gradients_nor_a_hash():
    flat = photograph(np.full((24, 32, 3), 3, np.uint8))
    rows = list(embed_images([flat], EmbeddingConfig(embedders=("gradients",))))
    assert [row.embedder for row in rows] == ["gradients", "perceptual-hash"]
    assert not any(value for row in rows for value in row.vector)
    assert [row.norm for row in rows] == [0, 0]


def test_an_image_that_does_not_decode_is_dropped():
    damaged = replace(image(0), image=image(0).image[:-40])
    (row,) = embed_images([damaged], CONFIG)
    assert isinstance(row, Dropped)
    assert (row.source_key, row.reason) == (damaged.key, "truncated image")


@pytest.fixture(scope="module")
def with_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    config = EmbeddingConfig(
        embedders=("clip", "gradients", "dinov2"),
        clip=ClipConfig(checkpoint=str(write_clip_folder(folder / "clip"))),
        dinov2=Dinov2Config(model=str(write_dinov2_folder(folder / "dinov2"))),
        batch_size=8,
    )
    return pin_models(config)


def mark(config, **changes):
    config = config.model_copy(update=changes)
    inputs, tables = STAGE.inputs(config), {"images": "1"}
    return fingerprint(STAGE, config, inputs=inputs, prompts={}, tables=tables)


def test_the_fingerprint_knows_the_models_in_use_and_nothing_else(with_models):
    clip, dinov2 = with_models.clip, with_models.dinov2
    names = name_models(with_models)
    assert names[0] == f"clip ViT-L-14-quickgelu {clip.revision}"
    assert names[2] == f"dinov2 DINOv2 {dinov2.revision}"
    assert mark(CONFIG) == mark(CONFIG, clip=clip, dinov2=dinov2, batch=3, download=True)
    other_tag = clip.model_copy(update={"pretrained": "x"})
    assert mark(with_models) == mark(with_models, batch=0, clip=other_tag)
    marks = {mark(CONFIG), mark(with_models), mark(with_models, dinov2=Dinov2Config())}
    assert len(marks) == 3


def test_models_get_processes_of_their_own_and_descriptors_need_no_weights(monkeypatch):
    assert pin_models(CONFIG) == CONFIG
    assert STAGE.processes(CONFIG) is None
    with_clip = EmbeddingConfig(embedders=("gradients", "clip"))
    assert STAGE.processes(with_clip) == 0
    monkeypatch.setattr(devices, "count_gpus", lambda: 2)
    assert STAGE.processes(with_clip) == 2
