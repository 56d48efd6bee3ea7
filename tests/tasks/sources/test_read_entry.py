"""Pairs are whole or refused; names that others chose reach files below their folder and nothing else."""

import errno
import os
from dataclasses import replace

import pytest

from pairwright.schemas.config import ImagesConfig, Profile
from pairwright.schemas.rows import Dropped, Failed, ImageRow, ItemRow, PairRow, make_key
from pairwright.tasks.sources.read_entry import (
    About,
    Picture,
    RefusedEntryError,
    check_path,
    read_below,
    read_one,
    read_pair,
    size_and_time,
)
from tests.fixtures.pictures import picture

CONFIG = Profile(source="instructpix2pix:/data").sources
ITEM = ItemRow(key="i" * 32, source_key="i" * 32, subject="i" * 32, name="row 7", locator="{}")
BEFORE = Picture(data=picture(1), name="before.png", captions=("a dog",))
AFTER = Picture(data=picture(2, kind="JPEG", size=(40, 30)), name="after.jpg")


def test_a_pair_brings_both_images_and_names_them_in_order():
    about = About(origin="edit", instruction="make it a cat", licence="MIT", group="g", human_differences=("x", "y"))
    first, second, pair = read_pair(ITEM, (BEFORE, AFTER), CONFIG, about=about)
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


@pytest.mark.parametrize(
    ("data", "reason"), [(b"", "empty file"), (b"hello", "not an image"), (picture(3)[:-90], "truncated image")]
)
def test_one_bad_image_refuses_the_whole_pair(data, reason):
    bad = Picture(data=data, name="bad.png")
    for both in ((bad, BEFORE), (BEFORE, bad)):
        (refused,) = read_one(ITEM, lambda both=both: read_pair(ITEM, both, CONFIG, about=About()))
        assert isinstance(refused, Dropped)
        assert (refused.source_key, refused.reason) == (ITEM.key, reason)
        assert refused.detail.startswith("row 7: bad.png")


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


def test_change_types_travel_and_are_part_of_the_key():
    plain = read_pair(ITEM, (BEFORE, AFTER), CONFIG, about=About(human_differences=("a",)))[-1]
    typed = read_pair(ITEM, (BEFORE, AFTER), CONFIG, about=About(human_differences=("a",), change_types=("b",)))[-1]
    more = read_pair(ITEM, (BEFORE, AFTER), CONFIG, about=About(human_differences=("a", "b")))[-1]
    assert (plain.change_types, typed.change_types) == ((), ("b",))
    assert len({plain.key, typed.key, more.key}) == 3


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
    reasons = {
        "outside/secret": "path leaves the folder",
        "large": "file too large",
        "d": "not a regular file",
        "pipe": "not a regular file",
        "loop": "symlink loop",
        "none": "missing file",
        "d/a.png/x": "missing file",
        "d/" + "y" * 300: "unreadable file",
    }
    for name, reason in reasons.items():
        with pytest.raises(RefusedEntryError, match=reason):
            read_below(root, name, IMAGES)
    listed = size_and_time(root, "d/a.png")
    assert listed == (4, (root / "d/a.png").stat().st_mtime_ns)
    assert size_and_time(root, "none") == (-1, 0)
    os.utime(root / "d/a.png", ns=(1, 1))
    with pytest.raises(RefusedEntryError, match="changed since it was listed"):
        read_below(root, "d/a.png", IMAGES, listed)


def test_a_disk_that_fails_is_owed_again(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"x")

    def fail(path, flags):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", fail)
    (failed,) = read_one(ITEM, lambda: [read_below(tmp_path, "a", IMAGES)])
    assert isinstance(failed, Failed)
    assert (failed.reason, failed.source_key) == ("I/O error", ITEM.key)
