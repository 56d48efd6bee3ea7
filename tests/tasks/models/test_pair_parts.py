"""Pairs aligned and cropped, and cut into tiles, from the files to the rows."""

import cv2
import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from skimage import data

from pairwright.flows.pipeline.load_profile import load_profile
from pairwright.flows.pipeline.pipeline import with_source
from pairwright.schemas.config import TilesConfig
from pairwright.schemas.errors import ConfigError
from pairwright.schemas.rows import ImageRow, PairRow
from pairwright.schemas.scene import Mask
from pairwright.tasks.images.decode import decode_rgb, encode_png
from pairwright.tasks.images.masks import decode_mask
from pairwright.tasks.models.pair_parts import find_rectangle, tile_starts
from tests.fixtures.layouts import put
from tests.fixtures.sources import Source

PHOTOGRAPH = data.astronaut()[:, :400]  # 400 x 512
TURN = np.array([[0.98, 0.06, 5.0], [-0.05, 1.01, 12.0], [4e-5, -2e-5, 1.0]])
"""From the first image's pixels to the second's."""


def mark(image, box=(180, 200, 220, 240)):
    x0, y0, x1, y1 = box
    marked = image.copy()
    marked[y0:y1, x0:x1] = (0, 255, 0)
    return marked


def source(folder, before, after, label=None, **settings):
    """Return a source of one pair."""
    put(folder, "before/a.png", encode_png(before))
    put(folder, "after/a.png", encode_png(after))
    if label is not None:
        put(folder, "label/a.png", encode_png(np.dstack([label * np.uint8(255)] * 3)))
    return Source("folder-pairs", folder, **settings)


def read_one(folder, *images, **settings):
    (rows,) = source(folder, *images, **settings).rows().values()
    pictures = {row.key: row for row in rows if isinstance(row, ImageRow)}
    (pair,) = (row for row in rows if isinstance(row, PairRow))
    first, second = pictures[pair.first], pictures[pair.second]
    return pair, first, second, decode_rgb(first.image), decode_rgb(second.image)


def test_a_shift_moves_pixels_and_crops_both(tmp_path) -> None:
    """The second camera stood 30 pixels further left and 20 higher."""
    before, after = PHOTOGRAPH[20:, :370], mark(PHOTOGRAPH)[:492, 30:]
    pair, first, second, ours, theirs = read_one(tmp_path, before, after, align=True)
    np.testing.assert_array_equal(ours, PHOTOGRAPH[20:492, 30:370])
    np.testing.assert_array_equal(theirs, mark(PHOTOGRAPH)[20:492, 30:370])
    assert pair.window == (30, 0, 370, 472)
    assert pair.transform == (1, 0, -30, 0, 1, 20, 0, 0, 1)
    assert first.name == "before/a.png [30, 0, 370, 472]"
    assert first.group == second.group == "before/a.png"
    assert not first.remarks


def test_another_viewpoint_is_warped_with_its_mask(tmp_path) -> None:
    after = cv2.warpPerspective(mark(PHOTOGRAPH), TURN, (400, 512))
    changed = (after == (0, 255, 0)).all(axis=2)
    pair, _, _, ours, theirs = read_one(tmp_path, PHOTOGRAPH, after, changed, align=True)
    assert np.abs(np.array(pair.transform).reshape(3, 3) - TURN)[:2].max() < 0.6
    x0, y0, x1, y1 = pair.window
    np.testing.assert_array_equal(ours, PHOTOGRAPH[y0:y1, x0:x1])
    mask = decode_mask(Mask.model_validate_json(pair.change_mask))
    assert mask.shape == ours.shape[:2]
    marked = np.zeros(PHOTOGRAPH.shape[:2], bool)
    marked[200:240, 180:220] = True
    assert (mask ^ marked[y0:y1, x0:x1]).sum() < 160, "a pixel along the edge"
    assert np.abs(ours.astype(int) - theirs)[~mask].mean() < 8
    assert 0.7 < ours.size / PHOTOGRAPH.size < 1


def test_two_parts_of_one_picture_are_no_pair(tmp_path) -> None:
    pair = source(tmp_path, PHOTOGRAPH[20:], PHOTOGRAPH[:, 30:], align=True)
    assert pair.reasons() == {"a": "identical images"}


def test_what_cannot_be_aligned_stays_with_a_remark(tmp_path) -> None:
    other = data.coffee()[:, :400]
    pair, first, _, ours, _ = read_one(tmp_path, PHOTOGRAPH, other, align=True)
    np.testing.assert_array_equal(ours, PHOTOGRAPH)
    assert first.reason == "images were not aligned"
    assert (pair.window, pair.transform) == ((), ())


def test_images_in_place_keep_their_bytes(tmp_path) -> None:
    pair, first, second, _, _ = read_one(tmp_path, PHOTOGRAPH, mark(PHOTOGRAPH), align=True)
    assert first.image == encode_png(PHOTOGRAPH)
    assert second.name == "after/a.png"
    assert pair.transform == (1, 0, 0, 0, 1, 0, 0, 0, 1)


def test_tiles_of_both_images_without_those_that_have_no_data(tmp_path) -> None:
    """Of four by three tiles, one is black in the first image, and one equal in both."""
    rng = np.random.default_rng(0)
    before, after = rng.integers(1, 255, (2, 200, 280, 3), dtype=np.uint8)
    before[:96, :96] = 0
    after[:96, 184:] = before[:96, 184:]
    tiles = {"size": 96, "overlap": 32}
    rows = source(tmp_path, before, after, tiles=tiles).rows()["a"]
    pairs = [row for row in rows if isinstance(row, PairRow)]
    images = {row.key: row for row in rows if isinstance(row, ImageRow)}
    starts = [(x, y) for y in (0, 64, 104) for x in (0, 64, 128, 184)]
    kept = [start for start in starts if start not in ((0, 0), (184, 0))]
    assert [pair.window for pair in pairs] == [(x, y, x + 96, y + 96) for x, y in kept]
    for pair in pairs:
        x0, y0, x1, y1 = pair.window
        for key, whole in ((pair.first, before), (pair.second, after)):
            np.testing.assert_array_equal(decode_rgb(images[key].image), whole[y0:y1, x0:x1])
    assert {image.group for image in images.values()} == {"before/a.png"}


def test_a_tile_has_its_own_part_of_the_mask(tmp_path) -> None:
    label = np.zeros((512, 400), bool)
    label[10:20, 10:20] = True
    both = (PHOTOGRAPH, mark(PHOTOGRAPH, (10, 10, 20, 20)), label)
    rows = source(tmp_path, *both, tiles={"size": 256}).rows()["a"]
    pairs = [row for row in rows if isinstance(row, PairRow)]
    assert [pair.change_types for pair in pairs] == [(), *[("no_change",)] * 3]
    assert [pair.window[:2] for pair in pairs] == [(0, 0), (144, 0), (0, 256), (144, 256)]
    assert decode_mask(Mask.model_validate_json(pairs[0].change_mask)).sum() == 100


def test_images_of_two_sizes_are_not_cut(tmp_path) -> None:
    pair = source(tmp_path, PHOTOGRAPH, PHOTOGRAPH[:300], tiles={"size": 64})
    assert pair.reasons() == {"a": "tiles need images of one size"}


@pytest.mark.parametrize(
    ("length", "size", "overlap", "starts"),
    [(96, 96, 0, [0]), (50, 96, 32, [0]), (97, 96, 0, [0, 1]), (224, 96, 32, [0, 64, 128])],
)
def test_tiles_reach_the_edge(length, size, overlap, starts) -> None:
    assert tile_starts(length, TilesConfig(size=size, overlap=overlap)) == starts


def test_the_largest_part_of_a_slanted_image() -> None:
    inside = np.asarray(Image.new("1", (60, 40), 1)).copy()
    inside[:, :7] = inside[:3] = False
    inside[30:, 58:] = False
    assert find_rectangle(inside) == (7, 3, 58, 40)


def test_settings_that_cut_nothing_are_refused(tmp_path) -> None:
    with pytest.raises(ValidationError, match="must be below size"):
        TilesConfig(size=64, overlap=64)
    profile = load_profile("scenes", ["mining.align=true"])
    with pytest.raises(ConfigError, match=r"mining\.align: rlaif-v:.* brings preferences"):
        with_source(profile, [f"rlaif-v:{tmp_path}"])
