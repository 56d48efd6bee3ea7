"""Removals of discs from a known background: gone where they were, and nothing else touched.

LaMa's file holds small networks.
"""

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig
from pairwright.schemas.rows import Dropped, RemovalRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import decode_rgb, put_patch
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.models import devices, lama
from pairwright.tasks.rejected import remove_elements as stage
from pairwright.tasks.rejected.remove_elements import STAGE, remove_elements
from pairwright.tasks.store.pool import HELPERS
from tests.fixtures import removals
from tests.fixtures.lama_checkpoints import HoleMean, write_lama
from tests.fixtures.pictures import photograph
from tests.fixtures.removals import element_of

SIZE = (120, 160)
ROWS, COLUMNS = np.indices(SIZE)
# A smooth slope with fine grain: what a hole should be filled with is known.
SLOPE = np.stack([60 + COLUMNS // 2, 90 + ROWS // 2, np.full(SIZE, 150)], axis=2)
PLAIN = photograph(SLOPE.astype(np.uint8))
ALL, NONE = np.ones(SIZE, dtype=bool), np.zeros(SIZE, dtype=bool)


def disc(row, column, radius):
    return removals.disc(row, column, radius, SIZE)


DISCS = {
    "a": ((230, 210, 20), disc(40, 40, 12)),
    "b": ((230, 210, 20), disc(80, 110, 10)),
    "c": ((220, 20, 20), disc(40, 110, 14)),
}


def with_discs():
    pixels = (SLOPE + np.random.default_rng(0).integers(-4, 5, SLOPE.shape)).astype(np.uint8)
    for colour, mask in DISCS.values():
        pixels[mask] = colour
    return photograph(pixels)


THREE = with_discs()
ELEMENTS = [
    element_of(THREE.key, "ball", mask=mask, objects=(name,)) for name, (_, mask) in DISCS.items()
]


@pytest.fixture(autouse=True)
def forgotten(one_thread):
    yield
    lama._load.cache_clear()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """LaMa's place is taken by a network that fills with the mean colour around."""
    path = tmp_path_factory.mktemp("lama") / "mean.pt"
    return LamaConfig(checkpoint=str(path), sha256=write_lama(path, HoleMean()))


def remove(image, elements, weights, **config):
    settings = RemovalsConfig(inpainter="lama", lama=weights, **config)
    return list(remove_elements(elements, settings, images={image.key: image}))


def composed(image, row):
    return put_patch(decode_rgb(image.image), row.patch, row.window)


def test_the_object_is_gone_and_nothing_else_is_touched(weights) -> None:
    before = decode_rgb(THREE.image).astype(int)
    rows = remove(THREE, ELEMENTS, weights, dilate_pixels=3, feather_pixels=2)
    assert [row.object_ids for row in rows] == [("a",), ("b",), ("c",)]
    for row in rows:
        after = composed(THREE, row).astype(int)
        mask = decode_mask(Mask.model_validate_json(row.mask))
        # 3 dilated and 2 feathered: at a distance of 6 pixels nothing may change.
        near = distance_transform_edt(~mask) < 6
        assert np.array_equal(after[~near], before[~near])
        assert row.changed_outside == 0
        # Where the disc was, the slope shows: what is left is well below the contrast of the disc.
        assert np.abs(before[mask] - SLOPE[mask]).mean() > 50
        assert np.abs(after[mask] - SLOPE[mask]).mean() < 20


HOLES = {
    "first corner": disc(0, 0, 20),
    "last corner": disc(119, 159, 20),
    "a pixel": (ROWS == 50) & (COLUMNS == 50),
    "all but a row": ROWS != 60,
}


@pytest.mark.parametrize("mask", HOLES.values(), ids=HOLES)
def test_holes_may_touch_the_borders(mask, weights) -> None:
    element = element_of(PLAIN.key, "ball", mask=mask)
    (row,) = remove(PLAIN, [element], weights, dilate_pixels=0, feather_pixels=0)
    assert np.array_equal(composed(PLAIN, row)[~mask], decode_rgb(PLAIN.image)[~mask])
    assert (row.changed_outside, row.window) == (0, element.box)


PIXEL = photograph(np.full((1, 1, 3), 7, dtype=np.uint8))
NO_SURROUNDINGS = "nothing left to fill the hole from"
OTHER_SIZE = "masks of another size"


REFUSED = {
    "everything": (PLAIN, ALL, NO_SURROUNDINGS),
    "nothing": (PLAIN, NONE, "empty mask"),
    # With 5 dilated and 3 feathered, nothing is left.
    "nearly everything": (PLAIN, ~disc(60, 80, 6), NO_SURROUNDINGS),
    "half the height": (PLAIN, ALL[::2], OTHER_SIZE),
    "one pixel": (PIXEL, ALL[:1, :1], NO_SURROUNDINGS),
}


@pytest.mark.parametrize(("image", "mask", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_removed_says_why(weights, image, mask, reason) -> None:
    (dropped,) = remove(image, [element_of(image.key, "ball", mask=mask)], weights)
    assert isinstance(dropped, Dropped)
    assert dropped.reason == reason


def test_reasons_come_with_sizes_and_with_what_was_refused_before(weights) -> None:
    elements = [
        element_of(PLAIN.key, "ball", mask=ALL[::2]),
        element_of(PLAIN.key, "sky", mask=ALL, why="too large"),
    ]
    dropped = {row.source_key: row for row in remove(PLAIN, elements, weights)}
    half, refused = (dropped[element.key] for element in elements)
    assert half.detail == "ball: 160 x 60 pixels, the image 160 x 120"
    assert (refused.reason, refused.detail) == ("its mask was refused", "sky: too large")


def test_holes_cut_elsewhere_give_the_same_rows(weights, monkeypatch) -> None:
    masks = [NONE, *(disc(40, 60, radius) for radius in range(2, 20))]
    elements = [*ELEMENTS, *(element_of(THREE.key, "ball", mask=mask) for mask in masks)]
    here = {row.source_key: row for row in remove(THREE, elements, weights, batch_size=4)}
    # The network stays on the CPU; what is tried is the way that holes take where there is a GPU.
    monkeypatch.setattr(stage, "count_gpus", lambda: 1)
    monkeypatch.setattr(stage, "GROUP", 8)
    monkeypatch.setenv(HELPERS, "2")
    elsewhere = {row.source_key: row for row in remove(THREE, elements, weights, batch_size=4)}
    assert elsewhere.keys() == here.keys() == {element.key for element in elements}
    empty = elements[3].key
    assert isinstance(here[empty], Dropped)
    assert elsewhere.pop(empty) == here[empty]
    for key, row in elsewhere.items():
        assert isinstance(row, RemovalRow)
        difference = composed(THREE, row).astype(int) - composed(THREE, here[key])
        assert np.abs(difference).max() <= 1


def test_removals_by_rendering_need_no_weights() -> None:
    plain = RemovalsConfig()
    assert STAGE.pin(plain) == plain
    assert STAGE.models(plain)[0].startswith("rendered by mitsuba ")
    assert STAGE.processes(plain) is None


def test_weights_are_pinned_named_and_loaded_once_per_gpu(weights, monkeypatch, tmp_path) -> None:
    config = STAGE.pin(RemovalsConfig(inpainter="lama", lama=weights))
    assert STAGE.models(config) == (f"LaMa {config.lama.revision}",)
    assert STAGE.processes(config) == 0
    monkeypatch.setattr(devices, "count_gpus", lambda: 3)
    assert STAGE.processes(config) == 3
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"removals\.lama: big-lama\.pt"):
        STAGE.pin(RemovalsConfig(inpainter="lama"))
