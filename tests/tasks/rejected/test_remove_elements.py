"""Removals of discs from a known background: gone where they were, and nothing else touched.

Rendered worlds are compared with themselves, rendered again without the thing. LaMa's file holds
small networks.
"""

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from pairwright.schemas.config import RemovalsConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig
from pairwright.schemas.rows import Dropped, ElementRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import decode_rgb, put_patch
from pairwright.tasks.images.masks import decode_mask, encode_mask
from pairwright.tasks.models import devices, lama
from pairwright.tasks.rejected import remove_elements as stage
from pairwright.tasks.rejected.remove_elements import STAGE, remove_elements
from pairwright.tasks.store.pool import HELPERS
from tests.fixtures.graphs import graph, thing
from tests.fixtures.lama_checkpoints import HoleMean, write_lama
from tests.fixtures.pictures import photograph
from tests.fixtures.rows import row_of

HEIGHT, WIDTH = 120, 160
ROWS, COLUMNS = np.indices((HEIGHT, WIDTH))
# A smooth slope with fine grain: what a hole should be filled with is known.
SLOPE = np.stack([60 + COLUMNS // 2, 90 + ROWS // 2, np.full((HEIGHT, WIDTH), 150)], axis=2)
COLOURS = {"red": (220, 20, 20), "yellow": (230, 210, 20), "blue": (20, 20, 220)}


def disc(row, column, radius, size=(HEIGHT, WIDTH)):
    rows, columns = np.indices(size)
    return (rows - row) ** 2 + (columns - column) ** 2 <= radius**2


def element(image, mask, *ids, why="", tag="ball"):
    """Return the row of a mask of an image, as the step before would write it."""
    lines, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = (
        (int(columns[0]), int(lines[0]), int(columns[-1]) + 1, int(lines[-1]) + 1)
        if mask.any()
        else (0, 0, 0, 0)
    )
    encoded = encode_mask(mask).model_dump_json()
    about = {"tag": tag, "object_ids": ids, "box": box, "mask": encoded, "why": why}
    share = float(np.float32(mask.mean()))
    return row_of(
        ElementRow, encoded, *ids, why, source="masks", subject=image.key, area_share=share, **about
    )


def scene(*discs):
    """Return an image row with (name, colour, mask) things, the later in front of the earlier, and
    its elements."""
    pixels = (SLOPE + np.random.default_rng(0).integers(-4, 5, SLOPE.shape)).astype(np.uint8)
    owner = np.full((HEIGHT, WIDTH), -1)
    for number, (_, colour, mask) in enumerate(discs):
        pixels[mask], owner[mask] = COLOURS[colour], number
    things = [
        thing(name, colour=colour).model_copy(update={"mask": encode_mask(owner == number)})
        for number, (name, colour, _) in enumerate(discs)
    ]
    image = photograph(pixels, graph=graph(*things))
    return image, [
        element(image, owner == number, name) for number, (name, _, _) in enumerate(discs)
    ]


THREE, ELEMENTS = scene(
    ("a", "yellow", disc(40, 40, 12)),
    ("b", "yellow", disc(80, 110, 10)),
    ("c", "red", disc(40, 110, 14)),
)


@pytest.fixture(autouse=True)
def forgotten(one_thread):
    yield
    lama._load.cache_clear()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """LaMa's place is taken by a network that fills with the mean colour around."""
    path = tmp_path_factory.mktemp("lama") / "mean.pt"
    return LamaConfig(checkpoint=str(path), sha256=write_lama(path, HoleMean()))


def removed(image, elements, **config):
    return list(
        remove_elements(
            elements, RemovalsConfig(inpainter="lama", **config), images={image.key: image}
        )
    )


def composed(image, row):
    return put_patch(decode_rgb(image.image), row.patch, row.window)


def test_the_object_is_gone_and_nothing_else_is_touched(weights):
    before = decode_rgb(THREE.image).astype(int)
    made = removed(THREE, ELEMENTS, lama=weights, dilate_pixels=3, feather_pixels=2)
    assert [row.object_ids for row in made] == [("a",), ("b",), ("c",)]
    for one in made:
        after = composed(THREE, one).astype(int)
        mask = decode_mask(Mask.model_validate_json(one.mask))
        # 3 dilated and 2 feathered: at a distance of 6 pixels nothing may change.
        near = distance_transform_edt(~mask) < 6
        assert np.array_equal(after[~near], before[~near])
        assert one.changed_outside == 0
        # Where the disc was, the slope shows: what is left is well below the contrast of the disc.
        assert np.abs(before[mask] - SLOPE[mask]).mean() > 50
        assert np.abs(after[mask] - SLOPE[mask]).mean() < 20


@pytest.mark.parametrize(
    "mask",
    [
        disc(0, 0, 20),
        disc(119, 159, 20),
        disc(60, 0, 20),
        COLUMNS > 100,
        (ROWS == 50) & (COLUMNS == 50),
        ROWS != 60,
    ],
)
def test_holes_may_touch_the_borders(mask, weights):
    image = photograph(SLOPE.astype(np.uint8))
    (one,) = removed(image, [element(image, mask)], lama=weights, dilate_pixels=0, feather_pixels=0)
    after, before = composed(image, one), decode_rgb(image.image)
    assert np.array_equal(after[~mask], before[~mask])
    assert one.changed_outside == 0
    assert one.window == element(image, mask).box


def test_what_cannot_be_removed_says_why(weights):
    image, one = (
        photograph(SLOPE.astype(np.uint8)),
        photograph(np.full((1, 1, 3), 7, dtype=np.uint8)),
    )
    everything, nothing = (
        np.ones((HEIGHT, WIDTH), dtype=bool),
        np.zeros((HEIGHT, WIDTH), dtype=bool),
    )
    nearly = ~disc(60, 80, 6)  # with 5 dilated and 3 feathered, nothing is left
    rows = [
        element(image, mask)
        for mask in (everything, nothing, nearly, everything[::2], everything.T)
    ]
    rows += [element(one, everything[:1, :1]), element(one, nothing[:1, :1])]
    rows += [element(image, everything, why="too large", tag="sky")]
    images = {image.key: image, one.key: one}
    config = RemovalsConfig(inpainter="lama", lama=weights)
    found = {row.source_key: row for row in remove_elements(rows, config, images=images)}
    assert all(isinstance(row, Dropped) for row in found.values())
    assert [found[row.key].reason for row in rows] == [
        "nothing left to fill the hole from",
        "empty mask",
        "nothing left to fill the hole from",
        "masks of another size",
        "masks of another size",
        "nothing left to fill the hole from",
        "empty mask",
        "its mask was refused",
    ]
    assert found[rows[3].key].detail == "ball: 160 x 60 pixels, the image 160 x 120"
    assert found[rows[7].key].detail == "sky: too large"


def test_holes_cut_elsewhere_give_the_same_rows(weights, monkeypatch):
    config = STAGE.pin(RemovalsConfig(inpainter="lama", lama=weights, batch_size=4))
    rows = [*ELEMENTS, element(THREE, np.zeros((HEIGHT, WIDTH), dtype=bool))]
    rows += [element(THREE, disc(40, 60, radius)) for radius in range(2, 20)]
    images = {THREE.key: THREE}
    here = {row.source_key: row for row in remove_elements(rows, config, images=images)}
    # The network stays on the CPU; what is tried is the way that holes take where there is a GPU.
    monkeypatch.setattr(stage, "count_gpus", lambda: 1)
    monkeypatch.setattr(stage, "GROUP", 8)
    monkeypatch.setenv(HELPERS, "2")
    elsewhere = list(remove_elements(rows, config, images=images))
    assert len(elsewhere) == len(here) == len(rows)
    for row in elsewhere:
        wanted = here[row.source_key]
        if isinstance(row, Dropped):
            assert row == wanted
        else:
            assert np.abs(composed(THREE, row).astype(int) - composed(THREE, wanted)).max() <= 1


def test_weights_are_pinned_named_and_loaded_once_per_gpu(weights, monkeypatch, tmp_path):
    plain = RemovalsConfig()
    assert STAGE.pin(plain) == plain
    assert STAGE.models(plain)[0].startswith("rendered by mitsuba ")
    assert STAGE.processes(plain) is None
    config = STAGE.pin(RemovalsConfig(inpainter="lama", lama=weights))
    assert STAGE.models(config) == (f"LaMa {config.lama.revision}",)
    assert STAGE.processes(config) == 0
    monkeypatch.setattr(devices, "count_gpus", lambda: 3)
    assert STAGE.processes(config) == 3
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"removals\.lama: big-lama\.pt"):
        STAGE.pin(RemovalsConfig(inpainter="lama"))
