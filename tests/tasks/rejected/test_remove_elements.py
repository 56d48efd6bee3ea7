"""Removals of discs from a known background: gone where they were, and nothing else touched.

Rendered worlds are compared with themselves, rendered again without the thing. LaMa's file holds small networks.
"""

from dataclasses import replace
from statistics import median

import cv2
import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt

from pairwright.schemas.config import RemovalsConfig, ScenesConfig
from pairwright.schemas.errors import ModelError
from pairwright.schemas.removing import LamaConfig
from pairwright.schemas.rows import Dropped, ElementRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.models import devices, lama
from pairwright.tasks.models.inpainting import RADIUS
from pairwright.tasks.models.prepare_ahead import AHEAD
from pairwright.tasks.rejected import remove_elements as stage
from pairwright.tasks.rejected.remove_elements import STAGE, remove_elements
from pairwright.tasks.store.images import decode_rgb, put_patch
from pairwright.tasks.store.masks import decode_mask, encode_mask
from pairwright.tasks.store.pool import HELPERS, helpers
from tests.fixtures.graphs import graph, thing
from tests.fixtures.lama_checkpoints import HoleMean, write_lama
from tests.fixtures.pictures import photograph
from tests.fixtures.rows import row_of

HEIGHT, WIDTH = 120, 160
ROWS, COLUMNS = np.indices((HEIGHT, WIDTH))
# A smooth slope with fine grain: what a hole should be filled with is known.
SLOPE = np.stack([60 + COLUMNS // 2, 90 + ROWS // 2, np.full((HEIGHT, WIDTH), 150)], axis=2)
COLOURS = {"red": (220, 20, 20), "yellow": (230, 210, 20), "blue": (20, 20, 220)}
INPAINTERS = ("telea", "navier-stokes", "lama")


def disc(row, column, radius, size=(HEIGHT, WIDTH)):
    rows, columns = np.indices(size)
    return (rows - row) ** 2 + (columns - column) ** 2 <= radius**2


def element(image, mask, *ids, why="", tag="ball"):
    """Return the row of a mask of an image, as the step before would write it."""
    lines, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    box = (int(columns[0]), int(lines[0]), int(columns[-1]) + 1, int(lines[-1]) + 1) if mask.any() else (0, 0, 0, 0)
    encoded = encode_mask(mask).model_dump_json()
    about = {"tag": tag, "object_ids": ids, "box": box, "mask": encoded, "why": why}
    share = float(np.float32(mask.mean()))
    return row_of(ElementRow, encoded, *ids, why, source="masks", subject=image.key, area_share=share, **about)


def scene(*discs):
    """Return an image row with (name, colour, mask) things, the later in front of the earlier, and its elements."""
    pixels = (SLOPE + np.random.default_rng(0).integers(-4, 5, SLOPE.shape)).astype(np.uint8)
    owner = np.full((HEIGHT, WIDTH), -1)
    for number, (_, colour, mask) in enumerate(discs):
        pixels[mask], owner[mask] = COLOURS[colour], number
    things = [
        thing(name, colour=colour).model_copy(update={"mask": encode_mask(owner == number)})
        for number, (name, colour, _) in enumerate(discs)
    ]
    image = photograph(pixels, graph=graph(*things))
    return image, [element(image, owner == number, name) for number, (name, _, _) in enumerate(discs)]


THREE, ELEMENTS = scene(
    ("a", "yellow", disc(40, 40, 12)), ("b", "yellow", disc(80, 110, 10)), ("c", "red", disc(40, 110, 14))
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
    return list(remove_elements(elements, RemovalsConfig(**config), images={image.key: image}))


def composed(image, row):
    return put_patch(decode_rgb(image.image), row.patch, row.window)


@pytest.mark.parametrize("inpainter", INPAINTERS)
def test_the_object_is_gone_and_nothing_else_is_touched(inpainter, weights):
    before = decode_rgb(THREE.image).astype(int)
    # The mean of what is around a disc is farther from the slope than what OpenCV spreads.
    close = 20 if inpainter == "lama" else 8
    made = removed(THREE, ELEMENTS, inpainter=inpainter, lama=weights, dilate_pixels=3, feather_pixels=2)
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
        assert np.abs(after[mask] - SLOPE[mask]).mean() < close


def test_rows_say_what_was_removed_and_how():
    (one,) = removed(THREE, ELEMENTS[:1], inpainter="navier-stokes", dilate_pixels=3, feather_pixels=2)
    first = ELEMENTS[0]
    assert (one.source_key, one.subject, one.image_key) == (first.key, first.key, THREE.key)
    assert (one.tag, one.object_ids, one.box, one.mask) == (first.tag, first.object_ids, first.box, first.mask)
    assert (one.area_share, one.dilate, one.feather) == (first.area_share, 3, 2)
    assert one.inpainter == "navier-stokes"
    # The disc is columns and rows 28 to 52; with a reach of 6, pixels at a distance of 5 are the last to change.
    assert one.window == (23, 23, 58, 58)


@pytest.mark.parametrize("inpainter", ["telea", "navier-stokes"])
@pytest.mark.parametrize(("row", "column", "radius"), [(60, 80, 20), (3, 5, 12), (118, 150, 15), (0, 80, 9)])
def test_windows_give_what_the_whole_image_gives(inpainter, row, column, radius):
    # The same, computed on whole images by other means: SciPy's distances, and OpenCV without any windows.
    mask = disc(row, column, radius) & ~disc(row, column, radius // 2)
    image = photograph(np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8))
    (one,) = removed(image, [element(image, mask)], inpainter=inpainter, dilate_pixels=4, feather_pixels=5)
    pixels = decode_rgb(image.image)
    weight = np.clip((4 + 5 + 1 - distance_transform_edt(~mask)) / 6, 0, 1).astype(np.float32)
    flag = cv2.INPAINT_TELEA if inpainter == "telea" else cv2.INPAINT_NS
    filled = cv2.inpaint(pixels, (weight > 0).astype(np.uint8), RADIUS, flag)
    wanted = np.rint(pixels + weight[:, :, None] * (filled.astype(np.float32) - pixels))
    assert np.array_equal(composed(image, one), wanted)


def test_the_filling_fades_in_over_the_feather():
    image, (ball,) = scene(("a", "red", disc(60, 80, 15)))
    (one,) = removed(image, [ball], dilate_pixels=0, feather_pixels=9)
    changed = np.abs(composed(image, one).astype(int) - decode_rgb(image.image)).max(axis=2)
    ring = [changed[disc(60, 80, radius + 1) & ~disc(60, 80, radius)].mean() for radius in (16, 20, 24, 26)]
    assert ring[0] > ring[1] > ring[2] > ring[3] == 0


@pytest.mark.parametrize("inpainter", INPAINTERS)
def test_objects_in_front_stay_as_they_are(inpainter, weights):
    front = disc(60, 90, 12)
    image, (behind, _) = scene(("a", "yellow", disc(60, 70, 18)), ("b", "red", front))
    (one,) = removed(image, [behind], inpainter=inpainter, lama=weights)
    after = composed(image, one).astype(int)
    assert np.array_equal(after[front], decode_rgb(image.image)[front])
    assert one.changed_outside == 0
    # Nothing of the neighbour's red runs into the hole, though they touch.
    hole = disc(60, 70, 18) & ~front
    assert np.abs(after[hole] - SLOPE[hole]).max() < 45


def test_of_a_photograph_nothing_is_protected():
    # The same image without its graph: the mask alone says what changes.
    image, (behind, _) = scene(("a", "yellow", disc(60, 70, 18)), ("b", "red", disc(60, 90, 12)))
    plain = replace(image, graph=None)
    (one,) = removed(plain, [replace(behind, object_ids=())])
    mask = decode_mask(Mask.model_validate_json(behind.mask))
    changed = (composed(plain, one) != decode_rgb(plain.image)).any(axis=2)
    assert (changed & disc(60, 90, 12)).any()
    assert not changed[distance_transform_edt(~mask) >= 9].any()


@pytest.mark.parametrize("inpainter", INPAINTERS)
@pytest.mark.parametrize(
    "mask",
    [
        disc(0, 0, 20), disc(119, 159, 20), disc(60, 0, 20), COLUMNS > 100, (ROWS == 50) & (COLUMNS == 50), ROWS != 60,
    ],
)  # fmt: skip
def test_holes_may_touch_the_borders(inpainter, mask, weights):
    image = photograph(SLOPE.astype(np.uint8))
    (one,) = removed(
        image, [element(image, mask)], inpainter=inpainter, lama=weights, dilate_pixels=0, feather_pixels=0
    )
    after, before = composed(image, one), decode_rgb(image.image)
    assert np.array_equal(after[~mask], before[~mask])
    assert one.changed_outside == 0
    assert one.window == element(image, mask).box


@pytest.mark.parametrize("inpainter", INPAINTERS)
def test_what_cannot_be_removed_says_why(inpainter, weights):
    image, one = photograph(SLOPE.astype(np.uint8)), photograph(np.full((1, 1, 3), 7, dtype=np.uint8))
    everything, nothing = np.ones((HEIGHT, WIDTH), dtype=bool), np.zeros((HEIGHT, WIDTH), dtype=bool)
    nearly = ~disc(60, 80, 6)  # with 5 dilated and 3 feathered, nothing is left
    rows = [element(image, mask) for mask in (everything, nothing, nearly, everything[::2], everything.T)]
    rows += [element(one, everything[:1, :1]), element(one, nothing[:1, :1])]
    rows += [element(image, everything, why="too large", tag="sky")]
    images = {image.key: image, one.key: one}
    config = RemovalsConfig(inpainter=inpainter, lama=weights)
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


def test_masks_that_do_not_fit_and_images_that_do_not_decode():
    image, (first, _) = scene(("a", "yellow", disc(40, 40, 12)), ("b", "red", disc(80, 110, 10)))
    half = photograph(decode_rgb(image.image)[::2], graph=image.graph)
    row = element(half, disc(20, 40, 6, (60, 160)), *first.object_ids)
    (dropped,) = removed(half, [row])
    assert (dropped.source_key, dropped.reason) == (row.key, "masks of another size")
    damaged = replace(THREE, image=THREE.image[:-40])
    found = removed(damaged, ELEMENTS)
    assert [(row.source_key, row.reason) for row in found] == [(row.key, "truncated image") for row in ELEMENTS]


@pytest.mark.parametrize("inpainter", INPAINTERS)
def test_rows_do_not_depend_on_the_batch(inpainter, weights):
    images = [THREE, photograph(SLOPE.astype(np.uint8)[:97, :131])]
    rows = [*ELEMENTS, *(element(images[1], disc(40, 60, radius, (97, 131))) for radius in range(5, 35))]
    config = RemovalsConfig(inpainter=inpainter, lama=weights)
    by_key = {image.key: image for image in images}
    together = list(remove_elements(rows, config, images=by_key))
    assert [row.source_key for row in together] == [row.key for row in rows]
    alone = [made for row in rows for made in remove_elements([row], config, images=by_key)]
    for one, other in zip(together, alone, strict=True):
        if inpainter == "lama":  # sums of other batches are rounded otherwise
            image = by_key[one.image_key]
            assert np.abs(composed(image, one).astype(int) - composed(image, other)).max() <= 1
            one, other = replace(one, patch=b""), replace(other, patch=b"")
        assert one == other


@pytest.mark.parametrize("helping", [0, 2])
def test_holes_cut_elsewhere_give_the_same_rows(weights, monkeypatch, helping):
    config = STAGE.pin(RemovalsConfig(inpainter="lama", lama=weights, batch_size=4))
    slope = photograph(SLOPE.astype(np.uint8))
    rows = [*ELEMENTS, *(element(slope, disc(40, 60, radius)) for radius in range(2, 40))]
    rows.insert(5, element(slope, np.zeros((HEIGHT, WIDTH), dtype=bool)))
    images = {THREE.key: THREE, slope.key: slope}
    here = list(remove_elements(rows, config, images=images))
    # The network stays on the CPU; what is tried is the way that holes take where there is a GPU.
    monkeypatch.setattr(stage, "count_gpus", lambda: 1)
    monkeypatch.setattr(stage, "GROUP", 8)
    monkeypatch.setenv(HELPERS, str(helping))
    helpers.cache_clear()
    try:
        elsewhere = list(remove_elements(rows, config, images=images))
        assert bool(helpers()) == bool(helping)
    finally:
        pool = helpers()
        helpers.cache_clear()
        if pool:
            pool.shutdown()
    by_key = {row.source_key: row for row in here}
    assert len(elsewhere) == len(here) == len(rows)
    for row in elsewhere:
        wanted = by_key[row.source_key]
        if isinstance(row, Dropped):
            assert row == wanted
        else:
            image = images[row.image_key]
            assert np.abs(composed(image, row).astype(int) - composed(image, wanted)).max() <= 1


def test_what_waits_is_bounded_by_its_bytes(monkeypatch):
    small, large = (replace(THREE, width=width, height=height) for width, height in ((160, 120), (8000, 5000)))
    config = RemovalsConfig(inpainter="lama")
    assert stage._most([(ELEMENTS[0], small)], config) == AHEAD
    # The whole image changes: 8 bytes for each of its pixels, and 8 x 1.25 for each that the network sees.
    whole = replace(ELEMENTS[0], box=(0, 0, 8000, 5000))
    assert stage._most([(ELEMENTS[0], small), (whole, large)], config) == (1 << 30) // (8 * 40_000_000 + 10 * (1 << 20))
    monkeypatch.setattr(stage, "ROOM_BYTES", 1)
    assert stage._most([(whole, large)], config) == 1
    assert removed(THREE, ELEMENTS) == [row for one in ELEMENTS for row in removed(THREE, [one])]


def test_a_pixel_changed_outside_is_counted(monkeypatch):
    # A patch that is not what was blended (an encoder that loses something, say) is found in what it shows.
    encode = stage.encode_patch

    def spoilt(pixels):
        pixels = pixels.copy()
        pixels[0, :3] ^= 1  # the corners of a disc's window lie outside its feather
        return encode(pixels)

    monkeypatch.setattr(stage, "encode_patch", spoilt)
    (one,) = removed(THREE, ELEMENTS[:1])
    assert one.changed_outside == 3


def test_weights_are_pinned_named_and_loaded_once_per_gpu(weights, monkeypatch, tmp_path):
    plain = RemovalsConfig()
    assert STAGE.pin(plain) == plain
    assert (STAGE.models(plain), STAGE.processes(plain)) == ((), None)
    config = STAGE.pin(RemovalsConfig(inpainter="lama", lama=weights))
    assert STAGE.models(config) == (f"LaMa {config.lama.revision}",)
    assert STAGE.processes(config) == 0
    monkeypatch.setattr(devices, "count_gpus", lambda: 3)
    assert STAGE.processes(config) == 3
    monkeypatch.setenv("PAIRWRIGHT_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"removals\.lama: big-lama\.pt"):
        STAGE.pin(RemovalsConfig(inpainter="lama"))


@pytest.fixture(scope="module")
def rendered():
    """Two worlds: the image, and for each thing its element and the picture of the world without it."""
    from pairwright.tasks.scenes.photograph import exposure_of
    from pairwright.tasks.scenes.world import photograph_world

    config, found = ScenesConfig(seed=3, worlds=2, photographs=2, width=128, height=96, samples_per_pixel=8), []
    for index in (5, 11):  # in a studio, whose plain ground an inpainter can continue
        picture, graph = next(photograph_world(config, index))
        image = photograph(picture, graph=graph)
        for one in graph.objects[:4]:
            truth = exposure_of(graph).without(one.id).take()
            found.append((image, element(image, decode_mask(one.mask), one.id, tag=one.shape), truth))
    return found


@pytest.mark.parametrize("inpainter", ["telea", "navier-stokes"])
def test_rendered_worlds_look_as_if_the_thing_had_never_been_there(rendered, inpainter):
    left = []
    for image, row, truth in rendered:
        (one,) = removed(image, [row], inpainter=inpainter)
        mask, before = decode_mask(Mask.model_validate_json(row.mask)), decode_rgb(image.image)
        after = composed(image, one)
        errors = [np.abs(shown.astype(int) - truth)[mask].mean() for shown in (before, after)]
        left.append(errors[1] / errors[0])
        for there in image.graph.objects:
            if there.id not in row.object_ids:
                other = decode_mask(there.mask)
                assert np.array_equal(after[other], before[other])
    # What the thing did to its pixels is gone to a large part; its shadow, and what it hid, are not known.
    assert max(left) < 0.9
    assert median(left) < 0.4
