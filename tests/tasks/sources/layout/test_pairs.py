"""Pairs are whole or refused: both images are decoded, equal ones are refused, keys name all that a pair is made of."""

from dataclasses import replace

import pytest

from pairwright.schemas.config import ImagesConfig, Profile
from pairwright.schemas.rows import Dropped, ImageRow, ItemRow, PairRow, make_key
from pairwright.tasks.sources.layout.pairs import About, Picture, read_image, read_pair
from tests.fixtures.pictures import picture

CONFIG = Profile(source="instructpix2pix:/data").sources
ITEM = ItemRow(key="i" * 32, source_key="i" * 32, subject="i" * 32, name="row 7", locator="{}")
BEFORE = Picture(data=picture(1), name="before.png", captions=("a dog",))
AFTER = Picture(data=picture(2, kind="JPEG", size=(40, 30)), name="after.jpg")


def test_a_pair_brings_both_images_and_names_them_in_order():
    about = About(origin="edit", instruction="make it a cat", licence="MIT", group="g", human_differences=("x", "y"))
    first, second, pair = read_pair(ITEM, BEFORE, AFTER, CONFIG, about=about)
    assert isinstance(first, ImageRow)
    assert isinstance(second, ImageRow)
    assert isinstance(pair, PairRow)
    assert (first.key, second.key) == (make_key(BEFORE.data), make_key(AFTER.data)) == (pair.first, pair.second)
    assert {row.source_key for row in (first, second, pair)} == {ITEM.key}
    assert (second.format, second.width, second.height, second.name) == ("jpeg", 40, 30, "after.jpg")
    assert (first.captions, second.captions) == (("a dog",), ())
    assert {(row.licence, row.group, row.source) for row in (first, second)} == {("MIT", "g", "instructpix2pix")}
    assert pair.key == pair.subject == make_key("pair", first.key, second.key, "edit", "make it a cat", "x", "y")
    assert (pair.origin, pair.anchor, pair.cluster) == ("edit", "", -1)
    assert (pair.instruction, pair.human_differences) == ("make it a cat", ("x", "y"))


def test_the_configured_licence_goes_first():
    config = CONFIG.model_copy(update={"images": ImagesConfig(licence="CC0-1.0")})
    row = read_image(ITEM, BEFORE, config, about=About(licence="MIT"))
    assert isinstance(row, ImageRow)
    assert row.licence == "CC0-1.0"


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "empty file"), (b"hello", "not an image"), (picture(3)[:-90], "truncated image")]
)
def test_one_bad_image_refuses_the_whole_pair(data, reason):
    bad = Picture(data=data, name="bad.png")
    for both in ((bad, BEFORE), (BEFORE, bad)):
        refused = read_pair(ITEM, *both, CONFIG, about=About())
        assert isinstance(refused, Dropped)
        assert (refused.source_key, refused.reason) == (ITEM.key, reason)
        assert refused.detail.startswith("row 7: bad.png")


def test_a_file_above_the_limit_is_not_decoded():
    config = CONFIG.model_copy(update={"images": ImagesConfig(max_bytes=len(BEFORE.data) - 1)})
    refused = read_image(ITEM, BEFORE, config, about=About())
    assert isinstance(refused, Dropped)
    assert refused.reason == "file too large"


def test_equal_pixels_are_a_pair_only_where_nothing_changed():
    again = Picture(data=picture(1, kind="BMP"), name="again.bmp")
    for other in (replace(BEFORE, name="copy.png"), again):
        refused = read_pair(ITEM, BEFORE, other, CONFIG, about=About())
        assert isinstance(refused, Dropped)
        assert (refused.reason, refused.detail) == ("identical images", f"row 7: before.png and {other.name}")
    first, second, pair = read_pair(ITEM, BEFORE, again, CONFIG, about=About(may_be_identical=True))
    assert (pair.first, pair.second) == (first.key, second.key)
    image, pair = read_pair(ITEM, BEFORE, BEFORE, CONFIG, about=About(may_be_identical=True))
    assert pair.first == pair.second == image.key


def test_other_texts_are_another_pair():
    keys = {
        read_pair(ITEM, *both, CONFIG, about=About(human_differences=texts, origin=origin))[-1].key
        for both in ((BEFORE, AFTER), (AFTER, BEFORE))
        for texts in ((), ("a",), ("a", "b"))
        for origin in ("given", "edit")
    }
    assert len(keys) == 12


def test_change_types_travel_and_are_part_of_the_key():
    plain = read_pair(ITEM, BEFORE, AFTER, CONFIG, about=About(human_differences=("a",)))[-1]
    typed = read_pair(ITEM, BEFORE, AFTER, CONFIG, about=About(human_differences=("a",), change_types=("b",)))[-1]
    more = read_pair(ITEM, BEFORE, AFTER, CONFIG, about=About(human_differences=("a", "b")))[-1]
    assert (plain.change_types, typed.change_types) == ((), ("b",))
    assert len({plain.key, typed.key, more.key}) == 3
