"""Pairs are whole or refused; names that others chose reach files below their folder and nothing
else."""

from dataclasses import replace

import pytest

from pairwright.schemas.config import ImagesConfig, Profile
from pairwright.schemas.rows import ItemRow
from pairwright.tasks.sources.read_entry import (
    EntryMetadata,
    SourceImage,
    check_path,
    read_below,
    read_pair,
)
from pairwright.tasks.sources.reader import RefusedEntryError
from tests.fixtures.pictures import picture

CONFIG = Profile(source="instructpix2pix:/data").sources
ITEM = ItemRow(key="i" * 32, source_key="i" * 32, subject="i" * 32, name="row 7", locator="{}")
BEFORE = SourceImage(data=picture(1), name="before.png", captions=("a dog",))
AFTER = SourceImage(data=picture(2, kind="JPEG", size=(40, 30)), name="after.jpg")


def test_equal_pixels_are_a_pair_only_where_nothing_changed():
    again = SourceImage(data=picture(1, kind="BMP"), name="again.bmp")
    for other in (replace(BEFORE, name="copy.png"), again):
        with pytest.raises(
            RefusedEntryError, match=f"identical images: before.png and {other.name}"
        ):
            read_pair(ITEM, (BEFORE, other), CONFIG, metadata=EntryMetadata())
    first, second, pair = read_pair(
        ITEM, (BEFORE, again), CONFIG, metadata=EntryMetadata(may_be_identical=True)
    )
    assert (pair.first, pair.second) == (first.key, second.key)
    image, pair = read_pair(
        ITEM, (BEFORE, BEFORE), CONFIG, metadata=EntryMetadata(may_be_identical=True)
    )
    assert pair.first == pair.second == image.key


def test_other_texts_are_another_pair():
    keys = {
        read_pair(
            ITEM, both, CONFIG, metadata=EntryMetadata(human_differences=texts, origin=origin)
        )[-1].key
        for both in ((BEFORE, AFTER), (AFTER, BEFORE))
        for texts in ((), ("a",), ("a", "b"))
        for origin in ("given", "edit")
    }
    assert len(keys) == 12


IMAGES = ImagesConfig(max_bytes=100)


@pytest.mark.parametrize(
    "name", ["a.png", "a/b.png", "a..png", "./a.png", "12:30.jpg", "a\\b.png", "é 😀.png", "a:b/c"]
)
def test_paths_below_the_folder_are_taken(name):
    assert check_path(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "/a",
            "../a",
            "a/../../b",
            "..",
            "a/..",
            ".",
            "./",
            "\\a",
            "a\\..\\..\\b",
            "C:/a",
            "C:\\a",
            "s3://b/a",
        ),
        *("file:///etc/passwd", "a\0", "\ud800", "x" * 5000, None, 7, ["a.png"]),
    ],
)
def test_paths_that_leave_are_refused(name):
    for use in (check_path, lambda path: read_below("/", path, IMAGES)):
        with pytest.raises(RefusedEntryError, match="path") as refused:
            use(name)
        assert len(refused.value.detail) < 500
        refused.value.detail.encode()
