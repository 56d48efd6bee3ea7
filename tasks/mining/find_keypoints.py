"""Find the SIFT keypoints of images, by which other views of the same objects are recognised (Lowe, 2004).

Per image, scaled down to ``max_side``: the strongest keypoints with their positions and
descriptors, at most 68 KB for
500. CPU only.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pairwright.schemas.config import KeypointsConfig
from pairwright.schemas.rows import Dropped, ImageRow, KeypointsRow, make_key
from pairwright.tasks.models.prepare_ahead import DecodedImage, by_image, prepare_ahead
from pairwright.tasks.store.stage import Stage


def find_keypoints(
    rows: Sequence[ImageRow], config: KeypointsConfig
) -> Iterator[KeypointsRow | Dropped]:
    """Yield the keypoints of each image; none in an image without texture."""

    def find(seen: DecodedImage) -> dict[str, bytes]:
        import cv2

        grey = cv2.cvtColor(seen.pixels, cv2.COLOR_RGB2GRAY)
        if (scale := config.max_side / max(grey.shape)) < 1:
            size = (max(1, round(grey.shape[1] * scale)), max(1, round(grey.shape[0] * scale)))
            grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
        detector: Any = cv2.SIFT.create(nfeatures=config.max_count)
        points, descriptors = detector.detectAndCompute(grey, None)
        places = np.array([point.pt for point in points], "<f4")
        return {
            "places": places.tobytes(),
            "descriptors": b"" if descriptors is None else descriptors.astype(np.uint8).tobytes(),
        }

    found = prepare_ahead([(row, row) for row in rows], by_image(find), on_gpu=False)
    for row, made in zip(rows, found, strict=True):
        if isinstance(made, Dropped):
            yield made
        else:
            key = make_key("keypoints", row.key)
            yield KeypointsRow(key=key, source_key=row.key, subject=row.key, **made.part)


STAGE = Stage(
    name="keypoints",
    group="mining",
    reads={"images": ImageRow},
    writes=KeypointsRow,
    function=find_keypoints,
    config=lambda profile: profile.matching.keypoints,
    without=("graph", "captions"),
)
