"""Cut things out of annotated photographs, to plant them into others.

A thing is cut out if its mask is one piece that does not touch the photograph's border. Reads local
files; no network.
"""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from pairwright.schemas.scene import Mask as MaskRuns
from pairwright.tasks.images.decode import RGB, decode_rgb
from pairwright.tasks.images.masks import box_of, decode_mask
from pairwright.tasks.images.refusal import RefusedImageError
from pairwright.tasks.planting.read_outlines import Outline, Outlines
from pairwright.tasks.scenes.pictures import Rng, linear_colour
from pairwright.tasks.scenes.state import Mask, Thing

CHOICES = 24
"""Things drawn for one photograph."""
ONE_PIECE = 2  # labels of a mask in one piece: the background and the piece
EDGE = 0.8  # standard deviation of a mask's soft edge, in pixels


@dataclass(frozen=True, slots=True)
class CutThing(Thing):
    """Thing cut out of a photograph: its noun is all that is known of it."""

    outline: Outline | None = None

    @property
    def phrase(self) -> str:
        """Return its noun."""
        return self.shape


@dataclass(frozen=True, slots=True)
class Cutout:
    """Pixels of a thing."""

    pixels: RGB
    coverage: NDArray[np.float32]
    """Share of each pixel that the thing covers, ``(h, w)``, from 0 to 1."""
    brightness: float
    """Mean light of its photograph, from 0 to 1."""


def draw_cut_things(rng: Rng, outlines: Outlines, photograph: str) -> list[CutThing]:
    """Return things of other photographs, of nouns that this one's annotations do not name."""
    own_nouns = outlines.nouns_of.get(Path(photograph).name, frozenset())
    things: list[CutThing] = []
    for index in rng.permutation(len(outlines.usable)):
        outline = outlines.usable[int(index)]
        if outline.noun in own_nouns:
            continue
        thing = CutThing("", outline.noun, "", "", "medium", outline=outline)
        things.append(thing)
        if len(things) == CHOICES:
            break
    return things


def cut_out(outline: Outline) -> Cutout | None:
    """Return the pixels of a thing; ``None``: unreadable, in pieces, or cut off by the border."""
    try:
        photograph = decode_rgb(outline.path.read_bytes())
    except (OSError, RefusedImageError):
        return None
    height, width = photograph.shape[:2]
    mask = _draw_mask(outline, height, width)
    if mask is None or not _is_whole(mask):
        return None
    x0, y0, x1, y1 = box_of(mask)
    window = (slice(y0 - 1, y1 + 1), slice(x0 - 1, x1 + 1))
    inside = mask[window]
    # The rim shows what was behind the thing.
    eroded = cv2.erode(inside.astype(np.uint8), np.ones((3, 3), np.uint8))
    coverage = cv2.GaussianBlur(eroded.astype(np.float32), (0, 0), EDGE)
    coverage = np.where(inside, coverage, 0).astype(np.float32)
    brightness = float(linear_colour(photograph[::4, ::4]).mean())
    return Cutout(photograph[window], coverage, brightness)


def _draw_mask(outline: Outline, height: int, width: int) -> Mask | None:
    """Return the pixels of an outline; ``None``: it is of an image of another size."""
    if outline.points:
        corners = np.array(outline.points).reshape(-1, 2)
        corners = np.rint(np.clip(corners, -1, max(height, width))).astype(np.int32)
        mask = np.zeros((height, width), np.uint8)
        cv2.fillPoly(mask, [corners], 1)
        return mask.astype(bool)
    if outline.shape != (height, width) or sum(outline.counts) != height * width:
        return None
    if min(outline.counts) < 0:
        return None
    return decode_mask(MaskRuns(height=height, width=width, counts=outline.counts))


def _is_whole(mask: Mask) -> bool:
    """Return whether a mask is one piece away from the border."""
    if mask[:2].any() or mask[-2:].any() or mask[:, :2].any() or mask[:, -2:].any():
        return False
    labels, _ = cv2.connectedComponents(mask.astype(np.uint8))
    return labels == ONE_PIECE
