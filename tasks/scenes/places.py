"""Places: ground, walls and backdrops in a few styles, as boxes with procedural pictures on them.

Reads and writes nothing. x is to the right, y away from the camera, z up; things stand on z = 0.
Pictures are float32 reflectances ``(rows, columns, 3)`` between 0 and 1 (linear).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pairwright.tasks.scenes.shapes import Soup, rounded_box, triangles_of_grid

Picture = NDArray[np.float32]
Rgb = Sequence[float]


def linear(colour: Rgb | NDArray[np.uint8] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the linear reflectance of an sRGB colour (0 to 255)."""
    c = np.asarray(colour, dtype=np.float64) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def _noise(
    rng: np.random.Generator, rows: int, columns: int, *, cells: tuple[int, int]
) -> NDArray[np.float64]:
    coarse = rng.standard_normal(cells)
    tiled = np.tile(coarse, (3, 3)).astype(np.float32)
    big = cv2.resize(tiled, (3 * columns, 3 * rows), interpolation=cv2.INTER_CUBIC)
    return big[rows : 2 * rows, columns : 2 * columns].astype(np.float64)


def _cloud(rng: np.random.Generator, side: int, cells: int) -> NDArray[np.float64]:
    return np.sum(
        [_noise(rng, side, side, cells=(cells << k, cells << k)) / 2**k for k in range(4)], axis=0
    )


def _blend(low: Rgb, high: Rgb, share: NDArray[np.float64]) -> Picture:
    a, b = linear(low), linear(high)
    return (a + (b - a) * np.clip(share, 0, 1)[..., None]).astype(np.float32)


def wood(low: Rgb, high: Rgb, *, seed: int, boards: int = 4, side: int = 512) -> Picture:
    """Return boards along the rows, with grain."""
    rng = np.random.default_rng(seed)
    grain = (
        _noise(rng, side, side, cells=(64, 4)) * 0.16
        + _noise(rng, side, side, cells=(160, 6)) * 0.08
    )
    wave = 0.5 + 0.2 * np.sin(
        _noise(rng, side, side, cells=(12, 3)) * 5 + np.linspace(0, 16 * np.pi, side)[:, None]
    )
    share = wave + grain
    for k in range(boards):
        rows = slice(k * side // boards, (k + 1) * side // boards)
        share[rows] = np.roll(share[rows], int(rng.integers(side)), axis=1) + rng.uniform(
            -0.16, 0.16
        )
        share[rows.start : rows.start + 3] -= 0.55
    return _blend(low, high, share)


def tiles(colour: Rgb, joint: Rgb, *, seed: int, across: int = 8) -> Picture:
    """Return square tiles with joints."""
    rng = np.random.default_rng(seed)
    cell = 512 // across
    side = cell * across
    shade = np.kron(rng.uniform(-0.05, 0.05, (across, across)), np.ones((cell, cell)))
    base = linear(colour) * (1 + shade + 0.025 * _cloud(rng, side, 8))[..., None]
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
        cv2.fillConvexPoly(
            picture, hull, [float(v) for v in linear(chips[int(rng.integers(len(chips)))])]
        )
    picture *= 1 + 0.04 * _cloud(rng, 512, 6)[..., None]
    return np.clip(cv2.GaussianBlur(picture, (0, 0), 1.2), 0, 1).astype(np.float32)


def gingham(colour: Rgb, ground: Rgb, *, checks: int = 12) -> Picture:
    """Return a checked cloth: stripes both ways, darker where they cross."""
    side = 512
    stripe = (np.arange(side) * checks // side % 2).astype(np.float64)
    weave = 0.03 * np.sin(np.arange(side) * np.pi / 2)
    return _blend(
        ground, colour, (stripe[:, None] + stripe[None, :]) / 2 + weave[:, None] + weave[None, :]
    )


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
            draw.line(
                (box[0], box[1] + high / 4, box[2], box[1] + high / 4),
                fill=(240, 236, 226),
                width=3,
            )
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

    def box(points: int) -> tuple[float, float, float, float]:
        font = ImageFont.load_default(points)
        left, top, right, bottom = draw.textbbox((0, 0), text, font=font, stroke_width=points // 18)
        return left, top, right - left, bottom - top

    points = 20
    while box(points + 4)[2] < 340 and box(points + 4)[3] < 136:
        points += 4
    x, y, wide, high = box(points)
    place = ((size[0] - wide) / 2 - x, (size[1] - high) / 2 - y)
    draw.text(place, text, fill=ink, font=ImageFont.load_default(points), stroke_width=points // 18)
    return linear(np.asarray(picture)).astype(np.float32)


@lru_cache(maxsize=16)
def stain(colour: tuple[int, int, int]) -> Picture:
    """Return stained wood: grain along the rows in one colour, light enough to tell its name."""
    rng = np.random.default_rng(7)
    grain = (
        _noise(rng, 128, 128, cells=(26, 2)) * 0.13 + _noise(rng, 128, 128, cells=(10, 2)) * 0.13
    )
    rings = 0.12 * np.sin(
        np.linspace(0, 10 * np.pi, 128)[:, None] + _noise(rng, 128, 128, cells=(4, 2)) * 2.5
    )
    shade = 1 + np.clip(1.5 * (grain + rings), -0.6, 0.3)
    return np.clip(linear(colour) * shade[..., None] + 0.012, 0, 1).astype(np.float32)


@lru_cache(maxsize=16)
def hide(colour: tuple[int, int, int]) -> Picture:
    """Return leather: a fine mottle in one colour."""
    shade = 1 + 0.06 * _cloud(np.random.default_rng(11), 128, 16)
    return np.clip(linear(colour) * shade[..., None] + 0.004, 0, 1).astype(np.float32)


HOUSES = (
    (222, 178, 140),
    (170, 194, 200),
    (226, 208, 150),
    (196, 160, 150),
    (178, 196, 160),
    (214, 202, 190),
)
PALETTES, STYLES = 3, 12
"""Looks of each place: its palette and clutter."""
LIFT = 0.002
"""Height of flat things: visible, but too low to lift things on them."""


@dataclass(frozen=True, slots=True)
class Surface:
    """Piece of a place; ``uv`` maps it onto the repeating picture."""

    soup: Soup
    uv: Soup
    picture: Picture | None = None
    colour: tuple[float, float, float] = (0.5, 0.5, 0.5)
    roughness: float | None = None
    """Roughness of its gloss; ``None``: matt."""


Point = Sequence[float] | NDArray[np.float64]


def _quad(
    corner: Point, along: Point, up: Point, *, repeat: tuple[float, float] = (1, 1)
) -> tuple[Soup, Soup]:
    c, a, u = (np.asarray(v, dtype=np.float64) for v in (corner, along, up))
    grid = np.array([[c, c + u], [c + a, c + a + u]])
    flat = np.array(
        [[(0, 0, 0), (0, repeat[1], 0)], [(repeat[0], 0, 0), (repeat[0], repeat[1], 0)]],
        dtype=np.float64,
    )
    return triangles_of_grid(grid), triangles_of_grid(flat)[..., :2]


def _plain(soup: Soup, colour: Rgb) -> Surface:
    r, g, b = linear(colour)
    return Surface(soup, soup[..., :2], colour=(float(r), float(g), float(b)))


def _floor(
    picture: Picture, *, side: float = 9.0, far: float = 4.0, repeat: float = 3.0
) -> Surface:
    corner, wide = (-side / 2 - 1, far - side, 0), side + 2
    return Surface(
        *_quad(corner, (wide, 0, 0), (0, side, 0), repeat=(repeat * wide / side, repeat)), picture
    )


def _wall(colour: Rgb, *, y: float, seed: int, high: float = 4.0) -> Surface:
    soft = tuple(min(255.0, v * 1.06) for v in colour)
    soup, uv = _quad((-9, y, 0), (18, 0, 0), (0, 0, high), repeat=(6, 1.5))
    return Surface(soup, uv, speckled(colour, soft, seed=seed, cells=3, grain=0.05))


def _table(style: int) -> list[Surface]:
    boards = (
        ((122, 78, 44), (186, 132, 84)),
        ((150, 112, 72), (214, 176, 128)),
        ((84, 54, 38), (138, 94, 64)),
    )
    wall = [(190, 204, 204), (204, 190, 176), (176, 190, 178)][style]
    board = rounded_box((0, -0.3, -0.1), (11, 6.4, 0.2), 0.04)
    picture = wood(*boards[style], seed=style, boards=5)
    top = Surface(board, board[..., :2] / 3.4, picture, roughness=(0.3, 0.5, 0.4)[style])
    below = _plain(_quad((-9, -6, -1.6), (18, 0, 0), (0, 12, 0))[0], (150, 134, 118))
    return [top, _wall(wall, y=5.5, seed=style, high=5.0), below]


def _corner(style: int) -> list[Surface]:
    wall = [(214, 200, 176), (182, 200, 206), (206, 186, 180)][style]
    floor = [
        wood((150, 104, 66), (200, 152, 104), seed=10, boards=8),
        tiles((196, 186, 170), (150, 142, 130), seed=11, across=6),
        wood((120, 92, 70), (168, 136, 106), seed=12, boards=8),
    ][style]
    side = (-3.3, 3.3, -3.3)[style]
    back = _wall(wall, y=2.6, seed=style, high=2.2)
    quad = _quad((side, 2.6, 0), (0, -4.2, 0), (0, 0, 2.2), repeat=(2, 0.8))
    soup, uv = (one if side < 0 else one[:, ::-1] for one in quad)
    skirting = [rounded_box((0, 2.57, 0.09), (18, 0.06, 0.18), 0.015)]
    skirting.append(rounded_box((side, 0.5, 0.09), (0.06, 4.2, 0.18), 0.015))
    skirts = _plain(np.concatenate(skirting), (240, 236, 228))
    return [_floor(floor, repeat=2.4), back, Surface(soup, uv, back.picture), skirts]


def _street(style: int) -> list[Surface]:
    """Return a road and a row of houses as three meshes: the renderer's object index takes time per mesh."""
    ground, uv = _quad((-7, -5.2, 0), (14, 0, 0), (0, 9.2, 0), repeat=(1.6, 1))
    road = Surface(ground, uv, np.ascontiguousarray(street(seed=style)))
    rng = np.random.default_rng(style + 40)
    widths, heights = rng.uniform(1.1, 1.7, 9), rng.uniform(1.1, 2.2, 9)
    starts = np.cumsum(widths + 0.04) - widths - 6.0
    row = list(zip(starts + widths / 2, widths, heights, strict=True))
    blocks = [rounded_box((x, 3.35, high / 2), (wide, 1.2, high), 0.03) for x, wide, high in row]
    roofs = [
        rounded_box((x, 3.35, high + 0.05), (wide + 0.05, 1.3, 0.1), 0.03) for x, wide, high in row
    ]
    soups, uvs, pictures = list[Soup](), list[Soup](), list[Picture]()
    for k, (x, wide, high) in enumerate(row):
        soup, uv = _quad(
            (x - wide / 2 + 0.04, 2.745, 0.03), (wide - 0.08, 0, 0), (0, 0, high - 0.06)
        )
        soups.append(soup)
        uvs.append((uv * (0.998, 1) + (k + 0.001, 0)) / (9, 1))
        pictures.append(
            house_front(HOUSES[(k + style) % 6], seed=10 * style + k, floors=round(high / 0.55))
        )
    faces = Surface(np.concatenate(soups), np.concatenate(uvs), np.concatenate(pictures, axis=1))
    houses = [
        _plain(np.concatenate(blocks), (206, 194, 180)),
        _plain(np.concatenate(roofs), (132, 92, 78)),
        faces,
    ]
    return [road, *houses, _wall((186, 204, 216), y=6.5, seed=3, high=6)]


def _counter(style: int) -> list[Surface]:
    stone = [(198, 194, 188), (96, 100, 106), (178, 188, 184)][style]
    chips = [(150, 140, 128), (226, 222, 214), (120, 128, 130), (184, 150, 120)]
    tile = [(206, 216, 212), (150, 176, 184), (224, 212, 190)][style]
    joint = tuple(0.5 * v + 118 for v in tile)
    top = rounded_box((0, -1.2, -0.1), (12, 7.6, 0.2), 0.03)
    soup, uv = _quad((-9, 2.6, 0), (18, 0, 0), (0, 0, 4.0), repeat=(4.5, 1))
    wall = Surface(soup, uv, tiles(tile, joint, seed=style, across=8), roughness=0.2)
    return [
        Surface(top, top[..., :2] / 3.0, terrazzo(stone, chips, seed=style), roughness=0.25),
        wall,
    ]


def _picnic(style: int) -> list[Surface]:
    cloth = [(126, 160, 196), (206, 150, 140), (190, 176, 120)][style]
    grass = speckled((66, 108, 40), (118, 158, 70), seed=style, cells=20, grain=0.35)
    blanket = rounded_box((0, 0.1, -0.012), (6.0, 4.6, 0.024), 0.011)
    lawn = _floor(grass, side=16, far=7.0, repeat=6)
    hedge = _wall((70, 112, 60), y=5.6, seed=style, high=1.2)
    leaves = speckled((40, 78, 34), (92, 134, 62), seed=style + 5, cells=24, grain=0.5)
    return [
        Surface(lawn.soup - (0, 0, 0.02), lawn.uv, grass),
        Surface(blanket, blanket[..., :2] / 2.4, gingham(cloth, (240, 236, 226), checks=10)),
        Surface(hedge.soup, hedge.uv * 3, leaves),
        _wall((190, 212, 226), y=7.0, seed=1, high=6),
    ]


def _studio(style: int) -> list[Surface]:
    colour = [(186, 178, 196), (170, 192, 196), (206, 190, 170)][style]
    t = np.linspace(0, np.pi / 2, 14)
    curve = np.stack([3.0 + 1.6 * np.sin(t), 1.6 - 1.6 * np.cos(t)], axis=1)
    line = np.concatenate([[(-7.0, 0.0)], curve, [(4.6, 6.0)]])
    grid = np.stack(
        [np.stack([np.full(len(line), x), line[:, 0], line[:, 1]], axis=1) for x in (-8.0, 8.0)]
    )
    return [_plain(triangles_of_grid(grid), colour)]


def sheet(rng: np.random.Generator) -> Picture:
    """Return a printed sheet of paper: a heading, a grey picture and lines."""
    page = np.full((160, 112, 3), 226, np.uint8)
    page[12:20, 12 : int(rng.integers(60, 96))] = 70
    top = int(rng.integers(28, 70))
    page[top : top + 42, 12:100] = rng.integers(110, 180)
    for line in (*range(28, top - 6, 7), *range(top + 50, 150, 7)):
        page[line : line + 2, 12 : int(rng.integers(70, 101))] = 130
    return linear(page).astype(np.float32)


def woven(rng: np.random.Generator) -> Picture:
    """Return a cloth with a border and stripes, in two dull colours."""
    dull = [(152, 120, 104), (112, 128, 140), (136, 140, 112), (164, 150, 128), (124, 108, 124)]
    ground, thread = (
        np.array(dull[k], np.float64) for k in rng.choice(len(dull), 2, replace=False)
    )
    cloth = np.tile(ground, (192, 256, 1))
    cloth[:, :: int(rng.integers(9, 30))] = thread
    for rim in (6, 18):
        cloth[rim : rim + 5, rim:-rim] = cloth[-rim - 5 : -rim, rim:-rim] = thread
        cloth[rim:-rim, rim : rim + 5] = cloth[rim:-rim, -rim - 5 : -rim] = thread
    weave = 1 + 0.05 * rng.standard_normal((192, 256, 1))
    return linear(np.clip(cloth * weave, 0, 255)).astype(np.float32)


def painting(rng: np.random.Generator) -> Picture:
    """Return a framed landscape: hills before a sky."""
    canvas = np.empty((120, 160, 3))
    canvas[:] = np.linspace((150, 172, 190), (214, 206, 190), 120)[:, None]
    across = np.arange(160)
    for k, shade in enumerate(((128, 138, 128), (104, 118, 96), (86, 92, 76))):
        ridge = 52 + 20 * k + 9 * np.sin(across / rng.uniform(11, 26) + rng.uniform(0, 6))
        canvas[np.arange(120)[:, None] > ridge] = shade
    frame = rng.choice([(58, 44, 34), (206, 198, 184), (120, 96, 66)])
    canvas[:8], canvas[-8:], canvas[:, :8], canvas[:, -8:] = frame, frame, frame, frame
    return linear(canvas).astype(np.float32)


def _laid(rng: np.random.Generator, picture: Picture, *, width: float) -> Surface:
    turn, (x, y) = rng.uniform(-0.6, 0.6), rng.uniform((-2.2, -1.4), (2.2, 1.8))
    along = width * np.array([np.cos(turn), np.sin(turn), 0])
    up = width * picture.shape[0] / picture.shape[1] * np.array([-np.sin(turn), np.cos(turn), 0])
    corner = np.array([x, y, LIFT * (1 + rng.random())]) - (along + up) / 2
    return Surface(*_quad(corner, along, up), picture[::-1])


def _hung(rng: np.random.Generator, picture: Picture, *, y: float) -> Surface:
    width = rng.uniform(1.1, 1.9)
    corner = (rng.uniform(-3.2, 3.2 - width), y - 0.02, rng.uniform(0.35, 0.8))
    return Surface(
        *_quad(corner, (width, 0, 0), (0, 0, width * picture.shape[0] / picture.shape[1])),
        picture[::-1],
    )


def _clutter(place: str, rng: np.random.Generator) -> list[Surface]:
    """Return the clutter of a place, which no text names."""
    papers = [_laid(rng, sheet(rng), width=rng.uniform(0.6, 0.9)) for _ in range(rng.integers(4))]
    cloths = [
        _laid(rng, woven(rng), width=rng.uniform(1.2, 2.4)) for _ in range(rng.integers(1, 3))
    ]
    return {
        "a wooden table-top": [*papers, *cloths[:1], _hung(rng, painting(rng), y=5.5)],
        "a room corner": [*cloths, *papers[:1], _hung(rng, painting(rng), y=2.6)],
        "a toy street": papers[:2],
        "a kitchen counter": [*cloths, *papers[:1]],
        "a picnic blanket": [*cloths, *papers[:2]],
        "a photo studio": cloths[:1] if rng.random() < 0.5 else [],
    }[place]


_BUILDERS: dict[str, Callable[[int], list[Surface]]] = {
    "a wooden table-top": _table, "a room corner": _corner, "a toy street": _street,
    "a kitchen counter": _counter, "a picnic blanket": _picnic, "a photo studio": _studio,
}  # fmt: skip


@lru_cache(maxsize=16)
def surfaces_of(place: str, style: int) -> tuple[Surface, ...]:
    """Return the surfaces of a place and its clutter."""
    clutter = _clutter(place, np.random.default_rng((style, sorted(_BUILDERS).index(place))))
    return (*_BUILDERS[place](style % PALETTES), *clutter)
