"""Find faces seen from the front, which nothing is planted on.

Needs scikit-image (the extra ``faces``), whose detector has its own small model: local binary
patterns in a cascade (Zhang et al. 2007). Without it, or of faces seen from the side, only a spot's
texture counts.
"""

import cv2
import numpy as np

from pairwright.tasks.images.decode import RGB
from pairwright.tasks.planting.find_spots import Box

MAX_SIDE = 400  # pixels that a photograph is scaled down to
MIN_FACE = 24  # pixels of the scaled photograph
SCALE_STEP = 1.2


def find_faces(photograph: RGB) -> list[Box]:
    """Return the boxes of the faces of a photograph; none without scikit-image."""
    try:
        from skimage.data import lbp_frontal_face_cascade_filename
        from skimage.feature import Cascade
    except ImportError:
        return []
    height, width = photograph.shape[:2]
    scale = min(1.0, MAX_SIDE / max(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if min(size) <= MIN_FACE:
        return []
    small = np.asarray(cv2.resize(photograph, size, interpolation=cv2.INTER_AREA))
    detector = Cascade(lbp_frontal_face_cascade_filename())
    found = detector.detect_multi_scale(
        img=small,
        scale_factor=SCALE_STEP,
        step_ratio=1,
        min_size=(MIN_FACE, MIN_FACE),
        max_size=(min(size), min(size)),
    )
    boxes: list[Box] = []
    for face in found:
        left = face["c"] / scale
        top = face["r"] / scale
        right = left + face["width"] / scale
        bottom = top + face["height"] / scale
        boxes.append((round(left), round(top), round(right), round(bottom)))
    return boxes
