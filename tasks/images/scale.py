"""Scale pictures down. Reads and writes nothing; needs OpenCV."""

import numpy as np

from pairwright.tasks.images.decode import RGB


def scale_down(image: RGB, max_side: int) -> RGB:
    """Return an image whose longer side has at most ``max_side`` pixels."""
    import cv2

    height, width = image.shape[:2]
    share = max_side / max(height, width)
    if share >= 1:
        return image
    size = (max(1, round(width * share)), max(1, round(height * share)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
