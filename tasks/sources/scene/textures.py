"""Procedural pictures for surfaces: wood, tiles, planks, stone, grass, gingham, asphalt, house fronts, sign boards.

Reads and writes nothing. Every function returns float32 reflectances ``(rows, columns, 3)`` between 0 and 1 (linear).
"""

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.float32]
Rgb = Sequence[float]


def linear(colour: Rgb | NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the linear reflectance of an sRGB colour (0 to 255)."""
    c = np.asarray(colour, dtype=np.float64) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def _noise(rng: np.random.Generator, rows: int, columns: int, *, cells: tuple[int, int]) -> NDArray[np.float64]:
    """Return smooth noise around 0 that repeats without a seam."""
    coarse = rng.standard_normal(cells)
    tiled = np.tile(coarse, (3, 3)).astype(np.float32)
    big = cv2.resize(tiled, (3 * columns, 3 * rows), interpolation=cv2.INTER_CUBIC)
    return big[rows : 2 * rows, columns : 2 * columns].astype(np.float64)


def _cloud(rng: np.random.Generator, side: int, cells: int) -> NDArray[np.float64]:
    layers = [_noise(rng, side, side, cells=(cells << k, cells << k)) / 2**k for k in range(4)]
    return np.sum(layers, axis=0)


def _blend(low: Rgb, high: Rgb, share: NDArray[np.float64]) -> Picture:
    a, b = linear(low), linear(high)
    return (a + (b - a) * np.clip(share, 0, 1)[..., None]).astype(np.float32)


def wood(low: Rgb, high: Rgb, *, seed: int, boards: int = 4, side: int = 512) -> Picture:
    """Return boards along the rows, with grain."""
    rng = np.random.default_rng(seed)
    grain = _noise(rng, side, side, cells=(64, 4)) * 0.16 + _noise(rng, side, side, cells=(160, 6)) * 0.08
    wave = 0.5 + 0.2 * np.sin(_noise(rng, side, side, cells=(12, 3)) * 5 + np.linspace(0, 16 * np.pi, side)[:, None])
    share = wave + grain
    for k in range(boards):
        rows = slice(k * side // boards, (k + 1) * side // boards)
        share[rows] = np.roll(share[rows], int(rng.integers(side)), axis=1) + rng.uniform(-0.16, 0.16)
        share[rows.start : rows.start + 3] -= 0.55
    return _blend(low, high, share)


def tiles(colour: Rgb, joint: Rgb, *, seed: int, across: int = 8, other: Rgb | None = None) -> Picture:
    """Return square tiles with joints, of one colour or of two in turn."""
    rng = np.random.default_rng(seed)
    cell = 512 // across
    side = cell * across
    shade = np.kron(rng.uniform(-0.05, 0.05, (across, across)), np.ones((cell, cell)))
    base = np.broadcast_to(linear(colour), (side, side, 3)).copy()
    if other is not None:
        odd = np.kron(np.indices((across, across)).sum(0) % 2, np.ones((cell, cell))) > 0
        base[odd] = linear(other)
    base *= (1 + shade + 0.025 * _cloud(rng, side, 8))[..., None]
    edge = np.arange(side) % cell < max(2, cell // 22)
    base[edge[:, None] | edge[None, :]] = linear(joint)
    return np.clip(cv2.GaussianBlur(base, (3, 3), 0), 0, 1).astype(np.float32)


def speckled(low: Rgb, high: Rgb, *, seed: int, cells: int = 6, grain: float = 0.25) -> Picture:
    """Return clouds with fine grain: stone, asphalt, grass, plaster."""
    rng = np.random.default_rng(seed)
    fine = cv2.GaussianBlur(rng.standard_normal((512, 512)), (3, 3), 0)
    return _blend(low, high, 0.5 + 0.14 * _cloud(rng, 512, cells) + grain * fine)


def terrazzo(ground: Rgb, chips: Sequence[Rgb], *, seed: int) -> Picture:
    """Return stone with chips of other stones in it."""
    rng = np.random.default_rng(seed)
    picture = np.tile(linear(ground), (512, 512, 1))
    for _ in range(420):
        corners = rng.uniform(4, 508, 2) + rng.uniform(3, 11) * rng.uniform(-1, 1, (5, 2))
        hull = cv2.convexHull(corners.astype(np.float32)).astype(np.int32)
        cv2.fillConvexPoly(picture, hull, [float(v) for v in linear(chips[int(rng.integers(len(chips)))])])
    picture *= 1 + 0.04 * _cloud(rng, 512, 6)[..., None]
    return np.clip(cv2.GaussianBlur(picture, (0, 0), 1.2), 0, 1).astype(np.float32)


def gingham(colour: Rgb, ground: Rgb, *, checks: int = 12) -> Picture:
    """Return a checked cloth: stripes both ways, darker where they cross."""
    side = 512
    stripe = (np.arange(side) * checks // side % 2).astype(np.float64)
    weave = 0.03 * np.sin(np.arange(side) * np.pi / 2)
    return _blend(ground, colour, (stripe[:, None] + stripe[None, :]) / 2 + weave[:, None] + weave[None, :])


def street(*, seed: int) -> Picture:
    """Return a street seen from above: pavement at the far side (first rows), kerb, road with a dashed line."""
    road = speckled((84, 86, 92), (112, 114, 120), seed=seed, cells=5, grain=0.12)
    slabs = tiles((176, 172, 164), (140, 136, 130), seed=seed, across=16)
    road[:150] = slabs[:150, :512]
    road[150:162] = linear((205, 203, 196))
    for start in range(24, 512, 128):
        road[352:362, start : start + 70] = linear((232, 228, 214))
    return road


def house_front(wall: Rgb, *, seed: int, floors: int) -> Picture:
    """Return a wall with rows of three windows, 192 by 288 pixels whatever the number of floors."""
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", (192, 288), tuple(int(v) for v in wall))
    draw = ImageDraw.Draw(picture)
    high = 288 / floors
    for floor in range(floors):
        for k in range(3):
            box = (64 * k + 17, (floor + 0.22) * high, 64 * k + 47, (floor + 0.76) * high)
            draw.rectangle((box[0] - 3, box[1] - 3, box[2] + 3, box[3] + 3), fill=(240, 236, 226))
            draw.rectangle(box, fill=(255, 226, 150) if rng.random() < 0.25 else (92, 118, 140))
            draw.line((box[0] + 15, box[1], box[0] + 15, box[3]), fill=(240, 236, 226), width=3)
            draw.line((box[0], box[1] + high / 4, box[2], box[1] + high / 4), fill=(240, 236, 226), width=3)
    return linear(np.asarray(picture)).astype(np.float32)


@lru_cache(maxsize=8)
def sign_board(text: str, board: tuple[int, int, int]) -> Picture:
    """Return a board with a word in large letters, dark on light or light on dark."""
    size = (400, 200)
    light = float(linear(board) @ (0.2126, 0.7152, 0.0722)) > 0.3
    ink = (24, 24, 28) if light else (250, 248, 240)
    picture = Image.new("RGB", size, board)
    draw = ImageDraw.Draw(picture)
    draw.rounded_rectangle((10, 10, size[0] - 11, size[1] - 11), 16, outline=ink, width=7)
    points = 20
    while _text_box(draw, text, points + 4)[2] < 340 and _text_box(draw, text, points + 4)[3] < 136:
        points += 4
    x, y, wide, high = _text_box(draw, text, points)
    place = ((size[0] - wide) / 2 - x, (size[1] - high) / 2 - y)
    draw.text(place, text, fill=ink, font=ImageFont.load_default(points), stroke_width=points // 18)
    return linear(np.asarray(picture)).astype(np.float32)


def _text_box(draw: ImageDraw.ImageDraw, text: str, points: int) -> tuple[float, float, float, float]:
    left, top, right, bottom = draw.textbbox(
        (0, 0), text, font=ImageFont.load_default(points), stroke_width=points // 18
    )
    return left, top, right - left, bottom - top


@lru_cache(maxsize=16)
def stain(colour: tuple[int, int, int]) -> Picture:
    """Return stained wood: grain along the rows in one colour, light enough to tell its name."""
    rng = np.random.default_rng(7)
    grain = _noise(rng, 128, 128, cells=(26, 2)) * 0.13 + _noise(rng, 128, 128, cells=(10, 2)) * 0.13
    rings = 0.12 * np.sin(np.linspace(0, 10 * np.pi, 128)[:, None] + _noise(rng, 128, 128, cells=(4, 2)) * 2.5)
    shade = 1 + np.clip(grain + rings, -0.42, 0.3)
    return np.clip(linear(colour) * shade[..., None] + 0.012, 0, 1).astype(np.float32)


@lru_cache(maxsize=16)
def hide(colour: tuple[int, int, int]) -> Picture:
    """Return leather: a fine mottle in one colour."""
    shade = 1 + 0.06 * _cloud(np.random.default_rng(11), 128, 16)
    return np.clip(linear(colour) * shade[..., None] + 0.004, 0, 1).astype(np.float32)
