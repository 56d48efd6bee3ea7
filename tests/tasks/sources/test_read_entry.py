"""Pairs are whole or refused; names that others chose reach files below their folder and nothing else."""

import os
from dataclasses import replace

import pytest

from pairwright.schemas.config import ImagesConfig, Profile
from pairwright.schemas.rows import ItemRow
from pairwright.tasks.sources import read_entry
from pairwright.tasks.sources.read_entry import About, Picture, check_path, read_below, read_pair
from pairwright.tasks.sources.reader import RefusedEntryError
from tests.fixtures.pictures import picture

CONFIG = Profile(source="instructpix2pix:/data").sources
ITEM = ItemRow(key="i" * 32, source_key="i" * 32, subject="i" * 32, name="row 7", locator="{}")
BEFORE = Picture(data=picture(1), name="before.png", captions=("a dog",))
AFTER = Picture(data=picture(2, kind="JPEG", size=(40, 30)), name="after.jpg")


def test_equal_pixels_are_a_pair_only_where_nothing_changed():
    again = Picture(data=picture(1, kind="BMP"), name="again.bmp")
    for other in (replace(BEFORE, name="copy.png"), again):
        with pytest.raises(RefusedEntryError, match=f"identical images: before.png and {other.name}"):
            read_pair(ITEM, (BEFORE, other), CONFIG, about=About())
    first, second, pair = read_pair(ITEM, (BEFORE, again), CONFIG, about=About(may_be_identical=True))
    assert (pair.first, pair.second) == (first.key, second.key)
    image, pair = read_pair(ITEM, (BEFORE, BEFORE), CONFIG, about=About(may_be_identical=True))
    assert pair.first == pair.second == image.key


def test_other_texts_are_another_pair():
    keys = {
        read_pair(ITEM, both, CONFIG, about=About(human_differences=texts, origin=origin))[-1].key
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
        *("", "/a", "../a", "a/../../b", "..", "a/..", ".", "./", "\\a", "a\\..\\..\\b", "C:/a", "C:\\a", "s3://b/a"),
        *("file:///etc/passwd", "a\0", "\ud800", "x" * 5000, None, 7, ["a.png"]),
    ],
)
def test_paths_that_leave_are_refused(name):
    for use in (check_path, lambda path: read_below("/", path, IMAGES)):
        with pytest.raises(RefusedEntryError, match="path") as refused:
            use(name)
        assert len(refused.value.detail) < 500
        refused.value.detail.encode()


def test_what_lies_below_is_read_if_it_is_a_file_of_some_size(tmp_path):
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    (root / "d/a.png").write_bytes(b"data")
    (root / "large").write_bytes(bytes(101))
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "inside").symlink_to(root / "d")
    (root / "outside").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    (tmp_path / "link").symlink_to(root)
    assert read_below(root, "d/a.png", IMAGES) == read_below(tmp_path / "link", "inside/a.png", IMAGES) == b"data"
    reasons = {"outside/secret": "path leaves the folder", "large": "file too large", "loop": "symlink loop"}
    reasons |= dict.fromkeys(("d", "pipe"), "not a regular file") | {"d/" + "y" * 300: "unreadable file"}
    reasons |= dict.fromkeys(("none", "d/a.png/x"), "missing file")
    for name, reason in reasons.items():
        with pytest.raises(RefusedEntryError, match=reason):
            read_below(root, name, IMAGES)
    listed = read_entry.size_and_time(root, "d/a.png")
    assert listed == (4, (root / "d/a.png").stat().st_mtime_ns)
    assert read_entry.size_and_time(root, "none") == (-1, 0)
    os.utime(root / "d/a.png", ns=(1, 1))
    with pytest.raises(RefusedEntryError, match="changed since it was listed"):
        read_below(root, "d/a.png", IMAGES, listed)
