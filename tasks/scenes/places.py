"""Places: ground, walls and backdrops in a few styles, as boxes with procedural pictures on them.

Reads and writes nothing. x is to the right, y away from the camera, z up; objects stand on z = 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pairwright.tasks.scenes.meshes import Soup, rounded_box, triangles_of_grid
from pairwright.tasks.scenes.pictures import (
    Floats,
    Picture,
    Rgb,
    Rng,
    gingham,
    house_front,
    linear_colour,
    painting,
    sheet,
    speckled,
    street,
    terrazzo,
    tiles,
    wood,
    woven,
)

HOUSES = (
    (222, 178, 140),
    (170, 194, 200),
    (226, 208, 150),
    (196, 160, 150),
    (178, 196, 160),
    (214, 202, 190),
)
PALETTES = 3
STYLES = 12
"""Looks of each place: its palette and clutter."""
LIFT = 0.002
"""Height of flat objects: visible, but too low to lift other objects on them."""


@dataclass(frozen=True, slots=True)
class Surface:
    """Piece of a place; ``uv`` maps it onto the repeating picture."""

    soup: Soup
    uv: Soup
    picture: Picture | None = None
    colour: tuple[float, float, float] = (0.5, 0.5, 0.5)
    roughness: float | None = None
    """Roughness of its gloss; ``None``: matt."""


Point = Sequence[float] | Floats


def _quad(
    corner: Point,
    along: Point,
    up: Point,
    *,
    repeat: tuple[float, float] = (1, 1),
) -> tuple[Soup, Soup]:
    """Return a parallelogram and its texture coordinates."""
    origin = np.asarray(corner, dtype=np.float64)
    right = np.asarray(along, dtype=np.float64)
    upwards = np.asarray(up, dtype=np.float64)
    near = [origin, origin + upwards]
    far = [origin + right, origin + right + upwards]
    u, v = repeat
    left_uv = [(0, 0, 0), (0, v, 0)]
    right_uv = [(u, 0, 0), (u, v, 0)]
    flat = np.array([left_uv, right_uv], dtype=np.float64)
    return triangles_of_grid(np.array([near, far])), triangles_of_grid(flat)[..., :2]


def _plain(soup: Soup, colour: Rgb) -> Surface:
    red, green, blue = linear_colour(colour)
    return Surface(soup, soup[..., :2], colour=(float(red), float(green), float(blue)))


def _floor(
    picture: Picture,
    *,
    side: float = 9.0,
    far: float = 4.0,
    repeat: float = 3.0,
) -> Surface:
    corner = (-side / 2 - 1, far - side, 0)
    wide = side + 2
    along = (wide, 0, 0)
    up = (0, side, 0)
    soup, uv = _quad(
        corner=corner,
        along=along,
        up=up,
        repeat=(repeat * wide / side, repeat),
    )
    return Surface(soup, uv, picture)


def _wall(
    colour: Rgb,
    *,
    y: float,
    seed: int,
    high: float = 4.0,
) -> Surface:
    lighter = tuple(min(255.0, value * 1.06) for value in colour)
    soup, uv = _quad(
        corner=(-9, y, 0),
        along=(18, 0, 0),
        up=(0, 0, high),
        repeat=(6, 1.5),
    )
    picture = speckled(
        low=colour,
        high=lighter,
        seed=seed,
        cells=3,
        grain=0.05,
    )
    return Surface(soup, uv, picture)


def _table(style: int) -> list[Surface]:
    boards = (
        ((122, 78, 44), (186, 132, 84)),
        ((150, 112, 72), (214, 176, 128)),
        ((84, 54, 38), (138, 94, 64)),
    )
    walls = (
        (190, 204, 204),
        (204, 190, 176),
        (176, 190, 178),
    )
    roughness = (0.3, 0.5, 0.4)
    low, high = boards[style]
    board = rounded_box(
        centre=(0, -0.3, -0.1),
        size=(11, 6.4, 0.2),
        bevel=0.04,
    )
    picture = wood(
        low=low,
        high=high,
        seed=style,
        boards=5,
    )
    top = Surface(
        board,
        board[..., :2] / 3.4,
        picture,
        roughness=roughness[style],
    )
    floor, _ = _quad(
        corner=(-9, -6, -1.6),
        along=(18, 0, 0),
        up=(0, 12, 0),
    )
    below = _plain(floor, (150, 134, 118))
    return [
        top,
        _wall(
            walls[style],
            y=5.5,
            seed=style,
            high=5.0,
        ),
        below,
    ]


def _corner_floor(style: int) -> Picture:
    if style == 0:
        return wood(
            low=(150, 104, 66),
            high=(200, 152, 104),
            seed=10,
            boards=8,
        )
    if style == 1:
        return tiles(
            colour=(196, 186, 170),
            joint=(150, 142, 130),
            seed=11,
            across=6,
        )
    return wood(
        low=(120, 92, 70),
        high=(168, 136, 106),
        seed=12,
        boards=8,
    )


def _corner(style: int) -> list[Surface]:
    walls = (
        (214, 200, 176),
        (182, 200, 206),
        (206, 186, 180),
    )
    side = (-3.3, 3.3, -3.3)[style]
    back = _wall(
        walls[style],
        y=2.6,
        seed=style,
        high=2.2,
    )
    soup, uv = _quad(
        corner=(side, 2.6, 0),
        along=(0, -4.2, 0),
        up=(0, 0, 2.2),
        repeat=(2, 0.8),
    )
    if side > 0:
        soup = soup[:, ::-1]
        uv = uv[:, ::-1]
    skirting = [
        rounded_box(
            centre=(0, 2.57, 0.09),
            size=(18, 0.06, 0.18),
            bevel=0.015,
        ),
        rounded_box(
            centre=(side, 0.5, 0.09),
            size=(0.06, 4.2, 0.18),
            bevel=0.015,
        ),
    ]
    return [
        _floor(_corner_floor(style), repeat=2.4),
        back,
        Surface(soup, uv, back.picture),
        _plain(np.concatenate(skirting), (240, 236, 228)),
    ]


def _street(style: int) -> list[Surface]:
    """Return a road and a row of houses as three meshes: the object index takes time per mesh."""
    ground, uv = _quad(
        corner=(-7, -5.2, 0),
        along=(14, 0, 0),
        up=(0, 9.2, 0),
        repeat=(1.6, 1),
    )
    road = Surface(ground, uv, np.ascontiguousarray(street(seed=style)))
    rng = np.random.default_rng(style + 40)
    widths = rng.uniform(1.1, 1.7, 9)
    heights = rng.uniform(1.1, 2.2, 9)
    starts = np.cumsum(widths + 0.04) - widths - 6.0
    middles = starts + widths / 2
    blocks: list[Soup] = []
    roofs: list[Soup] = []
    for x, wide, high in zip(middles, widths, heights, strict=True):
        blocks.append(
            rounded_box(
                centre=(x, 3.35, high / 2),
                size=(wide, 1.2, high),
                bevel=0.03,
            )
        )
        roofs.append(
            rounded_box(
                centre=(x, 3.35, high + 0.05),
                size=(wide + 0.05, 1.3, 0.1),
                bevel=0.03,
            )
        )
    return [
        road,
        _plain(np.concatenate(blocks), (206, 194, 180)),
        _plain(np.concatenate(roofs), (132, 92, 78)),
        _house_fronts(
            middles,
            widths,
            heights,
            style=style,
        ),
        _wall(
            (186, 204, 216),
            y=6.5,
            seed=3,
            high=6,
        ),
    ]


def _house_fronts(
    middles: Floats,
    widths: Floats,
    heights: Floats,
    *,
    style: int,
) -> Surface:
    """Return the fronts of nine houses, whose pictures stand side by side in one."""
    soups: list[Soup] = []
    uvs: list[Soup] = []
    pictures: list[Picture] = []
    houses = zip(middles, widths, heights, strict=True)
    for number, (x, wide, high) in enumerate(houses):
        soup, uv = _quad(
            corner=(x - wide / 2 + 0.04, 2.745, 0.03),
            along=(wide - 0.08, 0, 0),
            up=(0, 0, high - 0.06),
        )
        soups.append(soup)
        uvs.append((uv * (0.998, 1) + (number + 0.001, 0)) / (9, 1))
        front = house_front(
            HOUSES[(number + style) % 6],
            seed=10 * style + number,
            floors=round(high / 0.55),
        )
        pictures.append(front)
    return Surface(np.concatenate(soups), np.concatenate(uvs), np.concatenate(pictures, axis=1))


def _counter(style: int) -> list[Surface]:
    stones = (
        (198, 194, 188),
        (96, 100, 106),
        (178, 188, 184),
    )
    wall_tiles = (
        (206, 216, 212),
        (150, 176, 184),
        (224, 212, 190),
    )
    chips = [
        (150, 140, 128),
        (226, 222, 214),
        (120, 128, 130),
        (184, 150, 120),
    ]
    tile = wall_tiles[style]
    joint = tuple(0.5 * value + 118 for value in tile)
    board = rounded_box(
        centre=(0, -1.2, -0.1),
        size=(12, 7.6, 0.2),
        bevel=0.03,
    )
    stone = terrazzo(
        ground=stones[style],
        chips=chips,
        seed=style,
    )
    soup, uv = _quad(
        corner=(-9, 2.6, 0),
        along=(18, 0, 0),
        up=(0, 0, 4.0),
        repeat=(4.5, 1),
    )
    picture = tiles(
        colour=tile,
        joint=joint,
        seed=style,
        across=8,
    )
    return [
        Surface(
            board,
            board[..., :2] / 3.0,
            stone,
            roughness=0.25,
        ),
        Surface(
            soup,
            uv,
            picture,
            roughness=0.2,
        ),
    ]


def _picnic(style: int) -> list[Surface]:
    cloths = (
        (126, 160, 196),
        (206, 150, 140),
        (190, 176, 120),
    )
    grass = speckled(
        low=(66, 108, 40),
        high=(118, 158, 70),
        seed=style,
        cells=20,
        grain=0.35,
    )
    lawn = _floor(
        grass,
        side=16,
        far=7.0,
        repeat=6,
    )
    blanket = rounded_box(
        centre=(0, 0.1, -0.012),
        size=(6.0, 4.6, 0.024),
        bevel=0.011,
    )
    cloth = gingham(
        colour=cloths[style],
        ground=(240, 236, 226),
        checks=10,
    )
    hedge = _wall(
        (70, 112, 60),
        y=5.6,
        seed=style,
        high=1.2,
    )
    leaves = speckled(
        low=(40, 78, 34),
        high=(92, 134, 62),
        seed=style + 5,
        cells=24,
        grain=0.5,
    )
    return [
        Surface(lawn.soup - (0, 0, 0.02), lawn.uv, grass),
        Surface(blanket, blanket[..., :2] / 2.4, cloth),
        Surface(hedge.soup, hedge.uv * 3, leaves),
        _wall(
            (190, 212, 226),
            y=7.0,
            seed=1,
            high=6,
        ),
    ]


def _studio(style: int) -> list[Surface]:
    colours = (
        (186, 178, 196),
        (170, 192, 196),
        (206, 190, 170),
    )
    angles = np.linspace(0, np.pi / 2, 14)
    y = 3.0 + 1.6 * np.sin(angles)
    z = 1.6 - 1.6 * np.cos(angles)
    curve = np.stack([y, z], axis=1)
    line = np.concatenate([[(-7.0, 0.0)], curve, [(4.6, 6.0)]])
    sides: list[Soup] = []
    for x in (-8.0, 8.0):
        sides.append(np.stack([np.full(len(line), x), line[:, 0], line[:, 1]], axis=1))
    return [_plain(triangles_of_grid(np.stack(sides)), colours[style])]


def _laid(rng: Rng, picture: Picture, *, width: float) -> Surface:
    """Return a picture that lies on the ground."""
    turn = rng.uniform(-0.6, 0.6)
    x, y = rng.uniform((-2.2, -1.4), (2.2, 1.8))
    rows, columns = picture.shape[:2]
    along = width * np.array([np.cos(turn), np.sin(turn), 0])
    up = width * rows / columns * np.array([-np.sin(turn), np.cos(turn), 0])
    middle = np.array([x, y, LIFT * (1 + rng.random())])
    soup, uv = _quad(
        corner=middle - (along + up) / 2,
        along=along,
        up=up,
    )
    return Surface(soup, uv, picture[::-1])


def _hung(rng: Rng, picture: Picture, *, y: float) -> Surface:
    """Return a picture that hangs on a wall."""
    width = rng.uniform(1.1, 1.9)
    x = rng.uniform(-3.2, 3.2 - width)
    z = rng.uniform(0.35, 0.8)
    rows, columns = picture.shape[:2]
    up = (0, 0, width * rows / columns)
    soup, uv = _quad(
        corner=(x, y - 0.02, z),
        along=(width, 0, 0),
        up=up,
    )
    return Surface(soup, uv, picture[::-1])


def _clutter(place: str, rng: Rng) -> list[Surface]:
    """Return the clutter of a place, which no text names."""
    papers: list[Surface] = []
    for _ in range(rng.integers(4)):
        papers.append(_laid(rng, sheet(rng), width=rng.uniform(0.6, 0.9)))
    cloths: list[Surface] = []
    for _ in range(rng.integers(1, 3)):
        cloths.append(_laid(rng, woven(rng), width=rng.uniform(1.2, 2.4)))
    table_painting = _hung(rng, painting(rng), y=5.5)
    corner_painting = _hung(rng, painting(rng), y=2.6)
    return {
        "a wooden table-top": [*papers, *cloths[:1], table_painting],
        "a room corner": [*cloths, *papers[:1], corner_painting],
        "a toy street": papers[:2],
        "a kitchen counter": [*cloths, *papers[:1]],
        "a picnic blanket": [*cloths, *papers[:2]],
        "a photo studio": cloths[:1] if rng.random() < 0.5 else [],
    }[place]


_BUILDERS: dict[str, Callable[[int], list[Surface]]] = {
    "a wooden table-top": _table,
    "a room corner": _corner,
    "a toy street": _street,
    "a kitchen counter": _counter,
    "a picnic blanket": _picnic,
    "a photo studio": _studio,
}


@lru_cache(maxsize=16)
def surfaces_of(place: str, style: int) -> tuple[Surface, ...]:
    """Return the surfaces of a place and its clutter."""
    number = sorted(_BUILDERS).index(place)
    clutter = _clutter(place, np.random.default_rng((style, number)))
    surfaces = _BUILDERS[place](style % PALETTES)
    return (*surfaces, *clutter)
