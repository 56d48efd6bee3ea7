"""Find SIFT keypoints, which recognise other views of the same objects (Lowe, 2004).

Per image, scaled down to ``max_side``: the strongest keypoints with their positions and
descriptors, at most 68 KB for 500. CPU only.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pairwright.schemas.config import KeypointsConfig
from pairwright.schemas.rows import Dropped, ImageRow, KeypointsRow, make_key
from pairwright.tasks.models.prepare_ahead import DecodedImage, by_image, prepare_ahead
from pairwright.tasks.store.stage import Stage


def find_keypoints(
    rows: Sequence[ImageRow],
    config: KeypointsConfig,
) -> Iterator[KeypointsRow | Dropped]:
    """Yield the keypoints of each image; none in an image without texture."""
    find = by_image(partial(_find, config=config))
    items = [(row, row) for row in rows]
    results = prepare_ahead(items, find, on_gpu=False)
    for row, result in zip(rows, results, strict=True):
        if isinstance(result, Dropped):
            yield result
        else:
            key = make_key("keypoints", row.key)
            yield KeypointsRow(
                key=key,
                source_key=row.key,
                subject=row.key,
                **result.part,
            )


def _find(image: DecodedImage, config: KeypointsConfig) -> dict[str, bytes]:
    """Return an image's keypoints as columns of ``KeypointsRow``."""
    import cv2

    grey = cv2.cvtColor(image.pixels, cv2.COLOR_RGB2GRAY)
    scale = config.max_side / max(grey.shape)
    if scale < 1:
        height, width = grey.shape
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    detector: Any = cv2.SIFT.create(nfeatures=config.max_count)
    points, descriptors = detector.detectAndCompute(grey, None)
    positions = np.array([point.pt for point in points], "<f4")
    packed = b""
    if descriptors is not None:
        packed = descriptors.astype(np.uint8).tobytes()
    return {"places": positions.tobytes(), "descriptors": packed}


STAGE = Stage(
    name="keypoints",
    group="mining",
    reads={"images": ImageRow},
    writes=KeypointsRow,
    function=find_keypoints,
    config=lambda profile: profile.matching.keypoints,
    without=("graph", "captions"),
)
