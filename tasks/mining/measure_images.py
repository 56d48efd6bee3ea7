"""Measure images, so that blurred, dark, long, ugly or unsafe ones can be left out before mining.

On the image, scaled down to ``SIDE`` if larger: sharpness is the variance of the Laplacian of grey
values, ``dark`` and ``bright`` are shares of pixels; ``aspect`` is the longer side divided by the
shorter. The profile's heads score the CLIP vectors. Bounds apply to stored measures, so that a new
bound needs no new measurement.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
DARK, BRIGHT = 16, 239
HEADS = ("aesthetic", "unsafe")


def measure_images(
    rows: Sequence[ImageRow],
    config: HeadsConfig,
    *,
    vectors: Mapping[str, tuple[EmbeddingRow, ...]] | None = None,
) -> Iterator[QualityRow | Dropped]:
    """Yield the measures of each image; heads need ``vectors``."""
    heads = _load_heads(config)
    measured = prepare_ahead([(row, row) for row in rows], by_image(_measure), on_gpu=False)
    for row, made in zip(rows, measured, strict=True):
        own = [one.vector for one in (vectors or {}).get(row.key, ()) if one.embedder == "clip"]
        if isinstance(made, Dropped):
            yield made
        elif heads and not own:
            yield Dropped(source_key=row.key, reason="no vector")
        else:
            scores = {name: float(head.score(own)[0]) for name, head in heads.items()}
            if "unsafe" in scores:
                scores["unsafe"] = float(1 / (1 + np.exp(-scores["unsafe"])))
            yield QualityRow(
                key=make_key("qualities", row.key),
                source_key=row.key,
                subject=row.key,
                name=row.name,
                group=group_of(row.name, row.group),
                aspect=max(row.width, row.height) / min(row.width, row.height),
                **made.part,
                **scores,
            )


def _measure(seen: DecodedImage) -> dict[str, float]:
    """Return the columns of ``QualityRow`` that are measured on an image's grey values."""
    import cv2

    grey = cv2.cvtColor(seen.pixels, cv2.COLOR_RGB2GRAY)
    if (scale := SIDE / max(grey.shape)) < 1:
        size = (max(1, round(grey.shape[1] * scale)), max(1, round(grey.shape[0] * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    dark, bright = float(np.mean(grey < DARK)), float(np.mean(grey > BRIGHT))
    return {
        "sharpness": float(cv2.Laplacian(grey, cv2.CV_64F).var()),
        "dark": dark,
        "bright": bright,
    }


def _load_heads(config: HeadsConfig) -> dict[str, VectorHead]:
    return {
        name: load_head(f"filters.heads.{name}", path, getattr(config, f"{name}_revision"))
        for name in HEADS
        if (path := getattr(config, name))
    }


def pin_heads(config: HeadsConfig) -> HeadsConfig:
    """Return the configuration with the hashes of its files, after checking that each can be loaded."""
    found: dict[str, Any] = {}
    for name in HEADS:
        if path := absolute(getattr(config, name)):
            found |= {name: path, f"{name}_revision": identify_head(f"filters.heads.{name}", path)}
    pinned = config.model_copy(update=found)
    _load_heads(pinned)
    return pinned


def fit_stage(stage: Stage, config: HeadsConfig) -> Stage:
    """Return the stage for a configuration: only heads need vectors."""
    return stage if config.aesthetic or config.unsafe else replace(stage, uses=())


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
    uses=(Uses(table="embeddings", row=EmbeddingRow, kind="many", counts=True, name="vectors"),),
    fit=fit_stage,
)
