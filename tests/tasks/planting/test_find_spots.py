"""Spots are plain, apart from each other and from faces, and inside the photograph."""

from itertools import combinations

import numpy as np
import skimage.data

from pairwright.tasks.planting.find_faces import find_faces
from pairwright.tasks.planting.find_spots import MAX_SPOTS, Box, find_spots


def half_plain() -> np.ndarray:
    """Return a photograph whose left third is noise and whose rest is grey."""
    photograph = np.full((480, 640, 3), 128, np.uint8)
    noise = np.random.default_rng(0).integers(0, 256, (480, 200, 3))
    photograph[:, :200] = noise
    return photograph


def overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def test_spots_are_plain_apart_and_inside() -> None:
    for seed in range(5):
        spots = find_spots(half_plain(), np.random.default_rng(seed))
        assert 2 <= len(spots) <= MAX_SPOTS
        for spot in spots:
            x0, y0, x1, y1 = spot.box
            noise = max(0, 200 - x0) / (x1 - x0)
            assert noise < 0.5
            assert x1 < 640
            assert y0 > 0
            assert y1 < 480
        assert not any(overlap(a.box, b.box) for a, b in combinations(spots, 2))


def test_things_are_larger_below_than_above() -> None:
    photograph = np.full((480, 640, 3), 128, np.uint8)
    spots = find_spots(photograph, np.random.default_rng(1))
    by_row = sorted(spots, key=lambda spot: spot.y)
    assert [spot.scale for spot in by_row] == sorted(spot.scale for spot in by_row)
    assert by_row[0].scale < by_row[-1].scale


def test_nothing_stands_on_a_face() -> None:
    astronaut = skimage.data.astronaut()
    [face] = find_faces(astronaut)
    assert overlap(face, (200, 90, 250, 150))
    for seed in range(10):
        spots = find_spots(astronaut, np.random.default_rng(seed), avoided=[face])
        assert spots
        assert not any(overlap(spot.box, face) for spot in spots)


def test_a_photograph_without_a_face_has_none() -> None:
    assert find_faces(skimage.data.chelsea()) == []
    assert find_faces(np.zeros((20, 300, 3), np.uint8)) == []
