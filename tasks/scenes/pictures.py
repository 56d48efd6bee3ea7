"""Procedural pictures on the surfaces of rendered scenes: wood, stone, cloth, boards, paper.

Reads and writes nothing. Pictures are float32 reflectances ``(rows, columns, 3)`` between 0 and 1
(linear).
"""

from collections.abc import Sequence
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.float32]
Rng = np.random.Generator
Floats = NDArray[np.float64]
Rgb = Sequence[float]
SIDE = 512
"""Side of most pictures in pixels."""


def linear_colour(colour: Rgb | NDArray[np.uint8] | NDArray[np.float64]) -> Floats:
    """Return the linear reflectance of an sRGB colour (0 to 255)."""
    srgb = np.asarray(colour, dtype=np.float64) / 255
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _noise(rng: Rng, side: int, *, cells: tuple[int, int]) -> Floats:
    """Return smooth noise that repeats at the edges."""
    coarse = rng.standard_normal(cells)
    tiled = np.tile(coarse, (3, 3)).astype(np.float32)
    size = (3 * side, 3 * side)
    scaled = cv2.resize(tiled, size, interpolation=cv2.INTER_CUBIC)
    middle = slice(side, 2 * side)
    return scaled[middle, middle].astype(np.float64)


def _cloud(rng: Rng, side: int, cells: int) -> Floats:
    octaves: list[Floats] = []
    for octave in range(4):
        fine = cells << octave
        octaves.append(_noise(rng, side, cells=(fine, fine)) / 2**octave)
    return np.sum(octaves, axis=0)


def _blend(low: Rgb, high: Rgb, share: Floats) -> Picture:
    start = linear_colour(low)
    end = linear_colour(high)
    weight = np.clip(share, 0, 1)[..., None]
    return (start + (end - start) * weight).astype(np.float32)


def wood(
    low: Rgb,
    high: Rgb,
    *,
    seed: int,
    boards: int = 4,
    side: int = SIDE,
) -> Picture:
    """Return boards along the rows, with grain."""
    rng = np.random.default_rng(seed)
    grain = _noise(rng, side, cells=(64, 4)) * 0.16
    grain += _noise(rng, side, cells=(160, 6)) * 0.08
    rings = np.linspace(0, 16 * np.pi, side)[:, None]
    bend = _noise(rng, side, cells=(12, 3)) * 5
    wave = 0.5 + 0.2 * np.sin(bend + rings)
    share = wave + grain
    for board in range(boards):
        start = board * side // boards
        end = (board + 1) * side // boards
        _shift_board(share[start:end], rng)
    return _blend(low, high, share)


def _shift_board(share: Floats, rng: Rng) -> None:
    """Shift a board's grain along its rows and vary its brightness, in place; darken its joint."""
    shift = int(rng.integers(share.shape[1]))
    brightness = rng.uniform(-0.16, 0.16)
    share[:] = np.roll(share, shift, axis=1) + brightness
    share[:3] -= 0.55


def tiles(
    colour: Rgb,
    joint: Rgb,
    *,
    seed: int,
    across: int = 8,
) -> Picture:
    """Return square tiles with joints."""
    rng = np.random.default_rng(seed)
    cell = SIDE // across
    side = cell * across
    brightness = rng.uniform(-0.05, 0.05, (across, across))
    shade = np.kron(brightness, np.ones((cell, cell)))
    base = linear_colour(colour) * (1 + shade + 0.025 * _cloud(rng, side, 8))[..., None]
    edge = np.arange(side) % cell < max(2, cell // 22)
    base[edge[:, None] | edge[None, :]] = linear_colour(joint)
    blurred = cv2.GaussianBlur(base, (3, 3), 0)
    return np.clip(blurred, 0, 1).astype(np.float32)


def speckled(
    low: Rgb,
    high: Rgb,
    *,
    seed: int,
    cells: int = 6,
    grain: float = 0.25,
) -> Picture:
    """Return clouds with fine grain: stone, asphalt, grass, plaster."""
    rng = np.random.default_rng(seed)
    fine = cv2.GaussianBlur(rng.standard_normal((SIDE, SIDE)), (3, 3), 0)
    share = 0.5 + 0.14 * _cloud(rng, SIDE, cells) + grain * fine
    return _blend(low, high, share)


def terrazzo(ground: Rgb, chips: Sequence[Rgb], *, seed: int) -> Picture:
    """Return stone with chips of other stones in it."""
    rng = np.random.default_rng(seed)
    picture = np.tile(linear_colour(ground), (SIDE, SIDE, 1))
    for _ in range(420):
        centre = rng.uniform(4, 508, 2)
        radius = rng.uniform(3, 11)
        corners = centre + radius * rng.uniform(-1, 1, (5, 2))
        hull = cv2.convexHull(corners.astype(np.float32)).astype(np.int32)
        chip = chips[int(rng.integers(len(chips)))]
        cv2.fillConvexPoly(picture, hull, [float(value) for value in linear_colour(chip)])
    picture *= 1 + 0.04 * _cloud(rng, SIDE, 6)[..., None]
    blurred = cv2.GaussianBlur(picture, (0, 0), 1.2)
    return np.clip(blurred, 0, 1).astype(np.float32)


def gingham(colour: Rgb, ground: Rgb, *, checks: int = 12) -> Picture:
    """Return a checked cloth: stripes both ways, darker where they cross."""
    positions = np.arange(SIDE)
    stripe = (positions * checks // SIDE % 2).astype(np.float64)
    weave = 0.03 * np.sin(positions * np.pi / 2)
    checked = (stripe[:, None] + stripe[None, :]) / 2
    return _blend(ground, colour, checked + weave[:, None] + weave[None, :])


def street(*, seed: int) -> Picture:
    """Return a street from above: pavement at the far side (first rows), kerb, road, dashes."""
    asphalt = ((84, 86, 92), (112, 114, 120))
    road = speckled(
        *asphalt,
        seed=seed,
        cells=5,
        grain=0.12,
    )
    slabs = tiles(
        colour=(176, 172, 164),
        joint=(140, 136, 130),
        seed=seed,
        across=16,
    )
    road[:150] = slabs[:150, :SIDE]
    road[150:162] = linear_colour((205, 203, 196))
    for start in range(24, SIDE, 128):
        road[352:362, start : start + 70] = linear_colour((232, 228, 214))
    return road


FRAME_COLOUR = (240, 236, 226)
LIT_WINDOW = (255, 226, 150)
DARK_WINDOW = (92, 118, 140)


def house_front(wall: Rgb, *, seed: int, floors: int) -> Picture:
    """Return a wall with rows of three windows, 192 by 288 pixels whatever the number of floors."""
    rng = np.random.default_rng(seed)
    colour = tuple(int(value) for value in wall)
    picture = Image.new("RGB", (192, 288), colour)
    draw = ImageDraw.Draw(picture)
    floor_height = 288 / floors
    for floor in range(floors):
        top = (floor + 0.22) * floor_height
        bottom = (floor + 0.76) * floor_height
        for column in range(3):
            glass = LIT_WINDOW if rng.random() < 0.25 else DARK_WINDOW
            left = 64 * column + 17
            _draw_window(draw, (left, top, left + 30, bottom), glass, floor_height)
    return linear_colour(np.asarray(picture)).astype(np.float32)


def _draw_window(
    draw: ImageDraw.ImageDraw,
    window: tuple[float, float, float, float],
    glass: tuple[int, int, int],
    floor_height: float,
) -> None:
    left, top, right, bottom = window
    frame = (left - 3, top - 3, right + 3, bottom + 3)
    draw.rectangle(frame, fill=FRAME_COLOUR)
    draw.rectangle(window, fill=glass)
    upright = (left + 15, top, left + 15, bottom)
    draw.line(upright, fill=FRAME_COLOUR, width=3)
    crossbar = (left, top + floor_height / 4, right, top + floor_height / 4)
    draw.line(crossbar, fill=FRAME_COLOUR, width=3)


@lru_cache(maxsize=8)
def sign_board(text: str, board: tuple[int, int, int]) -> Picture:
    """Return a board with a word in large letters, dark on light or light on dark."""
    width = 400
    height = 200
    luminance = float(linear_colour(board) @ (0.2126, 0.7152, 0.0722))
    ink = (24, 24, 28) if luminance > 0.3 else (250, 248, 240)
    picture = Image.new("RGB", (width, height), board)
    draw = ImageDraw.Draw(picture)
    outline = (10, 10, width - 11, height - 11)
    draw.rounded_rectangle(
        outline,
        16,
        outline=ink,
        width=7,
    )
    points = _largest_font(
        draw,
        text,
        width=340,
        height=136,
    )
    left, top, text_width, text_height = _text_box(draw, text, points)
    position = ((width - text_width) / 2 - left, (height - text_height) / 2 - top)
    draw.text(
        position,
        text,
        fill=ink,
        font=ImageFont.load_default(points),
        stroke_width=points // 18,
    )
    return linear_colour(np.asarray(picture)).astype(np.float32)


def _largest_font(
    draw: ImageDraw.ImageDraw,
    text: str,
    *,
    width: int,
    height: int,
) -> int:
    """Return the largest size in points at which a text is smaller than this."""
    points = 20
    while True:
        _, _, text_width, text_height = _text_box(draw, text, points + 4)
        if text_width >= width or text_height >= height:
            return points
        points += 4


def _text_box(
    draw: ImageDraw.ImageDraw, text: str, points: int
) -> tuple[float, float, float, float]:
    """Return the left and upper margin, the width and the height of a text."""
    font = ImageFont.load_default(points)
    stroke = points // 18
    left, top, right, bottom = draw.textbbox(
        (0, 0),
        text,
        font=font,
        stroke_width=stroke,
    )
    return left, top, right - left, bottom - top


@lru_cache(maxsize=16)
def stain(colour: tuple[int, int, int]) -> Picture:
    """Return stained wood: grain along the rows in one colour, light enough to tell its name."""
    rng = np.random.default_rng(7)
    fine = _noise(rng, 128, cells=(26, 2)) * 0.13
    coarse = _noise(rng, 128, cells=(10, 2)) * 0.13
    grain = fine + coarse
    rows = np.linspace(0, 10 * np.pi, 128)[:, None]
    bend = _noise(rng, 128, cells=(4, 2)) * 2.5
    rings = 0.12 * np.sin(rows + bend)
    shade = 1 + np.clip(1.5 * (grain + rings), -0.6, 0.3)
    stained = linear_colour(colour) * shade[..., None] + 0.012
    return np.clip(stained, 0, 1).astype(np.float32)


@lru_cache(maxsize=16)
def hide(colour: tuple[int, int, int]) -> Picture:
    """Return leather: a fine mottle in one colour."""
    shade = 1 + 0.06 * _cloud(np.random.default_rng(11), 128, 16)
    leather = linear_colour(colour) * shade[..., None] + 0.004
    return np.clip(leather, 0, 1).astype(np.float32)


def sheet(rng: Rng) -> Picture:
    """Return a printed sheet of paper: a heading, a grey picture and lines."""
    page = np.full((160, 112, 3), 226, np.uint8)
    page[12:20, 12 : int(rng.integers(60, 96))] = 70
    top = int(rng.integers(28, 70))
    page[top : top + 42, 12:100] = rng.integers(110, 180)
    for row in (*range(28, top - 6, 7), *range(top + 50, 150, 7)):
        end = int(rng.integers(70, 101))
        page[row : row + 2, 12:end] = 130
    return linear_colour(page).astype(np.float32)


DULL_COLOURS = (
    (152, 120, 104),
    (112, 128, 140),
    (136, 140, 112),
    (164, 150, 128),
    (124, 108, 124),
)


def woven(rng: Rng) -> Picture:
    """Return a cloth with a border and stripes, in two dull colours."""
    first, second = rng.choice(len(DULL_COLOURS), 2, replace=False)
    ground = np.array(DULL_COLOURS[first], np.float64)
    thread = np.array(DULL_COLOURS[second], np.float64)
    cloth = np.tile(ground, (192, 256, 1))
    cloth[:, :: int(rng.integers(9, 30))] = thread
    for rim in (6, 18):
        inside = slice(rim, -rim)
        start = slice(rim, rim + 5)
        end = slice(-rim - 5, -rim)
        cloth[start, inside] = thread
        cloth[end, inside] = thread
        cloth[inside, start] = thread
        cloth[inside, end] = thread
    weave = 1 + 0.05 * rng.standard_normal((192, 256, 1))
    return linear_colour(np.clip(cloth * weave, 0, 255)).astype(np.float32)


HILLS = (
    (128, 138, 128),
    (104, 118, 96),
    (86, 92, 76),
)
FRAMES = (
    (58, 44, 34),
    (206, 198, 184),
    (120, 96, 66),
)


def painting(rng: Rng) -> Picture:
    """Return a framed landscape: hills before a sky."""
    canvas = np.empty((120, 160, 3))
    canvas[:] = np.linspace((150, 172, 190), (214, 206, 190), 120)[:, None]
    rows = np.arange(120)[:, None]
    columns = np.arange(160)
    for number, shade in enumerate(HILLS):
        wavelength = rng.uniform(11, 26)
        phase = rng.uniform(0, 6)
        ridge = 52 + 20 * number + 9 * np.sin(columns / wavelength + phase)
        canvas[rows > ridge] = shade
    frame = rng.choice(FRAMES)
    canvas[:8] = frame
    canvas[-8:] = frame
    canvas[:, :8] = frame
    canvas[:, -8:] = frame
    return linear_colour(canvas).astype(np.float32)
