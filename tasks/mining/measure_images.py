"""Measure images, so that blurred, dark, long, ugly or unsafe ones can be filtered before mining.

On the image, scaled down to ``SIDE`` if larger: sharpness is the variance of the Laplacian of grey
values, ``dark`` and ``bright`` are shares of pixels; ``aspect`` is the longer side divided by the
shorter. The profile's heads score the CLIP vectors. Bounds apply to stored measures, so that a new
bound needs no new measurement.
"""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from pairwright.schemas.filters import HeadsConfig
from pairwright.schemas.rows import Dropped, EmbeddingRow, ImageRow, QualityRow, group_of, make_key
from pairwright.tasks.models.prepare_ahead import DecodedImage, by_image, prepare_ahead
from pairwright.tasks.models.vector_head import VectorHead, identify_head, load_head
from pairwright.tasks.models.weights import absolute
from pairwright.tasks.store.stage import Stage, Uses

SIDE = 512
DARK = 16
BRIGHT = 239
HEADS = ("aesthetic", "unsafe")


def measure_images(
    rows: Sequence[ImageRow],
    config: HeadsConfig,
    *,
    vectors: Mapping[str, tuple[EmbeddingRow, ...]] | None = None,
) -> Iterator[QualityRow | Dropped]:
    """Yield the measures of each image; heads need ``vectors``."""
    heads = _load_heads(config)
    embeddings = vectors or {}
    results = prepare_ahead([(row, row) for row in rows], by_image(_measure), on_gpu=False)
    for row, result in zip(rows, results, strict=True):
        clip = [item.vector for item in embeddings.get(row.key, ()) if item.embedder == "clip"]
        if isinstance(result, Dropped):
            yield result
        elif heads and not clip:
            yield Dropped(source_key=row.key, reason="no vector")
        else:
            yield QualityRow(
                key=make_key("qualities", row.key),
                source_key=row.key,
                subject=row.key,
                name=row.name,
                group=group_of(row.name, row.group),
                aspect=max(row.width, row.height) / min(row.width, row.height),
                **result.part,
                **_score(heads, clip),
            )


def _score(
    heads: Mapping[str, VectorHead],
    vectors: Sequence[Sequence[float]],
) -> dict[str, float]:
    """Return each head's score of an image, the unsafe one's as a probability."""
    scores: dict[str, float] = {}
    for name, head in heads.items():
        scores[name] = float(head.predict(vectors)[0])
    if "unsafe" in scores:
        logit = scores["unsafe"]
        scores["unsafe"] = float(1 / (1 + np.exp(-logit)))
    return scores


def _measure(image: DecodedImage) -> dict[str, float]:
    """Return the columns of ``QualityRow`` that are measured on an image's grey values."""
    import cv2

    grey = cv2.cvtColor(image.pixels, cv2.COLOR_RGB2GRAY)
    scale = SIDE / max(grey.shape)
    if scale < 1:
        height, width = grey.shape
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    edges = cv2.Laplacian(grey, cv2.CV_64F)
    return {
        "sharpness": float(edges.var()),
        "dark": float(np.mean(grey < DARK)),
        "bright": float(np.mean(grey > BRIGHT)),
    }


def _load_heads(config: HeadsConfig) -> dict[str, VectorHead]:
    heads: dict[str, VectorHead] = {}
    for name in HEADS:
        path = getattr(config, name)
        if path:
            revision = getattr(config, f"{name}_revision")
            heads[name] = load_head(f"filters.heads.{name}", path, revision)
    return heads


def pin_heads(config: HeadsConfig) -> HeadsConfig:
    """Return the configuration with the hashes of its files, which are loaded as a check."""
    update: dict[str, Any] = {}
    for name in HEADS:
        path = absolute(getattr(config, name))
        if path:
            revision = identify_head(f"filters.heads.{name}", path)
            update[name] = path
            update[f"{name}_revision"] = revision
    pinned = config.model_copy(update=update)
    _load_heads(pinned)
    return pinned


def _has_heads(config: HeadsConfig) -> bool:
    return bool(config.aesthetic or config.unsafe)


VECTORS = Uses(
    table="embeddings",
    row=EmbeddingRow,
    kind="many",
    counts=True,
    name="vectors",
    when=_has_heads,
)
STAGE = Stage(
    name="qualities",
    group="mining",
    reads={"images": ImageRow},
    writes=QualityRow,
    function=measure_images,
    config=lambda profile: profile.filters.measuring,
    enabled=attrgetter("enabled"),
    pin=pin_heads,
    without=("graph", "captions"),
    uses=(VECTORS,),
)
