"""Resize whole images for a detector, as ``GroundingDinoImageProcessor`` does: no crop, no squeeze.

Pixels in, ``uint8`` pixels out; they become numbers on the detector's device. The shorter side becomes ``short``, or
less where the longer one would exceed ``long``: what comes out is at most ``short x long`` pixels, of a panorama as of
a single pixel (3.2 MB with the published 800 and 1333). The library fails where a side would become 0; here it is 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.errors import ModelError
from pairwright.tasks.models.dinov2_embedder import RESAMPLE
from pairwright.tasks.models.prepare_ahead import Seen
from pairwright.tasks.models.preprocess import Preprocess, Size

DEFAULTS: Mapping[str, Any] = {
    "do_resize": True, "size": {"shortest_edge": 800, "longest_edge": 1333}, "resample": 2, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": (0.485, 0.456, 0.406),
    "image_std": (0.229, 0.224, 0.225),
}  # fmt: skip
"""What ``GroundingDinoImageProcessor`` does where its file is silent."""
LARGEST = 4096
"""Pixels of a side that a processor's file may ask for; Grounding DINO's is 1333 (ours)."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Be a resized image."""

    pixels: NDArray[np.uint8]
    """``(h, w, 3)``."""
    height: int
    """Of the image itself."""
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Be the transform, in numbers; called with an image, it returns it resized."""

    short: int
    long: int
    steps: Preprocess
    """Says by what images are resized and scaled; not to what size."""

    def __call__(self, seen: Seen) -> Fitted:
        """Return the whole image, resized."""
        height, width = seen.pixels.shape[:2]
        size = self.size(height, width)
        return Fitted(replace(self.steps, resize="exact", size=size, crop=size)(seen.pixels), height, width)

    def size(self, height: int, width: int) -> Size:
        """Return an image's height and width after it is resized, rounded as the library does."""
        short, long = sorted((height, width))
        exact: float = self.short
        if long / short * self.short > self.long:
            exact = self.long * short / long
        wanted = round(exact)
        if short == wanted:
            return height, width
        other = max(1, int(exact * long / short))
        return (max(1, wanted), other) if height <= width else (other, max(1, wanted))


def fit_of(values: Mapping[str, Any], *, field: str) -> Fit:
    """Return what ``GroundingDinoImageProcessor`` does, of the same configuration.

    Raises:
        ModelError: it resizes in another way than by two sides, or to sides that no detector has.
    """
    said = {**DEFAULTS, **{name: value for name, value in values.items() if value is not None}}
    size = said["size"]
    if not said["do_resize"] or not {"shortest_edge", "longest_edge"} <= set(size):
        raise ModelError(f"{field}: its processor resizes by {size}, not to a shortest and a longest edge")
    short, long = int(size["shortest_edge"]), int(size["longest_edge"])
    if not 1 <= short <= long <= LARGEST:
        raise ModelError(f"{field}: its processor makes images of {short} to {long} pixels; up to {LARGEST} are taken")
    mean, std = (said["image_mean"], said["image_std"]) if said["do_normalize"] else ((0, 0, 0), (1, 1, 1))
    steps = Preprocess(
        resize="none",
        size=(0, 0),
        crop=(0, 0),
        interpolation=RESAMPLE[said["resample"]],
        scale=float(said["rescale_factor"]) if said["do_rescale"] else 1.0,
        mean=(float(mean[0]), float(mean[1]), float(mean[2])),
        std=(float(std[0]), float(std[1]), float(std[2])),
    )
    return Fit(short=short, long=long, steps=steps)
