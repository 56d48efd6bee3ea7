"""Images in, unit vectors out."""

import io
from dataclasses import replace

import numpy as np
from PIL import Image

from schemas.config import EmbeddingConfig
from schemas.rows import Dropped, ImageRow, make_key
from tasks.mining.embed_images import BATCH, embed_images
from tasks.models.descriptors import ColourLayout, Gradients
from tasks.models.perceptual_hash import PerceptualHash

CONFIG = EmbeddingConfig()


def row(seed, image=None):
    image = image or Image.fromarray(np.random.default_rng(seed).integers(0, 255, (24, 32, 3), dtype=np.uint8))
    sink = io.BytesIO()
    image.save(sink, format="PNG")
    data = sink.getvalue()
    return ImageRow(
        key=make_key(data),
        source_key="item",
        subject=make_key(data),
        image=data,
        format="png",
        width=32,
        height=24,
        name=f"{seed}.png",
        source="folder",
        licence="",
        group="",
    )


def test_one_unit_vector_per_image_and_embedder():
    rows = [row(0), row(1)]
    got = list(embed_images(rows, CONFIG))
    assert [(made.subject, made.embedder) for made in got] == [
        (image.key, name) for image in rows for name in ("colour-layout", "gradients", "perceptual-hash")
    ]
    for made, embedder in zip(got, [ColourLayout(), Gradients(), PerceptualHash()] * 2, strict=True):
        pixels = np.asarray(Image.open(io.BytesIO(rows[0].image if made.subject == rows[0].key else rows[1].image)))
        raw = embedder.encode([embedder.prepare(pixels)])[0]
        np.testing.assert_allclose(np.array(made.vector) * made.norm, raw, atol=made.norm * 1e-3)
        assert abs(np.linalg.norm(made.vector) - 1) < 1e-3
        assert np.array_equal(np.array(made.vector, dtype=np.float16), made.vector)
        assert np.float32(made.norm) == made.norm
    assert len({made.key for made in got}) == 6


def test_rows_do_not_depend_on_the_batch():
    rows = [row(seed) for seed in range(BATCH + 3)]
    assert list(embed_images(rows, CONFIG)) == [made for one in rows for made in embed_images([one], CONFIG)]


def test_a_flat_image_has_the_zero_vector():
    for made in embed_images(
        [row(0, Image.new("RGB", (32, 24), (3, 3, 3)))], EmbeddingConfig(embedders=("gradients",))
    ):
        assert not any(made.vector)
        assert made.norm == 0


def test_an_image_that_does_not_decode_is_dropped():
    damaged = replace(row(0), image=row(0).image[:-40])
    (got,) = embed_images([damaged], CONFIG)
    assert isinstance(got, Dropped)
    assert (got.source_key, got.reason) == (damaged.key, "truncated image")
