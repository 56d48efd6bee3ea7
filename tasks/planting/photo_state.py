"""Change a photograph itself: its light, focus or framing (ours).

Reads and writes nothing. A state applies to pixels and, where it moves them, to masks.
"""

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np

from pairwright.tasks.images.decode import RGB
from pairwright.tasks.scenes.pictures import Rng
from pairwright.tasks.scenes.state import Mask

Kind = Literal["plain", "dim", "bright", "warm", "cool", "soft", "close"]
SHARES: dict[Kind, float] = {
    "plain": 0.58,
    "dim": 0.07,
    "bright": 0.07,
    "warm": 0.07,
    "cool": 0.07,
    "soft": 0.07,
    "close": 0.07,
}
"""Shares of the states among photographs, whatever else they show: no state tells which photograph
of a pair was changed."""
GAINS: dict[Kind, tuple[float, float, float]] = {
    "dim": (0.6, 0.6, 0.6),
    "bright": (1.35, 1.35, 1.35),
    "warm": (1.1, 1.0, 0.84),
    "cool": (0.86, 0.98, 1.1),
}
"""Factors of the levels of red, green and blue: seen at once, but a pink thing stays pink."""
BLUR = 0.0035  # standard deviation of a soft focus, as a share of the width
LIGHTS: dict[Kind, str] = {
    "dim": "dim light",
    "bright": "bright light",
    "warm": "warm light",
    "cool": "cool light",
}
PLAIN_LIGHT = "usual light"
VIEWS: dict[Kind, str] = {"soft": "soft focus", "close": "a closer view"}
PLAIN_VIEW = "the usual view"


@dataclass(frozen=True, slots=True)
class PhotoState:
    """Light, focus and framing of a photograph."""

    kind: Kind = "plain"
    crop: tuple[float, float, float] = (0.0, 0.0, 1.0)
    """Of a closer view: left and upper border and side, as shares of width and height."""

    @property
    def light(self) -> str:
        """Return the light as a noun phrase."""
        return LIGHTS.get(self.kind, PLAIN_LIGHT)

    @property
    def view(self) -> str:
        """Return the focus or framing as a noun phrase."""
        return VIEWS.get(self.kind, PLAIN_VIEW)

    def apply(self, photograph: RGB) -> RGB:
        """Return the photograph in this state, of the same size."""
        if self.kind in GAINS:
            levels = photograph * np.array(GAINS[self.kind], np.float32)
            return np.clip(np.rint(levels), 0, 255).astype(np.uint8)
        if self.kind == "soft":
            blurred = cv2.GaussianBlur(photograph, (0, 0), BLUR * photograph.shape[1])
            return np.asarray(blurred, np.uint8)
        if self.kind == "close":
            return np.asarray(self._enlarge(photograph, cv2.INTER_CUBIC), np.uint8)
        return photograph

    def move(self, mask: Mask) -> Mask:
        """Return a mask of the photograph in this state."""
        if self.kind != "close":
            return mask
        enlarged = self._enlarge(mask.astype(np.uint8) * 255, cv2.INTER_LINEAR)
        return np.asarray(enlarged >= 128)

    def _enlarge(self, array: np.ndarray, interpolation: int) -> np.ndarray:
        height, width = array.shape[:2]
        left, top, side = self.crop
        x0 = round(left * width)
        y0 = round(top * height)
        part = array[y0 : y0 + round(side * height), x0 : x0 + round(side * width)]
        return cv2.resize(part, (width, height), interpolation=interpolation)


def draw_state(rng: Rng, kinds: dict[Kind, float] = SHARES) -> PhotoState:
    """Draw a state; the framing of a closer view loses at most a tenth of each side."""
    names = list(kinds)
    shares = np.array(list(kinds.values()))
    kind = names[int(rng.choice(len(names), p=shares / shares.sum()))]
    if kind != "close":
        return PhotoState(kind)
    side = float(rng.uniform(0.9, 0.95))
    left = float(rng.uniform(0, 1 - side))
    top = float(rng.uniform(0, 1 - side))
    return PhotoState(kind, (left, top, side))


def draw_other_state(rng: Rng, state: PhotoState) -> PhotoState:
    """Draw a state that differs visibly: plain beside another one, or another beside plain."""
    if state.kind != "plain":
        return PhotoState()
    return draw_state(rng, {kind: share for kind, share in SHARES.items() if kind != "plain"})
