"""Pairs are whole or refused; names reach files below their folder and nothing else."""

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

CONFIG = Profile(source="instructpix2pix:/data").source_config
ITEM = ItemRow(key="i" * 32, source_key="i" * 32, subject="i" * 32, name="row 7", locator="{}")
BEFORE = SourceImage(data=picture(1), name="before.png", captions=("a dog",))
COPY = replace(BEFORE, name="copy.png")
SAME_PIXELS = SourceImage(data=picture(1, kind="BMP"), name="again.bmp")
AFTER = SourceImage(data=picture(2, kind="JPEG", size=(40, 30)), name="after.jpg")


def pair_of(*images, **metadata):
    return read_pair(ITEM, images, CONFIG, metadata=EntryMetadata(**metadata))


@pytest.mark.parametrize("other", [COPY, SAME_PIXELS])
def test_equal_pixels_are_no_pair(other) -> None:
    with pytest.raises(RefusedEntryError, match=f"identical images: before.png and {other.name}"):
        pair_of(BEFORE, other)


def test_equal_pixels_are_a_pair_where_nothing_changed() -> None:
    first, second, pair = pair_of(BEFORE, SAME_PIXELS, may_be_identical=True)
    assert (pair.first, pair.second) == (first.key, second.key)
    image, pair = pair_of(BEFORE, COPY, may_be_identical=True)
    assert pair.first == pair.second == image.key


def test_other_texts_are_another_pair() -> None:
    keys = {
        pair_of(*both, human_differences=texts, origin=origin)[-1].key
        for both in ((BEFORE, AFTER), (AFTER, BEFORE))
        for texts in ((), ("a",), ("a", "b"))
        for origin in ("given", "edit")
    }
    assert len(keys) == 12


@pytest.mark.parametrize(
    "name", ["a/b.png", "a..png", "./a.png", "12:30.jpg", "a\\b.png", "é 😀.png"]
)
def test_paths_below_the_folder_are_taken(name) -> None:
    assert check_path(name) == name


@pytest.mark.parametrize("use", [check_path, lambda path: read_below("/", path, ImagesConfig())])
@pytest.mark.parametrize(
    "name",
    [
        "",
        "/a",
        "../a",
        "a/../../b",
        "a/..",
        ".",
        "\\a",
        "a\\..\\..\\b",
        "C:/a",
        "s3://b/a",
        "a\0",
        "\ud800",
        None,
        pytest.param("x" * 5000, id="a long name"),
    ],
)
def test_paths_that_leave_are_refused(use, name) -> None:
    with pytest.raises(RefusedEntryError, match="path") as refused:
        use(name)
    assert len(refused.value.detail) < 500
    refused.value.detail.encode()
